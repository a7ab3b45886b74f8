"""Measures the probe on a real GPU: what each part costs, and the whole with and without looking for servers.

Run on the GPU machine from the repository root, pynvml on the path: `python3 -m tests.gpu.probe_cost`. It takes under a
minute, as root or as an ordinary user; root measures an ordinary user's probe as well. Costs are CPU time. The goal is
1.5 ms a GPU a sample at 1 Hz with 8 GPUs, and 60 MiB.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from moetop.probe import gpus
from moetop.probe.discover import Finder
from moetop.probe.hostinfo import LoadReader
from moetop.probe.nvml import Nvml
from moetop.probe.outbox import encode
from moetop.probe.processes import Namer
from moetop.transport.bootstrap import loader_argv, payload

PYTHON = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable
MEASURE_S = 10.0
EARLY_S = 5.0
LATE_S = 14.0
"""When a probe that looks for servers has come to rest: it looks once a second for the first ten."""

NOBODY = 65534
GOAL_MS, GOAL_MIB = 1.5, 60.0
ROUNDS = 25


def say(text: str) -> None:
    print(text, flush=True)


# ── parts ────────────────────────────────────────────────────────────────────────────────────────


def timed(work: Callable[[], object], rounds: int = ROUNDS, pause_s: float = 0.0) -> float:
    """CPU milliseconds a call."""
    spent = 0.0
    for _ in range(rounds):
        start = time.thread_time()
        work()
        spent += time.thread_time() - start
        time.sleep(pause_s)
    return spent * 1000 / rounds


def show_calls() -> None:
    """CPU time of every NVML call of a GPU's reader, and how often one second has it."""
    cost: dict[str, list[float]] = {}
    nvml = Nvml()
    failure = nvml.start()
    if failure is not None:
        raise SystemExit(f"{failure.code}: {failure.message}")
    plain = nvml.call

    def watched(name: str, *args: object, **kwargs: object) -> object:
        start = time.thread_time()
        answer = plain(name, *args, **kwargs)
        cost.setdefault(name, []).append((time.thread_time() - start) * 1000)
        return answer

    nvml.call = watched  # type: ignore[method-assign, assignment]
    reader = gpus.GpuReader(nvml, 0, Namer())
    reader.open()
    opening = sum(sum(values) for values in cost.values())
    cost.clear()
    row: dict = {}
    whole = timed(lambda: row.update(reader.sample(1.0)), ROUNDS, 0.2)
    say(f"constants of a GPU, once: {opening:.1f} ms")
    say(f"a sample of one GPU (5 Hz, {ROUNDS} samples): {whole:.2f} ms; of that in NVML:")
    for name, values in sorted(cost.items(), key=lambda item: -sum(item[1])):
        say(f"  {name:46s} {sum(values) / len(values):7.3f} ms a call, {len(values):3d} calls")
    for item in gpus._SELDOM:
        each = timed(lambda item=item: item.read(reader), 5, 0.05)  # type: ignore[misc]
        say(f"  {item.key:46s} {each:7.3f} ms every {item.period_s:.0f} s = {each / item.period_s:.3f} ms a second")
    each = timed(lambda: gpus.list_processes(nvml, reader.handle, reader._namer), 5, 0.05)
    say(
        f"  {'processes':46s} {each:7.3f} ms every {gpus.PROCESSES_S:.0f} s = {each / gpus.PROCESSES_S:.3f} ms a second"
    )
    say(f"JSON of a frame of 8 such rows: {timed(lambda: encode({'type': 'gpus', 'gpus': [row] * 8})):.3f} ms")


def show_host_parts() -> None:
    """What the host costs beside its GPUs."""
    load = LoadReader()

    def read_load() -> None:
        load._read_at = None
        load.read()

    say(f"load and memory of the host: {timed(read_load):.3f} ms every 5 s")
    finder = Finder()
    count = sum(entry.name.isdigit() for entry in Path("/proc").iterdir())
    first = timed(lambda: finder.find({}), 1)
    fresh = timed(lambda: finder.find({}), 11)
    rest = timed(lambda: finder.find({}), 60)
    say(f"looking for servers among {count} processes: first {first:.2f} ms, first 12 s {fresh:.2f} ms a second,")
    say(f"  later {rest:.2f} ms every 5 s = {rest / 5:.3f} ms a second")


# ── the whole ────────────────────────────────────────────────────────────────────────────────────


def cpu_ms(pid: int) -> float:
    """CPU time of all threads of a process."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            total += int((task / "schedstat").read_text().split()[0])
    return total / 1e6


class Probe:
    """A probe through the real loader at 1 Hz, pinged as a client would."""

    def __init__(self, user: int | None, **options: object) -> None:
        self.process = subprocess.Popen(
            loader_argv(PYTHON), stdin=subprocess.PIPE, stdout=subprocess.PIPE, user=user, cwd="/"
        )
        assert self.process.stdin and self.process.stdout
        self.started = time.monotonic()
        self.process.stdout.readline()
        self.process.stdin.write(payload({"interval_s": 1.0, **options}))
        self.process.stdin.flush()
        self.frames: list[tuple[float, dict]] = []
        self.over = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()
        threading.Thread(target=self._ping, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.frames.append((time.monotonic() - self.started, json.loads(line)))

    def _ping(self) -> None:
        assert self.process.stdin
        with contextlib.suppress(OSError, ValueError):
            while not self.over.wait(1.0):
                self.process.stdin.write(b'{"cmd": "ping"}\n')
                self.process.stdin.flush()

    def of(self, kind: str) -> list[dict]:
        return [frame for _, frame in self.frames if frame["type"] == kind]


@contextlib.contextmanager
def probe(user: int | None, **options: object) -> Iterator[Probe]:
    running = Probe(user, **options)
    try:
        yield running
    finally:
        running.over.set()
        assert running.process.stdin
        running.process.stdin.close()
        running.process.wait(5.0)


def show(words: str, running: Probe, start_s: float) -> None:
    """Wait, measure for ten seconds, and say the figures."""
    time.sleep(max(0.0, running.started + start_s - time.monotonic()))
    before, count = cpu_ms(running.process.pid), len(running.of("gpus"))
    time.sleep(MEASURE_S)
    spent = cpu_ms(running.process.pid) - before
    samples = running.of("gpus")[count:]
    rows = [row for frame in samples for row in frame["gpus"]]
    status = Path(f"/proc/{running.process.pid}/status").read_text()
    mib = {line.split()[0]: int(line.split()[1]) / 1024 for line in status.splitlines() if " kB" in line}
    each = spent / max(1, len(rows))
    first = next((t for t, frame in running.frames if frame["type"] == "gpus"), float("nan"))
    good = "" if each <= GOAL_MS and mib["VmHWM:"] <= GOAL_MIB else "   <-- over the goal"
    say(f"{words}: {each:.2f} ms a GPU a sample, {mib['VmRSS:']:.1f} MiB ({mib['VmHWM:']:.1f} at most){good}")
    say(
        f"  {len(samples)} samples of {len(rows) // max(1, len(samples))} GPUs, {spent / MEASURE_S:.2f} ms a second, "
        f"own memory {mib['RssAnon:']:.1f} MiB, first sample after {first:.2f} s, "
        f"GPM in {sum(1 for row in rows if row.get('gpm'))} of {len(rows)} rows"
    )
    absent = sorted({f"{key}: {why}" for row in rows for key, why in row.get("absent", {}).items()})
    said = sorted({frame["code"] for frame in running.of("status")})
    say(f"  absent: {', '.join(absent) or 'nothing'}; statuses: {', '.join(said) or 'none'}")


def main() -> None:
    begun = time.monotonic()
    say(f"as {'root' if os.getuid() == 0 else 'an ordinary user'}, {os.cpu_count()} processors")
    show_calls()
    show_host_parts()
    with probe(None, discover=False) as running:
        show("without looking for servers", running, EARLY_S)
    with probe(None) as running:
        if os.getuid() == 0:
            with probe(NOBODY, discover=False) as other:
                time.sleep(3.0)
                rows = [row for frame in other.of("gpus") for row in frame["gpus"]]
                notes = [note for frame in other.of("hello") for note in frame.get("notes", ())]
                gpm = sum(1 for row in rows if row.get("gpm"))
                say(f"an ordinary user's probe: {len(rows)} rows, {gpm} with GPM; cannot see: {notes or 'nothing'}")
        show("looking for servers", running, LATE_S)
        say(json.dumps({"hello": running.of("hello")[-1]}))
        say(json.dumps({"row": running.of("gpus")[-1]["gpus"][:1]}))
    say(f"took {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
