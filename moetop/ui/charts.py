"""Charts as text: braille lines over time, and maps of points with named zones. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rich.cells import cell_len

from moetop.ui.paint import fit

Line = list[tuple[str, str]]
"""One line of a chart: pieces of text with their colour roles."""

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bit of a braille cell by row and column."""

AXIS_WIDTH = 5
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
        lines.append([(left, "faint"), *pieces, *end])
    lines.append(_time_line(width, inner, axis))
    return lines


def _draw(canvas: Canvas, line: Series) -> None:
    high = canvas.height * 4 - 1
    before: int | None = None
    for x, value in enumerate(line.values):
        if value is None:
            before = None
            continue
        y = high - max(0, min(high, round(value / line.top * high))) if line.top > 0 else high
        if line.level and x % 4 > 1:
            before = None
            continue
        if before is None or abs(y - before) <= 1:
            canvas.dot(x, y, line.role)
        else:
            step = 1 if y > before else -1
            for between in range(before + step, y + step, step):
                canvas.dot(x, between, line.role)
        before = y


def _end_labels(series: Sequence[Series], rows: int) -> dict[int, tuple[str, str]]:
    """Names of the lines beside their last values; where two meet, the later moves to a free row."""
    labels: dict[int, tuple[str, str]] = {}
    for line in series:
        last = next((value for value in reversed(line.values) if value is not None), None)
        if last is None or line.top <= 0:
            continue
        wanted = rows - 1 - max(0, min(rows - 1, round(last / line.top * (rows - 1))))
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


# ── maps ─────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Scale:
    """An axis: values at the knots lie at the given fractions; between knots it is straight."""

    knots: tuple[tuple[float, float], ...]
    ticks: tuple[float, ...]

    def place(self, value: float) -> float:
        """0..1 along the axis; values outside lie on its ends."""
        low_value, low_at = self.knots[0]
        if value <= low_value:
            return low_at
        for high_value, high_at in self.knots[1:]:
            if value <= high_value:
                return low_at + (value - low_value) / (high_value - low_value) * (high_at - low_at)
            low_value, low_at = high_value, high_at
        return low_at


@dataclass(frozen=True)
class Zone:
    """A named rectangle of a map."""

    x0: float
    x1: float
    y0: float
    y1: float
    name: str
    role: str
    boxed: bool = True


@dataclass(frozen=True)
class Point:
    """One GPU on a map: place, glyph, role, name, and where it was (oldest first)."""

    x: float
    y: float
    glyph: str
    role: str
    name: str = ""
    trail: Sequence[tuple[float, ...]] = ()
    chosen: bool = False
    key: tuple[str, int] | None = None


@dataclass(frozen=True)
class MapKind:
    """What a map shows. `claim` says what its zones may be taken for."""

    key: str
    title: str
    x_name: str
    y_name: str
    x: Scale
    y: Scale
    zones: tuple[Zone, ...]
    claim: str = field(default="")


FULL_POWER_Y = Scale(((0, 0), (110, 1)), (0, 25, 50, 75, 100))

POWER_MAP = MapKind(
    "power",
    "utilization / power",
    "util %",
    "power %",
    Scale(((0, 0), (80, 0.4), (100, 0.95), (104, 1)), (0, 50, 80, 90, 100)),
    FULL_POWER_Y,
    (Zone(95, 104, 25, 75, "starved?", "tensor_starved"),),
    "busy at 25-75 % of the power limit fits starved tensor cores, and waiting ranks too",
)
"""The zone is the power part of the signature without counters: utilization >= 95 at 25-75 % of the limit.
The upper fifth of utilization takes most of the width, since that is where GPUs at work differ."""

ACTIVITY_MAP = MapKind(
    "activity",
    "tensor / DRAM activity",
    "tensor %",
    "DRAM %",
    Scale(((0, 0), (100, 1)), (0, 20, 50, 100)),
    Scale(((0, 0), (100, 1)), (0, 25, 50, 75, 100)),
    (
        Zone(0, 20, 0, 60, "starved", "tensor_starved"),
        Zone(50, 100, 0, 75, "tensor busy", "tensor_busy", boxed=False),
        Zone(0, 50, 75, 100, "memory-bound", "memory_bound", boxed=False),
    ),
    "measured by GPM; with SMs busy",
)
"""Cuts as the states take them: tensor < 20 and DRAM < 60 starved, tensor >= 50 busy, DRAM >= 75 memory."""


def point_map(width: int, height: int, kind: MapKind, points: Iterable[Point]) -> list[Line]:
    """A map of `height` lines. Points of one cell become one with their number."""
    inner, rows = width - AXIS_WIDTH, height - 1
    if inner < 8 or rows < 3:
        return []
    canvas = Canvas(inner, rows)
    known = list(points)
    for zone in kind.zones:
        _zone(canvas, kind, zone)
    for point in known:
        for x, y in point.trail:
            canvas.dot(round(kind.x.place(x) * (2 * inner - 1)), round((1 - kind.y.place(y)) * (4 * rows - 1)), "faint")
    _points(canvas, kind, known)
    ticks = {round((1 - kind.y.place(tick)) * (rows - 1)): f"{tick:.0f}" for tick in _few(kind.y.ticks, rows)}
    lines: list[Line] = []
    for row, pieces in enumerate(canvas.lines()):
        left = f"{ticks[row]:>{AXIS_WIDTH - 2}} ┤" if row in ticks else " " * (AXIS_WIDTH - 1) + "│"
        lines.append([(left, "faint"), *pieces])
    lines.append(_bottom(kind, inner))
    return lines


def nearest_point(
    width: int, height: int, kind: MapKind, points: Iterable[Point], column: int, row: int
) -> Point | None:
    """The point drawn nearest to a cell of a map of this size, within three cells."""
    canvas = Canvas(width - AXIS_WIDTH, height - 1)

    def distance(point: Point) -> float:
        x, y = _cell(canvas, kind, point.x, point.y)
        return abs(x + AXIS_WIDTH - column) + 2 * abs(y - row)

    found = min(points, key=distance, default=None)
    return found if found is not None and distance(found) <= 3 else None


def time_at(width: int, column: int) -> float | None:
    """The place 0..1 on the time axis of a column of a time chart this wide; None beside the plot."""
    inner = plot_width(width)
    place = (column - AXIS_WIDTH + 0.5) / inner
    return place if 0 <= place <= 1 else None


def _few(ticks: Sequence[float], rows: int) -> Sequence[float]:
    return ticks if rows >= 9 else (ticks[0], ticks[len(ticks) // 2], ticks[-1])


def _cell(canvas: Canvas, kind: MapKind, x: float, y: float) -> tuple[int, int]:
    return round(kind.x.place(x) * (canvas.width - 1)), round((1 - kind.y.place(y)) * (canvas.height - 1))


def _zone(canvas: Canvas, kind: MapKind, zone: Zone) -> None:
    left, top = _cell(canvas, kind, zone.x0, zone.y1)
    right, bottom = _cell(canvas, kind, zone.x1, zone.y0)
    if zone.boxed:
        for column in range(left, right + 1):
            for row in (top, bottom):
                canvas.text(column, row, "─", zone.role, keep=True)
        for row in range(top, bottom + 1):
            for column in (left, right):
                corner = {(left, top): "┌", (right, top): "┐", (left, bottom): "└", (right, bottom): "┘"}
                canvas.text(column, row, corner.get((column, row), "│"), zone.role, keep=True)
    room = right - left - 1
    if cell_len(zone.name) <= room:
        canvas.text(left + 1, top, zone.name, zone.role)
    elif left > cell_len(zone.name):
        canvas.text(left - cell_len(zone.name), top, zone.name, zone.role)


def _points(canvas: Canvas, kind: MapKind, points: Sequence[Point]) -> None:
    cells: dict[tuple[int, int], list[Point]] = {}
    for point in points:
        cells.setdefault(_cell(canvas, kind, point.x, point.y), []).append(point)
    names: list[tuple[int, int, str, str]] = []
    for (column, row), there in cells.items():
        shown = next((point for point in there if point.chosen), there[0])
        canvas.text(column, row, shown.glyph, "accent" if shown.chosen else shown.role, keep=True)
        count = f"×{len(there)}" if len(there) > 1 else ""
        owners = sorted({point.name for point in there if point.name})
        name = owners[0] if len(owners) == 1 else ""
        label = " ".join(filter(None, (count, name)))
        if label:
            names.append((column, row, label, shown.role))
    for column, row, label, role in sorted(names):
        _name_point(canvas, column, row, label, role)


def _name_point(canvas: Canvas, column: int, row: int, label: str, role: str) -> None:
    """Put a label beside its point; where a zone leaves no room, the number beside and the name outside."""
    count, _, name = label.partition(" ") if label.startswith("×") else ("", "", label)
    if _put_beside(canvas, column, row, label, role):
        return
    if count:
        _put_beside(canvas, column, row, count, role)
    length = cell_len(name)
    for start in range(column - length - 1, max(-1, column - length - 16), -1):
        if name and canvas.is_free(start, row, length):
            canvas.text(start, row, name, role, keep=True)
            return


def _put_beside(canvas: Canvas, column: int, row: int, text: str, role: str) -> bool:
    length = cell_len(text)
    for start in (column + 1, column - length):
        if canvas.is_free(start, row, length):
            canvas.text(start, row, text, role, keep=True)
            return True
    return False


def _bottom(kind: MapKind, inner: int) -> Line:
    cells = ["─"] * inner
    for tick in kind.x.ticks:
        text = f"{tick:.0f}"
        at = min(inner - len(text), max(0, round(kind.x.place(tick) * (inner - 1)) - len(text) // 2))
        for offset, char in enumerate(text):
            cells[at + offset] = char
    name = f" {kind.x_name} "
    at = round(kind.x.place(kind.x.ticks[0]) * inner) + 3
    if at + len(name) < inner and all(char == "─" for char in cells[at : at + len(name)]):
        cells[at : at + len(name)] = name
    return [(" " * (AXIS_WIDTH - 1) + "└", "faint"), ("".join(cells), "quiet")]
