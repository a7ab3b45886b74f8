"""The host beside its GPUs: processor, memory, load, who we are. Reads /proc; starts nothing."""

from __future__ import annotations

import os
import sys
import time
from typing import Dict, List, Optional, Tuple

INIT_PID_NAMESPACE = "pid:[4026531836]"  # include/linux/proc_ns.h PROC_PID_INIT_INO
Value = Optional[float]


def read_text(path: str, limit: int = 1 << 16) -> Optional[str]:
    """A small file's text, or None where it is not there or not to be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read(limit)
    except OSError:
        return None


def memory_mib() -> Tuple[Value, Value]:
    """(total, used) of the host: used is total without what is available to new programs."""
    text = read_text("/proc/meminfo")
    found: Dict[str, float] = {}
    for line in (text or "").splitlines():
        name, _, rest = line.partition(":")
        if name in ("MemTotal", "MemAvailable"):
            try:
                found[name] = int(rest.split()[0]) / 1024.0
            except (ValueError, IndexError):
                continue
    total, available = found.get("MemTotal"), found.get("MemAvailable")
    used = round(total - available, 1) if total is not None and available is not None else None
    return (round(total, 1) if total is not None else None), used


LOAD_EVERY_S = 5.0
"""/proc/stat takes the kernel a millisecond on hosts with many cores; the figures are repeated in between."""


class LoadReader:
    """Processor use since the last reading, load and memory."""

    def __init__(self) -> None:
        self._last = self._ticks()
        self._read_at: Optional[float] = None
        self._kept: Dict[str, Value] = {}

    @staticmethod
    def _ticks() -> "Optional[Tuple[int, int]]":
        text = read_text("/proc/stat", 4096)
        if not text or not text.startswith("cpu "):
            return None
        try:
            numbers = [int(word) for word in text.splitlines()[0].split()[1:9]]
        except ValueError:
            return None
        idle = sum(numbers[3:5])  # idle and waiting for input or output
        return sum(numbers), idle

    def read(self) -> Dict[str, Value]:
        """HostLoad keys; what cannot be read is left out."""
        now = time.monotonic()
        if self._read_at is not None and now - self._read_at < LOAD_EVERY_S and "cpu_pct" in self._kept:
            return self._kept
        self._read_at = now
        out: Dict[str, Value] = {}
        ticks = self._ticks()
        if ticks is not None and self._last is not None:
            total, idle = ticks[0] - self._last[0], ticks[1] - self._last[1]
            if total > 0:
                out["cpu_pct"] = round(min(100.0, max(0.0, 100.0 * (total - idle) / total)), 1)
        self._last = ticks
        try:
            out["load1"] = round(os.getloadavg()[0], 2)
        except OSError:
            pass
        total_mib, used_mib = memory_mib()
        if total_mib is not None:
            out["memory_total_mib"] = total_mib
        if used_mib is not None:
            out["memory_used_mib"] = used_mib
        self._kept = out
        return out


def user_name() -> str:
    """Our own user, from the environment first: a directory service may not answer."""
    known = os.environ.get("USER") or os.environ.get("LOGNAME")
    return known or ("root" if os.getuid() == 0 else "uid %d" % os.getuid())


def host_facts() -> Dict[str, object]:
    """The host's part of a hello frame."""
    total, _ = memory_mib()
    return {
        "user": user_name(),
        "python": "%d.%d.%d" % sys.version_info[:3],
        "hostname": os.uname().nodename or None,
        "cpus": os.cpu_count(),
        "memory_total_mib": total,
    }


def sight_notes() -> List[str]:
    """Sentences on what this user cannot see here."""
    notes = []
    if in_foreign_pid_namespace():
        notes.append("the probe runs in a container: processes of the host have no names here")
    mounts = read_text("/proc/mounts") or ""
    hidden = any(line.split()[1:2] == ["/proc"] and "hidepid=" in line for line in mounts.splitlines())
    if hidden and os.getuid() != 0:
        notes.append("/proc hides other users' processes (hidepid): their names and logs cannot be seen")
    return notes


def in_foreign_pid_namespace() -> bool:
    """Whether our process ids are not the host's (inside a container): NVML's then name others."""
    try:
        return os.readlink("/proc/self/ns/pid") != INIT_PID_NAMESPACE
    except OSError:
        return False
