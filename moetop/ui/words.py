"""Glyphs, words and colour roles of everything the screens can say, as tables. No drawing."""

from __future__ import annotations

from dataclasses import dataclass

from moetop.model import (
    Calm,
    Confidence,
    EventKind,
    EventSeverity,
    FindingKind,
    GpuState,
    Limit,
    LinkPhase,
    Phase,
    Severity,
    Verdict,
)


@dataclass(frozen=True)
class Sign:
    """How a thing shows: a glyph one cell wide, a short word, the colour role, what it means."""

    glyph: str
    word: str
    role: str
    meaning: str = ""


STATE_SIGNS: dict[GpuState, Sign] = {
    GpuState.TENSOR_STARVED: Sign(
        "▲", "starved", "tensor_starved", "busy, but neither tensor cores nor memory do the work"
    ),
    GpuState.TENSOR_BUSY: Sign("●", "tensor", "tensor_busy", "the tensor cores do the work"),
    GpuState.MEMORY_BOUND: Sign(
        "◆", "memory", "memory_bound", "memory is near its limit: normal for small-batch decode"
    ),
    GpuState.BALANCED: Sign("◐", "balanced", "balanced", "tensor cores and memory share the work; room to tune"),
    GpuState.SM_UNDERUSED: Sign("◌", "underused", "sm_underused", "a kernel runs, but most of the GPU does nothing"),
    GpuState.VECTOR_BOUND: Sign("▣", "vector", "vector_bound", "busy in arithmetic outside the tensor cores"),
    GpuState.HOST_BOUND: Sign("◇", "host-bound", "host_bound", "waits for the host between kernels"),
    GpuState.TRANSFER_BOUND: Sign("⇄", "transfer", "transfer_bound", "busy with copies, not kernels"),
    GpuState.IDLE: Sign("○", "idle", "idle", "nothing runs"),
    GpuState.UNKNOWN: Sign("·", "unknown", "unknown", "too little evidence to say"),
}

STATE_ORDER: tuple[GpuState, ...] = (
    GpuState.TENSOR_STARVED,
    GpuState.SM_UNDERUSED,
    GpuState.TRANSFER_BOUND,
    GpuState.HOST_BOUND,
    GpuState.VECTOR_BOUND,
    GpuState.UNKNOWN,
    GpuState.BALANCED,
    GpuState.MEMORY_BOUND,
    GpuState.TENSOR_BUSY,
    GpuState.IDLE,
)
"""Worst first, for sorting rows and for the state of a host whose GPUs differ."""

NEVER_DOUBTED = frozenset({GpuState.IDLE, GpuState.UNKNOWN})
"""States shown without the question mark of an inference."""

LOST_SIGN = Sign("✕", "lost", "critical", "cannot be read")

SEVERITY_SIGNS: dict[Severity, Sign] = {
    Severity.CRITICAL: Sign("✕", "critical", "critical"),
    Severity.WARNING: Sign("▲", "warning", "warning"),
    Severity.INFO: Sign("i", "note", "notice"),
}

CLEARED_SIGN = Sign("✓", "cleared", "quiet", "was found, and is no longer so")

CONFIDENCE_WORDS: dict[Confidence, str] = {
    Confidence.MEASURED: "measured: a counter or exit status says so",
    Confidence.REPORTED: "reported: a log or tool says so",
    Confidence.INFERRED: "inferred: the signs fit, nothing measured it directly",
}

FINDING_TITLES: dict[FindingKind, str] = {
    FindingKind.UNREACHABLE: "host unreachable",
    FindingKind.NO_DATA: "no GPU data",
    FindingKind.DRIVER_MISMATCH: "driver and library differ",
    FindingKind.GPU_LOST: "GPU lost",
    FindingKind.CRASHED: "server crashed",
    FindingKind.GPU_FAULT: "GPU fault",
    FindingKind.COLLECTIVE_HANG: "ranks hang in a collective",
    FindingKind.TUNING_FAILED: "tuning failed",
    FindingKind.HW_SLOWDOWN: "hardware slowdown",
    FindingKind.THERMAL_THROTTLE: "throttled by heat",
    FindingKind.CLOCK_STUCK_LOW: "clock stuck low",
    FindingKind.GHOST_BUSY: "busy, no process seen",
    FindingKind.IDLE_SPIN: "busy, no requests",
    FindingKind.UNTUNED_KERNELS: "kernels not tuned",
    FindingKind.TUNING_OFF: "tuning switched off",
    FindingKind.PARTLY_TUNED: "kernels partly tuned",
    FindingKind.SLOW_KERNEL_PATH: "slow kernel path",
    FindingKind.LAUNCH_BOUND: "launch-bound",
    FindingKind.COMMS_BOUND: "bound by communication",
    FindingKind.STRAGGLER: "one rank lags",
    FindingKind.POWER_LIMIT_LOW: "power limit set low",
    FindingKind.POWER_CAPPED: "power capped",
    FindingKind.TENSOR_STARVED: "tensor cores starved",
    FindingKind.STARVATION_SIGNATURE: "starvation signature",
    FindingKind.OVERLOADED: "overloaded",
}

CALM_SIGNS: dict[Calm, Sign] = {
    Calm.TUNING: Sign("◔", "tuning", "notice", "kernels are being tuned"),
    Calm.LOADING: Sign("◔", "loading", "notice", "the server is loading"),
    Calm.STOPPED: Sign("○", "stopped", "quiet", "the server was stopped"),
    Calm.MIXED: Sign("◐", "mixed", "quiet", "GPUs are in different states"),
    Calm.HEALTHY: Sign("●", "healthy", "good", "works, nothing needs you"),
    Calm.IDLE: Sign("○", "idle", "quiet", "nothing runs"),
    Calm.NO_FINDING: Sign("·", "no finding", "quiet", "nothing stands out"),
}

LIMIT_WORDS: dict[Limit, tuple[str, str]] = {
    Limit.SW_POWER_CAP: ("cap", "held at its power limit (normal at the default limit)"),
    Limit.HW_SLOWDOWN: ("HW!", "hardware slowdown"),
    Limit.SW_THERMAL: ("hot", "the driver slows it down for heat"),
    Limit.HW_THERMAL: ("HOT", "the hardware slows it down for heat"),
    Limit.HW_POWER_BRAKE: ("brk", "external power brake"),
    Limit.SYNC_BOOST: ("syn", "clocks bound to another GPU (sync boost)"),
    Limit.APPS_CLOCK: ("app", "application clocks set"),
    Limit.DISPLAY_CLOCK: ("dsp", "display clock setting"),
    Limit.LIMIT_UNDER_DEFAULT: ("low", "power limit set under the default"),
    Limit.CLOCK_LOW_UNEXPLAINED: ("clk", "clock far under its maximum, no reason given"),
}
"""The three letters of the table and the words of the detail screen; gravest first in LIMIT_ORDER."""

LIMIT_ORDER: tuple[Limit, ...] = (
    Limit.HW_SLOWDOWN,
    Limit.HW_THERMAL,
    Limit.SW_THERMAL,
    Limit.HW_POWER_BRAKE,
    Limit.CLOCK_LOW_UNEXPLAINED,
    Limit.LIMIT_UNDER_DEFAULT,
    Limit.SW_POWER_CAP,
    Limit.APPS_CLOCK,
    Limit.SYNC_BOOST,
    Limit.DISPLAY_CLOCK,
)

QUIET_LIMITS = frozenset({Limit.SW_POWER_CAP, Limit.APPS_CLOCK, Limit.SYNC_BOOST, Limit.DISPLAY_CLOCK})
"""Limits that are no reason to look up by themselves."""

LINK_WORDS: dict[LinkPhase, Sign] = {
    LinkPhase.CONNECTING: Sign("◌", "connecting", "notice"),
    LinkPhase.WATCHING: Sign("●", "watching", "good"),
    LinkPhase.DEGRADED: Sign("▲", "degraded", "warning"),
    LinkPhase.LOST: Sign("✕", "lost", "critical"),
    LinkPhase.FINISHED: Sign("■", "finished", "quiet"),
}

PHASE_SIGNS: dict[Phase, Sign] = {
    Phase.LOADING: Sign("◔", "loading", "notice"),
    Phase.TUNING: Sign("◔", "tuning", "notice"),
    Phase.CAPTURING: Sign("◔", "capturing graphs", "notice"),
    Phase.READY: Sign("●", "ready", "good"),
    Phase.DRAINING: Sign("◔", "draining", "notice"),
    Phase.STOPPED: Sign("○", "stopped", "quiet"),
    Phase.CRASHED: Sign("✕", "crashed", "critical"),
    Phase.EXITED: Sign("○", "exited", "quiet"),
    Phase.UNKNOWN: Sign("·", "phase unknown", "quiet"),
}

VERDICT_SIGNS: dict[Verdict, Sign] = {
    Verdict.TUNED: Sign("●", "tuned", "good"),
    Verdict.PARTLY_TUNED: Sign("▲", "partly tuned", "warning"),
    Verdict.UNTUNED: Sign("▲", "untuned", "warning"),
    Verdict.NEVER_RAN: Sign("▲", "never ran", "warning"),
    Verdict.OFF: Sign("▲", "off", "warning"),
    Verdict.RUNNING: Sign("◔", "running", "notice"),
    Verdict.FAILED: Sign("✕", "failed", "critical"),
    Verdict.NOT_TUNABLE: Sign("·", "not tunable", "quiet"),
    Verdict.UNKNOWN: Sign("·", "unknown", "quiet"),
}

EVENT_ROLES: dict[EventSeverity, str] = {
    EventSeverity.GOOD: "good",
    EventSeverity.INFO: "text",
    EventSeverity.NOTICE: "notice",
    EventSeverity.WARN: "warning",
    EventSeverity.PERF: "warning",
    EventSeverity.ERROR: "critical",
    EventSeverity.FATAL: "critical",
    EventSeverity.METRIC: "quiet",
    EventSeverity.NOISE: "faint",
}

EVENT_GLYPHS: dict[EventSeverity, str] = {
    EventSeverity.GOOD: "●",
    EventSeverity.INFO: "·",
    EventSeverity.NOTICE: "○",
    EventSeverity.WARN: "▲",
    EventSeverity.PERF: "▲",
    EventSeverity.ERROR: "✕",
    EventSeverity.FATAL: "✕",
    EventSeverity.METRIC: " ",
    EventSeverity.NOISE: " ",
}

EVENT_WORDS: dict[EventKind, str] = {
    EventKind.ATTENTION_BACKEND_SELECTED: "attention",
    EventKind.AUTOTUNE_CACHE_HIT: "cache hit",
    EventKind.AUTOTUNE_CACHE_LOADED: "cache",
    EventKind.AUTOTUNE_CACHE_REJECTED: "cache bad",
    EventKind.AUTOTUNE_CACHE_SAVED: "saved",
    EventKind.AUTOTUNE_CACHE_SIZE: "cache",
    EventKind.AUTOTUNE_DISABLED: "tune off",
    EventKind.AUTOTUNE_END: "tuned",
    EventKind.AUTOTUNE_FAILED: "tune fail",
    EventKind.AUTOTUNE_NO_ENTRIES: "no entry",
    EventKind.AUTOTUNE_OOM_FALLBACK: "tune OOM",
    EventKind.AUTOTUNE_PROGRESS: "tuning",
    EventKind.AUTOTUNE_START: "tuning",
    EventKind.AUTOTUNE_TACTIC_SKIPPED: "skipped",
    EventKind.AUTOTUNE_UNCOVERED_SHAPE: "uncovered",
    EventKind.COMPILE_CACHE_SAVED: "compiled",
    EventKind.CRASH: "crash",
    EventKind.CUDAGRAPHS_DISABLED: "no graphs",
    EventKind.CUSTOM_ALLREDUCE_DISABLED: "allreduce",
    EventKind.DRIVER_MISMATCH: "driver",
    EventKind.ECC_ERROR: "ECC",
    EventKind.ENGINE_DEAD: "dead",
    EventKind.ENGINE_START_FAILED: "no start",
    EventKind.ENGINE_WAIT: "waiting",
    EventKind.EXIT: "exit",
    EventKind.GEMM_CONFIG_DEFAULT: "default",
    EventKind.GPU_LOST: "GPU lost",
    EventKind.GRAPH_CAPTURE: "graphs",
    EventKind.GRAPH_CAPTURE_START: "graphs",
    EventKind.GRAPH_PROFILING: "graphs",
    EventKind.HEALTH_FAILED: "health",
    EventKind.HTTP_ACCESS: "http",
    EventKind.JIT_KERNEL: "JIT",
    EventKind.JIT_PROGRESS: "JIT",
    EventKind.JIT_START: "JIT",
    EventKind.KV_CACHE: "KV cache",
    EventKind.MOE_BACKEND_FALLBACK: "fallback",
    EventKind.MOE_BACKEND_SELECTED: "backend",
    EventKind.MOE_CONFIG_DEFAULT: "default",
    EventKind.MOE_CONFIG_FALLBACK: "fallback",
    EventKind.MOE_CONFIG_NO_DOWN_VARIANT: "no down",
    EventKind.MOE_CONFIG_SAVED: "saved",
    EventKind.MOE_CONFIG_TUNED: "config",
    EventKind.MONITOR_ERROR: "monitor",
    EventKind.MONITORING_GAP: "gap",
    EventKind.NCCL_TIMEOUT: "NCCL",
    EventKind.NCCL_TRANSPORT: "NCCL",
    EventKind.NOTE: "note",
    EventKind.OOM: "no memory",
    EventKind.READY: "ready",
    EventKind.SERVER_ARGS: "args",
    EventKind.SHUTDOWN: "shutdown",
    EventKind.STEP_TIME: "step",
    EventKind.THROUGHPUT: "decode",
    EventKind.TRACEBACK: "traceback",
    EventKind.WARMUP: "warm-up",
    EventKind.WEIGHTS_LOADED: "weights",
    EventKind.WEIGHTS_LOADING: "weights",
    EventKind.WEIGHTS_PROGRESS: "weights",
    EventKind.XID: "Xid",
}
"""At most 9 letters: the word beside an event line."""

CHART_MARKS: dict[EventKind, str] = {
    EventKind.AUTOTUNE_START: "tune",
    EventKind.AUTOTUNE_END: "tuned",
    EventKind.AUTOTUNE_FAILED: "tune failed",
    EventKind.CRASH: "crash",
    EventKind.ENGINE_DEAD: "dead",
    EventKind.GPU_LOST: "GPU lost",
    EventKind.READY: "ready",
    EventKind.SERVER_ARGS: "start",
    EventKind.SHUTDOWN: "shutdown",
    EventKind.WEIGHTS_LOADING: "load",
    EventKind.XID: "Xid",
}
"""Events that are marked on the time axis."""

GPU_NAME_NOISE: tuple[str, ...] = (
    "NVIDIA ",
    "GeForce ",
    "Tesla ",
    " Blackwell Server Edition",
    " Blackwell Workstation Edition",
    " Blackwell Max-Q Workstation Edition",
    " Generation",
    " Laptop GPU",
    " 80GB HBM3",
    "-SXM4-80GB",
    "-SXM4-40GB",
)
"""Dropped from names in the table; the detail screen shows the whole name."""
