"""What a pasted text is: a server's log, nvidia-smi's output, or neither. Reads text, judges nothing."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import IO, TYPE_CHECKING, cast

import msgspec

from moetop.engines.logbook import LogBook
from moetop.errors import UsageError
from moetop.triage.dmon import header_of
from moetop.triage.sift import Piece
from moetop.triage.smi_log import looks_like_row, parse_smi_log

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

HEAD_BYTES = 64 * 1024
"""So much of a text is looked at to tell what it is (judgement: the nvidia-smi table of 16 GPUs has 8 KiB)."""

LOOK_LINES = 256
"""Lines that are only counted are noticed this often."""


class _First(msgspec.Struct, frozen=True):
    type: str
    t: float


_FIRST = msgspec.json.Decoder(_First)


class Understanding:
    """Whether any line of a log so far means something: an event, a counted kind, or an engine's head."""

    def __init__(self, name: str) -> None:
        self.lines = 0
        self.understood = False
        self._book: LogBook | None = LogBook(name, tail_lines=1)

    def watching(self, lines: Iterable[str | Piece]) -> Iterator[str | Piece]:
        """Passes `lines` on; reads them until one is understood, which in a server's log is soon."""
        for line in lines:
            self._look(line)
            yield line
        self._settle()

    def _look(self, line: str | Piece) -> None:
        text, skipped, counts = (line, 0, None) if isinstance(line, str) else (line.line, line.skipped, line.counts)
        self.lines += 1 + skipped
        if self._book is None:
            return
        if counts or self._book.feed(text):
            self._done()
        elif self.lines % LOOK_LINES == 0:
            self._settle()

    def _settle(self) -> None:
        if self._book is not None:
            digest = self._book.digest()
            if digest.counts or digest.engine is not None:
                self._done()

    def _done(self) -> None:
        self.understood, self._book = True, None


def is_server_log(text: str) -> bool:
    """Whether the head of `text` holds a line that the rules on server logs know."""
    found = Understanding("text")
    for _ in found.watching(text[:HEAD_BYTES].splitlines()):
        if found.understood:
            return True
    return found.understood


def is_smi_output(text: str) -> bool:
    """Whether `text` is nothing but what nvidia-smi prints: a log may well hold its table among other lines."""
    if is_server_log(text):
        return False
    lines = [line for line in text.splitlines() if line.strip()]
    if lines and all(looks_like_row(line) for line in lines):
        return True
    try:
        return bool(parse_smi_log(text).blocks) or any(header_of(line) for line in lines[:3])
    except UsageError:
        return False


def is_recording(head: bytes) -> bool:
    """Whether a file beginning with `head` is a recording of moetop."""
    line = head.partition(b"\n")[0]
    try:
        first = _FIRST.decode(line)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
    return first.type in ("hello", "gpus", "server", "status", "inventory", "log")


class _Rejoined(io.RawIOBase):
    """A stream that cannot go back, with the head that was read of it put before the rest."""

    def __init__(self, head: bytes, rest: IO[bytes]) -> None:
        self._head = head
        self._rest = rest

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        if not self.closed:
            self._rest.close()
        super().close()

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        data, self._head = self._head[: len(view)], self._head[len(view) :]
        if not data:
            data = cast("io.BufferedReader", self._rest).read1(len(view))
        view[: len(data)] = data
        return len(data)


def with_head(stream: IO[bytes]) -> tuple[bytes, IO[bytes]]:
    """The beginning of `stream`, at most HEAD_BYTES, and a stream that gives it again. Raises OSError.

    Of a pipe that is all that has come: a log that is still being written must not be waited for. Only where that
    looks like something else, more is awaited.
    """
    if stream.seekable():
        place = stream.tell()
        head = stream.read(HEAD_BYTES)
        stream.seek(place)
        return head, stream
    head = cast("io.BufferedReader", stream).read1(HEAD_BYTES)
    if is_smi_output(head.decode("utf-8", errors="replace")):
        head += stream.read(max(0, HEAD_BYTES - len(head)))
    return head, io.BufferedReader(_Rejoined(head, stream))
