"""All that is known of one host: frames in, report out. The only state of the diagnosis; it reads no
clock and does no I/O, so that the same frames give the same report at any speed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from moetop.diagnose import words
from moetop.diagnose.faults import CLEAN_UP, GAUGE_RULE
from moetop.diagnose.findings import find_all
from moetop.diagnose.gpu import GpuEvidence
from moetop.diagnose.headline import host_headline
from moetop.diagnose.servers import Reading, ServerEvidence
from moetop.diagnose.view import RETUNE_JOB, GpuView, HostView
from moetop.model import (
    PASTED_SAMPLES,
    RECORDING,
    AnyFrame,
    EventKind,
    EventSeverity,
    Finding,
    FindingKind,
    GpuInfo,
    Gpus,
    Hello,
    HostLoad,
    HostReport,
    HostStatus,
    Inventory,
    Link,
    LinkPhase,
    Log,
    LogEvent,
    Server,
    Severity,
    Status,
)
from moetop.trail import Standing

if TYPE_CHECKING:
    from moetop.engines.logbook import LogBook

KERNEL = "kernel"
"""Source of the kernel's own records."""

PASTED_LOG = "pasted"
PASTED = PASTED_SAMPLES | {PASTED_LOG}
"""What `Hello.source` says of pasted text: its times are no clock, nothing in it grows stale."""

SEARCHED, FALLBACK_SMI = "searched", "fallback_smi"
"""What a probe says after its first search for servers, and where only `nvidia-smi` can be asked and none is made."""

GPU_CODES = frozenset(("gpu_lost", "stuck_gpu", "not_permitted"))
"""Conditions of a single GPU, where their detail names one."""


class HostEvidence:
    """Evidence on one host. `window_s` 0 judges single samples. `source` overrides what the probe says
    it read from (a replay is a `recording`)."""

    def __init__(self, name: str, window_s: float = 10.0, *, source: str | None = None) -> None:
        self.name = name
        self.window_s = window_s
        self.source = source
        self.labels: Mapping[str, str] = {}
        self.live = True
        self._hello: Hello | None = None
        self._gpus: dict[int, GpuEvidence] = {}
        self._servers = ServerEvidence(live=True)
        self._statuses: dict[tuple[str, str], Status] = {}
        self._link: Link | None = None
        self._load: HostLoad | None = None
        self._gauge_events: dict[tuple[int, int], LogEvent] = {}
        self._newest: float | None = None
        self._sampled_at: float | None = None
        self._dropped = 0
        self._rejected = 0

    # ── in ───────────────────────────────────────────────────────────────────────────────────────

    @property
    def books(self) -> Mapping[str, LogBook]:
        """Every log being read, by its source; the kernel's is `kernel`."""
        return self._servers.books

    def apply(self, frame: AnyFrame) -> tuple[LogEvent, ...]:
        """Take a frame; the log events it brought."""
        if isinstance(frame, Gpus):
            if self._sampled_at is not None and frame.t < self._sampled_at:
                self._newest = None  # samples come in order: the host's clock was set back
            self._sampled_at = frame.t
            self._tick(frame.t)
            return self._on_gpus(frame)
        if isinstance(frame, Log):
            return self._servers.on_log(frame)
        self._tick(frame.t)
        if isinstance(frame, Hello):
            self._on_hello(frame)
        elif isinstance(frame, Server):
            self._servers.on_server(frame)
        elif isinstance(frame, Inventory):
            self._servers.on_inventory(frame)
        elif isinstance(frame, Status):
            self._on_status(frame)
        return ()

    def standing(self, gpu: int) -> Standing | None:
        """The state of a GPU after its newest sample; None where there was none."""
        known = self._gpus.get(gpu)
        return known.standing() if known is not None else None

    def readings(self, frame: AnyFrame, events: Sequence[LogEvent]) -> list[Reading]:
        """Numbers of servers that a frame just applied brought; `events` are those of that frame."""
        if isinstance(frame, Server):
            return self._servers.told(frame)
        return self._servers.logged(frame, events) if isinstance(frame, Log) else []

    def _on_status(self, frame: Status) -> None:
        """Keep a condition until its code comes again at level info: then it is over. Of one GPU's
        conditions the newest stands: one that fell silent and then was lost is lost."""
        if frame.source is not None and frame.code == "log_behind":
            self._servers.hold(frame.source, frame.t)
        elif frame.source is not None and frame.code == "log_read":
            self._servers.release(frame.source)
        elif frame.code in (SEARCHED, FALLBACK_SMI):
            self._forget_jobs_before_this_probe()
        if frame.code == SEARCHED and frame.detail.get("processes") is True:
            self._servers.on_searched(frame.t)
        gpu = frame.detail.get("gpu", frame.detail.get("index"))
        if gpu is not None and frame.code in GPU_CODES:
            for key in [k for k in self._statuses if k[0] in GPU_CODES and k[1] == str(gpu)]:
                del self._statuses[key]
        key = (frame.code, frame.source or str("" if gpu is None else gpu))
        if frame.level == "info" and not frame.fatal:
            self._statuses.pop(key, None)
        else:
            self._statuses[key] = frame

    def _forget_jobs_before_this_probe(self) -> None:
        """It has looked for retune jobs, or cannot: what the one before it said of them is over."""
        begun = self._hello.t if self._hello is not None else float("-inf")
        for key in [key for key, status in self._statuses.items() if key[0] == RETUNE_JOB and status.t < begun]:
            del self._statuses[key]

    def apply_link(self, link: Link) -> None:
        """Take the state of the connection."""
        self._link = link

    def _tick(self, t: float) -> None:
        if self._newest is None or t > self._newest:
            self._newest = t

    def _on_hello(self, frame: Hello) -> None:
        """Another probe begins, whose conditions are its own; but that a job works on a server stands until this
        probe has looked for it as well."""
        if frame.source in PASTED:
            self.live = self._servers.live = False
        self._newest = frame.t
        self._statuses = {key: status for key, status in self._statuses.items() if key[0] == RETUNE_JOB}
        self._hello = frame
        self._servers.on_hello()
        there = {info.index: info for info in frame.gpus}
        for index in [i for i in self._gpus if i not in there]:
            del self._gpus[index]
        for index, info in there.items():
            known = self._gpus.get(index)
            if known is None or (known.info.uuid, known.info.name) != (info.uuid, info.name):
                self._gpus[index] = GpuEvidence(info, self.window_s)
            else:
                known.inform(info)

    def _on_gpus(self, frame: Gpus) -> tuple[LogEvent, ...]:
        if frame.load is not None:
            self._load = frame.load
        self._dropped = frame.dropped
        self._rejected = frame.rejected
        self._servers.sampled = True
        events: list[LogEvent] = []
        running = self._servers.running(frame.t)
        for sample in frame.gpus:
            gpu = self._gpus.get(sample.index)
            if gpu is None:
                gpu = self._gpus[sample.index] = GpuEvidence(GpuInfo(index=sample.index), self.window_s)
            gpu.take(frame.t, sample, running.get(sample.index, running.get(None)))
            if sample.last_xid:
                events.extend(self._on_gauge(sample.index, sample.last_xid, frame.t))
        return tuple(events)

    def _on_gauge(self, index: int, code: int, t: float) -> list[LogEvent]:
        if (index, code) in self._gauge_events or len(self._gauge_events) >= 256:
            return []
        event = LogEvent(
            kind=EventKind.XID,
            rule=GAUGE_RULE,
            severity=EventSeverity.NOTICE if code == CLEAN_UP else EventSeverity.ERROR,
            line=f"exporter: last Xid of GPU {index} is {code}",
            t=t if self.live else None,
            fields={"code": code, "gpu": index, "root": code != CLEAN_UP},
        )
        self._gauge_events[(index, code)] = event
        return [event]

    # ── out ──────────────────────────────────────────────────────────────────────────────────────

    def report(self, now: float | None = None) -> HostReport:
        """Everything known at `now` (seconds of the frames' clock; None: the newest frame's time)."""
        moment = self._newest if now is None else now
        view = self._view(moment)
        findings = find_all(view)
        gpus = tuple(g.report for g in view.gpus)
        status, error = self._status(view, findings)
        hello = self._hello
        return HostReport(
            name=self.name,
            headline=host_headline(findings, gpus, view.servers),
            status=status,
            error=words.neutral(error) if error is not None else None,
            driver=hello.driver if hello is not None else None,
            source=self._source(),
            gpus=gpus,
            servers=view.servers,
            events=view.kernel_events,
            findings=findings,
            load=self._load,
            notes=self._notes(),
            labels=dict(self.labels),
        )

    def _view(self, now: float | None) -> HostView:
        infos = [gpu.info for gpu in self._gpus.values()]
        servers, runs = self._servers.reports(now, infos)
        gpus = tuple(self._gpus[index].view(now) for index in sorted(self._gpus))
        return HostView(
            name=self.name,
            now=now,
            live=self.live,
            answers=self._answers(gpus),
            link=self._link,
            statuses=tuple(self._statuses.values()),
            gpus=gpus,
            servers=servers,
            kernel_events=(*self._servers.events_of_log(KERNEL), *self._gauge_events.values()),
            runs=runs,
            moved_t=self._servers.moved(),
            pressed_s=self._servers.pressed_s(now),
            unread=self._servers.unread(),
            window_s=self.window_s,
        )

    def _answers(self, gpus: tuple[GpuView, ...]) -> bool:
        """Whether GPU values come in now. What came before a fatal condition is the past."""
        fatal_t = max((s.t for s in self._statuses.values() if s.fatal), default=None)
        if self.live and fatal_t is not None and (self._sampled_at is None or self._sampled_at <= fatal_t):
            return False
        return any(g.figures.n and not g.report.error for g in gpus)

    def _source(self) -> str | None:
        told = self._hello.source if self._hello is not None else None
        if told in PASTED:
            return None if told == PASTED_LOG else told
        if self.source is not None:
            return self.source
        return told or (RECORDING if self._gpus else None)

    def _status(self, view: HostView, findings: tuple[Finding, ...]) -> tuple[HostStatus, str | None]:
        """Whether the host's data can be had, and if not the sentence why."""
        link = self._link
        if link is not None and link.is_lost:
            return HostStatus.UNREACHABLE, link.reason or "the connection is lost"
        fatal = next((s for s in view.statuses if s.fatal), None)
        if fatal is not None and not view.answers:
            return (HostStatus.UNREACHABLE if self.live else HostStatus.DEGRADED), fatal.message
        unreadable = next((f for f in findings if f.kind in _UNREADABLE and f.severity is Severity.CRITICAL), None)
        if unreadable is not None:
            return HostStatus.DEGRADED, unreadable.summary
        if any(s.level in ("warning", "error") and s.code in _DEGRADING for s in view.statuses):
            return HostStatus.DEGRADED, None
        if link is not None and link.phase in (LinkPhase.CONNECTING, LinkPhase.DEGRADED):
            return HostStatus.DEGRADED, link.reason
        if self._gpus and not view.answers:
            return HostStatus.DEGRADED, "no GPU values come in"
        return HostStatus.OK, None

    def _notes(self) -> tuple[str, ...]:
        notes = list(self._hello.notes) if self._hello is not None else []
        notes.extend(s.message for s in self._statuses.values() if s.level in ("warning", "error"))
        if self._dropped > 0:
            lost = words.plural(self._dropped, "reading")
            notes.append(f"{lost} lost on the way: nobody took them in time (a slow link or a busy viewer)")
        if self._rejected > 0:
            left_out = f"{words.plural(self._rejected, 'GPU entry', 'GPU entries')} of the newest sample left out"
            notes.append(f"{left_out}: an index that cannot be or came twice, or a value of a wrong type")
        return tuple(dict.fromkeys(words.neutral(note) for note in notes))


_UNREADABLE = frozenset(
    (FindingKind.NO_DATA, FindingKind.DRIVER_MISMATCH, FindingKind.GPU_LOST, FindingKind.UNREACHABLE)
)
_DEGRADING = frozenset(("fallback_smi", "stuck_gpu", "gpu_lost", "smi_failed", "smi_hang", "smi_missing", "no_nvml"))
