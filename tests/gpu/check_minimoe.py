"""minimoe's kernel against PyTorch, for tiles of every kind, and what tiles are worth on this card."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "minimoe"))

import moeconfig
import torch
from moekernels import Routing, grouped_gemm
from tune import Bench, search_space

TUNED = {
    "BLOCK_SIZE_M": 128,
    "BLOCK_SIZE_N": 256,
    "BLOCK_SIZE_K": 64,
    "GROUP_SIZE_M": 8,
    "num_warps": 8,
    "num_stages": 3,
}


def check_against_torch() -> None:
    """Every pair's row is its token times its expert, whatever the tiles, also for experts without a token."""
    torch.manual_seed(0)
    tokens, experts, top_k, n, k = 333, 8, 2, 512, 256
    a = torch.randn(tokens, k, dtype=torch.bfloat16, device="cuda")
    weights = torch.randn(experts, n, k, dtype=torch.bfloat16, device="cuda")
    chosen = torch.rand(tokens, experts - 1, device="cuda").topk(top_k).indices
    wanted = torch.einsum("pk,pnk->pn", a.repeat_interleave(top_k, 0).float(), weights[chosen.reshape(-1)].float())
    spaces = [moeconfig.DEFAULT_TILES, TUNED, *search_space()[::7]]
    for tiles in spaces:
        routing = Routing(chosen, experts, tiles["BLOCK_SIZE_M"])
        got = grouped_gemm(a, weights, routing, top_k, tiles).float()
        worst = ((got - wanted).abs().max() / wanted.abs().max()).item()
        assert worst < 0.01, (tiles, worst)
    print(f"{len(spaces)} tilings agree with PyTorch")


def main() -> None:
    check_against_torch()
    shape = moeconfig.load_shape(str(moeconfig.HERE))
    bench = Bench(shape, 0)
    tokens = 8192
    flop = 2 * tokens * shape.num_experts_per_tok * 2 * shape.moe_intermediate_size * shape.hidden_size
    for name, tiles in (("default", moeconfig.DEFAULT_TILES), ("tuned", TUNED)):
        took = bench.milliseconds(tokens, tiles)
        assert took is not None
        print(f"{name}: {took:.3f} ms, {flop / took / 1e9:.0f} TFLOP/s")


if __name__ == "__main__":
    main()
