"""A GPU's states over time, as they were judged when its samples came in. Pure: no clock, no I/O, no locks.

One thread may add while others read: a reader may see the newest sample or not yet.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from moetop.model import Confidence, GpuState

MOST_SPELLS = 1000
"""Spells kept of each GPU (judgement: 150 kB, and hours of a GPU whose state changes every ten seconds)."""


@dataclass(frozen=True)
class Standing:
    """A GPU's state after a sample. `error` is why it cannot be read; it `holds_s` seconds without another one."""

    state: GpuState
    confidence: Confidence
    error: str | None
    holds_s: float


@dataclass
class _Spell:
    """One state without a break. Times are seconds of the host's own clock."""

    first_t: float
    last_t: float
    standing: Standing


class StateTrail:
    """When a GPU's state changed, and where nothing was heard of it."""

    def __init__(self) -> None:
        self._spells: list[_Spell] = []

    def __len__(self) -> int:
        return len(self._spells)

    def add(self, t: float, standing: Standing) -> None:
        """Take the state at a sample of time `t`. Time that runs backwards (the clock was set) starts anew."""
        last = self._spells[-1] if self._spells else None
        if last is not None and t < last.last_t:
            self._spells = []
            last = None
        if last is not None and _alike(last.standing, standing) and t - last.last_t <= standing.holds_s:
            last.last_t, last.standing = t, standing
            return
        self._spells.append(_Spell(t, t, standing))
        if len(self._spells) > MOST_SPELLS:
            del self._spells[0]

    def at(self, t: float) -> Standing | None:
        """The state at `t` seconds; None where nothing was heard of the GPU."""
        spells = self._spells[:]
        found = bisect_right(spells, t, key=lambda spell: spell.first_t)
        spell = spells[found - 1] if found else None
        return spell.standing if spell is not None and t <= spell.last_t + spell.standing.holds_s else None


def _alike(one: Standing, other: Standing) -> bool:
    return (one.state, one.confidence, one.error) == (other.state, other.confidence, other.error)
