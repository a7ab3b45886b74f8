"""The demo's real half: a retune of a small MoE server as it was recorded on an H200. Invents no value.

Times in the data are seconds from the moment the job was made; they are shifted to where they are played.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Generator, Iterator, Mapping
from datetime import datetime, timezone
from functools import cache
from importlib.resources import files
from typing import Any

BEFORE_S = (-16.65, 3.35)
"""Part that is repeated until somebody retunes: untuned under load."""

AFTER_S = (66.4, 86.4)
"""Part that is repeated once it is retuned: the same load on tuned kernels."""

NOTE = (
    "Recorded on an H200 (700 W, driver 580.159.04, GPM): examples/minimoe, a small MoE server in Triton that logs "
    "like SGLang, under a steady load. The values are measured; times are shifted. r plays its recorded retune."
)

_STAMP = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)")

Frame = dict[str, Any]


@cache
def recorded_job() -> Mapping[str, Any]:
    """The recorded job: plan, steps, output lines and proof; `recorded` is the epoch time of its zero."""
    found: dict[str, Any] = json.loads((files("moetop.demo") / "data" / "h200-retune.jsonl").read_bytes())
    return found


@cache
def recording() -> tuple[Frame, ...]:
    """The frames of the recording, in the order of their times."""
    data = (files("moetop.demo") / "data" / "h200-minimoe.jsonl.gz").read_bytes()
    return tuple(json.loads(line) for line in gzip.decompress(data).splitlines())


def part(begin_s: float, end_s: float) -> list[Frame]:
    """Frames from `begin_s` on and before `end_s`."""
    return [frame for frame in recording() if begin_s <= frame["t"] < end_s]


def restamped(text: str, zero_t: float) -> str:
    """A line with its printed times moved to where the recording's zero is `zero_t`, epoch seconds."""

    def moved(match: re.Match[str]) -> str:
        printed = datetime.strptime(match.group(1), "%Y-%m-%d %H:%M:%S").replace(tzinfo=timezone.utc)
        t = printed.timestamp() - recorded_job()["recorded"] + zero_t
        return "[" + datetime.fromtimestamp(t, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")

    return _STAMP.sub(moved, text)


def shifted(frame: Frame, zero_t: float) -> Frame:
    """A frame as it would be had the recording's zero been at `zero_t`, epoch seconds."""
    moved = {**frame, "t": round(frame["t"] + zero_t, 3)}
    if "started" in frame:
        moved["started"] = frame["started"] + zero_t
    if "line" in frame:
        moved["line"] = restamped(frame["line"], zero_t)
    if "t" in frame.get("metrics", {}):
        moved["metrics"] = {**frame["metrics"], "t": frame["metrics"]["t"] + zero_t}
    if "files" in frame:
        moved["files"] = [{**file, "mtime": file["mtime"] + zero_t} for file in frame["files"]]
    return moved


def opening(start_t: float) -> Iterator[Frame]:
    """What the host says of itself and its server when it is met at `start_t`, epoch seconds."""
    frames = [frame for frame in recording() if frame["t"] < BEFORE_S[0]]
    for frame in frames:
        moved = shifted(frame, start_t - frames[0]["t"])
        if frame["type"] == "hello":
            moved = {**moved, "source": "recording", "notes": [NOTE]}
        yield moved


def reopening(t: float) -> Iterator[Frame]:
    """The untuned server and the log of its start, up to ready, as if that was at `t`, epoch seconds."""
    lines = [frame for frame in recording() if frame["t"] < BEFORE_S[0] and frame["type"] == "log"]
    ready = next(place for place, frame in enumerate(lines) if "ready to roll" in frame["line"])
    match = _STAMP.match(lines[ready]["line"])
    assert match is not None, "the packaged log prints its times"
    printed = datetime.strptime(match.group(1), "%Y-%m-%d %H:%M:%S").replace(tzinfo=timezone.utc).timestamp()
    zero_t = t - (printed - recorded_job()["recorded"])
    for frame in recording():
        if frame["t"] < BEFORE_S[0] and frame["type"] in ("server", "inventory"):
            yield {**shifted(frame, zero_t), "t": t}
    for frame in lines[: ready + 1]:
        moved = {**shifted(frame, zero_t), "t": t}
        moved.pop("history", None)
        yield moved


def looped(span: tuple[float, float], begin_t: float, leave: Callable[[], bool]) -> Generator[Frame, None, float]:
    """A part again and again from `begin_t` on, until `leave` says so; returns the time of the last frame."""
    frames = part(*span)
    last_t = begin_t
    while True:
        for frame in frames:
            if leave():
                return last_t
            moved = shifted(frame, begin_t - span[0])
            last_t = moved["t"]
            yield moved
        begin_t += span[1] - span[0]
