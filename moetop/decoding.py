"""One line of a stream -> a frame without secrets and within bounds, or what is wrong with it. Opens no file.

A line that is not a frame is a value (`Malformed`), never an exception: it came from a host.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeAlias

import msgspec

from moetop.model import AnyFrame, Frame, Gpm, GpuInfo, Gpus, GpuSample, Hello, HostLoad
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

MAX_WORD_BYTES = 128
"""Longest string that a line of samples may hold beside its keys to be taken as it is (judgement: a host's name, why
a value is absent)."""

_EXPONENT = re.compile(rb"[eE]\+?[0-9]{2}")
_AS_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_MANY_DIGITS = b"0" * 20
"""A number with an exponent of two digits, or with so many digits, may be beyond MAX_NUMBER however it is spelled."""


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

_SAMPLE_KEYS = frozenset(
    name.encode() for kind in (Gpus, GpuSample, Gpm, HostLoad) for name in ("type", *kind.__struct_fields__)
)
"""Every key of a line of samples; those of its processes, which hold what users wrote, are not among them."""

Decoded: TypeAlias = "AnyFrame | Unknown | Malformed"


def decode(raw: bytes) -> Decoded:
    """One line of a stream -> a frame without secrets, or what is wrong with it."""
    return clean(raw)[0]


def clean(raw: bytes) -> tuple[Decoded, bytes]:
    """The decoded line, and the line itself as it may be recorded (secrets replaced; empty where it is no frame)."""
    if len(raw) > MAX_LINE_BYTES:
        return Malformed(f"a line of {len(raw)} bytes"), b""
    try:
        head = HEAD.decode(raw)
        if head.type not in _KNOWN:
            return Unknown(head.type[:64]), b""
        if not abs(head.t) <= MAX_T:
            return Malformed("a time out of range"), b""
        try:
            if head.type == "gpus" and _is_plain(raw):
                return _checked(_FRAME.decode(raw)), raw
            # written anew even where nothing was replaced: of a key that came twice only the last was looked at
            raw = _ENCODER.encode(_redact(_ANY.decode(raw), 0))
            return _checked(_FRAME.decode(raw)), raw
        except (msgspec.MsgspecError, ValueError) as error:
            sifted = _sifted(_ANY.decode(raw)) if head.type in _OF_GPUS else None
            if sifted is None:
                raise error
            raw = _ENCODER.encode(sifted)
            return _FRAME.decode(raw), raw
    except RecursionError:
        return Malformed("nested too deeply"), b""
    except (msgspec.MsgspecError, ValueError) as error:  # ValueError: integers and text Python refuses
        return Malformed(redact_text(str(error)[:200])), b""


def _is_plain(raw: bytes) -> bool:
    """Whether a line of samples holds nothing but numbers within bounds, known keys and short words without a secret,
    so that it may be taken as it is (this costs a tenth of looking at every value)."""
    if b"\\" in raw:
        return False
    pieces = raw.split(b'"')  # without escapes every second piece is a string
    numbers = b"".join(pieces[::2])
    if _MANY_DIGITS in numbers.translate(_AS_ZEROS) or _EXPONENT.search(numbers):
        return False
    foreign = set(pieces[1::2]) - _SAMPLE_KEYS
    return not foreign or all(
        word not in foreign or (not after.lstrip().startswith(b":") and len(word) <= MAX_WORD_BYTES and _is_clean(word))
        for word, after in zip(pieces[1::2], pieces[2::2], strict=False)
    )


@lru_cache(maxsize=1024)
def _is_clean(word: bytes) -> bool:
    """Whether a string, alone or as the value of a key, is no secret and holds none."""
    try:
        text = word.decode()
    except UnicodeDecodeError:
        return False
    return redact_text(text) == text and redact_text(f"x={text}") == f"x={text}"


@lru_cache(maxsize=4096)
def _short_key(name: str) -> str:
    return redact_text(name)


def _key(name: str) -> str:
    """A key without secrets; long ones are not kept, for a host may send as many as it likes."""
    return _short_key(name) if len(name) <= MAX_WORD_BYTES else redact_text(name)


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
            return {_key(name): words[name] if name in words else rest[name] for name in value}
        return {_key(name): _redact(item, depth + 1, name) for name, item in value.items()}
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
