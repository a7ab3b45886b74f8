"""Who the processes on a GPU are: user, name, memory. Looks into /proc and the user database only."""

from __future__ import annotations

import os
import pwd
import re
import threading
from typing import Any, Dict, List, Optional, Set, Tuple

from .hostinfo import in_foreign_pid_namespace, read_text
from .nvml import Nvml
from .redact import redact_argv

MAX_NAME = 120
MAX_CACHE = 4096
NOT_AVAILABLE = 1 << 63
"""NVML's "value not available" is all bits set; anything this large is no memory size."""
_INTERPRETER = re.compile(r"(?:python[0-9.]*|pypy[0-9.]*|node|bash|sh|perl|ruby|java)")

_LISTS = (
    ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"),
    ("nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v2"),
)


def short_name(argv: "List[str]", comm: Optional[str]) -> Optional[str]:
    """A process's name as people know it: its title, or program with script or module."""
    argv = redact_argv([arg for arg in argv if arg])
    if not argv:
        return comm or None
    program = argv[0].rsplit("/", 1)[-1] if not re.search(r"::|\s", argv[0]) else argv[0]
    if _INTERPRETER.fullmatch(program):
        rest = argv[1:]
        while rest and rest[0].startswith("-") and rest[0] not in ("-m", "-c"):
            rest = rest[1:]
        if rest[:1] == ["-m"]:
            program = " ".join([program] + rest[:2])
        elif rest and rest[0] != "-c":
            program = "%s %s" % (program, rest[0].rsplit("/", 1)[-1])
    return program[:MAX_NAME]


class Namer:
    """Names of processes, cached by pid and start; users are looked up apart, since a directory
    service that does not answer must not stop the readings."""

    def __init__(self) -> None:
        self.foreign = in_foreign_pid_namespace()
        self._names: Dict[Tuple[int, str], Tuple[Optional[str], Optional[int]]] = {}
        self._users: Dict[int, str] = {}
        self._asked: Set[int] = set()
        self._lock = threading.Lock()

    def who(self, pid: int) -> "Tuple[Optional[str], Optional[str]]":
        """(user, name) of a process id of the host; None where it is gone or hidden from us."""
        if self.foreign:
            return None, None
        stat = read_text("/proc/%d/stat" % pid, 1024)
        if stat is None:
            return None, None
        start = stat.rpartition(")")[2].split()
        key = (pid, start[19] if len(start) > 19 else "")
        with self._lock:
            known = self._names.get(key)
        if known is None:
            known = self._look(pid, stat)
            with self._lock:
                if len(self._names) >= MAX_CACHE:
                    self._names.clear()
                self._names[key] = known
        name, uid = known
        return (self._user(uid) if uid is not None else None), name

    @staticmethod
    def _look(pid: int, stat: str) -> "Tuple[Optional[str], Optional[int]]":
        line = read_text("/proc/%d/cmdline" % pid, 8192)
        comm = stat.partition("(")[2].rpartition(")")[0]
        try:
            uid: Optional[int] = os.stat("/proc/%d" % pid).st_uid
        except OSError:
            uid = None
        return short_name(line.split("\0") if line else [], comm), uid

    def _user(self, uid: int) -> Optional[str]:
        with self._lock:
            known = self._users.get(uid)
            ask = known is None and uid not in self._asked
            self._asked.add(uid)
        if ask:
            helper = threading.Thread(target=self._ask, args=(uid,), name="user-%d" % uid, daemon=True)
            helper.start()
            helper.join(0.1)
            with self._lock:
                known = self._users.get(uid)
        return known

    def _ask(self, uid: int) -> None:
        try:
            name = pwd.getpwuid(uid).pw_name
        except (KeyError, OSError):
            name = str(uid)
        with self._lock:
            self._users[uid] = name


def list_processes(
    nvml: Nvml, handle: Any, namer: Namer
) -> "Tuple[Optional[List[Dict[str, object]]], Optional[str], List[int]]":
    """(processes, why there are none to be had, their pids) of one GPU, compute and graphics merged."""
    memory: Dict[int, Optional[float]] = {}
    why: Optional[str] = None
    answered = False
    for names in _LISTS:
        found, reason = nvml.first(names, handle)
        if reason is not None:
            why = why or reason
            continue
        answered = True
        for item in found:
            used = getattr(item, "usedGpuMemory", None)
            mib = round(used / 1048576.0, 1) if isinstance(used, int) and 0 <= used < NOT_AVAILABLE else None
            pid = int(item.pid)
            before = memory.get(pid)
            memory[pid] = mib if before is None else (before if mib is None else max(before, mib))
    if not answered:
        return None, why or "not_supported", []
    rows: List[Dict[str, object]] = []
    for pid in sorted(memory):
        user, name = namer.who(pid)
        rows.append({"pid": pid, "user": user, "name": name, "memory_used_mib": memory[pid]})
    return rows, None, sorted(memory)
