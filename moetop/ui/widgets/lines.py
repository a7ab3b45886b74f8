"""The base of every drawn widget: lines made in one go, repainted only where they changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from moetop.ui.paint import Paint, changed_span

if TYPE_CHECKING:
    from moetop.ui.app import MoetopApp


class LineWidget(Widget):
    """Draws `make_lines`; `redraw` compares with what stands and repaints the columns that differ,
    so that a steady screen sends next to nothing over a slow link."""

    DEFAULT_CSS = "LineWidget { width: 1fr; height: 1; }"

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._drawn: list[Strip] = []

    @property
    def moetop(self) -> MoetopApp:
        """The app, by its own type."""
        return cast("MoetopApp", self.app)

    @property
    def paint(self) -> Paint:
        """Styles of the theme in force."""
        return self.moetop.paint

    def make_lines(self, width: int, height: int) -> list[Strip]:
        """The lines to show, at most `height`, each of `width` cells."""
        raise NotImplementedError

    def redraw(self) -> None:
        """Draw anew what changed."""
        width, height = self.content_size.width, self.content_size.height
        if width <= 0 or height <= 0 or not self.is_mounted:
            self._drawn = []
            return
        lines = self.make_lines(width, height)[:height]
        blank = Strip.blank(width, self.paint("text"))
        lines.extend([blank] * (height - len(lines)))
        old = self._drawn
        self._drawn = lines
        if len(old) != len(lines) or (old and old[0].cell_length != width):
            self.refresh()
            return
        regions = []
        for y, (before, after) in enumerate(zip(old, lines, strict=True)):
            span = changed_span(before, after)
            if span is not None:
                regions.append(Region(span[0], y, span[1] - span[0], 1))
        if regions:
            self.refresh(*regions)

    def repaint(self) -> None:
        """Draw everything anew (the theme changed)."""
        self._drawn = []
        self.redraw()

    def render_line(self, y: int) -> Strip:
        if y < len(self._drawn):
            return self._drawn[y]
        return Strip.blank(self.content_size.width, self.paint("text"))

    def on_resize(self) -> None:
        self.redraw()

    def on_show(self) -> None:
        self.redraw()

    def plain_lines(self) -> list[str]:
        """What stands on the widget, as text (for tests and copying)."""
        return [strip.text for strip in self._drawn]
