"""Reads a big log file in the time grep takes: event lines with their surroundings, the rest counted by kind.

What comes out gives the same events and counts as reading every line. Memory is bounded.
"""

from __future__ import annotations

import os
import subprocess
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import IO, NamedTuple

from moetop.engines.literals import scan_literals
from moetop.probe.lines import MAX_LINE, Matcher
from moetop.probe.sieve import choose_fragments, gnu_grep, grep_words

SIFT_FROM_BYTES = 32 * 2**20
"""Smaller files are read line by line in about two seconds."""

TAIL_LINES = 20_000
"""The last lines are told whatever they hold: as many as a log keeps for the screen."""

TAIL_BYTES = 8 * 2**20

AFTER_LINES = 80
"""Lines told after an event line: a block of one event ends after 64 lines of other writers."""

SMALL_GAP_BYTES = 64 * 1024
"""Lines between two event lines are told, not counted, where there are fewer bytes of them."""

NEWEST_OF_KIND = 64
"""Newest lines of each counted kind told before the tail: a server's numbers are read from them."""

BLOCK_BYTES = 4 * 2**20
SAMPLE_BYTES = 1024 * 1024
SAMPLES = 64
LONGEST_LINE = 2**20

CONTINUATIONS = ('file "', "during handling of the above", "the above exception was")
"""Lines in the middle of a traceback, which a long one has many of."""


class Piece(NamedTuple):
    """A line, and what was only counted since the piece before it."""

    line: str
    skipped: int = 0
    counts: dict[str, int] = {}


def can_sift(stream: IO[bytes]) -> bool:
    """Whether `stream` is a big plain file from its beginning, and a grep is there to search it."""
    try:
        size = os.fstat(stream.fileno()).st_size
        return size >= SIFT_FROM_BYTES and stream.seekable() and stream.tell() == 0 and gnu_grep() is not None
    except (OSError, ValueError):
        return False


def sift(stream: IO[bytes], tell: Callable[[int, int], None] = lambda done, total: None) -> Iterator[Piece]:
    """Pieces of a file that `can_sift`; `tell(done, total)` takes bytes now and then. Raises OSError."""
    grep = gnu_grep()
    if grep is None:
        raise OSError("no GNU grep")
    reading = _Sift(stream, grep, tell)
    try:
        yield from reading.pieces()
    finally:
        reading.close()


class _Sift:
    """One reading of one file."""

    def __init__(self, stream: IO[bytes], grep: str, tell: Callable[[int, int], None]) -> None:
        self._stream = stream
        self._fd = stream.fileno()
        self._tell = tell
        self._end = os.fstat(self._fd).st_size
        self._stop = _tail_start(self._fd, self._end)
        sample = self._sample()
        self._matcher = _matcher_for(sample)
        self._noise = [item for items in self._matcher.noise.values() for item in items]
        self._skipped = 0
        self._counts: dict[str, int] = {}
        fragments = choose_fragments(self._matcher.literals, sample)
        self._grep_fd = os.open(f"/proc/self/fd/{self._fd}", os.O_RDONLY | os.O_CLOEXEC)
        self._grep = subprocess.Popen(
            grep_words(grep, fragments),
            stdin=self._grep_fd,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"LC_ALL": "C"},
            bufsize=1 << 17,
        )

    def close(self) -> None:
        """End grep and give everything back but the stream."""
        if self._grep.poll() is None:
            self._grep.kill()
        self._grep.wait()
        if self._grep.stdout is not None:
            self._grep.stdout.close()
        os.close(self._grep_fd)

    def _sample(self) -> bytes:
        size = SAMPLE_BYTES // SAMPLES
        return b"".join(os.pread(self._fd, size, self._end * part // SAMPLES) for part in range(SAMPLES))

    def _hits(self) -> Iterator[int]:
        """Where the lines with a literal begin, in order, up to the tail."""
        out = self._grep.stdout
        while out is not None:
            record = out.readline(MAX_LINE + 24)
            if not record:
                break
            number, _, head = record.partition(b":")
            while record and not record.endswith(b"\n"):
                record = out.readline(MAX_LINE)
            offset = int(number)
            if offset >= self._stop:
                return
            if self._matcher.hit(head):
                yield offset
        if self._grep.wait() not in (0, 1):
            raise OSError(f"grep ended with status {self._grep.returncode}")

    def pieces(self) -> Iterator[Piece]:
        hits = self._hits()
        hit = next(hits, None)
        place, left = 0, AFTER_LINES
        self._stream.seek(0)
        while place < self._end:
            told_up_to = self._stop if hit is None else min(hit, self._stop)
            if left <= 0 and told_up_to - place > SMALL_GAP_BYTES:
                yield from self._gap(place, told_up_to, last=told_up_to == self._stop)
                place = told_up_to
                self._stream.seek(place)
            if hit is not None and hit <= place:
                left, hit = AFTER_LINES, next(hits, None)
                continue
            line = self._stream.readline()
            if not line:
                break
            place += len(line)
            left = left - 1 if place <= self._stop else 1
            yield self._piece(line)
        if self._skipped:
            yield self._piece(b"")

    def _piece(self, line: bytes) -> Piece:
        skipped, counts = self._skipped, self._counts
        self._skipped, self._counts = 0, {}
        return Piece(decoded(line), skipped, counts)

    def _gap(self, start: int, end: int, *, last: bool) -> Iterator[Piece]:
        """Count the lines of a stretch without events; the first and the newest of each kind are told."""
        unseen = set(self._noise)
        for at, block in _blocks(self._fd, start, end):
            self._tell(at, self._end)
            low = block.lower()
            wanted = set()
            for item in [item for item in unseen if item in low]:
                wanted.add(low.find(item))
                unseen.discard(item)
            if at + len(block) >= end:
                for item in self._noise:
                    wanted |= _newest(low, item, NEWEST_OF_KIND if last else 1)
            place = 0
            for start_of in sorted({low.rfind(b"\n", 0, spot) + 1 for spot in wanted}):
                self._count(low[place:start_of])
                place = (block.find(b"\n", start_of) + 1) or len(block)
                yield self._piece(block[start_of:place])
            self._count(low[place:])

    def _count(self, lowered: bytes) -> None:
        self._skipped += lowered.count(b"\n")
        for kind, items in self._matcher.noise.items():
            number = sum(lowered.count(item) for item in items)
            if number:
                self._counts[kind] = self._counts.get(kind, 0) + number


def _matcher_for(sample: bytes) -> Matcher:
    """Counts only the kinds of noise that this log is seen to have much of: each costs a pass over the file, and
    lines of the others, being few, may be told like events."""
    literals, noise = scan_literals()
    low = sample.lower()
    often = {kind: [item for item in items if item.encode() in low] for kind, items in noise.items()}
    seldom = [item for kind, items in noise.items() for item in items if item not in often[kind]]
    counted: dict[str, Iterable[str]] = {kind: items for kind, items in often.items() if items}
    return Matcher((*literals, *CONTINUATIONS, *seldom), counted)


def decoded(line: bytes) -> str:
    """A line without its end; of a very long one only the beginning."""
    return line[:LONGEST_LINE].rstrip(b"\n").removesuffix(b"\r").decode("utf-8", errors="replace")


def _newest(low: bytes, item: bytes, number: int) -> set[int]:
    found: deque[int] = deque()
    at = len(low)
    while len(found) < number:
        at = low.rfind(item, 0, at)
        if at < 0:
            break
        found.append(at)
        at = low.rfind(b"\n", 0, at)
        if at < 0:
            break
    return set(found)


def _blocks(fd: int, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """(offset, whole lines) of a stretch; a line longer than a block comes in parts."""
    at = start
    while at < end:
        data = os.pread(fd, min(BLOCK_BYTES, end - at), at)
        if not data:
            return
        cut = data.rfind(b"\n") + 1
        data = data[:cut] if cut else data
        yield at, data
        at += len(data)


def _tail_start(fd: int, end: int) -> int:
    """Where the last lines begin."""
    begin = max(0, end - TAIL_BYTES)
    data = os.pread(fd, end - begin, begin)
    at = len(data)
    for _ in range(TAIL_LINES + 1):
        at = data.rfind(b"\n", 0, at)
        if at < 0:
            return begin + data.find(b"\n") + 1 if begin else 0
    return begin + at + 1
