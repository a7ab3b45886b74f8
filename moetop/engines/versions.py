"""Compares the version strings of engines. Pre-releases sort before their release, post-releases after."""

from __future__ import annotations

import re

_VERSION = re.compile(
    r"v?(\d{1,6}(?:\.\d{1,6}){0,4})(?:[.-]?(a|b|c|rc|alpha|beta)\.?(\d{0,6}))?(?:[.-]?post\.?(\d{0,6}))?(?:[.-]?dev\.?(\d*))?"
)
Key = tuple[tuple[int, ...], int, int, int]
_PRE = {"a": -3, "alpha": -3, "b": -2, "beta": -2, "c": -1, "rc": -1}


def version_key(text: str | None) -> Key | None:
    """Something that sorts like the version, or None where the text is none."""
    found = _VERSION.match(text.strip()) if text else None
    if found is None:
        return None
    release = tuple(int(part) for part in found[1].split("."))
    release = (*release, *(0,) * (5 - len(release)))
    post = int(found[4] or 0) + 1 if found[4] is not None else 0
    if found[5] is not None:
        return release, -4 if post == 0 else 0, post - 1 if post else 0, 0
    return release, _PRE.get(found[2] or "", 0), post, int(found[3] or 0)


def is_before_release(text: str) -> bool:
    """Whether it is a development or release-candidate build: it may hold only part of its release."""
    found = _VERSION.match(text.strip())
    return found is not None and (found[2] is not None or found[5] is not None or "+g" in text)
