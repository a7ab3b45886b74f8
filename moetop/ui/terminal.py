"""What the terminal can show, as far as its environment says."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

OVERRIDE = "MOETOP_ASCII"
"""Environment: 1 forces ASCII, 0 forces glyphs."""


def first_environment() -> Mapping[str, str]:
    """The environment moetop was started with. Python itself may set LC_CTYPE to a UTF-8 locale in a C
    locale (PEP 538), which says nothing about the terminal."""
    try:
        raw = Path("/proc/self/environ").read_bytes()
    except OSError:
        return os.environ
    pairs = (entry.partition("=") for entry in raw.decode("utf-8", "replace").split("\0") if "=" in entry)
    return {name: value for name, _, value in pairs}


def has_utf8(environment: Mapping[str, str]) -> bool:
    """Whether the locale is a UTF-8 one; without any the terminal is taken to show ASCII only."""
    locale = environment.get("LC_ALL") or environment.get("LC_CTYPE") or environment.get("LANG") or ""
    return "utf8" in locale.lower().replace("-", "")


def terminal_has_utf8() -> bool:
    """Whether glyphs outside ASCII can be shown."""
    override = os.environ.get(OVERRIDE)
    return override in ("0", "") if override is not None else has_utf8(first_environment())
