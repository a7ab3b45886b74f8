"""The demo's two hosts as transports. Paces and bounds the frames; what they say is in `scripted` and `recorded`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import takewhile
from typing import Any

from moetop.demo.retune import RecordedRetune
from moetop.demo.scripted import scripted_frames
from moetop.transport.replay import FrameTransport

SCRIPTED, RECORDED = "glm5-sm120", "h200-lab"
"""Names of the two hosts."""

NOW_T = 1771463370.0
"""The demo's present, epoch seconds: 2026-02-19 01:09:30 UTC, the time in the scripted log. What lies before it is
there at once, so that charts and log are full from the first picture on."""

PAST_S = 300.0
"""Seconds of telemetry before the present."""

SNAPSHOT_S = 20.0
"""A demo that is read flat out ends so many seconds after its present."""


Frames = Iterator[dict[str, Any]]


def transports(retune: RecordedRetune | None = None, *, flat_out: bool = False) -> list[FrameTransport]:
    """Both hosts: in real time and without end, or as fast as they are read up to a fixed moment.

    `retune` chooses what the recorded host plays; without one it stays untuned.
    """
    recorded_frames = (retune or RecordedRetune()).frames

    def play(make: Callable[[float, float], Frames]) -> Frames:
        frames = make(NOW_T, PAST_S)
        return takewhile(lambda frame: frame["t"] <= NOW_T + SNAPSHOT_S, frames) if flat_out else frames

    return [
        FrameTransport(name, partial(play, make), speed=0 if flat_out else 1, start_t=NOW_T)
        for name, make in ((SCRIPTED, scripted_frames), (RECORDED, recorded_frames))
    ]
