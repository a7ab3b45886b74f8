"""The log pane: only visible lines are styled, so that its length costs nothing."""

from __future__ import annotations

from typing import ClassVar

from rich.cells import cell_len
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.strip import Strip

from moetop.model import EventKind, LogLine
from moetop.ui import fmt
from moetop.ui.loglines import LogLines, args_digest, is_event, is_mark, line_clock
from moetop.ui.paint import Row, clean, fit
from moetop.ui.widgets.lines import LineWidget
from moetop.ui.words import EVENT_GLYPHS, EVENT_ROLES, EVENT_WORDS

LABEL_CELLS = 9


class LogView(LineWidget, can_focus=True):
    """Lines of a log with a title line. `titled` False leaves the title out (one line left)."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home", "move(-10000000)", show=False),
        Binding("end", "end", show=False),
    ]

    class Moved(Message):
        """The cursor moved."""

    class Opened(Message):
        """The pane was double-clicked."""

    def __init__(self, *, id: str | None = None, level: str = "no noise", cursor_shown: bool = True) -> None:
        super().__init__(id=id)
        self.log_lines = LogLines(level)
        self.title: list[tuple[str, str]] = []
        self.title_right = ""
        self.empty_words = "no log"
        self.cursor_shown = cursor_shown
        self.top = 0

    def make_lines(self, width: int, height: int) -> list[Strip]:
        titled = height >= 3
        lines = [self._title_line(width)] if titled else []
        room = height - len(lines)
        state = self.log_lines
        if not state.shown:
            row = Row(width, self.paint("text"))
            row.add(" ", row.blank).add(fit(clean(self.empty_words, 500), width - 2), self.paint("quiet"))
            return [*lines, row.strip()]
        self._scroll(room)
        for at in range(self.top, min(len(state.shown), self.top + room)):
            chosen = self.cursor_shown and at == state.cursor and self.has_focus
            lines.append(self._line(state.shown[at], width, chosen))
        if state.new and not state.follow and lines:
            lines[-1] = self._pill(lines[-1], width)
        return lines

    def _scroll(self, room: int) -> None:
        state = self.log_lines
        if state.follow:
            self.top = max(0, len(state.shown) - room)
            return
        top = min(self.top, max(0, len(state.shown) - room))
        if state.cursor < top:
            top = state.cursor
        elif state.cursor >= top + room:
            top = state.cursor - room + 1
        self.top = top

    def _title_line(self, width: int) -> Strip:
        paint = self.paint
        row = Row(width, paint("text"))
        row.add(" ", row.blank)
        right = [(self.title_right, paint("quiet")), (" ", row.blank)]
        room = width - cell_len(self.title_right) - 3
        for foreign, role in self.title:
            if row.used < room:
                text = clean(foreign, 400)
                row.add(text if cell_len(text) <= room - row.used else fit(text, room - row.used), paint(role))
        return row.right(right).strip()

    def _line(self, line: LogLine, width: int, chosen: bool) -> Strip:
        paint = self.paint
        on = "selection" if chosen else "background"
        row = Row(width, paint("text", on=on))
        if is_mark(line):
            row.add("▌" if chosen else " ", paint("accent", on=on))
            return row.add(f"━━ {line.text} {'━' * row.width}", paint("accent", on=on)).strip()
        lifted = is_event(line)
        severity = line.severity
        role = EVENT_ROLES[severity] if severity is not None else "quiet"
        row.add("▌" if chosen else " ", paint("accent", on=on))
        row.add(line_clock(line), paint("quiet", on=on)).add(" ", row.blank)
        glyph = EVENT_GLYPHS[severity] if severity is not None and lifted else " "
        row.add(glyph, paint(role, on=on)).add(" ", row.blank)
        label = EVENT_WORDS.get(line.kind, "") if line.kind is not None else ""
        row.cell(label, LABEL_CELLS, paint(role, bold=lifted, on=on)).add(" ", row.blank)
        times = self.log_lines.repeats.get(line.n)
        if times is not None:
            row.add(f"×{times} ", paint("quiet", on=on))
        text = clean(self._words(line), 2000)
        elided = f"  {line.elided:,} before it left out " if line.elided else ""
        room = width - cell_len(elided) if cell_len(elided) * 2 < width else width
        self._text(row, text, role if lifted else "quiet" if role == "text" else role, on, room - row.used)
        return row.right([(elided, paint("faint", on=on))]).strip()

    def _words(self, line: LogLine) -> str:
        """What a line says; among events a list of all arguments is cut down to those that decide the tuning."""
        if line.kind is EventKind.SERVER_ARGS and self.log_lines.level == "events" and self.log_lines.pattern is None:
            digest = args_digest(line.text)
            if digest is not None:
                return digest
        return fmt.headless(line.text[:4096])

    def _text(self, row: Row, text: str, role: str, on: str, room: int) -> None:
        paint = self.paint
        pattern = self.log_lines.pattern
        shown = text if cell_len(text) <= room else fit(text, room)
        if pattern is None:
            row.add(shown, paint(role, on=on))
            return
        at = 0
        for match in pattern.finditer(shown):
            if match.end() == match.start():
                continue
            row.add(shown[at : match.start()], paint(role, on=on))
            row.add(match.group(), paint("accent", bold=True, on="selection", underline=True))
            at = match.end()
        row.add(shown[at:], paint(role, on=on))

    def _pill(self, line: Strip, width: int) -> Strip:
        text = f" ▼ {self.log_lines.new} new line{'' if self.log_lines.new == 1 else 's'}  G follows "
        pill = Row(cell_len(text), self.paint("text"))
        pill.add(text, self.paint("accent", bold=True, on="selection"))
        if cell_len(text) + 4 > width:
            return line
        return Strip.join([line.crop(0, width - cell_len(text)), pill.strip()])

    # ── moving ───────────────────────────────────────────────────────────────────────────────────

    def _moved(self) -> None:
        self.redraw()
        self.post_message(self.Moved())

    def action_move(self, step: int) -> None:
        self.log_lines.move(step)
        self._moved()

    def action_page(self, step: int) -> None:
        self.log_lines.move(step * max(1, self.content_size.height - 2))
        self._moved()

    def action_end(self) -> None:
        self.log_lines.end()
        self._moved()

    def step_event(self, step: int) -> bool:
        """To the next or previous event."""
        found = self.log_lines.next_event(step)
        self._moved()
        return found

    def on_click(self, event: events.Click) -> None:
        titled = self.content_size.height >= 3
        at = self.top + event.y - (1 if titled else 0)
        if 0 <= at < len(self.log_lines.shown):
            self.log_lines.go(at)
            self._moved()
        if event.chain >= 2:
            self.post_message(self.Opened())

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.action_move(3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.action_move(-3)

    def watch_has_focus(self, has_focus: bool) -> None:
        super().watch_has_focus(has_focus)
        self.redraw()
