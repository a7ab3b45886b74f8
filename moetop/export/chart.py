"""Static text charts for reports. The only user of plotext; never called on a live screen (it is slow and global)."""

from __future__ import annotations

import string
import threading
from collections.abc import Mapping, Sequence

WIDTH, HEIGHT = 72, 20
"""Columns and rows of a chart: fits a mail and a code block."""

_ZONE_UTIL_PCT, _ZONE_POWER_PCT = (95.0, 100.0), (25.0, 75.0)
"""Where untuned kernels, waiting ranks and small grids lie: always busy at part of the power (docs/verdicts.md)."""

_LOCK = threading.Lock()
"""plotext keeps its figure in module state."""


def power_map(points: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """Every GPU as a letter, its host's, at (utilization %, power % of limit); the starvation zone is dotted."""
    import plotext

    marks = string.ascii_uppercase + string.ascii_lowercase
    with _LOCK:
        plotext.clear_figure()
        plotext.limit_size(False, False)
        plotext.theme("clear")
        plotext.plot_size(WIDTH, HEIGHT)
        plotext.xlim(0, 102)
        plotext.ylim(0, 110)
        plotext.xticks([0, 25, 50, 75, 100])
        plotext.yticks([0, 25, 50, 75, 100])
        plotext.xlabel("utilization %")
        plotext.ylabel("power % of limit")
        (left, right), (low, high) = _ZONE_UTIL_PCT, _ZONE_POWER_PCT
        plotext.plot([left, right, right, left, left], [low, low, high, high, low], marker=".")
        for number, pairs in enumerate(points.values()):
            plotext.scatter([x for x, _ in pairs], [y for _, y in pairs], marker=marks[number % len(marks)])
        text: str = plotext.uncolorize(plotext.build())
        plotext.clear_figure()
    legend = [f"{marks[number % len(marks)]} {name}" for number, name in enumerate(points)]
    lines = [line.rstrip() for line in text.split("\n")]
    return "\n".join([*lines, *legend]).strip("\n")
