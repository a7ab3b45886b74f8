"""Shares of numbers that a host sent, and their place on a scale. Any float may come in: none raises. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

LEAST_LIMIT_W = 1.0
"""A power limit under this is none (judgement: no card runs on less; a driver that knows no limit says 0)."""

LEAST_TOP = 1e-300
"""Smaller floats lose their digits one by one."""

MOST_PCT = 1000.0
"""A share above this says nothing (judgement: a card draws twice its limit for moments, never ten times)."""


def percent(part: float | None, whole: float | None) -> float | None:
    """`part` in percent of `whole`; None where either is absent or together they make no sense."""
    if part is None or whole is None or not whole > 0:
        return None
    share = part / whole * 100.0
    return share if 0.0 <= share <= MOST_PCT else None


def power_percent(power_w: float | None, limit_w: float | None) -> float | None:
    """Draw in percent of the enforced limit; None where there is no such limit."""
    return None if limit_w is None or limit_w < LEAST_LIMIT_W else percent(power_w, limit_w)


def step(value: float, top: float, last: int) -> int:
    """The nearest of the steps 0..`last` to `value` on a scale 0..`top`; what lies outside stands at its end."""
    part = value / top if top > 0 else 0.0
    if not part > 0:
        return 0
    return last if part >= 1 else round(part * last)


def round_top(value: float, steps: Sequence[float]) -> float:
    """The top of a scale for values up to `value`: the next of `steps` (1 to under 10) times a power of ten; 1 where
    no scale can be made of it."""
    if not isfinite(value) or value <= LEAST_TOP:
        return 1.0
    magnitude = 1.0
    while magnitude * 10 <= value:
        magnitude *= 10
    while magnitude > value:
        magnitude /= 10
    return next((step * magnitude for step in steps if step * magnitude >= value), 10 * magnitude)
