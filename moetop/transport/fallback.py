"""A host without a usable Python: `nvidia-smi` in a loop, its CSV turned into frames here. Less is seen, and said."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from moetop.errors import LinkError
from moetop.probe.smi import Row, find_troubles
from moetop.probe.smi_stream import FIELDS, SmiEvent, SmiStream, info_of, sample_of
from moetop.text import plain
from moetop.transport.base import Channel
from moetop.transport.smi_shell import END, MARKER, MIN_INTERVAL_S, PONG, loop_command, run_line
from moetop.transport.stream import MARKER_TIMEOUT_S, MAX_NOISE_BYTES, BytePipe, ProbeChannel, last_words

QUIET_S = 0.15
"""Rows of one sample are printed together; after this pause the first sample is whole."""

PATIENCE_S = 20.0
"""A single call was seen to take 6 s on hosts with many GPUs without persistence mode."""

PATIENCE_INTERVALS = 5
RESTART_S = 30.0
"""How long after a failure nvidia-smi is tried again."""

RERUN_S = 1.0
"""And where it knows no loop: gave its sample and ended."""

_ALIVE = b'{"type":"pong"}'
"""Passed on when the host's shell answers: no frame, but a word, so that the link does not count as silent."""

Frame = dict[str, Any]
Start = Callable[[str], "tuple[BytePipe, tuple[bytes, ...]]"]


class SmiFrames:
    """Events of the loop -> frames. `why` says why nvidia-smi is read at all."""

    def __init__(self, why: str) -> None:
        self._why = why
        self._greeted: list[int] | None = None
        self._told: dict[str, dict[str, Any]] = {}  # conditions said and not yet over

    def take(self, event: SmiEvent | None, t: float) -> list[Frame]:
        """Frames of an event that was complete at `t` (epoch seconds)."""
        if event is None:
            return []
        frames = [frame for trouble in event.troubles for frame in self.tell(*trouble, t=t)]
        return frames + (self._sample(event.rows, t) if event.rows else [])

    def tell(self, code: str, message: str, detail: Mapping[str, Any], t: float) -> list[Frame]:
        """A condition in words; fatal unless it concerns one GPU."""
        self._told[code] = dict(detail)
        return [_status(t, code, message, "error", fatal=code != "gpu_lost", detail=self._told[code])]

    @property
    def is_broken(self) -> bool:
        """Whether a condition stands that ends nvidia-smi."""
        return bool(self._told)

    def _sample(self, rows: list[Row], t: float) -> list[Frame]:
        frames = [
            _status(t, code, "nvidia-smi answers again", "info", detail=self._told.pop(code))
            for code in [code for code in self._told if code != "gpu_lost"]
        ]
        indexes = [row["index"] for row in rows]
        if self._greeted is None:
            words = f"read by nvidia-smi, with less detail: {self._why}"
            frames.append(_status(t, "fallback_smi", words, "warning"))
        if self._greeted is None or indexes != self._greeted:
            self._greeted = indexes
            frames.append(_hello(rows, t))
        return [*frames, {"type": "gpus", "t": t, "gpus": [sample_of(row) for row in rows]}]


def _hello(rows: list[Row], t: float) -> Frame:
    return {
        "type": "hello",
        "schema": 1,
        "t": t,
        "source": "nvidia-smi",
        "driver": next((row["driver"] for row in rows if row.get("driver")), None),
        "gpus": [info_of(row) for row in rows],
        "notes": ["GPM, processes, logs and servers cannot be seen this way"],
    }


def _status(
    t: float, code: str, message: str, level: str, *, fatal: bool = False, detail: Mapping[str, Any] | None = None
) -> Frame:
    return {
        "type": "status",
        "t": t,
        "code": code,
        "message": plain(message, 500),
        "level": level,
        "fatal": fatal,
        "detail": dict(detail or {}),
    }


class SmiChannel:
    """The `Channel` of a looping nvidia-smi; starts the loop anew when it ends, with fewer fields where it must."""

    def __init__(self, channel: ProbeChannel, why: str, interval_s: float, *, once: bool) -> None:
        self._channel = channel
        self._frames = SmiFrames(why)
        self._interval_s = max(MIN_INTERVAL_S, interval_s)
        self._once = once
        self._fields = list(FIELDS)
        self._starting = threading.Lock()
        self._number = 0
        self._stream = SmiStream()
        self._gave = False  # a sample, by the loop that runs now
        self._due: float | None = None  # when the loop is to be run again (monotonic)
        self._heard = 0.0

    def lines(self) -> Iterator[bytes]:
        self._run()
        for raw in self._channel.lines():
            if raw.startswith(b'{"type"'):
                yield raw
                continue
            frames = self._hear(raw)
            yield from (json.dumps(frame).encode() for frame in frames)
            if self._once and any(frame["type"] == "gpus" or frame.get("fatal") for frame in frames):
                self.close()
                return
            if not frames and PONG in raw:
                yield _ALIVE

    def _hear(self, raw: bytes) -> list[Frame]:
        """Frames that a line, or a pause (an empty one), completes."""
        now, t = time.monotonic(), time.time()
        if self._due is not None and now >= self._due:
            self._run()
        if raw and not raw.startswith((PONG, END)):
            self._heard = now
            event = self._stream.feed(raw.decode("utf-8", "replace"))
            if event is not None and event.refused is not None:
                self._leave_out(event.refused)
                return []
            return self._keep(event, t)
        frames = self._keep(self._stream.flush(), t)
        if raw.startswith(END) and raw.split()[-1] == b"%d" % self._number and self._due is None:
            return frames + self._ended(now, t)
        patience_s = max(PATIENCE_S, PATIENCE_INTERVALS * self._interval_s)
        if self._due is None and now - self._heard > patience_s:
            self._heard = math.inf  # said once; one stuck in the driver cannot be killed, so no second is started
            words = f"nvidia-smi gave nothing for {patience_s:.0f} s; the driver may be wedged"
            return frames + self._frames.tell("smi_hang", words, {}, t)
        return frames

    def _keep(self, event: SmiEvent | None, t: float) -> list[Frame]:
        self._gave |= event is not None and bool(event.rows)
        return self._frames.take(event, t)

    def _ended(self, now: float, t: float) -> list[Frame]:
        """The loop ended by itself: say why and when to run it again."""
        if self._gave:
            self._due = now + max(RERUN_S, self._interval_s)
            return []
        self._due = now + RESTART_S
        if self._frames.is_broken:
            return []
        said = last_words(self._stream.last_words) or "it printed nothing"
        return self._frames.tell("smi_failed", f"nvidia-smi ended: {said}", {}, t)

    def _leave_out(self, field: str) -> None:
        """Ask again without a field that this nvidia-smi does not know; the last one stays."""
        if field in self._fields and len(self._fields) > 1:
            self._fields.remove(field)
            self._run()

    def _run(self) -> None:
        """Start the loop, in place of one that runs."""
        with self._starting:
            self._number += 1
            self._stream = SmiStream()
            self._gave, self._due, self._heard = False, None, time.monotonic()
            self._channel.send(run_line(self._number, self._interval_s, self._fields).rstrip())

    def send(self, line: bytes) -> None:
        """Pings keep the loop alive; `interval` is the one control line it can follow."""
        try:
            message = json.loads(line)
        except ValueError:
            return
        wanted = message.get("interval_s") if isinstance(message, dict) else None
        if isinstance(wanted, (int, float)) and wanted > 0:
            self._interval_s = max(MIN_INTERVAL_S, float(wanted))
            self._due = time.monotonic()
        self._channel.send(line)

    def close(self) -> None:
        self._channel.close()


def open_fallback(start: Start, options: Mapping[str, object], error: LinkError) -> Channel:
    """Watch by nvidia-smi because of `error`. Raises LinkError where there is no nvidia-smi either."""
    interval_s = float(str(options.get("interval_s", 1.0)))
    pipe, notes = start(loop_command(interval_s))
    try:
        first = _await_shell(pipe, error)
    except BaseException:
        pipe.shut()
        pipe.finish()
        raise
    why = f"{error}; {error.advice}" if error.advice else str(error)
    return SmiChannel(
        ProbeChannel(pipe, first, notes, quiet_s=QUIET_S), why, interval_s, once=bool(options.get("once"))
    )


def _await_shell(pipe: BytePipe, error: LinkError) -> bytes:
    """What came after the shell's marker. Raises LinkError where nvidia-smi is missing or the shell ends."""
    deadline = time.monotonic() + MARKER_TIMEOUT_S
    seen = b""
    while time.monotonic() < deadline and len(seen) < MAX_NOISE_BYTES:
        data = pipe.read(0.5)
        if data is None:
            continue
        if not data:
            ending = pipe.finish()
            text = seen.decode("utf-8", "replace")
            missing = ending.status == 127 or any(trouble.code == "smi_missing" for trouble in find_troubles(text))
            said = last_words(ending.stderr) or last_words(text)
            tail = "and it has no nvidia-smi either" if missing else f"and nvidia-smi did not run ({said})"
            raise LinkError(f"{error}, {tail}", error.advice, code=error.code, retry=False) from error
        seen += data
        _, found, rest = seen.partition(MARKER + b"\n")  # a banner without a newline glues to it
        if found:
            return rest
    raise LinkError(f"{error}, and the shell there did not answer", error.advice, code=error.code) from error
