"""Workloads for calibration on a real card: `python loads.py NAME SECONDS`. Needs torch and triton.

Each row names the state it must be judged as, decided from how it is made before it is measured.
Random data everywhere, since a matrix of zeros draws far less power.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import torch
import triton
import triton.language as tl

Step = Callable[[], object]


@triton.jit
def grouped_gemm(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """One expert a grid row: C[e] = A[e] @ B[e]."""
    e = tl.program_id(1)
    tiles_n = tl.cdiv(n, BN)
    row = tl.program_id(0) // tiles_n * BM + tl.arange(0, BM)
    col = tl.program_id(0) % tiles_n * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, k, BK):
        x = tl.load(a + e * m * k + row[:, None] * k + start + inner[None, :], mask=row[:, None] < m, other=0.0)
        y = tl.load(b + e * k * n + (start + inner)[:, None] * n + col[None, :])
        acc = tl.dot(x, y, acc)
    out = c + e * m * n + row[:, None] * n + col[None, :]
    tl.store(out, acc.to(c.dtype.element_ty), mask=row[:, None] < m)


@triton.jit
def spin(flag, cycles):
    """Poll a flag from every block, as a rank in a collective does."""
    i = 0
    while i < cycles:
        tl.atomic_add(flag + tl.program_id(0), 0)
        i += 1


def rand(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=torch.float32).to(dtype)


def moe(experts: int, m: int, n: int, k: int, tile: tuple[int, int, int], warps: int, stages: int) -> Step:
    a, b, c = rand(experts, m, k), rand(experts, k, n), rand(experts, m, n)
    bm, bn, bk = tile
    grid = (triton.cdiv(m, bm) * triton.cdiv(n, bn), experts)
    return lambda: grouped_gemm[grid](a, b, c, m, n, k, BM=bm, BN=bn, BK=bk, num_warps=warps, num_stages=stages)


def matmul(size: int, dtype: torch.dtype) -> Step:
    a, b = rand(size, size, dtype=dtype), rand(size, size, dtype=dtype)
    out = torch.empty_like(a)
    return lambda: torch.matmul(a, b, out=out)


def fp8() -> Step:
    a = rand(8192, 8192).to(torch.float8_e4m3fn)
    b = rand(8192, 8192).to(torch.float8_e4m3fn).t()
    one = torch.tensor(1.0, device="cuda")
    return lambda: torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)


def int8() -> Step:
    a = torch.randint(-127, 127, (8192, 8192), device="cuda", dtype=torch.int8)
    b = torch.randint(-127, 127, (8192, 8192), device="cuda", dtype=torch.int8).t()
    return lambda: torch._int_mm(a, b)


def tf32() -> Step:
    torch.backends.cuda.matmul.allow_tf32 = True
    return matmul(8192, torch.float32)


def fp32() -> Step:
    torch.backends.cuda.matmul.allow_tf32 = False
    return matmul(8192, torch.float32)


def attention(batch: int, heads: int, queries: int, keys: int) -> Step:
    q, k, v = rand(batch, heads, queries, 128), rand(batch, heads, keys, 128), rand(batch, heads, keys, 128)
    return lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=queries == keys)


def conv() -> Step:
    layer = torch.nn.Conv2d(256, 256, 3, padding=1, device="cuda", dtype=torch.bfloat16)
    layer = layer.to(memory_format=torch.channels_last)
    x = rand(64, 256, 64, 64).to(memory_format=torch.channels_last)

    def step() -> None:
        with torch.no_grad():
            layer(x)

    return step


def stream_add() -> Step:
    a, b = rand(1 << 30), rand(1 << 30)
    return lambda: torch.add(a, b, out=a)


def layer_norm() -> Step:
    x, w = rand(1 << 16, 8192), rand(8192)
    return lambda: torch.nn.functional.layer_norm(x, (8192,), w)


def fp64_alu() -> Step:
    x = torch.rand(1 << 24, device="cuda", dtype=torch.float64)
    return lambda: torch.sin(x).exp_().sqrt_().log1p_()


def fp32_trig() -> Step:
    x = torch.rand(1 << 26, device="cuda")

    @torch.compile
    def many(y: torch.Tensor) -> torch.Tensor:
        for _ in range(12):
            y = torch.sin(y) * torch.cos(y) + torch.exp(-y * y)
        return y

    return lambda: many(x)


def download() -> Step:
    x = torch.randn(1 << 28, device="cuda")
    host = torch.empty(1 << 28, pin_memory=True)
    return lambda: host.copy_(x, non_blocking=True)


def duty(busy_s: float, idle_s: float) -> Step:
    gemm = matmul(8192, torch.bfloat16)

    def step() -> None:
        end = time.monotonic() + busy_s
        while time.monotonic() < end:
            gemm()
            torch.cuda.synchronize()
        time.sleep(idle_s)

    return step


def decode_layers(batch: int, *, graph: bool) -> Step:
    """A small-batch decode step over many large weights, with or without a CUDA graph."""
    x = rand(batch, 4096)
    weights = [(rand(4096, 14336), rand(14336, 4096)) for _ in range(24)]

    def layers() -> None:
        y = x
        for up, down in weights:
            y = torch.nn.functional.silu(y @ up) @ down

    if not graph:
        return layers
    layers()
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        layers()
    return captured.replay


def tiny_layers() -> Step:
    x = rand(8, 512)
    weights = [rand(512, 512) for _ in range(64)]

    def layers() -> None:
        y = x
        for weight in weights:
            y = torch.relu(y @ weight)

    return layers


def wait_mix(gemms: int, cycles: int) -> Step:
    """Matrix products, then one block that waits: a rank in a slow all-reduce."""
    gemm = matmul(4096, torch.bfloat16)
    flag = torch.zeros(1024, device="cuda", dtype=torch.int32)

    def step() -> None:
        for _ in range(gemms):
            gemm()
        spin[(1,)](flag, cycles)

    return step


def spin_blocks(blocks: int) -> Step:
    flag = torch.zeros(1024, device="cuda", dtype=torch.int32)
    return lambda: spin[(blocks,)](flag, 200_000)


LOADS: dict[str, tuple[tuple[str, ...], str, Callable[[], Step]]] = {
    "gemm_fp16_4k": (("tensor_busy",), "fp16 4096^3 products", lambda: matmul(4096, torch.float16)),
    "gemm_fp8": (("tensor_busy",), "fp8 e4m3 8192^3 products", fp8),
    "gemm_int8": (("tensor_busy",), "int8 8192^3 products", int8),
    "gemm_tf32": (("tensor_busy",), "tf32 8192^3 products", tf32),
    "gemm_fp32": (("vector_bound",), "fp32 8192^3 products without tensor cores", fp32),
    "conv_bf16": (("tensor_busy", "balanced"), "3x3 convolution, 256 channels", conv),
    "attn_prefill": (("tensor_busy",), "causal attention, 4096 tokens", lambda: attention(8, 32, 4096, 4096)),
    "attn_decode": (("memory_bound",), "one query against 32768 keys", lambda: attention(32, 32, 1, 8192)),
    "stream_add": (("memory_bound",), "bf16 vector addition", stream_add),
    "layer_norm": (("memory_bound", "balanced"), "layer norm over 65536 x 8192", layer_norm),
    "fp64_alu": (("vector_bound", "memory_bound"), "fp64 elementwise functions", fp64_alu),
    "fp32_trig": (("vector_bound",), "fused fp32 trigonometry", fp32_trig),
    "download": (("transfer_bound",), "pinned device-to-host copies", download),
    "duty_half": (("host_bound",), "products half of the time, 0.2 s on and off", lambda: duty(0.2, 0.2)),
    "decode_graph": (("memory_bound",), "decode of 8 tokens, CUDA graph", lambda: decode_layers(8, graph=True)),
    "decode_b256": (("tensor_busy", "memory_bound", "balanced"), "256 tokens", lambda: decode_layers(256, graph=True)),
    "tiny_layers": (("host_bound", "sm_underused"), "512-wide layers, launch bound", tiny_layers),
    "wait_mix": (("sm_underused",), "products and one waiting block by turns", lambda: wait_mix(6, 4000)),
    "spin_132": (("sm_underused", "unknown"), "a polling block on every SM", lambda: spin_blocks(132)),
    "moe_tiny_tiles": (
        ("tensor_starved",),
        "128 experts, 64 tokens, N 2048, K 4096, tiles 16x16x32, 2 warps, 1 stage",
        lambda: moe(128, 64, 2048, 4096, (16, 16, 32), 2, 1),
    ),
    "moe_untuned_128": (
        ("tensor_starved",),
        "32 experts, 512 tokens, N = K = 4096, tiles 16x32x32, 4 warps, 1 stage",
        lambda: moe(32, 512, 4096, 4096, (16, 32, 32), 4, 1),
    ),
    "moe_tuned_128": (
        ("tensor_busy",),
        "32 experts, 512 tokens, N = K = 4096, tiles 128x256x64, 8 warps, 3 stages",
        lambda: moe(32, 512, 4096, 4096, (128, 256, 64), 8, 3),
    ),
    "moe_fair": (
        ("balanced", "tensor_starved"),
        "the same with tiles 64x64x32, 4 warps, 2 stages",
        lambda: moe(32, 512, 4096, 4096, (64, 64, 32), 4, 2),
    ),
    "moe_untuned": (
        ("tensor_starved",),
        "64 experts, 256 tokens, N = K = 4096, tiles 16x32x32, 4 warps, 1 stage",
        lambda: moe(64, 256, 4096, 4096, (16, 32, 32), 4, 1),
    ),
    "moe_tuned": (
        ("tensor_busy",),
        "64 experts, 256 tokens, N = K = 4096, tiles 128x256x64, 8 warps, 3 stages",
        lambda: moe(64, 256, 4096, 4096, (128, 256, 64), 8, 3),
    ),
}


def main() -> None:
    name, seconds = sys.argv[1], float(sys.argv[2])
    step = LOADS[name][2]()
    step()
    torch.cuda.synchronize()
    print("ready", flush=True)
    begun = time.monotonic()
    steps = 0
    while time.monotonic() - begun < seconds:
        for _ in range(4):
            step()
        torch.cuda.synchronize()
        steps += 4
    spent = time.monotonic() - begun
    print(f"{name}: {steps} steps, {1e3 * spent / steps:.3f} ms a step", flush=True)


if __name__ == "__main__":
    main()
