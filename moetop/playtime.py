"""The time by which a recording is played: that of its hosts' own clocks, without the steps these clocks were set by
and without long silences. The order of the file is the order of play. Pure."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from moetop.decoding import MAX_T

MAX_GAP_S = 60.0
"""Longest silence of a whole recording that a replay waits through (sessions appended to one file)."""

BACK_S = 5.0
"""A time that lies so far before the newest of its host is a clock set back (judgement: lines of one host overtake
each other by less)."""

START_S = 5.0
"""A jump within so much of the beginning is not waited for at all: what lies before it are strays (judgement)."""

MAX_STRETCHES = 10_000
"""Most stretches told apart in one recording (judgement: a clock set once a minute for a week)."""


@dataclass(slots=True, eq=False)
class Stretch:
    """Frames of one host during which its clock ran on. It is played at `t + shift`.

    `set_back` says that its clock was set back at its end, `stray` that it is a false start before the beginning.
    `begin` and `end` are where its first and last frame lie in the file, bytes; `before` and `before_t` the stretch
    and the time of the frame that stands before it in the file, of whichever host.
    """

    host: str
    begin: int
    end: int
    first_t: float
    last_t: float
    before: Stretch | None = field(repr=False)
    before_t: float
    shift: float = 0.0
    stray: bool = False
    set_back: bool = False

    @property
    def first_at(self) -> float:
        return self.first_t + self.shift

    @property
    def last_at(self) -> float:
        return self.last_t + self.shift

    def at(self, t: float) -> float | None:
        """When a frame of time `t` is played; None for a time that no clock showed in it."""
        return t + self.shift if abs(t) <= MAX_T and t <= self.last_t else None


class Playtime:
    """The stretches of a recording. First `take` every frame in the order of the file, then `place`."""

    def __init__(self) -> None:
        self.stretches: list[Stretch] = []
        self._open: dict[str, Stretch] = {}
        self._newest: tuple[Stretch, float] | None = None

    def take(self, host: str, offset: int, t: float) -> None:
        """Note the frame of `host` at byte `offset`, of `t` seconds."""
        stretch = self._open.get(host)
        full = len(self.stretches) >= MAX_STRETCHES
        if abs(t) > MAX_T:
            return  # no clock shows it
        if stretch is None or (not full and not -BACK_S <= t - stretch.last_t <= MAX_GAP_S):
            if stretch is not None:
                stretch.set_back = t < stretch.last_t
            before, before_t = self._newest or (None, t)
            stretch = self._open[host] = Stretch(host, offset, offset, t, t, before, before_t)
            self.stretches.append(stretch)
        stretch.end = offset
        stretch.last_t = max(stretch.last_t, t)
        self._newest = (stretch, t)

    def place(self) -> None:
        """Give every stretch its place."""
        last: dict[str, Stretch] = {}
        former: dict[str, Stretch] = {}
        running: list[tuple[int, int, Stretch]] = []
        lowest = highest = over = self.stretches[0].first_t if self.stretches else 0.0
        for number, stretch in enumerate(self.stretches):
            while running and running[0][0] < stretch.begin:
                over = max(over, heapq.heappop(running)[2].last_at)
            early = stretch.before is not None and _reached(stretch) - lowest < START_S
            own = last.get(stretch.host)
            shift = _known_shift(stretch, own, former.get(stretch.host), over, (lowest, highest))
            if shift is None:
                silent = stretch.before is not None and stretch.first_t > (own or stretch.before).last_t
                silent = silent and not early and not stretch.set_back  # wrong for a while is no silence
                shift = _reached(stretch) + (MAX_GAP_S if silent else 0.0) - stretch.first_t
            if own is not None and early and shift != own.shift:
                own.stray = True
            stretch.shift = shift
            if own is not None:
                former[stretch.host] = own
            last[stretch.host] = stretch
            lowest, highest = min(lowest, stretch.first_at), max(highest, stretch.last_at)
            heapq.heappush(running, (stretch.end, number, stretch))

    def of(self, host: str) -> list[Stretch]:
        """A host's stretches in the order of the file."""
        return [stretch for stretch in self.stretches if stretch.host == host]

    @property
    def begin(self) -> float:
        """When it begins, on the clock by which it is played."""
        return min((stretch.first_at for stretch in self.stretches), default=0.0)

    @property
    def start_t(self) -> float:
        """When it begins, on the hosts' clocks."""
        soon = self.begin + START_S
        return min((stretch.first_t for stretch in self._kept() if stretch.first_at < soon), default=0.0)

    @property
    def first_t(self) -> float:
        """The earliest time of its hosts' clocks, strays at the beginning apart."""
        return min((stretch.first_t for stretch in self._kept()), default=0.0)

    @property
    def last_t(self) -> float:
        """The latest time of its hosts' clocks, strays at the beginning apart."""
        return max((stretch.last_t for stretch in self._kept()), default=0.0)

    def at(self, t: float) -> float:
        """When the clocks first show `t`, on the clock by which it is played; within a silence, when that is over."""
        for stretch in self._kept():
            if stretch.first_t <= t <= stretch.last_t:
                return t + stretch.shift
        later = [stretch for stretch in self._kept() if stretch.first_t > t]
        if later:
            return min(later, key=lambda stretch: stretch.first_t).first_at
        return max((stretch.last_at for stretch in self._kept()), default=0.0)

    def until(self, t: float) -> float:
        """Like `at`; within a silence, when that begins."""
        for stretch in self._kept():
            if stretch.first_t <= t <= stretch.last_t:
                return t + stretch.shift
        sooner = [stretch for stretch in self._kept() if stretch.last_t < t]
        return max(sooner, key=lambda stretch: stretch.last_t).last_at if sooner else float("-inf")

    def _kept(self) -> list[Stretch]:
        return [stretch for stretch in self.stretches if not stretch.stray]


def _reached(stretch: Stretch) -> float:
    """How far the play is at the place of the file where a stretch begins."""
    return stretch.first_t if stretch.before is None else stretch.before_t + stretch.before.shift


def _known_shift(
    stretch: Stretch, own: Stretch | None, former: Stretch | None, over: float, span: tuple[float, float]
) -> float | None:
    """The shift of the host's stretch before, of the frame before or of the stretch before the last (a clock that was
    set right again), if the times fit it. None where a clock was set, or all were silent for long. `over` is the latest
    end of what is over by then, `span` all that has a place."""
    if stretch.before is None:
        return 0.0
    reached = _reached(stretch)
    for known in (own, stretch.before, former):
        if known is None:
            continue
        at = stretch.first_t + known.shift
        floor = known.last_at if known is own else reached  # a host that was lost while others went on
        patience_s = BACK_S if own is None else MAX_GAP_S  # a host seen first does not wait for its own clock
        if min(reached, floor) - BACK_S <= at <= max(reached, over) + patience_s:
            return known.shift
    if own is None and stretch.before.end < stretch.begin:  # one file after the other: what overlaps goes side by side
        shift = stretch.before.shift
        if stretch.first_t + shift <= span[1] + MAX_GAP_S and stretch.last_t + shift >= span[0] - MAX_GAP_S:
            return shift
    return None
