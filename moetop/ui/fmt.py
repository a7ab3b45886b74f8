"""Numbers and times as text of steady width. `None` is always an em dash."""

from __future__ import annotations

import re
import time

from moetop.model import EPOCH_FLOOR_S, GpuReport
from moetop.ratio import power_percent, step
from moetop.text import plain
from moetop.ui.words import GPU_NAME_NOISE

ABSENT = "—"


def number(value: float | None, digits: int = 0) -> str:
    """A number with a fixed count of decimals."""
    return ABSENT if value is None else f"{value:.{digits}f}"


def gib(mib: float | None) -> str:
    """MiB as whole GiB."""
    return ABSENT if mib is None else f"{mib / 1024:.0f}"


def of(used: str, total: str) -> str:
    """`used / total`, one dash where both are absent."""
    return ABSENT if used == total == ABSENT else f"{used} / {total}"


def pair(used: float | None, total: float | None) -> str:
    """Two whole numbers as `331 / 600`."""
    return of(number(used), number(total))


def big_pair(used: float | None, total: float | None) -> str:
    """Like `pair`, in thousands from 10,000 on so that sums keep the width: `11.2k/11.2k`."""
    if max(used or 0.0, total or 0.0) < 10000:
        return pair(used, total)
    return "/".join(ABSENT if value is None else f"{value / 1000:.1f}k" for value in (used, total))


def bar(value: float | None, width: int) -> tuple[str, str]:
    """Filled and empty part of a bar for 0..100, in halves of a cell."""
    if value is None:
        return "", " " * width
    halves = step(value, 100.0, width * 2)
    filled = "━" * (halves // 2) + "╸" * (halves % 2)
    return filled, "─" * (width - len(filled))


def span(seconds: float | None) -> str:
    """A duration in its two largest useful units: `12 s`, `4 m 05 s`, `3 h 20 m`, `2 d 4 h`."""
    if seconds is None:
        return ABSENT
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} m {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} m"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def short_span(seconds: float) -> str:
    """A duration for an axis: `5 min`, `1 h`, `90 s`."""
    whole = round(seconds)
    if whole >= 3600 and whole % 3600 == 0:
        return f"{whole // 3600} h"
    if whole >= 60 and whole % 60 == 0:
        return f"{whole // 60} min"
    return f"{whole} s"


def clock_time(t: float | None) -> str:
    """Time of day, local; `mm:ss` from the start in a recording whose zero is not the epoch."""
    if t is None:
        return "--:--:--"
    if t < EPOCH_FLOOR_S:
        whole = max(0, int(t))
        return f"{whole // 3600:02d}:{whole % 3600 // 60:02d}:{whole % 60:02d}"
    return time.strftime("%H:%M:%S", time.localtime(t))


def printed_time(t: float) -> str:
    """Time of day of a time that was read from text without a zone, as it was printed."""
    return time.strftime("%H:%M:%S", time.gmtime(t))


def size(count: float | None) -> str:
    """Bytes with a binary unit."""
    if count is None:
        return ABSENT
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def gpu_name(name: str | None) -> str:
    """A GPU's name without the words all of them share."""
    if name is None:
        return "GPU"
    short = name
    for noise in GPU_NAME_NOISE:
        short = short.replace(noise, "")
    return plain(short.strip() or name, 80)


def power_pct(gpu: GpuReport) -> float | None:
    """Draw in percent of the enforced limit, None where either is absent."""
    if gpu.power_pct is not None:
        return gpu.power_pct
    return power_percent(gpu.power_w, gpu.power_limit_w)


_HEAD = re.compile(
    r"""^\s*(?:
        \[\s*\d{4}-\d\d-\d\d[T\ ]\d\d:\d\d:\d\d[^\]]*\]        # [2026-01-31 01:04:33 TP0]
      | \d{4}[-/]\d\d[-/]\d\d[T\ ]\d\d:\d\d:\d\d(?:[.,]\d+)?Z?(?:[+-]\d\d:?\d\d)?
      | \d\d-\d\d\ \d\d:\d\d:\d\d
      | (?:DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL)\b:?
      | \((?:EngineCore|APIServer|Worker)[^)]*\)
      | \[[\w./-]+\.py:\d+\]
      | \[(?:DEBUG|INFO|WARNING|ERROR)\]
      | -\s
    )\s*:?\s*""",
    re.VERBOSE,
)

_CLOCK = re.compile(r"(?<!\d)(\d\d:\d\d:\d\d)(?!\d)")


def headless(text: str) -> str:
    """A log line without the time stamps, ranks and level in front of its message."""
    rest = text
    for _ in range(5):
        cut = _HEAD.sub("", rest, count=1)
        if cut == rest or not cut:
            break
        rest = cut
    return rest or text


def printed_clock(text: str) -> str | None:
    """The first time of day that a log line prints near its start."""
    found = _CLOCK.search(text[:60])
    return found.group(1) if found else None
