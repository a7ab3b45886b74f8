"""Maps as text: every GPU a point between two axes, zones boxed and named. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from moetop.ui.charts import AXIS_WIDTH, Canvas, Line


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

    def bend(self) -> tuple[float, float] | None:
        """Where the axis starts to run faster, and how many times; None where it is straight."""
        slopes = [
            (value, (at - before_at) / (value - before))
            for (before, before_at), (value, at) in zip(self.knots, self.knots[1:], strict=False)
        ]
        if len(slopes) < 2 or slopes[1][1] <= slopes[0][1]:
            return None
        return slopes[0][0], slopes[1][1] / slopes[0][1]


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
    """What a map shows. `claim` says what its zones may be taken for, `lacking` what is said where no GPU has both
    values."""

    key: str
    title: str
    x_name: str
    y_name: str
    x: Scale
    y: Scale
    zones: tuple[Zone, ...]
    claim: str = ""
    lacking: str = ""


ROOMY_ROWS = 20
"""From so many rows on every zone has its edges drawn; below only the starved one."""

FULL_POWER_Y = Scale(((0, 0), (110, 1)), (0, 25, 50, 75, 100))

POWER_MAP = MapKind(
    "power",
    "utilization → power ↑",
    "util %",
    "power %",
    Scale(((0, 0), (80, 0.4), (100, 0.95), (104, 1)), (0, 50, 80, 90, 100)),
    FULL_POWER_Y,
    (Zone(95, 104, 25, 75, "starved?", "tensor_starved"),),
    "busy at 25-75 % of the power limit: starved tensor cores, or waiting ranks",
    "no GPU here gives utilization, power and its limit",
)
"""The zone is the power part of the signature without counters: utilization >= 95 at 25-75 % of the limit.
The upper fifth of utilization takes most of the width, since that is where GPUs at work differ."""

ACTIVITY_MAP = MapKind(
    "activity",
    "tensor → DRAM ↑",
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
    "no GPU here gives tensor and DRAM activity (GPM: Hopper and later)",
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
        lines.append([(left[:-1], "quiet"), (left[-1], "faint"), *pieces])
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


def _few(ticks: Sequence[float], rows: int) -> Sequence[float]:
    return ticks if rows >= 9 else (ticks[0], ticks[len(ticks) // 2], ticks[-1])


def _cell(canvas: Canvas, kind: MapKind, x: float, y: float) -> tuple[int, int]:
    return round(kind.x.place(x) * (canvas.width - 1)), round((1 - kind.y.place(y)) * (canvas.height - 1))


def _zone(canvas: Canvas, kind: MapKind, zone: Zone) -> None:
    left, top = _cell(canvas, kind, zone.x0, zone.y1)
    right, bottom = _cell(canvas, kind, zone.x1, zone.y0)
    role = zone.role if zone.boxed else "faint"
    if zone.boxed or canvas.height >= ROOMY_ROWS:
        for column in range(left, right + 1):
            for row in (top, bottom):
                canvas.text(column, row, "─", role, keep=True)
        for row in range(top, bottom + 1):
            for column in (left, right):
                corner = {(left, top): "┌", (right, top): "┐", (left, bottom): "└", (right, bottom): "┘"}
                canvas.text(column, row, corner.get((column, row), "│"), role, keep=True)
    room = right - left - 1
    if cell_len(zone.name) <= room:
        canvas.text(left + 1, top, zone.name, zone.role)
    elif left > cell_len(zone.name):
        canvas.text(left - cell_len(zone.name), top, zone.name, zone.role)


def _points(canvas: Canvas, kind: MapKind, points: Sequence[Point]) -> None:
    cells: dict[tuple[int, int], list[Point]] = {}
    for point in points:
        cells.setdefault(_cell(canvas, kind, point.x, point.y), []).append(point)
    names: list[tuple[int, int, str, str, str]] = []
    for (column, row), there in cells.items():
        shown = next((point for point in there if point.chosen), there[0])
        canvas.text(column, row, shown.glyph, "accent" if shown.chosen else shown.role, keep=True)
        count = f"×{len(there)}" if len(there) > 1 else ""
        owners = sorted({point.name for point in there if point.name})
        name = owners[0] if len(owners) == 1 else ""
        if count or name:
            names.append((column, row, count, name, shown.role))
    named: set[str] = set()
    for column, row, count, name, role in sorted(names, key=lambda found: (-len(found[2]), found)):
        _name_point(canvas, column, row, count, "" if name in named else name, role)
        named.add(name)


def _name_point(canvas: Canvas, column: int, row: int, count: str, name: str, role: str) -> None:
    """Put number and name beside a point; where a zone leaves no room, the number beside and the name outside."""
    if _put_beside(canvas, column, row, " ".join(filter(None, (count, name))), role):
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
    """The x axis; a double line, and how many times wider, where it is stretched."""
    cells = ["─"] * inner
    bend = kind.x.bend()
    if bend is not None:
        start = round(kind.x.place(bend[0]) * (inner - 1))
        cells[start:] = ["═"] * (inner - start)
    for tick in kind.x.ticks:
        text = f"{tick:.0f}"
        at = min(inner - len(text), max(0, round(kind.x.place(tick) * (inner - 1)) - len(text) // 2))
        for offset, char in enumerate(text):
            cells[at + offset] = char
    name = f" {kind.x_name} "
    at = round(kind.x.place(kind.x.ticks[0]) * inner) + 3
    if at + len(name) < inner and all(char == "─" for char in cells[at : at + len(name)]):
        cells[at : at + len(name)] = name
    if bend is not None:
        at = round(kind.x.place(bend[0]) * (inner - 1)) + 2
        for words in (f" ×{bend[1]:.1f} wider ", f" ×{bend[1]:.1f} "):
            if at + len(words) < inner and all(char == "═" for char in cells[at : at + len(words)]):
                cells[at : at + len(words)] = words
                break
    return [(" " * (AXIS_WIDTH - 1) + "└", "faint"), ("".join(cells), "quiet")]
