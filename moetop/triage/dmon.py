"""`nvidia-smi dmon` and `pmon`: columns by the names in their `#` header. Reads text, judges nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from moetop.model import Gpm, GpuProcess
from moetop.probe.smi import absent_reason
from moetop.triage.block import Block, PastedRow
from moetop.triage.times import read_time

_MB_TO_MIB = 1e6 / 2**20

# nvidia-smi dmon --help, drivers 410 to 610: name in the header -> (key, factor to our unit).
COLUMNS: dict[str, tuple[str, float]] = {
    "pwr": ("power_w", 1.0),
    "gtemp": ("temp_c", 1.0),
    "temp": ("temp_c", 1.0),
    "mtemp": ("memory_temp_c", 1.0),
    "sm": ("util_gpu_pct", 1.0),
    "mem": ("util_mem_pct", 1.0),
    "mclk": ("mem_clock_mhz", 1.0),
    "pclk": ("sm_clock_mhz", 1.0),
    "fb": ("memory_used_mib", 1.0),
    "rxpci": ("pcie_rx_mib_s", _MB_TO_MIB),
    "txpci": ("pcie_tx_mib_s", _MB_TO_MIB),
}
# nvidia-smi dmon --gpm-metrics 1-13 (ids in its help; the names in the header as public outputs and tools show
# them, driver 570 to 590): name -> Gpm key. Of `gract` and the single tensor pipes nothing here makes use.
GPM_COLUMNS: dict[str, str] = {
    "smutil": "sm_active_pct",
    "smocc": "sm_occupancy_pct",
    "mmaact": "tensor_pct",
    "dram": "dram_pct",
    "fp64": "fp64_pct",
    "fp32": "fp32_pct",
    "fp16": "fp16_pct",
    "intact": "int_pct",
}
POWER_VIOLATION_PCT = 50.0
"""A power violation counter at or above this stands for the power-cap reason (judgement)."""
_POWER_BIT, _THERMAL_BIT = 0x4, 0x20
_MOST_PCT = 100.0
_CLOCKS = ("date", "time")


def header_of(line: str) -> list[str] | None:
    """Column names of a dmon or pmon header (its first `#` line), else None."""
    stripped = line.strip()
    if not stripped.startswith("#"):
        return None
    names = [name.lower() for name in stripped.lstrip("# ").split()]
    return names if "gpu" in names[:3] and len(names) > 1 else None


def is_units_line(line: str) -> bool:
    """The second `#` line: units under the names."""
    names = line.strip().lstrip("# ").split()
    return line.strip().startswith("#") and bool(names) and ("Idx" in names[:3] or names[0].upper().startswith("YYYY"))


def parse_dmon(names: list[str], lines: Iterable[str]) -> Block:
    """Rows under one header. `-` is an absence; a line with another number of cells is passed over."""
    if "pid" in names:
        return _parse_pmon(names, lines)
    block = Block(kind="dmon", rows=[], notes=[])
    for line in lines:
        cells = line.split()
        if len(cells) != len(names):
            continue
        row = _read_row(dict(zip(names, cells, strict=True)))
        if row is not None:
            block.rows.append(row)
    return block


def _read_row(cells: dict[str, str]) -> PastedRow | None:
    if not cells["gpu"].isdigit():
        return None
    row = PastedRow(index=int(cells["gpu"]), values={}, absent={}, t=_time_of(cells))
    for name, text in cells.items():
        column = COLUMNS.get(name)
        if column is None:
            continue
        key, factor = column
        number = _number(text)
        row.values[key] = None if number is None else round(number * factor, 3)
        if number is None:
            row.absent[key] = absent_reason(text) or "unreadable"
    gpm = _gpm_of(cells)
    if gpm is not None:
        row.values["gpm"] = gpm
    mask = 0
    if (_number(cells.get("pviol", "")) or 0) >= POWER_VIOLATION_PCT:
        mask |= _POWER_BIT
    if (_number(cells.get("tviol", "")) or 0) >= 1:
        mask |= _THERMAL_BIT
    if mask:
        row.values["clock_event_reasons"] = mask
    return row


def _gpm_of(cells: dict[str, str]) -> Gpm | None:
    """The row's GPM sample; None where it has none. One cell without a value voids all: such a pair reads the
    others as 0."""
    there = {key: _number(cells[name]) for name, key in GPM_COLUMNS.items() if name in cells}
    if not there or any(value is None or value > _MOST_PCT for value in there.values()):
        return None
    return Gpm(**there)


def _time_of(cells: dict[str, str]) -> float | None:
    parts = [cells[name] for name in _CLOCKS if name in cells]
    return read_time(" ".join(parts)) if len(parts) == 2 else None


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < 1e15 else None


def _parse_pmon(names: list[str], lines: Iterable[str]) -> Block:
    """Processes by GPU; a row of dashes says that a GPU has none."""
    block = Block(kind="pmon", rows=[], notes=[])
    processes: dict[int, list[GpuProcess]] = {}
    for line in lines:
        cells: list[Any] = line.split(None, len(names) - 1)
        if len(cells) != len(names):
            continue
        row = dict(zip(names, cells, strict=True))
        if not row["gpu"].isdigit():
            continue
        there = processes.setdefault(int(row["gpu"]), [])
        if row["pid"].isdigit():
            used = _number(row["fb"]) if "fb" in row else None
            there.append(GpuProcess(pid=int(row["pid"]), name=row[names[-1]].strip(), memory_used_mib=used))
            _add_share(block, row)
    for index, found in processes.items():
        block.rows.append(PastedRow(index=index, values={"processes": tuple(found)}, absent={}))
    return block


def _add_share(block: Block, row: dict[str, str]) -> None:
    share = _number(row.get("sm", ""))
    if share is not None and len(block.notes) < 64:
        name = row.get("command") or row.get("name") or "?"
        block.notes.append(f"GPU {row['gpu']}: process {row['pid']} ({name.strip()}) uses {share:.0f} % of the SM time")
