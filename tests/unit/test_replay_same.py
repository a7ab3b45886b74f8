"""A recording gives the same findings however it is played: flat out, paced, and as the screen reads it."""

from __future__ import annotations

from pathlib import Path

import pytest

from moetop.fleet import Fleet
from moetop.model import HostReport, LinkPhase
from moetop.transport.base import ProbeOptions
from moetop.transport.replay import open_recording
from moetop.ui.gather import gather
from moetop.watch import Watch

DATA = Path(__file__).resolve().parents[1] / "data"
RECORDINGS = (
    DATA / "recordings" / "h200-moe_untuned.jsonl",
    DATA / "ranks" / "h200x2-slow_kernel.jsonl",
    DATA / "retune" / "h200-minimoe.jsonl.gz",
)


def play(path: Path, speed: float, *, looking: bool = False) -> HostReport:
    """The last report of a replay; `looking` asks for reports all the while, as the screen does."""
    watch = Watch(10.0, live=False)
    transports = open_recording(path, speed=speed)
    for transport in transports:
        watch.expect(transport.name)
    name = transports[0].name
    fleet = Fleet(transports, watch, ProbeOptions())
    fleet.start()
    try:

        def finished() -> bool:
            if looking:
                gather(watch, 0.0)
            return watch.link_of(name).phase is LinkPhase.FINISHED

        assert watch.wait(finished, 30.0)
        return watch.report(name)
    finally:
        fleet.stop()


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.name)
def test_speed_and_looking_change_nothing(path: Path) -> None:
    flat_out = play(path, 0.0)
    assert flat_out.gpus[0].state != "unknown"
    assert play(path, 400.0) == flat_out
    assert play(path, 400.0, looking=True) == flat_out
