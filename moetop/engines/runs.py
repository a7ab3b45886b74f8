"""One start of a server within a log: its phase, what it runs, its events by key. Reads no lines."""

from __future__ import annotations

from typing import Any

from moetop.engines.entry import MAX_RANKS, Entry
from moetop.engines.metrics import LogMetrics
from moetop.engines.reader import Record
from moetop.engines.rules import Fields, Rule
from moetop.engines.tally import TuningTally
from moetop.model import Engine, EventSeverity, Phase, ServerRun
from moetop.model import EventKind as K

LOADING_KINDS = frozenset(
    {
        K.WEIGHTS_LOADING,
        K.WEIGHTS_PROGRESS,
        K.WEIGHTS_LOADED,
        K.KV_CACHE,
        K.WARMUP,
        K.JIT_START,
        K.JIT_KERNEL,
        K.JIT_PROGRESS,
        K.COMPILE_CACHE_SAVED,
        K.GRAPH_PROFILING,
    }
)
CAPTURE_KINDS = frozenset({K.GRAPH_CAPTURE_START, K.GRAPH_CAPTURE})
SERVING_KINDS = frozenset({K.READY, K.THROUGHPUT, K.STEP_TIME})
CRASH_KINDS = frozenset({K.CRASH, K.ENGINE_DEAD, K.ENGINE_START_FAILED, K.NCCL_TIMEOUT})
FATAL_CAUSES = CRASH_KINDS | {K.OOM, K.ECC_ERROR}
OVER = frozenset({Phase.CRASHED, Phase.STOPPED, Phase.EXITED})
CAUSE_WINDOW_LINES = 200
"""A traceback this close before the first fatal line is its cause; an older one is another story."""
TERMINATION_STATUSES = frozenset({0, 143, 15})
"""0 and death by SIGTERM: ends that somebody asked for."""


LIVED_S = 30.0
"""Numbers of running requests this long after a fatal line prove that the server lives: what a dying one still
prints comes within seconds (SGLang kills its processes at once, vLLM's clients end within their 10 s of statistics)."""
RESTART_S = 5.0
"""No start reaches its weights sooner: Python's imports alone take this long."""
SURVIVABLE = frozenset({"g.uncaught", "g.uncaught.start", "g.bind", "g.argparse"})
"""Ends of one Python process, which may be a helper's: whatever works on afterwards takes it back."""


MAX_UNITS = 16


def _same_unit(one: str, other: str) -> bool:
    """Whether two names mean one service: `vllm.service` and `vllm`, `sglang-1` and `sglang`."""
    first, second = one.removesuffix(".service"), other.removesuffix(".service")
    return first.startswith(second) or second.startswith(first)


class Run:
    """The mutable side of a `ServerRun`."""

    def __init__(self, n: int, first_line: int) -> None:
        self.n = n
        self.first_line = first_line
        self.start: float | None = None
        self.start_text: str | None = None
        self.start_clock: float | None = None
        self.phase = Phase.UNKNOWN
        self.phase_since: float | None = None
        self.ready = False
        self.clean = False
        self.engine: Engine | None = None
        self.versions: dict[str, str] = {}
        self.args: dict[str, Any] = {}
        self.args_line: str | None = None
        self.port: int | None = None
        self.device_name: str | None = None
        self.moe_backend: str | None = None
        self.attention_backend: str | None = None
        self.waits = 0
        self.soft_crash = False
        self.crash_clock: float | None = None
        self.before_crash = Phase.UNKNOWN
        self.survivable = False
        self.last_clock: float | None = None
        self.loading: set[str] = set()
        self.units: set[str] = set()
        self.cause: Entry | None = None
        self.last_traceback: Entry | None = None
        self.tally = TuningTally()
        self.metrics = LogMetrics()
        self.counts: dict[str, int] = {}
        self.by_key: dict[tuple[object, ...], Entry] = {}

    @property
    def begun(self) -> bool:
        """Whether more than its arguments is known of it."""
        return self.phase is not Phase.UNKNOWN

    def freeze(self, *, followed: bool = False) -> ServerRun:
        """The run as others see it. One that drained when the next start of its server came (`followed`) is over,
        though a wrapper or a kill kept its last line from the log."""
        drained = followed and self.phase is Phase.DRAINING
        return ServerRun(
            n=self.n,
            start=self.start,
            start_text=self.start_text,
            phase=Phase.STOPPED if drained else self.phase,
            phase_since=self.phase_since,
        )

    def note(self, rule: Rule, record: Record, fields: Fields) -> None:
        """Take in one matched line: what the run is, and where it stands."""
        self.tally.note(rule, record, fields)
        if record.unit is not None and rule.kind is not K.EXIT and len(self.units) < MAX_UNITS:
            self.units.add(record.unit)
        self.note_identity(rule, fields)
        if rule.kind is K.ENGINE_WAIT:
            self.waits += 1
        elif rule.severity is not EventSeverity.NOISE:
            self.waits = 0
        if rule.kind is K.WEIGHTS_LOADING and len(self.loading) < MAX_RANKS:
            self.loading.add(record.rank or "")
        if rule.kind in (K.THROUGHPUT, K.STEP_TIME):
            self.metrics.note(record, fields)
        self._move(rule, record, fields)
        self.last_clock = record.clock if record.clock is not None else self.last_clock

    def restarts(self, record: Record) -> bool:
        """Whether weights that begin to load here belong to the next start, though no arguments were printed.

        After a crash the other ranks of the same start may still begin to load.
        """
        if self.phase in (Phase.EXITED, Phase.STOPPED):
            return True
        if self.phase is not Phase.CRASHED or not (self.ready or (record.rank or "") in self.loading):
            return False
        if record.clock is None or self.crash_clock is None:
            return self.ready
        return record.clock - self.crash_clock > RESTART_S

    def note_identity(self, rule: Rule, fields: Fields) -> None:
        """What the run is: backends, versions, device."""
        kind = rule.kind
        if kind is K.MOE_BACKEND_SELECTED:
            self.moe_backend = str(fields.get("backend"))
        elif kind is K.ATTENTION_BACKEND_SELECTED:
            self.attention_backend = str(fields.get("backend"))
        elif kind is K.READY and isinstance(fields.get("port"), int):
            self.port = fields["port"]
        if rule.id == "vl.engine":
            for name in ("model", "tensor_parallel_size", "quantization", "enforce_eager"):
                if name in fields:
                    self.args.setdefault(name, fields[name])
        if rule.id == "vl.listen":
            port = str(fields.get("url", "")).rsplit(":", 1)[-1].rstrip("/")
            self.port = int(port) if port.isascii() and port.isdigit() else self.port
        if "device_name" in fields:
            self.device_name = fields["device_name"]
        if "flashinfer" in fields:
            self.versions["flashinfer"] = str(fields["flashinfer"])
        if rule.id in ("vl.version", "vl.engine", "tl.version", "sgl.version") and "version" in fields:
            self.versions["engine"] = str(fields["version"])
        mismatch = fields.get("mismatch")
        if isinstance(mismatch, dict) and "flashinfer_version" in mismatch:
            self.versions["flashinfer"] = mismatch["flashinfer_version"][1]

    def _set(self, phase: Phase, record: Record) -> None:
        if phase is not self.phase:
            self.phase = phase
            self.phase_since = record.t

    def _move(self, rule: Rule, record: Record, fields: Fields) -> None:
        kind = rule.kind
        if kind in SERVING_KINDS:
            self._serve(record, fields)
        elif kind is K.HTTP_ACCESS:
            self._answer(fields)
        elif kind in CRASH_KINDS and rule.severity is EventSeverity.FATAL:
            self._crash(rule, record)
        elif kind in (K.OOM, K.ECC_ERROR) and rule.severity is EventSeverity.FATAL:
            if self.phase not in OVER:
                self.before_crash = self.phase
                self._set(Phase.CRASHED, record)
                self.soft_crash, self.survivable = True, False
                self.crash_clock = record.clock if record.clock is not None else self.last_clock
        elif kind is K.SHUTDOWN:
            self._shut(rule, record, fields)
        elif kind is K.EXIT:
            self._exit(record, fields)
        elif self.phase in (Phase.READY, Phase.DRAINING) or (self.phase in OVER and not self.soft_crash):
            return
        elif self.tally.open and (kind in (K.AUTOTUNE_START, K.AUTOTUNE_PROGRESS) or rule.id == "vl.tune.cache"):
            self._set(Phase.TUNING, record)
        elif kind in CAPTURE_KINDS:
            self.tally.close(record.rank)
            self._set(Phase.TUNING if self.tally.open else Phase.CAPTURING, record)
        elif kind is K.AUTOTUNE_END or (kind is K.AUTOTUNE_NO_ENTRIES and self.phase is Phase.TUNING):
            if kind is K.AUTOTUNE_NO_ENTRIES:
                self.tally.close(record.rank)
            self._set(Phase.TUNING if self.tally.open else Phase.LOADING, record)
        elif kind in LOADING_KINDS and not self.tally.open and self.phase is not Phase.CAPTURING:
            self._set(Phase.LOADING, record)

    def _crash(self, rule: Rule, record: Record) -> None:
        soft = rule.id in SURVIVABLE
        if soft and self.phase in (*OVER, Phase.DRAINING) and not self.soft_crash:
            return
        if self.phase is not Phase.CRASHED:
            self.before_crash = self.phase
        self._set(Phase.CRASHED, record)
        self.soft_crash = self.survivable = soft
        self.crash_clock = record.clock if record.clock is not None else self.last_clock

    def _outlived(self, record: Record, fields: Fields) -> bool:
        """Whether requests run, or it calls itself ready, long after a crash that nothing survives in full."""
        if self.phase is not Phase.CRASHED or record.clock is None or self.crash_clock is None:
            return False
        works = fields.get("running", 1)
        return record.clock - self.crash_clock > LIVED_S and isinstance(works, int | float) and works > 0

    def _answer(self, fields: Fields) -> None:
        """A request was answered: the end of one Python process was not the server's."""
        if self.survivable and self.phase is Phase.CRASHED and fields.get("status") == 200:
            self.phase, self.soft_crash, self.cause = self.before_crash, False, None

    def _serve(self, record: Record, fields: Fields) -> None:
        if self.phase in OVER:
            if not self.soft_crash and not self._outlived(record, fields):
                return
            self.cause = None
        self.soft_crash = False
        self.ready = True
        self.tally.close(None)
        if self.phase is not Phase.DRAINING:
            self._set(Phase.READY, record)

    def _shut(self, rule: Rule, record: Record, fields: Fields) -> None:
        if self.phase in OVER and not self.soft_crash:
            return
        if rule.severity is EventSeverity.FATAL:
            if self.phase is not Phase.DRAINING:
                self._set(Phase.CRASHED, record)
                self.soft_crash = False
        elif rule.id == "g.down.done" or fields.get("remaining") == 0:
            self._set(Phase.STOPPED, record)
            self.ready = False
        else:
            self._set(Phase.DRAINING, record)
            self.ready = False

    def _exit(self, record: Record, fields: Fields) -> None:
        unit = fields.get("unit")
        if isinstance(unit, str) and self.units and not any(_same_unit(unit, own) for own in self.units):
            return
        self.ready = False
        if self.phase in OVER and not self.soft_crash:
            return
        asked = self.phase is Phase.DRAINING or self.phase is Phase.STOPPED
        status = fields.get("status")
        if asked or status in TERMINATION_STATUSES:
            self._set(Phase.STOPPED if asked else Phase.EXITED, record)
        else:
            if self.phase not in OVER:
                self.before_crash = self.phase
            self._set(Phase.CRASHED, record)
            self.survivable = unit is None  # a shell may speak of another process that it started
            self.crash_clock = record.clock if record.clock is not None else self.last_clock

    def note_moved(self, entry: Entry) -> None:
        """Take over an event that was printed before this run's arguments."""
        self.note_identity(entry.rule, entry.fields)
        self.by_key[entry.key] = entry
        self.start, self.start_text = (
            (entry.t, entry.t_text) if self.start_text is None else (self.start, self.start_text)
        )

    def note_entry(self, entry: Entry) -> None:
        """Remember the first error of a run that ends badly."""
        if entry.kind is K.TRACEBACK:
            self.last_traceback = entry
        if self.cause is not None or entry.severity is not EventSeverity.FATAL:
            return
        if entry.kind in FATAL_CAUSES or entry.kind is K.SHUTDOWN:
            before = self.last_traceback
            near = before is not None and before is not entry and entry.n - before.n <= CAUSE_WINDOW_LINES
            self.cause = before if near else entry

    def fatal_cause(self) -> Entry | None:
        """The first error, where the run did end badly.

        Of a failed start it says whether the record itself tells why, or only that it failed: a line that points
        further up says so where it is read.
        """
        cause = self.cause if self.phase is Phase.CRASHED else None
        if cause is not None and cause.kind is K.ENGINE_START_FAILED:
            cause.fields.setdefault("root_cause_in_excerpt", "error" in cause.fields or not cause.rule.block)
        return cause
