"""Evidence and history of every watched host behind one lock: what screens and writers read.

Frames come in from supervisor threads; reports go out on demand. It starts nothing and opens nothing.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from moetop import __version__
from moetop.cards import Cards, moved
from moetop.diagnose.fleet import compare_hosts
from moetop.diagnose.headline import fleet_headline
from moetop.diagnose.host import HostEvidence
from moetop.history import GpuHistory, ServerHistory
from moetop.hostclock import HostClock
from moetop.model import (
    AnyFrame,
    Gpus,
    Hello,
    HostReport,
    Link,
    LinkPhase,
    LogEvent,
    LogLine,
    Server,
    Snapshot,
    Status,
)
from moetop.trail import StateTrail

RECENT_EVENTS = 2000
"""New log events kept per host for marks on the charts (judgement: an hour of a noisy start)."""

REPORT_S = 1.0
"""A report older than this is made anew; one from the future too: our clock was set back."""

STILL_S = 3.0
"""Nothing at all went on for so long: this process was stopped, slept, or its clock was set (links are given up
after three seconds of silence, which is told; a screen looks several times a second)."""

RESUME_S = 3.0
"""Afterwards hosts are judged at their own newest sample for so long, until they are heard again."""

NO_SAMPLE = "its GPUs were named and not one sample of them came"

FEWEST_TO_COMPARE = 3
"""A host that differs from its peers needs two that agree."""

WAIT_SLICE_S = 0.2
"""A long wait on a lock can swallow control-C (seen with CPython 3.11); short ones do not."""


class _Host:
    """One host: evidence, link, history, and the report last made of them."""

    def __init__(self, name: str, window_s: float, source: str | None) -> None:
        self.evidence = HostEvidence(name, window_s, source=source)
        self.link = Link()
        self.hello: Hello | None = None
        self.cards = Cards()
        self.histories: dict[int, GpuHistory] = {}
        self.trails: dict[int, StateTrail] = {}
        self.server_histories: dict[str, ServerHistory] = {}
        self.recent: deque[LogEvent] = deque(maxlen=RECENT_EVENTS)
        self.statuses: dict[str, Status] = {}
        self.first_t: float | None = None
        self.probe_first_t: float | None = None
        self.last_t: float | None = None
        self.clock = HostClock()
        self.servers: dict[str, Server] = {}
        self.scanned: set[str] = set()
        self.dirty = True
        self.report: HostReport | None = None
        self.reported_at = 0.0


class Watch:
    """Thread-safe state of a fleet. `live` hosts are judged at this machine's clock, so that a host
    that stopped sending grows stale; a replay is judged at its own newest frame. `source` overrides what
    the frames say they were read from (a replay is a `recording`)."""

    def __init__(
        self,
        window_s: float,
        *,
        live: bool = True,
        source: str | None = None,
        keep_history: bool = True,
        clock: Callable[[], float] = time.time,
        on_frame: Callable[[str, bytes], None] | None = None,
    ) -> None:
        self.window_s = window_s
        self.live = live
        self.generation = 0
        self._source = source
        self._keep_history = keep_history
        self._clock = clock
        self._on_frame = on_frame
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._hosts: dict[str, _Host] = {}
        self._forgotten: set[str] = set()
        self._alive_at = clock()
        self._resumed_at = float("-inf")
        self._compared: dict[str, HostReport] = {}
        self._compared_at = float("-inf")

    # ── in: called by supervisors ────────────────────────────────────────────────────────────────

    def expect(self, host: str, labels: Mapping[str, str] = MappingProxyType({})) -> None:
        """Name a host before anything is heard of it, so that it has a row at once; `labels` go into its reports."""
        with self._changed:
            self._forgotten.discard(host)
            entry = self._known(host)
            entry.evidence.labels, entry.dirty = labels, True
            self._touch()

    def restart(self, host: str) -> None:
        """Forget all that was heard of a host, but keep its place."""
        with self._changed:
            self._hosts[host] = _Host(host, self.window_s, self._source)
            self._touch()

    def forget(self, host: str) -> None:
        """Drop a host; what its supervisor still says is passed over until it is expected again."""
        with self._changed:
            self._hosts.pop(host, None)
            self._compared.pop(host, None)
            self._forgotten.add(host)
            self._touch()

    def frame(self, host: str, frame: AnyFrame, raw: bytes) -> None:
        if self._on_frame is not None:
            self._on_frame(host, raw)
        with self._changed:
            if host in self._forgotten:
                return
            entry = self._known(host)
            events = entry.evidence.apply(frame)
            entry.recent.extend(events)
            self._note(entry, frame)
            if self._keep_history:
                self._chart(entry, frame, events)
            entry.dirty = True
            self._touch()

    def link(self, host: str, link: Link) -> None:
        with self._changed:
            if host in self._forgotten:
                return
            entry = self._known(host)
            self._notice_time()
            entry.link = link
            if link.phase is LinkPhase.CONNECTING and not link.is_lost:
                entry.probe_first_t = None  # a probe that replaces another: what that one sampled may not count
            entry.evidence.apply_link(link)
            entry.dirty = True
            self._touch()

    def _known(self, host: str) -> _Host:
        """A host, new where nothing was heard of it."""
        entry = self._hosts.get(host)
        if entry is None:
            entry = self._hosts[host] = _Host(host, self.window_s, self._source)
        return entry

    def _note(self, entry: _Host, frame: AnyFrame) -> None:
        if isinstance(frame, Gpus):
            entry.first_t = frame.t if entry.first_t is None else entry.first_t
            entry.probe_first_t = frame.t if entry.probe_first_t is None else entry.probe_first_t
            entry.last_t = frame.t
            entry.clock.note(self._notice_time(), frame.t)
        elif isinstance(frame, Hello):
            entry.hello = frame
            origins = entry.cards.name(frame.gpus)
            entry.histories, entry.trails = moved(entry.histories, origins), moved(entry.trails, origins)
        elif isinstance(frame, Server):
            if frame.gone:
                entry.servers.pop(frame.name, None)
            else:
                entry.servers[frame.name] = frame
        elif isinstance(frame, Status):
            entry.statuses[frame.code] = frame
            if frame.code in ("log_read", "log_missing", "log_denied") and frame.source:
                entry.scanned.add(frame.source)

    @staticmethod
    def _chart(entry: _Host, frame: AnyFrame, events: Sequence[LogEvent]) -> None:
        """Add what a frame brought to the series; a past that comes in at once fills them as well as the present."""
        if isinstance(frame, Gpus):
            for sample in frame.gpus:
                history = entry.histories.get(sample.index)
                if history is None:
                    history = entry.histories[sample.index] = GpuHistory()
                history.add(frame.t, sample)
                standing = entry.evidence.standing(sample.index)
                if standing is not None:
                    entry.trails.setdefault(sample.index, StateTrail()).add(frame.t, standing)
            return
        for reading in entry.evidence.readings(frame, events):
            entry.server_histories.setdefault(reading.server, ServerHistory()).add(reading.t, reading.metrics)

    def _touch(self) -> None:
        self.generation += 1
        self._changed.notify_all()

    # ── out: read by screens and writers ─────────────────────────────────────────────────────────

    def names(self) -> list[str]:
        with self._lock:
            return list(self._hosts)

    def _entry(self, host: str) -> _Host:
        """A host; one that was forgotten since its name was read is as one of which nothing is known yet."""
        return self._hosts.get(host) or _Host(host, self.window_s, self._source)

    def link_of(self, host: str) -> Link:
        return self._entry(host).link  # one look-up, so that drawing never waits for the lock

    def last_report(self, host: str) -> HostReport | None:
        """The report last made of a host, None before the first. Answers at once, whatever comes in meanwhile."""
        compared = self._compared.get(host) if len(self._hosts) >= FEWEST_TO_COMPARE else None
        return compared or self._entry(host).report

    def hello(self, host: str) -> Hello | None:
        """What the host said of itself, once it did."""
        with self._lock:
            return self._entry(host).hello

    def report(self, host: str) -> HostReport:
        """The host's present report, compared with its equals once a second."""
        with self._lock:
            if len(self._hosts) < FEWEST_TO_COMPARE:
                return self._own_report(host)
            if host not in self._compared or not 0 <= self._clock() - self._compared_at < REPORT_S:
                self._compare()
            return self._compared.get(host) or self._own_report(host)

    def _compare(self) -> None:
        reports = compare_hosts([self._own_report(name) for name in self._hosts])
        self._compared = {report.name: report for report in reports}
        self._compared_at = self._clock()

    def _own_report(self, host: str) -> HostReport:
        """What the host's own evidence gives; made anew only when something came in or a second passed."""
        with self._lock:
            entry = self._entry(host)
            now = self._clock()
            if entry.report is None or entry.dirty or (self.live and not 0 <= now - entry.reported_at < REPORT_S):
                entry.report = entry.evidence.report(self._judged_at(entry, now))
                entry.reported_at = now
                entry.dirty = False
            return entry.report

    def _judged_at(self, entry: _Host, now: float) -> float | None:
        self._notice_time()
        offset_s = entry.clock.offset_s
        if not self.live or offset_s is None or entry.link.phase is LinkPhase.FINISHED:
            return None
        return None if now - self._resumed_at < RESUME_S else now - offset_s

    def _notice_time(self) -> float:
        """Our clock; notices when this process itself stood still."""
        now = self._clock()
        if now - self._alive_at > STILL_S:
            self._resumed_at = now
        self._alive_at = now
        return now

    def history(self, host: str, gpu: int) -> GpuHistory | None:
        with self._lock:
            return self._entry(host).histories.get(gpu)

    def states(self, host: str, gpu: int) -> StateTrail | None:
        with self._lock:
            return self._entry(host).trails.get(gpu)

    def server_history(self, host: str, server: str) -> ServerHistory | None:
        with self._lock:
            return self._entry(host).server_histories.get(server)

    def recent_events(self, host: str) -> list[LogEvent]:
        """Events that came in while watching, oldest first."""
        with self._lock:
            return list(self._entry(host).recent)

    def sources(self, host: str) -> list[str]:
        with self._lock:
            return list(self._entry(host).evidence.books)

    def tail(self, host: str, source: str) -> Sequence[LogLine]:
        with self._lock:
            book = self._entry(host).evidence.books.get(source)
            return list(book.tail) if book is not None else []

    def statuses(self, host: str) -> Mapping[str, Status]:
        with self._lock:
            return dict(self._entry(host).statuses)

    def host_now(self, host: str) -> float | None:
        """The present time on the host's own clock, seconds; its newest frame in a replay."""
        with self._lock:
            entry = self._entry(host)
            judged_at = self._judged_at(entry, self._clock())
            return entry.last_t if judged_at is None else judged_at

    def last_t(self, host: str) -> float | None:
        with self._lock:
            return self._entry(host).last_t

    def snapshot(self, taken_at: float | None) -> Snapshot:
        """The whole fleet as `--snapshot` writes it. `taken_at` is epoch seconds."""
        with self._lock:
            self._compare()
            reports = tuple(self._compared.values())
        return Snapshot(
            moetop=__version__,
            taken_at=taken_at,
            window_s=self.window_s,
            headline=fleet_headline(reports),
            hosts=reports,
        )

    # ── waiting ──────────────────────────────────────────────────────────────────────────────────

    def wait(self, enough: Callable[[], bool], timeout_s: float | None) -> bool:
        """Block until `enough()` holds (asked after every change) or `timeout_s` (None: no end) is over."""
        end = None if timeout_s is None else time.monotonic() + timeout_s
        with self._changed:
            while not enough():
                left_s = WAIT_SLICE_S if end is None else min(WAIT_SLICE_S, end - time.monotonic())
                if left_s <= 0:
                    return False
                self._changed.wait(left_s)
            return True

    def is_finished(self, host: str) -> bool:
        """Whether a replay or a single sample has come to its end."""
        return self._entry(host).link.phase is LinkPhase.FINISHED

    def give_up_on_silent(self) -> None:
        """Before a last report: hosts that never answered are lost, of those that named GPUs and sent no sample of
        them there is no data. One that named none was watched for what it has (a log alone)."""
        with self._changed:
            for name, entry in self._hosts.items():
                if entry.first_t is not None or any(status.fatal for status in entry.statuses.values()):
                    continue
                if entry.link.phase is LinkPhase.CONNECTING:
                    reason = entry.link.reason or "no answer in time"
                    self.link(name, Link(phase=LinkPhase.LOST, code="timeout", reason=reason))
                elif entry.hello is not None and entry.hello.gpus and entry.link.phase is not LinkPhase.LOST:
                    entry.evidence.apply(Status(t=entry.hello.t, code="no_sample", message=NO_SAMPLE, fatal=True))
                    entry.dirty = True

    def is_sampled(self, host: str, span_s: float) -> bool:
        """Whether samples of `host` span `span_s` seconds, those of its new probe where one was replaced, or none will
        ever come."""
        entry = self._entry(host)
        if entry.link.phase in (LinkPhase.LOST, LinkPhase.FINISHED):
            return True
        if any(status.fatal for status in entry.statuses.values()):
            return True
        if entry.probe_first_t is None or entry.last_t is None:
            return False
        return entry.last_t - entry.probe_first_t >= span_s

    def is_searched(self, host: str) -> bool:
        """Whether the search for servers and the first reading of their logs are through."""
        entry = self._entry(host)
        if entry.link.phase in (LinkPhase.LOST, LinkPhase.FINISHED):
            return True
        if "no_server" in entry.statuses or "fallback_smi" in entry.statuses:
            return True
        searched = entry.statuses.get("searched")
        named = searched.detail.get("logs", ()) if searched is not None else ()
        if isinstance(named, list) and not all(log in entry.scanned for log in named if isinstance(log, str)):
            return False
        logs = {server.source: server.log for server in entry.servers.values() if server.source}
        return (bool(entry.servers) or searched is not None) and all(
            source in entry.scanned or (place is not None and place.kind != "file" and source in entry.evidence.books)
            for source, place in logs.items()
        )
