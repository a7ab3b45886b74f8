"""Making foreign text harmless: control and bidi characters become visible, length is bounded."""

from __future__ import annotations

import re

_BIDI = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_HIDDEN = "\u200b-\u200d\u2060\ufeff\u00ad\u2028\u2029\U000e0000-\U000e007f"
_UNSAFE = re.compile(f"[\x00-\x1f\x7f-\x9f{_BIDI}{_HIDDEN}\ud800-\udfff]")
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|[@-Z\\-_])")


def strip_ansi(text: str) -> str:
    """Remove terminal escape sequences (colours, titles, links)."""
    return _ANSI.sub("", text) if "\x1b" in text else text


def _show(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code == 9:
        return " "
    if code < 32:
        return chr(0x2400 + code)
    if code == 127:
        return "\u2421"
    return f"<U+{code:04X}>"


def plain(text: str, limit: int = 4096) -> str:
    """`text` on one line, safe to print on any terminal, at most `limit` characters."""
    cut = text[:limit]
    cut = _UNSAFE.sub(_show, cut)
    return cut if len(text) <= limit else f"{cut}… ({len(text) - limit} more)"
