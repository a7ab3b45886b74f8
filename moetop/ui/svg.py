"""Makes an exported SVG look the same in every viewer: no font is fetched, lines and dots are drawn. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape, unescape

from rich.cells import get_character_cell_size

CELL = 12.2
LINE = 24.4
"""Width and height of a cell in the units of Textual's export."""

BASELINE = 18.5
"""From the top of a cell to the line that letters stand on."""

DOT = 3.0
LIGHT = 1.6
HEAVY = 3.6
"""Sides of a braille dot, widths of light and heavy lines."""

FONTS = "'Fira Code', ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', 'Liberation Mono', monospace"

_TEXT = re.compile(
    r'<text class="(?P<style>[^"]*)" x="(?P<x>[\d.]+)" y="(?P<y>[\d.]+)" '
    r'textLength="[\d.]+" clip-path="[^"]*">(?P<text>[^<]*)</text>'
)
_FONT_FACE = re.compile(r"\s*@font-face\s*\{[^}]*\}")
_LINE_CLIP = re.compile(r'<clipPath id="[^"]*-line-\d+">.*?</clipPath>\s*', re.DOTALL)

_ARMS: dict[str, tuple[float, float, float, float]] = {
    "─": (LIGHT, LIGHT, 0, 0), "━": (HEAVY, HEAVY, 0, 0), "╸": (HEAVY, 0, 0, 0), "│": (0, 0, LIGHT, LIGHT),
    "┌": (0, LIGHT, 0, LIGHT), "┐": (LIGHT, 0, 0, LIGHT), "└": (0, LIGHT, LIGHT, 0), "┘": (LIGHT, 0, LIGHT, 0),
    "├": (0, LIGHT, LIGHT, LIGHT), "┤": (LIGHT, 0, LIGHT, LIGHT), "┬": (LIGHT, LIGHT, 0, LIGHT),
    "┴": (LIGHT, LIGHT, LIGHT, 0), "┼": (LIGHT, LIGHT, LIGHT, LIGHT),
}  # fmt: skip
"""Widths of a box character's arms: left, right, up, down."""

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bit of a braille cell by row and column."""

_ALONE = frozenset("▲●◆◐◌▣◇⇄○·✕◔■▾▸▼▪…—×°⏎‹›≥≤↑↓←→")
"""Signs that fonts lack or give another width: each stands at its own place, so that it shifts nothing else."""


def steady(svg: str) -> str:
    """Place every word by itself, draw braille and boxes as shapes, name fonts that a viewer has."""
    svg = _FONT_FACE.sub("", svg)
    svg = _LINE_CLIP.sub("", svg)
    svg = svg.replace("Fira Code, monospace", FONTS)
    return _TEXT.sub(_steady_text, svg)


def _steady_text(match: re.Match[str]) -> str:
    style, y = match["style"], float(match["y"])
    words: list[str] = []
    shapes: list[str] = []
    for text, left in _runs(unescape(match["text"]), float(match["x"])):
        drawn = [shape for at, char in enumerate(text) for shape in _shape(char, left + at * CELL, y - BASELINE)]
        if drawn:
            shapes += drawn
            continue
        cells = sum(get_character_cell_size(char) for char in text)
        length = f' textLength="{cells * CELL:.5g}"' if len(text) > 1 else ""
        words.append(f'<text class="{style}" x="{left:.6g}" y="{y:.6g}"{length}>{escape(text, quote=False)}</text>')
    path = f'<path class="{style}" d="{"".join(shapes)}"/>' if shapes else ""
    return path + "".join(words)


def _is_drawn(char: str) -> bool:
    return char in _ARMS or char in "┊█▌" or 0x2800 < ord(char) <= 0x28FF


def _runs(text: str, left: float) -> Iterator[tuple[str, float]]:
    """Words, signs and runs of drawn characters, each with its place; blanks give none."""
    run, start, kind = "", left, ""
    for char in text:
        now = "" if char in " \u00a0\u2800" else "alone" if char in _ALONE else "drawn" if _is_drawn(char) else "word"
        if run and (now != kind or now == "alone"):
            yield run, start
            run = ""
        if not run:
            start, kind = left, now
        if now:
            run += char
        left += CELL * get_character_cell_size(char)
    if run:
        yield run, start


def _box(x: float, y: float, width: float, height: float) -> str:
    return f"M{x:.5g} {y:.5g}h{width:.4g}v{height:.4g}h-{width:.4g}z"


def _shape(char: str, x: float, y: float) -> list[str]:
    """Path pieces of a drawn character whose cell has its upper left corner at `x`, `y`; none for a letter."""
    middle_x, middle_y = x + CELL / 2, y + LINE / 2
    if char in _ARMS:
        left, right, up, down = _ARMS[char]
        parts = []
        if left or right:
            start, end = x if left else middle_x - LIGHT / 2, x + CELL if right else middle_x + LIGHT / 2
            parts.append(_box(start, middle_y - max(left, right) / 2, end - start, max(left, right)))
        if up or down:
            start, end = y if up else middle_y, y + LINE if down else middle_y
            parts.append(_box(middle_x - LIGHT / 2, start, LIGHT, end - start))
        return parts
    if char == "┊":
        return [_box(middle_x - LIGHT / 2, y + LINE * (0.05 + 0.25 * at), LIGHT, LINE * 0.14) for at in range(4)]
    if char in "█▌":
        return [_box(x, y, CELL if char == "█" else CELL / 2, LINE)]
    mask = ord(char) - 0x2800
    if not 0 < mask <= 0xFF:
        return []
    return [
        _box(x + CELL * (0.25 + 0.5 * column) - DOT / 2, y + LINE * (0.125 + 0.25 * row) - DOT / 2, DOT, DOT)
        for row, bits in enumerate(_DOTS)
        for column, bit in enumerate(bits)
        if mask & bit
    ]
