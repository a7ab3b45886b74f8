"""How the fleet screen shares out its lines; docs/keys.md says what goes first. Pure."""

from __future__ import annotations

from dataclasses import dataclass

SMALLEST = (40, 10)
"""Columns and lines under which a screen only says that it needs more."""

ROOMY_LINES = 30
"""From so many lines on there are rules, several answers, a log of several lines, and toasts with a title."""

NOTE_LINES = 20
"""From so many lines on the demo says what it is made of."""

CHART_LINES = 32
"""From so many lines on there is a chart."""

LEAST_ROWS = 10
"""A table cut to fewer lines than this makes the charts give way."""

MAP_COLUMNS = 100
"""From so many columns on the map stands beside the chart."""

MOST_ANSWERS = 3
"""Lines of answers on a tall terminal."""

FRAME_LINES = 2
"""Header and footer."""


@dataclass(frozen=True)
class Shares:
    """Lines of the parts; `charts` 0: none. `note` and `rules`: whether the upper rule and the others are there."""

    table: int
    charts: int
    log: int
    note: bool
    rules: bool
    map: bool


def share_lines(width: int, height: int, rows: int, answers: int, prompts: int, noted: bool) -> Shares:
    """The table takes what it needs, then charts and log. `rows` are the table's; `noted`: there is a note."""
    roomy = height >= ROOMY_LINES
    note = roomy or (noted and height >= NOTE_LINES)
    free = height - FRAME_LINES - answers - prompts - note - roomy
    log, charts = (5 if roomy else 1), 0
    if height >= CHART_LINES and free - log - max(8, height // 5) - 1 >= min(rows + 1, LEAST_ROWS):
        charts = max(8, height // 5)
        free -= 1
    table = max(2, min(rows + 1, free - log - charts))
    spare = free - table - charts - log
    if charts:
        more = min(spare * 2 // 3, max(0, height // 3 - charts))
        charts += more
        spare -= more
    return Shares(table, charts, max(1, log + spare), note, roomy, width >= MAP_COLUMNS)


def lines_for_charts(width: int, rows: int, noted: bool) -> int:
    """Lines from which on a terminal shows the charts. With `LEAST_ROWS` of the table more rows need no more."""
    height = CHART_LINES
    while not share_lines(width, height, rows, MOST_ANSWERS, 0, noted).charts:
        height += 1
    return height
