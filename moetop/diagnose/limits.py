"""What holds a GPU back beside its state: NVML's reason bits and figures -> `Limit` words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from moetop.diagnose import thresholds as th
from moetop.model import GpuInfo, GpuSample, Limit
from moetop.ratio import LEAST_LIMIT_W, power_percent

if TYPE_CHECKING:
    from moetop.diagnose.window import Figures

REASON_BITS: tuple[tuple[int, Limit], ...] = (
    # nvml.h nvmlClocksEventReason*; 0x1 (GPU idle) is no limit.
    (0x0000000000000040, Limit.HW_THERMAL),
    (0x0000000000000020, Limit.SW_THERMAL),
    (0x0000000000000008, Limit.HW_SLOWDOWN),
    (0x0000000000000080, Limit.HW_POWER_BRAKE),
    (0x0000000000000004, Limit.SW_POWER_CAP),
    (0x0000000000000010, Limit.SYNC_BOOST),
    (0x0000000000000002, Limit.APPS_CLOCK),
    (0x0000000000000100, Limit.DISPLAY_CLOCK),
)
"""Heat first: it comes first in the advice too."""

CONTRADICTED = "contradicted"
"""Why the probe left GPM values out."""

_SW_POWER_CAP_BIT = next(bit for bit, limit in REASON_BITS if limit is Limit.SW_POWER_CAP)

WORDS: dict[Limit, str] = {
    Limit.SW_POWER_CAP: "power cap",
    Limit.HW_SLOWDOWN: "hardware slowdown",
    Limit.SW_THERMAL: "thermal slowdown (software)",
    Limit.HW_THERMAL: "thermal slowdown (hardware)",
    Limit.HW_POWER_BRAKE: "power brake",
    Limit.SYNC_BOOST: "sync boost",
    Limit.APPS_CLOCK: "application clocks set",
    Limit.DISPLAY_CLOCK: "display clock",
    Limit.LIMIT_UNDER_DEFAULT: "power limit set under the default",
    Limit.CLOCK_LOW_UNEXPLAINED: "clock far under its maximum without a reason",
}

HEAT = frozenset((Limit.SW_THERMAL, Limit.HW_THERMAL))


def bits_of(masks: Sequence[int]) -> tuple[Limit, ...]:
    """Reasons set in at least `REASON_SHARE` of the samples."""
    if not masks:
        return ()
    union = 0
    for mask in masks:
        union |= mask
    if union & ~1 == 0:
        return ()
    least = th.REASON_SHARE * len(masks)
    return tuple(word for bit, word in REASON_BITS if union & bit and sum(1 for m in masks if m & bit) >= least)


def is_capped(sample: GpuSample) -> bool:
    """Whether the power-cap reason is on."""
    return sample.clock_event_reasons is not None and bool(sample.clock_event_reasons & _SW_POWER_CAP_BIT)


def is_busy(sample: GpuSample) -> bool:
    return sample.util_gpu_pct is not None and sample.util_gpu_pct >= th.HOST_BOUND_UTIL_PCT


def is_slow(sample: GpuSample, max_clock_mhz: float | None) -> bool:
    """Whether the SM clock is so low that a busy GPU would need a reason for it."""
    clock = sample.sm_clock_mhz
    return clock is not None and max_clock_mhz is not None and clock < max_clock_mhz * th.CLOCK_LOW_PCT / 100


def is_gpm_wrong(sample: GpuSample, own_limit_w: float | None) -> bool:
    """Whether power speaks against GPM, for the probe or here: so much of the card's own limit is not drawn with idle
    SMs."""
    if sample.gpm is None:
        return bool(sample.absent) and sample.absent.get("gpm") == CONTRADICTED
    active = sample.gpm.sm_active_pct
    if active is None or active >= th.CONTRADICTION_NO_SM_PCT or not is_busy(sample):
        return False
    power_pct = power_percent(sample.power_w, own_limit_w)
    return power_pct is not None and power_pct >= th.CONTRADICTION_POWER_PCT


def limits_of(info: GpuInfo, figures: Figures) -> tuple[Limit, ...]:
    """Every limit in force over the window, gravest first."""
    found = list(figures.reasons or ())
    if is_limit_low(info.power_limit_default_w, figures.power_limit_w):
        found.append(Limit.LIMIT_UNDER_DEFAULT)
    if is_clock_low(figures):
        found.append(Limit.CLOCK_LOW_UNEXPLAINED)
    return tuple(found)


def is_limit_low(default_w: float | None, limit_w: float | None) -> bool:
    """Whether the enforced limit lies under the default."""
    if default_w is None or limit_w is None or limit_w < LEAST_LIMIT_W:
        return False
    return limit_w < default_w * th.LIMIT_UNDER_DEFAULT_PCT / 100


def is_clock_low(figures: Figures) -> bool:
    """Clock far under its maximum at load while the driver names no reason."""
    if figures.busy_clock_pct is None or figures.reasons is None or figures.reasons:
        return False
    busy = figures.util_gpu_pct is not None and figures.util_gpu_pct >= th.HOST_BOUND_UTIL_PCT
    return busy and figures.busy_clock_pct < th.CLOCK_LOW_PCT
