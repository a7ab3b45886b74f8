"""The lines that frame every screen: header, answer, footer, rules."""

from __future__ import annotations

from dataclasses import dataclass

from rich.cells import cell_len
from textual import events
from textual.message import Message
from textual.strip import Strip

from moetop.ui.paint import Piece, Row, clean, fit, line_of
from moetop.ui.widgets.lines import LineWidget


@dataclass(frozen=True)
class Answer:
    """One answer: sign, host, sentence, how sure, and the keys that go on from here."""

    glyph: str
    role: str
    host: str
    text: str
    sure: str = ""
    keys: tuple[tuple[str, str, bool], ...] = ()


ROOMY_COLUMNS = 100
"""From so many columns on an answer names all its keys."""


CRUMB_GAP = 3


def share_room(wanted: list[int], room: int) -> list[int]:
    """Cells for breadcrumbs: the longest give way first, so that a short one such as `gpu 3` stays whole."""
    given = list(wanted)
    while sum(given) > room and max(given, default=0) > 4:
        given[given.index(max(given))] -= 1
    return given


class HeaderBar(LineWidget):
    """Name, breadcrumbs, counts; worst finding, time and mode at the right."""

    def __init__(self) -> None:
        super().__init__()
        self.crumbs: tuple[str, ...] = ()
        self.left = ""
        self.right_pieces: list[tuple[str, str]] = []

    def make_lines(self, width: int, height: int) -> list[Strip]:
        paint = self.paint
        row = Row(width, paint("text"))
        pieces: list[Piece] = [
            (text, paint(role, bold=role not in ("quiet", "faint"))) for text, role in self.right_pieces
        ]
        room = width - sum(cell_len(text) for text, _ in pieces) - 2
        row.add(" moetop", paint("accent", bold=True))
        crumbs = [clean(crumb, 60) for crumb in self.crumbs]
        rooms = share_room([cell_len(crumb) for crumb in crumbs], room - row.used - CRUMB_GAP * len(crumbs))
        for crumb, cells in zip(crumbs, rooms, strict=True):
            row.add(" › ", paint("faint"))
            row.add(fit(crumb, cells), paint("text", bold=True))
        if self.left and row.used + 3 < room:
            row.add("   ", row.blank)
            left = clean(self.left, 200)
            text = left if cell_len(left) <= room - row.used else fit(left, room - row.used)
            row.add(text, paint("quiet"))
        row.right([*pieces, (" ", row.blank)])
        return [row.strip()]


class AnswerLines(LineWidget):
    """The answer on top. It is never dropped; its sentence is what gets cut."""

    DEFAULT_CSS = "AnswerLines { height: 1; }"

    class Asked(Message):
        """An answer was clicked."""

        def __init__(self, at: int) -> None:
            super().__init__()
            self.at = at

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[Answer] = []

    def make_lines(self, width: int, height: int) -> list[Strip]:
        host_width = max((min(cell_len(answer.host), 24) for answer in self.answers), default=0)
        return [self._line(answer, width, host_width) for answer in self.answers[:height]]

    def _line(self, answer: Answer, width: int, host_width: int) -> Strip:
        paint = self.paint
        row = Row(width, paint("text"))
        quiet = answer.role in ("quiet", "good", "notice")
        tail: list[Piece] = []
        if answer.sure:
            tail.append((f"  {answer.sure}", paint("quiet")))
        narrow = width < ROOMY_COLUMNS
        for key, word, enabled in answer.keys:
            if narrow and key == "r":
                continue  # the footer has it; here the sentence needs the room
            tail.append((f"  {key} ", paint("accent" if enabled else "faint", bold=enabled)))
            shown = word.removesuffix(" more") if narrow else word
            tail.append((shown, paint("text" if enabled else "faint")))
        while tail and sum(cell_len(text) for text, _ in tail) > width // 2:
            tail = tail[:-2] if len(tail) > 2 else []
        room = width - sum(cell_len(text) for text, _ in tail) - 1
        row.add(f" {answer.glyph} ", paint(answer.role, bold=not quiet))
        if answer.host:
            row.add(fit(clean(answer.host, 60), host_width), paint("text", bold=not quiet)).add("  ", row.blank)
        row.add(fit(clean(answer.text, 1000), max(0, room - row.used)), paint("quiet" if quiet else answer.role))
        row.right([*tail, (" ", row.blank)])
        return row.strip()

    def on_click(self, event: events.Click) -> None:
        self.post_message(self.Asked(event.y))


@dataclass(frozen=True)
class FooterKey:
    """One key of the footer; greyed when it cannot be used now."""

    face: str
    word: str
    action: str
    enabled: bool = True


class FooterBar(LineWidget):
    """The keys that matter here and now; a click does what the key does. The first keep their place."""

    class Pressed(Message):
        """A key of the footer was clicked."""

        def __init__(self, action: str) -> None:
            super().__init__()
            self.action = action

    def __init__(self) -> None:
        super().__init__()
        self.keys: list[FooterKey] = []
        self._spans: list[tuple[int, int, str]] = []

    def make_lines(self, width: int, height: int) -> list[Strip]:
        paint = self.paint
        row = Row(width, paint("quiet"))
        self._spans = []
        for key in self.keys:
            length = cell_len(key.face) + 1 + cell_len(key.word) + 2
            if row.used + length > width:
                break
            start = row.used
            row.add(f" {key.face}", paint("accent" if key.enabled else "faint", bold=key.enabled))
            row.add(f" {key.word} ", paint("quiet" if key.enabled else "faint"))
            self._spans.append((start, row.used, key.action))
        return [row.strip()]

    def on_click(self, event: events.Click) -> None:
        for start, end, action in self._spans:
            if start <= event.x < end:
                self.post_message(self.Pressed(action))


class Rule(LineWidget):
    """A thin rule, with words in it if there are any."""

    words = ""

    def make_lines(self, width: int, height: int) -> list[Strip]:
        style = self.paint("faint")
        if not self.words:
            return [line_of([("─" * width, style)], width, style)] * height
        lead = "── " if cell_len(self.words) + 6 <= width else " "
        text = fit(clean(self.words, 300), min(cell_len(self.words), width - len(lead)))
        pieces = [(lead, style), (text, self.paint("notice")), (" " + "─" * width, style)]
        return [line_of(pieces, width, style)] * height


class VerticalRule(LineWidget):
    """A thin upright rule."""

    DEFAULT_CSS = "VerticalRule { width: 1; height: 1fr; }"

    def make_lines(self, width: int, height: int) -> list[Strip]:
        style = self.paint("faint")
        return [line_of([("│", style)], width, style)] * height
