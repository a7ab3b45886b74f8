"""How far a host's clock is from ours, from its frames alone. Pure: times are given, no clock is read."""

from __future__ import annotations

AGE_S = 300.0
"""The smallest lag of the last five to ten minutes counts (judgement: clocks without NTP drift by up to
100 ppm, 30 ms in that time, and by 9 s a day)."""

STEP_S = 10.0
"""A lag that grows by more than this at once is our clock set forward, or a machine that slept: a link is given
up after seconds of silence, so that no frame is ever so late by itself."""


class HostClock:
    """The offset of a host's clock: the smallest lag between a frame's time and its arrival."""

    def __init__(self) -> None:
        self._older: float | None = None
        self._newer: float | None = None
        self._since = 0.0
        self._last_t: float | None = None

    @property
    def offset_s(self) -> float | None:
        """Seconds to subtract from our time to get the host's; None before its first frame."""
        known = [lag for lag in (self._older, self._newer) if lag is not None]
        return min(known) if known else None

    def note(self, now: float, t: float) -> None:
        """A frame of time `t` arrived at `now` on our clock. A time before the last one: their clock was set back."""
        lag = now - t
        offset = self.offset_s
        set_back = self._last_t is not None and t < self._last_t
        self._last_t = t
        if offset is None or set_back or lag - offset > STEP_S:
            self._older, self._newer, self._since = None, lag, now
        elif not 0 <= now - self._since < AGE_S:
            self._older, self._newer, self._since = self._newer, lag, now
        else:
            self._newer = lag if self._newer is None else min(self._newer, lag)
