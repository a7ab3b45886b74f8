"""One serving process as a host tells of it, and who takes the place of whom. Reads no log."""

from __future__ import annotations

import math

import msgspec

from moetop.diagnose import thresholds as th
from moetop.model import Server, ServerMetrics

RESTART_S = 60.0
"""A successor may be seen so long before its predecessor is told gone (judgement: /proc is looked at every few
seconds, and a process that stops can take a while)."""

CLOCK_SLACK_S = 2.0
"""Start times come from the kernel's clock ticks, log lines from the wall clock."""


MAX_PAST_SOURCES = 64
"""Logs that one name may have had."""

MOST = 1e12
"""No count of requests and no rate of a server is larger: such a number is a fault of who wrote it (judgement)."""

KV_MOST_PCT = 101.0
"""A cache cannot be fuller than full; a ratio is rounded."""


class KnownServer:
    """A server process as last told, and when. `alive_t` is when it was last told to be there,
    `pressed_since` when the first of the readings was true that up to the newest all show more work than room."""

    def __init__(self, frame: Server) -> None:
        self.frame = frame
        self.heard_t = self.alive_t = frame.t
        self.metrics = sane(frame.metrics) if frame.metrics is not None else None
        self.metrics_t = told_at(frame)
        self.pressed_since = pressed_since(self.metrics, self.metrics_t, None)
        self.past_sources: set[str] = set()
        self._begun_t: float | None = None
        self._next_t: float | None = None

    def update(self, frame: Server) -> None:
        if frame.gone and not frame.argv:
            frame = msgspec.structs.replace(self.frame, gone=True, t=frame.t, notes=frame.notes or self.frame.notes)
        if self.frame.source is not None and len(self.past_sources) < MAX_PAST_SOURCES:
            self.past_sources.add(self.frame.source)
        if self.is_another(frame):
            self.metrics = self.metrics_t = self.pressed_since = None
        if frame.metrics is not None:
            self.metrics, self.metrics_t = sane(frame.metrics), told_at(frame)
            self.pressed_since = pressed_since(self.metrics, self.metrics_t, self.pressed_since)
        if not frame.gone:
            self.alive_t, self._next_t = frame.t, None
        elif not self.frame.gone and self._begun_t is not None:
            own = self._begun_t <= max(self.alive_t, frame.t - CLOCK_SLACK_S)
            self._next_t = None if own else self._begun_t
        self.frame, self.heard_t = frame, frame.t

    def note_run(self, t: float) -> None:
        """A run begins in its log now: of a process that is gone no more, so the next one's."""
        self._begun_t = t
        if self.frame.gone and self._next_t is None:
            self._next_t = t

    def is_followed(self, now: float) -> bool:
        """Whether it is gone and its log tells of a start since, whose process may not have been found yet. Counted
        from the first such start: a process that is never found is not about to be."""
        return self.frame.gone and self._next_t is not None and 0 <= now - self._next_t < th.UNSEEN_START_S

    def is_another(self, frame: Server) -> bool:
        """Whether `frame` tells of a process that came after this one: another pid, or one of the same number
        that started after this one was last heard of (a host's clock that was set moves no start so far)."""
        if frame.gone:
            return False
        if frame.pid != self.frame.pid:
            return frame.pid is not None and self.frame.pid is not None
        started = frame.started
        newer = started is not None and self.frame.started is not None and started > self.frame.started
        return newer and started is not None and started > self.alive_t - CLOCK_SLACK_S


def is_cache_full(metrics: ServerMetrics) -> bool:
    return metrics.kv_usage_pct is not None and metrics.kv_usage_pct >= th.KV_FULL_PCT


def is_queue_longer(metrics: ServerMetrics) -> bool:
    """Whether more requests wait than run."""
    return metrics.waiting is not None and metrics.running is not None and metrics.waiting > metrics.running


def pressed_since(metrics: ServerMetrics | None, t: float | None, before: float | None) -> float | None:
    """Since when readings show more work than room; None where the newest one, true at `t`, does not."""
    if metrics is None or t is None:
        return None
    still = before is not None and metrics.kv_usage_pct is not None and metrics.kv_usage_pct >= th.KV_CALM_PCT
    if not (still or is_cache_full(metrics) or is_queue_longer(metrics)):
        return None
    return t if before is None or t < before else before


def told_at(frame: Server) -> float | None:
    """When the numbers of a frame were true: it may repeat old ones."""
    if frame.metrics is None:
        return None
    return frame.t if frame.metrics.t is None else min(frame.t, frame.metrics.t)


def takes_place(frame: Server, gone: KnownServer) -> bool:
    """Whether a process that is there has the log, or the port, GPUs or command of one that is gone."""
    mine = gone.frame
    if frame.gone:
        return False
    if frame.source and frame.source == mine.source:
        return True
    later = frame.started is not None and frame.started >= gone.heard_t - RESTART_S
    apart = bool(frame.gpus) and bool(mine.gpus) and not set(frame.gpus) & set(mine.gpus)
    if frame.port is not None and frame.port == mine.port:
        return later or not apart  # containers each have a port 8000 of their own
    alike = bool(frame.argv) and frame.argv == mine.argv
    return later and (alike or bool(set(frame.gpus) & set(mine.gpus)))


def sane(metrics: ServerMetrics) -> ServerMetrics:
    """The numbers with those left out that cannot be: negative, without end, a cache fuller than full."""
    bad: dict[str, None] = {}
    for name, most in _MOST.items():
        value = getattr(metrics, name)
        if value is not None and not (math.isfinite(value) and 0 <= value <= most):
            bad[name] = None
    return msgspec.structs.replace(metrics, **bad) if bad else metrics


_MOST: dict[str, float] = {
    "running": MOST,
    "waiting": MOST,
    "prompt_tokens_s": MOST,
    "generation_tokens_s": MOST,
    "kv_usage_pct": KV_MOST_PCT,
}
