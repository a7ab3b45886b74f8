"""Columns of the fleet table: what each shows, how wide, and which give way first. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from moetop.model import GpuReport
from moetop.ui import fmt
from moetop.ui.scene import HostView, Totals
from moetop.ui.words import LIMIT_ORDER, LIMIT_WORDS, QUIET_LIMITS

Cell = tuple[str, str]
"""Text and colour role; an empty role takes the row's own."""


@dataclass(frozen=True)
class Column:
    """One column. `drop` orders giving way (1 first, None never); `gpu` and `host` make its cells.

    `bar` names the series colour when the cell is a bar of the percentage that the cells give as text.
    """

    key: str
    title: str
    width: int
    gpu: Callable[[GpuReport], Cell]
    host: Callable[[Totals], Cell]
    align: str = "right"
    drop: int | None = None
    bar: str | None = None


def _plain(text: str) -> Cell:
    return text, ("quiet" if text == fmt.ABSENT else "")


def _limit_cell(gpu: GpuReport) -> Cell:
    for limit in LIMIT_ORDER:
        if limit in gpu.limits:
            return LIMIT_WORDS[limit][0], ("quiet" if limit in QUIET_LIMITS else "warning")
    return "", ""


def _raw(value: float | None) -> Cell:
    return ("" if value is None else str(value)), ""


NAME = "name"
STATE = "state"

COLUMNS: tuple[Column, ...] = (
    Column(
        "util_bar", "", 10,
        lambda g: _raw(g.util_gpu_pct), lambda t: ("", ""), align="left", drop=6, bar="series_util",
    ),
    Column("util", "UTIL", 4, lambda g: _plain(fmt.number(g.util_gpu_pct)),
           lambda t: _plain(fmt.number(t.util_gpu_pct)), drop=12),
    Column(
        "power_bar", "POWER", 10,
        lambda g: _raw(fmt.power_pct(g)), lambda t: ("", ""), align="left", drop=5, bar="series_power",
    ),
    Column(
        "power", "W / LIMIT", 11,
        lambda g: _plain(fmt.pair(g.power_w, g.power_limit_w)),
        lambda t: _plain(fmt.big_pair(t.power_w, t.power_limit_w)), drop=10,
    ),
    Column("limit", "", 3, _limit_cell, lambda t: ("", ""), align="left", drop=7),
    Column("power_pct", "PWR%", 4, lambda g: _plain(fmt.number(fmt.power_pct(g))),
           lambda t: _plain(fmt.number(t.power_pct))),
    Column("tensor", "TENSOR", 6, lambda g: _plain(fmt.number(g.gpm.tensor_pct if g.gpm else None)),
           lambda t: _plain(fmt.number(t.tensor_pct)), drop=11),
    Column("dram", "DRAM", 4, lambda g: _plain(fmt.number(g.gpm.dram_pct if g.gpm else None)),
           lambda t: _plain(fmt.number(t.dram_pct)), drop=3),
    Column("clock", "SM MHz", 6, lambda g: _plain(fmt.number(g.sm_clock_mhz)),
           lambda t: _plain(fmt.number(t.sm_clock_mhz)), drop=4),
    Column("sm_active", "SM ACT", 6, lambda g: _plain(fmt.number(g.gpm.sm_active_pct if g.gpm else None)),
           lambda t: _plain(fmt.number(t.sm_active_pct)), drop=2),
    Column("util_mem", "MEM UTIL", 8, lambda g: _plain(fmt.number(g.util_mem_pct)),
           lambda t: _plain(fmt.number(t.util_mem_pct)), drop=1),
    Column("temp", "°C", 3, lambda g: _plain(fmt.number(g.temp_c)), lambda t: _plain(fmt.number(t.temp_c)), drop=9),
    Column(
        "memory", "MEM GiB", 11,
        lambda g: _plain(fmt.of(fmt.gib(g.memory_used_mib), fmt.gib(g.memory_total_mib))),
        lambda t: _plain(fmt.of(fmt.gib(t.memory_used_mib), fmt.gib(t.memory_total_mib))), drop=8,
    ),
)  # fmt: skip
"""After the name and the state, from left to right. `drop` makes them give way in this order: what only wide
terminals have, DRAM, clock, bars, limit, memory, temperature, power, tensor, utilization."""

STATE_WIDTH = 16
NAME_MIN = 14
NAME_COMFORT = 17
NAME_MAX = 34
GAP = 1


@dataclass(frozen=True)
class Layout:
    """Columns that fit a width, with the width of the name column; `dropped` are the titles left out."""

    name_width: int
    columns: tuple[Column, ...]
    bar_width: int
    dropped: tuple[str, ...]

    def width_of(self, column: Column) -> int:
        """Cells of a column; bars share what a wide terminal has left."""
        return column.width if column.bar is None else self.bar_width


def fit_columns(width: int) -> Layout:
    """Choose the columns for `width` cells: all, less those that give way first."""
    columns = list(COLUMNS)
    dropped: list[str] = []
    fixed = 1 + STATE_WIDTH + GAP

    def needed() -> int:
        return fixed + sum(column.width + GAP for column in columns)

    order = sorted((column for column in COLUMNS if column.drop is not None), key=lambda column: column.drop or 0)
    for column in order:
        comfort = NAME_COMFORT if len(columns) > 5 else NAME_MIN
        if needed() + comfort <= width:
            break
        columns.remove(column)
        dropped.append(column.title or column.key)
    left = max(NAME_MIN, width - needed())
    left -= left > NAME_COMFORT  # a blank at the right edge where there is room
    bars = sum(column.bar is not None for column in columns)
    bar_width = 10
    if bars and left > NAME_MAX:
        bar_width = min(30, 10 + (left - NAME_MAX) // bars)
        left -= (bar_width - 10) * bars
    return Layout(min(left, NAME_MAX), tuple(columns), bar_width, tuple(dropped))


def gpu_label(host: HostView, gpu: GpuReport) -> str:
    """`  0 RTX PRO 6000`: the index right-aligned among the host's GPUs."""
    digits = max(len(str(other.index)) for other in host.report.gpus)
    return f"{gpu.index:>{digits + 2}} {fmt.gpu_name(gpu.name)}"
