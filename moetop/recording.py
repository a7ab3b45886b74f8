"""Frames to and from bytes and files: decoding with bounds, recordings written and read. Judges nothing.

A line that is not a frame is a value (`Malformed`), never an exception: it came from a host.
"""

from __future__ import annotations

import gzip
import io
import os
import queue
import re
import stat
import threading
import time
import zlib
from array import array
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeAlias, cast

import msgspec

from moetop.errors import MoetopError, UsageError
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

FLUSH_S = 1.0
"""At most this many seconds of a recording are lost when moetop is killed."""

MAX_QUEUED_BYTES = 64 * 1024 * 1024
"""Frames waiting for a slow disk; beyond this they are left out and counted."""

MAX_GAP_S = 60.0
"""Longest silence of a whole recording that a replay waits through (sessions appended to one file)."""

MAX_JUNK_BYTES = 256 * 1024 * 1024
"""So many bytes without a frame, and a file is no recording, or none from there on (a small gzip file can hold as
many as it likes)."""

MAX_JUNK_LINES = 1_000_000
"""... or so many lines that are none (judgement: a second or two of reading)."""

HEAD_BYTES = 1024 * 1024
"""Of a file so much is looked at to see whether it is text at all."""

GZIP_MAGIC = b"\x1f\x8b"

_BIG_NUMBER = re.compile(rb"[0-9]{20}|[eE]\+?[1-9][0-9]")


class Unknown(msgspec.Struct, frozen=True):
    """A frame of a type this version does not know; readers pass over it."""

    type: str


class Malformed(msgspec.Struct, frozen=True):
    """A line that is no frame; `reason` says why."""

    reason: str


class _Head(msgspec.Struct, frozen=True):
    type: str
    t: float
    host: str | None = None


_FRAME = msgspec.json.Decoder(AnyFrame)
_HEAD = msgspec.json.Decoder(_Head)
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
        head = _HEAD.decode(raw)
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
        head = _HEAD.decode(raw)
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


# ── reading ──────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class HostIndex:
    """Where one host's frames lie in a recording: byte offsets, and the first and last `t`."""

    name: str
    offsets: array[int] = field(default_factory=lambda: array("Q"))
    first_t: float = float("inf")
    last_t: float = float("-inf")


@dataclass(slots=True)
class RecordingIndex:
    """What a recording holds: its hosts in order of appearance and how many lines were no frames.

    `truncated` says that the file ends in the middle of a line or of its compressed data. `gaps` are
    times after which no host had anything to say, and by how much each is longer than MAX_GAP_S.
    """

    path: Path
    hosts: dict[str, HostIndex] = field(default_factory=dict)
    skipped: int = 0
    truncated: bool = False
    gaps: list[tuple[float, float]] = field(default_factory=list)

    def without_gaps(self, t: float) -> float:
        """`t` on a clock that passes over the part of every gap beyond MAX_GAP_S."""
        return t - sum(cut_s for gap_end, cut_s in self.gaps if gap_end <= t)

    def faults(self) -> dict[str, str]:
        """What is wrong with the file: status code -> sentence. What could be read stands."""
        said = {"recording_cut": "the recording ends in the middle of a line"} if self.truncated else {}
        others = self.skipped - len(said)  # the cut line is one of them
        if others:
            lines, are = ("line", "is no frame") if others == 1 else ("lines", "are no frames")
            said["recording_skipped"] = f"{others:,} {lines} of the recording {are}"
        return said

    @property
    def first_t(self) -> float:
        return min(host.first_t for host in self.hosts.values())


class _Line(NamedTuple):
    offset: int
    raw: bytes | None  # None: over-long, or the compressed data is cut
    whole: bool


def open_bytes(path: Path) -> IO[bytes]:
    """The recording's bytes, decompressed. Raises UsageError where it cannot be opened or can never be one."""
    try:
        kind = path.stat().st_mode
        if not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):
            raise UsageError(f"{path} is no file", "a recording is read more than once: save it in a file first")
        with path.open("rb") as probe:
            head = probe.read(HEAD_BYTES)
        packed = head[:2] == GZIP_MAGIC
        if not packed and is_binary(head):
            raise UsageError(f"{path} is not a recording: it has no lines, only binary data", _RECORDING_ADVICE)
        return cast("IO[bytes]", gzip.open(path, "rb") if packed else path.open("rb"))
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise UsageError(f"cannot read the recording {path}: {why}") from error


_RECORDING_ADVICE = "a recording has one JSON frame a line; --record makes one"


def is_binary(head: bytes) -> bool:
    """Whether the beginning of a file has no line and holds NULs: a device, a sparse file, an image."""
    return b"\0" in head and b"\n" not in head and b"\r" not in head


def _lines(source: IO[bytes]) -> Iterator[_Line]:
    """Lines with their offsets; runs of empty ones come as one; a cut end comes as not whole."""
    offset = 0
    while True:
        try:
            raw = source.readline(MAX_LINE_BYTES + 1)
            start, offset = offset, offset + len(raw)
            if not raw:
                return
            if raw in (b"\n", b"\r\n"):
                offset += _skip_empty(source)
            elif len(raw) > MAX_LINE_BYTES:
                while raw and not raw.endswith(b"\n") and offset - start <= MAX_JUNK_BYTES:
                    raw = source.readline(MAX_LINE_BYTES)
                    offset += len(raw)
                yield _Line(start, None, True)
                continue
        except (EOFError, zlib.error, gzip.BadGzipFile):
            yield _Line(offset, None, False)
            return
        yield _Line(start, raw.rstrip(b"\r\n"), raw.endswith(b"\n"))


def _skip_empty(source: IO[bytes]) -> int:
    """Pass over line ends in bulk; how many bytes that were, at most MAX_JUNK_BYTES."""
    buffered = cast("io.BufferedReader", source)
    skipped = 0
    while skipped <= MAX_JUNK_BYTES and (ahead := buffered.peek(1)):
        empty = len(ahead) - len(ahead.lstrip(b"\r\n"))
        skipped += len(buffered.read(empty))
        if empty < len(ahead):
            break
    return skipped


def index_recording(path: Path) -> RecordingIndex:
    """Read a recording once: its hosts and where their frames lie.

    A frame without `host` belongs to the host of the frame before it; a file without any name takes
    the file's. Raises UsageError where the file is missing, empty or no recording.
    """
    index = RecordingIndex(path)
    current = path.name.removesuffix(".gz").removesuffix(".jsonl")
    seen_any = False
    newest: float | None = None
    frame_at = junk = 0
    with open_bytes(path) as source:
        for line in _lines(source):
            if line.offset - frame_at > MAX_JUNK_BYTES or junk > MAX_JUNK_LINES:
                index.truncated, seen_any = True, True
                index.skipped += 1
                break
            if line.raw is not None and not line.raw.strip():
                continue
            seen_any = True
            try:
                head = _HEAD.decode(line.raw or b"")
            except (msgspec.MsgspecError, ValueError, RecursionError):
                index.truncated |= not line.whole
                index.skipped += 1
                junk += 1
                continue
            frame_at, junk = line.offset, 0
            if newest is not None and head.t - newest > MAX_GAP_S:
                index.gaps.append((head.t, head.t - newest - MAX_GAP_S))
            newest = head.t if newest is None else max(newest, head.t)
            current = head.host or current
            entry = index.hosts.setdefault(current, HostIndex(current))
            entry.offsets.append(line.offset)
            entry.first_t = min(entry.first_t, head.t)
            entry.last_t = max(entry.last_t, head.t)
    if not seen_any:
        raise UsageError(f"the recording {path} is empty")
    if not index.hosts:
        raise UsageError(f"{path} is not a recording", _RECORDING_ADVICE)
    return index


def read_host(path: Path, host: HostIndex) -> Iterator[bytes]:
    """The lines of one host in the order of the file."""
    with open_bytes(path) as source:
        position = 0
        for offset in host.offsets:
            try:
                if offset != position:
                    source.seek(offset)
                raw = source.readline(MAX_LINE_BYTES + 1)
            except (EOFError, zlib.error, gzip.BadGzipFile):
                return
            position = offset + len(raw)
            yield raw.rstrip(b"\r\n")


def read_frames(path: str | Path) -> Iterator[AnyFrame]:
    """Every frame of a recording in the order of the file; lines that are none are passed over."""
    with open_bytes(Path(path)) as source:
        for line in _lines(source):
            frame = decode(line.raw or b"")
            if not isinstance(frame, (Unknown, Malformed)):
                yield frame


# ── writing ──────────────────────────────────────────────────────────────────────────────────────


class Recorder:
    """Copies frames into a file (gzip where the name ends in `.gz`) without ever holding up its caller.

    A file that is there already is appended to if it is a recording. When the disk is full, recording
    stops, `error` says so, and `write` becomes a no-op.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.frames = 0
        self.left_out = 0
        self.error: MoetopError | None = None
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._queued = 0
        self._lock = threading.Lock()
        self._closed = False
        self._below: IO[bytes] | None = None  # gzip does not close what it writes to
        self._file = self._create()
        self._thread = threading.Thread(target=self._work, name="moetop-recorder", daemon=True)
        self._thread.start()

    def write(self, host: str, raw: bytes) -> None:
        """Queue one frame's line of `host`; secrets must be gone from it already."""
        if self._closed or self.error is not None:
            return
        line = with_host(raw, host) + b"\n"
        with self._lock:
            if self._queued + len(line) > MAX_QUEUED_BYTES:
                self.left_out += 1
                return
            self._queued += len(line)
        self._queue.put(line)

    def close(self) -> None:
        """Write what is queued and close the file. Idempotent."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
            self._thread.join(timeout=10.0)

    def _create(self) -> IO[bytes]:
        """The opened file, private to the user. Raises UsageError."""
        try:
            if self.path.exists() and self.path.is_file() and self.path.stat().st_size:
                index_recording(self.path)
            number = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            plain = os.fdopen(number, "ab")
            if self.path.name.endswith(".gz"):
                self._below = plain
                return cast("IO[bytes]", gzip.GzipFile(filename="", fileobj=plain, mode="ab"))
            if stat.S_ISREG(os.fstat(number).st_mode) and not _ends_with_newline(self.path):
                plain.write(b"\n")
            return plain
        except UsageError as error:
            raise UsageError(f"{self.path} is there and is no recording", "name another file for --record") from error
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise UsageError(f"cannot write the recording {self.path}: {why}") from error

    def _work(self) -> None:
        """The writer's thread: lines out, flushed about once a second."""
        flushed = time.monotonic()
        try:
            while True:
                try:
                    line = self._queue.get(timeout=FLUSH_S)
                except queue.Empty:
                    line = b""
                if line is None:
                    break
                if line:
                    self._file.write(line)
                    self.frames += 1
                    with self._lock:
                        self._queued -= len(line)
                if time.monotonic() - flushed >= FLUSH_S:
                    self._file.flush()
                    flushed = time.monotonic()
            self._close_file()
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            self.error = UsageError(
                f"recording to {self.path} stopped: {why}", "watching goes on; free space and start --record again"
            )
            with suppress(OSError):  # the same fault again, from closing
                self._close_file()

    def _close_file(self) -> None:
        self._file.close()
        if self._below is not None:
            self._below.close()


def _ends_with_newline(path: Path) -> bool:
    """Whether the file is empty or ends in a newline, so that an appended line stands alone."""
    with path.open("rb") as source:
        if source.seek(0, os.SEEK_END) == 0:
            return True
        source.seek(-1, os.SEEK_END)
        return source.read(1) == b"\n"
