"""The DCGM exporter's Prometheus text -> rows of GPUs. Its blank values are absences; judges nothing."""

from __future__ import annotations

import re
from typing import Any

from moetop.model import Gpm
from moetop.probe.prom import PromSample
from moetop.triage.block import Block, PastedRow

_BYTES_TO_MIB = 1 / 2**20

# DCGM field -> (key, factor). dcgm_fields.h; dcgm-exporter default-counters.csv.
DEVICE_FIELDS: dict[str, tuple[str, float]] = {
    "DCGM_FI_DEV_GPU_UTIL": ("util_gpu_pct", 1.0),
    "DCGM_FI_DEV_MEM_COPY_UTIL": ("util_mem_pct", 1.0),
    "DCGM_FI_DEV_POWER_USAGE": ("power_w", 1.0),
    "DCGM_FI_DEV_POWER_USAGE_INSTANT": ("power_w", 1.0),
    "DCGM_FI_DEV_ENFORCED_POWER_LIMIT": ("power_limit_w", 1.0),
    "DCGM_FI_DEV_POWER_MGMT_LIMIT": ("power_limit_w", 1.0),
    "DCGM_FI_DEV_POWER_MGMT_LIMIT_DEF": ("power_limit_default_w", 1.0),
    "DCGM_FI_DEV_GPU_TEMP": ("temp_c", 1.0),
    "DCGM_FI_DEV_MEMORY_TEMP": ("memory_temp_c", 1.0),
    "DCGM_FI_DEV_FB_USED": ("memory_used_mib", 1.0),
    "DCGM_FI_DEV_FB_TOTAL": ("memory_total_mib", 1.0),
    "DCGM_FI_DEV_SM_CLOCK": ("sm_clock_mhz", 1.0),
    "DCGM_FI_DEV_SM_CLOCK_MAX": ("sm_clock_max_mhz", 1.0),
    "DCGM_FI_DEV_MAX_SM_CLOCK": ("sm_clock_max_mhz", 1.0),
    "DCGM_FI_DEV_MEM_CLOCK": ("mem_clock_mhz", 1.0),
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": ("clock_event_reasons", 1.0),
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": ("clock_event_reasons", 1.0),
    "DCGM_FI_DEV_XID_ERRORS": ("last_xid", 1.0),
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": ("ecc_uncorrected", 1.0),
    "DCGM_FI_DEV_PCIE_LINK_GEN": ("pcie_gen", 1.0),
    "DCGM_FI_DEV_PCIE_LINK_WIDTH": ("pcie_width", 1.0),
    "DCGM_FI_DEV_PCIE_MAX_LINK_GEN": ("pcie_gen_max", 1.0),
    "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH": ("pcie_width_max", 1.0),
}
PROFILE_FIELDS: dict[str, tuple[str, float]] = {
    "DCGM_FI_PROF_SM_ACTIVE": ("sm_active_pct", 100.0),
    "DCGM_FI_PROF_SM_OCCUPANCY": ("sm_occupancy_pct", 100.0),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": ("tensor_pct", 100.0),
    "DCGM_FI_PROF_DRAM_ACTIVE": ("dram_pct", 100.0),
    "DCGM_FI_PROF_PIPE_FP16_ACTIVE": ("fp16_pct", 100.0),
    "DCGM_FI_PROF_PIPE_FP32_ACTIVE": ("fp32_pct", 100.0),
    "DCGM_FI_PROF_PIPE_FP64_ACTIVE": ("fp64_pct", 100.0),
    "DCGM_FI_PROF_PIPE_INT_ACTIVE": ("int_pct", 100.0),
    "DCGM_FI_PROF_PCIE_RX_BYTES": ("pcie_rx_mib_s", _BYTES_TO_MIB),
    "DCGM_FI_PROF_PCIE_TX_BYTES": ("pcie_tx_mib_s", _BYTES_TO_MIB),
    "DCGM_FI_PROF_NVLINK_RX_BYTES": ("nvlink_rx_mib_s", _BYTES_TO_MIB),
    "DCGM_FI_PROF_NVLINK_TX_BYTES": ("nvlink_tx_mib_s", _BYTES_TO_MIB),
}
_WHOLE = frozenset(
    ("clock_event_reasons", "last_xid", "ecc_uncorrected", "pcie_gen", "pcie_width", "pcie_gen_max", "pcie_width_max")
)
_NO_INSTANCE_VALUE = frozenset(("util_gpu_pct", "util_mem_pct"))
"""Device counters that read 0 for a MIG instance by design: an absence."""

# dcgm_structs.h: blank, not found, not supported, no permission (+0..+3), with room.
_BLANKS: tuple[tuple[float, float], ...] = (
    (0x7FFFFFF0, 0x7FFFFFFF),
    (0x7FFFFFFFFFFFFFF0, 0x8000000000000000),
    (2.0**47, 2.0**47 + 16),
)
_COUNTER = re.compile(r"^#\s*TYPE\s+(DCGM_FI_PROF_\w+_BYTES)\s+counter", re.MULTILINE)


def is_blank(value: float) -> bool:
    """Whether a value is one of DCGM's marks for "there is none"."""
    return any(low <= value <= high for low, high in _BLANKS)


def has_dcgm(samples: list[PromSample]) -> bool:
    return any(s.name.startswith("DCGM_FI_") for s in samples)


def parse_dcgm(text: str, samples: list[PromSample]) -> Block:
    """One row a GPU. Byte fields that the page calls counters are totals, not rates: left out. Of a
    GPU's MIG instances the one whose SMs are busiest gives the activity; all are named in the notes."""
    totals = set(_COUNTER.findall(text))
    rows: dict[tuple[str, str], PastedRow] = {}
    parts: dict[tuple[str, str], dict[str, dict[str, float]]] = {}
    labels_of: dict[str, str] = {}
    for sample in samples:
        gpu = sample.labels.get("gpu")
        if gpu is None or not sample.name.startswith("DCGM_FI_") or sample.name in totals:
            continue
        who = (sample.labels.get("Hostname", ""), gpu)
        row = rows.get(who)
        if row is None:
            row = rows[who] = PastedRow(index=_index(gpu, rows), values=_identity(sample), absent={})
        instance = sample.labels.get("GPU_I_ID", "")
        if instance:
            row.values["mig"] = True
            labels_of[f"{row.index}/{instance}"] = sample.labels.get("GPU_I_PROFILE", "")
        _put(row, sample, instance)
        profile = PROFILE_FIELDS.get(sample.name)
        if profile is not None and sample.value is not None and not is_blank(sample.value):
            figures = parts.setdefault(who, {}).setdefault(instance, {})
            figures[profile[0]] = round(sample.value * profile[1], 3)
    block = Block(kind="dcgm", rows=[], notes=[])
    for who, row in rows.items():
        _add_activity(block, row, parts.get(who, {}), labels_of)
        block.rows.append(row)
    return block


def _index(gpu: str, rows: dict[tuple[str, str], PastedRow]) -> int:
    taken = {row.index for row in rows.values()}
    wanted = int(gpu) if gpu.isdigit() and len(gpu) < 5 else len(taken)
    return wanted if wanted not in taken else max(taken) + 1


def _identity(sample: PromSample) -> dict[str, Any]:
    labels = sample.labels
    found = {"uuid": labels.get("UUID"), "name": labels.get("modelName"), "pci_bus_id": labels.get("pci_bus_id")}
    return {key: value for key, value in found.items() if value}


def _put(row: PastedRow, sample: PromSample, instance: str) -> None:
    field = DEVICE_FIELDS.get(sample.name)
    if field is None:
        return
    key, factor = field
    if instance and key in _NO_INSTANCE_VALUE:
        row.values.setdefault(key, None)
        row.absent.setdefault(key, "not_supported")
        return
    if sample.value is None or sample.value < 0 or is_blank(sample.value):
        row.values.setdefault(key, None)
        row.absent.setdefault(key, "blank")
        return
    value = sample.value * factor
    if instance and key == "memory_used_mib":
        value += row.values.get(key) or 0.0
    row.values[key] = int(value) if key in _WHOLE else value
    row.absent.pop(key, None)


def _add_activity(block: Block, row: PastedRow, parts: dict[str, dict[str, float]], labels_of: dict[str, str]) -> None:
    if not parts:
        return
    busiest = max(parts, key=lambda instance: parts[instance].get("sm_active_pct", -1.0))
    row.values["gpm"] = Gpm(**parts[busiest])
    for instance in parts if len(parts) > 1 or busiest else ():
        if instance and len(block.notes) < 64:
            figures = ", ".join(
                f"{k.removesuffix('_pct')} {v:.0f} %" for k, v in parts[instance].items() if "_pct" in k
            )
            profile = labels_of.get(f"{row.index}/{instance}") or "?"
            block.notes.append(f"GPU {row.index}, MIG instance {instance} ({profile}): {figures}")
