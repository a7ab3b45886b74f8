"""Cuts the NVML binding down to what the probe can reach: a fifth of it travels and is compiled on every host.

Knows how a Python module is laid out, and of NVML only which names are looked up by prefix.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

BY_PREFIX = ("NVML_ERROR_",)
"""Looked up in the module by their beginning (pynvml 13.580, _extractNVMLErrorsAsClasses)."""

_NAMED = re.compile(r"(?:def|class) +(\w+)|(\w+) *=(?!=)")
_WORD = re.compile(r"\w+")
_BLANK = frozenset(" \t\r\n#)]}")


def cut(binding: str, reaching: Iterable[str]) -> str:
    """The source `binding` with only those functions, classes and constants of it that are named in the
    sources `reaching`, or by what they name in turn. The whole where the cut is no Python."""
    units = _units(binding)
    named: dict[str, list[str]] = {}
    for name, text in units:
        if name is not None:
            named.setdefault(name, []).append(text)
    waiting = [text for name, text in units if name is None or name.startswith(BY_PREFIX)]
    waiting += reaching
    kept = {name for name in named if name.startswith(BY_PREFIX)}
    while waiting:
        found = (set(_WORD.findall(waiting.pop())) & named.keys()) - kept
        kept |= found
        waiting += (text for name in found for text in named[name])
    short = "".join(text for name, text in units if name is None or name in kept)
    try:
        compile(short, "pynvml", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return binding
    return short


def _units(source: str) -> list[tuple[str | None, str]]:
    """Statements at the left margin, each with what is indented below it and the name it defines, if one."""
    units: list[tuple[str | None, list[str]]] = []
    decorated = False
    for line in source.splitlines(keepends=True):
        if units and (line[0] in _BLANK or decorated):
            units[-1][1].append(line)
            if decorated and line[0] not in _BLANK:
                decorated = line[0] == "@"
                match = _NAMED.match(line)
                units[-1] = (match[1] if match else None, units[-1][1])
            continue
        decorated = line[0] == "@"
        match = _NAMED.match(line)
        units.append((match[1] or match[2] if match else None, [line]))
    return [(name, "".join(lines)) for name, lines in units]
