"""Measures the screen in a real pseudo-terminal: key press to repaint, bytes a second, CPU share.

    python -m tests.bench_ui

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
from pathlib import Path

import msgspec

KEYS = 120
CURSOR = "▌".encode()


def moving_app(hosts: int, gpus: int) -> None:
    """The child: a fleet whose numbers change once a second."""
    from moetop.history import GpuHistory
    from moetop.model import GpuSample
    from moetop.ui.app import run
    from tests.ui import scenes

    scenes.NOW = time.time()
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

    def __init__(self, columns: int, lines: int, hosts: int, gpus: int) -> None:
        self.started = time.perf_counter()
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update(TERM="xterm-256color", LANG="C.UTF-8", COLORTERM="truecolor")
            os.execv(sys.executable, [sys.executable, "-m", "tests.bench_ui", "child", str(hosts), str(gpus)])
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
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        os.write(self.fd, b"q")
        self.read(3.0)
        os.waitpid(self.pid, 0)


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def measure(columns: int, lines: int, hosts: int, gpus: int) -> None:
    terminal = Terminal(columns, lines, hosts, gpus)
    terminal.read(20.0, until=b"moetop")
    terminal.read(4.0)
    cpu, begun = terminal.cpu_s(), time.perf_counter()
    steady = terminal.read(8.0)
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
    terminal.close()
    print(
        f"{columns}x{lines} {hosts * gpus:4d} GPUs: key to repaint p50 {statistics.median(times):.0f} ms, "
        f"p95 {percentile(times, 0.95):.0f} ms; steady {len(steady) / span_s / 1000:.1f} kB/s, "
        f"{share * 100:.0f} % of a core"
    )


def measure_start() -> None:
    """First paint while no host has answered (the other first paints include building the stand-in fleet)."""
    times = []
    for _ in range(5):
        terminal = Terminal(120, 40, 0, 0)
        terminal.read(20.0, until=b"moetop")
        times.append((time.perf_counter() - terminal.started) * 1000)
        terminal.read(0.5)
        terminal.close()
    print(f"120x40, no host has answered: first paint {statistics.median(times):.0f} ms (median of {len(times)})")


def main() -> None:
    if len(sys.argv) > 3 and sys.argv[1] == "child":
        moving_app(int(sys.argv[2]), int(sys.argv[3]))
    measure_start()
    for columns, lines, hosts, gpus in ((120, 40, 1, 8), (80, 24, 1, 16), (200, 60, 8, 8), (200, 60, 32, 8)):
        measure(columns, lines, hosts, gpus)


if __name__ == "__main__":
    main()
