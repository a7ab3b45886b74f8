"""Bounded time series whose resolution halves with age. Pure: no clock, no I/O, no locks.

A point enters the youngest level; when a level is full its two oldest points become one of the next
level, so that with 1 sample a second the last 6 minutes stay exact and hours stay in a fixed size.
Rows are appended and dropped by single array operations, which one thread may do while others read:
a reader may see the newest row or not yet, never half of one.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import isnan, nan
from statistics import median_low

from moetop.model import GpuSample, ServerMetrics
from moetop.ratio import power_percent

LEVEL_POINTS = 360
"""Points a level holds before its oldest pair moves on (judgement: 6 minutes at 1 Hz drawn exactly)."""

LEVELS = 6
"""Number of levels: 63 x 360 points, 6 hours at 1 Hz and over an hour at 5 Hz; then the oldest go."""

GAP_INTERVALS = 3.5
"""A hole longer than this many usual intervals is a gap (a lost sample or two is not)."""

_HEAD = 2
"""Columns before the values: time of the first and of the last sample of a point, seconds."""


class History:
    """Series of named numbers over one time axis. `None` goes in and comes out as `None`."""

    def __init__(self, fields: Sequence[str], level_points: int = LEVEL_POINTS, levels: int = LEVELS) -> None:
        self.fields = tuple(fields)
        self._column = {name: _HEAD + i for i, name in enumerate(self.fields)}
        self._stride = _HEAD + len(self.fields)
        self._level_points = level_points
        self._levels = [array("d") for _ in range(levels)]

    def __len__(self) -> int:
        return sum(len(level) for level in self._levels) // self._stride

    @property
    def first_t(self) -> float | None:
        """Time of the oldest point kept, seconds."""
        for level in reversed(self._levels):
            if level:
                return level[0]
        return None

    @property
    def last_t(self) -> float | None:
        """Time of the newest point, seconds."""
        for level in self._levels:
            if level:
                return level[-self._stride + 1]
        return None

    def append(self, t: float, values: Mapping[str, float | None]) -> None:
        """Add the values at `t` seconds. Time that runs backwards (a replay sought back) starts anew."""
        last_t = self.last_t
        if last_t is not None and t < last_t:
            self.clear()
        row = array("d", [t, t])
        row.extend(nan if (value := values.get(name)) is None else float(value) for name in self.fields)
        self._levels[0].extend(row)
        self._age()

    def replace_newest(self, values: Mapping[str, float | None]) -> None:
        """Put other values in the place of the newest point's; there must be one."""
        stride = self._stride
        row = self._levels[0][-stride : -stride + _HEAD]
        row.extend(nan if (value := values.get(name)) is None else float(value) for name in self.fields)
        self._levels[0][-stride:] = row

    def clear(self) -> None:
        """Forget everything."""
        self._levels = [array("d") for _ in self._levels]

    def _age(self) -> None:
        stride = self._stride
        limit = self._level_points * stride
        for n, level in enumerate(self._levels):
            if len(level) <= limit:
                return
            first, second = level[:stride], level[stride : 2 * stride]
            if n + 1 < len(self._levels):
                self._levels[n + 1].extend(self._merge(first, second))
            del level[: 2 * stride]

    def _merge(self, first: array[float], second: array[float]) -> array[float]:
        usual_s = self.interval_s() or 1.0
        if second[0] - first[1] > GAP_INTERVALS * max(usual_s, first[1] - first[0]):
            return first + second
        row = array("d", [first[0], second[1]])
        for a, b in zip(first[_HEAD:], second[_HEAD:], strict=True):
            row.append(b if isnan(a) else a if isnan(b) else (a + b) / 2)
        return row

    def interval_s(self) -> float | None:
        """Usual seconds between samples, from the newest points; the shorter where two are as usual (one is a gap)."""
        times = self._levels[0][-9 * self._stride :: self._stride]
        steps = [b - a for a, b in pairwise(times) if b > a]
        return median_low(steps) if steps else None

    def resample(self, name: str, start: float, end: float, count: int) -> list[float | None]:
        """Mean of `name` in `count` equal buckets of `start`..`end`; None is a gap.

        Where points lie further apart than a bucket, the buckets between two neighbours carry the
        earlier value, unless the neighbours are a gap apart.
        """
        column = self._column[name]
        points = (point for flat in self._parts(start, end) for point in self._points(flat, column))
        return resample(points, start, end, count, GAP_INTERVALS * (self.interval_s() or 1.0))

    def _parts(self, start: float, end: float) -> Iterator[array[float]]:
        """The rows of each level that touch `start`..`end`, oldest level first."""
        stride = self._stride
        for level in reversed(self._levels):
            flat = level[:]
            if not flat or flat[-stride + 1] < start or flat[0] > end:
                continue
            begin = bisect_left(flat[1::stride], start)
            stop = bisect_right(flat[::stride], end)
            yield flat[begin * stride : stop * stride]

    def _points(self, flat: array[float], column: int) -> Iterator[tuple[float, float, float]]:
        stride = self._stride
        return zip(flat[::stride], flat[1::stride], flat[column::stride], strict=True)

    def recent(self, names: Sequence[str], seconds: float, count: int) -> list[tuple[float, ...]]:
        """About `count` of the newest exact points of the last `seconds`, oldest first, those that have
        all of `names`. Cheap, for trails."""
        stride = self._stride
        flat = self._levels[0][:]
        if not flat:
            return []
        begin = bisect_left(flat[1::stride], flat[-stride + 1] - seconds)
        step = max(1, (len(flat) // stride - begin) // max(1, count))
        columns = [flat[begin * stride + self._column[name] :: stride * step] for name in names]
        return [point for point in zip(*columns, strict=True) if not any(isnan(value) for value in point)]

    def latest(self, name: str) -> float | None:
        """Newest value of `name`, None where it is absent."""
        for level in self._levels:
            if level:
                value = level[-self._stride + self._column[name]]
                return None if isnan(value) else value
        return None

    def at(self, name: str, t: float) -> float | None:
        """Value of `name` at `t` seconds: of the point that holds it or ended shortly before."""
        reach_s = GAP_INTERVALS * (self.interval_s() or 1.0)
        found: float | None = None
        for flat in self._parts(t - reach_s, t):
            for _first, _last, value in self._points(flat, self._column[name]):
                found = None if isnan(value) else value
        return found


def resample(
    points: Iterator[tuple[float, float, float]], start: float, end: float, count: int, gap_s: float
) -> list[float | None]:
    """Buckets of `points` (first time, last time, value; NaN is absent) as `History.resample` says."""
    if count <= 0 or end <= start:
        return []
    sums = [0.0] * count
    weights = [0] * count
    scale = count / (end - start)
    previous: tuple[int, float, float] | None = None
    for first, last, value in points:
        if isnan(value):
            previous = None
            continue
        low = max(0, min(count - 1, int((first - start) * scale)))
        high = max(low, min(count - 1, int((last - start) * scale)))
        if previous is not None and first - previous[1] <= max(gap_s, (last - first) * 2):
            for bucket in range(previous[0] + 1, low):
                sums[bucket] += previous[2]
                weights[bucket] += 1
        for bucket in range(low, high + 1):
            sums[bucket] += value
            weights[bucket] += 1
        previous = (high, last, value)
    return [total / weight if weight else None for total, weight in zip(sums, weights, strict=True)]


GPU_FIELDS = (
    "util_gpu_pct",
    "util_mem_pct",
    "power_w",
    "power_limit_w",
    "power_pct",
    "temp_c",
    "memory_used_mib",
    "sm_clock_mhz",
    "sm_active_pct",
    "tensor_pct",
    "dram_pct",
)
"""What is kept of each sample; `power_pct` is of the enforced limit."""


class GpuHistory(History):
    """One GPU's samples."""

    def __init__(self, level_points: int = LEVEL_POINTS, levels: int = LEVELS) -> None:
        super().__init__(GPU_FIELDS, level_points, levels)

    def add(self, t: float, sample: GpuSample) -> None:
        """Add a sample taken at `t` seconds; one that could not be read is a row of absences."""
        limit_w = sample.power_limit_w
        power_w = sample.power_w
        values: dict[str, float | None] = {
            "util_gpu_pct": sample.util_gpu_pct,
            "util_mem_pct": sample.util_mem_pct,
            "power_w": power_w,
            "power_limit_w": limit_w,
            "power_pct": power_percent(power_w, limit_w),
            "temp_c": sample.temp_c,
            "memory_used_mib": sample.memory_used_mib,
            "sm_clock_mhz": sample.sm_clock_mhz,
        }
        if sample.gpm is not None:
            values["sm_active_pct"] = sample.gpm.sm_active_pct
            values["tensor_pct"] = sample.gpm.tensor_pct
            values["dram_pct"] = sample.gpm.dram_pct
        self.append(t, values)


ONE_READING_S = 1.0
"""Numbers of a server within this are one reading: ranks print theirs one after the other (the newest are whole)."""

LATE_S = 5.0
"""A server's numbers come on two ways, its log and its endpoint: such a one that is overtaken by so much is passed
over; of one that is later still the host's clock was set back."""

SERVER_FIELDS = ("running", "waiting", "prompt_tokens_s", "generation_tokens_s", "kv_usage_pct")
"""What is kept of a server's own numbers."""


class ServerHistory(History):
    """One server's numbers over time."""

    def __init__(self, level_points: int = LEVEL_POINTS, levels: int = LEVELS) -> None:
        super().__init__(SERVER_FIELDS, level_points, levels)

    def add(self, t: float, metrics: ServerMetrics) -> None:
        """Add the numbers that were true at `t` seconds; a reading told again is passed over."""
        last_t = self.last_t
        if last_t is not None and last_t - LATE_S <= t <= last_t:
            return
        values = {name: getattr(metrics, name) for name in SERVER_FIELDS}
        if last_t is not None and last_t < t < last_t + ONE_READING_S:
            self.replace_newest(values)
        else:
            self.append(t, values)
