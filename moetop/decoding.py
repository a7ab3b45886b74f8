"""One line of a stream -> a frame without secrets and within bounds, or what is wrong with it. Opens no file.

A line that is not a frame is a value (`Malformed`), never an exception: it came from a host.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

from moetop.model import AnyFrame, Frame, GpuInfo, Gpus, GpuSample, Hello
from moetop.probe.redact import redact_argv, redact_env, redact_text

MAX_LINE_BYTES = 4 * 1024 * 1024
"""Longest line taken for a frame (judgement: 64 GPUs with 100 processes each stay under 1 MiB)."""

MAX_DEPTH = 16
"""Deepest nesting of lists and objects (ours: 5)."""

MAX_GPUS = 1024
MAX_NUMBER = 1e20
"""Largest magnitude of any number: 64-bit counters pass, sums of them cannot overflow to infinity."""
MAX_T = 253_402_300_799.0
"""Largest `t`: the last second of the year 9999."""

_BIG_NUMBER = re.compile(rb"[0-9]{20}|[eE]\+?[1-9][0-9]")


class Unknown(msgspec.Struct, frozen=True):
    """A frame of a type this version does not know; readers pass over it."""

    type: str


class Malformed(msgspec.Struct, frozen=True):
    """A line that is no frame; `reason` says why."""

    reason: str


class Head(msgspec.Struct, frozen=True):
    type: str
    t: float
    host: str | None = None


_FRAME = msgspec.json.Decoder(AnyFrame)
HEAD = msgspec.json.Decoder(Head)
_ANY = msgspec.json.Decoder(dict[str, Any])
_ENCODER = msgspec.json.Encoder()
_KNOWN = frozenset(str(kind.__struct_config__.tag) for kind in Frame.__subclasses__())

Decoded: TypeAlias = "AnyFrame | Unknown | Malformed"


def decode(raw: bytes) -> Decoded:
    """One line of a stream -> a frame without secrets, or what is wrong with it."""
    return clean(raw)[0]


def clean(raw: bytes) -> tuple[Decoded, bytes]:
    """The decoded line, and the line itself as it may be recorded (secrets replaced)."""
    if len(raw) > MAX_LINE_BYTES:
        return Malformed(f"a line of {len(raw)} bytes"), b""
    try:
        head = HEAD.decode(raw)
        if head.type not in _KNOWN:
            return Unknown(head.type[:64]), raw
        if not abs(head.t) <= MAX_T:
            return Malformed("a time out of range"), raw
        try:
            if head.type == "gpus" and b'"processes"' not in raw and not _BIG_NUMBER.search(raw):
                return _checked(_FRAME.decode(raw)), raw
            content = _ANY.decode(raw)
            redacted = _redact(content, 0)
            raw = raw if redacted == content else _ENCODER.encode(redacted)
            return _checked(_FRAME.decode(raw)), raw
        except (msgspec.MsgspecError, ValueError) as error:
            sifted = _sifted(_ANY.decode(raw)) if head.type in _OF_GPUS else None
            if sifted is None:
                raise error
            raw = _ENCODER.encode(sifted)
            return _FRAME.decode(raw), raw
    except RecursionError:
        return Malformed("nested too deeply"), raw
    except (msgspec.MsgspecError, ValueError) as error:  # ValueError: integers and text Python refuses
        return Malformed(str(error)[:200]), raw


def encode(frame: AnyFrame | Mapping[str, Any]) -> bytes:
    """A frame as one line, without the newline."""
    return _ENCODER.encode(frame)


def with_host(raw: bytes, host: str) -> bytes:
    """A frame's line that names its host, as a recording of several hosts needs."""
    try:
        head = HEAD.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return raw
    if head.host == host:
        return raw
    if head.host is not None:
        content = _ANY.decode(raw)
        content["host"] = host
        return _ENCODER.encode(content)
    body = raw.lstrip()[1:].lstrip()
    return b'{"host":' + _ENCODER.encode(host) + b"," + body


def _checked(frame: AnyFrame) -> AnyFrame:
    """The frame if it keeps the bounds that the types do not hold: how many GPUs, and which index, each once.
    Raises ValueError."""
    if isinstance(frame, (Gpus, Hello)):
        indices = {gpu.index for gpu in frame.gpus}
        if len(frame.gpus) > MAX_GPUS or len(indices) < len(frame.gpus):
            raise ValueError("too many GPUs in one frame, or one twice")
        if any(not 0 <= index < MAX_GPUS for index in indices):
            raise ValueError("a GPU index out of range")
    return frame


_OF_GPUS: dict[str, type[GpuInfo | GpuSample]] = {"hello": GpuInfo, "gpus": GpuSample}
"""Frame types that list GPUs, and what each entry is."""


def _sifted(content: dict[str, Any]) -> dict[str, Any] | None:
    """A hello or gpus frame without the GPUs that are none; how many those are stands in it. None where no GPU is
    left, or nothing was left out; ValueError where more is wrong with it."""
    kind, listed = _OF_GPUS[content["type"]], content.get("gpus")
    if not isinstance(listed, list):
        return None
    good: dict[int, Any] = {}
    twice = 0
    for item in listed:
        try:
            kept = _redact(item, 2)
            index = msgspec.convert(kept, kind).index
        except (msgspec.MsgspecError, ValueError):
            continue
        if index in good:
            twice += 1
        elif 0 <= index < MAX_GPUS:
            good[index] = kept
    left_out = len(listed) - len(good)
    if not good or not left_out or twice > MAX_GPUS:  # so many repeats are no listing of a host
        return None
    sifted = {**_redact({**content, "gpus": []}, 0), "gpus": list(good.values())}
    if kind is GpuSample:
        return {**sifted, "rejected": left_out}
    note = f"{left_out} of {len(listed)} GPU entries left out: an index that cannot be, or one that came twice"
    notes = sifted.get("notes")
    return {**sifted, "notes": [*notes, note] if isinstance(notes, list) else [note]}


def _redact(value: Any, depth: int, key: str = "") -> Any:
    """`value` with secrets replaced. Raises ValueError where it is nested or a number is out of bounds."""
    if depth > MAX_DEPTH:
        raise ValueError("nested too deeply")
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, dict):
        if depth and any(isinstance(item, str) for item in value.values()):
            words = redact_env({name: item for name, item in value.items() if isinstance(item, str)})
            rest = {n: _redact(v, depth + 1, n) for n, v in value.items() if not isinstance(v, str)}
            return {name: words[name] if name in words else rest[name] for name in value}
        return {name: _redact(item, depth + 1, name) for name, item in value.items()}
    if isinstance(value, list):
        if key == "argv" and all(isinstance(item, str) for item in value):
            return redact_argv(value)
        if len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], str):
            pair = redact_env({value[0]: value[1]})
            return [redact_text(value[0]), pair[value[0]]]
        return [_redact(item, depth + 1) for item in value]
    if isinstance(value, (int, float)) and not abs(value) <= MAX_NUMBER:
        raise ValueError("a number out of range")
    return value
