"""The sliding window of one GPU: samples in, medians out. It knows no state and no cut but staleness."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import msgspec

from moetop.diagnose import thresholds as th
from moetop.diagnose.limits import bits_of, is_busy, is_capped, is_gpm_wrong, is_slow
from moetop.model import Gpm, GpuInfo, GpuSample, Limit
from moetop.ratio import percent, power_percent

MAX_SAMPLES = 4096
"""Samples kept at most, whatever the window and the rate (six minutes at 10 a second)."""

_SCALARS = (
    "util_gpu_pct",
    "util_mem_pct",
    "power_w",
    "power_limit_w",
    "temp_c",
    "memory_temp_c",
    "memory_used_mib",
    "memory_total_mib",
    "sm_clock_mhz",
    "mem_clock_mhz",
    "pcie_rx_mib_s",
    "pcie_tx_mib_s",
)
_GPM = Gpm.__struct_fields__
_scalars_of = attrgetter(*_SCALARS)
_gpm_of = attrgetter(*_GPM)


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Medians over a window. The fields without a unit of their own model field are derived:
    `power_pct` of the enforced limit, `clock_pct` of the maximum, `vector_pct` the busiest fp pipe,
    `pcie_mib_s` the busier direction; `capped_power_pct` is of the `n_capped` samples with the power-cap
    reason alone, where it counts, `busy_clock_pct` of the `n_busy` busy ones, where a clock is low without a
    reason: a window that holds a change of work mixes the two.
    `reasons` is None where the driver gave no mask. Of GPM values that power contradicts (`gpm_wrong`) none is kept.
    """

    n: int = 0
    n_gpm: int = 0
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
    pcie_rx_mib_s: float | None = None
    pcie_tx_mib_s: float | None = None
    power_pct: float | None = None
    clock_pct: float | None = None
    n_capped: int = 0
    n_busy: int = 0
    capped_power_pct: float | None = None
    busy_clock_pct: float | None = None
    reasons: tuple[Limit, ...] | None = None
    gpm: Gpm | None = None
    gpm_wrong: bool = False
    sm_pct: float | None = None
    tensor_pct: float | None = None
    dram_pct: float | None = None
    vector_pct: float | None = None
    pcie_mib_s: float | None = None


def median(column: Sequence[float | None]) -> float | None:
    """Median of the values that are there; absent, negative and non-finite ones do not count."""
    values: list[float] = []
    if None not in column and sum(column) < math.inf:  # type: ignore[arg-type]
        values = sorted(column)  # type: ignore[arg-type]  # without gaps: no look at each of millions of values
    if not values or values[0] < 0.0:
        values = sorted(v for v in column if v is not None and 0.0 <= v < math.inf)
        if not values:
            return None
    middle = len(values) // 2
    if len(values) % 2:
        return round(float(values[middle]), 3)
    return round(values[middle - 1] / 2 + values[middle] / 2, 3)


def _medians(rows: Sequence[tuple[float | None, ...]]) -> list[float | None]:
    """The median of every column of `rows`."""
    if len(rows) == 1:
        return [round(float(v), 3) if v is not None and 0.0 <= v < math.inf else None for v in rows[0]]
    return [median(column) for column in zip(*rows, strict=True)]


def share(part: float | None, whole: float | None) -> float | None:
    """`part` in percent of `whole`, or None where that makes no sense."""
    return _rounded(percent(part, whole))


def _rounded(share_pct: float | None) -> float | None:
    return None if share_pct is None else round(share_pct, 2)


def greatest(*values: float | None) -> float | None:
    """The greatest of the values that are there."""
    there = [v for v in values if v is not None]
    return max(there) if there else None


def _typical(values: list[float | None]) -> float | None:
    """The median; of fewer values than a limit needs the greatest, since one of them may be of the moment before."""
    return median(values) if len(values) >= th.LIMIT_SAMPLES else greatest(*values)


def figures_of(info: GpuInfo, samples: Sequence[GpuSample]) -> Figures:
    """Medians of `samples`, absent where no sample has the value."""
    if not samples:
        return Figures()
    named = dict(zip(_SCALARS, _medians([*map(_scalars_of, samples)]), strict=True))
    masks = [s.clock_event_reasons for s in samples if s.clock_event_reasons is not None]
    own_limit_w = greatest(named["power_limit_w"], info.power_limit_default_w)
    trusted = [s for s in samples if not is_gpm_wrong(s, own_limit_w)]
    gpms = [s.gpm for s in trusted if s.gpm is not None]
    gpm = _gpm_median(gpms) if gpms else None
    reasons = bits_of(masks) if masks else None
    capped = [s for s in samples if is_capped(s)] if reasons and Limit.SW_POWER_CAP in reasons else []
    slow = reasons == () and any(is_slow(s, info.sm_clock_max_mhz) for s in samples)
    busy = [s for s in samples if is_busy(s)] if slow else []
    rx, tx = named.pop("pcie_rx_mib_s"), named.pop("pcie_tx_mib_s")
    if gpm is not None:
        rx = gpm.pcie_rx_mib_s if gpm.pcie_rx_mib_s is not None else rx
        tx = gpm.pcie_tx_mib_s if gpm.pcie_tx_mib_s is not None else tx
    return Figures(
        n=len(samples),
        n_gpm=len(gpms),
        pcie_rx_mib_s=rx,
        pcie_tx_mib_s=tx,
        power_pct=_rounded(power_percent(named["power_w"], named["power_limit_w"])),
        clock_pct=share(named["sm_clock_mhz"], info.sm_clock_max_mhz),
        n_capped=len(capped),
        n_busy=len(busy),
        capped_power_pct=_rounded(power_percent(_typical([s.power_w for s in capped]), named["power_limit_w"])),
        busy_clock_pct=share(_typical([s.sm_clock_mhz for s in busy]), info.sm_clock_max_mhz),
        reasons=reasons,
        gpm=gpm,
        gpm_wrong=len(trusted) < len(samples) and not gpms,
        sm_pct=gpm.sm_active_pct if gpm else None,
        tensor_pct=gpm.tensor_pct if gpm else None,
        dram_pct=gpm.dram_pct if gpm else None,
        vector_pct=greatest(gpm.fp16_pct, gpm.fp32_pct, gpm.fp64_pct) if gpm else None,
        pcie_mib_s=greatest(rx, tx),
        **named,
    )


def _gpm_median(gpms: list[Gpm]) -> Gpm | None:
    values = _medians([*map(_gpm_of, gpms)])
    if all(v is None for v in values):
        return None
    return Gpm(**dict(zip(_GPM, values, strict=True)))


class GpuWindow:
    """The samples of one GPU that may still count. Times are seconds of the frames' own clock."""

    def __init__(self, window_s: float) -> None:
        self.window_s = window_s
        self._samples: deque[tuple[float, GpuSample, Any]] = deque(maxlen=MAX_SAMPLES)
        self._gaps: deque[float] = deque(maxlen=7)

    def add(self, t: float, sample: GpuSample, mark: Any = None) -> None:
        """Take a sample, and with it whatever the caller wants to find beside it in `marks`. A time before
        the newest means that the clock was set back: start over."""
        if self._samples:
            gap = t - self._samples[-1][0]
            if gap < 0:
                self._samples.clear()
                self._gaps.clear()
            else:
                self._gaps.append(gap)
        self._samples.append((t, sample, mark))
        oldest = t - self.window_s
        while len(self._samples) > 1 and self._samples[0][0] <= oldest:
            self._samples.popleft()

    def newest(self) -> tuple[float, GpuSample] | None:
        return self._samples[-1][:2] if self._samples else None

    def stale_after_s(self) -> float:
        """Age from which the newest sample says nothing about now."""
        if not self._gaps:
            return max(th.STALE_FIRST_S, self.window_s)
        gap = sorted(self._gaps)[len(self._gaps) // 2]
        return max(th.STALE_MIN_S, th.STALE_INTERVALS * gap)

    def at(self, now: float) -> list[GpuSample]:
        """Samples that count at `now`: those of the window, the newest alone where the rate is lower
        than the window, none when the GPU has gone silent."""
        return [sample for _, sample, _ in self._inside(now)]

    def marks(self, now: float) -> list[Any]:
        """What was given with the samples of `at(now)`."""
        return [mark for _, _, mark in self._inside(now)]

    def _inside(self, now: float) -> list[tuple[float, GpuSample, Any]]:
        if not self._samples or now - self._samples[-1][0] > self.stale_after_s():
            return []
        oldest = now - self.window_s
        return [entry for entry in self._samples if entry[0] > oldest] or [self._samples[-1]]
