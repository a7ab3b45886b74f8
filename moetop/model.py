"""The vocabulary: frames, GPU states, log events, findings. No I/O, no clock, no imports of ours.

Units stand in the names: `_pct` percent 0..100, `_w` watts, `_mib` MiB, `_mhz` MHz, `_c` degrees
Celsius, `_s` seconds, `_mib_s` MiB a second. `None` means "not available"; it is never shown as 0.
Times `t` are epoch seconds on a live host and any zero in a recording.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Union

import msgspec


class Word(str, Enum):
    """Base of the closed sets: a member is its own JSON word."""

    def __str__(self) -> str:
        return str(self.value)


# ── closed sets ──────────────────────────────────────────────────────────────────────────────────


class GpuState(Word):
    """What a GPU did over a window; docs/verdicts.md explains each."""

    IDLE = "idle"
    HOST_BOUND = "host_bound"
    TRANSFER_BOUND = "transfer_bound"
    SM_UNDERUSED = "sm_underused"
    TENSOR_STARVED = "tensor_starved"
    VECTOR_BOUND = "vector_bound"
    MEMORY_BOUND = "memory_bound"
    BALANCED = "balanced"
    TENSOR_BUSY = "tensor_busy"
    UNKNOWN = "unknown"


EPOCH_FLOOR_S = 1e9
"""Times below (September 2001) are not epoch seconds but counted from a recording's own zero."""

RECORDING = "recording"
"""What a report calls a replay as its source."""

PASTED_SAMPLES = frozenset(("csv", "dmon", "table", "dcgm"))
"""Sources of pasted samples: without a date they have an order and no times."""


class Confidence(Word):
    """How a state or finding is known."""

    MEASURED = "measured"
    REPORTED = "reported"
    INFERRED = "inferred"


class Limit(Word):
    """What holds a GPU back, beside its state."""

    SW_POWER_CAP = "sw_power_cap"
    HW_SLOWDOWN = "hw_slowdown"
    SW_THERMAL = "sw_thermal"
    HW_THERMAL = "hw_thermal"
    HW_POWER_BRAKE = "hw_power_brake"
    SYNC_BOOST = "sync_boost"
    APPS_CLOCK = "apps_clock"
    DISPLAY_CLOCK = "display_clock"
    LIMIT_UNDER_DEFAULT = "limit_under_default"
    CLOCK_LOW_UNEXPLAINED = "clock_low_unexplained"


class Severity(Word):
    """Gravity of a finding."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


class FindingKind(Word):
    """Everything moetop can conclude about a host."""

    UNREACHABLE = "unreachable"
    NO_DATA = "no_data"
    DRIVER_MISMATCH = "driver_mismatch"
    GPU_LOST = "gpu_lost"
    CRASHED = "crashed"
    GPU_FAULT = "gpu_fault"
    COLLECTIVE_HANG = "collective_hang"
    TUNING_FAILED = "tuning_failed"
    HW_SLOWDOWN = "hw_slowdown"
    THERMAL_THROTTLE = "thermal_throttle"
    CLOCK_STUCK_LOW = "clock_stuck_low"
    GHOST_BUSY = "ghost_busy"
    IDLE_SPIN = "idle_spin"
    UNTUNED_KERNELS = "untuned_kernels"
    TUNING_OFF = "tuning_off"
    PARTLY_TUNED = "partly_tuned"
    SLOW_KERNEL_PATH = "slow_kernel_path"
    LAUNCH_BOUND = "launch_bound"
    COMMS_BOUND = "comms_bound"
    STRAGGLER = "straggler"
    POWER_LIMIT_LOW = "power_limit_low"
    POWER_CAPPED = "power_capped"
    TENSOR_STARVED = "tensor_starved"
    STARVATION_SIGNATURE = "starvation_signature"
    OVERLOADED = "overloaded"


FINDING_RANK: dict[FindingKind, int] = {
    kind: rank
    for rank, kinds in enumerate(
        (
            (FindingKind.UNREACHABLE, FindingKind.NO_DATA, FindingKind.DRIVER_MISMATCH, FindingKind.GPU_LOST),
            (FindingKind.CRASHED,),
            (FindingKind.GPU_FAULT,),
            (FindingKind.COLLECTIVE_HANG,),
            (FindingKind.TUNING_FAILED,),
            (FindingKind.HW_SLOWDOWN, FindingKind.THERMAL_THROTTLE, FindingKind.CLOCK_STUCK_LOW),
            (FindingKind.GHOST_BUSY, FindingKind.IDLE_SPIN),
            (FindingKind.UNTUNED_KERNELS, FindingKind.TUNING_OFF, FindingKind.PARTLY_TUNED),
            (FindingKind.SLOW_KERNEL_PATH, FindingKind.LAUNCH_BOUND),
            (FindingKind.COMMS_BOUND, FindingKind.STRAGGLER),
            (FindingKind.POWER_LIMIT_LOW, FindingKind.POWER_CAPPED),
            (FindingKind.TENSOR_STARVED,),
            (FindingKind.STARVATION_SIGNATURE,),
            (FindingKind.OVERLOADED,),
        ),
        start=1,
    )
    for kind in kinds
}
"""Rank 1 is gravest; the headline is the gravest finding of severity warning or worse."""


class Calm(Word):
    """Headlines when no finding of severity warning or worse stands."""

    TUNING = "tuning"
    LOADING = "loading"
    STOPPED = "stopped"
    MIXED = "mixed"
    HEALTHY = "healthy"
    IDLE = "idle"
    NO_FINDING = "no_finding"


class Phase(Word):
    """Where a server run stands; `unknown` when no line gives a phase."""

    LOADING = "loading"
    TUNING = "tuning"
    CAPTURING = "capturing"
    READY = "ready"
    DRAINING = "draining"
    STOPPED = "stopped"
    CRASHED = "crashed"
    EXITED = "exited"
    UNKNOWN = "unknown"


class Verdict(Word):
    """What is known of a run's kernel tuning."""

    TUNED = "tuned"
    PARTLY_TUNED = "partly_tuned"
    UNTUNED = "untuned"
    NEVER_RAN = "never_ran"
    OFF = "off"
    RUNNING = "running"
    FAILED = "failed"
    NOT_TUNABLE = "not_tunable"
    UNKNOWN = "unknown"


class EventSeverity(Word):
    """Weight of a log line; `noise` and `metric` lines are counted, not listed."""

    GOOD = "good"
    INFO = "info"
    NOTICE = "notice"
    WARN = "warn"
    PERF = "perf"
    ERROR = "error"
    FATAL = "fatal"
    METRIC = "metric"
    NOISE = "noise"


class EventKind(Word):
    """Engine-neutral meaning of a log line; `LogEvent.rule` names the row that matched."""

    ATTENTION_BACKEND_SELECTED = "attention_backend_selected"
    AUTOTUNE_CACHE_HIT = "autotune_cache_hit"
    AUTOTUNE_CACHE_LOADED = "autotune_cache_loaded"
    AUTOTUNE_CACHE_REJECTED = "autotune_cache_rejected"
    AUTOTUNE_CACHE_SAVED = "autotune_cache_saved"
    AUTOTUNE_CACHE_SIZE = "autotune_cache_size"
    AUTOTUNE_DISABLED = "autotune_disabled"
    AUTOTUNE_END = "autotune_end"
    AUTOTUNE_FAILED = "autotune_failed"
    AUTOTUNE_NO_ENTRIES = "autotune_no_entries"
    AUTOTUNE_OOM_FALLBACK = "autotune_oom_fallback"
    AUTOTUNE_PROGRESS = "autotune_progress"
    AUTOTUNE_START = "autotune_start"
    AUTOTUNE_TACTIC_SKIPPED = "autotune_tactic_skipped"
    AUTOTUNE_UNCOVERED_SHAPE = "autotune_uncovered_shape"
    COMPILE_CACHE_SAVED = "compile_cache_saved"
    CRASH = "crash"
    CUDAGRAPHS_DISABLED = "cudagraphs_disabled"
    CUSTOM_ALLREDUCE_DISABLED = "custom_allreduce_disabled"
    DRIVER_MISMATCH = "driver_mismatch"
    ECC_ERROR = "ecc_error"
    ENGINE_DEAD = "engine_dead"
    ENGINE_START_FAILED = "engine_start_failed"
    ENGINE_WAIT = "engine_wait"
    EXIT = "exit"
    GEMM_CONFIG_DEFAULT = "gemm_config_default"
    GPU_LOST = "gpu_lost"
    GRAPH_CAPTURE = "graph_capture"
    GRAPH_CAPTURE_START = "graph_capture_start"
    GRAPH_PROFILING = "graph_profiling"
    HEALTH_FAILED = "health_failed"
    HTTP_ACCESS = "http_access"
    JIT_KERNEL = "jit_kernel"
    JIT_PROGRESS = "jit_progress"
    JIT_START = "jit_start"
    KV_CACHE = "kv_cache"
    MOE_BACKEND_FALLBACK = "moe_backend_fallback"
    MOE_BACKEND_SELECTED = "moe_backend_selected"
    MOE_CONFIG_DEFAULT = "moe_config_default"
    MOE_CONFIG_FALLBACK = "moe_config_fallback"
    MOE_CONFIG_NO_DOWN_VARIANT = "moe_config_no_down_variant"
    MOE_CONFIG_SAVED = "moe_config_saved"
    MOE_CONFIG_TUNED = "moe_config_tuned"
    MONITOR_ERROR = "monitor_error"
    MONITORING_GAP = "monitoring_gap"
    NCCL_TIMEOUT = "nccl_timeout"
    NCCL_TRANSPORT = "nccl_transport"
    NOTE = "note"
    OOM = "oom"
    READY = "ready"
    SERVER_ARGS = "server_args"
    SHUTDOWN = "shutdown"
    STEP_TIME = "step_time"
    THROUGHPUT = "throughput"
    TRACEBACK = "traceback"
    WARMUP = "warmup"
    WEIGHTS_LOADED = "weights_loaded"
    WEIGHTS_LOADING = "weights_loading"
    WEIGHTS_PROGRESS = "weights_progress"
    XID = "xid"


class Engine(Word):
    """Serving engines (FlashInfer is a library inside them, but its lines carry its own name)."""

    SGLANG = "sglang"
    VLLM = "vllm"
    TENSORRT_LLM = "tensorrt_llm"
    FLASHINFER = "flashinfer"


class HostStatus(Word):
    """Whether a host's data can be had."""

    OK = "ok"
    DEGRADED = "degraded"
    UNREACHABLE = "unreachable"


class LinkPhase(Word):
    """State of one host's supervisor."""

    CONNECTING = "connecting"
    WATCHING = "watching"
    DEGRADED = "degraded"
    LOST = "lost"
    FINISHED = "finished"


# ── frames: what travels from a probe, one JSON object a line ───────────────────────────────────


class Frame(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True):
    """A line of a stream or a recording. `host` is required only where several share a file."""

    t: float
    host: str | None = None


class GpuInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A GPU's constants, read once. `absent` maps a key here to why it is None."""

    index: int
    uuid: str | None = None
    pci_bus_id: str | None = None
    name: str | None = None
    compute_capability: str | None = None
    memory_total_mib: float | None = None
    power_limit_default_w: float | None = None
    sm_clock_max_mhz: float | None = None
    gpm: bool | None = None
    mig: bool | None = None
    unified_memory: bool | None = None
    pcie_gen_max: int | None = None
    pcie_width_max: int | None = None
    absent: dict[str, str] = {}
    error: str | None = None


class Hello(Frame, frozen=True, kw_only=True, tag="hello", omit_defaults=False):
    """First frame of a session: who answers and what it can see.

    `source` is `nvml` or `nvidia-smi`; `notes` are sentences on what could not be seen and why.
    """

    schema: int = 1
    driver: str | None = None
    gpus: tuple[GpuInfo, ...] = ()
    source: str | None = None
    nvml_version: str | None = None
    user: str | None = None
    python: str | None = None
    hostname: str | None = None
    cpus: int | None = None
    memory_total_mib: float | None = None
    notes: tuple[str, ...] = ()


class Gpm(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """One guarded GPM sample pair (nvmlGpm*, Hopper and later). A bad pair is no Gpm at all."""

    sm_active_pct: float | None = None
    sm_occupancy_pct: float | None = None
    tensor_pct: float | None = None
    dram_pct: float | None = None
    fp16_pct: float | None = None
    fp32_pct: float | None = None
    fp64_pct: float | None = None
    int_pct: float | None = None
    pcie_rx_mib_s: float | None = None
    pcie_tx_mib_s: float | None = None
    nvlink_rx_mib_s: float | None = None
    nvlink_tx_mib_s: float | None = None


class GpuProcess(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """A process on a GPU as NVML names it. `user`/`name` are None where not permitted to look."""

    pid: int
    user: str | None = None
    name: str | None = None
    memory_used_mib: float | None = None


class GpuSample(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One reading of one GPU.

    `pcie_rx_mib_s`/`pcie_tx_mib_s` are the driver's own counters where GPM gives none (pasted dmon).
    `last_xid` is the newest Xid an exporter names for this GPU; it stays when the fault is over.
    `clock_event_reasons` is NVML's bit mask. `processes` is None when this sample did not list them
    (they are read more seldom), `processes_why` says why a list can never be had. `error` is set
    (`gpu_lost`, `stuck`, ...) when the GPU could not be read at all.
    """

    index: int
    util_gpu_pct: float | None = None
    util_mem_pct: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    temp_c: float | None = None
    memory_temp_c: float | None = None
    memory_used_mib: float | None = None
    memory_total_mib: float | None = None
    sm_clock_mhz: float | None = None
    mem_clock_mhz: float | None = None
    clock_event_reasons: int | None = None
    gpm: Gpm | None = None
    pcie_gen: int | None = None
    pcie_width: int | None = None
    pcie_rx_mib_s: float | None = None
    pcie_tx_mib_s: float | None = None
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    last_xid: int | None = None
    energy_j: float | None = None
    processes: tuple[GpuProcess, ...] | None = None
    processes_why: str | None = None
    absent: dict[str, str] = {}
    error: str | None = None


class HostLoad(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Host CPU and memory beside the GPUs."""

    cpu_pct: float | None = None
    load1: float | None = None
    memory_used_mib: float | None = None
    memory_total_mib: float | None = None


class Gpus(Frame, frozen=True, kw_only=True, tag="gpus", omit_defaults=True):
    """One reading of all GPUs. `dropped` counts the readings lost so far because nobody took them, `rejected`
    the GPUs of this frame that the reader left out since they were none (an index out of range)."""

    gpus: tuple[GpuSample, ...] = ()
    load: HostLoad | None = None
    dropped: int = 0
    rejected: int = 0


class Log(Frame, frozen=True, kw_only=True, tag="log", omit_defaults=True):
    """A log line. `source` names the log; `kernel` is the kernel's own (Xid lines).

    `offset` resumes the reading (bytes, journal cursor or timestamp). `history` marks lines that
    the scan of the existing log found. `skipped` lines without an event went before this one and
    were counted on the host by kind in `counts`.
    """

    source: str
    line: str
    offset: int | str | None = None
    history: bool = False
    skipped: int = 0
    counts: dict[str, int] = {}


class LogPlace(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a server's standard output goes.

    `kind` is file, journal, container, command, terminal, pipe, or none; `why` and `fix` are words
    for the last three.
    """

    kind: str
    target: str | None = None
    why: str | None = None
    fix: str | None = None


class ServerMetrics(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """Numbers of a server, from its own endpoint or its log's periodic lines."""

    running: float | None = None
    waiting: float | None = None
    prompt_tokens_s: float | None = None
    generation_tokens_s: float | None = None
    kv_usage_pct: float | None = None
    source: str | None = None
    t: float | None = None


class Server(Frame, frozen=True, kw_only=True, tag="server", omit_defaults=True):
    """A serving process found on the host, sent when it appears, changes, reports numbers or goes.

    `source` is the name of its log in Log frames. `env` holds relevant names only, secrets already
    replaced. `manager` is `systemd:UNIT`, `docker:ID`, `podman:ID`, `plain`, or None.
    """

    name: str
    pid: int | None = None
    engine: str | None = None
    versions: dict[str, str] = {}
    argv: tuple[str, ...] = ()
    args: dict[str, Any] = {}
    env: dict[str, str] = {}
    cwd: str | None = None
    user: str | None = None
    port: int | None = None
    started: float | None = None
    manager: str | None = None
    log: LogPlace | None = None
    source: str | None = None
    gpus: tuple[int, ...] = ()
    metrics: ServerMetrics | None = None
    healthy: bool | None = None
    gone: bool = False
    notes: tuple[str, ...] = ()


class TuningFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A cache or configuration file a server would read, there or not.

    `role` says which (flashinfer_cache, triton_config, trtllm_cache, ...); `stale` is why it would
    be ignored; `facts` are its metadata and the operators it covers.
    """

    path: str
    role: str
    exists: bool
    stale: str | None = None
    mtime: float | None = None
    size: int | None = None
    facts: dict[str, Any] = {}


class Inventory(Frame, frozen=True, kw_only=True, tag="inventory", omit_defaults=True):
    """Tuning files of one server."""

    server: str
    files: tuple[TuningFile, ...] = ()
    notes: tuple[str, ...] = ()


class Status(Frame, frozen=True, kw_only=True, tag="status", omit_defaults=True):
    """Health of the probe or the connection: `code` for programs, `message` for people.

    `level` is info, warning or error. `fatal` means no GPU data will come from this session.
    """

    code: str
    message: str
    level: str = "info"
    fatal: bool = False
    source: str | None = None
    detail: dict[str, Any] = {}


AnyFrame = Union[Hello, Gpus, Log, Server, Inventory, Status]


# ── what reading the evidence yields ─────────────────────────────────────────────────────────────


class LogEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A log line (or several, collapsed over ranks) that means something.

    `t` is epoch seconds or None where the log gives no year or zone (`t_text` is what it printed).
    `ranks` are as printed (`TP0`, `DP0 TP1`); `count` is how many lines were collapsed into it.
    """

    kind: EventKind
    rule: str
    severity: EventSeverity
    line: str
    t: float | None = None
    t_text: str | None = None
    run: int | None = None
    engine: Engine | None = None
    ranks: tuple[str, ...] = ()
    count: int = 1
    fields: dict[str, Any] = {}


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a log as kept for the screen. `n` counts the lines of this log from 0."""

    n: int
    text: str
    t: float | None = None
    kind: EventKind | None = None
    severity: EventSeverity | None = None
    elided: int = 0


class ServerRun(msgspec.Struct, frozen=True, kw_only=True):
    """One start of a server within a log."""

    n: int
    start: float | None = None
    start_text: str | None = None
    phase: Phase = Phase.UNKNOWN
    phase_since: float | None = None


class Tuning(msgspec.Struct, frozen=True, kw_only=True):
    """The tuning verdict of a server's newest run with the sentences that carry it."""

    verdict: Verdict = Verdict.UNKNOWN
    evidence: tuple[str, ...] = ()
    remedy: tuple[str, ...] = ()


class ServerReport(msgspec.Struct, frozen=True, kw_only=True):
    """A server as diagnosed: process, log and numbers together (snapshot `servers[]`). `source` names its log."""

    name: str
    engine: Engine | None = None
    version: str | None = None
    versions: dict[str, str] = {}
    pid: int | None = None
    argv: tuple[str, ...] = ()
    args: dict[str, Any] = {}
    env: dict[str, str] = {}
    port: int | None = None
    manager: str | None = None
    log: LogPlace | None = None
    source: str | None = None
    phase: Phase = Phase.UNKNOWN
    ready: bool = False
    gone: bool = False
    metrics: ServerMetrics | None = None
    tuning: Tuning = Tuning()
    files: tuple[TuningFile, ...] = ()
    gpus: tuple[int, ...] = ()
    runs: tuple[ServerRun, ...] = ()
    events: tuple[LogEvent, ...] = ()
    counts: dict[str, int] = {}
    notes: tuple[str, ...] = ()


class GpuReport(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU over the window: medians, state, limits (snapshot `gpus[]`)."""

    index: int
    uuid: str | None = None
    pci_bus_id: str | None = None
    name: str | None = None
    state: GpuState = GpuState.UNKNOWN
    confidence: Confidence = Confidence.INFERRED
    evidence: tuple[str, ...] = ()
    limits: tuple[Limit, ...] = ()
    util_gpu_pct: float | None = None
    util_mem_pct: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    power_limit_default_w: float | None = None
    power_pct: float | None = None
    temp_c: float | None = None
    memory_temp_c: float | None = None
    memory_used_mib: float | None = None
    memory_total_mib: float | None = None
    sm_clock_mhz: float | None = None
    sm_clock_max_mhz: float | None = None
    mem_clock_mhz: float | None = None
    gpm: Gpm | None = None
    pcie_gen: int | None = None
    pcie_width: int | None = None
    pcie_gen_max: int | None = None
    pcie_width_max: int | None = None
    ecc_uncorrected: int | None = None
    mig: bool | None = None
    processes: tuple[GpuProcess, ...] | None = None
    absent: dict[str, str] = {}
    error: str | None = None


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A sentence a person can act on, with what carries it and what to do."""

    kind: FindingKind
    severity: Severity
    confidence: Confidence
    summary: str
    gpus: tuple[int, ...] = ()
    server: str | None = None
    evidence: tuple[str, ...] = ()
    remedy: tuple[str, ...] = ()


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """State of the connection to a host. `next_try_t` and `since_t` are epoch seconds."""

    phase: LinkPhase = LinkPhase.CONNECTING
    since_t: float | None = None
    reason: str | None = None
    advice: str | None = None
    code: str | None = None
    next_try_t: float | None = None
    attempt: int = 0

    @property
    def is_lost(self) -> bool:
        """Whether the host cannot be watched, also while another try is made: it is not back before that succeeds."""
        return self.phase is LinkPhase.LOST or (self.phase is LinkPhase.CONNECTING and self.reason is not None)


class HostReport(msgspec.Struct, frozen=True, kw_only=True):
    """Everything known about one host (snapshot `hosts[]`). `headline` is a FindingKind or Calm; `labels` are the
    words that the configuration gives the host."""

    name: str
    headline: str
    status: HostStatus = HostStatus.OK
    error: str | None = None
    driver: str | None = None
    source: str | None = None
    gpus: tuple[GpuReport, ...] = ()
    servers: tuple[ServerReport, ...] = ()
    events: tuple[LogEvent, ...] = ()
    findings: tuple[Finding, ...] = ()
    load: HostLoad | None = None
    notes: tuple[str, ...] = ()
    labels: dict[str, str] = {}


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What `--snapshot` writes; docs/snapshot.schema.json is its JSON Schema."""

    schema: str = "moetop.snapshot/1"
    moetop: str = ""
    taken_at: float | None = None
    window_s: float | None = None
    headline: str = Calm.NO_FINDING.value
    hosts: tuple[HostReport, ...] = ()
