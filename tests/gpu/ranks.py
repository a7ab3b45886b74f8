"""Two ranks on two cards, for the rules across GPUs: `python ranks.py NAME SECONDS`. Needs torch with NCCL.

Each row says what the two GPUs must be judged as and which finding must (or must not) stand, decided
from how it is made. Plain NCCL over NVLink, or through host memory with NCCL_P2P_DISABLE=1; no multicast.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

Step = Callable[[], object]
Make = Callable[[int], Step]


def rand(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=torch.float32).to(torch.bfloat16)


def reduce_loop(mib: float) -> Make:
    """All-reduce after all-reduce of `mib` MiB."""

    def make(_rank: int) -> Step:
        x = rand(max(1, int(mib * 2**20 / 2)))
        return lambda: dist.all_reduce(x)

    return make


def layers(tokens: int, width: int, inner: int, *, slow: str = "") -> Make:
    """Tensor-parallel layers: two products, one all-reduce. `slow` names what holds rank 1 back."""

    def make(rank: int) -> Step:
        x = rand(tokens, width)
        up, down = rand(width, inner // 2), rand(inner // 2, width)
        extra = rand(6144, 6144)

        def step() -> None:
            y = x
            for _ in range(8):
                y = (y @ up) @ down
                if rank == 1 and slow == "kernel":
                    extra @ extra
                if rank == 1 and slow == "host":
                    torch.cuda.synchronize()
                    time.sleep(0.004)
                if rank == 1 and slow == "grid":
                    for part in x.split(max(1, tokens // 16)):
                        part @ up
                dist.all_reduce(y)
                y = y * 1e-3

        return step

    return make


def hang(rank: int) -> Step:
    """Rank 1 stays away from a collective that rank 0 waits in."""
    x = rand(1 << 20)
    if rank == 1:
        return lambda: time.sleep(0.05)
    return lambda: dist.all_reduce(x)


def both_wait(rank: int) -> Step:
    """Both ranks receive from a peer that never sends: workers waiting for a request that does not come."""
    x = rand(1 << 10)
    return lambda: dist.recv(x, src=1 - rank)


def apart(rank: int) -> Step:
    """Data-parallel ranks that never talk: dense products on both."""
    a, b = rand(8192, 8192), rand(8192, 8192)
    return lambda: torch.matmul(a, b)


def apart_decode(rank: int) -> Step:
    """Data-parallel ranks that never talk: small-batch decode on both."""
    x, weights = rand(8, 8192), [rand(8192, 8192) for _ in range(64)]

    def step() -> None:
        for weight in weights:
            x @ weight

    return step


LOADS: dict[str, tuple[str, str, dict[str, str], Make]] = {
    "reduce_small": ("all-reduce of 64 KiB", "sm_underused or unknown on both; comms", {}, reduce_loop(1 / 16)),
    "reduce_medium": ("all-reduce of 4 MiB", "sm_underused on both; comms", {}, reduce_loop(4)),
    "reduce_large": ("all-reduce of 512 MiB", "comms_bound over NVLink", {}, reduce_loop(512)),
    "reduce_small_shm": ("64 KiB, no P2P", "sm_underused; comms", {"NCCL_P2P_DISABLE": "1"}, reduce_loop(1 / 16)),
    "reduce_large_shm": ("512 MiB, no P2P", "comms_bound over PCIe", {"NCCL_P2P_DISABLE": "1"}, reduce_loop(512)),
    "tp_good": ("big products, small reductions", "tensor_busy on both", {}, layers(4096, 8192, 28672)),
    "tp_bad": (
        "small products, reductions through host memory",
        "sm_underused on both; comms_bound",
        {"NCCL_P2P_DISABLE": "1"},
        layers(512, 8192, 2048),
    ),
    "slow_host": (
        "rank 1 pauses on the host",
        "straggler: rank 1 host_bound",
        {},
        layers(2048, 8192, 8192, slow="host"),
    ),
    "slow_grid": ("rank 1 works in small grids", "straggler: rank 1", {}, layers(2048, 8192, 8192, slow="grid")),
    "slow_kernel": ("rank 1 runs a kernel more", "straggler: rank 1", {}, layers(2048, 8192, 8192, slow="kernel")),
    "hang": ("rank 1 stays away", "collective_hang", {}, hang),
    "both_wait": ("both wait, nothing comes", "collective_hang or idle_spin with zero requests", {}, both_wait),
    "dp_gemm": ("data parallel, products", "tensor_busy, no finding", {}, apart),
    "dp_decode": ("data parallel, decode", "memory_bound, no finding", {}, apart_decode),
}


def work(rank: int, name: str, seconds: float) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511", **LOADS[name][2])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=2)
    first = rand(16)
    dist.all_reduce(first)
    step = LOADS[name][3](rank)
    endless = name in ("hang", "both_wait")
    if not endless:
        step()
    torch.cuda.synchronize()
    if rank == 0:
        print("ready", flush=True)
    begun, steps = time.monotonic(), 0
    if endless:
        step()
        while time.monotonic() - begun < seconds:
            time.sleep(0.05)
        os._exit(0)
    gather = torch.zeros(1, device="cuda")
    while True:
        for _ in range(4):
            step()
        steps += 4
        torch.cuda.synchronize()
        if not name.startswith("dp_"):
            gather.fill_(time.monotonic() - begun)
            dist.all_reduce(gather, op=dist.ReduceOp.MAX)
            spent = float(gather.item())
        else:
            spent = time.monotonic() - begun
        if spent >= seconds:
            break
    print(f"{name} rank {rank}: {1e3 * (time.monotonic() - begun) / steps:.3f} ms a step", flush=True)
    os._exit(0)


if __name__ == "__main__":
    mp.spawn(work, args=(sys.argv[1], float(sys.argv[2])), nprocs=2)
