"""The bounded way out: frames wait here until written, so that a stopped reader cannot block the probe.

Events go before samples. Old samples are dropped and counted; an event waits for room for a while.
"""

from __future__ import annotations

import collections
import json
import os
import threading
import time
from typing import Any, Callable, Deque, Dict, Optional, Tuple

MAX_SAMPLES = 4
MAX_FRAMES = 20000
MAX_BYTES = 16 << 20
EVENT_PATIENCE_S = 10.0
LINE_PATIENCE_S = 1.0
BATCH_BYTES = 1 << 16
BATCHES_A_SAMPLE = 16
"""In a storm of events one sample goes after so many batches: the figures stay alive."""

Frame = Dict[str, Any]


_encoder = json.JSONEncoder(separators=(",", ":"), ensure_ascii=True, allow_nan=False, check_circular=False)


def encode(frame: Frame) -> bytes:
    """One line of JSON. NaN is refused: it never travels."""
    return _encoder.encode(frame).encode("ascii") + b"\n"


class Outbox:
    """Queues of encoded lines and the thread that writes them to a file descriptor."""

    def __init__(self, descriptor: int, on_broken: "Callable[[], None]") -> None:
        self._fd = descriptor
        self._on_broken = on_broken
        self._ready = threading.Condition(threading.Lock())
        self._events: Deque[Tuple[bytes, bool]] = collections.deque()
        self._samples: Deque[bytes] = collections.deque()
        self._bytes = 0
        self._closed = False
        self._idle = True
        self._lost = 0
        self._batches = 0
        self.dropped_samples = 0
        self._thread = threading.Thread(target=self._write_all, name="outbox", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def sample(self, frame: Frame) -> None:
        """Queue a reading; when the reader is behind the oldest one goes and is counted. Never blocks."""
        with self._ready:
            while len(self._samples) >= MAX_SAMPLES:
                self._samples.popleft()
                self.dropped_samples += 1
            if self.dropped_samples:
                frame = dict(frame, dropped=self.dropped_samples)
            self._samples.append(encode(frame))
            self._ready.notify_all()

    def emit(self, frame: Frame, is_event: bool = True) -> bool:
        """Queue a frame that must not overtake others of its kind; False when it was dropped.

        Waits for room, an event up to 10 s, another line up to 1 s. What then does not fit is lost
        and reported by a `log_gap` status when the reader is back.
        """
        line = encode(frame)
        end = time.monotonic() + (EVENT_PATIENCE_S if is_event else LINE_PATIENCE_S)
        with self._ready:
            while not self._closed and self._is_full(len(line)):
                left = end - time.monotonic()
                if left <= 0:
                    if not is_event or not self._evict_line():
                        self._lost += 1
                        return False
                    continue
                self._ready.wait(left)
            if self._closed:
                return False
            if self._lost:
                self._push(encode(self._gap()), True)
                self._lost = 0
            self._push(line, is_event)
        return True

    def _push(self, line: bytes, is_event: bool) -> None:
        self._events.append((line, is_event))
        self._bytes += len(line)
        self._ready.notify_all()

    def _is_full(self, size: int) -> bool:
        return len(self._events) >= MAX_FRAMES or (self._bytes + size > MAX_BYTES and bool(self._events))

    def _evict_line(self) -> bool:
        """Give up the oldest line without an event to make room for one with."""
        for place, (line, is_event) in enumerate(self._events):
            if not is_event:
                del self._events[place]
                self._bytes -= len(line)
                self._lost += 1
                return True
        return False

    def _gap(self) -> Frame:
        return {
            "type": "status",
            "t": time.time(),
            "code": "log_gap",
            "level": "warning",
            "message": "the reader was too slow: %d frames were dropped on the host" % self._lost,
            "detail": {"lost": self._lost},
        }

    def flush(self, patience_s: float = 0.5) -> None:
        """Wait until all is written, at most `patience_s`."""
        end = time.monotonic() + patience_s
        with self._ready:
            while (self._events or self._samples or not self._idle) and self._thread.is_alive():
                left = end - time.monotonic()
                if left <= 0:
                    return
                self._ready.wait(left)

    def _next(self) -> Optional[bytes]:
        with self._ready:
            self._idle = True
            self._ready.notify_all()
            while not self._events and not self._samples:
                if self._closed:
                    return None
                self._ready.wait()
            self._idle = False
            if self._events and not (self._samples and self._batches >= BATCHES_A_SAMPLE):
                self._batches += 1
                batch = []
                size = 0
                while self._events and size < BATCH_BYTES:
                    line, _ = self._events.popleft()
                    self._bytes -= len(line)
                    size += len(line)
                    batch.append(line)
                return b"".join(batch)
            self._batches = 0
            return self._samples.popleft()

    def _write_all(self) -> None:
        while True:
            data = self._next()
            if data is None:
                return
            view = memoryview(data)
            try:
                while view:
                    view = view[os.write(self._fd, view) :]
            except OSError:
                with self._ready:
                    self._closed = True
                    self._ready.notify_all()
                self._on_broken()
                return
