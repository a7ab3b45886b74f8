"""Measures the probe on a real GPU: CPU a sample, resident memory, the cost of single calls. Prints JSON lines.

Run on the GPU machine from the repository root, pynvml on the path: `python3 -m tests.gpu.probe_cost [SECONDS]`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from moetop.probe import gpus
from moetop.probe.nvml import Nvml
from moetop.probe.processes import Namer
from moetop.transport.bootstrap import loader_argv, payload


def cpu_ms(pid: int) -> float:
    """CPU time of all threads of a process."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        total += int((task / "schedstat").read_text().split()[0])
    return total / 1e6


def measure_probe(seconds: float, user: int | None, **options: object) -> dict[str, object]:
    """The probe through the real loader at 1 Hz; figures after the first five seconds."""
    process = subprocess.Popen(
        loader_argv("/usr/bin/python3"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, user=user, cwd="/"
    )
    assert process.stdin and process.stdout
    started = time.monotonic()
    process.stdout.readline()
    process.stdin.write(payload({"interval_s": 1.0, **options}))
    process.stdin.flush()
    frames: list[tuple[float, dict]] = []
    thread = threading.Thread(
        target=lambda: [frames.append((time.monotonic() - started, json.loads(line))) for line in process.stdout]
    )
    thread.start()
    time.sleep(5.0)
    before, count = cpu_ms(process.pid), len(frames)
    time.sleep(seconds)
    after = cpu_ms(process.pid)
    samples = [frame for _, frame in frames[count:] if frame["type"] == "gpus"]
    status = Path(f"/proc/{process.pid}/status").read_text()
    process.stdin.close()
    thread.join(5.0)
    hello = next(frame for _, frame in frames if frame["type"] == "hello")
    rows = [row for frame in samples for row in frame["gpus"]]
    return {
        "user": user,
        "options": options,
        "first_sample_s": round(next(t for t, frame in frames if frame["type"] == "gpus"), 3),
        "samples": len(samples),
        "cpu_ms_a_gpu_a_sample": round((after - before) / max(1, len(rows)), 3),
        "rss_kib": [line.split()[1] for line in status.splitlines() if line.startswith(("VmRSS", "VmHWM"))],
        "gpm_readings": sum(1 for row in rows if row["gpm"]),
        "absent": sorted({f"{key}: {why}" for row in rows for key, why in row.get("absent", {}).items()}),
        "hello": {key: hello[key] for key in ("driver", "python", "user", "notes")} | {"gpu": hello["gpus"][0]},
        "statuses": [f"{frame['code']}: {frame['message']}" for _, frame in frames if frame["type"] == "status"],
        "last_row": rows[-1] if rows else None,
        "exit": process.wait(5.0),
    }


def measure_calls(rounds: int = 30) -> dict[str, float]:
    """CPU milliseconds a call, by function, of one second's sample repeated."""
    cost: dict[str, list[float]] = {}
    nvml = Nvml()
    nvml.start()
    plain = nvml.call

    def timed(name: str, *args: object, **kwargs: object) -> object:
        start = time.thread_time()
        answer = plain(name, *args, **kwargs)
        cost.setdefault(name, []).append((time.thread_time() - start) * 1000)
        return answer

    nvml.call = timed  # type: ignore[method-assign, assignment]
    reader = gpus.GpuReader(nvml, 0, Namer())
    reader.open()
    for _ in range(rounds):
        reader.sample(1.0)
        time.sleep(0.3)
    return {
        name: round(sum(values) / len(values), 3)
        for name, values in sorted(cost.items(), key=lambda item: -sum(item[1]))
    }


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 15.0
    print(json.dumps({"cpu_ms_a_call": measure_calls()}))
    print(json.dumps(measure_probe(seconds, None, discover=False)))
    print(json.dumps(measure_probe(seconds, None)))
    if os.getuid() == 0:
        print(json.dumps(measure_probe(5.0, 65534, discover=False)))


if __name__ == "__main__":
    main()
