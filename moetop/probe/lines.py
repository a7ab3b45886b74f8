"""Decides which lines of a log travel: event lines always, the rest up to a rate, the others counted; no file I/O."""

from __future__ import annotations

import re
import subprocess
import time
from typing import Any, Callable, Iterable

from .redact import redact_text
from .sieve import choose_fragments, gnu_grep, grep_words

Emit = Callable[["dict[str, Any]", bool], None]

MAX_LINE = 64 * 1024  # an event within the first 64 KiB of a line is never dropped
MAX_BAR = 8 * 1024  # of a longer line of progress bars, the last one travels too
TAIL_RATE = 200.0  # lines a second without an event: what a person can follow, times ten
TAIL_BURST = 600.0
NEWEST_EVERY_S = 1.0  # in a storm the newest line of each counted kind still travels this often
STORM_BYTES = 256 * 1024  # from this size on, a block is searched by grep


class Splitter:
    """Cuts a byte stream into whole lines, with bounded memory for lines without an end."""

    def __init__(self) -> None:
        self.pending = b""
        self.dropped = 0
        self.touched = time.monotonic()
        self.since = self.touched

    @property
    def held(self) -> int:
        """Bytes read of a line that has not ended, those dropped from its middle counted."""
        return len(self.pending) + self.dropped

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """(a first line that was cut, or empty; the other complete lines), both with their newlines."""
        self.touched = time.monotonic()
        end = data.rfind(b"\n") + 1
        if not end:
            self._hold(self.pending + data)
            return b"", b""
        body, rest = data[:end], data[end:]
        cut = b""
        if self.dropped:
            first = body.find(b"\n") + 1
            cut, body = self.pending + body[:first], body[first:]
        else:
            body = self.pending + body
        self.pending, self.dropped = b"", 0
        self._hold(rest)
        return cut, body

    def _hold(self, data: bytes) -> None:
        if not self.pending:
            self.since = self.touched
        if len(data) > 2 * MAX_LINE:
            kept = data[:MAX_LINE] + data[-MAX_LINE:]
            self.dropped += len(data) - len(kept)
            data = kept
        self.pending = data

    def take_bars(self) -> bytes:
        """The finished progress bars of an unfinished line: all up to the last carriage return."""
        at = self.pending.rfind(b"\r", 0, max(len(self.pending) - 1, 0))
        if at <= 0:
            return b""
        out, self.pending, self.dropped = self.pending[:at], self.pending[at:], 0
        self.since = time.monotonic()
        return out

    def take_all(self) -> bytes:
        """Whatever is held, as it is."""
        out, self.pending, self.dropped = self.pending, b"", 0
        return out


def bound_line(line: bytes) -> bytes:
    """A line of at most about 72 KiB: its head, and of progress bars the last one."""
    if len(line) <= MAX_LINE:
        return line
    head, rest = line[:MAX_LINE], line[MAX_LINE:]
    at = rest.rstrip(b"\r").rfind(b"\r")
    if at >= 0:
        return head + b"\r" + rest[at + 1 :][-MAX_BAR:]
    return head + b" ...[%d bytes more]" % len(rest)


class Matcher:
    """The literals that mark an event, and those that name kinds of noise; letter case does not matter."""

    def __init__(self, literals: Iterable[str], noise: dict[str, Iterable[str]]) -> None:
        self.literals = _lowered(literals)
        self.noise = {kind: _lowered(items) for kind, items in noise.items()}
        self._any = re.compile(b"|".join(re.escape(item) for item in self.literals)) if self.literals else None
        self._grep: list[bytes] | None = None
        self._looked_for_grep = False

    def hit(self, line: bytes) -> bool:
        """Whether the line may be an event."""
        return self._any is not None and self._any.search(line[:MAX_LINE].lower()) is not None

    def hit_lines(self, block: bytes) -> list[int]:
        """Starts of the lines of a block that may be events, in order."""
        if len(block) >= STORM_BYTES and self.literals:
            found = self._hit_lines_by_grep(block)
            if found is not None:
                return found
        low = block.lower()
        starts = set()
        for literal in self.literals:
            at = low.find(literal)
            while at >= 0:
                starts.add(low.rfind(b"\n", 0, at) + 1)
                end = low.find(b"\n", at)
                at = low.find(literal, end) if end >= 0 else -1
        return sorted(starts)

    def _hit_lines_by_grep(self, block: bytes) -> list[int] | None:
        if not self._looked_for_grep:
            self._looked_for_grep = True
            grep = gnu_grep()
            self._grep = grep_words(grep, choose_fragments(self.literals, block[:STORM_BYTES])) if grep else None
        if self._grep is None:
            return None
        try:
            done = subprocess.run(
                self._grep,
                check=False,
                input=block,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={"LC_ALL": "C"},
                timeout=10,
            )
        except (OSError, subprocess.SubprocessError):
            return None
        if done.returncode not in (0, 1):
            return None
        starts = []
        for record in done.stdout.split(b"\n")[:-1]:
            number, _, line = record.partition(b":")
            if self.hit(line):
                starts.append(int(number))
        return starts

    def kind_of(self, line: bytes) -> str | None:
        """Noise kind of a line, None when no literal names it."""
        low = line[:MAX_LINE].lower()
        return next((kind for kind, items in self.noise.items() if any(item in low for item in items)), None)

    def count(self, block: bytes) -> dict[str, int]:
        """How many of the block's lines are of which kind of noise."""
        low = block.lower()
        counts = {kind: sum(low.count(item) for item in items) for kind, items in self.noise.items()}
        return {kind: number for kind, number in counts.items() if number}


def _lowered(texts: Iterable[str]) -> list[bytes]:
    return [text.lower().encode("utf-8", "replace") for text in texts if text]


class Picker:
    """Turns whole lines of one log into frames. Used by one thread."""

    def __init__(self, source: str, matcher: Matcher, emit: Emit, rate: float = TAIL_RATE) -> None:
        self.source = source
        self.matcher = matcher
        self._emit = emit
        self._rate = rate
        self._tokens = TAIL_BURST
        self._filled = time.monotonic()
        self._skipped = 0
        self._counts: dict[str, int] = {}
        self._last: tuple[bytes, int | str | None] | None = None
        self._newest: dict[str, float] = {}

    @property
    def settled(self) -> bool:
        """Whether every counted line was told of: only then is a place in the log safe to go on from."""
        return not self._skipped

    def owe(self, skipped: int, counts: dict[str, int]) -> None:
        """Count lines that do not travel; the next frame carries the sum."""
        self._skipped += skipped
        for kind, number in counts.items():
            self._counts[kind] = self._counts.get(kind, 0) + number

    def ship(
        self, line: bytes, offset: int | str | None, event: bool, history: bool = False, t: float | None = None
    ) -> None:
        """Send one line, whatever it holds."""
        text = bound_line(line.rstrip(b"\r\n")).decode("utf-8", "replace")
        frame: dict[str, Any] = {
            "type": "log",
            "t": time.time() if t is None else t,
            "source": self.source,
            "line": redact_text(text),
            "offset": offset,
        }
        if history:
            frame["history"] = True
        if self._skipped:
            frame["skipped"] = self._skipped
        counts = {kind: number for kind, number in self._counts.items() if number > 0}
        if counts:
            frame["counts"] = counts
        self._skipped, self._counts, self._last = 0, {}, None
        self._emit(frame, event)

    def line(self, line: bytes, offset: int | str | None, history: bool = False, t: float | None = None) -> None:
        """One line of a log: sent if it may be an event or the rate allows, else counted."""
        self._refill()
        hit = self.matcher.hit(line)
        if hit or history or self._tokens >= 1.0:
            if not hit and not history:
                self._tokens -= 1.0
            self.ship(line, offset, hit, history, t)
        else:
            self._elide_line(line, offset)

    def block(self, block: bytes, end: int | None, history: bool = False) -> None:
        """Whole lines whose last ends at byte `end` of the log (None: no longer a place in the log)."""
        lines = block.count(b"\n")
        self._refill()
        if lines <= self._tokens or history:
            at = None if end is None else end - len(block)
            for line in block.split(b"\n")[:-1]:
                at = None if at is None else at + len(line) + 1
                self.line(line, at, history)
        else:
            self._storm(block, end)

    def flush(self) -> None:
        """Send the newest elided line, so that what was counted becomes known."""
        if self._last is not None:
            line, offset = self._last
            kind = self.matcher.kind_of(line)
            self._skipped -= 1
            if kind is not None and self._counts.get(kind):
                self._counts[kind] -= 1
            self.ship(line, offset, False)
        elif self._skipped:
            self.ship(b"", None, False, history=True)

    def _refill(self) -> None:
        now = time.monotonic()
        self._tokens = min(TAIL_BURST, self._tokens + (now - self._filled) * self._rate)
        self._filled = now

    def _elide_line(self, line: bytes, offset: int | str | None) -> None:
        kind = self.matcher.kind_of(line)
        now = time.monotonic()
        if kind is not None and now - self._newest.get(kind, 0.0) >= NEWEST_EVERY_S:
            self._newest[kind] = now
            self.ship(line, offset, False)
            return
        self.owe(1, {kind: 1} if kind is not None else {})
        self._last = (bound_line(line), offset)

    def _storm(self, block: bytes, end: int | None) -> None:
        """More lines than may travel: the events, the newest of each kind, and as many of the last as allowed."""
        wanted = set(self.matcher.hit_lines(block))
        events = set(wanted)
        wanted |= self._newest_of_kinds(block)
        at = len(block)
        for _ in range(int(self._tokens)):
            at = block.rfind(b"\n", 0, at - 1) + 1
            wanted.add(at)
            if at == 0:
                break
        self._tokens = 0.0
        place = 0
        for start in sorted(wanted):
            self._elide(block[place:start])
            stop = block.find(b"\n", start) + 1
            offset = None if end is None else end - len(block) + stop
            self.ship(block[start : stop - 1], offset, start in events)
            place = stop
        rest = block[place:]
        self._elide(rest)
        if rest:
            self._last = (bound_line(rest[rest.rfind(b"\n", 0, -1) + 1 : -1]), end)

    def _newest_of_kinds(self, block: bytes) -> set[int]:
        now = time.monotonic()
        starts = set()
        low = block[-STORM_BYTES:].lower()
        before = len(block) - len(low)
        for kind, items in self.matcher.noise.items():
            if now - self._newest.get(kind, 0.0) >= NEWEST_EVERY_S:
                at = max((low.rfind(item) for item in items), default=-1)
                if at >= 0:
                    self._newest[kind] = now
                    starts.add(block.rfind(b"\n", 0, before + at) + 1)
        return starts

    def _elide(self, segment: bytes) -> None:
        lines = segment.count(b"\n")
        if lines:
            self.owe(lines, self.matcher.count(segment))
