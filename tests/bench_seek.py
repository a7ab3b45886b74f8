"""A jump to the end of an hour of eight GPUs in a replay: until the screen's charts and states could be drawn."""

from __future__ import annotations

import json
import tempfile
from itertools import takewhile
from pathlib import Path
from statistics import median

from moetop.fleet import Fleet
from moetop.model import AnyFrame
from moetop.player import Player
from moetop.recording import Malformed, Unknown, clean
from moetop.transport.base import ProbeOptions
from moetop.watch import Watch
from tests.bench_frames import frames
from tests.bench_kit import Figure, own_cpu

GPUS = 8
SECONDS = 3600
RUNS = 5
START = 1_000_000.0


def _hour(endpoint: bool) -> list[bytes]:
    """Its lines; without `endpoint` the server's numbers stand in its log alone."""

    def begun(line: bytes) -> bool:
        frame, _raw = clean(line)
        return isinstance(frame, (Malformed, Unknown)) or frame.t < START + SECONDS

    lines = list(takewhile(begun, frames(1, GPUS, START)))
    if not endpoint:
        lines = [line if b'"server"' not in line else _without_numbers(line) for line in lines]
    return lines


def _without_numbers(line: bytes) -> bytes:
    frame = json.loads(line)
    frame.pop("metrics", None)
    return json.dumps(frame).encode()


def _jump(path: Path) -> float:
    """Processor seconds from the jump until its newest sample is taken in."""
    player = Player(str(path), speed=1.0, from_s=None, to_s=None)
    watch = Watch(10.0, live=False, source="recording")
    made = player.transports()
    for transport in made:
        watch.expect(transport.name)
    fleet = Fleet(made, watch, ProbeOptions())
    fleet.start()
    try:
        (name,) = watch.names()
        watch.wait(lambda: watch.last_t(name) is not None, 30)
        with own_cpu() as cost:
            player.seek(player.end - 1.0, fleet, watch)
            watch.wait(lambda: (watch.last_t(name) or 0.0) >= player.end - 2.0, 120)
        return cost[0]
    finally:
        fleet.stop()


def figures() -> list[Figure]:
    """The jump, and taking in the whole hour with charts and without."""
    rows = []
    for endpoint, told in ((True, "numbers from the endpoint"), (False, "from the log alone")):
        lines = _hour(endpoint)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "hour.jsonl"
            path.write_bytes(b"".join(line.rstrip(b"\n") + b"\n" for line in lines))
            jumps = [_jump(path) for _ in range(RUNS)]
        rows.append(Figure(f"jump to the end of the hour, {told}: processor, median", median(jumps), "s"))
        decoded = [clean(line) for line in lines]
        known: list[tuple[AnyFrame, bytes]] = [
            (frame, raw) for frame, raw in decoded if not isinstance(frame, (Malformed, Unknown))
        ]
        spent = {}
        for charts in (False, True):
            watch = Watch(10.0, live=False, keep_history=charts)
            with own_cpu() as cost:
                for frame, raw in known:
                    watch.frame("a", frame, raw)
            spent[charts] = cost[0]
        what = f"the hour taken in with charts and states, {told}: processor"
        rows.append(Figure(what, spent[True], "s", "without", spent[False]))
    return rows
