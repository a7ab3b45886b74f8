"""One timer for all open sessions: pings them and closes those whose host fell silent. Opens nothing, reads nothing."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable

from moetop.errors import LinkError
from moetop.transport.base import Channel

SILENT_INTERVALS = 3
SILENT_MIN_S = 3.0
"""No line for three intervals, three seconds at least: the link is dead (OpenSSH's ServerAliveCountMax)."""

FIRST_FRAME_S = 30.0
"""How long the first frame may take: NVML without persistence mode needs seconds for each GPU."""

TICK_S = 0.25

_PING = b'{"cmd": "ping"}'
_log = logging.getLogger(__name__)


class Pulse:
    """One open channel as the timer sees it. One that is not `watched` is neither pinged nor closed."""

    def __init__(self, channel: Channel, interval_s: float, *, watched: bool = True) -> None:
        self.channel = channel
        self.set_interval(interval_s)
        self.lines = 0
        self.silent = False
        self._watched = watched
        self._waiting_since: float | None = time.monotonic()
        self._next_ping = time.monotonic()

    def set_interval(self, interval_s: float) -> None:
        """Seconds between samples, and with them the silence that is too long."""
        self.interval_s = interval_s
        self._silent_s = max(SILENT_MIN_S, SILENT_INTERVALS * interval_s)

    @property
    def patience_s(self) -> float:
        """How long the host may be silent now."""
        return self._silent_s if self.lines else max(FIRST_FRAME_S, self._silent_s)

    def waiting(self, is_waiting: bool) -> None:
        """Whether the supervisor waits for the host (True) or works on a line (False)."""
        self._waiting_since = time.monotonic() if is_waiting else None

    def forgive(self, seconds: float) -> None:
        """This process itself stood still so long: that silence was not the host's."""
        if self._waiting_since is not None:
            self._waiting_since += seconds

    def tick(self, now: float) -> None:
        """Ping when due; close the channel when the host has been silent for too long."""
        if not self._watched or self.silent:
            return
        since = self._waiting_since
        if since is not None and now - since > self.patience_s:
            self.silent = True
            self.channel.close()
        elif now >= self._next_ping:
            self._next_ping = now + max(1.0, self.interval_s)
            try:
                self.channel.send(_PING)
            except LinkError as error:
                _log.debug("ping not sent: %s", error)


class Heartbeat:
    """The timer's thread. `pulses` gives the sessions that are open now."""

    def __init__(self, pulses: Callable[[], Iterable[Pulse]]) -> None:
        self._pulses = pulses
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="moetop-heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(TICK_S * 2)

    def _beat(self) -> None:
        last = time.monotonic()
        while not self._stopping.wait(TICK_S):
            now = time.monotonic()
            late_s = now - last - TICK_S
            last = now
            for pulse in self._pulses():
                if late_s > TICK_S:
                    pulse.forgive(late_s)
                pulse.tick(now)
