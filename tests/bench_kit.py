"""What the benches share: timing of commands, processor time of a process, the table. Asserts nothing."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

QUIET = {"XDG_CONFIG_HOME": "/nonexistent", "NO_COLOR": "1"}
"""Nothing of the user's."""


class Figure(NamedTuple):
    """One line of the table. `against` says what `other` is; the ratio is value / other."""

    what: str
    value: float | None
    unit: str
    against: str = ""
    other: float | None = None
    note: str = ""


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment, with byte-compiled modules kept as an installation has them."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    kept.setdefault("PYTHONPYCACHEPREFIX", str(Path(__file__).parent / ".build" / "pycache"))
    return {**kept, **QUIET, **(more or {})}


class Times(NamedTuple):
    """Wall and processor seconds of a command, children included, and its exit status."""

    wall_s: float
    best_s: float
    cpu_s: float
    status: int


def time_command(argv: Sequence[str], env: Mapping[str, str], runs: int = 7) -> Times:
    """Median (and best) of several runs after one that fills the caches."""
    return time_in_turn([argv], env, runs)[0]


def time_in_turn(commands: Sequence[Sequence[str]], env: Mapping[str, str], runs: int = 7) -> list[Times]:
    """The same of several commands, one after the other in each round, so that a busy moment meets all."""
    walls: list[list[float]] = [[] for _ in commands]
    cpus: list[list[float]] = [[] for _ in commands]
    status = [0 for _ in commands]
    for number in range(runs + 1):
        for index, argv in enumerate(commands):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            begun = time.perf_counter()
            status[index] = subprocess.run(
                argv,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=False,
            ).returncode
            wall_s = time.perf_counter() - begun
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            if number:
                walls[index].append(wall_s)
                cpus[index].append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return [
        Times(statistics.median(wall), min(wall), statistics.median(cpu), code)
        for wall, cpu, code in zip(walls, cpus, status, strict=True)
    ]


def cpu_of(pid: int) -> float:
    """Processor seconds a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cpu_of_ended(pid: int) -> float:
    """Processor seconds of all below a process that ended and were waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


def rss_mib(pid: int | None = None) -> float:
    """Resident memory of a process (this one), MiB."""
    pages = int(Path(f"/proc/{pid or os.getpid()}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` of all are not above."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


@contextmanager
def own_cpu() -> Iterator[list[float]]:
    """Processor and wall seconds of this process inside the block: [cpu, wall] once it is left."""
    spent: list[float] = []
    begun, wall = time.process_time(), time.perf_counter()
    yield spent
    spent += [time.process_time() - begun, time.perf_counter() - wall]


def show(title: str, figures: Sequence[Figure]) -> None:
    """Print the figures of one bench as a table."""
    print(f"\n{title}")
    width = max((len(figure.what) for figure in figures), default=0)
    for what, value, unit, against, other, note in figures:
        told = "not measured" if value is None else f"{value:10.{_digits(value)}f} {unit}"
        ratio = ""
        if value is not None and other:
            ratio = f"   {value / other:5.2f} x {against} ({other:.{_digits(other)}f} {unit})"
        print(f"  {what:<{width}}  {told}{ratio}{'   ' + note if note else ''}", flush=True)


def _digits(value: float) -> int:
    return 0 if abs(value) >= 1000 else 1 if abs(value) >= 10 else 3
