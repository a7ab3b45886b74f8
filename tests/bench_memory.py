"""Memory over 12 hours of replayed time at high speed: it grows until the history is full (6 h), then not."""

from __future__ import annotations

import gc

from moetop.recording import Malformed, Unknown, clean
from moetop.watch import Watch
from tests.bench_frames import frames
from tests.bench_kit import Figure, rss_mib

GPUS = 2
HOURS = 12
HISTORY_HOURS = 6


def figures() -> list[Figure]:
    """One host with a server and its log, a report a minute, as a screen keeps it."""
    watch = Watch(10.0, live=False)
    before = rss_mib()
    rows = []
    second = 0
    full = before
    for line in frames(1, GPUS, 1_000_000.0):
        if line.startswith(b'{"type":"gpus"'):
            second += 1
            if second % 60 == 0:
                watch.report("bench")
            if second % 7200 == 0:
                gc.collect()
                now = rss_mib()
                hours = second // 3600
                full = now if hours <= HISTORY_HOURS else full
                against, other = ("at 6 h", full) if hours > HISTORY_HOURS else ("", None)
                rows.append(Figure(f"resident after {hours} h", now, "MiB", against, other))
            if second >= HOURS * 3600:
                break
        frame, raw = clean(line)
        if not isinstance(frame, (Malformed, Unknown)):
            watch.frame("bench", frame, raw)
    grown = full - before
    rows.append(Figure("history of one GPU, 6 h at 1 Hz", grown / GPUS, "MiB", note="with its share of the log"))
    return rows
