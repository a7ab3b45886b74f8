"""How evidence is worded: one label a sentence, one spelling a figure. No judgement here.

Labels order the chain a person reads: what was seen, what it was compared with, what was ruled out
and by which figure, what the log or the server said, what is not known. A remedy that starts with
`COMMAND` is a command line ready to copy.
"""

from __future__ import annotations

from collections.abc import Iterable

from moetop.text import plain

SEEN = "Seen: "
COMPARED = "Compared: "
RULED_OUT = "Ruled out: "
LOG = "Log: "
SERVER = "Server: "
FILES = "Files: "
NOT_KNOWN = "Not known: "
COMMAND = "$ "


def neutral(text: str) -> str:
    """Foreign text made harmless; our own passes as it is."""
    return text if text.isprintable() else plain(text)


def number(value: float) -> str:
    """A figure as people read it: no decimals from 10 on, thousands apart."""
    if abs(value) >= 1e15:
        return f"{value:.3g}"
    rounded = round(value)
    if abs(value) >= 9.95 or abs(value - rounded) < 0.05:
        return f"{rounded:,}"
    return f"{value:.1f}"


def pct(value: float | None) -> str:
    return "unknown" if value is None else f"{number(value)} %"


def span(values: Iterable[float | None], unit: str = "%") -> str:
    """`54-56 %`, or one figure where all agree."""
    there = [v for v in values if v is not None]
    if not there:
        return "unknown"
    low, high = number(min(there)), number(max(there))
    return f"{low} {unit}" if low == high else f"{low}-{high} {unit}"


def listed(items: Iterable[object], most: int = 8) -> str:
    """`0, 1, 2` with an end."""
    there = [str(item) for item in items]
    return ", ".join(there) if len(there) <= most else f"{', '.join(there[:most])} and {len(there) - most} more"


def gpus(indices: Iterable[int]) -> str:
    """`GPU 3`, `GPUs 0-7`, `GPUs 0, 2`."""
    there = sorted(set(indices))
    if len(there) == 1:
        return f"GPU {there[0]}"
    if len(there) > 2 and there[-1] - there[0] == len(there) - 1:
        return f"GPUs {there[0]}-{there[-1]}"
    return f"GPUs {listed(there)}"


def verb(count: int, one: str, many: str) -> str:
    """The form of a verb for so many."""
    return one if count == 1 else many


def plural(count: int, one: str, many: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"
