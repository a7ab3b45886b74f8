"""Messages that come and go, in lines of their own above the footer: they cover nothing. Keeps no clock."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

from textual.strip import Strip

from moetop.ui.layout import ROOMY_LINES
from moetop.ui.paint import Row, fit
from moetop.ui.widgets.lines import LineWidget

MOST_LINES = 6
MOST_LINES_LOW = 2
"""Lines of all messages together, on a roomy and on a low terminal; older messages give way to the newest."""

GLYPHS = {"information": ("·", "notice"), "warning": ("▲", "warning"), "error": ("✕", "critical")}


@dataclass(frozen=True)
class Told:
    """A message: made harmless already, with its severity as Textual names it. One that speaks of a `place` (a
    screen and a host) goes when another is shown."""

    title: str
    text: str
    severity: str = "information"
    place: tuple[int, str] | None = None

    def words(self) -> str:
        """Title and text in one."""
        return f"{self.title}: {self.text}" if self.title else self.text


def lines_of(told: list[Told], width: int, most: int) -> list[tuple[Told, bool, str]]:
    """Message, whether it begins here, and the words of each line; at most `most`, the newest message last."""
    found: list[tuple[Told, bool, str]] = []
    for one in reversed(told):
        room = most - len(found)
        if room <= 0:
            break
        parts = textwrap.wrap(one.words(), max(10, width - 4), break_on_hyphens=False) or [""]
        if len(parts) > room and found:
            break
        if len(parts) > room:
            parts = [*parts[: room - 1], " ".join(parts[room - 1 :])]
        found = [*((one, at == 0, part) for at, part in enumerate(parts)), *found]
    return found


class NoticeLines(LineWidget):
    """The messages told; as high as they need, nothing where there are none."""

    DEFAULT_CSS = "NoticeLines { height: 0; }"

    def settle(self) -> int:
        """Take the height that the messages need; how many lines that is."""
        size = self.app.size
        most = MOST_LINES if size.height >= ROOMY_LINES else MOST_LINES_LOW
        count = len(lines_of(self.moetop.told, size.width, most))
        self.styles.height = count
        self.display = count > 0
        return count

    def make_lines(self, width: int, height: int) -> list[Strip]:
        strips = []
        for told, begins, words in lines_of(self.moetop.told, width, height):
            glyph, role = GLYPHS[told.severity]
            row = Row(width, self.paint("text"))
            row.add(f" {glyph if begins else ' '} ", self.paint(role, bold=True))
            row.add(fit(words, width - 4), self.paint(role if begins else "text"))
            strips.append(row.strip())
        return strips
