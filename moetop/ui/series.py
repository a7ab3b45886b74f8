"""From the feed's histories to what the charts draw: time windows, series, marks, points. Draws nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from moetop.history import GpuHistory, History
from moetop.model import GpuState, LogEvent
from moetop.ratio import round_top
from moetop.ui import fmt
from moetop.ui.charts import Mark, Series, TimeAxis, dots
from moetop.ui.feed import WatchFeed
from moetop.ui.maps import ACTIVITY_MAP, MapKind, Point
from moetop.ui.paint import clean
from moetop.ui.rows import Filter
from moetop.ui.scene import HostView, gpu_sign
from moetop.ui.words import CHART_MARKS, EVENT_ROLES

TRAIL_S = 120.0
"""Length of the trails of a map."""

TRAIL_POINTS = 16

TRAIL_GPUS = 128
"""With more GPUs only those of the chosen host have trails: more would hide the points, and hold keys back."""

QUARTER_S = 900.0
"""Time zones lie whole quarters of an hour apart."""

_PRINTED = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d")


@dataclass(frozen=True)
class Window:
    """A stretch of a host's own time, seconds. `live` ends at the present."""

    start: float
    end: float
    live: bool = True
    cursor: float | None = None

    def axis(self, marks: Sequence[Mark] = ()) -> TimeAxis:
        """Ends in words."""
        length = self.end - self.start
        cursor = None if self.cursor is None else (self.cursor - self.start) / length
        return TimeAxis(f"-{fmt.short_span(length)}", fmt.clock_time(self.end), marks, cursor)

    def at(self, place: float) -> float:
        """Seconds at 0..1 of the window."""
        return self.start + place * (self.end - self.start)

    def place(self, t: float) -> float | None:
        """0..1 within the window, None outside."""
        return (t - self.start) / (self.end - self.start) if self.start <= t <= self.end else None


def window_of(host: HostView, range_s: float, cursor_t: float | None) -> Window | None:
    """The window that charts of a host show; None before its first sample."""
    now = host.now if host.now is not None else host.last_t
    if now is None:
        return None
    if cursor_t is None:
        return Window(now - range_s, now)
    end = min(now, cursor_t + range_s / 2)
    return Window(end - range_s, end, live=False, cursor=cursor_t)


def _values(histories: Sequence[History], name: str, window: Window, count: int) -> list[float | None]:
    """The series of one GPU, or the mean over several where any says something."""
    columns = [history.resample(name, window.start, window.end, count) for history in histories]
    if len(columns) == 1:
        return columns[0]
    merged: list[float | None] = []
    for values in zip(*columns, strict=True):
        known = [value for value in values if value is not None]
        merged.append(sum(known) / len(known) if known else None)
    return merged


def histories_of(feed: WatchFeed, host: HostView, gpu: int | None) -> list[GpuHistory]:
    """The history of a GPU, or of all GPUs of a host."""
    indices = [gpu] if gpu is not None else [report.index for report in host.report.gpus]
    found = [feed.history(host.name, index) for index in indices]
    return [history for history in found if history is not None and len(history)]


PERCENT_SERIES: tuple[tuple[str, str, str], ...] = (
    ("util", "series_util", "util_gpu_pct"),
    ("DRAM", "series_dram", "dram_pct"),
    ("tensor", "series_tensor", "tensor_pct"),
    ("power", "series_power", "power_pct"),
)


def percent_series(histories: Sequence[GpuHistory], window: Window, width: int) -> list[Series]:
    """Utilization, power, tensor and DRAM in percent; series without a value are left out."""
    if not histories:
        return []
    count = dots(width)
    series = []
    for label, role, name in PERCENT_SERIES:
        values = _values(histories, name, window, count)
        if any(value is not None for value in values):
            series.append(Series(label, role, values))
    return series


def value_series(
    histories: Sequence[History], window: Window, width: int, specs: Sequence[tuple[str, str, str, bool]]
) -> tuple[list[Series], float]:
    """Series of absolute values on one scale; label, role, field, whether it is a level line. And the scale's top."""
    count = dots(width)
    found = [(label, role, _values(histories, name, window, count), level) for label, role, name, level in specs]
    known = [value for _l, _r, values, _lv in found for value in values if value is not None]
    top = nice_top(max(known)) if known else 1.0
    return [
        Series(label, role, values, top, level)
        for label, role, values, level in found
        if any(value is not None for value in values)
    ], top


def nice_top(value: float) -> float:
    """The next round number above a value, so that the scale seldom changes."""
    return round_top(value, (1, 1.5, 2, 3, 4, 5, 6, 8))


def _printed_seconds(event: LogEvent) -> float | None:
    """What a log printed as date and time, as seconds of an unknown zone."""
    if event.t_text is None or _PRINTED.match(event.t_text) is None:
        return None
    try:
        return datetime.fromisoformat(event.t_text[:19]).replace(tzinfo=timezone.utc).timestamp()
    except ValueError:
        return None


def zone_offset(events: Sequence[LogEvent]) -> float | None:
    """Seconds from a log's printed clock to epoch seconds, from the newest event of which both are known."""
    for event in reversed(events):
        printed = _printed_seconds(event)
        if event.t is not None and printed is not None:
            return round((event.t - printed) / QUARTER_S) * QUARTER_S
    return None


def marks_of(events: Sequence[LogEvent], window: Window) -> list[Mark]:
    """Events worth a mark that lie in the window. Lines from before the watch print no zone: they are
    placed by the offset of lines that were seen as they came."""
    marks = []
    offset = zone_offset(events)
    for event in events:
        if event.kind not in CHART_MARKS:
            continue
        t = event.t
        if t is None and offset is not None:
            printed = _printed_seconds(event)
            t = None if printed is None else printed + offset
        place = window.place(t) if t is not None else None
        if place is not None:
            marks.append(Mark(place, CHART_MARKS[event.kind], EVENT_ROLES[event.severity]))
    return marks


NAME_CELLS = 18
"""Room for a host's name on a map; a longer one keeps both ends, since addresses differ in the last."""


def short_name(name: str) -> str:
    """A host's name for a map."""
    shown = clean(name, 80)
    return shown if len(shown) <= NAME_CELLS else f"{shown[:7]}…{shown[-(NAME_CELLS - 8) :]}"


def map_points(
    feed: WatchFeed,
    hosts: Sequence[HostView],
    kind: str,
    chosen: tuple[str, int | None] | None,
    trails: bool = True,
    rows: Filter | None = None,
) -> tuple[list[Point], int]:
    """Every GPU of `hosts` that passes the filter `rows` as a point of a map, and how many could not be placed."""
    many = sum(len(host.report.gpus) for host in hosts) > TRAIL_GPUS
    x_name, y_name = ("util_gpu_pct", "power_pct") if kind == "power" else ("tensor_pct", "dram_pct")
    points: list[Point] = []
    missing = 0
    named = len(hosts) > 1
    for host in hosts:
        gpus = [gpu for gpu in host.report.gpus if rows is None or rows.matches(host, gpu)]
        if host.lost:
            missing += len(gpus)
            continue
        for gpu in gpus:
            if kind == "power":
                x, y = gpu.util_gpu_pct, fmt.power_pct(gpu)
            else:
                x, y = (gpu.gpm.tensor_pct, gpu.gpm.dram_pct) if gpu.gpm is not None else (None, None)
            idle = kind != "power" and gpu.state is GpuState.IDLE  # its zeros would read as starving
            if x is None or y is None or gpu.error is not None or idle:
                missing += 1
                continue
            sign, key = gpu_sign(gpu), (host.name, gpu.index)
            with_trail = trails and (not many or (chosen is not None and chosen[0] == host.name))
            history = feed.history(host.name, gpu.index) if with_trail else None
            trail = history.recent((x_name, y_name), TRAIL_S, TRAIL_POINTS) if history is not None else []
            name = short_name(host.name) if named else ""
            points.append(Point(x, y, sign.glyph, sign.role, name, trail, chosen == key, key))
    return points, missing


def empty_map_words(kind: MapKind, hosts: Sequence[HostView], rows: Filter | None = None) -> str:
    """Why a map has no point."""
    gpus = [(host, gpu) for host in hosts for gpu in host.report.gpus if rows is None or rows.matches(host, gpu)]
    if rows is not None and not gpus:
        return "no GPU passes the fleet's filter"
    if hosts and all(host.lost for host in hosts):
        return f"{clean(hosts[0].name, 60)} is lost" if len(hosts) == 1 else f"all {len(hosts)} hosts are lost"
    there = [gpu for host, gpu in gpus if not host.lost]
    if not there:
        return "all hosts of these GPUs are lost" if gpus else "no GPU yet"
    if all(gpu.error is not None for gpu in there):
        return "no GPU here can be read"
    idle = any(gpu.state is GpuState.IDLE and gpu.gpm is not None for gpu in there)
    return "no GPU is at work; idle ones are not on this map" if idle and kind is ACTIVITY_MAP else kind.lacking


def choose_point(points: Sequence[Point], chosen: tuple[str, int | None] | None) -> list[Point]:
    """The same points with that of the chosen GPU marked."""
    return [
        replace(point, chosen=point.key == chosen) if point.chosen != (point.key == chosen) else point
        for point in points
    ]
