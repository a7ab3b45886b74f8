"""Signals that end a run, as one exception. Loads nothing else: it comes first."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interruptible() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into KeyboardInterrupt, so that one path cleans up. SIGINT too: left alone, asyncio
    takes one that was not typed for a quiet end. What was started with a signal ignored goes on ignoring it."""

    def stop(_signum: int, _frame: object) -> None:
        raise KeyboardInterrupt

    old = {}
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name) and signal.getsignal(getattr(signal, name)) is not signal.SIG_IGN:
            old[name] = signal.signal(getattr(signal, name), stop)
    try:
        yield
    finally:
        for name, handler in old.items():
            signal.signal(getattr(signal, name), handler)
