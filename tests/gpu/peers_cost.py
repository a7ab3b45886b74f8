"""moetop's probe beside other monitors on one machine in one run: CPU and memory while each watches at 1 Hz, then the
time that one sample takes.

Run from the repository root, pynvml on the path: `python3 -m tests.gpu.peers_cost [SECONDS]`. It takes about two
minutes. What is not installed is skipped, in words. Without a GPU it runs over the stand-in library, where an NVML call
costs nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import pty
import select
import shutil
import signal
import struct
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.bench_kit import environment, time_in_turn
from tests.gpu.probe_cost import LATE_S, cpu_ms, probe, say

SETTLE_S = 5.0
SECONDS = 15.0
RUNS = 5
ROWS, COLUMNS = 40, 160
TICK_MS = 1000.0 / os.sysconf("SC_CLK_TCK")

SMI, NVITOP, GPUSTAT = "nvidia-smi", "nvitop", "gpustat"
WATCHING: tuple[tuple[str, Sequence[str]], ...] = (
    (SMI, ("dmon", "--gpm-metrics", "1,2,3,5,10", "-d", "1")),
    (NVITOP, ("--monitor", "full", "--interval", "1")),
    (GPUSTAT, ("-i", "1")),
)
ONCE: tuple[tuple[str, Sequence[str]], ...] = ((NVITOP, ("-1",)), (GPUSTAT, ("--json",)), (SMI, ()))


class Cost(NamedTuple):
    """What watching took: CPU milliseconds a second and resident MiB, of a process and all below it."""

    cpu_ms_s: float
    rss_mib: float
    processes: int


def find(program: str) -> list[str] | None:
    """How a program is started: beside this Python, on the path, or as a module of it."""
    beside = Path(sys.executable).with_name(program)
    found = str(beside) if beside.exists() else shutil.which(program)
    if found is not None:
        return [found]
    return [sys.executable, "-m", program] if importlib.util.find_spec(program.replace("-", "_")) else None


# ── a process and what it started ────────────────────────────────────────────────────────────────


def stat_of(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the state on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def tree(pid: int) -> list[int]:
    """A process and all below it that live now."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parents[int(entry.name)] = int(stat_of(int(entry.name))[1])
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found


def spent(pid: int) -> dict[int, tuple[float, float]]:
    """CPU ms of every process of the tree: of its living threads to the nanosecond, and in ticks with what ended."""
    taken = {}
    for one in tree(pid):
        with contextlib.suppress(OSError):
            taken[one] = (cpu_ms(one), TICK_MS * sum(map(int, stat_of(one)[11:15])))
    return taken


def rss_mib(pid: int) -> float:
    """Resident memory of one process; 0 where it is gone."""
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)
    return 0.0


def watch(pid: int, seconds: float) -> Cost:
    """Measure a tree that has settled. Ticks count where threads or children ended meanwhile."""
    before = spent(pid)
    begun = time.monotonic()
    time.sleep(seconds)
    after, took_s = spent(pid), time.monotonic() - begun
    none = (0.0, 0.0)
    fine = sum(now[0] - before.get(one, none)[0] for one, now in after.items())
    ticks = sum(now[1] - before.get(one, none)[1] for one, now in after.items())
    cpu = fine if ticks - fine < 3 * TICK_MS * len(after) else ticks
    return Cost(cpu / took_s, sum(map(rss_mib, after)), len(after))


@contextlib.contextmanager
def in_terminal(argv: Sequence[str], env: Mapping[str, str]) -> Iterator[tuple[int, Callable[[], str]]]:
    """A program in a pseudo-terminal that is read all the while: its pid, and what it printed last."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe(argv[0], list(argv), {**env, "TERM": "xterm-256color", "LANG": "C.UTF-8"})
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    last = [b""]
    over = threading.Event()

    def drain() -> None:
        with contextlib.suppress(OSError):  # how a terminal says that its program ended
            while not over.is_set():
                if select.select([terminal], [], [], 0.2)[0]:
                    last[0] = (last[0] + os.read(terminal, 65536))[-400:]

    reader = threading.Thread(target=drain)
    reader.start()
    try:
        yield pid, lambda: last[0].decode("utf-8", "replace")
    finally:
        end(pid)
        over.set()
        reader.join()
        os.close(terminal)


def end(pid: int, patience_s: float = 3.0) -> None:
    """End a session leader and all of its session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGTERM)
    deadline = time.monotonic() + patience_s
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if time.monotonic() > deadline:
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return
        time.sleep(0.05)


def has_ended(pid: int) -> bool:
    return stat_of(pid)[0] == "Z"


# ── the two tables ───────────────────────────────────────────────────────────────────────────────


def show_watching(seconds: float, env: Mapping[str, str]) -> None:
    """Each for some seconds, one after the other."""
    say(f"watching at 1 Hz, {seconds:.0f} s each after it settled: CPU of all threads and children")
    say(f"  {'':<58} {'CPU ms a second':>16} {'RSS MiB':>9}")
    for words, settle_s, options in (
        ("moetop's probe, GPU values alone", SETTLE_S, {"discover": False}),
        ("moetop's probe", LATE_S, {}),
    ):
        with probe(None, **options) as running:
            time.sleep(settle_s)
            show_cost(words, watch(running.process.pid, seconds))
            if not running.of("gpus"):
                say("    it sent no sample: " + ", ".join(frame["message"] for frame in running.of("status")))
    for program, arguments in WATCHING:
        words = " ".join((program, *arguments))
        command = find(program)
        if command is None:
            say(f"  {words:<58} {program} is not installed: skipped")
            continue
        with in_terminal([*command, *arguments], env) as (pid, said):
            time.sleep(SETTLE_S)
            if has_ended(pid):
                say(f"  {words:<58} ended by itself: {' '.join(said().split())[-120:]!r}")
                continue
            show_cost(words, watch(pid, seconds))


def show_cost(words: str, cost: Cost) -> None:
    several = f"  ({cost.processes} processes)" if cost.processes > 1 else ""
    say(f"  {words:<58} {cost.cpu_ms_s:>16.2f} {cost.rss_mib:>9.1f}{several}")


def show_once(env: Mapping[str, str]) -> None:
    """One sample each, in turn, so that a busy moment meets all."""
    named = {"moetop --snapshot - --window 0": [sys.executable, "-m", "moetop", "--snapshot", "-", "--window", "0"]}
    missing = []
    for program, arguments in ONCE:
        command = find(program)
        if command is None:
            missing.append(program)
        else:
            named[" ".join((program, *arguments))] = [*command, *arguments]
    say(f"one sample, {RUNS} runs in turn, wall time")
    say(f"  {'':<58} {'best ms':>16} {'median ms':>9}")
    for words, times in zip(named, time_in_turn(list(named.values()), env, RUNS), strict=True):
        failed = f"  EXIT STATUS {times.status}" if times.status else ""
        say(f"  {words:<58} {times.best_s * 1000:>16.0f} {times.wall_s * 1000:>9.0f}{failed}")
    for program in missing:
        say(f"  {program} is not installed: skipped")


@contextlib.contextmanager
def library() -> Iterator[None]:
    """The stand-in under everything where this machine has no driver."""
    if Path("/dev/nvidiactl").exists():
        yield
        return
    from tests.bench_start import peers_library
    from tests.rig.nvml_rig import Scenario

    say("no GPU here: over the stand-in library, whose calls cost nothing")
    with tempfile.TemporaryDirectory(prefix="moetop-bench-") as folder:
        os.environ.update(Scenario(Path(folder) / "nvml.scenario", peers_library(Path(folder))).environment)
        yield


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    with library():
        env = environment()
        show_watching(seconds, env)
        show_once(env)


if __name__ == "__main__":
    main()
