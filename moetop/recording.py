"""Recordings: files of frames, written and read with bounds; what one line is, says `decoding`. Judges nothing."""

from __future__ import annotations

import gzip
import io
import os
import queue
import stat
import threading
import time
import zlib
from array import array
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NamedTuple, cast

import msgspec

from moetop.decoding import HEAD, MAX_GPUS, MAX_LINE_BYTES, Malformed, Unknown, clean, decode, encode, with_host
from moetop.errors import MoetopError, UsageError
from moetop.model import AnyFrame
from moetop.playtime import Playtime

__all__ = [
    "MAX_GPUS",
    "MAX_LINE_BYTES",
    "HostIndex",
    "Malformed",
    "Recorder",
    "RecordingIndex",
    "Unknown",
    "clean",
    "decode",
    "encode",
    "index_recording",
    "is_binary",
    "open_bytes",
    "read_frames",
    "read_host",
    "with_host",
]

FLUSH_S = 1.0
"""At most this many seconds of a recording are lost when moetop is killed."""

MAX_QUEUED_BYTES = 64 * 1024 * 1024
"""Frames waiting for a slow disk; beyond this they are left out and counted."""

MAX_JUNK_BYTES = 256 * 1024 * 1024
"""So many bytes without a frame, and a file is no recording, or none from there on (a small gzip file can hold as
many as it likes)."""

MAX_JUNK_LINES = 1_000_000
"""... or so many lines that are none (judgement: a second or two of reading)."""

HEAD_BYTES = 1024 * 1024
"""Of a file so much is looked at to see whether it is text at all."""

GZIP_MAGIC = b"\x1f\x8b"


# ── reading ──────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class HostIndex:
    """Where one host's frames lie in a recording, as byte offsets."""

    name: str
    offsets: array[int] = field(default_factory=lambda: array("Q"))


@dataclass(slots=True)
class RecordingIndex:
    """What a recording holds: its hosts in order of appearance and how many lines were no frames.

    `truncated` says that the file ends in the middle of a line or of its compressed data. `playtime` is the time by
    which it is played.
    """

    path: Path
    hosts: dict[str, HostIndex] = field(default_factory=dict)
    skipped: int = 0
    truncated: bool = False
    playtime: Playtime = field(default_factory=Playtime)

    def faults(self) -> dict[str, str]:
        """What is wrong with the file: status code -> sentence. What could be read stands."""
        said = {"recording_cut": "the recording ends in the middle of a line"} if self.truncated else {}
        others = self.skipped - len(said)  # the cut line is one of them
        if others:
            lines, are = ("line", "is no frame") if others == 1 else ("lines", "are no frames")
            said["recording_skipped"] = f"{others:,} {lines} of the recording {are}"
        return said


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
                head = HEAD.decode(line.raw or b"")
            except (msgspec.MsgspecError, ValueError, RecursionError):
                index.truncated |= not line.whole
                index.skipped += 1
                junk += 1
                continue
            frame_at, junk = line.offset, 0
            current = head.host or current
            entry = index.hosts.setdefault(current, HostIndex(current))
            entry.offsets.append(line.offset)
            index.playtime.take(current, line.offset, head.t)
    if not seen_any:
        raise UsageError(f"the recording {path} is empty")
    if not index.hosts:
        raise UsageError(f"{path} is not a recording", _RECORDING_ADVICE)
    index.playtime.place()
    return index


def read_host(path: Path, host: HostIndex) -> Iterator[bytes]:
    """The lines of one host in the order of the file, one for each offset; fewer where the data is cut."""
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
