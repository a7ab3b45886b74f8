"""Keeps a log's runs, events and counts: cuts runs, collapses repeats over ranks. Reads no lines."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping

from moetop.engines.entry import Entry, make_entry
from moetop.engines.match import engine_of
from moetop.engines.reader import Record
from moetop.engines.rules import COUNTED, Fields, Rule
from moetop.engines.runs import Run
from moetop.model import Engine, EventKind, EventSeverity, LogEvent

MAX_EVENTS = 2000
"""Events kept of one log; of more, the older ones of little weight go first."""
MAX_COUNTED = 32
"""Newest metric lines kept as events."""
MAX_RUNS = 200
MAX_KEYS = 2000
MAX_SERVICES = 64
"""Services (containers, units) of one log told apart by their prefix."""
SAME_START_S = 10.0
"""The same arguments printed again within this time are the same start (several nodes, one log)."""

_HEAVY = (EventSeverity.FATAL, EventSeverity.ERROR, EventSeverity.WARN, EventSeverity.PERF, EventSeverity.GOOD)
_BANNERS = frozenset({"vl.version", "tl.version"})
_PRELUDE = frozenset(
    {"sgl.moe.sm120", "sgl.moe.backend", "sgl.attn", "sgl.graph.off", "sgl.version", "sgl.triton.determ"}
)
"""Printed while arguments are resolved, before the line that shows them."""


_POINTS_UP = re.compile(r"root cause above|stack trace \(above\)|child proces|one child failed")


class Ledger:
    """Runs, events and counts of one log."""

    def __init__(self) -> None:
        self.runs: list[Run] = [Run(1, 0)]
        self.entries: list[Entry] = []
        self.counted: deque[Entry] = deque(maxlen=MAX_COUNTED)
        self.counts: dict[str, int] = {}
        self.noise = 0
        self.services: dict[str, Run] = {}
        self._prelude: list[Entry] = []
        self._frozen: tuple[LogEvent, ...] | None = None

    @property
    def run(self) -> Run:
        """The newest run."""
        return self.runs[-1]

    def run_of(self, record: Record, unit: str | None = None) -> Run:
        """The run that a record belongs to: the newest, or its own service's where engines share a log.

        `unit` is the service that the record tells of, where it is not the one that wrote it.
        """
        newest = self.run
        own = self.services.get(unit or record.unit or "")
        if own is None or own.engine is None or newest.engine is None or own.engine is newest.engine:
            return newest
        return own

    def is_beside(self, run: Run) -> bool:
        """Whether it is the run of another engine's service, beside the newest."""
        newest = self.run
        return run is not newest and None not in (run.engine, newest.engine) and run.engine is not newest.engine

    def is_followed(self, run: Run) -> bool:
        """Whether a later run came in its place."""
        return run is not self.run and not self.is_beside(run)

    def _run_n(self, n: int) -> Run:
        """The run of this number; the newest where it is no longer kept."""
        return self.runs[n - self.runs[0].n] if n >= self.runs[0].n else self.run

    def add(self, rule: Rule, fields: Fields, record: Record, line: str, n: int, engine: Engine | None) -> Entry:
        """Take in a matched record as an event of its own; `finish` collapses it once it is complete."""
        run = self._cut(rule, record, fields, n)
        self._note_engine(run, rule, record)
        self._note_service(run, rule, record)
        if run.start is None and run.start_text is None:
            run.start, run.start_text, run.start_clock = record.t, record.t_text, record.clock
        run.note(rule, record, fields)
        if rule.kind is EventKind.AUTOTUNE_PROGRESS:
            fields["ranks_finished"] = run.tally.ops.get(str(fields.get("op")), (0, 0, 0))[2]
            fields["ranks_unknown"] = record.rank is None
        entry = make_entry(rule, fields, record, line, n, run.n, run.engine or engine)
        echo = rule.echo and entry.make_key() in run.by_key
        if not echo:
            self.tick(rule.kind, 1, run)
        if rule.id in _PRELUDE:
            self._prelude.append(entry)
        elif rule.severity is not EventSeverity.NOISE:
            self._prelude.clear()
        if rule.is_counted:
            self.noise += 1
            if rule.severity is EventSeverity.METRIC:
                self.counted.append(entry)
        else:
            self._append(entry)
            run.note_entry(entry)
            _point_up(run, entry, record.text)
        return entry

    def finish(self, entry: Entry, echo: bool = False) -> None:
        """Collapse a complete event into an earlier one that it repeats."""
        run = self._run_n(entry.run)
        if entry.rule.severity in COUNTED:
            return
        entry.key = entry.make_key()
        earlier = run.by_key.get(entry.key)
        if earlier is None or earlier is entry:
            if len(run.by_key) < MAX_KEYS:
                run.by_key[entry.key] = entry
            if entry.rule.is_counted:
                self._append(entry)
            return
        if entry.rule.echo or echo:
            entry.count = 0
        earlier.absorb(entry)
        self._remove(entry)
        if run.cause is entry:
            run.cause = earlier

    def same_error(self, entry: Entry) -> Entry | None:
        """An earlier event of the run that already carries this error."""
        error = entry.fields.get("error")
        for other in reversed(self.entries[-200:]):
            if other is not entry and other.run == entry.run and other.fields.get("error") == error is not None:
                return other
        return None

    def merge(self, entry: Entry, into: Entry) -> None:
        """Drop `entry`, which tells nothing that `into` does not."""
        for rank in entry.ranks:
            into.ranks.setdefault(rank, None)
        self._remove(entry)
        run = self._run_n(entry.run)
        if run.cause is entry:
            run.cause = into

    def upgrade(self, entry: Entry, rule: Rule, record: Record) -> None:
        """A traceback turned out to be what `rule` says of its last line."""
        run = self._run_n(entry.run)
        self.tick(entry.kind, -1, run)
        self.tick(rule.kind, 1, run)
        entry.rule = rule
        if run.last_traceback is entry:
            run.last_traceback = None
        run.note(rule, record, entry.fields)
        run.note_entry(entry)
        _point_up(run, entry, record.text)

    def tick(self, kind: EventKind, by: int, run: Run | None = None) -> None:
        """Count lines of a kind, of the newest run if no other is named."""
        add_counts(self.counts, {kind.value: by})
        add_counts((run or self.run).counts, {kind.value: by})

    def count_noise(self, kind: EventKind, by: int) -> None:
        """So many more lines that are only counted."""
        self.noise += by
        self.tick(kind, by)

    def take_counts(self, counts: Mapping[str, int]) -> None:
        """Lines counted elsewhere."""
        add_counts(self.counts, counts)
        add_counts(self.run.counts, counts)
        self.noise += sum(counts.values())

    def events(self) -> tuple[LogEvent, ...]:
        """The kept events in the log's order."""
        if self._frozen is None:
            every = [*self.entries, *self.counted]
            every.sort(key=lambda entry: entry.n)
            self._frozen = tuple(entry.freeze() for entry in every)
        return self._frozen

    def touch(self) -> None:
        """Say that an event may have changed since it was last asked for."""
        self._frozen = None

    # ── runs ─────────────────────────────────────────────────────────────────────────────────────

    def _cut(self, rule: Rule, record: Record, fields: Fields, n: int) -> Run:
        """The run of this line: a new one where the line starts one."""
        run = self.run_of(record, fields.get("unit") if rule.kind is EventKind.EXIT else None)
        if self._is_other_engine(rule, record, run):
            run = self._begin(n)
        if rule.kind is EventKind.SERVER_ARGS:
            if self._starts_anew(run, record, str(fields.get("args"))):
                run = self._begin(n)
            run.args = fields.pop("args", {})
            run.args_line = str(run.args)
            run.clean = True
            port = run.args.get("port")
            run.port = port if isinstance(port, int) else run.port
        elif rule.id in _BANNERS:
            if run.begun or run.args:
                run = self._begin(n)
            run.clean = True
        elif rule.kind is EventKind.WEIGHTS_LOADING and run.restarts(record):
            run = self._begin(n)
        return run

    def _is_other_engine(self, rule: Rule, record: Record, run: Run) -> bool:
        """Whether arguments of one engine come from a service beside the one of another engine."""
        if rule.kind is not EventKind.SERVER_ARGS or len(rule.engines) != 1 or run.engine is None:
            return False
        return rule.engines[0] is not run.engine and record.unit is not None and record.unit not in self.services

    def _starts_anew(self, run: Run, record: Record, args: str) -> bool:
        if run.begun:
            return True
        if run.args_line is None:
            return False
        if run.args_line != args:
            return True
        if record.clock is None or run.start_clock is None:
            return False
        return record.clock - run.start_clock > SAME_START_S

    def _begin(self, n: int) -> Run:
        run = Run(self.run.n + 1, n)
        for entry in self._prelude:
            entry.run = run.n
            run.note_moved(entry)
            add_counts(self.run.counts, {entry.kind.value: -1})
            add_counts(run.counts, {entry.kind.value: 1})
        self._prelude.clear()
        self.run.by_key.clear()
        self.runs.append(run)
        if len(self.runs) > MAX_RUNS:
            del self.runs[0]
        return run

    def _note_service(self, run: Run, rule: Rule, record: Record) -> None:
        """Remember which run a service writes to, once a line shows that it is an engine's (the kernel is none)."""
        known = record.unit in self.services
        shows = len(rule.engines) == 1 and rule.engines[0] is run.engine and len(self.services) < MAX_SERVICES
        if record.unit is not None and (known or shows):
            self.services[record.unit] = run

    def _note_engine(self, run: Run, rule: Rule, record: Record) -> None:
        if len(rule.engines) == 1 and rule.engines[0] is not Engine.FLASHINFER:
            strong = rule.kind is EventKind.SERVER_ARGS or rule.id in _BANNERS
            run.engine = rule.engines[0] if strong or run.engine is None else run.engine
        elif run.engine is None:
            run.engine = engine_of(record)

    # ── bounds ───────────────────────────────────────────────────────────────────────────────────

    def _append(self, entry: Entry) -> None:
        self.entries.append(entry)
        if len(self.entries) > MAX_EVENTS:
            half = MAX_EVENTS // 2
            light = [each for each in self.entries[:half] if each.severity not in _HEAVY]
            drop = {id(each) for each in (light or self.entries[: half // 2])}
            self.entries = [each for each in self.entries if id(each) not in drop]
            for key in [key for key, each in self.run.by_key.items() if id(each) in drop]:
                del self.run.by_key[key]

    def _remove(self, entry: Entry) -> None:
        for at in range(len(self.entries) - 1, max(-1, len(self.entries) - 400), -1):
            if self.entries[at] is entry:
                del self.entries[at]
                return


def _point_up(run: Run, entry: Entry, text: str) -> None:
    """Of a line that says that its cause stands above: whether it does, in this log."""
    if _POINTS_UP.search(text) is not None and entry.severity is EventSeverity.FATAL:
        entry.fields["root_cause_in_excerpt"] = run.cause is not None and run.cause is not entry


def add_counts(counts: dict[str, int], more: Mapping[str, int]) -> None:
    """Add, and drop what became nothing."""
    for kind, number in more.items():
        total = counts.get(kind, 0) + number
        if total > 0:
            counts[kind] = total
        else:
            counts.pop(kind, None)
