"""Pasted output of nvidia-smi, several blocks in one file -> blocks and troubles. Reads text, judges nothing."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from moetop.errors import UsageError
from moetop.probe.smi import Trouble, absent_reason, find_troubles, is_header, parse_query_csv
from moetop.triage.block import INFO_KEYS, SAMPLE_KEYS, Block, PastedRow
from moetop.triage.dmon import header_of, is_units_line, parse_dmon
from moetop.triage.table import is_table_line, parse_table
from moetop.triage.times import read_time

GOOD_QUERY = (
    "nvidia-smi --query-gpu=timestamp,index,name,utilization.gpu,utilization.memory,memory.used,memory.total,"
    "power.draw,power.limit,power.default_limit,clocks.sm,clocks.max.sm,temperature.gpu,"
    "clocks_event_reasons.active --format=csv"
)
"""The command whose output can be read in full."""

_VALUE = re.compile(r"^(?:\[.*\]|[-+]?\d[\d.]*\s*(?:%|W|MiB|MHz|C)?|0x[0-9a-fA-F]+)$")
MAX_LINE = 4096


class Pasted(msgspec.Struct, kw_only=True):
    """What was read: blocks in their order, and what the tools printed instead of data."""

    blocks: list[Block]
    troubles: list[Trouble]


def parse_smi_log(text: str) -> Pasted:
    """Read everything nvidia-smi prints. Raises UsageError for CSV without a header and for text in
    which nothing is recognised."""
    lines = [line[:MAX_LINE].lstrip("\ufeff") for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n")]
    while len(lines) > 1 and not lines[-1].strip():
        lines.pop()
    sorter = _Sorter()
    for line in lines:
        sorter.feed(line)
    cut = sorter.mend_cut()
    blocks = sorter.finish()
    if cut and blocks:
        blocks[-1].notes.append(cut)
    troubles = find_troubles("\n".join(lines))
    if sorter.headless is not None and not any(b.kind == "csv" for b in blocks):
        raise UsageError(
            f"the CSV has no header, so its columns are not known: {sorter.headless[:80]!r}",
            f"make it with: {GOOD_QUERY}",
        )
    if not blocks and not troubles:
        raise UsageError("nothing in the text is output of nvidia-smi", f"a good one comes from: {GOOD_QUERY}")
    return Pasted(blocks=blocks, troubles=troubles)


class _Sorter:
    """Sends each line to the block it belongs to: CSV, dmon, or table."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.headless: str | None = None
        self._kind = ""
        self._lines: list[str] = []
        self._names: list[str] = []

    def feed(self, line: str) -> None:
        names = header_of(line)
        if names is not None:
            if not (self._kind == "dmon" and names == self._names):
                self._close("dmon")
                self._names = names
        elif is_header(line):
            if self._kind != "csv" or line.strip() != self._lines[0].strip():
                self._close("csv")
                self._lines.append(line)
        elif self._belongs(line):
            self._lines.append(line)
        elif is_table_line(line):
            if self._kind != "table":
                self._close("table")
            self._lines.append(line)
        elif self.headless is None and looks_like_row(line):
            self.headless = line.strip()

    def _belongs(self, line: str) -> bool:
        """Whether a line goes on with the block that is open."""
        if self._kind == "dmon":
            return is_units_line(line) or _is_cells(line)
        return self._kind == "csv" and ("," in line or _is_single(line, self._lines[0]))

    def mend_cut(self) -> str | None:
        """Fill up a last CSV row that was cut short, and say so: its GPU is there, what it read is not known."""
        if self._kind != "csv" or len(self._lines) < 2:
            return None
        wanted, cells = self._lines[0].count(","), self._lines[-1].split(",")
        whole = cells[:-1]  # the last cell may be half of what it was
        missing = wanted + 1 - len(cells)
        index = _index_of(self._lines[0], whole)
        if missing <= 0 or index is None:
            return None
        if any(_index_of(self._lines[0], line.split(",")) == index for line in self._lines[1:-1]):
            return None  # what was read of it before stands
        self._lines[-1] = ",".join([*whole, *([CUT] * (missing + 1))])
        return "the last row of the CSV is cut short: what it would have said is not known"

    def finish(self) -> list[Block]:
        self._close("")
        return self.blocks

    def _close(self, kind: str) -> None:
        if self._kind == "csv":
            block = _csv_block(self._lines)
            if block.rows:
                self.blocks.append(block)
        elif self._kind == "dmon":
            block = parse_dmon(self._names, [line for line in self._lines if not line.lstrip().startswith("#")])
            if block.rows:
                self.blocks.append(block)
        elif self._kind == "table":
            self.blocks.extend(block for block in parse_table(self._lines) if block.rows or block.driver)
        self._kind, self._lines = kind, []


CUT = " [cut short]"
"""In brackets, as nvidia-smi puts whatever has no value."""


def _index_of(header: str, cells: list[str]) -> str | None:
    """The GPU's index that a row begins with, whole or not; None where there is none."""
    names = [name.strip().lower() for name in header.split(",")]
    place = names.index("index") if "index" in names else len(cells)
    index = cells[place].strip() if place < len(cells) else ""
    return index if index.isdigit() else None


def _is_cells(line: str) -> bool:
    return bool(re.match(r"\s*\d", line)) and "," not in line


def _is_single(line: str, header: str) -> bool:
    """A value under a header of one column."""
    return "," not in header and bool(line.strip()) and _VALUE.match(line.strip()) is not None


def looks_like_row(line: str) -> bool:
    """Whether a line is a row of a query whose header is not there."""
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) < 3 or len(line) > 1000:
        return False
    valued = [cell for cell in cells if _VALUE.match(cell) or absent_reason(cell) is not None]
    return len(valued) * 2 >= len(cells)


def _csv_block(lines: list[str]) -> Block:
    block = Block(kind="csv", rows=[], notes=[])
    for found in parse_query_csv("\n".join(lines)):
        values: dict[str, Any] = {key: found[key] for key in found if key in INFO_KEYS or key in SAMPLE_KEYS}
        row = PastedRow(
            index=found["index"],
            values=values,
            absent={key: why for key, why in found.get("absent", {}).items() if key in values},
            error=found.get("error"),
            t=read_time(found.get("timestamp")),
        )
        block.driver = block.driver or found.get("driver")
        block.rows.append(row)
    return block
