"""Makes an exported SVG look the same in every viewer. Pure."""

from __future__ import annotations

import re

_TEXT = re.compile(r'(<text [^>]*?)x="([\d.]+)"([^>]*?)textLength="([\d.]+)"([^>]*)>((?:&#160;)+)([^<]*)</text>')
_BLANK = "&#160;"
CELL = 12.2
"""Width of a cell in the units of Textual's export."""


def steady(svg: str) -> str:
    """Move leading blanks of a text into its position: some viewers drop them and shift the words left."""

    def shift(match: re.Match[str]) -> str:
        before, x, between, length, after, blanks, text = match.groups()
        if not text:
            return ""
        moved = CELL * (len(blanks) // len(_BLANK))
        return f'{before}x="{float(x) + moved:g}"{between}textLength="{float(length) - moved:g}"{after}>{text}</text>'

    return _TEXT.sub(shift, svg)
