"""The grouped GEMM of the experts in Triton, and the sorting of tokens by expert that it needs."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def _grouped_gemm(
    a_ptr, b_ptr, c_ptr, rows_ptr, experts_ptr, total_ptr,
    pairs, n, k, rows_per_token, a_stride, b_stride_e, b_stride_n, c_stride,
    BLOCK_SIZE_M: tl.constexpr, BLOCK_SIZE_N: tl.constexpr, BLOCK_SIZE_K: tl.constexpr, GROUP_SIZE_M: tl.constexpr,
):  # fmt: skip
    """C[pair] = A[pair // rows_per_token] @ B[expert].T for pairs sorted by expert and padded to whole tiles."""
    pid = tl.program_id(0)
    blocks_n = tl.cdiv(n, BLOCK_SIZE_N)
    blocks_m = tl.num_programs(0) // blocks_n
    in_group = GROUP_SIZE_M * blocks_n
    first_m = (pid // in_group) * GROUP_SIZE_M
    group_m = min(blocks_m - first_m, GROUP_SIZE_M)
    pid_m = first_m + (pid % in_group) % group_m
    pid_n = (pid % in_group) // group_m
    if pid_m * BLOCK_SIZE_M >= tl.load(total_ptr):
        return
    rows = tl.load(rows_ptr + pid_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M))
    real = rows < pairs
    expert = tl.load(experts_ptr + pid_m * BLOCK_SIZE_M).to(tl.int64)
    columns = pid_n * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)
    depth = tl.arange(0, BLOCK_SIZE_K)
    a = a_ptr + (rows // rows_per_token).to(tl.int64)[:, None] * a_stride + depth[None, :]
    b = b_ptr + expert * b_stride_e + columns.to(tl.int64)[None, :] * b_stride_n + depth[:, None]
    total = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)
    for start in range(0, k, BLOCK_SIZE_K):
        inside = depth < k - start
        left = tl.load(a, mask=real[:, None] & inside[None, :], other=0.0)
        right = tl.load(b, mask=(columns < n)[None, :] & inside[:, None], other=0.0)
        total += tl.dot(left, right)
        a += BLOCK_SIZE_K
        b += BLOCK_SIZE_K
    c = c_ptr + rows.to(tl.int64)[:, None] * c_stride + columns[None, :]
    tl.store(c, total.to(c_ptr.dtype.element_ty), mask=real[:, None] & (columns < n)[None, :])


class Routing:
    """Token-expert pairs sorted by expert, each expert padded to whole tiles of `block` rows. No host sync."""

    def __init__(self, experts_of_pair: torch.Tensor, num_experts: int, block: int) -> None:
        pairs = experts_of_pair.numel()
        flat = experts_of_pair.reshape(-1)
        order = torch.argsort(flat, stable=True)
        counts = torch.zeros(num_experts, dtype=flat.dtype, device=flat.device)
        counts.scatter_add_(0, flat, torch.ones_like(flat))
        padded = (counts + block - 1) // block * block
        ends = torch.cumsum(padded, 0)
        size = (pairs + num_experts * (block - 1) + block - 1) // block * block
        sorted_experts = flat[order]
        place = torch.arange(pairs, device=flat.device) - (torch.cumsum(counts, 0) - counts)[sorted_experts]
        self.rows = torch.full((size,), pairs, dtype=torch.int32, device=flat.device)
        self.rows[(ends - padded)[sorted_experts] + place] = order.to(torch.int32)
        slots = torch.arange(size, device=flat.device)
        self.experts = torch.searchsorted(ends, slots, right=True).clamp_(max=num_experts - 1).to(torch.int32)
        self.total = ends[-1:].to(torch.int32)
        self.pairs = pairs


def grouped_gemm(
    a: torch.Tensor, weights: torch.Tensor, routing: Routing, rows_per_token: int, tiles: dict[str, int]
) -> torch.Tensor:
    """One row a pair: `a` (tokens or pairs, K) times the pair's expert of `weights` (E, N, K)."""
    n, k = weights.shape[1], weights.shape[2]
    out = torch.empty((routing.pairs, n), dtype=a.dtype, device=a.device)
    grid = (routing.rows.numel() // tiles["BLOCK_SIZE_M"] * triton.cdiv(n, tiles["BLOCK_SIZE_N"]),)
    _grouped_gemm[grid](
        a, weights, out, routing.rows, routing.experts, routing.total,
        routing.pairs, n, k, rows_per_token, a.stride(0), weights.stride(0), weights.stride(1), out.stride(0),
        BLOCK_SIZE_M=tiles["BLOCK_SIZE_M"], BLOCK_SIZE_N=tiles["BLOCK_SIZE_N"], BLOCK_SIZE_K=tiles["BLOCK_SIZE_K"],
        GROUP_SIZE_M=tiles["GROUP_SIZE_M"], num_warps=tiles["num_warps"], num_stages=tiles["num_stages"],
    )  # fmt: skip
    return out
