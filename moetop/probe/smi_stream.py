"""Turns the lines of a running `nvidia-smi --query-gpu` loop into samples and frames' parts; pure, runs nothing.

Used on the host by the fallback and by the client where the host has no usable Python.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, NamedTuple, Optional

from .smi import QueryReader, Row, Trouble, find_troubles, refused_field

Frame = Dict[str, Any]

FIELDS = (
    "index", "uuid", "pci.bus_id", "name", "driver_version", "compute_cap", "memory.total", "memory.used",
    "utilization.gpu", "utilization.memory", "power.draw", "enforced.power.limit", "power.default_limit",
    "temperature.gpu", "temperature.memory", "clocks.sm", "clocks.mem", "clocks.max.sm",
    "clocks_throttle_reasons.active", "pcie.link.gen.current", "pcie.link.gen.max", "pcie.link.width.current",
    "pcie.link.width.max", "mig.mode.current", "ecc.errors.corrected.volatile.total",
    "ecc.errors.uncorrected.volatile.total",
)  # fmt: skip
INFO_KEYS = (
    "index", "uuid", "pci_bus_id", "name", "compute_capability", "memory_total_mib", "power_limit_default_w",
    "sm_clock_max_mhz", "mig", "pcie_gen_max", "pcie_width_max",
)  # fmt: skip
SAMPLE_KEYS = (
    "index", "util_gpu_pct", "util_mem_pct", "power_w", "power_limit_w", "temp_c", "memory_temp_c", "memory_used_mib",
    "sm_clock_mhz", "mem_clock_mhz", "clock_event_reasons", "pcie_gen", "pcie_width", "ecc_corrected",
    "ecc_uncorrected",
)  # fmt: skip
# Their absence is the rule on many parts and worth no word.
_OPTIONAL = ("memory_temp_c", "pcie_gen", "pcie_width", "ecc_corrected", "ecc_uncorrected")
MAX_TEXT = 20
"""Lines of foreign text kept to find an error sentence in."""


def query_argv(interval_s: float, fields: "List[str]", program: str = "nvidia-smi") -> List[str]:
    """Arguments of nvidia-smi in its own loop."""
    milliseconds = max(100, int(interval_s * 1000))
    return [program, "--query-gpu=" + ",".join(fields), "--format=csv,nounits", "-lms", str(milliseconds)]


class SmiEvent(NamedTuple):
    """What a line completed: a whole sample of all GPUs, or a condition in words."""

    rows: List[Row]
    troubles: List[Trouble]
    refused: Optional[str] = None


class SmiStream:
    """Groups rows into samples: one is whole when all GPUs seen so far have a row, or one repeats."""

    def __init__(self) -> None:
        self._reader = QueryReader()
        self._pending: Dict[int, Row] = {}
        self._known: Dict[int, Row] = {}
        self._text: List[str] = []
        self._said: List[Trouble] = []

    def feed(self, line: str) -> Optional[SmiEvent]:
        """Take a line; the event it completes, if any."""
        row = self._reader.feed(line)
        if row is None:
            return self._foreign(line)
        index = row.get("index")
        if not isinstance(index, int):
            return None
        whole = self.flush() if index in self._pending else None
        self._pending[index] = row
        if whole is None and self._known and set(self._pending) >= set(self._known):
            whole = self.flush()
        return whole

    def flush(self) -> Optional[SmiEvent]:
        """The sample and the conditions so far; called when the output falls quiet or ends.

        Conditions wait for it, since some are said in two lines.
        """
        rows = [self._pending[index] for index in sorted(self._pending)]
        self._known.update(self._pending)
        self._pending = {}
        troubles = [trouble for trouble in find_troubles("\n".join(self._text)) if trouble not in self._said]
        self._said = (self._said + troubles)[-MAX_TEXT:]
        return SmiEvent(rows, troubles) if rows or troubles else None

    def _foreign(self, line: str) -> Optional[SmiEvent]:
        text = line.strip()
        if not text or "MOETOP-" in text:
            return None
        self._text = (self._text + [text[:500]])[-MAX_TEXT:]
        refused = refused_field(text)
        return SmiEvent([], [], refused) if refused else None

    @property
    def last_words(self) -> str:
        """The last line that was no row: what a failed nvidia-smi said."""
        words = [line for line in self._text if not re.fullmatch(r"[-+=| ]*", line)]
        return words[-1] if words else ""


def info_of(row: Row, unified_total_mib: Optional[float] = None) -> Frame:
    """GpuInfo keys of a row."""
    info = {key: row[key] for key in INFO_KEYS if row.get(key) is not None}
    info["gpm"] = False
    absent = {key: why for key, why in row.get("absent", {}).items() if key in INFO_KEYS}
    if absent.get("memory_total_mib") == "not_supported" and unified_total_mib is not None and not row.get("mig"):
        del absent["memory_total_mib"]
        info["memory_total_mib"] = unified_total_mib
        info["unified_memory"] = True
    absent["gpm"] = "nvidia-smi"
    info["absent"] = absent
    return info


def sample_of(row: Row, unified_used_mib: Optional[float] = None) -> Frame:
    """GpuSample keys of a row; a lost GPU is its index and the error."""
    if row.get("error") == "gpu_lost":
        return {"index": row["index"], "error": "gpu_lost"}
    sample: Frame = {key: row[key] for key in SAMPLE_KEYS if row.get(key) is not None}
    absent = {k: why for k, why in row.get("absent", {}).items() if k in SAMPLE_KEYS and k not in _OPTIONAL}
    if absent.get("memory_used_mib") == "not_supported" and unified_used_mib is not None and not row.get("mig"):
        del absent["memory_used_mib"]
        sample["memory_used_mib"] = unified_used_mib
    if row.get("mig"):
        absent.update({key: "mig" for key in ("util_gpu_pct", "util_mem_pct") if key in absent})
    absent["gpm"] = "nvidia-smi"
    sample["gpm"] = None
    sample["absent"] = absent
    sample["processes_why"] = "nvidia-smi is the source: processes are not listed"
    if row.get("error"):
        sample["error"] = row["error"]
    return sample
