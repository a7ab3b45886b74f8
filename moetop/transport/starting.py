"""How many logins go on at the same moment: to one first hop, and to all hosts together. Opens nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from moetop.errors import LinkError
from moetop.transport.ssh_config import Settings

MAX_STARTING = 6
"""Logins at once to one first hop: sshd refuses some from 10 on (MaxStartups 10:30:100), others want in too."""

MAX_LOGINS = 16
"""Key exchanges and logins at once to all hosts (measured on two cores with 256 hosts, docs/measured.md)."""

PLACE_WAIT_S = 10.0
"""The longest anybody waits for one of them (judgement): those who have one may hang in their login."""

SLICE_S = 0.2

_first_hops: dict[tuple[str, int], threading.BoundedSemaphore] = {}
_first_hops_lock = threading.Lock()


@contextmanager
def first_hop(first: Settings, given_up: threading.Event) -> Iterator[None]:
    """Wait for a place among those who log in at the same first hop. Raises LinkError where that is given up."""
    with _first_hops_lock:
        places = _first_hops.setdefault((first.hostname, first.port), threading.BoundedSemaphore(MAX_STARTING))
    while not places.acquire(timeout=SLICE_S):
        if given_up.is_set():
            raise LinkError("the attempt was given up", code="closed")
    try:
        yield
    finally:
        places.release()


class Places:
    """So many may be at it together; who waits too long goes on all the same."""

    def __init__(self, most: int) -> None:
        self._free = threading.BoundedSemaphore(most)

    def acquire(self, given_up: threading.Event) -> bool:
        """Wait for a place. False, and none is had, after PLACE_WAIT_S or where the attempt is given up."""
        deadline = time.monotonic() + PLACE_WAIT_S
        while not given_up.is_set() and time.monotonic() < deadline:
            if self._free.acquire(timeout=SLICE_S):
                return True
        return False

    def release(self) -> None:
        self._free.release()


logins = Places(MAX_LOGINS)
"""Those of this process."""


class Place:
    """One login's place: taken once its host has answered, so that a dead host never holds one; left when it is
    through or failed, and before a person is asked. Both from any thread."""

    def __init__(self, given_up: threading.Event, places: Places | None = None) -> None:
        self._places = logins if places is None else places
        self._given_up = given_up
        self._lock = threading.Lock()
        self._held = self._left = False

    def take(self) -> None:
        """Wait for it, not without end."""
        if not self._places.acquire(self._given_up):
            return
        with self._lock:
            self._held = not self._left
        if not self._held:
            self._places.release()

    def leave(self) -> None:
        """Give it back; idempotent, also before it is had."""
        with self._lock:
            held, self._held, self._left = self._held, False, True
        if held:
            self._places.release()

    def __enter__(self) -> Place:
        self.take()
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()
