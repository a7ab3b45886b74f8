"""What reading a log yields: frozen values for the diagnosis, the screens and the verdict. No logic."""

from __future__ import annotations

from typing import Any

import msgspec

from moetop.model import Engine, LogEvent, Phase, ServerMetrics, ServerRun


class TuningFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a run's lines say about its tuning. Ranks are as printed, `?` where a line names none.

    `ops` maps an operator to its bars as (done, total, bars that reached their end); `zero_saves`
    counts saves of no configuration; `seconds` is the longest finished pass. `entered` is how many
    lines prove that the engine's gate was passed.
    """

    entered: int = 0
    starts: int = 0
    ends: int = 0
    open_ranks: tuple[str, ...] = ()
    ended_ranks: tuple[str, ...] = ()
    since: float | None = None
    since_text: str | None = None
    seconds: float | None = None
    ops: dict[str, tuple[int, int, int]] = {}
    configs_saved: int | None = None
    zero_saves: int = 0
    configs_loaded: int | None = None
    cache_hits: tuple[str, ...] = ()
    cache_entries: int | None = None
    cache_empty_ranks: tuple[str, ...] = ()
    cache_paths: tuple[str, ...] = ()
    rejected: int = 0
    mismatch: dict[str, Any] = {}
    oom_fallbacks: int = 0
    extend_oom: int = 0
    no_entries: int = 0
    disabled: int = 0
    failures: int = 0
    skipped_tactics: int = 0
    uncovered: dict[str, int] = {}
    crashed_inside: bool = False
    tuned_files: tuple[str, ...] = ()
    default_files: tuple[str, ...] = ()
    default_paths: tuple[str, ...] = ()
    fallback_files: tuple[str, ...] = ()
    no_down_files: tuple[str, ...] = ()
    gemm_default_paths: tuple[str, ...] = ()
    deterministic: bool = False
    marlin: bool = False


class LogDigest(msgspec.Struct, frozen=True, kw_only=True):
    """One log as read so far.

    `events` are the newest ones (bounded), repeats over ranks collapsed; `counts` counts every kind
    over the whole log before that, `run_counts` those of the newest run. All else but `runs` speaks
    of the newest run (where engines share a log, of the service that started last; `notes` tell of the others):
    `cause` is the first error of a run that ended badly, `waits` the wait lines since anything else moved.
    `moe_backend_resolved` is whether a line named the backend that was chosen (else it is what the arguments asked
    for). `clean` is false where the reading began in the middle of the run.
    """

    name: str
    engine: Engine | None = None
    version: str | None = None
    versions: dict[str, str] = {}
    args: dict[str, Any] = {}
    model: str | None = None
    port: int | None = None
    tp_size: int | None = None
    device_name: str | None = None
    moe_backend: str | None = None
    moe_backend_resolved: bool = False
    attention_backend: str | None = None
    quantization: str | None = None
    runs: tuple[ServerRun, ...] = ()
    phase: Phase = Phase.UNKNOWN
    phase_since: float | None = None
    ready: bool = False
    clean: bool = False
    waits: int = 0
    cause: LogEvent | None = None
    metrics: ServerMetrics | None = None
    tuning: TuningFacts = TuningFacts()
    events: tuple[LogEvent, ...] = ()
    counts: dict[str, int] = {}
    run_counts: dict[str, int] = {}
    last_t: float | None = None
    last_t_text: str | None = None
    lines: int = 0
    noise: int = 0
    skipped: int = 0
    notes: tuple[str, ...] = ()


class ServerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a server from its process: it outranks what its log says."""

    engine: Engine | None = None
    versions: dict[str, str] = {}
    args: dict[str, Any] = {}
    env: dict[str, str] = {}
    gpu_name: str | None = None
    compute_capability: str | None = None
