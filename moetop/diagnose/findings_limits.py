"""Findings from the limits of single GPUs: a table of when a limit is a fault, and how it is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from moetop.diagnose import thresholds as th
from moetop.diagnose import words
from moetop.diagnose.limits import HEAT, WORDS
from moetop.diagnose.view import GpuView, HostView
from moetop.model import Confidence, Finding, FindingKind, Limit, Severity


class LimitRow(msgspec.Struct, frozen=True):
    """When limits become a finding. Of the rows of one `group` the first that holds for a GPU counts. `seen_in`
    counts the samples of a live GPU that can show it, where one alone may mix two moments."""

    kind: FindingKind
    holds: Callable[[GpuView], bool]
    summary: str
    compared: str
    remedy: tuple[str, ...]
    confidence: Confidence = Confidence.REPORTED
    group: str = ""
    seen_in: Callable[[GpuView], int] | None = None


def _has(gpu: GpuView, *limits: Limit) -> bool:
    return any(limit in gpu.report.limits for limit in limits)


def _is_hot(gpu: GpuView) -> bool:
    return any(limit in HEAT for limit in gpu.report.limits)


def _is_capped_low(gpu: GpuView) -> bool:
    return _has(gpu, Limit.SW_POWER_CAP) and _has(gpu, Limit.LIMIT_UNDER_DEFAULT)


def _is_capped_elsewhere(gpu: GpuView) -> bool:
    drawn, util = gpu.figures.capped_power_pct, gpu.figures.util_gpu_pct
    if not _has(gpu, Limit.SW_POWER_CAP) or drawn is None:
        return False
    if util is not None and util < th.HOST_BOUND_UTIL_PCT:  # bursts at the limit, pauses between: the mean is lower
        return False
    return drawn < th.CAP_ELSEWHERE_PCT


_POWER_QUERY = words.COMMAND + "nvidia-smi -q -d POWER,PERFORMANCE"

LIMIT_ROWS: tuple[LimitRow, ...] = (
    LimitRow(
        FindingKind.THERMAL_THROTTLE,
        _is_hot,
        "slowed down by heat",
        "the driver names a thermal reason",
        (
            "check airflow, fans, filters, neighbours; a lower power limit alone often does not cure it",
            words.COMMAND + "nvidia-smi -q -d TEMPERATURE,PERFORMANCE",
        ),
    ),
    LimitRow(
        FindingKind.HW_SLOWDOWN,
        lambda g: not _is_hot(g) and _has(g, Limit.HW_SLOWDOWN, Limit.HW_POWER_BRAKE),
        "slowed down by the hardware (power brake or board protection)",
        "the driver names a hardware slowdown without heat",
        ("check power supplies, cables and the board's power budget (BMC)", _POWER_QUERY),
    ),
    LimitRow(
        FindingKind.CLOCK_STUCK_LOW,
        lambda g: _has(g, Limit.CLOCK_LOW_UNEXPLAINED),
        "clock far under its maximum at load, no reason reported",
        f"SM clock under {words.number(th.CLOCK_LOW_PCT)} % of its maximum while busy, and no clock-event reason",
        (
            "power delivery outside the GPU is the usual suspect: supply, cable, power controller",
            "on a GB10: unplug power for a minute; if the clock stays low, return it",
            words.COMMAND + "nvidia-smi -q -d CLOCK,PERFORMANCE",
        ),
        Confidence.MEASURED,
        seen_in=lambda g: g.figures.n_busy,
    ),
    LimitRow(
        FindingKind.POWER_CAPPED,
        _is_capped_low,
        "held by a power limit that is set under the default",
        "the power-cap reason is on and the limit lies under the default",
        (
            "raise the limit if cooling and supply allow it; memory-bound work may gain little",
            words.COMMAND + "nvidia-smi -pl DEFAULT_W",
        ),
        group="power",
    ),
    LimitRow(
        FindingKind.POWER_CAPPED,
        _is_capped_elsewhere,
        "power-capped below its own limit: another budget binds",
        f"the power-cap reason is on while the draw is under {words.number(th.CAP_ELSEWHERE_PCT)} % of the limit",
        ("look for a cap of the board, BMC, chassis or power supply", _POWER_QUERY),
        group="power",
        seen_in=lambda g: g.figures.n_capped,
    ),
    LimitRow(
        FindingKind.POWER_LIMIT_LOW,
        lambda g: _has(g, Limit.LIMIT_UNDER_DEFAULT),
        "power limit set under the default",
        "the enforced limit lies under the default; it does not bind at this moment",
        (
            "if nobody set it on purpose, set the default again",
            words.COMMAND + "nvidia-smi -pl DEFAULT_W",
        ),
        group="power",
    ),
)


def find_limits(view: HostView) -> Iterator[Finding]:
    """One finding a row and host, with the GPUs it holds for."""
    taken: set[tuple[str, int]] = set()
    for row in LIMIT_ROWS:
        able = [g for g in view.gpus if not g.report.error and (row.group, g.index) not in taken]
        if view.live and row.seen_in is not None:
            able = [g for g in able if g.figures.n > 1 and row.seen_in(g) >= min(th.LIMIT_SAMPLES, g.figures.n)]
        hit = [g for g in able if row.holds(g)]
        if not hit:
            continue
        if row.group:
            taken.update((row.group, g.index) for g in hit)
        yield Finding(
            kind=row.kind,
            severity=Severity.WARNING,
            confidence=row.confidence,
            summary=f"{words.gpus(g.index for g in hit)}: {row.summary}",
            gpus=tuple(g.index for g in hit),
            evidence=(*(_limit_seen(g) for g in hit[:4]), words.COMPARED + row.compared),
            remedy=_fill_default(row.remedy, hit),
        )


def _limit_seen(gpu: GpuView) -> str:
    f, r = gpu.figures, gpu.report
    parts = [f"{words.number(f.util_gpu_pct)} % busy"] if f.util_gpu_pct is not None else []
    if f.power_w is not None:
        limit = f" of {words.number(f.power_limit_w)} W" if f.power_limit_w is not None else " W (limit not known)"
        parts.append(f"{words.number(f.power_w)}{limit}")
    if r.power_limit_default_w is not None and Limit.LIMIT_UNDER_DEFAULT in r.limits:
        parts.append(f"default {words.number(r.power_limit_default_w)} W")
    if f.sm_clock_mhz is not None:
        most = f" of {words.number(r.sm_clock_max_mhz)}" if r.sm_clock_max_mhz else ""
        parts.append(f"SM clock {words.number(f.sm_clock_mhz)}{most} MHz")
        if gpu.best_clock_mhz and Limit.CLOCK_LOW_UNEXPLAINED in r.limits and gpu.best_clock_mhz > f.sm_clock_mhz * 1.5:
            parts.append(f"it ran at {words.number(gpu.best_clock_mhz)} MHz before")
    if f.temp_c is not None:
        parts.append(f"{words.number(f.temp_c)} °C")
    named = [WORDS[limit] for limit in r.limits]
    return f"{words.SEEN}GPU {gpu.index}: {', '.join(parts)}; limits: {', '.join(named) or 'none'}"


def _fill_default(remedy: tuple[str, ...], hit: list[GpuView]) -> tuple[str, ...]:
    default = next((g.report.power_limit_default_w for g in hit if g.report.power_limit_default_w), None)
    if default is None:
        return remedy
    return tuple(line.replace("DEFAULT_W", words.number(default).replace(",", "")) for line in remedy)
