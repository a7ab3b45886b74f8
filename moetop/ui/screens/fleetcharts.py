"""The charts of the fleet: the map of all GPUs, and the selected row over time. They need a tall terminal."""

from __future__ import annotations

from textwrap import wrap

from moetop.ui import fmt, keys
from moetop.ui.charts import Line, time_at, time_chart
from moetop.ui.layout import MAP_COLUMNS
from moetop.ui.maps import ACTIVITY_MAP, POWER_MAP, Point, nearest_point, point_map
from moetop.ui.paint import clean
from moetop.ui.rows import Filter, TableRow
from moetop.ui.scene import HostView
from moetop.ui.screens.fleetprompts import FleetPrompts
from moetop.ui.series import (
    choose_point,
    empty_map_words,
    histories_of,
    map_points,
    marks_of,
    percent_series,
    window_of,
)
from moetop.ui.widgets.plots import Plot
from moetop.ui.widgets.table import FleetTable
from moetop.ui.widgets.text import TextLine


class FleetCharts(FleetPrompts):
    """Draws them, and says why a key that changes them changes nothing on the screen."""

    where = keys.FLEET

    def __init__(self) -> None:
        super().__init__()
        self.lines_needed = 0
        self._map_cache: tuple[object, tuple[str, str, Filter | None], list[Point]] | None = None

    def _selected(self) -> TableRow | None:
        return self.query_one(FleetTable).selected

    def go_to_gpu(self, host: str, gpu: int) -> None:
        """Select a GPU's row by hand."""
        raise NotImplementedError

    def action_deed(self, name: str) -> None:
        super().action_deed(name)
        if name == "map_kind" or name.startswith("range_"):
            self._say_hidden(name)

    def _say_hidden(self, name: str) -> None:
        """The key took effect; where its chart is not shown, that is all that can be seen."""
        size, app = self.app.size, self.moetop
        if name == "map_kind":
            kind = POWER_MAP if app.map_kind == "power" else ACTIVITY_MAP
            done, what = f"map: {kind.title}", "the map needs"
        else:
            done, what = f"charts: last {fmt.short_span(app.range_s)}", "they need"
        if not self.query_one("#charts").display:
            app.say(f"{done}; {what} {self.lines_needed} lines; this terminal has {size.height}")
        elif name == "map_kind" and not self.query_one("#map-pane").display:
            app.say(f"{done}; the map needs {MAP_COLUMNS} columns; this terminal has {size.width}")

    def _show_chart_titles(self, host: HostView | None) -> None:
        app = self.moetop
        kind = POWER_MAP if app.map_kind == "power" else ACTIVITY_MAP
        title = self.query_one("#map-title", TextLine)
        title.say([(f" {kind.title}", "text")], right=[("p other  M full size ", "quiet")])
        chart = self.query_one("#chart-title", TextLine)
        row = self._selected()
        if host is None or row is None:
            chart.say([])
            return
        count = len(host.report.gpus)
        what = "no GPU" if not count else "GPU 0" if count == 1 else f"mean of {count} GPUs"
        what = f"gpu {row.gpu.index}" if row.gpu is not None else what
        rate = [server.metrics.generation_tokens_s for server in host.report.servers if server.metrics is not None]
        known = [value for value in rate if value is not None]
        tokens = f"   {sum(known):,.0f} tok/s" if known else ""
        right = f"last {fmt.short_span(app.range_s)}{tokens} "
        chart.say([(f" {clean(host.name, 60)}", "text"), (f" · {what}", "quiet")], right=[(right, "quiet")])

    def _draw_chart(self, width: int, height: int) -> list[Line]:
        host, row = self.host(), self._selected()
        if host is None or row is None:
            return []
        app = self.moetop
        window = window_of(host, app.range_s, app.host_cursor(host))
        histories = histories_of(app.feed, host, row.gpu.index if row.gpu is not None else None)
        if window is None or not histories:
            words = "a snapshot shows one moment" if app.mode is not None else "no samples yet"
            return [[("", "quiet")], [(f"     {words}", "quiet")]]
        marks = marks_of(app.feed.recent_events(host.name), window)
        return time_chart(width, height, percent_series(histories, window, width), window.axis(marks))

    def _draw_map(self, width: int, height: int) -> list[Line]:
        app = self.moetop
        kind = POWER_MAP if app.map_kind == "power" else ACTIVITY_MAP
        cache = self._map_cache
        key = (kind.key, app.chosen[0] if app.chosen is not None else "", app.row_filter)
        if cache is None or cache[0] is not self.scene or cache[1] != key:
            found, _missing = map_points(app.feed, self.scene.hosts, kind.key, app.chosen, rows=app.row_filter)
            cache = self._map_cache = (self.scene, key, found)
        points = choose_point(cache[2], app.chosen)
        if not points:
            why = empty_map_words(kind, self.scene.hosts, app.row_filter)
            return [[("", "quiet")], *([(f"     {part}", "quiet")] for part in wrap(why, max(20, width - 6)))]
        return point_map(width, height, kind, points)

    def on_plot_clicked(self, message: Plot.Clicked) -> None:
        """A click on the map selects the GPU there; one on the chart goes to that time."""
        size, app = message.plot.content_size, self.moetop
        if message.plot.id == "map" and self._map_cache is not None:
            kind = POWER_MAP if app.map_kind == "power" else ACTIVITY_MAP
            point = nearest_point(size.width, size.height, kind, self._map_cache[2], message.x, message.y)
            if point is not None and point.key is not None:
                self.go_to_gpu(*point.key)
            return
        place, host = time_at(size.width, message.x), self.host()
        window = window_of(host, app.range_s, app.host_cursor(host)) if host is not None else None
        if place is not None and host is not None and window is not None:
            now = host.now if host.now is not None else host.last_t
            app.go_to_time(app.present_t - ((now or 0.0) - window.at(place)))
