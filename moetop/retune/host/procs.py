"""Processes of the host as /proc shows them: identity, tree, streams, manager; signals by identity, never by name."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path
from typing import Any

PROC = Path("/proc")
_HEX = r"[0-9a-f]{64}"
_CONTAINER = re.compile(rf"(?:(docker|libpod|crio|cri-containerd|containerd)[-/]|/)({_HEX})(?:\.scope)?(?:/|$)")
_CLOCK_HZ = os.sysconf("SC_CLK_TCK")


def boot_id() -> str:
    """The kernel's id of this boot; empty where it cannot be read."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _stat(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat from the state on (the name may hold anything, so cut after its last bracket)."""
    try:
        text = (PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def identity(pid: int) -> dict[str, Any] | None:
    """`{pid, ticks, boot}` of a living process: the start time tells it from a later one with the same number."""
    fields = _stat(pid)
    if fields is None or len(fields) < 20 or _is_gone(pid, fields):
        return None
    return {"pid": pid, "ticks": int(fields[19]), "boot": boot_id()}


def _is_gone(pid: int, fields: list[str]) -> bool:
    """A zombie is gone, unless other threads of it still run."""
    if fields[0] not in "ZX":
        return False
    try:
        return len(list((PROC / str(pid) / "task").iterdir())) <= 1
    except OSError:
        return True


def alive(ident: dict[str, Any] | None) -> bool:
    """Whether exactly this process still runs. Reaps it if it is a dead child of ours."""
    if not ident:
        return False
    reap(ident["pid"])
    now = identity(ident["pid"])
    return now is not None and now["ticks"] == ident["ticks"] and now["boot"] == ident["boot"]


def reap(pid: int) -> int | None:
    """Exit status of a dead child of ours (negative: signal), None if it is not one or still runs."""
    try:
        done, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return None
    if done == 0:
        return None
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def started_at(pid: int) -> float | None:
    """Epoch seconds at which a process started, to clock-tick accuracy; None if unknown."""
    fields = _stat(pid)
    if fields is None or len(fields) < 20:
        return None
    try:
        uptime = float((PROC / "uptime").read_text().split()[0])
    except (OSError, ValueError):
        return None
    return time.time() - uptime + int(fields[19]) / _CLOCK_HZ


def pids() -> list[int]:
    """Every process number now."""
    return [int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit()]


def parent(pid: int) -> int | None:
    """The parent's number."""
    fields = _stat(pid)
    return int(fields[1]) if fields and len(fields) > 1 else None


def tree(pid: int) -> list[dict[str, Any]]:
    """Identities of a process and all its descendants, and of what shares the group it leads."""
    parents: dict[int, int] = {}
    groups: dict[int, int] = {}
    for one in pids():
        fields = _stat(one)
        if fields and len(fields) > 2:
            parents[one], groups[one] = int(fields[1]), int(fields[2])
    wanted = {pid} | {one for one, group in groups.items() if group == pid}
    grown = True
    while grown:
        more = {one for one, above in parents.items() if above in wanted and one not in wanted}
        wanted |= more
        grown = bool(more)
    return [ident for ident in (identity(one) for one in sorted(wanted)) if ident]


def send(ident: dict[str, Any], number: int) -> bool:
    """Signal exactly this process; False if it is gone. Raises PermissionError."""
    if not alive(ident):
        return False
    try:
        os.kill(ident["pid"], number)
    except ProcessLookupError:
        return False
    return True


def kill_all(idents: list[dict[str, Any]]) -> list[int]:
    """SIGKILL each that still lives; the numbers that were."""
    return [ident["pid"] for ident in idents if send(ident, signal.SIGKILL)]


def argv(pid: int) -> list[str]:
    """The command line; empty if it cannot be read or was taken away."""
    try:
        raw = (PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return []
    parts = raw.split(b"\0")
    if parts and not parts[-1]:
        parts.pop()
    return [os.fsdecode(part) for part in parts]


def environ(pid: int) -> dict[str, str]:
    """The environment at its start. Raises OSError. Its values must never leave the host."""
    raw = (PROC / str(pid) / "environ").read_bytes()
    pairs = (os.fsdecode(part).partition("=") for part in raw.split(b"\0") if part)
    return {name: value for name, mark, value in pairs if mark and name}


def link(pid: int, name: str) -> str | None:
    """Target of /proc/PID/NAME (cwd, exe, fd/1)."""
    try:
        return os.readlink(str(PROC / str(pid) / name))  # noqa: PTH115 - 3.8
    except OSError:
        return None


def status(pid: int) -> dict[str, str]:
    """/proc/PID/status as a mapping."""
    try:
        text = (PROC / str(pid) / "status").read_text(errors="replace")
    except OSError:
        return {}
    return {key: value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}


def owner(pid: int) -> int | None:
    """The real user id."""
    ids = status(pid).get("Uid", "").split()
    return int(ids[0]) if ids else None


def stream(pid: int, number: int) -> dict[str, Any]:
    """Where a standard stream goes: `kind` file, null, terminal, pipe, socket, closed or other, and its target."""
    target = link(pid, f"fd/{number}")
    if target is None:
        readable = os.access(str(PROC / str(pid) / "fd"), os.R_OK | os.X_OK)
        return {"kind": "closed" if readable else "denied", "target": None}
    if target.startswith("pipe:"):
        return {"kind": "pipe", "target": target, "reader": _reader(target, pid)}
    if target.startswith("socket:"):
        return {"kind": "socket", "target": target}
    if target == "/dev/null":
        return {"kind": "null", "target": target}
    if re.match(r"/dev/(?:pts/|tty|console)", target):
        return {"kind": "terminal", "target": target}
    deleted = target.endswith(" (deleted)")
    path = target[: -len(" (deleted)")] if deleted else target
    if path.startswith("/") and not path.startswith("/dev/") and (deleted or Path(path).is_file()):
        return {"kind": "file", "target": path, "deleted": deleted}
    return {"kind": "other", "target": target}


def _reader(pipe: str, writer: int) -> str | None:
    """Name of the process at the other end of a pipe, for the words that refuse it."""
    for pid in pids():
        if pid == writer or link(pid, "fd/0") != pipe:
            continue
        try:
            return f"{(PROC / str(pid) / 'comm').read_text().strip()} (pid {pid})"
        except OSError:
            continue
    return None


def cgroup(pid: int) -> str:
    """The control group path (the unified one, else systemd's)."""
    try:
        lines = (PROC / str(pid) / "cgroup").read_text().splitlines()
    except OSError:
        return ""
    found = {kind: path for _, kind, path in (line.split(":", 2) for line in lines if line.count(":") >= 2)}
    return found.get("") or found.get("name=systemd") or ""


def container(pid: int) -> str | None:
    """`docker:ID`, `podman:ID`, `kubernetes:ID` of the container a process is in, as seen from outside it."""
    path = cgroup(pid)
    if path == cgroup(os.getpid()):
        return None
    if "kubepods" in path:
        return "kubernetes:" + path.rsplit("/", 1)[-1][:80]
    match = _CONTAINER.search(path)
    if match is None:
        return None
    kind = "podman" if match.group(1) == "libpod" else "docker"
    return f"{kind}:{match.group(2)}"


def service(pid: int) -> tuple[str, bool] | None:
    """(unit, is a user unit) whose control group a process is in; scopes and sessions are none."""
    path = cgroup(pid)
    units = [part for part in path.split("/") if part.endswith(".service")]
    user = bool(units) and units[0].startswith("user@")
    if user:
        units = units[1:]
    return (units[-1], user) if units else None


def limits(pid: int) -> dict[str, list[str]]:
    """Resource limits that a new shell would not give again: name -> [soft, hard] as printed."""
    wanted = {
        "Max open files": "NOFILE",
        "Max locked memory": "MEMLOCK",
        "Max core file size": "CORE",
        "Max stack size": "STACK",
    }
    found: dict[str, list[str]] = {}
    try:
        lines = (PROC / str(pid) / "limits").read_text().splitlines()
    except OSError:
        return {}
    for line in lines:
        for label, name in wanted.items():
            if line.startswith(label):
                found[name] = line[len(label) :].split()[:2]
    return found


def listeners(port: int) -> list[int]:
    """Inodes of the sockets that listen on a TCP port in our network namespace."""
    found = []
    for table in ("tcp", "tcp6"):
        try:
            lines = (PROC / "net" / table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if len(fields) > 9 and fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                found.append(int(fields[9]))
    return found


def holds_socket(pid: int, inodes: list[int]) -> bool:
    """Whether a process has one of these sockets open."""
    names = {f"socket:[{inode}]" for inode in inodes}
    try:
        fds = list((PROC / str(pid) / "fd").iterdir())
    except OSError:
        return False
    return any(link(pid, f"fd/{fd.name}") in names for fd in fds)


def same_command(wanted: list[str], uid: int | None, but: set[int], after: float) -> int | None:
    """A process with exactly this command line and user that started after `after`, not in `but`; None if none."""
    for pid in pids():
        if pid in but or argv(pid) != wanted or (uid is not None and owner(pid) != uid):
            continue
        begun = started_at(pid)
        if begun is not None and begun >= after - 1.0 and identity(pid):
            return pid
    return None
