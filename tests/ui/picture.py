"""A screen as cells, read from the SVG that the app exports, kept as a plain SVG and compared in words. Pure."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterator
from html import escape, unescape
from itertools import groupby
from typing import NamedTuple

from rich.cells import cell_len, split_graphemes
from rich.color import Color, ColorSystem
from rich.terminal_theme import DEFAULT_TERMINAL_THEME, SVG_EXPORT_THEME

from moetop.ui.svg import BASELINE, CELL, FONTS, LINE

NO_GROUND = SVG_EXPORT_THEME.background_color.hex
"""What stands for the terminal's own background."""

MOST_CHANGES = 40
"""Changed places that a difference names; more are counted."""


class Cell(NamedTuple):
    """One cell: its sign (several characters where they combine, empty behind a wide one), `#rrggbb` with attributes
    (empty for a blank), its ground."""

    sign: str
    look: str
    ground: str


Picture = list[list[Cell]]

_ATTRIBUTES = {
    "font-weight: bold": 'font-weight="bold"',
    "font-style: italic": 'font-style="italic"',
    "text-decoration: underline": 'text-decoration="underline"',
    "text-decoration: line-through": 'text-decoration="line-through"',
}
"""Rules of an exported style and the attributes that say the same."""

_SIZE = re.compile(r'<clipPath id="[^"]*-clip-terminal">\s*<rect x="0" y="0" width="([\d.]+)" height="([\d.]+)"')
_RULE = re.compile(r"\.terminal-\d+-(r\d+) \{ fill: (#\w+);?([^}]*) \}")
_GROUND = re.compile(r'<rect fill="(#\w+)" x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="[\d.]+" shape')
_TEXT = re.compile(r'<text class="terminal-\d+-(r\d+)" x="([\d.]+)" y="([\d.]+)" [^>]*>([^<]*)</text>')

_KEPT_SIZE = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)"')
_KEPT_BASE = re.compile(r'<rect width="100%" height="100%" fill="(#\w+)"/>')
_KEPT_GROUND = re.compile(r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="[\d.]+" fill="(#\w+)"/>')
_KEPT_TEXT = re.compile(
    r'<text x="([\d.]+)" y="([\d.]+)"(?: textLength="[\d.]+")? fill="([^"]+)"((?: [a-z-]+="[a-z-]+")*)>([^<]*)</text>'
)


def from_export(svg: str) -> Picture:
    """The cells of what `App.export_screenshot` gives."""
    size = _SIZE.search(svg)
    assert size is not None, "not an exported screen"
    picture = _blank(round((float(size[1]) + 1) / CELL), round((float(size[2]) + 1) / LINE), NO_GROUND)
    for ground, x, y, width in _GROUND.findall(svg):
        _fill(picture, x, y, width, ground)
    looks = {}
    for name, colour, rules in _RULE.findall(svg):
        attributes = (_ATTRIBUTES[rule.strip()] for rule in rules.split(";") if rule.strip())
        looks[name] = " ".join((colour, *attributes))
    for name, x, y, text in _TEXT.findall(svg):
        _write(picture, x, float(y) - 20, text, looks[name])  # an export puts its letters' feet 20 below a line's top
    return picture


def from_kept(svg: str) -> Picture:
    """The cells of what `to_svg` wrote."""
    size, base = _KEPT_SIZE.search(svg), _KEPT_BASE.search(svg)
    assert size is not None and base is not None, "not a kept picture"
    picture = _blank(round(float(size[1]) / CELL), round(float(size[2]) / LINE), base[1])
    for x, y, width, ground in _KEPT_GROUND.findall(svg):
        _fill(picture, x, y, width, ground)
    for x, y, colour, attributes, text in _KEPT_TEXT.findall(svg):
        _write(picture, x, float(y) - BASELINE, text, colour + attributes)
    return picture


def to_svg(picture: Picture) -> str:
    """An SVG with one element a line: a run of signs of one look, or of cells with a ground of their own."""
    width, height = len(picture[0]) * CELL, len(picture) * LINE
    base = Counter(cell.ground for row in picture for cell in row).most_common(1)[0][0]
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.6g} {height:.6g}" xml:space="preserve"',
        f' font-family="{FONTS}" font-size="20">',
        f'<rect width="100%" height="100%" fill="{base}"/>',
    ]
    for at, row in enumerate(picture):
        lines += _ground_lines(row, at, base)
        lines += [_text_line(column, at, text, look) for column, text, look in _runs(row)]
    return "\n".join([*lines, "</svg>"]) + "\n"


def lines_of(picture: Picture) -> list[str]:
    """The text of a screen, without the blanks at the ends of its lines."""
    return ["".join(cell.sign for cell in row).rstrip() for row in picture]


def difference(kept: Picture, now: Picture) -> str:
    """What changed: the lines of text, or, where those are alike, the places with another look."""
    before, after = lines_of(kept), lines_of(now)
    if before != after:
        return "\n".join(difflib.unified_diff(before, after, "kept", "now", n=1, lineterm=""))
    changes = list(_changed_looks(kept, now))
    more = [f"and {len(changes) - MOST_CHANGES} more"] if len(changes) > MOST_CHANGES else []
    return "\n".join(["the text is the same, colours or styles changed:", *changes[:MOST_CHANGES], *more])


def unseen(picture: Picture) -> list[str]:
    """Words that are drawn in the very colour of their ground."""
    found = []
    for at, row in enumerate(picture, 1):
        words = "".join(cell.sign for cell in row if cell.look.partition(" ")[0] == cell.ground)
        if words.strip():
            found.append(f"line {at}: {words}")
    return found


def _changed_looks(kept: Picture, now: Picture) -> Iterator[str]:
    for at, (before, after) in enumerate(zip(kept, now, strict=True), 1):
        pairs = enumerate(zip(before, after, strict=True), 1)
        for change, run in groupby(pairs, lambda pair: (pair[1][0][1:], pair[1][1][1:])):
            (old, old_ground), (new, new_ground) = change
            if change[0] == change[1]:
                continue
            cells = list(run)
            words = "".join(cell.sign for _column, (cell, _after) in cells)
            yield (
                f"line {at}, columns {cells[0][0]}-{cells[-1][0]} {words!r}: "
                f"{old or 'blank'} on {old_ground} is now {new or 'blank'} on {new_ground}"
            )


def _blank(columns: int, lines: int, ground: str) -> Picture:
    return [[Cell(" ", "", ground)] * columns for _ in range(lines)]


def _fill(picture: Picture, x: str, y: str, width: str, ground: str) -> None:
    row, start = picture[int((float(y) + 1) / LINE)], round(float(x) / CELL)
    for column in range(start, start + round(float(width) / CELL)):
        row[column] = row[column]._replace(ground=ground)


def _write(picture: Picture, x: str, top: float, text: str, look: str) -> None:
    row, column = picture[round(top / LINE)], round(float(x) / CELL)
    words = unescape(text).replace("\u00a0", " ")
    for start, end, size in split_graphemes(words)[0]:
        sign = words[start:end]
        for behind in range(size):
            row[column + behind] = Cell("" if behind else sign, "" if sign == " " else look, row[column].ground)
        column += size


def _ground_lines(row: list[Cell], at: int, base: str) -> Iterator[str]:
    column = 0
    for ground, run in groupby(row, lambda cell: cell.ground):
        count = len(list(run))
        if ground != base:
            yield (
                f'<rect x="{column * CELL:.6g}" y="{at * LINE:.6g}" width="{count * CELL:.6g}" height="{LINE}" '
                f'fill="{ground}"/>'
            )
        column += count


def _runs(row: list[Cell]) -> Iterator[tuple[int, str, str]]:
    """Column, text and look of signs of one look; a single blank between words does not end a run.

    Signs beyond ASCII are in runs of their own: a viewer may take them from a font of another width.
    """
    start, text, kind = 0, "", ("", False)
    for column, cell in enumerate(row):
        now = (cell.look, cell.sign.isascii())
        if cell.sign == "":
            continue
        if cell.sign == " " and text and kind[1] and not text.endswith(" "):
            text += " "
            continue
        if text.strip() and (cell.sign == " " or now != kind):
            yield start, text.rstrip(), kind[0]
            text = ""
        if cell.sign == " ":
            text = ""
            continue
        if not text:
            start, kind = column, now
        text += cell.sign
    if text.strip():
        yield start, text.rstrip(), kind[0]


def _text_line(column: int, at: int, text: str, look: str) -> str:
    colour, _, attributes = look.partition(" ")
    cells = cell_len(text)
    length = f' textLength="{cells * CELL:.6g}"' if cells > 1 else ""
    place = f'x="{column * CELL:.6g}" y="{at * LINE + BASELINE:.6g}"{length}'
    return f'<text {place} fill="{colour}"{" " + attributes if attributes else ""}>{escape(text, quote=False)}</text>'


def in_sixteen_colours(picture: Picture) -> Picture:
    """What a terminal of 16 colours gets: the nearest of them for each, as Textual's driver sends it."""

    def nearest(colour: str) -> str:
        return Color.parse(colour).downgrade(ColorSystem.STANDARD).get_truecolor(DEFAULT_TERMINAL_THEME).hex

    def changed(cell: Cell) -> Cell:
        colour, space, attributes = cell.look.partition(" ")
        look = f"{nearest(colour)}{space}{attributes}" if colour else ""
        return Cell(cell.sign, look, nearest(cell.ground))

    return [[changed(cell) for cell in row] for row in picture]
