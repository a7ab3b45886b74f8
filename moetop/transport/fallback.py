"""A host without a usable Python: `nvidia-smi` in a loop, its CSV turned into frames here. Less is seen, and said."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from moetop.errors import LinkError
from moetop.model import GpuInfo, GpuSample
from moetop.probe.smi import QueryReader, Row, find_troubles, refused_field
from moetop.text import plain
from moetop.transport.base import Channel
from moetop.transport.stream import BytePipe, ProbeChannel, last_words

FIELDS = (
    "index", "uuid", "pci.bus_id", "name", "driver_version", "compute_cap", "memory.total", "memory.used",
    "utilization.gpu", "utilization.memory", "power.draw", "enforced.power.limit", "power.default_limit",
    "temperature.gpu", "clocks.sm", "clocks.mem", "clocks.max.sm", "clocks_throttle_reasons.active",
    "pcie.link.gen.current", "pcie.link.width.current", "ecc.errors.uncorrected.volatile.total", "mig.mode.current",
)  # fmt: skip
"""Fields asked for; those an old driver does not know (compute_cap before 510) are left out one by one."""

MIN_INTERVAL_MS = 500
"""Faster than this nvidia-smi itself becomes a load on the host (5 ms CPU a loop and more)."""

MAX_REFUSED = 12

Start = Callable[[str], "tuple[BytePipe, tuple[bytes, ...]]"]


def smi_command(fields: tuple[str, ...], interval_s: float, *, once: bool) -> str:
    """The command line; it ends by itself when nobody reads it any more."""
    loop = "" if once else f" -lms {max(MIN_INTERVAL_MS, int(interval_s * 1000))}"
    return f"exec nvidia-smi --query-gpu={','.join(fields)} --format=csv{loop}"


class SmiFrames:
    """Lines of a looping query -> frames."""

    def __init__(self, why: str, advice: str | None) -> None:
        self._why = why + (f"; {advice}" if advice else "")
        self._reader = QueryReader()
        self._sample: dict[int, Row] = {}
        self._known: set[int] = set()
        self._said: set[str] = set()

    def feed(self, line: str, t: float) -> list[dict[str, Any]]:
        """Frames completed by `line`, which arrived at `t` (epoch seconds)."""
        row = self._reader.feed(line)
        if row is None or row.get("index") is None:
            return self._foreign(line, t)
        index = int(row["index"])
        frames = self._end_of_sample(t) if index in self._sample else []
        self._sample[index] = row
        if self._known and self._known <= self._sample.keys():
            frames += self._end_of_sample(t)
        return frames

    def end(self, t: float) -> list[dict[str, Any]]:
        """Frames of what came in last, when the output ends."""
        return self._end_of_sample(t) if self._sample else []

    def _foreign(self, line: str, t: float) -> list[dict[str, Any]]:
        frames = []
        for trouble in find_troubles(line):
            if trouble.code not in self._said:
                self._said.add(trouble.code)
                fatal = not self._known and trouble.code != "gpu_lost"
                frames.append(_status(t, trouble.code, trouble.message, "error", fatal=fatal, detail=trouble.detail))
        return frames

    def _end_of_sample(self, t: float) -> list[dict[str, Any]]:
        rows = [self._sample[index] for index in sorted(self._sample)]
        self._sample = {}
        frames: list[dict[str, Any]] = []
        if not self._known:
            self._known = {int(row["index"]) for row in rows}
            frames.append(_status(t, "fallback_smi", f"read by nvidia-smi, with less detail: {self._why}", "warning"))
            frames.append(
                {
                    "type": "hello",
                    "schema": 1,
                    "t": t,
                    "source": "nvidia-smi",
                    "driver": rows[0].get("driver"),
                    "gpus": [_part(row, GpuInfo.__struct_fields__) for row in rows],
                    "notes": ["GPM, processes, logs and servers cannot be seen this way"],
                }
            )
        frames.append({"type": "gpus", "t": t, "gpus": [_part(row, GpuSample.__struct_fields__) for row in rows]})
        return frames


def _part(row: Row, keys: tuple[str, ...]) -> dict[str, Any]:
    """The keys of a row that belong to one kind of frame."""
    part = {key: row[key] for key in keys if row.get(key) is not None and key != "absent"}
    absent = {key: why for key, why in (row.get("absent") or {}).items() if key in keys}
    if absent:
        part["absent"] = absent
    if part.get("mig") is not None:
        part["mig"] = bool(part["mig"])
    return part


def _status(
    t: float, code: str, message: str, level: str, *, fatal: bool = False, detail: dict[str, Any] | None = None
) -> dict[str, Any]:
    return {
        "type": "status",
        "t": t,
        "code": code,
        "message": plain(message, 500),
        "level": level,
        "fatal": fatal,
        "detail": detail or {},
    }


class SmiChannel:
    """The `Channel` of a looping nvidia-smi."""

    def __init__(self, pipe: BytePipe, notes: tuple[bytes, ...], frames: SmiFrames, first: bytes) -> None:
        self._channel = ProbeChannel(pipe, first, notes)
        self._frames = frames

    def lines(self) -> Iterator[bytes]:
        for raw in self._channel.lines():
            if raw.startswith(b'{"type"'):
                yield raw
                continue
            for frame in self._frames.feed(raw.decode("utf-8", "replace"), time.time()):
                yield json.dumps(frame).encode()
        for frame in self._frames.end(time.time()):
            yield json.dumps(frame).encode()

    def send(self, line: bytes) -> None:
        """nvidia-smi takes no control lines."""

    def close(self) -> None:
        self._channel.close()


def open_fallback(start: Start, options: Mapping[str, object], error: LinkError) -> Channel:
    """Watch by nvidia-smi because of `error`. Raises LinkError where there is no nvidia-smi either."""
    fields: tuple[str, ...] = FIELDS
    interval_s = float(str(options.get("interval_s", 1.0)))
    for _ in range(MAX_REFUSED):
        pipe, notes = start(smi_command(fields, interval_s, once=bool(options.get("once"))))
        frames = SmiFrames(str(error), error.advice)
        first, refused = _first_lines(pipe, error)
        if refused is None:
            return SmiChannel(pipe, notes, frames, first)
        pipe.shut()
        pipe.finish()
        left = tuple(field for field in fields if field != refused)
        if left == fields:
            break
        fields = left
    raise LinkError(f"{error}, and nvidia-smi there knows too few fields", error.advice, code=error.code, retry=False)


def _first_lines(pipe: BytePipe, error: LinkError) -> tuple[bytes, str | None]:
    """What came up to the header, or the field refused. Raises LinkError where the command is missing or ends."""
    deadline = time.monotonic() + 30.0
    seen = b""
    reader = QueryReader()
    while time.monotonic() < deadline and len(seen) < 65536:
        data = pipe.read(0.5)
        if data is None:
            continue
        seen += data
        text = seen.decode("utf-8", "replace")
        refused = refused_field(text)
        if refused is not None:
            return b"", refused
        for line in text.splitlines():
            reader.feed(line)
        troubles = find_troubles(text)
        if not data:
            ending = pipe.finish()
            missing = ending.status == 127 or any(trouble.code == "smi_missing" for trouble in troubles)
            if reader.has_columns or (troubles and not missing):
                return seen, None
            said = last_words(ending.stderr) or last_words(text)
            tail = "and it has no nvidia-smi either" if missing else f"and nvidia-smi did not run ({said})"
            raise LinkError(f"{error}, {tail}", error.advice, code=error.code, retry=False) from error
        if reader.has_columns or troubles:
            return seen, None
    pipe.shut()
    pipe.finish()
    raise LinkError(f"{error}, and nvidia-smi there did not answer", error.advice, code="smi_hang") from error
