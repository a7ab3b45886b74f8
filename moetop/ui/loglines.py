"""A log as shown: which lines, where the cursor is, following, search, marks. No widget, no clock."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from moetop.model import EventKind, EventSeverity, LogEvent, LogLine
from moetop.ui import fmt
from moetop.ui.words import EVENT_WORDS

LEVELS = ("all", "no noise", "events")
"""What is shown: every line; all but counted noise; lines with an event only."""

LEVEL_STEPS = {"all": "show all", "no noise": "hide noise", "events": "only events"}
"""What a key that goes to a level says it does."""

_NOISE = frozenset({EventSeverity.NOISE})
_COUNTED = frozenset({EventSeverity.NOISE, EventSeverity.METRIC})
NOISE_KINDS = frozenset({EventKind.HTTP_ACCESS, EventKind.NOTE})


SEARCHED = 20000
"""Characters of a line that a search looks at, so that a hostile line cannot hold the screen."""

MARK = -1
"""`LogLine.elided` of a mark that a person dropped between the lines."""


def is_mark(line: LogLine) -> bool:
    """Whether a shown line is a mark, not a line of the log."""
    return line.elided == MARK


def is_event(line: LogLine) -> bool:
    """Whether a line is one that e/E stop at."""
    return line.kind is not None and line.severity not in _COUNTED and line.kind not in NOISE_KINDS


def line_clock(line: LogLine) -> str:
    """The time a line prints (in its host's zone), else when it came, else blanks."""
    return fmt.printed_clock(line.text) or (fmt.clock_time(line.t) if line.t is not None else " " * 8)


def event_clock(event: LogEvent) -> str:
    """The same of an event, so that its line has one time wherever it is shown; dashes where there is none."""
    return fmt.printed_clock(event.line) or fmt.printed_clock(event.t_text or "") or fmt.clock_time(event.t)


ARGS_SHOWN = (
    "moe_runner_backend", "moe_backend", "quantization", "tp_size", "tensor_parallel_size", "ep_size",
    "enable_expert_parallel", "dtype", "attention_backend", "disable_flashinfer_autotune", "model_path", "model",
)  # fmt: skip
"""Of a line of all arguments, those that decide the tuning, in this order."""

_ARG = re.compile(r"['\"]?\b([a-z][a-z_]{2,40})['\"]?\s*[=:]\s*('[^']{0,200}'|\"[^\"]{0,200}\"|[\w./:-]{1,80})")


def args_digest(text: str) -> str | None:
    """The arguments of a server's start that decide its tuning; None where the line names none of them."""
    found: dict[str, str] = {}
    for match in _ARG.finditer(text[:SEARCHED]):
        found.setdefault(match[1], match[2].strip("'\""))
    shown = [f"{name}={found[name]}" for name in ARGS_SHOWN if found.get(name, "None") not in ("None", "auto", "False")]
    return "  ".join(shown) or None


LINE_KEYS = ("kind", "severity", "rank", "engine")
"""Words before the colon in a line filter; a bare word is looked for in the line."""

_RANK = re.compile(r"\b(?:(?:TP|DP|PP|EP|ATTN_TP)[ _-]?\d+|[Rr][Aa][Nn][Kk] ?\d+)\b")


@dataclass(frozen=True)
class LineFilter:
    """Terms that must all hold; each is a key (None: the text), a lower-case word, and whether it is negated."""

    terms: tuple[tuple[str | None, str, bool], ...]

    def matches(self, line: LogLine, engine: str) -> bool:
        """Whether a line passes; `engine` is the log's."""
        return all(self._holds(key, word, line, engine) != negated for key, word, negated in self.terms)

    def _holds(self, key: str | None, word: str, line: LogLine, engine: str) -> bool:
        head = line.text[:SEARCHED]
        if key is None:
            return word in head.lower()
        if key == "kind":
            return line.kind is not None and (word in line.kind.value or word in EVENT_WORDS[line.kind].lower())
        if key == "severity":
            return line.severity is not None and line.severity.value.startswith(word)
        if key == "engine":
            return word in engine.lower()
        return any(word == rank.replace(" ", "").lower() for rank in _RANK.findall(head[:200]))


def parse_line_filter(text: str) -> LineFilter | None:
    """Read `kind:ready severity:warn rank:TP3 !word`; None for an empty one. Other colons are text."""
    terms: list[tuple[str | None, str, bool]] = []
    for raw in text.lower().split():
        negated = raw.startswith("!") and len(raw) > 1
        word = raw[1:] if negated else raw
        key, colon, rest = word.partition(":")
        known = bool(colon) and key in LINE_KEYS
        if known and not rest:
            continue
        terms.append((key, rest, negated) if known else (None, word, negated))
    return LineFilter(tuple(terms)) if terms else None


class LogLines:
    """Lines of one log under a level, a kind and a search, with a cursor that knows its line."""

    def __init__(self, level: str = "no noise") -> None:
        self.level = level
        self.kind: EventKind | None = None
        self.filter: LineFilter | None = None
        self.filter_text = ""
        self.engine = ""
        self.pattern: re.Pattern[str] | None = None
        self.follow = True
        self.new = 0
        self.hidden = 0
        self.marks: list[LogLine] = []
        self.shown: list[LogLine] = []
        self.cursor = 0
        self.until: float | None = None
        self.repeats: dict[int, int] = {}
        self._last_n = -1
        self._first_n = 0

    def _passes(self, line: LogLine) -> bool:
        if self.until is not None and line.t is not None and line.t > self.until:
            return False
        if self.filter is not None and not self.filter.matches(line, self.engine):
            return False
        if self.kind is not None:
            return line.kind is self.kind
        if self.level == "events":
            return is_event(line)
        return self.level == "all" or line.severity not in _NOISE

    def update(self, tail: Sequence[LogLine]) -> None:
        """Take over what came in; `tail` is the whole kept tail, oldest first."""
        if not tail:
            self.reset()
            return
        if tail[-1].n < self._last_n:
            self.reset()
        start = bisect_left(tail, self._last_n + 1, key=lambda line: line.n)
        fresh = tail[start:]
        if tail[0].n > self._first_n:
            self._drop_before(tail[0].n)
        before = len(self.shown)
        hidden = 0
        for line in fresh:
            hidden += line.elided
            if not self._passes(line):
                hidden += 1
            elif not self._repeats_last(line):
                self.shown.append(line)
        self.hidden += hidden
        self._last_n = tail[-1].n
        if self.follow:
            self.cursor = max(0, len(self.shown) - 1)
        else:
            self.new += len(self.shown) - before

    def _repeats_last(self, line: LogLine) -> bool:
        """Among events: the same words again (each rank says them) count up the line before."""
        if self.level != "events" or not self.shown:
            return False
        last = self.shown[-1]
        if last.kind is not line.kind or fmt.headless(last.text[:4096]) != fmt.headless(line.text[:4096]):
            return False
        self.repeats[last.n] = self.repeats.get(last.n, 1) + 1
        return True

    def _drop_before(self, n: int) -> None:
        self._first_n = n
        gone = bisect_left(self.shown, n, key=lambda line: line.n)
        if gone:
            for line in self.shown[:gone]:
                self.repeats.pop(line.n, None)
            del self.shown[:gone]
            self.cursor = max(0, self.cursor - gone)
        self.marks = [mark for mark in self.marks if mark.n >= n]

    def reset(self) -> None:
        """Start anew (another log, or the log itself began anew)."""
        self.shown = []
        self.repeats = {}
        self.cursor = self.new = self.hidden = 0
        self._last_n = -1
        self._first_n = 0

    def rebuild(self, tail: Sequence[LogLine]) -> None:
        """Apply a changed level, kind or time to the whole tail, keeping the cursor's line if shown."""
        kept = self.selected.n if self.selected is not None and not self.follow else None
        self.reset()
        self.update(tail)
        self.new = 0
        for mark in self.marks:
            self._put_mark(mark)
        if kept is not None and self.shown:
            self.cursor = min(bisect_left(self.shown, kept, key=lambda line: line.n), len(self.shown) - 1)

    def add_mark(self, text: str) -> None:
        """Drop a mark after the last line shown."""
        mark = LogLine(n=self.shown[-1].n if self.shown else 0, text=text, elided=MARK)
        self.marks.append(mark)
        self._put_mark(mark)

    def _put_mark(self, mark: LogLine) -> None:
        self.shown.insert(bisect_right(self.shown, mark.n, key=lambda line: line.n), mark)
        if self.follow:
            self.cursor = max(0, len(self.shown) - 1)

    @property
    def selected(self) -> LogLine | None:
        """The line under the cursor."""
        return self.shown[self.cursor] if 0 <= self.cursor < len(self.shown) else None

    def move(self, step: int) -> None:
        """Move the cursor; upwards stops following, the end takes it up again."""
        if not self.shown:
            return
        self.go(self.cursor + step)

    def go(self, at: int) -> None:
        """Put the cursor on line `at` of those shown."""
        self.cursor = max(0, min(at, len(self.shown) - 1))
        self.follow = self.cursor >= len(self.shown) - 1
        if self.follow:
            self.new = 0

    def place(self) -> int | None:
        """Where the view stands: the number of its line; None while it follows the end."""
        return None if self.follow or self.selected is None else self.selected.n

    def return_to(self, place: int | None) -> None:
        """Back to a `place`."""
        if place is None or not self.shown:
            self.end()
            return
        self.cursor = min(bisect_left(self.shown, place, key=lambda line: line.n), len(self.shown) - 1)
        self.follow = False

    def end(self) -> None:
        """To the end, and follow."""
        self.go(len(self.shown) - 1)

    def set_filter(self, text: str, tail: Sequence[LogLine]) -> None:
        """Show only lines that pass."""
        self.filter_text = text.strip()
        self.filter = parse_line_filter(text)
        self.rebuild(tail)

    def next_event(self, step: int) -> bool:
        """To the next (1) or previous (-1) event; False where there is none."""
        return self._seek(step, is_event)

    def search(self, text: str) -> bool:
        """Search for `text` (a regular expression, or plain text if it is none) backwards from the selected line."""
        if not text:
            self.pattern = None
            return True
        try:
            self.pattern = re.compile(text, re.IGNORECASE)
        except re.error:
            self.pattern = re.compile(re.escape(text), re.IGNORECASE)
        line = self.selected
        return bool(line is not None and self.pattern.search(line.text[:SEARCHED])) or self.next_match(-1)

    def next_match(self, step: int) -> bool:
        """To the next (1) or previous (-1) match."""
        pattern = self.pattern
        return pattern is not None and self._seek(step, lambda line: pattern.search(line.text[:SEARCHED]) is not None)

    def _seek(self, step: int, wanted: Callable[[LogLine], bool]) -> bool:
        at = self.cursor + step
        while 0 <= at < len(self.shown):
            if wanted(self.shown[at]):
                self.go(at)
                return True
            at += step
        return False
