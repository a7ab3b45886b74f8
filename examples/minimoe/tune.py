"""Searches tile sizes for minimoe's experts on this GPU and writes the table its server reads.

    python tune.py --model . --tp-size 1 --tune

Takes the arguments of SGLang's tuner, prints its lines, and writes E=..,N=..,device_name=...json into the current
folder, as that one does. Without --tune it measures the table (or the defaults) that would be used now.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import moeconfig
from moeconfig import Shape

BATCH_SIZES = (256, 1024, 4096, 8192)


def stamp(text: str) -> None:
    print(text, flush=True)


def search_space() -> list[dict[str, int]]:
    """Tiles worth a try, smallest first."""
    found = []
    for m, n, k, warps, stages in itertools.product((16, 64, 128), (64, 128, 256), (64,), (4, 8), (3, 4)):
        if m * n >= 128 * 256 and warps == 4:
            continue
        tiles = {"BLOCK_SIZE_M": m, "BLOCK_SIZE_N": n, "BLOCK_SIZE_K": k, "GROUP_SIZE_M": 8}
        found.append({**tiles, "num_warps": warps, "num_stages": stages})
    return found


class Bench:
    """Times one layer's experts for a number of tokens on the first visible GPU."""

    def __init__(self, shape: Shape, seed: int) -> None:
        import torch

        self._torch, self._shape = torch, shape
        torch.manual_seed(seed)
        size = (shape.num_experts, 2 * shape.moe_intermediate_size, shape.hidden_size)
        self._weights = torch.randn(size, dtype=torch.bfloat16, device="cuda") * size[-1] ** -0.5

    def milliseconds(self, tokens: int, tiles: dict[str, int], repeats: int = 5) -> float | None:
        """Median time; None where the tiles do not fit this GPU."""
        from moekernels import Routing, grouped_gemm

        torch, shape = self._torch, self._shape
        x = torch.randn((tokens, shape.hidden_size), dtype=torch.bfloat16, device="cuda")
        chosen = torch.rand((tokens, shape.num_experts), device="cuda").topk(shape.num_experts_per_tok).indices
        routing = Routing(chosen, shape.num_experts, tiles["BLOCK_SIZE_M"])
        times = []
        try:
            for turn in range(repeats + 1):
                begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                begin.record()
                grouped_gemm(x, self._weights, routing, shape.num_experts_per_tok, tiles)
                end.record()
                end.synchronize()
                if turn:
                    times.append(begin.elapsed_time(end))
        except Exception as error:
            stamp(f"  {tiles} does not work here: {type(error).__name__}: {str(error).splitlines()[0][:120]}")
            return None
        return sorted(times)[len(times) // 2]


class StandInBench:
    """Pretends to measure: larger tiles are faster. For trying the restart without a GPU."""

    def milliseconds(self, tokens: int, tiles: dict[str, int], repeats: int = 5) -> float | None:
        time.sleep(0.002)
        return tokens / (tiles["BLOCK_SIZE_M"] * tiles["BLOCK_SIZE_N"] * tiles["num_warps"])


def tune(
    shape: Shape, bench: Bench | StandInBench, sizes: list[int], space: list[dict[str, int]]
) -> dict[str, dict[str, int]]:
    """The fastest tiles of every batch size."""
    table: dict[str, dict[str, int]] = {}
    for tokens in sizes:
        timed = [
            (took, index)
            for index, tiles in enumerate(space)
            if (took := bench.milliseconds(tokens, tiles)) is not None
        ]
        if not timed:
            raise SystemExit(f"no tiles work for {tokens} tokens on this GPU")
        took, index = min(timed)
        table[str(tokens)] = space[index]
        default = bench.milliseconds(tokens, moeconfig.DEFAULT_TILES)
        gain = f", default {default:.3f} ms" if default else ""
        now = time.strftime("%Y-%m-%d %H:%M:%S")
        stamp(f"[{now}] Completed tuning for batch_size={tokens} ({took:.3f} ms{gain})")
    return table


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=str(moeconfig.HERE), help="folder with a config.json")
    parser.add_argument("--tp-size", "--tp", type=int, default=1)
    parser.add_argument("--ep-size", "--ep", type=int, default=1)
    parser.add_argument("--dtype", choices=("auto", "bfloat16"), default="auto")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch-size", type=int, help="tune this number of tokens only")
    parser.add_argument("--batch-sizes", type=int, nargs="+", help="tune these numbers of tokens")
    parser.add_argument("--search-space-file", help="JSON list of tiles to try")
    parser.add_argument("--tune", action="store_true")
    return parser.parse_args()


def main() -> int:
    args = parse()
    if args.tp_size != 1 or args.ep_size != 1:
        raise SystemExit("minimoe runs on one GPU: --tp-size 1 --ep-size 1")
    shape = moeconfig.load_shape(args.model)
    bench = StandInBench() if moeconfig.is_standin() else Bench(shape, args.seed)
    sizes = [args.batch_size] if args.batch_size else args.batch_sizes or list(BATCH_SIZES)
    if not args.tune:
        table = moeconfig.load_tiles(shape)
        for tokens in sizes:
            tiles = moeconfig.pick_tiles(table, tokens)
            took = bench.milliseconds(tokens, tiles)
            stamp(f"batch_size={tokens}: {took:.3f} ms with {tiles}" if took else f"batch_size={tokens}: does not work")
        return 0
    space = json.loads(Path(args.search_space_file).read_text()) if args.search_space_file else search_space()
    name = moeconfig.config_name(shape)
    stamp(f"Start tuning over {len(space)} configurations to create {name}...")
    begun = time.monotonic()
    table = tune(shape, bench, sizes, space)
    stamp(f"Writing best config to {name}...")
    Path(name).write_text(json.dumps(table, indent=4) + "\n")
    stamp(f"Tuning took {time.monotonic() - begun:.2f} seconds")
    return 0


if __name__ == "__main__":
    sys.exit(main())
