"""Charts as text: braille lines over time. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from moetop.ratio import step
from moetop.ui.paint import fit

Line = list[tuple[str, str]]
"""One line of a chart: pieces of text with their colour roles."""

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bit of a braille cell by row and column."""

AXIS_WIDTH = 6
LABEL_WIDTH = 8
LABEL_FROM_WIDTH = 36
"""Charts narrower than this have no labels at the right end of their lines."""


class Canvas:
    """A grid of braille cells, two dots wide and four high each; a cell takes the role drawn last."""

    def __init__(self, width: int, height: int) -> None:
        self.width = max(0, width)
        self.height = max(0, height)
        self._masks = [[0] * self.width for _ in range(self.height)]
        self._roles: list[list[str]] = [["text"] * self.width for _ in range(self.height)]
        self._texts: dict[tuple[int, int], tuple[str, str]] = {}
        self._taken: set[tuple[int, int]] = set()

    def dot(self, x: int, y: int, role: str) -> None:
        """Set one dot; `x`, `y` in dots from the upper left."""
        column, row = x >> 1, y >> 2
        if 0 <= column < self.width and 0 <= row < self.height:
            self._masks[row][column] |= _DOTS[y & 3][x & 1]
            self._roles[row][column] = role

    def text(self, column: int, row: int, text: str, role: str, *, keep: bool = False) -> None:
        """Put text over cells, over whatever is drawn there; `keep` takes the cells for good."""
        for offset, char in enumerate(text):
            if 0 <= column + offset < self.width and 0 <= row < self.height:
                self._texts[(row, column + offset)] = (char, role)
                if keep:
                    self._taken.add((row, column + offset))

    def is_free(self, column: int, row: int, length: int) -> bool:
        """Whether no kept text lies on these cells and they are inside."""
        inside = column >= 0 and column + length <= self.width and 0 <= row < self.height
        return inside and all((row, column + offset) not in self._taken for offset in range(length))

    def lines(self) -> list[Line]:
        """The grid as pieces, neighbours of one role joined."""
        return [self._line(row) for row in range(self.height)]

    def _line(self, row: int) -> Line:
        pieces: Line = []
        text, role = "", "text"
        masks, roles = self._masks[row], self._roles[row]
        for column in range(self.width):
            over = self._texts.get((row, column))
            if over is not None:
                char, cell_role = over
            elif masks[column]:
                char, cell_role = chr(0x2800 + masks[column]), roles[column]
            else:
                char, cell_role = " ", role
            if cell_role != role and text:
                pieces.append((text, role))
                text = ""
            role = cell_role
            text += char
        if text:
            pieces.append((text, role))
        return pieces


@dataclass(frozen=True)
class Series:
    """One line of a time chart. `values` are as many as `dots(width)`; None is a gap."""

    label: str
    role: str
    values: Sequence[float | None]
    top: float = 100.0
    level: bool = False


@dataclass(frozen=True)
class Mark:
    """A log event on the time axis; `at` is 0..1 of the axis."""

    at: float
    label: str
    role: str = "mark"


@dataclass(frozen=True)
class TimeAxis:
    """Ends of the axis in words, and a cursor at 0..1 of it (None: none)."""

    left: str
    right: str
    marks: Sequence[Mark] = ()
    cursor: float | None = None


def plot_width(width: int) -> int:
    """Cells of the plot itself within a chart `width` cells wide."""
    labels = LABEL_WIDTH if width >= LABEL_FROM_WIDTH else 0
    return max(1, width - AXIS_WIDTH - labels)


def dots(width: int) -> int:
    """Values a series needs for a chart `width` cells wide."""
    return 2 * plot_width(width)


def time_chart(
    width: int, height: int, series: Sequence[Series], axis: TimeAxis, top: float = 100.0, unit: str = ""
) -> list[Line]:
    """A chart of `height` lines: plot, axis at the left, time below, line names at the right."""
    if height < 2 or width <= AXIS_WIDTH + 2:
        return []
    inner, rows = plot_width(width), height - 1
    canvas = Canvas(inner, rows)
    if axis.cursor is not None:
        column = min(2 * inner - 1, int(axis.cursor * 2 * inner))
        for y in range(rows * 4):
            canvas.dot(column, y, "accent")
    for line in series:
        _draw(canvas, line)
    labels = _end_labels(series, rows) if width >= LABEL_FROM_WIDTH else {}
    ticks = _ticks(rows, top, unit)
    lines: list[Line] = []
    for row, pieces in enumerate(canvas.lines()):
        tick = ticks.get(row)
        left = f"{tick:>{AXIS_WIDTH - 2}} ┤" if tick is not None else " " * (AXIS_WIDTH - 1) + "│"
        label, role = labels.get(row, ("", "faint"))
        end: Line = [(fit(f" {label}", LABEL_WIDTH), role)] if width >= LABEL_FROM_WIDTH else []
        lines.append([(left[:-1], "quiet"), (left[-1], "faint"), *pieces, *end])
    lines.append(_time_line(width, inner, axis))
    return lines


def _draw(canvas: Canvas, line: Series) -> None:
    high = canvas.height * 4 - 1
    before: int | None = None
    for x, value in enumerate(line.values):
        if value is None:
            before = None
            continue
        y = high - step(value, line.top, high)
        if line.level and x % 4 > 1:
            before = None
            continue
        if before is None or abs(y - before) <= 1:
            canvas.dot(x, y, line.role)
        else:
            towards = 1 if y > before else -1
            for between in range(before + towards, y + towards, towards):
                canvas.dot(x, between, line.role)
        before = y


def _end_labels(series: Sequence[Series], rows: int) -> dict[int, tuple[str, str]]:
    """Names of the lines beside their last values; where two meet, the later moves to a free row."""
    labels: dict[int, tuple[str, str]] = {}
    for line in series:
        last = next((value for value in reversed(line.values) if value is not None), None)
        if last is None or line.top <= 0:
            continue
        wanted = rows - 1 - step(last, line.top, rows - 1)
        for row in sorted(range(rows), key=lambda row: (abs(row - wanted), row)):
            if row not in labels:
                labels[row] = (line.label, line.role)
                break
    return labels


def _ticks(rows: int, top: float, unit: str) -> dict[int, str]:
    """Axis numbers by row: the ends, and what divides evenly between them."""

    def words(value: float) -> str:
        return f"{value / 1000:.0f}k" if value >= 10000 else f"{value:.0f}{unit}"

    if rows < 2:
        return {0: words(top)}
    parts = 4 if rows >= 9 else 2 if rows >= 5 else 1
    return {round((rows - 1) * part / parts): words(top * (parts - part) / parts) for part in range(parts + 1)}


def _time_line(width: int, inner: int, axis: TimeAxis) -> Line:
    cells = ["─"] * inner
    roles = ["faint"] * inner

    def put(start: int, text: str, role: str) -> None:
        for offset, char in enumerate(text):
            if 0 <= start + offset < inner:
                cells[start + offset] = char
                roles[start + offset] = role

    left, right = f"{axis.left} ", f" {axis.right}"
    taken: list[tuple[int, int]] = [(inner - cell_len(right), inner)]
    put(inner - cell_len(right), right, "quiet")
    for mark in reversed(axis.marks):
        at = min(inner - 1, int(mark.at * inner))
        text = f"┊{mark.label}"
        if any(at < end and at + len(text) + 1 > start for start, end in taken):
            text = "┊"
        if not any(at < end and at + len(text) > start for start, end in taken):
            put(at, text, mark.role)
            taken.append((at, at + len(text)))
    if not any(start <= len(left) for start, _end in taken):
        put(0, left, "quiet")
    pieces: Line = [(" " * (AXIS_WIDTH - 1) + "└", "faint")]
    for char, role in zip(cells, roles, strict=True):
        if pieces[-1][1] == role:
            pieces[-1] = (pieces[-1][0] + char, role)
        else:
            pieces.append((char, role))
    pieces.append((" " * (width - AXIS_WIDTH - inner), "faint"))
    return pieces


def time_at(width: int, column: int) -> float | None:
    """The place 0..1 on the time axis of a column of a time chart this wide; None beside the plot."""
    inner = plot_width(width)
    place = (column - AXIS_WIDTH + 0.5) / inner
    return place if 0 <= place <= 1 else None
