"""Widgets around the pure charts: they turn chart lines into strips."""

from __future__ import annotations

from collections.abc import Callable

from textual import events
from textual.message import Message
from textual.strip import Strip

from moetop.ui.charts import Line
from moetop.ui.paint import line_of
from moetop.ui.widgets.lines import LineWidget

Drawer = Callable[[int, int], list[Line]]
"""Makes the lines of a chart for a width and height in cells."""


class Plot(LineWidget):
    """A chart whose lines come from `drawer`; a click is told with its place 0..1 from the left."""

    DEFAULT_CSS = "Plot { width: 1fr; height: 1fr; }"

    class Clicked(Message):
        """A click into the chart."""

        def __init__(self, plot: Plot, x: int, y: int) -> None:
            super().__init__()
            self.plot = plot
            self.x = x
            self.y = y

    def __init__(self, drawer: Drawer, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.drawer = drawer

    def make_lines(self, width: int, height: int) -> list[Strip]:
        paint = self.paint
        blank = paint("text")
        return [
            line_of(((text, paint(role)) for text, role in line), width, blank) for line in self.drawer(width, height)
        ]

    def on_click(self, event: events.Click) -> None:
        self.post_message(self.Clicked(self, event.x, event.y))
