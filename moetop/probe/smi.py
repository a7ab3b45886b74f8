"""Reads what `nvidia-smi` prints: query CSV by header name, and its error sentences. Pure; runs nothing.

Used by the probe's fallback, by the client when a host has no usable Python, and on pasted files.
"""

from __future__ import annotations

import csv
import math
import re
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

Row = Dict[str, Any]
"""A row of a query: GpuInfo and GpuSample keys with numbers in their units; `absent` maps a key to why
it has no value; `timestamp` as printed; `driver`; `other` has the columns that are not known here."""


class _Column(NamedTuple):
    key: str
    kind: str  # text, int, number, mib, watt, mask
    rank: int = 0  # of two columns for one key the higher rank wins


# nvidia-smi --help-query-gpu, drivers 450 to 580; old and new spellings side by side.
_COLUMNS: Dict[str, _Column] = {
    "timestamp": _Column("timestamp", "text"),
    "index": _Column("index", "int"),
    "uuid": _Column("uuid", "text"),
    "gpu_uuid": _Column("uuid", "text"),
    "pci.bus_id": _Column("pci_bus_id", "text"),
    "gpu_bus_id": _Column("pci_bus_id", "text"),
    "name": _Column("name", "text"),
    "gpu_name": _Column("name", "text"),
    "driver_version": _Column("driver", "text"),
    "compute_cap": _Column("compute_capability", "text"),
    "memory.total": _Column("memory_total_mib", "mib"),
    "memory.used": _Column("memory_used_mib", "mib"),
    "memory.free": _Column("memory_free_mib", "mib"),
    "utilization.gpu": _Column("util_gpu_pct", "number"),
    "utilization.memory": _Column("util_mem_pct", "number"),
    "power.draw": _Column("power_w", "watt", 2),
    "power.draw.instant": _Column("power_w", "watt", 1),
    "power.draw.average": _Column("power_w", "watt", 1),
    "enforced.power.limit": _Column("power_limit_w", "watt", 2),
    "power.limit": _Column("power_limit_w", "watt", 1),
    "power.default_limit": _Column("power_limit_default_w", "watt"),
    "power.max_limit": _Column("power_limit_max_w", "watt"),
    "temperature.gpu": _Column("temp_c", "number"),
    "temperature.memory": _Column("memory_temp_c", "number"),
    "clocks.current.sm": _Column("sm_clock_mhz", "number", 2),
    "clocks.sm": _Column("sm_clock_mhz", "number", 2),
    "clocks.current.graphics": _Column("sm_clock_mhz", "number", 1),
    "clocks.gr": _Column("sm_clock_mhz", "number", 1),
    "clocks.current.memory": _Column("mem_clock_mhz", "number"),
    "clocks.mem": _Column("mem_clock_mhz", "number"),
    "clocks.max.sm": _Column("sm_clock_max_mhz", "number", 2),
    "clocks.max.graphics": _Column("sm_clock_max_mhz", "number", 1),
    "clocks.max.gr": _Column("sm_clock_max_mhz", "number", 1),
    "clocks_throttle_reasons.active": _Column("clock_event_reasons", "mask"),
    "clocks_event_reasons.active": _Column("clock_event_reasons", "mask"),
    "pcie.link.gen.current": _Column("pcie_gen", "int", 2),
    "pcie.link.gen.gpucurrent": _Column("pcie_gen", "int", 1),
    "pcie.link.gen.max": _Column("pcie_gen_max", "int"),
    "pcie.link.width.current": _Column("pcie_width", "int"),
    "pcie.link.width.max": _Column("pcie_width_max", "int"),
    "ecc.errors.corrected.volatile.total": _Column("ecc_corrected", "int"),
    "ecc.errors.uncorrected.volatile.total": _Column("ecc_uncorrected", "int"),
    "mig.mode.current": _Column("mig", "switch"),
    "pstate": _Column("pstate", "text"),
    "fan.speed": _Column("fan_pct", "number"),
}
# Single reasons, where a query asks for them instead of the mask (nvml.h nvmlClocksEventReason*).
_REASON_BITS: Dict[str, int] = {
    "gpu_idle": 0x1,
    "applications_clocks_setting": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40,
    "hw_power_brake_slowdown": 0x80,
    "display_clock_setting": 0x100,
}
_REASON_COLUMN = re.compile(r"clocks_(?:throttle|event)_reasons\.(\w+)")
_UNIT_IN_NAME = re.compile(r"^(.*?)\s*\[([^\]]*)\]$")
_VALUE = re.compile(r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*([A-Za-z%°/]*)")
_TO_MIB = {
    "": 1.0, "mib": 1.0, "mb": 1.0, "gib": 1024.0, "gb": 1024.0, "kib": 1.0 / 1024, "kb": 1.0 / 1024,
    "b": 1.0 / 1048576, "bytes": 1.0 / 1048576,
}  # fmt: skip
_TO_WATT = {"": 1.0, "w": 1.0, "mw": 0.001, "kw": 1000.0}

# Every spelling of "no value", without brackets and case, with the reason as a short word.
_ABSENT: Dict[str, str] = {
    "": "blank",
    "-": "blank",
    "--": "blank",
    "n/a": "not_supported",
    "not supported": "not_supported",
    "not available": "not_supported",
    "err!": "error",
    "error": "error",
    "unknown error": "unknown_error",
    "unknown": "unknown_error",
    "gpu requires reset": "reset_required",
    "requires reset": "reset_required",
    "gpu is lost": "gpu_lost",
    "insufficient permissions": "no_permission",
    "insufficient permission": "no_permission",
    "insufficient external power": "insufficient_power",
    "not found": "not_found",
    "timeout": "timeout",
    "nan": "not_supported",
    "inf": "not_supported",
    "none": "not_supported",
    "null": "not_supported",
}
_WHOLE_GPU = ("gpu_lost", "reset_required")


def absent_reason(cell: str) -> Optional[str]:
    """Why a printed cell has no value, as a short word, or None where it has one.

    `[anything in brackets]` is an absence: nvidia-smi puts every failure of a field in brackets.
    """
    text = cell.strip()
    bracketed = text.startswith("[") and text.endswith("]")
    inner = " ".join(text.strip("[]").split()).lower()
    reason = _ABSENT.get(inner)
    if reason is None and bracketed:
        return re.sub(r"[^a-z0-9]+", "_", inner).strip("_")[:40] or "blank"
    return reason


def _split(line: str) -> List[str]:
    try:
        cells = next(csv.reader([line], skipinitialspace=True), [])
    except csv.Error:
        return []
    return [cell.strip() for cell in cells]


def _column_name(cell: str) -> Tuple[str, str]:
    match = _UNIT_IN_NAME.match(cell.strip())
    name, unit = match.groups() if match else (cell.strip(), "")
    return name.strip().lower(), unit.strip().lower()


def is_header(line: str) -> bool:
    """Whether a line is the header of a query: at least one known column name, and no value."""
    cells = _split(line)
    known = sum(1 for cell in cells if _is_known(_column_name(cell)[0]))
    return known > 0 and known * 2 >= len(cells)


def _is_known(name: str) -> bool:
    return name in _COLUMNS or _REASON_COLUMN.fullmatch(name) is not None


def read_cell(key: str, kind: str, cell: str, unit: str = "") -> Tuple[Any, Optional[str]]:
    """(value, reason): one of them None. `unit` is the header's; a unit in the cell wins."""
    reason = absent_reason(cell)
    if reason is not None:
        return None, reason
    text = cell.strip()
    if kind == "text":
        return text[:256], None
    if kind == "switch":
        word = text.lower()
        return (word == "enabled", None) if word in ("enabled", "disabled") else (None, "unreadable")
    if kind == "mask":
        try:
            return int(text, 16 if text.lower().startswith("0x") else 10), None
        except ValueError:
            return None, "unreadable"
    match = _VALUE.fullmatch(text)
    if match is None:
        return None, "unreadable"
    number, own_unit = float(match.group(1)), match.group(2).lower()
    factors = {"mib": _TO_MIB, "watt": _TO_WATT}.get(kind)
    if factors is not None:
        factor = factors.get(own_unit or unit)
        if factor is None:
            return None, "unreadable"
        number *= factor
    if not math.isfinite(number) or number < 0:
        return None, "unreadable"
    if kind == "int":
        return int(number), None
    number = round(number, 3)
    return (int(number) if number == int(number) and kind != "watt" else number), None


class QueryReader:
    """Reads a query's lines one by one, as they come; a new header starts a new block.

    `columns` are the names asked for where the output has no header (`noheader`).
    """

    def __init__(self, columns: "Optional[List[str]]" = None) -> None:
        self._columns: List[Tuple[str, str]] = [_column_name(cell) for cell in columns or []]

    def feed(self, line: str) -> Optional[Row]:
        """The row of this line, or None for a header, foreign text, or a line cut short."""
        line = line.strip().lstrip("\ufeff")
        if not line:
            return None
        if is_header(line):
            self._columns = [_column_name(cell) for cell in _split(line)]
            return None
        if not self._columns:
            return None
        cells = _split(line)
        if len(cells) != len(self._columns):
            return None
        return self._read(cells)

    def _read(self, cells: List[str]) -> Optional[Row]:
        row: Row = {}
        absent: Dict[str, str] = {}
        other: Dict[str, str] = {}
        ranks: Dict[str, int] = {}
        reasons: Optional[int] = None
        for place, cell in enumerate(cells):
            name, unit = self._columns[place]
            column = _COLUMNS.get(name)
            if column is None:
                bit = _REASON_COLUMN.fullmatch(name)
                if bit is None:
                    other[name] = cell[:256]
                elif absent_reason(cell) is None:
                    reasons = (reasons or 0) | (_REASON_BITS.get(bit.group(1), 0) if cell.lower() == "active" else 0)
                continue
            value, reason = read_cell(column.key, column.kind, cell, unit)
            if column.key == "index" and reason == "unreadable":
                return None  # foreign text that happens to have as many commas
            if reason is not None:
                if row.get(column.key) is None:
                    row[column.key] = None
                    absent.setdefault(column.key, reason)
                continue
            if row.get(column.key) is None or column.rank > ranks.get(column.key, 0):
                row[column.key] = value
                ranks[column.key] = column.rank
                absent.pop(column.key, None)
        if reasons is not None and row.get("clock_event_reasons") is None:
            row["clock_event_reasons"] = reasons
        if absent:
            row["absent"] = absent
            lost = next((word for word in _WHOLE_GPU if word in absent.values()), None)
            if lost is not None:
                row["error"] = lost
        if other:
            row["other"] = other
        return row


def parse_query_csv(text: str, columns: "Optional[List[str]]" = None) -> List[Row]:
    """Rows of `nvidia-smi --query-gpu=... --format=csv`, in order, with `index` filled in.

    Several blocks may follow each other. Without a header (and without `columns`) nothing is read.
    Lines that are not of the query are passed over, so is a last line cut short.
    """
    reader = QueryReader(columns)
    rows = [row for row in (reader.feed(line) for line in text.splitlines()) if row is not None]
    _number_rows(rows)
    return rows


def _number_rows(rows: List[Row]) -> None:
    """Give rows without an index one: by uuid or bus address where printed, else by their order."""
    seen: Dict[str, int] = {}
    for row in rows:
        identity = row.get("uuid") or row.get("pci_bus_id")
        if row.get("index") is None and identity:
            row["index"] = seen.setdefault(identity, len(seen))
    count, last = 0, None
    for row in rows:
        if row.get("index") is None:
            # rows of one sample are printed within the same second or not timed at all
            moment = str(row.get("timestamp") or "").partition(".")[0]
            if last is not None and moment != last:
                count = 0
            row["index"] = count
            count, last = count + 1, moment


# ── what nvidia-smi and the shell say instead of a table ────────────────────────────────────────


class Trouble(NamedTuple):
    """A condition in words. `code` is a Status code; `detail` may hold pci, index, library, kernel."""

    code: str
    message: str
    detail: Dict[str, Any]


_PCI = r"(?P<pci>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])"
# First match of a line wins. Wordings: drivers 390 to 580, bash, dash, zsh, fish, busybox, env.
_SENTENCES: "Tuple[Tuple[str, str, re.Pattern[str]], ...]" = tuple(
    (code, message, re.compile(pattern, re.IGNORECASE))
    for code, message, pattern in (
        (
            "driver_mismatch",
            "the driver's library and kernel module differ in version: reboot, or stop GPU work and reload the module",
            r"driver/library version mismatch",
        ),
        (
            "gpu_lost",
            "a GPU cannot be read (lost, or fallen off the bus): look for Xid 79 in the kernel log; usually a reboot",
            r"unable to determine the device handle for gpu\s*(?P<index>\d+(?=:\s))?:?\s*" + _PCI,
        ),
        (
            "gpu_lost",
            "a GPU is lost: reboot the host to recover it",
            r"\bgpu is lost\b(?!\])",
        ),
        (
            "no_driver",
            "the NVIDIA driver is not loaded",
            r"couldn't communicate with the nvidia driver|failed to initialize nvml: driver not loaded",
        ),
        (
            "not_permitted",
            "not permitted to talk to the NVIDIA driver",
            r"failed to initialize nvml: insufficient permissions?",
        ),
        (
            "no_nvml",
            "the library libnvidia-ml.so.1 is not there",
            r"couldn't find libnvidia-ml|failed to initialize nvml: (?:nvml )?shared library not found",
        ),
        (
            "smi_failed",
            "NVML does not start; in a container this is usually lost access to the devices: restart the container",
            r"failed to initialize nvml: (?P<why>[^\r\n]+)",
        ),
        ("no_gpu", "no NVIDIA GPU was found", r"no devices (?:were )?found"),
        (
            "smi_missing",
            "nvidia-smi is not in the PATH",
            r"nvidia-smi(?:\x27|\u2019)?: (?:command )?not found|command not found: nvidia-smi"
            r"|unknown command:? nvidia-smi|nvidia-smi\W{0,3}: no such file or directory",
        ),
        (
            "smi_failed",
            "the operating system blocks GPU access",
            r"gpu access blocked by the operating system",
        ),
    )
)
_LIBRARY = re.compile(r"nvml library version:\s*([0-9.]+)", re.IGNORECASE)
_BAD_FIELD = re.compile(r"field \"([^\"]{1,80})\" is not a valid field to query", re.IGNORECASE)


def find_troubles(text: str) -> List[Trouble]:
    """Every condition that nvidia-smi or the shell printed in words, gravest first, no repeats.

    "No devices were found" after a lost GPU is the lost GPU's doing and is left out.
    """
    found: List[Trouble] = []
    for line in (whole[:2000] for whole in text.splitlines()):
        library = _LIBRARY.search(line)
        if library and found and found[-1].code == "driver_mismatch":
            found[-1].detail["library"] = library.group(1)
            continue
        for code, message, pattern in _SENTENCES:
            match = pattern.search(line)
            if match is None:
                continue
            detail = {key: value for key, value in match.groupdict().items() if value is not None}
            if "index" in detail:
                detail["index"] = int(detail["index"])
            trouble = Trouble(code, message, detail)
            if trouble not in found:
                found.append(trouble)
            break
    codes = {trouble.code for trouble in found}
    if "gpu_lost" in codes:
        found = [trouble for trouble in found if trouble.code != "no_gpu"]
    order = [code for code, _, _ in _SENTENCES]
    return sorted(found, key=lambda trouble: order.index(trouble.code))


def refused_field(text: str) -> Optional[str]:
    """The name of a field that this nvidia-smi does not know, from its complaint."""
    match = _BAD_FIELD.search(text)
    return match.group(1) if match else None
