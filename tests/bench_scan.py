"""History scan of a 1 GiB log against grep with the field's nine patterns, on this machine, in one run.

`python -m tests.bench_scan [MIB] [ROUNDS]` prints both times and their ratio; nothing is asserted about time.
The log is made like an engine's, in /tmp: access, decode and prefill lines, and a few events of every kind.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from moetop.engines.literals import scan_literals
from moetop.probe.lines import Matcher, Picker
from moetop.probe.scan import HistoryScan
from tests.bench_kit import Figure, show

NINE = "autotun|profil.runner|profil.tactic|Loading config|default config|from file|cutlass_fused|choose_one|cache_key"
EVENTS = (
    "[2026-02-19 00:41:03] server_args=ServerArgs(model_path='/models/moe', tp_size=8, moe_runner_backend='auto')",
    "[2026-06-28 13:36:54 TP0] Load weight begin. avail mem=93.80 GB",
    "2026-02-02 13:25:05,231 - INFO - autotuner.py:256 - flashinfer.jit: [Autotuner]: Autotuning process starts ...",
    "2026-02-02 13:25:05,231 - INFO - autotuner.py:256 - flashinfer.jit: [Autotuner]: Autotuning process ends",
    "[2026-06-28 13:36:54 TP0] Using default MoE kernel config. Performance might be sub-optimal! Config file "
    "not found at /sgl/configs/triton_3_5_1/E=256,N=256,device_name=NVIDIA_B200,dtype=fp8_w8a8.json, you can create",
    "[2026-06-28 13:36:54 TP0] Capture cuda graph begin. This can take up to several minutes. avail mem=18.02 GB",
    "[2026-06-28 13:40:00] The server is fired up and ready to roll!",
    "[2026-06-28 13:36:54 TP0] Scheduler hit an exception: Traceback (most recent call last):",
)
EVERY = 40000  # an event after so many lines


def ordinary(rng: random.Random) -> Iterator[str]:
    """Lines of a busy server, without an event."""
    second = 0
    while True:
        second += 1
        now = f"2026-06-28 {second // 3600 % 24:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
        kind = rng.random()
        if kind < 0.45:
            load = f"#running-req: {rng.randint(1, 64)}, #token: {rng.randint(1000, 90000)}"
            speed = f"gen throughput (token/s): {rng.random() * 3000:.2f}, #queue-req: 0"
            usage = f"token usage: 0.{rng.randint(0, 99):02d}"
            yield f"[{now} TP0] Decode batch, {load}, {usage}, cuda graph: True, {speed}"
        elif kind < 0.65:
            yield (
                f"[{now} TP0] Prefill batch, #new-seq: 1, #new-token: {rng.randint(1, 9000)}, #cached-token: 0, token "
                "usage: 0.00, #running-req: 0, #queue-req: 0, cuda graph: False, input throughput (token/s): 83.20"
            )
        elif kind < 0.95:
            peer = f"10.0.0.{rng.randint(1, 250)}:{rng.randint(1024, 65000)}"
            yield f'[{now}] INFO:     {peer} - "POST /v1/chat/completions HTTP/1.1" 200 OK'
        else:
            yield f"[{now} TP{rng.randint(0, 7)}] request {rng.getrandbits(64):x} ended, {rng.random() * 10:.2f} s"


def make_log(path: Path, size: int) -> int:
    """Write a log of about `size` bytes; the number of its event lines."""
    rng = random.Random(7)
    source = ordinary(rng)
    block = "".join(next(source) + "\n" for _ in range(EVERY))
    written = count = 0
    with path.open("w") as out:
        while written < size:
            event = EVENTS[count % len(EVENTS)] + "\n"
            out.write(event + block)
            written += len(event) + len(block)
            count += 1
    return count


def grep_seconds(path: Path) -> float:
    """Wall time of the field's grep."""
    began = time.monotonic()
    # into a pipe: into /dev/null grep stops at the first match
    subprocess.run(["grep", "-c", "-i", "-E", NINE, str(path)], check=False, capture_output=True)
    return time.monotonic() - began


def scan_seconds(path: Path) -> tuple[float, int]:
    """(wall time until every event line was sent, event lines sent)."""
    literals, noise = scan_literals()
    sent: list[dict[str, Any]] = []
    picker = Picker("log", Matcher(literals, dict(noise)), lambda frame, event: sent.append(frame))
    history = HistoryScan(picker, lambda *args, **more: None, lambda: False)
    with path.open("rb") as log:
        began = time.monotonic()
        history.run(log.fileno(), 0, os.fstat(log.fileno()).st_size)
        took = time.monotonic() - began
    history.wait_counted()
    return took, len(sent)


def figures(mib: int = 1024, rounds: int = 5) -> list[Figure]:
    """Make the log, run both a few times in turn; the best of each."""
    with tempfile.TemporaryDirectory(prefix="moetop-bench-") as folder:
        path = Path(folder) / "server.log"
        events = make_log(path, mib << 20)
        path.read_bytes()  # both read from memory
        pairs = [(grep_seconds(path), *scan_seconds(path)) for _ in range(rounds)]
    grep, scan = min(pair[0] for pair in pairs), min(pair[1] for pair in pairs)
    note = f"at most 1.5 is wanted; {events} event lines, {sorted({pair[2] for pair in pairs})} lines sent"
    return [Figure(f"every event kind in a log of {mib} MiB", scan, "s", "grep with nine patterns", grep, note)]


def main() -> None:
    """MIB and ROUNDS from the command line."""
    show("scan", figures(*(int(argument) for argument in sys.argv[1:3])))


if __name__ == "__main__":
    main()
