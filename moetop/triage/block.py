"""What every reader of pasted text yields: rows of figures by GPU. Shapes only, nothing is read here."""

from __future__ import annotations

from typing import Any

import msgspec

INFO_KEYS = frozenset(
    (
        "uuid",
        "pci_bus_id",
        "name",
        "compute_capability",
        "memory_total_mib",
        "power_limit_default_w",
        "sm_clock_max_mhz",
        "mig",
        "pcie_gen_max",
        "pcie_width_max",
    )
)
"""Keys of a row that are a GPU's constants (`GpuInfo`)."""

SAMPLE_KEYS = frozenset(
    (
        "util_gpu_pct",
        "util_mem_pct",
        "power_w",
        "power_limit_w",
        "temp_c",
        "memory_temp_c",
        "memory_used_mib",
        "sm_clock_mhz",
        "mem_clock_mhz",
        "clock_event_reasons",
        "pcie_gen",
        "pcie_width",
        "pcie_rx_mib_s",
        "pcie_tx_mib_s",
        "ecc_corrected",
        "ecc_uncorrected",
        "last_xid",
    )
)
"""Keys of a row that are readings (`GpuSample`); `gpm`, `processes`, `absent` and `error` come beside."""


class PastedRow(msgspec.Struct, kw_only=True):
    """One GPU at one moment. `values` has keys of INFO_KEYS and SAMPLE_KEYS, None where the text says
    that there is none, and `gpm`, `processes`; `absent` says why. `t` is seconds, None without a time."""

    index: int
    values: dict[str, Any]
    absent: dict[str, str] = {}
    error: str | None = None
    t: float | None = None


class Block(msgspec.Struct, kw_only=True):
    """Rows of one table or listing of the text, in order. `kind` is csv, dmon, table, pmon or dcgm."""

    kind: str
    rows: list[PastedRow] = []
    driver: str | None = None
    notes: list[str] = []
