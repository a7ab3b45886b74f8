"""From colour roles to styles and from pieces of text to lines of exact width. Knows no screen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.cells import cell_len, get_character_cell_size, set_cell_size
from rich.color import Color as RichColor
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter
from textual.strip import Strip

from moetop.text import plain
from moetop.ui.theme import Theme

Piece = tuple[str, Style]

BARE_ATTRIBUTES: dict[str, str] = {
    "quiet": "dim",
    "faint": "dim",
    "accent": "bold",
    "warning": "bold",
    "tensor_starved": "bold",
    "critical": "bold reverse",
    "idle": "dim",
}
"""What stands for a role where no colours may be used (NO_COLOR)."""


FEW_COLORS_CRITICAL = {True: "#ff5555", False: "#aa0000"}
"""The two reds among 16 colours, by whether the theme is dark: the nearest to a pale red would be white."""


class Paint:
    """Styles of one theme. With `bare` there are only attributes, no colours at all; with `few` the terminal
    has 16: there a ground of its own would meet letters of the same colour, so what is selected is reversed."""

    def __init__(self, theme: Theme, bare: bool = False, few: bool = False) -> None:
        self.theme = theme
        self.bare = bare
        self.few = few
        self._cache: dict[tuple[str, bool, str, bool], Style] = {}

    def __call__(self, role: str, *, bold: bool = False, on: str = "background", underline: bool = False) -> Style:
        """The style of a role; a role ending in `!` is bold."""
        if role.endswith("!"):
            role, bold = role[:-1], True
        key = (role, bold, on, underline)
        style = self._cache.get(key)
        if style is None:
            style = self._cache[key] = self._make(role, bold, on, underline)
        return style

    def _make(self, role: str, bold: bool, on: str, underline: bool) -> Style:
        extra = Style(bold=bold or None, underline=underline or None)
        if self.bare:
            style = Style.parse(BARE_ATTRIBUTES.get(role, "none")) + extra
            return style + Style(reverse=True, dim=False) if on == "selection" else style
        colors = self.theme.colors
        if self.few and on == "selection":
            return Style(color=colors["background"], bgcolor=colors["text"]) + extra
        if self.few and role == "critical":
            return Style(color=FEW_COLORS_CRITICAL[self.theme.dark], bgcolor=colors[on]) + extra
        return Style(color=colors[role], bgcolor=colors[on]) + extra


def fit(text: str, width: int, align: str = "left") -> str:
    """`text` in exactly `width` cells: padded, or cut with an ellipsis. Wide characters count two."""
    if width <= 0:
        return ""
    length = cell_len(text)
    if length > width:
        return set_cell_size(text, width - 1) + "…" if width > 1 else "…"
    pad = " " * (width - length)
    return pad + text if align == "right" else text + pad


def columns(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """The cells of a table, each column as wide as its widest."""
    rooms = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    return [[fit(cell, room) for cell, room in zip(row, rooms, strict=True)] for row in rows]


def clean(text: str, limit: int = 500) -> str:
    """Foreign text made harmless for one line of a screen."""
    return plain(text, limit)


def _blanks_alike(a: Style | None, b: Style) -> bool:
    """Whether blanks look the same in both styles: fewer style changes are fewer bytes on the line."""
    return a is not None and a.bgcolor == b.bgcolor and not (a.underline or b.underline or a.reverse or b.reverse)


class Row:
    """A line under construction, at most `width` cells."""

    def __init__(self, width: int, blank: Style) -> None:
        self.width = width
        self.blank = blank
        self.used = 0
        self._segments: list[Segment] = []

    def add(self, text: str, style: Style) -> Row:
        """Append text, cut at the right edge."""
        room = self.width - self.used
        if not text or room <= 0:
            return self
        length = cell_len(text)
        if length > room:
            text = set_cell_size(text, room)
            length = room
        self.used += length
        if self._segments:
            last = self._segments[-1]
            if last.style is style or (text.isspace() and _blanks_alike(last.style, style)):
                self._segments[-1] = Segment(last.text + text, last.style)
                return self
        self._segments.append(Segment(text, style))
        return self

    def cell(self, text: str, width: int, style: Style, align: str = "left") -> Row:
        """Append text fitted to `width` cells."""
        return self.add(fit(text, width, align), style)

    def skip_to(self, column: int) -> Row:
        """Blank up to `column`."""
        return self.add(" " * max(0, column - self.used), self.blank)

    def right(self, pieces: Sequence[Piece]) -> Row:
        """Append pieces so that they end at the right edge, if they fit after one blank."""
        length = sum(cell_len(text) for text, _ in pieces)
        if self.used + length <= self.width:
            self.skip_to(self.width - length)
            for text, style in pieces:
                self.add(text, style)
        return self

    def strip(self) -> Strip:
        """The finished line, padded to its width."""
        self.add(" " * (self.width - self.used), self.blank)
        return Strip(self._segments, self.width)


def line_of(pieces: Iterable[Piece], width: int, blank: Style) -> Strip:
    """A line of `pieces`, cut and padded to `width`."""
    row = Row(width, blank)
    for text, style in pieces:
        row.add(text, style)
    return row.strip()


def changed_span(old: Strip, new: Strip) -> tuple[int, int] | None:
    """Columns from..to (exclusive) in which two lines of equal width differ; None if nowhere."""
    if old is new:
        return None
    before, after = list(old), list(new)
    if before == after:
        return None
    start = 0
    for a, b in zip(before, after, strict=False):
        if a != b:
            break
        start += a.cell_length
    end = new.cell_length
    floor = start
    for a, b in zip(reversed(before), reversed(after), strict=False):
        if a != b or end - b.cell_length < floor:
            break
        end -= b.cell_length
    return (start, end) if end > start else (start, new.cell_length)


class Colourless(LineFilter):
    """Drop every colour and keep attributes, so that NO_COLOR shows the terminal's own two colours.

    The ground that the style sheet gives the selected entry of a list without colours becomes reverse video.
    (Textual's own monochrome filter sends greys, and black on black with ansi themes.)
    """

    SELECTED = Color.parse("#010203").rich_color

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [
            Segment(text, self._bare(style) if style is not None else None, control)
            for text, style, control in segments
        ]

    def _bare(self, style: Style) -> Style:
        reverse = style.reverse or style.bgcolor == self.SELECTED
        return Style(
            bold=style.bold, dim=style.dim, underline=style.underline, reverse=reverse, italic=style.italic
        ) + Style.from_color(RichColor.default(), RichColor.default())


ASCII_GLYPHS: dict[str, str] = {
    "◂": "<", "†": "+", "✓": "v",
    "▲": "!", "●": "*", "◆": "m", "◐": "=", "◌": "u", "▣": "v", "◇": "h", "⇄": "x", "○": "o", "·": ".",
    "✕": "X", "◔": "~", "■": "#", "▾": "-", "▸": "+", "▌": ">", "─": "-", "═": "=", "│": "|", "┤": "|", "┬": "-",
    "┴": "-", "┼": "+", "└": "+", "┌": "+", "┐": "+", "┘": "+", "├": "|", "┊": ":", "━": "=", "╸": "-",
    "█": "#", "▉": "#",
    "▊": "#", "▋": "=", "▍": "=", "▎": "-", "▏": "-", "…": "~", "—": "-", "–": "-", "›": ">", "°": " ",
    "⏎": "<", "↑": "^", "↓": "v", "←": "<", "→": ">", "×": "x", "≥": ">", "▼": "v", "▔": "-", "▁": "_",
    "╭": "+", "╮": "+", "╯": "+", "╰": "+", "▕": "|", "▐": "|", "▀": "-", "▄": "_", "⌕": "/",
}  # fmt: skip
"""What stands for a glyph on a terminal without UTF-8; all else outside ASCII becomes `?`."""


def braille_in_ascii(code: int) -> str:
    """The ASCII character nearest to a braille cell (`code` is its dot mask)."""
    upper, lower = code & 0b00011011, code & 0b11100100
    if not code:
        return " "
    if upper and lower:
        return ":"
    return "'" if upper else "."


class AsciiOnly(LineFilter):
    """Replace everything outside ASCII by characters of the same width."""

    def __init__(self) -> None:
        super().__init__()
        self._cache: dict[str, str] = {}

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [
            segment
            if segment.text.isascii()
            else Segment(self._translate(segment.text), segment.style, segment.control)
            for segment in segments
        ]

    def _translate(self, text: str) -> str:
        shown = "".join(char if char.isascii() else self._char(char) for char in text)
        return shown + "?" * (cell_len(text) - len(shown))  # a variation selector makes the letter before it wide

    def _char(self, char: str) -> str:
        found = self._cache.get(char)
        if found is None:
            code = ord(char)
            if 0x2800 <= code <= 0x28FF:
                found = braille_in_ascii(code - 0x2800)
            else:
                found = ASCII_GLYPHS.get(char, "?" * get_character_cell_size(char))
            self._cache[char] = found
        return found
