"""Small charts over time for the Markdown report: a line of blocks for each value. Reads histories, writes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from moetop.export.plainform import clean_text
from moetop.history import GpuHistory, History, ServerHistory
from moetop.model import EPOCH_FLOOR_S, PASTED_SAMPLES, HostReport
from moetop.ratio import round_top
from moetop.text import plain

COLUMNS = 60
"""Values of a line: with its words it takes some 110 characters."""

SPAN_S = 3600.0
"""Longest time shown: what lies before the last hour would hide it."""

MAX_GPUS = 8
MAX_SERVERS = 8
"""Most GPUs and servers of a host that have lines; how many more there are is said."""

NAME_CELLS = 16

BLOCKS = "▁▂▃▄▅▆▇█"

GPU_LINES = (("util %", "util_gpu_pct"), ("power %", "power_pct"), ("power W", "power_w"), ("tensor %", "tensor_pct"))
"""Lines of a GPU, label and field. Power in watts stands only where the limit is not known."""


class SeriesSource(Protocol):
    """Where the series of a snapshot's hosts come from."""

    def history(self, host: str, gpu: int) -> GpuHistory | None:
        """Series of one GPU."""

    def server_history(self, host: str, server: str) -> ServerHistory | None:
        """Series of one server's own numbers."""


def spark(values: Sequence[float | None], top: float) -> str:
    """A block for each value of 0..`top`, a blank for an absent one."""
    return "".join(" " if value is None else BLOCKS[_block(value, top)] for value in values)


def _block(value: float, top: float) -> int:
    part = value / top if top > 0 else 0.0
    return 0 if not part > 0 else len(BLOCKS) - 1 if part >= 1 else int(part * len(BLOCKS))


def nice_top(value: float) -> float:
    """The next of 1, 2, 5, 10, 20, 50 ... that is not below `value`."""
    return round_top(max(1.0, value), (1, 2, 5))


class _Axis:
    """The common time of all lines of a host."""

    def __init__(self, histories: Iterable[History]) -> None:
        known = [history for history in histories if history.first_t is not None and history.last_t is not None]
        self.end = max((history.last_t or 0.0 for history in known), default=0.0)
        first = min((history.first_t or 0.0 for history in known), default=0.0)
        self.start = max(first, self.end - SPAN_S)
        self.columns = min(COLUMNS, max(map(len, known), default=0))

    def line(self, name: str, label: str, history: History, field: str, top: float | None = None) -> str | None:
        """One line of the chart; None where nothing is known. Without a `top` the highest value gives it."""
        values = history.resample(field, self.start, self.end, self.columns)
        known = [value for value in values if value is not None]
        if not known:
            return None
        scale = nice_top(max(known)) if top is None else top
        now = history.latest(field)
        newest = "" if now is None else f", newest {now:,.0f}"
        return f"{name:<{NAME_CELLS}} {label:<8} {spark(values, scale)}  0-{scale:,.0f}{newest}"


def host_chart(host: HostReport, series: SeriesSource) -> list[str]:
    """Lines of the charts of a host, the axis in words first; none where there is no course to show."""
    gpus = {gpu.index: series.history(host.name, gpu.index) for gpu in host.gpus}
    servers = {server.name: series.server_history(host.name, server.name) for server in host.servers}
    there = {index: history for index, history in gpus.items() if history is not None}
    spoken = {server: history for server, history in servers.items() if history is not None}
    axis = _Axis([*there.values(), *spoken.values()])
    undated = host.source in PASTED_SAMPLES and axis.end < EPOCH_FLOOR_S
    if axis.columns < 2 or axis.end <= axis.start or undated:
        return []
    lines = [*_gpu_lines(axis, there), *_server_lines(axis, spoken)]
    column_s = (axis.end - axis.start) / axis.columns
    head = f"last {_span(axis.end - axis.start)}, {column_s:.3g} s a column, the newest at the right; blank: no value"
    return [head, *lines] if lines else []


def _gpu_lines(axis: _Axis, there: dict[int, GpuHistory]) -> Iterable[str]:
    for index, history in list(there.items())[:MAX_GPUS]:
        shown = f"GPU {index}"
        percent = False
        for label, field in GPU_LINES:
            if field == "power_w" and percent:
                continue
            line = axis.line(shown, label, history, field, None if field == "power_w" else 100.0)
            if line is not None:
                percent = percent or field == "power_pct"
                shown = ""
                yield line
    if len(there) > MAX_GPUS:
        yield f"{len(there) - MAX_GPUS} more GPUs"


def _server_lines(axis: _Axis, spoken: dict[str, ServerHistory]) -> Iterable[str]:
    shown = [axis.line(_short(name), "tok/s", h, "generation_tokens_s") for name, h in spoken.items()]
    lines = [line for line in shown if line is not None]
    yield from lines[:MAX_SERVERS]
    if len(lines) > MAX_SERVERS:
        yield f"{len(lines) - MAX_SERVERS} more servers"


def _short(name: str) -> str:
    text = plain(clean_text(name))
    return text if len(text) <= NAME_CELLS else f"{text[: NAME_CELLS - 1]}…"


def _span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
