"""What is known of a host's servers: processes, logs, counters and tuning files joined into reports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from moetop.diagnose import thresholds as th
from moetop.diagnose.joined import card_of, engine_of, joined_args, log_versions, phase_of
from moetop.diagnose.processes import CLOCK_SLACK_S, KnownServer, pressed_since, sane, takes_place
from moetop.diagnose.view import ENDED, RunEvents, index_run
from moetop.engines.digest import LogDigest, ServerFacts
from moetop.model import (
    EventKind,
    GpuInfo,
    Inventory,
    Log,
    LogEvent,
    Phase,
    Server,
    ServerMetrics,
    ServerReport,
    Tuning,
    TuningFile,
)

if TYPE_CHECKING:
    from moetop.engines.logbook import LogBook

KERNEL = "kernel"
LIVE_TAIL_LINES = 20_000
"""Lines of a log kept for the screen on a live host, about 5 MB (judgement: many hosts fit in 1 GiB)."""

PASTED_TAIL_LINES = 100_000
"""The same for a pasted log: there is only one."""

MAX_BOOKS = 64
"""Logs read at a time; more sources than this on one host are a mistake or an attack."""


RENEW_S = 1.0
"""A reading a second is all that a chart shows."""

NUMBER_KINDS = (EventKind.THROUGHPUT, EventKind.STEP_TIME)
"""Events whose lines hold a server's numbers."""


class _Rest(msgspec.Struct):
    """What a log says since the process that wrote its newest run went: `runs` are those begun by then."""

    runs: int
    book: LogBook
    digest: LogDigest | None = None


class Reading(NamedTuple):
    """Numbers of a server, as its report gives them, and when they were true: seconds of the host's clock."""

    server: str
    t: float
    metrics: ServerMetrics


class ServerEvidence:
    """Processes by name and logs by source. Nothing is judged here but what joins what."""

    def __init__(self, live: bool) -> None:
        self.live = live
        self.sampled = False  # whether GPU samples came: charts begin with them
        self.books: dict[str, LogBook] = {}
        self._known: dict[str, KnownServer] = {}
        self._unseen: set[str] = set()
        self._went: set[str] = set()
        self._read: set[str] = set()
        self._files: dict[str, Inventory] = {}
        self._digests: dict[str, LogDigest] = {}
        self._runs: dict[str, tuple[LogDigest, RunEvents]] = {}
        self._tunings: dict[str, tuple[LogDigest, ServerFacts, Sequence[TuningFile], Tuning]] = {}
        self._no_log = LogDigest(name="")
        self._running: dict[str, tuple[float, float]] = {}
        self._moved: dict[str, float] = {}
        self._pressed: dict[str, tuple[float | None, float]] = {}
        self._run_t: dict[str, tuple[int, float]] = {}
        self._rests: dict[str, _Rest] = {}
        self._held: dict[str, tuple[LogDigest, float]] = {}
        self._renewed: dict[str, float] = {}

    # ── in ───────────────────────────────────────────────────────────────────────────────────────

    def on_log(self, frame: Log) -> tuple[LogEvent, ...]:
        """Read one line; the events it brought."""
        book = self.books.get(frame.source)
        if book is None:
            if len(self.books) >= MAX_BOOKS:
                return ()
            from moetop.engines.logbook import LogBook  # its tables take longer to load than one sample

            kept = LIVE_TAIL_LINES if self.live else PASTED_TAIL_LINES
            book = self.books[frame.source] = LogBook(frame.source, tail_lines=kept)
        self._digests.pop(frame.source, None)
        if frame.skipped or frame.counts:
            book.count(frame.counts, frame.skipped)
        dated = self.live and (not frame.history or frame.source == KERNEL)  # kernel frames carry the record's time
        written_t = frame.t if dated else None
        if self.sampled and not frame.history:
            self._renew(book, frame)
        events = book.feed(frame.line, written_t)
        self._note_run(frame, events)
        rest = self._rests.get(frame.source)
        if rest is not None:
            rest.book.feed(frame.line, written_t)
            rest.digest = None
        if not (frame.history and self.live):
            if frame.counts or any(event.kind is not EventKind.ENGINE_WAIT for event in events):
                self._moved[frame.source] = frame.t
            for event in events:
                running = event.fields.get("running") if event.kind is EventKind.THROUGHPUT else None
                if isinstance(running, (int, float)):
                    self._running[frame.source] = (frame.t, float(running))
            if self.live and any(event.kind in NUMBER_KINDS for event in events):
                self._note_pressure(frame)
        return events

    def _note_pressure(self, frame: Log) -> None:
        speaker = self._speaker(frame.source)
        numbers = sane(speaker.metrics() or ServerMetrics()) if speaker is not None else None
        since = pressed_since(numbers, frame.t, self._pressed.get(frame.source, (None, 0.0))[0])
        self._pressed[frame.source] = (since, frame.t)

    def hold(self, source: str, t: float) -> None:
        """From now on (`t` as the host tells it) lines of the past come in: the first half of them may end in a
        crash of which the second tells the restart. Until `release` the log says what it said before."""
        if source not in self._held and len(self._held) < MAX_BOOKS:
            self._held[source] = (self._digest(source) if source in self.books else self._no_log, t)

    def release(self, source: str | None = None) -> None:
        """The past of a log (None: of every log) is in."""
        if source is None:
            self._held.clear()
        else:
            self._held.pop(source, None)
            self._read.add(source)

    def _release_late(self, now: float) -> None:
        for source in [source for source, (_, t) in self._held.items() if not 0 <= now - t < th.LOG_HELD_S]:
            self.release(source)

    def _note_run(self, frame: Log, events: Iterable[LogEvent]) -> None:
        """Keep when the newest run of a log began."""
        newest = max((event.run for event in events if event.run is not None), default=None)
        known = self._run_t.get(frame.source)
        if newest is not None and (known is None or newest > known[0]):
            self._run_t[frame.source] = (newest, frame.t)
            if not frame.history:  # what was read late began some time before
                for server in self._known.values():
                    if server.frame.source == frame.source:
                        server.note_run(frame.t)

    def moved(self) -> dict[str, float]:
        """When each server's log last told of anything but waiting, by server name."""
        named = {k.frame.source: k.frame.name for k in self._known.values() if k.frame.source}
        return {named.get(source, source): t for source, t in self._moved.items()}

    def pressed_s(self, now: float | None) -> dict[str, float]:
        """For how long each server's readings show more work than room, by server name; those that do not are left
        out. Counters count while they are fresh, then the log."""
        found = {source: t - since for source, (since, t) in self._pressed.items() if since is not None}
        for known in self._known.values():
            name, source = known.frame.name, known.frame.source
            if known.metrics is None or known.metrics_t is None or not self._is_fresh(known.metrics_t, now):
                if source in found:
                    found[name] = found[source]
            elif known.pressed_since is not None:
                found[name] = known.metrics_t - known.pressed_since
        return found

    def on_hello(self) -> None:
        """Another probe begins: what processes there are it tells anew."""
        self.release()
        self._read.clear()
        self._unseen = {name for name, known in self._known.items() if known.frame.pid is not None}

    def on_searched(self, t: float) -> None:
        """The probe's first search is through: a process it did not name went while nobody looked."""
        for name in sorted(self._unseen):
            if not self._known[name].frame.gone:
                self.on_server(Server(t=t, name=name, gone=True))
                self._went.add(name)
        self._unseen.clear()

    def unread(self) -> frozenset[str]:
        """Servers that went while no probe looked and whose logs were not read since."""
        return frozenset(name for name in self._went if self._known[name].frame.source not in self._read)

    def on_server(self, frame: Server) -> None:
        self._unseen.discard(frame.name)
        self._went.discard(frame.name)
        known = self._known.get(frame.name)
        another = known is None or known.is_another(frame)
        if another and frame.source and self._was_left(frame.source, frame.name, known):
            self._close_run(frame.source, frame.started)
        if known is None:
            self._known[frame.name] = KnownServer(frame)
        else:
            known.update(frame)

    def _was_left(self, source: str, name: str, known: KnownServer | None) -> bool:
        """Whether a process that is no more wrote this log: the one before of that name, or one told gone."""
        if known is not None and (known.frame.source == source or source in known.past_sources):
            return True
        others = (k.frame for k in self._known.values() if k.frame.name != name and k.frame.source == source)
        gone = [frame.gone for frame in others]
        return bool(gone) and all(gone)

    def _close_run(self, source: str, started: float | None) -> None:
        """The newest run of a log ended with its process, unless it began after the next one was started."""
        book, began = self.books.get(source), self._run_t.get(source)
        if book is None or (began is not None and started is not None and began[1] >= started - CLOCK_SLACK_S):
            return
        from moetop.engines.logbook import LogBook

        digest = self._read_to_now(source)
        self._rests[source] = _Rest(digest.runs[-1].n if digest.runs else 0, LogBook(source, tail_lines=1))
        for told in (self._running, self._moved, self._pressed):
            told.pop(source, None)

    def on_inventory(self, frame: Inventory) -> None:
        self._files[frame.server] = frame

    # ── numbers for the GPUs ─────────────────────────────────────────────────────────────────────

    def running(self, t: float) -> dict[int | None, float]:
        """Running requests by GPU index; under None for the GPUs no server names."""
        found: dict[int | None, float] = {}
        unplaced: list[float | None] = []
        owned = self._owned()
        for known in self._known.values():
            frame = known.frame
            if frame.gone:
                continue
            value = self._running_of(known, t)
            if frame.gpus:
                if value is not None:
                    found.update(dict.fromkeys(frame.gpus, value))
            else:
                unplaced.append(value)
        unplaced.extend(self._fresh_running(s, t) for s in self.books if s != KERNEL and s not in owned)
        if unplaced and all(v is not None for v in unplaced):
            found[None] = sum(v for v in unplaced if v is not None)
        return found

    def _running_of(self, known: KnownServer, t: float) -> float | None:
        if known.metrics is not None and known.metrics.running is not None and self._is_fresh(known.metrics_t, t):
            return known.metrics.running
        return self._fresh_running(known.frame.source, t)

    def _fresh_running(self, source: str | None, t: float) -> float | None:
        said = self._running.get(source) if source is not None else None
        return said[1] if said is not None and self._is_fresh(said[0], t) else None

    def _is_fresh(self, said_t: float | None, now: float | None) -> bool:
        if not self.live or now is None:
            return True
        return said_t is not None and now - said_t <= th.METRICS_STALE_S

    # ── numbers for the charts ───────────────────────────────────────────────────────────────────

    def told(self, frame: Server) -> list[Reading]:
        """The numbers of a process that were just told."""
        known = self._known.get(frame.name)
        if known is None or frame.metrics is None or frame.gone or known.metrics is None or known.metrics_t is None:
            return []
        if not self._is_fresh(known.metrics_t, frame.t) or self._is_over(frame.source):
            return []
        return [Reading(frame.name, known.metrics_t, known.metrics)]

    def logged(self, frame: Log, events: Iterable[LogEvent]) -> list[Reading]:
        """The numbers that a line just read brought to the servers whose log it is and that tell none themselves."""
        past = frame.history and self.live
        if past or all(event.kind not in NUMBER_KINDS for event in events):
            return []
        speaker = self._speaker(frame.source)
        numbers = speaker.metrics() if speaker is not None else None
        if numbers is None or self._is_over(frame.source):
            return []
        t = frame.t if numbers.t is None else min(frame.t, numbers.t)
        return [Reading(name, t, sane(numbers)) for name in self._counted_by(frame)]

    def _counted_by(self, frame: Log) -> list[str]:
        """Servers whose numbers only this log tells now."""
        mine = [k for k in self._known.values() if k.frame.source == frame.source and not k.frame.gone]
        if not mine:
            return [frame.source] if frame.source != KERNEL and frame.source not in self._owned() else []
        return [k.frame.name for k in mine if k.metrics is None or not self._is_fresh(k.metrics_t, frame.t)]

    def _renew(self, book: LogBook, frame: Log) -> None:
        """Once a second of the log let its metric lines be read one by one, however seldom a report is asked for."""
        since = self._renewed.get(frame.source)
        if since is None or not 0 <= frame.t - since < RENEW_S:
            self._renewed[frame.source] = frame.t
            if self._counted_by(frame):
                book.renew()

    def _is_over(self, source: str | None) -> bool:
        """Whether the log tells of a server that ended: its last numbers are not its present ones."""
        speaker = self._speaker(source)
        return speaker is not None and speaker.phase in ENDED

    # ── out ──────────────────────────────────────────────────────────────────────────────────────

    def events_of_log(self, source: str) -> tuple[LogEvent, ...]:
        """Every event of one log."""
        return tuple(self._digest(source).events) if source in self.books else ()

    def reports(
        self, now: float | None, infos: Sequence[GpuInfo]
    ) -> tuple[tuple[ServerReport, ...], dict[str, RunEvents]]:
        """Every server, those found as processes first, then logs without one; and their newest runs."""
        if now is not None:
            self._release_late(now)
        reports: list[ServerReport] = []
        runs: dict[str, RunEvents] = {}
        for known in self._known.values():
            if known.frame.gone and self._is_succeeded(known):
                continue
            report = self._report(known.frame.name, known, known.frame.source, now, infos)
            reports.append(report)
            runs[report.name] = self._run_events(known.frame.source)
        owned = self._owned()
        for source in self.books:
            if source != KERNEL and source not in owned:
                reports.append(self._report(source, None, source, now, infos))
                runs[source] = self._run_events(source)
        return tuple(reports), runs

    def _owned(self) -> set[str]:
        """Logs of processes, those that are gone as well: what such a process wrote is no server of its own."""
        owned = {k.frame.source for k in self._known.values() if k.frame.source}
        return owned.union(*(k.past_sources for k in self._known.values()))

    def _is_succeeded(self, gone: KnownServer) -> bool:
        """Whether another process has taken the place of one that is gone."""
        return any(takes_place(other.frame, gone) for other in self._known.values() if other is not gone)

    def _speaker(self, source: str | None) -> LogBook | None:
        """The reader of what a log says of the process that writes it now."""
        if source is None:
            return None
        book, rest = self.books.get(source), self._rests.get(source)
        return book if book is None or rest is None or book.newest_run > rest.runs else rest.book

    def _spoken(self, source: str | None) -> LogDigest:
        """What a log says of the process that writes it now."""
        if source is None or source not in self.books:
            return self._no_log
        digest, rest = self._digest(source), self._rests.get(source)
        if rest is None:
            return digest
        if digest.runs and digest.runs[-1].n > rest.runs:
            del self._rests[source]
            return digest
        if rest.digest is None:
            rest.digest = rest.book.digest()
        return rest.digest

    def _digest(self, source: str) -> LogDigest:
        """What a log says, which while its past comes in is what it said before."""
        held = self._held.get(source)
        return held[0] if held is not None else self._read_to_now(source)

    def _read_to_now(self, source: str) -> LogDigest:
        digest = self._digests.get(source)
        if digest is None:
            digest = self._digests[source] = self.books[source].digest()
        return digest

    def _run_events(self, source: str | None) -> RunEvents:
        if source is None or source not in self.books:
            return RunEvents()
        digest = self._spoken(source)
        cached = self._runs.get(source)
        if cached is None or cached[0] is not digest:
            run, whole = index_run(digest), self._digest(source)
            if whole is not digest:
                run = msgspec.structs.replace(run, kernel=index_run(whole).kernel)
            cached = self._runs[source] = (digest, run)
        return cached[1]

    def _report(
        self, name: str, known: KnownServer | None, source: str | None, now: float | None, infos: Sequence[GpuInfo]
    ) -> ServerReport:
        digest = self._spoken(source)
        whole = self._digest(source) if source is not None and source in self.books else digest
        frame = known.frame if known is not None else None
        is_followed = known is not None and now is not None and self.live and known.is_followed(now)
        if frame is not None and is_followed:
            frame = msgspec.structs.replace(frame, gone=False, pid=None, started=None, healthy=None)
            known = None  # its numbers are its own
        engine = engine_of(frame.engine if frame is not None else None) or digest.engine
        versions = {**log_versions(digest), **(frame.versions if frame is not None else {})}
        args = joined_args(digest.args, frame.args if frame is not None else {})
        metrics = self._metrics(known, source, digest, now)
        phase = phase_of(digest.phase, frame, metrics)
        if is_followed and phase is Phase.READY:
            phase = Phase.UNKNOWN  # not without its process
        if phase in ENDED:
            metrics = None  # its last numbers are among the events
        gpus = frame.gpus if frame is not None else ()
        inventory = self._files.get(name)
        facts = ServerFacts(
            engine=engine,
            versions=versions,
            args=args,
            env=frame.env if frame is not None else {},
            **card_of(infos, gpus),
        )
        files = inventory.files if inventory is not None else ()
        return ServerReport(
            name=name,
            engine=engine,
            version=versions.get(str(engine)) if engine is not None else None,
            versions=versions,
            pid=frame.pid if frame is not None else None,
            argv=frame.argv if frame is not None else (),
            args=args,
            env=frame.env if frame is not None else {},
            port=frame.port if frame is not None else None,
            manager=frame.manager if frame is not None else None,
            log=frame.log if frame is not None else None,
            source=source,
            phase=phase,
            ready=(digest.ready or phase is Phase.READY) and phase not in ENDED and not is_followed,
            gone=frame.gone if frame is not None else False,
            metrics=metrics,
            tuning=self._tuning(name, digest, facts, files),
            files=files,
            gpus=gpus,
            runs=tuple(whole.runs),
            events=tuple(whole.events),
            counts=dict(whole.counts),
            notes=(
                *(frame.notes if frame is not None else ()),
                *(inventory.notes if inventory is not None else ()),
                *digest.notes,
            ),
        )

    def _tuning(self, name: str, digest: LogDigest, facts: ServerFacts, files: Sequence[TuningFile]) -> Tuning:
        cached = self._tunings.get(name)
        if cached is None or cached[0] is not digest or cached[1] != facts or cached[2] != files:
            from moetop.engines.verdict import judge_tuning

            cached = self._tunings[name] = (digest, facts, files, judge_tuning(digest, facts, files))
        return cached[3]

    def _metrics(
        self, known: KnownServer | None, source: str | None, digest: LogDigest, now: float | None
    ) -> ServerMetrics | None:
        if known is not None and known.metrics is not None and self._is_fresh(known.metrics_t, now):
            return known.metrics
        said = self._running.get(source) if source is not None else None
        fresh = not self.live or (said is not None and self._is_fresh(said[0], now))
        return sane(digest.metrics) if digest.metrics is not None and fresh else None
