"""GPM sample pairs with a guard on both ends; a bad pair is no reading at all, never zeros.

Measured on an H200 (driver 580.159.04): of pairs 20 ms apart 16 in 20 were bad, 50 ms apart 10 in 20,
from 100 ms on none. A bad pair reads DRAM as NaN and every other metric as 0.

Now and then (2 of some 25 probes on hosts with two H200, none seen on hosts with one) all pairs of a process are wrong
for as long as it runs: SM metrics 0, DRAM and PCIe twice what they are. The next process reads right.
"""

from __future__ import annotations

import math
from typing import Any, Dict, List, Optional, Tuple

from .nvml import Nvml

MIN_PAIR_S = 0.1
OLD_PAIR_INTERVALS = 4
"""A pair that spans more than this many intervals says nothing about now; the samples start anew."""
MIN_OLD_PAIR_S = 4.0

# nvmlGpmMetricId_t (nvml.h); percent, or MiB a second for the links.
METRICS: Tuple[Tuple[str, int], ...] = (
    ("sm_active_pct", 2),
    ("sm_occupancy_pct", 3),
    ("int_pct", 4),
    ("tensor_pct", 5),
    ("dram_pct", 10),
    ("fp64_pct", 11),
    ("fp32_pct", 12),
    ("fp16_pct", 13),
    ("pcie_tx_mib_s", 20),
    ("pcie_rx_mib_s", 21),
    ("nvlink_rx_mib_s", 60),
    ("nvlink_tx_mib_s", 61),
)
CORE = ("sm_active_pct", "sm_occupancy_pct", "tensor_pct", "dram_pct")
BUSY_UTIL_PCT, LOADED_POWER_PCT, NO_SM_PCT = 80.0, 50.0, 2.0
"""So busy, at so much of the power limit, no GPU has so little SM activity: H200 under 2 % draws 20 % of its limit
at most, at 17 % it draws 43 %. `diagnose/thresholds.py` judges pasted and recorded values by the same figures."""
WRONG_PAIRS, WRONG_S = 3, 1.5
"""So many contradicted pairs in a row, over so long, are no moment between two loads: utilization and power lag."""

HIGHEST_PCT = 110.0  # what rounding of a true 100 % can give; beyond it the pair is garbage


class GpmPairs:
    """Two alternating samples of one GPU. Times are monotonic seconds."""

    def __init__(self, nvml: Nvml, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle
        self._samples: List[Any] = []
        self._taken: Optional[float] = None
        self._newest = 0
        self._pairs = 0
        self._request: Any = None

    def supported(self) -> Tuple[Optional[bool], Optional[str]]:
        """Whether this GPU and driver have GPM; (None, reason) where it cannot be asked."""
        support, reason = self._nvml.call("nvmlGpmQueryDeviceSupport", self._handle)
        if reason is not None:
            return (False, reason) if reason in ("function_not_found", "not_supported") else (None, reason)
        return (True, None) if support.isSupportedDevice else (False, "not_supported")

    def read(self, now: float, interval_s: float) -> Tuple[Optional[Dict[str, Optional[float]]], Optional[str]]:
        """Take a sample and read the pair it closes: (metrics, None) or (None, why there is none)."""
        if not self._samples and not self._allocate():
            return None, "no_memory"
        if self._taken is not None and now - self._taken < MIN_PAIR_S:
            return None, "too_soon"
        older, self._newest = self._newest, 1 - self._newest
        before, self._taken = self._taken, None
        _, reason = self._nvml.call("nvmlGpmSampleGet", self._handle, self._samples[self._newest])
        if reason is not None:
            return None, reason
        self._taken = now
        if before is None:
            return None, "first_sample"
        if now - before > max(MIN_OLD_PAIR_S, OLD_PAIR_INTERVALS * interval_s):
            return None, "pair_too_old"
        metrics, reason = self._metrics(self._samples[older], self._samples[self._newest])
        if metrics is None:
            return None, reason
        self._pairs += 1
        if self._pairs == 1:
            return None, "first_pair"  # it can be stale: seen on the H200
        return metrics, None

    def _allocate(self) -> bool:
        for _ in range(2):
            sample, reason = self._nvml.call("nvmlGpmSampleAlloc")
            if reason is not None:
                self._samples = []
                return False
            self._samples.append(sample)
        return True

    def _metrics(self, older: Any, newer: Any) -> Tuple[Optional[Dict[str, Optional[float]]], Optional[str]]:
        if self._request is None:
            structure = self._nvml.structure("c_nvmlGpmMetricsGet_t")
            if structure is None:
                return None, "missing_in_binding"
            self._request = structure()
            self._request.version = self._nvml.constant("NVML_GPM_METRICS_GET_VERSION", 1)
            self._request.numMetrics = len(METRICS)
            for place, (_, metric_id) in enumerate(METRICS):
                self._request.metrics[place].metricId = metric_id
        request = self._request
        request.sample1, request.sample2 = older, newer
        _, reason = self._nvml.call("nvmlGpmMetricsGet", request)
        if reason is not None:
            return None, reason
        return judge_pair([(key, m.nvmlReturn, m.value) for (key, _), m in zip(METRICS, request.metrics)])  # noqa: B905


def contradicts(metrics: Dict[str, Optional[float]], util_pct: Optional[float], power_pct: Optional[float]) -> bool:
    """Whether the SM activity of a pair cannot be, beside utilization and power that other counters give."""
    active = metrics.get("sm_active_pct")
    if active is None or util_pct is None or power_pct is None:
        return False
    return active < NO_SM_PCT and util_pct >= BUSY_UTIL_PCT and power_pct >= LOADED_POWER_PCT


def judge_pair(
    readings: "List[Tuple[str, int, float]]",
) -> Tuple[Optional[Dict[str, Optional[float]]], Optional[str]]:
    """Metrics of a pair from (key, NVML return, value), or (None, "bad_pair") for the whole of it."""
    out: Dict[str, Optional[float]] = {}
    for key, returned, value in readings:
        if returned != 0:
            out[key] = None
            continue
        percent = key.endswith("_pct")
        good = math.isfinite(value) and value >= 0 and not (percent and value > HIGHEST_PCT)
        if not good and key in CORE:
            return None, "bad_pair"
        out[key] = (round(min(value, 100.0) if percent else value, 2)) if good else None
    if all(out.get(key) is None for key in CORE):
        return None, "not_supported"
    return out, None
