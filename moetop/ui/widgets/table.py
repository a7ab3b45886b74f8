"""The fleet table: one line a host or GPU, only visible lines drawn, a scroll mark for the rest."""

from __future__ import annotations

from typing import ClassVar

from rich.cells import cell_len
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.strip import Strip

from moetop.ui import fmt
from moetop.ui.columns import GAP, STATE_WIDTH, Column, Layout, fit_columns, gpu_label
from moetop.ui.paint import Row, clean, fit
from moetop.ui.rows import TableRow
from moetop.ui.scene import gpu_sign, host_sign, host_words, is_calm, totals
from moetop.ui.widgets.lines import LineWidget
from moetop.ui.words import Sign

SORT_OF_COLUMN = {"util": "util", "util_bar": "util", "power_pct": "power", "power": "power", "power_bar": "power",
                  "temp": "temp", "memory": "memory"}  # fmt: skip
"""Order that a click on a column's title asks for."""


class FleetTable(LineWidget, can_focus=True):
    """Rows with a cursor. The cursor stays on its host and GPU while rows come, go and move.

    `marked`: the cursor has its mark; without it (the keys go elsewhere) only its ground."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home", "move(-100000)", show=False),
        Binding("end", "move(100000)", show=False),
    ]

    class Selected(Message):
        """The cursor moved to another row; `by_hand` is False where the app moved it."""

        def __init__(self, by_hand: bool) -> None:
            super().__init__()
            self.by_hand = by_hand

    class Opened(Message):
        """A row was opened (double click)."""

    class Folded(Message):
        """A host's fold mark was clicked."""

        def __init__(self, host: str) -> None:
            super().__init__()
            self.host = host

    class SortAsked(Message):
        """A column title was clicked."""

        def __init__(self, sort: str) -> None:
            super().__init__()
            self.sort = sort

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.rows: list[TableRow] = []
        self.cursor = 0
        self.top = 0
        self.now = 0.0
        self.empty_words = "no hosts"
        self.marked = True
        self._key: tuple[str, int | None] | None = None

    # ── content ──────────────────────────────────────────────────────────────────────────────────

    def set_rows(self, rows: list[TableRow], now: float) -> None:
        """Show `rows`; `now` is epoch seconds for relative times."""
        self.rows = rows
        self.now = now
        keys = [row.key for row in rows]
        if self._key in keys:
            self.cursor = keys.index(self._key)
        else:
            if self._key is not None and (self._key[0], None) in keys:
                self.cursor = keys.index((self._key[0], None))
            self.cursor = max(0, min(self.cursor, len(rows) - 1))
            self._key = keys[self.cursor] if keys else None
        self.redraw()

    @property
    def selected(self) -> TableRow | None:
        """The row under the cursor."""
        return self.rows[self.cursor] if self.rows else None

    def select(self, host: str, gpu: int | None) -> None:
        """Put the cursor on a row."""
        for at, row in enumerate(self.rows):
            if row.key == (host, gpu):
                self._go(at, by_hand=False)
                return

    def _go(self, at: int, *, by_hand: bool = True) -> None:
        at = max(0, min(at, len(self.rows) - 1))
        if not self.rows or at == self.cursor:
            return
        self.cursor = at
        self._key = self.rows[at].key
        self.redraw()
        self.post_message(self.Selected(by_hand))

    def action_move(self, step: int) -> None:
        self._go(self.cursor + step)

    def action_page(self, step: int) -> None:
        self._go(self.cursor + step * max(1, self._room() - 1))

    def _room(self) -> int:
        return max(1, self.content_size.height - 1)

    # ── drawing ──────────────────────────────────────────────────────────────────────────────────

    def make_lines(self, width: int, height: int) -> list[Strip]:
        layout = fit_columns(width)
        lines = [self._title_line(layout, width)]
        room = height - 1
        if not self.rows:
            row = Row(width, self.paint("quiet"))
            row.add(" ", self.paint("quiet")).add(self.empty_words, self.paint("notice"))
            return [*lines, row.strip()]
        self._scroll_to_cursor(room)
        above, below = self.top, len(self.rows) - self.top - room
        for at in range(self.top, min(len(self.rows), self.top + room)):
            lines.append(self._row_line(self.rows[at], layout, width, at == self.cursor))
        if above > 0 or below > 0:
            lines[0] = self._title_line(layout, width, above, max(0, below))
        return lines

    def _scroll_to_cursor(self, room: int) -> None:
        top = min(self.top, max(0, len(self.rows) - room))
        if self.cursor < top:
            top = self.cursor
        elif self.cursor >= top + room:
            top = self.cursor - room + 1
        if top == 1 and self.cursor < room - 1:
            top = 0
        self.top = top

    def _title_line(self, layout: Layout, width: int, above: int = 0, below: int = 0) -> Strip:
        paint = self.paint
        style = paint("quiet")
        row = Row(width, style)
        scroll = _scroll_words(above, below)
        title = " HOST / GPU"
        room = 1 + layout.name_width
        if scroll and len(title) + 1 + len(scroll) <= room:
            row.add(title, style).add(" ", style)
            row.cell(scroll, room - len(title) - 1, paint("notice", bold=True), "right")
        elif scroll:
            row.cell(f" {scroll}", room, paint("notice", bold=True))
        else:
            row.cell(title, room, style)
        row.add(" ", style).cell("STATE", STATE_WIDTH, style)
        for column in layout.columns:
            row.add(" " * GAP, style).cell(column.title, layout.width_of(column), style, column.align)
        return row.strip()

    def _row_line(self, entry: TableRow, layout: Layout, width: int, under_cursor: bool) -> Strip:
        paint = self.paint
        on = "selection" if under_cursor else "background"
        row = Row(width, paint("text", on=on))
        row.add("▌" if under_cursor and self.marked else " ", paint("accent", on=on))
        if entry.gpu is None:
            self._host_cells(row, entry, layout, on)
        else:
            self._gpu_cells(row, entry, layout, on)
        return row.strip()

    def _host_cells(self, row: Row, entry: TableRow, layout: Layout, on: str) -> None:
        paint = self.paint
        host = entry.host
        sign = host_sign(host)
        words = host_words(host, self.now)
        fold = " " if not host.report.gpus or host.lost else "▸" if entry.folded else "▾"
        hidden = f" (+{entry.hidden})" if entry.hidden else ""
        name = f"{fold} {clean(host.name, 120)}{hidden}"
        row.cell(name, layout.name_width, paint("text", bold=True, on=on))
        if words is not None:
            row.add(" ", row.blank)
            role = sign.role if sign.role != "good" else "quiet"
            row.add(f"{sign.glyph} ", paint(role, bold=True, on=on))
            row.cell(words, row.width - row.used, paint(role, on=on))
            return
        state_role = sign.role
        row.add(" ", row.blank).cell(_state_cell(sign), STATE_WIDTH, paint(state_role, bold=True, on=on))
        together = totals(host.report.gpus)
        for column in layout.columns:
            text, role = column.host(together)
            row.add(" " * GAP, row.blank)
            row.cell(text, layout.width_of(column), paint(role or "quiet", on=on), column.align)

    def _gpu_cells(self, row: Row, entry: TableRow, layout: Layout, on: str) -> None:
        paint = self.paint
        gpu = entry.gpu
        assert gpu is not None
        sign = gpu_sign(gpu)
        calm = is_calm(gpu)
        base = "quiet" if calm else "text"
        row.cell(clean(gpu_label(entry.host, gpu), 120), layout.name_width, paint(base, on=on))
        row.add(" ", row.blank)
        row.cell(f"{sign.glyph} {clean(sign.word, 20)}", STATE_WIDTH, paint(sign.role, bold=not calm, on=on))
        for column in layout.columns:
            row.add(" " * GAP, row.blank)
            if column.bar is not None:
                self._bar(row, column, gpu_value(column, gpu), layout.width_of(column), on, calm)
                continue
            text, role = column.gpu(gpu)
            row.cell(text, layout.width_of(column), paint(role or base, on=on), column.align)

    def _bar(self, row: Row, column: Column, value: float | None, width: int, on: str, calm: bool) -> None:
        filled, empty = fmt.bar(value, width)
        row.add(filled, self.paint("quiet" if calm else column.bar or "text", on=on))
        row.add(empty, self.paint("faint", on=on))

    # ── mouse ────────────────────────────────────────────────────────────────────────────────────

    def on_click(self, event: events.Click) -> None:
        if event.y == 0:
            self._click_title(event.x)
            return
        at = self.top + event.y - 1
        if at >= len(self.rows):
            return
        self._go(at)
        row = self.rows[at]
        if row.gpu is None and event.x <= 2:
            self.post_message(self.Folded(row.host.name))
        elif event.chain >= 2:
            self.post_message(self.Opened())

    def _click_title(self, x: int) -> None:
        layout = fit_columns(self.content_size.width)
        at = 1 + layout.name_width
        if x < at:
            self.post_message(self.SortAsked("name"))
            return
        at += 1 + STATE_WIDTH
        if x < at:
            self.post_message(self.SortAsked("worst"))
            return
        for column in layout.columns:
            at += GAP + layout.width_of(column)
            if x < at:
                if column.key in SORT_OF_COLUMN:
                    self.post_message(self.SortAsked(SORT_OF_COLUMN[column.key]))
                return

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.action_move(3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.action_move(-3)


def gpu_value(column: Column, gpu: object) -> float | None:
    """The percentage a bar column shows."""
    text, _role = column.gpu(gpu)  # type: ignore[arg-type]
    return float(text) if text else None


def _state_cell(sign: Sign) -> str:
    """Glyph and word of a host; where the count of GPUs would be cut, the word gives way."""
    text = f"{sign.glyph} {sign.word}"
    word, _, count = sign.word.rpartition(" ")
    if cell_len(text) <= STATE_WIDTH or not word:
        return text
    return f"{sign.glyph} {fit(word, STATE_WIDTH - 3 - len(count)).rstrip()} {count}"


def _scroll_words(above: int, below: int) -> str:
    parts = []
    if above:
        parts.append(f"▲{above}")
    if below:
        parts.append(f"▼{below} more")
    return " ".join(parts)
