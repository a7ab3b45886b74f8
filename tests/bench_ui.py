"""The screen alone in a real pseudo-terminal: key press to repaint, bytes a second, processor.

    python -m tests.bench screen

Prints figures; asserts nothing. The fleet is made of model types, so that only the screen is measured.
"""

from __future__ import annotations

import fcntl
import math
import os
import pty
import select
import statistics
import struct
import sys
import termios
import threading
import time
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from tests.bench_kit import Figure, cpu_of, environment, percentile, rss_mib, show

KEYS = 120
CURSOR = "▌".encode()


def moving_app(hosts: int, gpus: int) -> None:
    """The child: a fleet whose numbers change once a second."""
    from moetop.history import GpuHistory
    from moetop.model import GpuSample
    from moetop.ui.app import run
    from tests.ui import scenes, stand_ins

    scenes.NOW = stand_ins.NOW = time.time()
    feed = scenes.big_fleet(hosts, gpus) if hosts else scenes.connecting()
    for key, history in list(feed.histories.items()):
        full = GpuHistory()
        for ago in range(3600, 0, -1):
            full.add(
                feed.now - ago, GpuSample(index=key[1], util_gpu_pct=99, power_w=600 + ago % 50, power_limit_w=700)
            )
        feed.histories[key] = full if len(history) else history

    def move() -> None:
        while True:
            time.sleep(1.0)
            now = feed.now = time.time()
            for name, report in list(feed.reports.items()):
                moved = tuple(
                    msgspec.structs.replace(
                        gpu, power_w=(gpu.power_w or 0) + 4 * math.sin(now + gpu.index), power_pct=None
                    )
                    for gpu in report.gpus
                )
                feed.reports[name] = msgspec.structs.replace(report, gpus=moved)
                for gpu in moved:
                    sample = GpuSample(
                        index=gpu.index,
                        util_gpu_pct=gpu.util_gpu_pct,
                        power_w=gpu.power_w,
                        power_limit_w=700,
                        gpm=gpu.gpm,
                    )
                    feed.histories[(name, gpu.index)].add(now, sample)
            feed.generation += 1

    threading.Thread(target=move, daemon=True).start()
    sys.exit(run(feed, actions=scenes.Deeds()))


class Terminal:
    """A child in a pseudo-terminal of a given size."""

    def __init__(self, columns: int, lines: int, argv: list[str], env: Mapping[str, str] = os.environ) -> None:
        self.started = time.perf_counter()
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(argv[0], argv, {**env, "TERM": "xterm-256color", "LANG": "C.UTF-8", "COLORTERM": "truecolor"})
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def read(self, seconds: float, until: bytes | None = None) -> bytes:
        """What comes within `seconds`, or until `until` came."""
        end = time.perf_counter() + seconds
        got = b""
        while (left := end - time.perf_counter()) > 0:
            ready, _, _ = select.select([self.fd], [], [], left)
            if ready:
                try:
                    got += os.read(self.fd, 65536)
                except OSError:
                    break
                if until is not None and until in got:
                    break
        return got

    def cpu_s(self) -> float:
        return cpu_of(self.pid)

    def close(self) -> None:
        os.write(self.fd, b"q")
        self.read(3.0)
        os.waitpid(self.pid, 0)


class Screen(NamedTuple):
    """What one run of a screen showed."""

    key_ms: list[float]
    bytes_s: float
    core_share: float
    rss_mib: float


def watch_screen(terminal: Terminal, settle_s: float = 4.0, steady_s: float = 8.0) -> Screen:
    """Let it settle, measure it at rest, then press keys."""
    terminal.read(20.0, until=b"moetop")
    terminal.read(settle_s)
    cpu, begun = terminal.cpu_s(), time.perf_counter()
    steady = terminal.read(steady_s)
    span_s = time.perf_counter() - begun
    share = (terminal.cpu_s() - cpu) / span_s
    times = []
    for number in range(KEYS):
        down = number % 8 < 4
        sent = time.perf_counter()
        os.write(terminal.fd, b"\x1b[B" if down else b"\x1b[A")
        if terminal.read(2.0, until=CURSOR):
            times.append((time.perf_counter() - sent) * 1000)
        terminal.read(0.05 + 0.013 * (number % 5))
    memory = rss_mib(terminal.pid)
    terminal.close()
    return Screen(times, len(steady) / span_s, share, memory)


SIZES = ((120, 40, 1, 8), (80, 24, 1, 16), (200, 60, 8, 8), (200, 60, 32, 8))


def figures() -> list[Figure]:
    """The screen alone, at four sizes of fleet."""
    rows = []
    for columns, lines, hosts, gpus in SIZES:
        child = [sys.executable, "-m", "tests.bench_ui", "child", str(hosts), str(gpus)]
        rows += screen_figures(
            f"{columns}x{lines}, {hosts} x {gpus} GPUs", watch_screen(Terminal(columns, lines, child, environment()))
        )
    return rows


def screen_figures(name: str, seen: Screen) -> list[Figure]:
    """The lines of a table that tell of a screen."""
    note = f"{seen.bytes_s / 1000:.1f} kB/s, {seen.rss_mib:.0f} MiB"
    p95 = percentile(seen.key_ms, 0.95) if seen.key_ms else None
    return [
        Figure(f"{name}: key to repaint, median", statistics.median(seen.key_ms) if seen.key_ms else None, "ms"),
        Figure(f"{name}: key to repaint, p95", p95, "ms", "100 ms wanted", 100.0),
        Figure(f"{name}: processor", seen.core_share * 100, "% of a core", "35 % wanted", 35.0, note),
    ]


def main() -> None:
    if len(sys.argv) > 3 and sys.argv[1] == "child":
        moving_app(int(sys.argv[2]), int(sys.argv[3]))
    show("screen", figures())


if __name__ == "__main__":
    main()
