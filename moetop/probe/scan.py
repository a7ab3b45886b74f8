"""Finds every event line of an existing log fast, with grep as the filter; sends only those and counts the rest."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections import Counter, deque
from typing import Any, Callable, Iterator

from .lines import MAX_BAR, MAX_LINE, Matcher, Picker
from .sieve import choose_fragments, gnu_grep, grep_words

Status = Callable[..., None]

GREP_FROM_BYTES = 1024 * 1024  # below this, starting processes costs more than reading here
BYTES_A_WORKER = 64 * 1024 * 1024
MAX_WORKERS = 8
BLOCK_BYTES = 1024 * 1024
LONG_BLOCKS = 4
SAMPLE_BYTES = 128 * 1024
SAMPLES = 8
FIRST_KEPT = 50  # of lines of one shape the first ones travel,
NEWEST_KEPT = 400  # and the newest
SHAPE_BYTES = 24  # what follows a literal and makes its line another shape
MAX_SHAPES = 256
SHIP_BYTES = 32 * 1024 * 1024
WATCH_S = 0.005
PROGRESS_S = 1.0
COUNT_MAX_BYTES = 8 * 1024 * 1024 * 1024


class _Shape:
    """Lines of one shape: how many, the first ones, the newest."""

    def __init__(self) -> None:
        self.found = 0
        self.first: list[tuple[int, int]] = []
        self.newest: deque[tuple[int, int]] = deque(maxlen=NEWEST_KEPT)

    def add(self, entry: tuple[int, int]) -> None:
        if len(self.first) < FIRST_KEPT:
            self.first.append(entry)
        else:
            self.newest.append(entry)


class Kept:
    """The lines that travel of one part of a log: of each shape the first ones and the newest.

    A shape is a literal and the text that follows it, digits left out: ten thousand skipped tactics do
    not push out the line that says when tuning began.
    """

    def __init__(self, literals: list[bytes]) -> None:
        self._literals = literals
        self._shapes: dict[bytes, _Shape] = {}

    @property
    def found(self) -> int:
        """Event lines seen, sent or not."""
        return sum(shape.found for shape in self._shapes.values())

    def _shape(self, key: bytes, literal: bytes) -> _Shape:
        if key not in self._shapes and len(self._shapes) >= MAX_SHAPES:
            key = literal
        return self._shapes.setdefault(key, _Shape())

    def add(self, offset: int, head: bytes, length: int) -> None:
        """Note a line if it holds a literal (and not only a fragment of one)."""
        low = head.lower()
        for literal in self._literals:
            at = low.find(literal)
            if at >= 0:
                size = len(literal) + SHAPE_BYTES
                key = low[at : at + 2 * size].translate(None, b"0123456789\n")[:size]
                shape = self._shape(key, literal)
                shape.found += 1
                shape.add((offset, length))
                return

    def merge(self, later: Kept) -> None:
        """Join with the part of the log that follows this one."""
        for key, theirs in later._shapes.items():
            shape = self._shape(key, key)
            shape.found += theirs.found
            for entry in theirs.first + list(theirs.newest):
                shape.add(entry)

    def lines(self) -> list[tuple[int, int]]:
        """(offset, length) in the order of the log, at most 32 MiB, the newest given preference."""
        every = sorted({entry for shape in self._shapes.values() for entry in [*shape.first, *shape.newest]})
        room = SHIP_BYTES
        at = len(every)
        while at > 0 and room > 0:
            at -= 1
            room -= min(every[at][1], MAX_LINE + MAX_BAR)
        return every[at:]


class _Worker:
    """One grep over one part of the file. It reads from its own open file, so where it is can be seen."""

    def __init__(self, words: list[bytes], fd: int, start: int, end: int, literals: list[bytes]) -> None:
        self.kept = Kept(literals)
        self.end = end
        self._start = start
        self._fd = os.open("/proc/self/fd/%d" % fd, os.O_RDONLY | os.O_CLOEXEC)
        os.lseek(self._fd, start, os.SEEK_SET)
        self._passed: int | None = None
        self.error: str | None = None
        self._process = subprocess.Popen(
            words,
            stdin=self._fd,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"LC_ALL": "C"},
            bufsize=1 << 17,
        )
        self._thread = threading.Thread(target=self._read, name="scan", daemon=True)
        self._thread.start()

    def done_bytes(self) -> int:
        """How far grep has read in its part."""
        return max(min(os.lseek(self._fd, 0, os.SEEK_CUR), self.end) - self._start, 0)

    def watch(self) -> bool:
        """False when finished. Grep is ended once it read on after having passed the end of its part."""
        if self._process.poll() is None:
            place = os.lseek(self._fd, 0, os.SEEK_CUR)
            if self._passed is None and place >= self.end:
                self._passed = place
            elif self._passed is not None and place > self._passed:
                self._process.kill()
        return self._thread.is_alive()

    def close(self) -> None:
        """End grep and give everything back."""
        if self._process.poll() is None:
            self._process.kill()
        code = self._process.wait()
        self._thread.join()
        if self._process.stdout is not None:
            self._process.stdout.close()
        os.close(self._fd)
        if code not in (0, 1, -9):
            self.error = "grep ended with status %d" % code

    def _read(self) -> None:
        out = self._process.stdout
        if out is None:
            return
        limit = MAX_LINE + 24
        while True:
            record = out.readline(limit)
            if not record:
                return
            number, _, head = record.partition(b":")
            length = len(head)
            while not record.endswith(b"\n"):
                record = out.readline(limit)
                if not record:
                    break
                length += len(record)
            offset = self._start + int(number)
            if offset >= self.end:
                self._process.kill()
                return
            self.kept.add(offset, head[:MAX_LINE], length)


class HistoryScan:
    """Scans one log's past; called from its follower's thread."""

    def __init__(self, picker: Picker, status: Status, stopped: Callable[[], bool]) -> None:
        self._picker = picker
        self._status = status
        self._stopped = stopped
        self._counted: deque[tuple[int, dict[str, int]]] = deque()
        self._counter: threading.Thread | None = None

    def run(self, fd: int, start: int, end: int) -> None:
        """Send the event lines of the bytes from `start` to `end`; the counts of the others come later."""
        began = time.monotonic()
        literals = self._picker.matcher.literals
        kept = self._scan(fd, start, end, literals) if literals and end > start else Kept(literals)
        lines = kept.lines()
        for offset, length in lines:
            if self._stopped():
                return
            self._picker.ship(_line_at(fd, offset, length), offset + length, True, history=True)
        capped = kept.found - len(lines)
        took = time.monotonic() - began
        detail: dict[str, Any] = {"bytes": end - start, "events": kept.found, "sent": len(lines), "seconds": took}
        message = "%d event lines found in %.1f MiB of history in %.1f s" % (
            kept.found,
            (end - start) / 1048576.0,
            took,
        )
        if capped:
            message += "; %d of kinds repeated very often were only counted" % capped
        self._status("scan_done", message, detail=detail)
        self._count_later(fd, start, end, len(lines))

    def poll(self) -> None:
        """Hand over the counts of elided lines once they are known."""
        while self._counted:
            skipped, counts = self._counted.popleft()
            self._picker.owe(skipped, counts)
            self._picker.flush()

    def _scan(self, fd: int, start: int, end: int, literals: list[bytes]) -> Kept:
        grep = gnu_grep() if end - start >= GREP_FROM_BYTES else None
        if grep is not None:
            kept = self._scan_grep(grep, fd, start, end, literals)
            if kept is not None:
                return kept
        return self._scan_here(fd, start, end, literals)

    def _scan_grep(self, grep: str, fd: int, start: int, end: int, literals: list[bytes]) -> Kept | None:
        words = grep_words(grep, choose_fragments(literals, _sample(fd, start, end)))
        workers: list[_Worker] = []
        try:
            for first, last in split_ranges(fd, start, end):
                workers.append(_Worker(words, fd, first, last, literals))
            self._wait(workers, end - start)
        except OSError:
            return None
        finally:
            for worker in workers:
                worker.close()
        if any(worker.error for worker in workers):
            return None
        kept = Kept(literals)
        for worker in workers:
            kept.merge(worker.kept)
        return kept

    def _wait(self, workers: list[_Worker], total: int) -> None:
        told = time.monotonic()
        while not self._stopped():
            if not [worker for worker in workers if worker.watch()]:
                return
            time.sleep(WATCH_S)
            if time.monotonic() - told >= PROGRESS_S:
                told = time.monotonic()
                self._progress(sum(worker.done_bytes() for worker in workers), total)

    def _scan_here(self, fd: int, start: int, end: int, literals: list[bytes]) -> Kept:
        kept = Kept(literals)
        told = time.monotonic()
        for at, block in _blocks(fd, start, end):
            if self._stopped():
                break
            for line in self._picker.matcher.hit_lines(block):
                stop = block.find(b"\n", line) + 1 or len(block)
                kept.add(at + line, block[line : min(stop, line + MAX_LINE)], stop - line)
            if time.monotonic() - told >= PROGRESS_S:
                told = time.monotonic()
                self._progress(at - start, end - start)
        return kept

    def _progress(self, done: int, total: int) -> None:
        self._status(
            "scan_progress",
            "reading the log's history: %d of %d MiB" % (done >> 20, total >> 20),
            detail={"done_bytes": done, "total_bytes": total},
        )

    def _count_later(self, fd: int, start: int, end: int, sent: int) -> None:
        if end <= start or end - start > COUNT_MAX_BYTES:
            return
        own = os.open("/proc/self/fd/%d" % fd, os.O_RDONLY | os.O_CLOEXEC)
        self._counter = threading.Thread(target=self._count, args=(own, start, end, sent), name="count", daemon=True)
        self._counter.start()

    def wait_counted(self) -> None:
        """Wait until the lines of the last scan are counted."""
        if self._counter is not None:
            self._counter.join()

    def _count(self, fd: int, start: int, end: int, sent: int) -> None:
        """Count the lines that were not sent by kind; takes its time, between the probe's other work."""
        matcher: Matcher = self._picker.matcher
        total = 0
        counts: Counter[str] = Counter()
        try:
            for _, block in _blocks(fd, start, end):
                if self._stopped():
                    return
                lines = block.count(b"\n") or 1
                total += lines
                counts.update(matcher.count(block))
                time.sleep(0)
        finally:
            os.close(fd)
        if total > sent:
            self._counted.append((total - sent, dict(counts)))


def split_ranges(fd: int, start: int, end: int) -> list[tuple[int, int]]:
    """Parts of a file for parallel workers, cut at line ends."""
    cores = len(os.sched_getaffinity(0))
    parts = max(min(cores, MAX_WORKERS, (end - start) // BYTES_A_WORKER + 1), 1)
    cuts = [start]
    for part in range(1, parts):
        place = _next_line(fd, max(start + (end - start) * part // parts, cuts[-1]), end)
        if place > cuts[-1]:
            cuts.append(place)
    cuts.append(end)
    return [(first, last) for first, last in zip(cuts, cuts[1:]) if last > first]  # noqa: B905


def _next_line(fd: int, place: int, end: int) -> int:
    """Where the first line after `place` begins."""
    while place < end:
        data = os.pread(fd, BLOCK_BYTES, place)
        found = data.find(b"\n")
        if found >= 0 or not data:
            return min(place + found + 1, end)
        place += len(data)
    return end


def _sample(fd: int, start: int, end: int) -> bytes:
    size = SAMPLE_BYTES // SAMPLES
    return b"".join(os.pread(fd, size, start + (end - start) * part // SAMPLES) for part in range(SAMPLES))


def _blocks(fd: int, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """(offset, whole lines); of a line longer than four blocks the beginning, without a newline."""
    rest, base, at, skipping = b"", start, start, False
    while at < end:
        data = os.pread(fd, min(BLOCK_BYTES, end - at), at)
        if not data:
            break
        at += len(data)
        if skipping:
            stop = data.find(b"\n") + 1
            if not stop:
                continue
            data, skipping = data[stop:], False
            rest, base = b"", at - len(data)
        data = rest + data
        cut = data.rfind(b"\n") + 1
        if cut:
            yield base, data[:cut]
        rest, base = data[cut:], base + cut
        if len(rest) > LONG_BLOCKS * BLOCK_BYTES:
            yield base, rest
            skipping = True
    if rest and not skipping:
        yield base, rest


def _line_at(fd: int, offset: int, length: int) -> bytes:
    """A line as `bound_line` wants it, without reading the middle of a huge one."""
    if length <= MAX_LINE:
        return os.pread(fd, length, offset)
    head, tail = os.pread(fd, MAX_LINE, offset), os.pread(fd, MAX_BAR, offset + length - MAX_BAR)
    return head + tail if b"\r" in tail else head
