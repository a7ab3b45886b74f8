"""Whether a feed still races through what came before: no half-read past is taken for the present. No widget."""

from __future__ import annotations

from enum import Enum

from moetop.ui.feed import WatchFeed

PATIENCE_S = 1.5
"""So long the first scene waits for a past that is being read (judgement: longer would feel stuck)."""

RACE = 5.0
LEAST_JUMP_S = 2.5
"""A host's time that moves so much faster than ours, and by so much between two looks, is its past."""

GIVE_UP_S = 15.0
"""A feed that races for longer is taken as it is."""


class Pace(Enum):
    """Whether a scene should wait (`holding`), may be shown but tells of the past or of nothing yet (`reading`),
    or is up to date."""

    HOLDING = "holding"
    READING = "reading"
    SETTLED = "settled"


class Settling:
    """Looks at a feed again and again until it is up to date; settled once, it stays so until `begin`."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Look anew (the feed starts, or a replay jumped)."""
        self._since: float | None = None
        self._looked = 0.0
        self._times: dict[str, float] = {}
        self._pace = Pace.HOLDING

    def look(self, feed: WatchFeed, now: float, speed: float = 1.0) -> Pace:
        """What the feed does at `now` (seconds of our clock); `speed` is a replay's."""
        if self._pace is Pace.SETTLED:
            return self._pace
        times = {name: t for name in feed.names() if (t := feed.last_t(name)) is not None}
        if not times:
            return Pace.SETTLED  # for now: nobody has answered, so there is nothing to wait for
        if self._since is None:
            self._since = now
            races = True
        else:
            limit = max(LEAST_JUMP_S, RACE * max(1.0, speed) * (now - self._looked))
            races = any(name not in self._times or t - self._times[name] > limit for name, t in times.items())
        self._times, self._looked = times, now
        waited = now - self._since
        if not races or waited > GIVE_UP_S:
            self._pace = Pace.SETTLED
        else:
            self._pace = Pace.HOLDING if waited <= PATIENCE_S else Pace.READING
        return self._pace
