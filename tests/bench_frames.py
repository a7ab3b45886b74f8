"""Frames of busy hosts for the benches, cheap to make: eight H200 under load, a server, its log and numbers.

Also the far side of an SSH session: `python bench_frames.py GPUS` speaks the loader's words and then
sends such frames at 1 Hz. Standard library only, and nothing of moetop, so that it starts as fast as it can.
"""

import itertools
import json
import random
import sys
import threading
import time

SOURCE = "/var/log/sglang.log"
VARIANTS = 64
"""Different samples made ahead; a second takes the next. Only its time is filled in."""


def hello(t, gpus):
    """What the probe says first."""
    return {
        "type": "hello", "schema": 1, "t": t, "driver": "580.159.04", "source": "nvml", "user": "root",
        "python": "3.11.7", "hostname": "bench", "cpus": 192, "memory_total_mib": 2064000.0, "notes": [],
        "gpus": [
            {"index": i, "uuid": f"GPU-{i:08d}-0000-0000-0000-000000000000", "name": "NVIDIA H200",
             "pci_bus_id": f"00000000:{6 + 16 * i:02X}:00.0", "compute_capability": "9.0", "mig": False,
             "memory_total_mib": 143771.0, "power_limit_default_w": 700.0, "sm_clock_max_mhz": 1980,
             "pcie_gen_max": 5, "pcie_width_max": 16, "gpm": True}
            for i in range(gpus)
        ],
    }  # fmt: skip


def server(t, gpus):
    """The server as found, with its numbers."""
    return {
        "type": "server", "t": t, "name": "sglang:30000", "pid": 4242, "engine": "sglang",
        "versions": {"sglang": "0.5.9", "flashinfer": "0.6.3", "torch": "2.9.1", "triton": "3.5.1"},
        "argv": ["python3", "-m", "sglang.launch_server", "--model-path", "/models/moe", "--tp", str(gpus)],
        "args": {"model_path": "/models/moe", "tp_size": gpus}, "port": 30000, "manager": "plain", "user": "root",
        "log": {"kind": "file", "target": SOURCE}, "source": SOURCE, "gpus": list(range(gpus)), "env": {},
        "metrics": {"running": 24.0, "queued": 0.0, "gen_tok_s": 2210.5, "t": t},
    }  # fmt: skip


def sample(index, dice):
    """One GPU at work."""
    return {
        "index": index, "util_gpu_pct": 99 + dice.randint(0, 1), "util_mem_pct": dice.randint(36, 40),
        "power_w": round(660 + dice.uniform(-30, 30), 1), "temp_c": dice.randint(60, 66), "sm_clock_mhz": 1965,
        "clock_event_reasons": 4, "memory_used_mib": 128411.0, "power_limit_w": 700.0, "mem_clock_mhz": 3201,
        "pcie_gen": 5, "pcie_width": 16, "ecc_uncorrected": 0, "ecc_corrected": 0,
        "gpm": {
            "sm_active_pct": round(dice.uniform(94, 99), 1), "sm_occupancy_pct": 25.0, "int_pct": 10.0,
            "tensor_pct": round(dice.uniform(50, 62), 1), "dram_pct": round(dice.uniform(60, 70), 1), "fp64_pct": 0.0,
            "fp32_pct": 5.0, "fp16_pct": 1.0, "pcie_tx_mib_s": 12.0, "pcie_rx_mib_s": 34.0,
            "nvlink_rx_mib_s": round(dice.uniform(5000, 6000), 1), "nvlink_tx_mib_s": 5600.0,
        },
    }  # fmt: skip


_made = {}


def variants(gpus):
    """Bodies of samples, without and with processes; the same for every host."""
    if gpus not in _made:
        dice = random.Random(gpus)
        plain, named = [], []
        for _ in range(VARIANTS):
            rows = [sample(index, dice) for index in range(gpus)]
            load = {"cpu_pct": round(dice.uniform(8, 10), 1), "load1": 10.4, "memory_used_mib": 96410.0}
            plain.append(json.dumps({"gpus": rows, "load": load}).encode()[1:])
            for row in rows:
                used = {"pid": 5000 + row["index"], "user": "root", "name": "sglang::scheduler"}
                row["processes"] = [{**used, "memory_used_mib": 127800.0}]
            named.append(json.dumps({"gpus": rows, "load": load}).encode()[1:])
        _made[gpus] = (plain, named)
    return _made[gpus]


def later(seed, gpus, start_t):
    """Lines from `start_t` on, one second after the other: (seconds since the start, [line, ...])."""
    plain, named = variants(gpus)
    for second in itertools.count():
        t = start_t + second
        body = (named if second % 5 == 0 else plain)[(second + seed) % VARIANTS]
        lines = [b'{"type":"gpus","t":%.3f,' % t + body]
        if second % 5 == 2:
            lines.append(json.dumps(server(t, gpus)).encode())
        text = f"[{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(t))} TP0] Decode batch, #running-req: 24, #token: "
        text += f"{20000 + second % 997}, token usage: 0.31, cuda graph: True, gen throughput (token/s): "
        text += f"{2200 + second % 89}.50, #queue-req: 0"
        log = {"type": "log", "t": t, "source": SOURCE, "line": text, "offset": second * 180}
        lines.append(json.dumps(log).encode())
        yield second, lines


def frames(seed, gpus, start_t):
    """The whole stream of a host, as lines."""
    yield json.dumps(hello(start_t, gpus)).encode()
    yield json.dumps(server(start_t, gpus)).encode()
    for _, lines in later(seed, gpus, start_t):
        yield from lines


def far_side(gpus):
    """Play the loader and the probe on standard input and output. Hosts sample at moments of their own."""
    print(f"MOETOP-READY {sys.version_info[0]}.{sys.version_info[1]}", flush=True)
    stdin, out = sys.stdin.buffer, sys.stdout.buffer
    stdin.read(int(stdin.readline()))
    ended = threading.Event()

    def listen():
        while stdin.readline():
            continue
        ended.set()

    threading.Thread(target=listen, daemon=True).start()
    start_t = time.time()
    log_read = {
        "type": "status",
        "t": start_t,
        "code": "log_read",
        "level": "info",
        "source": SOURCE,
        "message": "read",
    }
    out.write(json.dumps(hello(start_t, gpus)).encode() + b"\n")
    out.write(json.dumps(server(start_t, gpus)).encode() + b"\n" + json.dumps(log_read).encode() + b"\n")
    for second, lines in later(0, gpus, start_t):
        if ended.wait(max(0.0, start_t + second - time.time())):
            return
        out.write(b"\n".join(lines) + b"\n")
        out.flush()


if __name__ == "__main__":
    far_side(int(sys.argv[1]))
