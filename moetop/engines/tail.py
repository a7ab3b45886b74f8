"""The newest lines of a log as kept for the screen, harmless to print and bounded in number and size."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from typing import overload

from moetop.engines.reader import segments
from moetop.engines.rules import Rule
from moetop.model import EventSeverity, LogLine
from moetop.text import plain, strip_ansi

TEXT_LIMIT = 2048
MAX_CHARS = 8 * 1024 * 1024

_LEVEL = re.compile(r"\b(?:(ERROR|CRITICAL|FATAL|Error|error)|(WARN(?:ING)?|Warning|warning))\b|\[(?:([EF])|(W))\]")


class Tail(Sequence[LogLine]):
    """A bounded sequence of the newest lines; index 0 is the oldest kept."""

    def __init__(self, lines: int) -> None:
        self._lines: deque[LogLine] = deque(maxlen=max(1, lines))
        self._chars = 0
        self._elided = 0

    def add(self, n: int, line: str, t: float | None, rule: Rule | None = None) -> None:
        """Append a line; `rule` is the row it matched."""
        text = line if "\r" not in line else "  ".join(segments(line))
        text = plain(strip_ansi(text[: TEXT_LIMIT * 2]).rstrip(), TEXT_LIMIT)
        if len(self._lines) == self._lines.maxlen:
            self._chars -= len(self._lines[0].text)
        self._lines.append(
            LogLine(
                n=n,
                text=text,
                t=t,
                kind=rule.kind if rule is not None else None,
                severity=rule.severity if rule is not None else _severity(text),
                elided=self._elided,
            )
        )
        self._elided = 0
        self._chars += len(text)
        while self._chars > MAX_CHARS:
            self._chars -= len(self._lines.popleft().text)

    def elide(self, lines: int) -> None:
        """Say that `lines` lines were left out before the next one."""
        self._elided += lines

    def __len__(self) -> int:
        return len(self._lines)

    def __iter__(self) -> Iterator[LogLine]:
        return iter(self._lines)

    @overload
    def __getitem__(self, index: int) -> LogLine: ...
    @overload
    def __getitem__(self, index: slice) -> list[LogLine]: ...
    def __getitem__(self, index: int | slice) -> LogLine | list[LogLine]:
        if isinstance(index, slice):
            return list(self._lines)[index]
        return self._lines[index]


def _severity(text: str) -> EventSeverity | None:
    """The weight a line gives itself, by level name or, where the engine prints none, by its words."""
    found = _LEVEL.search(text, 0, 200)
    if found is None:
        return None
    return EventSeverity.ERROR if found[1] or found[3] else EventSeverity.WARN
