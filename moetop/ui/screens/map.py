"""The map at full size: every GPU as a point, the zones named, trails of the last minutes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.widget import Widget

from moetop.ui import keys
from moetop.ui.charts import Line
from moetop.ui.maps import ACTIVITY_MAP, POWER_MAP, Point, point_map
from moetop.ui.screens.base import MoeScreen
from moetop.ui.series import TRAIL_GPUS, empty_map_words, map_points
from moetop.ui.widgets.plots import Plot
from moetop.ui.widgets.text import TextLine


class MapScreen(MoeScreen):
    """Utilization against power, or tensor against DRAM activity."""

    where: ClassVar[str] = keys.MAP

    def body(self) -> Iterable[Widget]:
        yield TextLine(id="title")
        yield Plot(self._draw, id="map")
        yield TextLine(id="note")

    def crumbs(self) -> tuple[str, ...]:
        return ("map",)

    def _points(self, kind: str, trails: bool = True) -> tuple[list[Point], int]:
        """Points of the GPUs that pass the filter of the fleet."""
        app = self.moetop
        return map_points(app.feed, self.scene.hosts, kind, app.chosen, trails, app.row_filter)

    def show_scene(self) -> None:
        kind = POWER_MAP if self.moetop.map_kind == "power" else ACTIVITY_MAP
        self.query_one("#map", Plot).redraw()
        _points, missing = self._points(kind.key, trails=False)
        why = "no value" if self.moetop.map_kind == "power" else "idle, or no value"
        if any(host.lost and host.report.gpus for host in self.scene.hosts):
            why = f"lost, {why}" if "," in why else f"lost, or {why}"
        if self.scene.gpu_count() > TRAIL_GPUS:
            trails = "dots: the last 2 minutes of the chosen host "
        else:
            trails = "dots: the last 2 minutes "
        words = f" {missing} GPU{'s are' if missing != 1 else ' is'} not on the map: {why}" if missing else ""
        claim = f"   {kind.claim}"
        fits = len(kind.title) + len(claim) + len(trails) < self.app.size.width
        self.query_one("#title", TextLine).say(
            [(f" {kind.title}", "text!"), (claim if fits else "", "quiet")], right=[(trails, "quiet")]
        )
        only = " only rows that the fleet's filter lets through  " if self.moetop.row_filter is not None else ""
        below = [(only, "accent"), (words, "quiet"), ("" if fits else claim[2:], "quiet")]
        self.query_one("#note", TextLine).say(below)

    def _draw(self, width: int, height: int) -> list[Line]:
        kind = POWER_MAP if self.moetop.map_kind == "power" else ACTIVITY_MAP
        points, _missing = self._points(kind.key)
        if not points:
            why = empty_map_words(kind, self.scene.hosts, self.moetop.row_filter)
            return [[("", "quiet")], [(f"     {why}", "quiet")]]
        return point_map(width, height, kind, points)
