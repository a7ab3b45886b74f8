"""Hosts that come and go while watching: configuration read anew, hosts added and removed. Shows nothing itself."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from moetop.config import Config, HostSpec
from moetop.errors import MoetopError, UsageError
from moetop.text import plain

if TYPE_CHECKING:
    from moetop.fleet import Fleet
    from moetop.transport.base import HostTarget, ProbeOptions, Transport
    from moetop.watch import Watch

MAX_NOTICES = 50

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Wiring:
    """How a host of a configuration becomes something to watch."""

    target: Callable[[Config, HostSpec], HostTarget]
    options: Callable[[Config, HostSpec], ProbeOptions]
    transport: Callable[[Config, HostSpec], Transport]


@dataclass(frozen=True)
class Changes:
    """What reading anew changed, and who is named and stays away since removed by hand: names of hosts."""

    added: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    away: tuple[str, ...] = ()

    def sentence(self) -> str:
        """The changes in words."""
        kinds = (("added", self.added), ("dropped", self.dropped), ("connected anew", self.changed))
        parts = [f"{_few(names)} {verb}" for verb, names in kinds if names] or ["the hosts are the same"]
        if self.away:
            parts.append(f"{_few(self.away)} removed by hand, not watched")
        return f"configuration read anew: {'; '.join(parts)}"


def _few(names: Sequence[str]) -> str:
    shown = ", ".join(plain(name, 60) for name in names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"


class Reloader:
    """Keeps a running fleet as its configuration says. `read` reads that anew; None where there is none.

    Methods may be called from any thread; they block while hosts are let go, under two seconds.
    """

    def __init__(
        self,
        config: Config,
        fleet: Fleet,
        watch: Watch,
        wiring: Wiring,
        read: Callable[[], Config] | None,
    ) -> None:
        self.config = config
        self._fleet = fleet
        self._watch = watch
        self._wiring = wiring
        self._read = read
        self._by_hand: dict[str, HostSpec] = {}
        self._entries = _by_name(config)
        self._away: dict[str, HostSpec] = {}
        self._notices: deque[str] = deque(maxlen=MAX_NOTICES)
        self._lock = threading.Lock()
        self._asked = threading.Event()
        self._over = threading.Event()

    def reload(self) -> Changes:
        """Read the configuration anew and do what it says. Raises UsageError; nothing is changed then.

        Hosts added by hand stay. Those removed by hand stay away until what the configuration says of them changes
        (its own entry, its group's, the defaults), or until they are added again.
        """
        if self._read is None:
            raise UsageError("no configuration file was read at the start", "start with --config FILE")
        with self._lock:
            new = self._read()
            if not new.hosts:
                raise UsageError("the configuration names no host any more; nothing was changed")
            entries = _by_name(new)
            away = {name: entry for name, entry in self._away.items() if entries.get(name) == entry}
            named = tuple(host for host in new.hosts if host.name not in away)
            kept = tuple(host for name, host in self._by_hand.items() if name not in entries)
            changes = self._become(replace(new, hosts=named + kept))
            self._entries, self._away = entries, away
            return replace(changes, away=tuple(away))

    def add_host(self, text: str) -> str:
        """Watch one more host, `[user@]host[:port]` or a name of the configuration; its name. Raises MoetopError."""
        with self._lock:
            known = replace(self.config, hosts=(*self.config.hosts, *self._away.values()))
            host = known.host(text)
            if any(host.name == one.name for one in self.config.hosts):
                raise UsageError(f"{host.name} is watched already")
            self._wiring.target(self.config, host)
            self._become(replace(self.config, hosts=(*self.config.hosts, host)))
            if self._away.pop(host.name, None) != host:
                self._by_hand[host.name] = host
            return host.name

    def remove_host(self, name: str) -> None:
        """Stop watching a host and forget it; it stays away as `reload` says. Raises UsageError where it is not
        watched."""
        with self._lock:
            left = tuple(host for host in self.config.hosts if host.name != name)
            if len(left) == len(self.config.hosts):
                raise UsageError(f"{plain(name, 80)} is not watched")
            self._by_hand.pop(name, None)
            if name in self._entries:
                self._away[name] = self._entries[name]
            self._become(replace(self.config, hosts=left))

    def take_notices(self) -> list[str]:
        """Sentences on what happened since the last call, for the screen."""
        taken = []
        while self._notices:
            taken.append(self._notices.popleft())
        return taken

    def _become(self, new: Config) -> Changes:
        """Let go what is gone or changed, then take up what is new. Targets are checked before anything is touched."""
        old = self.config
        before, after = _by_name(old), _by_name(new)
        targets = {name: self._wiring.target(new, host) for name, host in after.items()}
        dropped = tuple(name for name in before if name not in after)
        added = tuple(name for name in after if name not in before)
        changed = tuple(
            name
            for name in after
            if name in before
            and (
                targets[name] != self._wiring.target(old, before[name])
                or self._wiring.options(new, after[name]) != self._wiring.options(old, before[name])
            )
        )
        for name in (*dropped, *changed):
            self._fleet.remove(name)
        for name in dropped:
            self._watch.forget(name)
        for name in changed:
            if _place(targets[name]) != _place(self._wiring.target(old, before[name])):
                self._watch.forget(name)  # another machine: its history is not this one's
        self.config = new
        for name, host in after.items():
            self._watch.expect(name, host.labels)
        for name in (*changed, *added):
            self._fleet.add(self._wiring.transport(new, after[name]), self._wiring.options(new, after[name]))
        return Changes(added, dropped, changed)

    # ── SIGHUP ───────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def heeding_hangup(self, say: Callable[[str], None] | None = None) -> Iterator[None]:
        """While inside, SIGHUP reads the configuration anew; a terminal that closed still ends moetop.

        `say` takes the sentence on what changed; without it the sentence waits in `take_notices`.
        Does nothing outside the main thread or where there is no configuration to read.
        """
        if self._read is None or threading.current_thread() is not threading.main_thread():
            yield
            return
        had_terminal = _has_terminal()

        def heed(_signum: int, _frame: object) -> None:
            if had_terminal and not _has_terminal():
                raise KeyboardInterrupt
            self._asked.set()

        worker = threading.Thread(target=self._work, args=(say or self._notices.append,), name="moetop-reload")
        worker.daemon = True
        before = signal.signal(signal.SIGHUP, heed)
        worker.start()
        try:
            yield
        finally:
            signal.signal(signal.SIGHUP, before)
            self._over.set()
            self._asked.set()

    def _work(self, say: Callable[[str], None]) -> None:
        """The thread that reads anew, outside of signal handlers and of whoever watches."""
        while True:
            self._asked.wait()
            self._asked.clear()
            if self._over.is_set():
                return
            try:
                sentence = self.reload().sentence()
            except MoetopError as error:
                sentence = f"configuration not read anew: {error.sentence()}"
            _log.info("%s", sentence)
            say(sentence)


def _by_name(config: Config) -> dict[str, HostSpec]:
    return {host.name: host for host in config.hosts}


def _place(target: HostTarget) -> tuple[str, str | None, int | None, str]:
    return target.address, target.user, target.port, target.kind


def _has_terminal() -> bool:
    """Whether this process still has a controlling terminal."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True
