"""A replay's hand: where it stands, faster, slower, halted, elsewhere. Shows nothing itself."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from moetop.fleet import Fleet
from moetop.model import LinkPhase
from moetop.transport.replay import ReplayTransport, read_index
from moetop.watch import Watch

PAST_S = 300.0
"""After a jump so much of what lies before it is there at once, so that the charts are not empty."""


@dataclass(frozen=True)
class Position:
    """Where a replay stands, in seconds of the frames' own clock. `speed` 0 is halted."""

    t: float | None
    start: float
    end: float
    speed: float
    finished: bool


class Player:
    """Plays one recording into a watch. Raises UsageError where it is none or the times do not lie in it."""

    def __init__(self, path: str, *, speed: float, from_s: float | None, to_s: float | None) -> None:
        self._index = read_index(path, from_s, to_s)
        self._to_s = to_s
        self._speed = speed
        self._halted = False
        self.faults = tuple(self._index.faults().values())
        self._lock = threading.Lock()
        self._from_s = from_s
        playtime = self._index.playtime
        self.start = playtime.first_t if from_s is None else playtime.start_t + from_s
        self.end = playtime.last_t if to_s is None else min(playtime.last_t, playtime.start_t + to_s)

    def transports(self, t: float | None = None) -> list[ReplayTransport]:
        """A transport for every host, from `t` seconds of the frames' clock on."""
        from_s = self._from_s if t is None else t - self._index.playtime.start_t
        return [
            ReplayTransport(
                self._index,
                host,
                speed=self._speed,
                from_s=from_s,
                to_s=self._to_s,
                past_s=PAST_S,
            )
            for host in self._index.hosts.values()
        ]

    def position(self, watch: Watch) -> Position:
        """Where it stands now."""
        names = watch.names()
        times = [t for t in map(watch.last_t, names) if t is not None]
        finished = bool(names) and all(watch.link_of(name).phase is LinkPhase.FINISHED for name in names)
        speed = 0.0 if self._halted else self._speed
        return Position(max(times, default=None), self.start, self.end, speed, finished)

    def set_speed(self, speed: float, fleet: Fleet, watch: Watch) -> None:
        """Play at `speed` times real time; 0 halts."""
        self._halted = speed == 0
        if speed > 0:
            self._speed = speed
        for name in watch.names():
            transport = fleet.transport(name)
            if isinstance(transport, ReplayTransport):
                transport.pace.set_speed(speed)

    def seek(self, t: float, fleet: Fleet, watch: Watch) -> None:
        """Go on at `t`: all hosts begin anew there, with the last minutes before it at once."""
        with self._lock:
            fresh = self.transports(min(max(t, self.start), self.end))
            self._swap(fresh, fleet, watch)
            if self._halted:
                self.set_speed(0, fleet, watch)

    @staticmethod
    def _swap(fresh: Sequence[ReplayTransport], fleet: Fleet, watch: Watch) -> None:
        for transport in fresh:
            fleet.remove(transport.name)
            watch.restart(transport.name)
        for transport in fresh:
            fleet.add(transport)
