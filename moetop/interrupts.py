"""Signals that end a run, as one exception. Loads nothing else: it comes first."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interruptible() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into KeyboardInterrupt, so that one path cleans up."""

    def stop(_signum: int, _frame: object) -> None:
        raise KeyboardInterrupt

    old = {}
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            old[name] = signal.signal(getattr(signal, name), stop)
    try:
        yield
    finally:
        for name, handler in old.items():
            signal.signal(getattr(signal, name), handler)
