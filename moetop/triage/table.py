"""The plain `nvidia-smi` table (drivers 410 to 610), also cut at its head or end. Reads text, judges nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from moetop.model import GpuProcess
from moetop.probe.smi import absent_reason
from moetop.triage.block import Block, PastedRow
from moetop.triage.times import read_time

_GPU = re.compile(
    r"^\|\s*(?P<index>\d{1,3})\s+(?P<name>\S.*?)\s+(?P<mode>On|Off|N/A|WDDM|TCC|MCDM)\s*\|\s*"
    r"(?P<bus>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s+(?:On|Off|N/A)\s*\|\s*(?P<ecc>\S+)\s*\|"
)
_READINGS = re.compile(r"^(\S+)\s+(\S+)\s+(\S+)\s+(\S+)\s*/\s*(\S+)$")
_MEMORY = re.compile(r"^(\d+)\s*MiB\s*/\s*(\d+)\s*MiB$")
_UTIL = re.compile(r"^(\S+)\s+\S.*$")
_HEAD = re.compile(r"NVIDIA-SMI\s+(?P<smi>\S+).*?(?:Driver|KMD) Version:\s*(?P<driver>[\w.]+)")
_DATE = re.compile(r"^(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}$")
_MIG_ROW = re.compile(r"^\|\s*(\d+)\s+(\d+)\s+(\d+)\s+(\d+)\s*\|\s*(\d+)MiB\s*/\s*(\d+)MiB\s*\|\s*(\d+)\s+(\S+)\s*\|")
_PROCESS = re.compile(
    r"^\|\s*(?P<gpu>\d+)\s+(?:(?:N/A|\d+)\s+(?:N/A|\d+)\s+)?(?P<pid>\d+)\s+(?P<type>C\+G|M\+C|C|G)\s+"
    r"(?P<name>.+?)\s+(?:(?P<mib>\d+)\s*MiB|N/A)\s*\|$"
)
_NO_PROCESS = "No running processes found"
_PROCESS_HEAD = re.compile(r"^\|\s*Processes:")

MAX_PROCESSES = 1024


def is_table_line(line: str) -> bool:
    """Whether a line belongs to a plain table: a border or a row of cells."""
    return line.startswith(("|", "+-", "+=")) or _DATE.match(line.strip()) is not None


def parse_table(lines: Iterable[str]) -> list[Block]:
    """Every table in `lines`: a GPU seen again starts the next one."""
    reader = _Reader()
    for line in lines:
        reader.feed(line.rstrip())
    reader.finish()
    return [block for block in reader.blocks if block.rows or block.driver or block.notes]


class _Reader:
    """Line by line; a GPU's row is the line with its bus address and the two below."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self._block = Block(kind="table", rows=[], notes=[])
        self._row: PastedRow | None = None
        self._below = 0
        self._t: float | None = None
        self._processes: dict[int, list[GpuProcess]] | None = None

    def feed(self, line: str) -> None:
        stripped = line.strip()
        if _DATE.match(stripped):
            self._new_block()
            self._t = read_time(stripped)
            return
        head = _HEAD.search(line)
        if head is not None:
            if self._block.rows or self._block.driver:
                self._new_block(keep_time=not self._block.rows)
            self._block.driver = head["driver"]
            return
        if self._on_gpu(line) or self._on_processes(line) or self._on_mig(line):
            return
        if self._row is not None and stripped.startswith("|"):
            self._on_below(stripped)

    def finish(self) -> None:
        self._new_block()

    def _new_block(self, *, keep_time: bool = False) -> None:
        if self._processes is not None:
            for row in self._block.rows:
                row.values["processes"] = tuple(self._processes.get(row.index, ()))
        self.blocks.append(self._block)
        self._block = Block(kind="table", rows=[], notes=[])
        self._row, self._below, self._processes = None, 0, None
        if not keep_time:
            self._t = None

    def _on_gpu(self, line: str) -> bool:
        gpu = _GPU.match(line)
        if gpu is None:
            return False
        index = int(gpu["index"])
        if any(row.index == index for row in self._block.rows):
            self._new_block()
        values: dict[str, Any] = {"name": gpu["name"].strip(), "pci_bus_id": gpu["bus"]}
        if gpu["ecc"].isdigit():
            values["ecc_uncorrected"] = int(gpu["ecc"])
        self._row = PastedRow(index=index, values=values, absent={}, t=self._t)
        self._below = 0
        self._block.rows.append(self._row)
        return True

    def _on_below(self, line: str) -> None:
        row = self._row
        if row is None:
            return
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        self._below += 1
        if len(cells) < 3:
            self._row = None
        elif self._below == 1:
            _read_readings(row, cells)
        else:
            if cells[-1] in ("Enabled", "Disabled"):
                row.values["mig"] = cells[-1] == "Enabled"
            self._row = None

    def _on_processes(self, line: str) -> bool:
        if _PROCESS_HEAD.match(line) or _NO_PROCESS in line:
            self._processes = self._processes or {}
            self._row = None
            return True
        found = _PROCESS.match(line)
        if found is None:
            return False
        self._processes = self._processes if self._processes is not None else {}
        there = self._processes.setdefault(int(found["gpu"]), [])
        if len(there) < MAX_PROCESSES:
            used = float(found["mib"]) if found["mib"] else None
            there.append(GpuProcess(pid=int(found["pid"]), name=found["name"].strip(), memory_used_mib=used))
        return True

    def _on_mig(self, line: str) -> bool:
        mig = _MIG_ROW.match(line)
        if mig is None:
            return False
        gpu, instance, compute, _dev, used, total, sms, _ecc = mig.groups()
        self._block.notes.append(
            f"GPU {gpu}, MIG instance {instance}/{compute}: {used} of {total} MiB used, {sms} SMs; "
            "its utilization is not in the table"
        )
        return True


def _put(row: PastedRow, key: str, text: str, unit: str) -> None:
    """A number with its unit, or an absence with its reason."""
    reason = absent_reason(text)
    number = text.removesuffix(unit)
    try:
        value = None if reason is not None else float(number)
    except ValueError:
        value, reason = None, "unreadable"
    row.values[key] = value
    if value is None:
        row.absent[key] = reason or "unreadable"


def _read_readings(row: PastedRow, cells: list[str]) -> None:
    readings = _READINGS.match(cells[0])
    if readings is not None:
        _fan, temp, _perf, draw, cap = readings.groups()
        _put(row, "temp_c", temp, "C")
        _put(row, "power_w", draw, "W")
        _put(row, "power_limit_w", cap, "W")
    memory = _MEMORY.match(cells[1])
    if memory is not None:
        row.values["memory_used_mib"], row.values["memory_total_mib"] = float(memory[1]), float(memory[2])
    else:
        row.values["memory_used_mib"] = None
        row.absent["memory_used_mib"] = absent_reason(cells[1]) or "unreadable"
    util = _UTIL.match(cells[2])
    if util is not None:
        _put(row, "util_gpu_pct", util[1], "%")
