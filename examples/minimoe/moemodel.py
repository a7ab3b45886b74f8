"""A small Mixture-of-Experts model with random weights: embedding, router, experts, output head. No attention.

Each step adds a block of tokens to every running request, so that the experts do work of a prefill's size and
the choice of tiles shows.
"""

from __future__ import annotations

import time
from typing import Protocol

from moeconfig import Shape, pick_tiles

Tiles = dict[int, dict[str, int]]


class Model(Protocol):
    """What the server runs: one step for so many requests; returns the last token of each."""

    def step(self, requests: int) -> list[int]: ...
    def free_gib(self) -> float: ...


class StandIn:
    """Behaves like a model without a GPU: a tuned table makes its steps faster. Its numbers mean nothing."""

    def __init__(self, shape: Shape, table: Tiles | None) -> None:
        self._step_s = 0.01 if table else 0.05
        self._shape = shape
        self._count = 0

    def step(self, requests: int) -> list[int]:
        time.sleep(self._step_s)
        self._count += 1
        return [(self._count * 31 + one) % self._shape.vocab_size for one in range(requests)]

    def free_gib(self) -> float:
        return 0.0


class TritonModel:
    """The real thing on the first visible GPU, in bfloat16."""

    def __init__(self, shape: Shape, table: Tiles | None, max_requests: int, seed: int = 0) -> None:
        import torch

        self._torch = torch
        self._shape, self._table = shape, table
        torch.manual_seed(seed)

        def weight(*size: int) -> torch.Tensor:
            made = torch.empty(size, dtype=torch.bfloat16, device="cuda")
            return made.normal_(std=size[-1] ** -0.5)

        h, f, e = shape.hidden_size, shape.moe_intermediate_size, shape.num_experts
        self._layers = [(weight(e, h), weight(e, 2 * f, h), weight(e, h, f)) for _ in range(shape.num_hidden_layers)]
        self._embedding = weight(shape.vocab_size, h) * h**0.5
        self._places = weight(max_requests * shape.block_tokens, h) * h**0.5
        self._tokens = torch.randint(shape.vocab_size, (max_requests * shape.block_tokens,), device="cuda")
        self._pending: tuple[torch.Tensor, torch.cuda.Event] | None = None

    def free_gib(self) -> float:
        return float(self._torch.cuda.mem_get_info()[0]) / (1 << 30)

    def step(self, requests: int) -> list[int]:
        """Queue one step and return the tokens of the one before, so that the GPU never waits for the host."""
        torch = self._torch
        count = requests * self._shape.block_tokens
        with torch.inference_mode():
            x = self._embedding[self._tokens[:count]] + self._places[:count]
            for router, up, down in self._layers:
                x = x + self._experts(self._norm(x), router, up, down)
            self._tokens[:count] = (self._norm(x) @ self._embedding.T).argmax(-1)
            last = torch.empty(requests, dtype=self._tokens.dtype, pin_memory=True)
            last.copy_(self._tokens[:count].view(requests, -1)[:, -1], non_blocking=True)
        event = torch.cuda.Event()
        event.record()
        before, self._pending = self._pending, (last, event)
        if before is None or before[0].numel() != requests:
            event.synchronize()
            return [int(one) for one in last]
        before[1].synchronize()
        return [int(one) for one in before[0]]

    def _norm(self, x):  # type: ignore[no-untyped-def]
        return self._torch.nn.functional.rms_norm(x, (self._shape.hidden_size,))

    def _experts(self, x, router, up, down):  # type: ignore[no-untyped-def]
        """Top-k routing, gated up projection, down projection, weighted sum."""
        from moekernels import Routing, grouped_gemm

        torch, top_k = self._torch, self._shape.num_experts_per_tok
        scores, chosen = torch.topk(torch.softmax((x @ router.T).float(), -1), top_k, dim=-1)
        tiles = pick_tiles(self._table, x.shape[0])
        routing = Routing(chosen, self._shape.num_experts, tiles["BLOCK_SIZE_M"])
        gate, value = grouped_gemm(x, up, routing, top_k, tiles).chunk(2, dim=-1)
        inner = torch.nn.functional.silu(gate) * value
        out = grouped_gemm(inner, down, routing, 1, tiles)
        weights = (scores / scores.sum(-1, keepdim=True)).to(x.dtype)
        return (out.view(-1, top_k, out.shape[-1]) * weights[..., None]).sum(1)
