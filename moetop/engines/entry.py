"""One event while a log is being read: it grows with repeats over ranks. Becomes a frozen LogEvent."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from moetop.engines.fields import MAX_LIST
from moetop.engines.reader import Record
from moetop.engines.rules import Fields, Rule
from moetop.model import Engine, EventKind, EventSeverity, LogEvent
from moetop.text import plain

MAX_RANKS = 1024
LINE_LIMIT = 4096
_RANK_IN_PATH = re.compile(r"rank_?(?:tp\d+|pp\d+|dp\d+|_|\d+)+")
_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\d+")

SAME_BY: dict[EventKind, tuple[str, ...]] = {
    EventKind.MOE_CONFIG_DEFAULT: ("file",),
    EventKind.MOE_CONFIG_TUNED: ("file",),
    EventKind.MOE_CONFIG_FALLBACK: ("file",),
    EventKind.MOE_CONFIG_NO_DOWN_VARIANT: ("file",),
    EventKind.GEMM_CONFIG_DEFAULT: ("file",),
    EventKind.AUTOTUNE_START: ("tokens", "layer", "path"),
    EventKind.AUTOTUNE_END: (),
    EventKind.AUTOTUNE_PROGRESS: ("op",),
    EventKind.AUTOTUNE_TACTIC_SKIPPED: ("op", "reason"),
    EventKind.AUTOTUNE_OOM_FALLBACK: (),
    EventKind.AUTOTUNE_UNCOVERED_SHAPE: ("op",),
    EventKind.AUTOTUNE_CACHE_SIZE: ("entries",),
    EventKind.AUTOTUNE_CACHE_SAVED: ("configs", "path"),
    EventKind.AUTOTUNE_CACHE_LOADED: ("configs", "path"),
    EventKind.AUTOTUNE_CACHE_REJECTED: ("path",),
    EventKind.WEIGHTS_PROGRESS: (),
    EventKind.WEIGHTS_LOADED: (),
    EventKind.WEIGHTS_LOADING: (),
    EventKind.JIT_PROGRESS: ("what",),
    EventKind.GRAPH_CAPTURE: ("mode", "what"),
    EventKind.GRAPH_CAPTURE_START: ("what",),
    EventKind.GRAPH_PROFILING: (),
    EventKind.KV_CACHE: (),
    EventKind.WARMUP: (),
    EventKind.COMPILE_CACHE_SAVED: (),
    EventKind.READY: (),
    EventKind.ENGINE_WAIT: (),
    EventKind.HEALTH_FAILED: (),
    EventKind.XID: ("code", "pci"),
    EventKind.GPU_LOST: ("pci",),
    EventKind.NCCL_TIMEOUT: (),
    EventKind.NCCL_TRANSPORT: ("via",),
    EventKind.CRASH: ("error",),
    EventKind.TRACEBACK: ("error",),
    EventKind.ENGINE_START_FAILED: ("error",),
    EventKind.ENGINE_DEAD: (),
    EventKind.SHUTDOWN: ("what",),
    EventKind.EXIT: ("unit", "status"),
    EventKind.OOM: ("device",),
    EventKind.MONITORING_GAP: (),
}
"""Fields in which two lines of one rule must agree to be one event; kinds not listed: all fields."""

ONE_A_RUN = (EventKind.READY, EventKind.NCCL_TIMEOUT)
"""Said in several wordings by one server: one event a run whatever row matched."""

NEWEST_WINS = (
    EventKind.AUTOTUNE_PROGRESS,
    EventKind.WEIGHTS_PROGRESS,
    EventKind.JIT_PROGRESS,
    EventKind.GRAPH_CAPTURE,
    EventKind.AUTOTUNE_CACHE_SIZE,
)
"""Kinds whose newest line replaces the values of the earlier ones."""


_WRITER = ("process", "worker", "pid", "host")
"""Who wrote a line: dropped from an event that several wrote."""


@dataclass(slots=True)
class Entry:
    """An event under construction; `n` is the number of its first line, `run` of its run."""

    rule: Rule
    fields: Fields
    line: str
    n: int
    run: int
    engine: Engine | None
    t: float | None = None
    t_text: str | None = None
    ranks: dict[str, None] = field(default_factory=dict)
    count: int = 1
    key: tuple[object, ...] = ()

    @property
    def kind(self) -> EventKind:
        return self.rule.kind

    @property
    def severity(self) -> EventSeverity:
        return self.rule.severity

    def make_key(self) -> tuple[object, ...]:
        """What another line must share to be the same event."""
        kind = self.kind
        if kind in ONE_A_RUN:
            return (kind,)
        names = SAME_BY.get(kind)
        if names is None:
            names = tuple(name for name in self.fields if name not in (*_WRITER, "rank"))
        return (self.rule.id, *(_same(self.fields.get(name)) for name in names))

    def absorb(self, other: Entry) -> None:
        """Take in a repeat of this event."""
        self.count += other.count
        for rank in other.ranks:
            if len(self.ranks) < MAX_RANKS:
                self.ranks[rank] = None
        for name, value in other.fields.items():
            mine = self.fields.get(name)
            if name in _WRITER:
                if mine is not None and mine != value:
                    del self.fields[name]
            elif isinstance(mine, list) and isinstance(value, list) and name in ("tactics", "metrics"):
                mine.extend(item for item in value if item not in mine and len(mine) < MAX_LIST)
            elif mine is None or self.kind in NEWEST_WINS:
                self.fields[name] = value
        if other.t_text is not None and other.t_text != self.t_text:
            self.fields["last_t_text"] = other.t_text

    def freeze(self) -> LogEvent:
        """The event as others see it."""
        return LogEvent(
            kind=self.kind,
            rule=self.rule.id,
            severity=self.severity,
            line=self.line,
            t=self.t,
            t_text=self.t_text,
            run=self.run,
            engine=self.engine,
            ranks=tuple(self.ranks),
            count=self.count,
            fields=dict(self.fields),
        )


def _same(value: object) -> object:
    """`value` without what differs between ranks."""
    if isinstance(value, str):
        return _NUMBERS.sub("#", value) if len(value) > 60 and ":" in value else _RANK_IN_PATH.sub("rank", value)
    if isinstance(value, list | dict):
        return str(value)
    return value


def make_entry(rule: Rule, fields: Fields, record: Record, line: str, n: int, run: int, engine: Engine | None) -> Entry:
    """The entry of one record, with who wrote it among its fields."""
    for name in ("process", "worker", "pid", "host", "unit", "repeated"):
        value = getattr(record, name)
        if value is not None and name not in fields:
            fields[name] = value
    entry = Entry(
        rule=rule,
        fields=fields,
        line=plain(record.line or line, LINE_LIMIT),
        n=n,
        run=run,
        engine=rule.engines[0] if len(rule.engines) == 1 else engine,
        t=record.t,
        t_text=plain(record.t_text, 64) if record.t_text is not None else None,
    )
    if record.rank is not None:
        entry.ranks[record.rank] = None
    return entry
