"""An open log file and the names of places in it, that hold also after the file was renamed."""

from __future__ import annotations

import hashlib
import os
import time
from typing import Any

from .lines import Splitter

READ_BYTES = 2 * 1024 * 1024
ANCHOR_BYTES = 64
HEAD_BYTES = 256


def fingerprint(fd: int, start: int, length: int) -> str:
    """`N:hash` of the N bytes at `start`."""
    data = os.pread(fd, max(length, 0), max(start, 0))
    return "%d:%s" % (len(data), hashlib.sha256(data).hexdigest()[:16])


def matches(fd: int, start: int, mark: object) -> bool:
    """Whether the bytes at `start` still carry a fingerprint; a missing or strange one proves nothing against it."""
    length = marked_length(mark)
    return not length or fingerprint(fd, start, length) == mark


def marked_length(mark: object) -> int:
    """How many bytes a fingerprint stands for; 0 for none."""
    length = mark.split(":", 1)[0] if isinstance(mark, str) else ""
    return int(length) if length.isdigit() and len(length) < 6 else 0


class Stream:
    """One open file: how far it was read and what of its last line is still unfinished."""

    def __init__(self, fd: int, offset: int = 0) -> None:
        self.fd = fd
        self.offset = offset
        self.split = Splitter()
        self.quiet_since = time.monotonic()
        entry = os.fstat(fd)
        self.identity = (entry.st_dev, entry.st_ino)
        self.anchor = os.pread(fd, min(ANCHOR_BYTES, offset), max(offset - ANCHOR_BYTES, 0))
        self._head = os.pread(fd, min(HEAD_BYTES, offset), 0)

    def size(self) -> int:
        """Current size in bytes."""
        return os.fstat(self.fd).st_size

    def rewritten(self) -> bool:
        """Whether the file was cut, or cut and written anew, behind our back."""
        if self.size() < self.offset:
            return True
        start = self.offset - len(self.anchor)
        if os.pread(self.fd, len(self.anchor), start) == self.anchor:
            return False
        if self._head and os.pread(self.fd, len(self._head), 0) == self._head:
            # two writers that do not append overwrite each other's lines; the log itself goes on
            self.anchor = os.pread(self.fd, len(self.anchor), start)
            return False
        return True

    def begin_anew(self) -> None:
        """The file was cut: read it from its beginning."""
        self.split = Splitter()
        self.offset, self.anchor, self._head = 0, b"", b""

    def read(self, limit: int = READ_BYTES) -> bytes:
        """The next bytes, holes left out."""
        limit = min(limit, READ_BYTES)
        data = os.pread(self.fd, limit, self.offset)
        if data[:1] == b"\0" and not data.strip(b"\0"):
            self.offset = self._past_hole(len(data))
            data = os.pread(self.fd, limit, self.offset)
        if data:
            if self.offset < HEAD_BYTES and len(self._head) == self.offset:
                self._head += data[: HEAD_BYTES - self.offset]
            self.offset += len(data)
            self.anchor = (self.anchor + data)[-ANCHOR_BYTES:]
            self.quiet_since = time.monotonic()
        return data

    def _past_hole(self, zeros: int) -> int:
        """A writer that kept its place in a truncated file leaves a hole before its next line."""
        try:
            return max(os.lseek(self.fd, self.offset, os.SEEK_DATA), self.offset + zeros)
        except OSError:
            return self.offset + zeros

    def close(self) -> None:
        """Give the file back."""
        os.close(self.fd)


def position(fd: int, offset: int) -> dict[str, Any]:
    """A place in a file that a later session can find again, also after the file was renamed."""
    start = max(offset - ANCHOR_BYTES, 0)
    return {
        "offset": offset,
        "inode": os.fstat(fd).st_ino,
        "head": fingerprint(fd, 0, min(HEAD_BYTES, offset)),
        "anchor": fingerprint(fd, start, offset - start),
        "anchor_at": offset,
    }
