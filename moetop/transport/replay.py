"""Frames from a recording or any generator as a transport, paced by their own `t`. Talks to no host."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

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

FrameSource = Callable[[], "Iterator[Mapping[str, Any] | bytes]"]


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
        played_at: Callable[[float], float] = float,
    ) -> None:
        self._source = source
        self._pace = pace
        self._played_at = played_at
        self._start_t = start_t
        self._loop = loop
        self._closed = threading.Event()

    def lines(self) -> Iterator[bytes]:
        shift = 0.0
        start_t = self._start_t
        if start_t is not None:  # several hosts of one recording share a beginning
            self._pace.wait_s(self._played_at(start_t))
        while True:
            first, last, step = None, 0.0, 1.0
            for raw, t in self._frames(shift):
                first = t if first is None else first
                step = t - last if 0 < t - last < 60 else step
                last = max(last, t)
                known_before = start_t is not None and t < start_t
                while not known_before and (wait_s := self._pace.wait_s(self._played_at(t))) > 0:
                    if self._closed.wait(min(wait_s, LOOK_S)):
                        return
                if self._closed.is_set():
                    return
                yield raw
            if not self._loop or first is None:
                return
            shift += last - first + step

    def _frames(self, shift: float) -> Iterator[tuple[bytes, float]]:
        """Lines with their times; a line without a time goes out with the one before it."""
        t = self._start_t or 0.0
        for item in self._source():
            if isinstance(item, bytes):
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
    times going on.
    """

    def __init__(
        self,
        name: str,
        source: FrameSource,
        *,
        speed: float = 1.0,
        loop: bool = False,
        start_t: float | None = None,
        played_at: Callable[[float], float] = float,
    ) -> None:
        if not speed >= 0:
            raise UsageError(f"{speed} is no speed", "a speed is 0 (flat out) or more")
        self.name = name
        self.finite = not loop
        self.pace = Pace(speed)
        self._source = source
        self._loop = loop
        self._start_t = start_t
        self._played_at = played_at
        self._channel: FrameChannel | None = None
        self._closed = threading.Event()

    def open(self, options: Mapping[str, object]) -> Channel:
        if self._closed.is_set():
            raise LinkError("the transport is closed", code="closed", retry=False)
        channel = FrameChannel(
            self._source, self.pace, start_t=self._start_t, loop=self._loop, played_at=self._played_at
        )
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
        zero = index.first_t
        begin = zero + (from_s or 0.0)
        end = math.inf if to_s is None else zero + to_s
        super().__init__(
            host.name,
            lambda: _with_refusal(_with_faults(_cut(index.path, host, begin, end, past_s), index.faults())),
            speed=speed,
            start_t=begin,
            played_at=index.without_gaps,
        )
        self.path = index.path
        self.faults = tuple(index.faults().values())
        self.first_t = host.first_t
        self.last_t = host.last_t


def _cut(path: Path, host: HostIndex, begin: float, end: float, past_s: float) -> Iterator[bytes]:
    """The frames from `begin` to `end`; what was known by `begin` (all but samples, and those of the last
    `past_s` seconds) comes first, at once."""
    for raw in read_host(path, host):
        try:
            times = _TIMES.decode(raw)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            continue
        if times.t > end:
            continue
        if times.t < begin - past_s and times.type == "gpus":
            continue
        yield raw


def _with_faults(lines: Iterator[bytes], faults: Mapping[str, str]) -> Iterator[bytes]:
    """`lines`, with a status for every fault after the first line and after each hello, which ends all statuses."""
    if not faults:
        yield from lines
        return
    told = False
    for raw in lines:
        yield raw
        head = _TIMES.decode(raw)
        if told and head.type != "hello":
            continue
        told = True
        for code, message in faults.items():
            yield encode(Status(t=head.t, code=code, message=message, level="warning"))


def _with_refusal(lines: Iterator[bytes]) -> Iterator[bytes]:
    """`lines`, and at the end a status where not one sample among them, or not one line, was a frame after all."""
    bad_sample = bad_line = ""
    read_one = False
    t = 0.0
    for raw in lines:
        yield raw
        head = _TIMES.decode(raw)
        if read_one and head.type != "gpus":
            continue
        t, frame = head.t, decode(raw)
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
            yield encode(Status(t=t, code="recording_refused", message=message, level="error"))
    yield from lines


def read_index(path: str | Path, from_s: float | None, to_s: float | None) -> RecordingIndex:
    """The index of a recording in which `from_s` to `to_s` lies. Raises UsageError as `open_recording` says."""
    index = index_recording(Path(path))
    length = max(host.last_t for host in index.hosts.values()) - index.first_t
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
