"""Frames from a recording or any generator as a transport, paced by their own `t`. Talks to no host."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from moetop.errors import LinkError, UsageError
from moetop.model import Status
from moetop.recording import HostIndex, Malformed, RecordingIndex, decode, encode, index_recording, read_host
from moetop.transport.base import Channel, Completed

LATE_S = 1.0
"""A replay that fell further behind than this (a suspended laptop) goes on from where it is."""

LOOK_S = 0.2
"""How soon a change of speed is noticed while waiting for a frame's time."""

_HEAD = msgspec.json.Decoder(dict[str, Any])


class _Times(msgspec.Struct):
    t: float
    type: str = ""


_TIMES = msgspec.json.Decoder(_Times)


class Timed(NamedTuple):
    """A line, and when it is played: seconds of a clock that is not its own `t`."""

    raw: bytes
    at: float


FrameSource = Callable[[], "Iterator[Mapping[str, Any] | bytes | Timed]"]


class Pace:
    """When a frame of time `t` is due. `speed` multiplies real time; 0 or infinity is flat out."""

    def __init__(self, speed: float) -> None:
        self._flat_out = speed == 0 or math.isinf(speed)
        self._halted = False
        self._speed = speed
        self._zero: float | None = None  # monotonic time of t = 0

    def set_speed(self, speed: float) -> None:
        """Go on at `speed` times real time from where it is; 0 halts. Nothing happens flat out."""
        self._halted = speed == 0
        if speed > 0:
            self._speed = speed
        self._zero = None

    def wait_s(self, t: float) -> float:
        """Seconds to wait before a frame of time `t` goes out; infinite while halted."""
        if self._flat_out:
            return 0.0
        if self._halted:
            return math.inf
        now = time.monotonic()
        due = t / self._speed
        if self._zero is None or now - (self._zero + due) > LATE_S:
            self._zero = now - due
        return max(0.0, self._zero + due - now)


class FrameChannel:
    """The `Channel` that plays frames."""

    def __init__(
        self,
        source: FrameSource,
        pace: Pace,
        *,
        start_t: float | None = None,
        loop: bool = False,
    ) -> None:
        self._source = source
        self._pace = pace
        self._start_t = start_t
        self._loop = loop
        self._closed = threading.Event()

    def lines(self) -> Iterator[bytes]:
        shift = 0.0
        start_t = self._start_t
        if start_t is not None:  # several hosts of one recording share a beginning
            self._pace.wait_s(start_t)
        begun = start_t is None
        while True:
            first, last, step = None, 0.0, 1.0
            for raw, t in self._frames(shift):
                first = t if first is None else first
                step = t - last if 0 < t - last < 60 else step
                last = max(last, t)
                begun = begun or start_t is None or t >= start_t
                while begun and (wait_s := self._pace.wait_s(t)) > 0:  # what was known before goes out at once
                    if self._closed.wait(min(wait_s, LOOK_S)):
                        return
                if self._closed.is_set():
                    return
                yield raw
            if not self._loop or first is None:
                return
            shift += last - first + step

    def _frames(self, shift: float) -> Iterator[tuple[bytes, float]]:
        """Lines with the times they are due at; a line without a time goes out with the one before it."""
        t = self._start_t or 0.0
        for item in self._source():
            if isinstance(item, Timed):
                yield item
            elif isinstance(item, bytes):
                try:
                    t = _TIMES.decode(item).t + shift
                except (msgspec.MsgspecError, ValueError, RecursionError):
                    yield item, t
                    continue
                yield (encode({**_HEAD.decode(item), "t": t}) if shift else item), t
            else:
                t = float(item["t"]) + shift
                yield encode({**item, "t": t}), t

    def send(self, line: bytes) -> None:
        """A replay has no use for control lines."""

    def close(self) -> None:
        self._closed.set()


class FrameTransport:
    """A host made of frames: `source` gives a fresh iterator of frames (mappings or lines) each time.

    `speed` multiplies real time, 0 or infinity is flat out. With `loop` it begins again at the end,
    times going on. What comes before a frame due at `start_t` or later goes out at once.
    """

    def __init__(
        self,
        name: str,
        source: FrameSource,
        *,
        speed: float = 1.0,
        loop: bool = False,
        start_t: float | None = None,
    ) -> None:
        if not speed >= 0:
            raise UsageError(f"{speed} is no speed", "a speed is 0 (flat out) or more")
        self.name = name
        self.finite = not loop
        self.renews = False
        self.pace = Pace(speed)
        self._source = source
        self._loop = loop
        self._start_t = start_t
        self._channel: FrameChannel | None = None
        self._closed = threading.Event()

    def open(self, options: Mapping[str, object]) -> Channel:
        if self._closed.is_set():
            raise LinkError("the transport is closed", code="closed", retry=False)
        channel = FrameChannel(self._source, self.pace, start_t=self._start_t, loop=self._loop)
        self._channel = channel
        if self._closed.is_set():
            channel.close()
        return channel

    def run(self, argv: Sequence[str], stdin: bytes = b"", timeout_s: float = 30.0) -> Completed:
        raise LinkError(f"{self.name} is a recording; nothing can be run on it", code="replay", retry=False)

    def close(self) -> None:
        self._closed.set()
        if self._channel is not None:
            self._channel.close()


class ReplayTransport(FrameTransport):
    """One host of a recording. What is wrong with the file is among its frames as statuses (`index.faults`)."""

    def __init__(
        self,
        index: RecordingIndex,
        host: HostIndex,
        *,
        speed: float,
        from_s: float | None,
        to_s: float | None,
        past_s: float = 0.0,
    ) -> None:
        playtime = index.playtime
        begin = playtime.begin if from_s is None else playtime.at(playtime.start_t + from_s)
        end = math.inf if to_s is None else playtime.until(playtime.start_t + to_s)
        super().__init__(
            host.name,
            lambda: _with_refusal(_with_faults(_cut(index, host, begin, end, past_s), index.faults())),
            speed=speed,
            start_t=begin,
        )
        self.path = index.path
        self.faults = tuple(index.faults().values())


def _cut(index: RecordingIndex, host: HostIndex, begin: float, end: float, past_s: float) -> Iterator[Timed]:
    """The frames played from `begin` to `end`; what was known by `begin` (all but samples, and those of the last
    `past_s` seconds) comes first, at once."""
    stretches = deque(index.playtime.of(host.name))
    at = begin
    for offset, raw in zip(host.offsets, read_host(index.path, host), strict=False):
        while len(stretches) > 1 and stretches[1].begin <= offset:
            stretches.popleft()
        try:
            times = _TIMES.decode(raw)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            continue
        due = stretches[0].at(times.t) if stretches else None
        at = at if due is None else due
        if at > end:
            continue
        if at < begin - past_s and times.type == "gpus":
            continue
        yield Timed(raw, at)


def _with_faults(lines: Iterator[Timed], faults: Mapping[str, str]) -> Iterator[Timed]:
    """`lines`, with a status for every fault after the first line and after each hello, which ends all statuses."""
    if not faults:
        yield from lines
        return
    told = False
    for line in lines:
        yield line
        head = _TIMES.decode(line.raw)
        if told and head.type != "hello":
            continue
        told = True
        for code, message in faults.items():
            yield Timed(encode(Status(t=head.t, code=code, message=message, level="warning")), line.at)


def _with_refusal(lines: Iterator[Timed]) -> Iterator[Timed]:
    """`lines`, and at the end a status where not one sample among them, or not one line, was a frame after all."""
    bad_sample = bad_line = ""
    read_one = False
    t = at = 0.0
    for line in lines:
        yield line
        head = _TIMES.decode(line.raw)
        if read_one and head.type != "gpus":
            continue
        t, at, frame = head.t, line.at, decode(line.raw)
        if not isinstance(frame, Malformed):
            if head.type == "gpus":
                break
            read_one = True
        elif head.type == "gpus":
            bad_sample = frame.reason
        else:
            bad_line = frame.reason
    else:
        reason = bad_sample or ("" if read_one else bad_line)
        if reason:
            message = f"not one sample of the recording can be read: {reason}"
            yield Timed(encode(Status(t=t, code="recording_refused", message=message, level="error")), at)
    yield from lines


def read_index(path: str | Path, from_s: float | None, to_s: float | None) -> RecordingIndex:
    """The index of a recording in which `from_s` to `to_s` lies. Raises UsageError as `open_recording` says."""
    index = index_recording(Path(path))
    length = index.playtime.last_t - index.playtime.start_t
    if from_s is not None and from_s > length:
        raise UsageError(f"the recording {path} is only {length:.0f} s long", f"choose --from under {length:.0f}")
    if from_s is not None and to_s is not None and to_s <= from_s:
        raise UsageError("--to must lie after --from")
    return index


def open_recording(
    path: str | Path, *, speed: float = 1.0, from_s: float | None = None, to_s: float | None = None
) -> list[ReplayTransport]:
    """One transport for every host of a recording, sharing a common zero.

    `from_s` and `to_s` are seconds from its beginning. Raises UsageError where the file is missing,
    empty or no recording, or where nothing lies between the two.
    """
    index = read_index(path, from_s, to_s)
    return [ReplayTransport(index, host, speed=speed, from_s=from_s, to_s=to_s) for host in index.hosts.values()]
