"""Plain lines of text: one line with pieces, and a page that scrolls."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import ClassVar

from rich.cells import cell_len
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.strip import Strip

from moetop.ui.paint import Row, fit
from moetop.ui.widgets.lines import LineWidget

Pieces = Sequence[tuple[str, str]]
"""Text and colour role; `role!` is bold."""

LEAST_MARKED = 4
"""A lower page has no room for marks of what is above and below it."""


class TextLine(LineWidget):
    """One line: pieces at the left, pieces at the right."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._left: Pieces = ()
        self._right: Pieces = ()

    def say(self, left: Pieces, right: Pieces = ()) -> None:
        """Show these pieces."""
        self._left, self._right = tuple(left), tuple(right)
        self.redraw()

    def make_lines(self, width: int, height: int) -> list[Strip]:
        row = Row(width, self.paint("text"))
        add_pieces(row, self._left, self)
        right = [(text, self.paint(role)) for text, role in self._right]
        return [row.right(right).strip()]


def add_pieces(row: Row, pieces: Pieces, widget: LineWidget, on: str = "background") -> None:
    """Append pieces; the one that meets the edge is cut with an ellipsis."""
    for text, role in pieces:
        room = row.width - row.used
        row.add(fit(text, room) if cell_len(text) > room > 0 else text, widget.paint(role, on=on))


class TextPage(LineWidget, can_focus=True):
    """Lines that scroll. In a selectable page every line stands for something, which the cursor stays with."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home", "move(-100000)", show=False),
        Binding("end", "move(100000)", show=False),
    ]

    DEFAULT_CSS = "TextPage { height: 1fr; }"

    class Moved(Message):
        """The cursor moved."""

    class Chosen(Message):
        """A line was double-clicked."""

    def __init__(self, *, id: str | None = None, selectable: bool = False) -> None:
        super().__init__(id=id)
        self.lines: list[Pieces] = []
        self.marks: list[Hashable] = []
        self._bereft = False
        self.selectable = selectable
        self.top = 0
        self.cursor = 0
        self._subject: Hashable = None

    def set_lines(
        self, lines: Sequence[Pieces], marks: Sequence[Hashable] = (), *, subject: Hashable | None = None
    ) -> None:
        """Show these lines, keeping the place while they are about the same `subject`.

        `marks` say what each line stands for; without them none is selected.
        """
        if subject != self._subject:
            self._subject = subject
            self.top = 0
        chosen = self.chosen
        self.lines, self.marks = list(lines), list(marks)
        if chosen is not None and chosen in self.marks:
            self.cursor = self.marks.index(chosen)
        elif chosen is not None:
            self._bereft = bool(self.marks)  # what was selected is gone: nothing is, until a person moves
        self.cursor = max(0, min(self.cursor, len(self.lines) - 1))
        self.redraw()

    @property
    def chosen(self) -> Hashable | None:
        """What the selected line stands for; None where nothing can be selected."""
        there = self.selectable and not self._bereft and self.cursor < len(self.marks)
        return self.marks[self.cursor] if there else None

    def make_lines(self, width: int, height: int) -> list[Strip]:
        if self.selectable:
            return self._list_lines(width, height)
        count = len(self.lines)
        if count <= height or height < LEAST_MARKED:
            self.top = max(0, min(self.top, count - height))
            return [self._line(at, width) for at in range(self.top, min(count, self.top + height))]
        self.top = max(0, min(self.top, count - height + 1))  # the mark above takes a row
        end = self.top + height - (self.top > 0)
        end -= end < count
        strips = [self._line(at, width) for at in range(self.top, end)]
        if self.top > 0:
            strips.insert(0, self._mark_row(f"▲ {self.top} above", width))
        if end < count:
            strips.append(self._mark_row(f"▼ {count - end} more", width))
        return strips

    def _list_lines(self, width: int, height: int) -> list[Strip]:
        self.top = max(0, min(self.top, len(self.lines) - height))
        self.top = min(self.top, self.cursor)
        self.top = max(self.top, self.cursor - height + 1)
        strips = [self._line(at, width) for at in range(self.top, min(len(self.lines), self.top + height))]
        below = len(self.lines) - self.top - height
        if below > 0 and strips:
            strips[-1] = self._marked(strips[-1], f" ▼ {below} more ", width)
        return strips

    def _line(self, at: int, width: int) -> Strip:
        chosen = at == self.cursor and self.chosen is not None
        on = "selection" if chosen else "background"
        row = Row(width, self.paint("text", on=on))
        row.add("▌" if chosen else " ", self.paint("accent", on=on))
        add_pieces(row, self.lines[at], self, on)
        return row.strip()

    def _mark_row(self, text: str, width: int) -> Strip:
        mark = (f"{text} ", self.paint("notice", bold=True))
        return Row(width, self.paint("text")).right([mark]).strip()

    def _marked(self, strip: Strip, text: str, width: int) -> Strip:
        mark = Row(cell_len(text), self.paint("text"))
        mark.add(text, self.paint("notice", bold=True))
        return Strip.join([strip.crop(0, max(0, width - cell_len(text))), mark.strip()])

    def action_move(self, step: int) -> None:
        if self.selectable:
            step, self._bereft = (0 if self._bereft else step), False
            self.cursor = max(0, min(self.cursor + step, len(self.lines) - 1))
            self.post_message(self.Moved())
        else:
            self.top = max(0, self.top + step)
        self.redraw()

    def action_page(self, step: int) -> None:
        marks = 1 if self.selectable else 3  # two rows may be marks; one line stays from page to page
        self.action_move(step * max(1, self.content_size.height - marks))

    def on_click(self, event: events.Click) -> None:
        if self.selectable and self.top + event.y < len(self.lines):
            self.cursor, self._bereft = self.top + event.y, False
            self.redraw()
            self.post_message(self.Moved())
            if event.chain >= 2:
                self.post_message(self.Chosen())

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.action_move(3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.action_move(-3)
