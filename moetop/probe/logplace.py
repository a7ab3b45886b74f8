"""Tells where a server's output goes, from its open descriptors and control group, in a form that can be followed."""

from __future__ import annotations

import os
import re
import stat as stat_bits
from typing import Any, NamedTuple

from . import asroot, procfs

# Which stream an engine logs on first: SGLang's logging writes to stderr, vLLM's to stdout.
STREAMS = {"sglang": (2, 1), "vllm": (1, 2), "tensorrt_llm": (1, 2)}
CONTAINERS = (
    ("docker", re.compile(r"(?:^|/)docker[-/]([0-9a-f]{64})")),
    ("podman", re.compile(r"libpod-([0-9a-f]{64})(?!.*-conmon)")),
    ("containerd", re.compile(r"(?:cri-containerd-|crio-|/)([0-9a-f]{64})(?:\.scope)?(?:/|$)")),
)
# Units whose children are started by people and other tools: such a process has no manager of its own.
NOT_A_MANAGER = re.compile(
    r"^(?:ssh[d@]?[^/]*|cron|crond|atd|anacron|docker|containerd|podman|user@\d+|slurmd|slurmstepd[^/]*|kubelet|k3s"
    r"|rke2[^/]*|supervisor|supervisord|systemd-[^/]+|getty@[^/]+|serial-getty@[^/]+|gdm[^/]*|lightdm|sddm"
    r"|display-manager|tailscaled|jupyter[^/]*|code-server[^/]*|ttyd|webmin|cockpit[^/]*|amazon-ssm-agent"
    r"|google-[^/]+|waagent|walinuxagent|qemu-guest-agent|tmux[^/]*|screen[^/]*)\.service$"
)
MAX_PIPE_DEPTH = 4


class Place(NamedTuple):
    """`place` has the keys of a frame's `log`; `follow` says how to follow it, None where it cannot be."""

    place: dict[str, Any]
    follow: dict[str, Any] | None
    notes: list[str]


def manager_of(paths: list[str]) -> str:
    """`docker:ID`, `podman:ID`, `containerd:ID`, `systemd:UNIT`, `systemd-user:UNIT` or `plain`."""
    for path in paths:
        for runtime, pattern in CONTAINERS:
            match = pattern.search(path)
            if match:
                return "%s:%s" % (runtime, match.group(1)[:12])
    for path in paths:
        units = [part for part in path.split("/") if part.endswith(".service")]
        if units and not NOT_A_MANAGER.match(units[-1]):
            user = any(unit.startswith("user@") for unit in units[:-1])
            return ("systemd-user:" if user else "systemd:") + units[-1]
    return "plain"


def find_place(pid: int, engine: str, manager: str, user: str | None, sudo: bool = False) -> Place:
    """Where the log of a serving process goes. `sudo` allows to look with root's rights."""
    targets = {number: procfs.link(pid, "fd/%d" % number) for number in (1, 2)}
    if targets[1] is None and targets[2] is None:
        return (_as_root(pid, engine) if sudo else None) or _closed_to_us(manager, user)
    order = STREAMS.get(engine, (1, 2))
    files = [number for number in order if _is_regular(pid, number)]
    if files:
        return _file(pid, files, order, targets)
    number = next((n for n in order if targets[n] not in (None, "/dev/null")), order[0])
    target = targets[number] or "/dev/null"
    if manager.split(":", maxsplit=1)[0] in ("docker", "podman", "containerd"):
        return _container(manager, pid)
    if target.startswith("/dev/null"):
        return Place(
            {
                "kind": "none",
                "target": "/dev/null",
                "why": "the server's output is thrown away (/dev/null)",
                "fix": "start it with `>> FILE 2>&1`",
            },
            None,
            [],
        )
    if target.startswith("/dev/"):
        return _terminal(pid, target)
    if target.startswith("pipe:"):
        return _pipe(pid, target)
    if target.startswith("socket:") and manager.startswith("systemd"):
        unit = manager.split(":", 1)[1]
        follow = {"kind": "journal", "target": unit, "user": manager.startswith("systemd-user:")}
        return Place({"kind": "journal", "target": unit}, follow, [])
    return Place(
        {
            "kind": "none",
            "target": target,
            "why": "the server's output goes to %s, which cannot be read from outside" % target,
            "fix": "start it with `>> FILE 2>&1`, or name its log file with --log-path or `logs:`",
        },
        None,
        [],
    )


def _is_regular(pid: int, number: int) -> bool:
    entry = procfs.fd_stat(pid, number)
    return entry is not None and stat_bits.S_ISREG(entry.st_mode)


def _as_root(pid: int, engine: str) -> Place | None:
    """A file that another user's server writes to, as root sees it; any other target is guessed from outside."""
    for number in STREAMS.get(engine, (1, 2)):
        target = asroot.link(pid, "fd/%d" % number) or ""
        if target.startswith("/") and not target.startswith("/dev/") and not target.endswith(" (deleted)"):
            return Place({"kind": "file", "target": target}, {"kind": "file", "target": target}, [])
    return None


def _closed_to_us(manager: str, user: str | None) -> Place:
    kind, _, unit = manager.partition(":")
    if kind in ("docker", "podman"):
        return _container(manager, None)
    if kind == "systemd":
        follow = {"kind": "journal", "target": unit, "user": False}
        why = "its open files may not be read by this user; taken to be the journal of its unit"
        return Place({"kind": "journal", "target": unit, "why": why}, follow, [])
    return Place(
        {
            "kind": "none",
            "why": "it runs as %s, whose open files this user may not see" % (user or "another user"),
            "fix": "run moetop as %s or root, or name its log file with --log-path or `logs:`" % (user or "that user"),
        },
        None,
        [],
    )


def _file(pid: int, files: list[int], order: tuple[int, ...], targets: dict[int, str | None]) -> Place:
    number = files[0]
    notes = []
    path, deleted = visible_path(pid, number)
    place: dict[str, Any] = {"kind": "file", "target": path}
    if deleted:
        place["why"] = "the file %s was deleted; the server still writes into it" % deleted
        place["fix"] = "the log is lost when the server ends: copy %s, then restart the server with a new log" % path
    if len(files) == 2 and _identity(pid, files[0]) != _identity(pid, files[1]):
        other, _ = visible_path(pid, files[1])
        notes.append("its other output stream goes to %s; that file is followed too" % other)
        follow = {"kind": "file", "target": path, "holder": (pid, number), "also": (other, files[1])}
        return Place(place, follow, notes)
    silent = next((n for n in order if n not in files and (targets[n] or "").startswith("/dev/null")), None)
    if silent is not None:
        lost = "standard error (FlashInfer's tuner and progress bars)" if silent == 2 else "standard output"
        notes.append("%s is thrown away (/dev/null); restart with `2>&1` to see it" % lost)
    return Place(place, {"kind": "file", "target": path, "holder": (pid, number)}, notes)


def _identity(pid: int, number: int) -> tuple[int, int] | None:
    entry = procfs.fd_stat(pid, number)
    return None if entry is None else (entry.st_dev, entry.st_ino)


def visible_path(pid: int, number: int) -> tuple[str, str | None]:
    """(a path from here to the file behind a descriptor, its old name if it was deleted)."""
    name = procfs.link(pid, "fd/%d" % number) or ""
    through = "%s/%d/fd/%d" % (procfs.PROC, pid, number)
    if name.endswith(" (deleted)"):
        return through, name[: -len(" (deleted)")]
    wanted = _identity(pid, number)
    for path in (name, "%s/%d/root%s" % (procfs.PROC, pid, name)):
        try:
            entry = os.stat(path)
        except OSError:
            continue
        if (entry.st_dev, entry.st_ino) == wanted:
            return path, None
    return through, None


def _container(manager: str, pid: int | None) -> Place:
    runtime, _, container = manager.partition(":")
    if runtime in ("docker", "podman"):
        follow: dict[str, Any] | None = {"kind": "container", "target": container, "runtime": runtime}
        return Place({"kind": "container", "target": manager}, follow, [])
    path = _pod_log(pid) if pid is not None else None
    if path is not None:
        return Place({"kind": "file", "target": path}, {"kind": "file", "target": path}, [])
    return Place(
        {
            "kind": "none",
            "target": manager,
            "why": "the container's log belongs to %s and may not be read by this user" % runtime,
            "fix": "set `logs:` to a command such as [kubectl, logs, -f, POD], or run moetop as root",
        },
        None,
        [],
    )


def _pod_log(pid: int) -> str | None:
    """Kubernetes keeps a container's log at /var/log/containers/POD_NAMESPACE_NAME-ID.log."""
    ids = [match.group(1) for path in procfs.cgroup(pid) for match in [CONTAINERS[2][1].search(path)] if match]
    try:
        names = os.listdir("/var/log/containers")
    except OSError:
        return None
    return next(("/var/log/containers/" + name for name in names if ids and name.endswith(ids[0] + ".log")), None)


def _terminal(pid: int, target: str) -> Place:
    around = [entry.comm for entry in procfs.ancestors(pid)]
    fix = "start it with `>> FILE 2>&1`, or under systemd or docker"
    if any(name.startswith("tmux") for name in around):
        fix = "without a restart: in its tmux pane, `pipe-pane -o 'cat >> FILE'`, then --log-path FILE; or " + fix
    elif any(name.lower().startswith("screen") for name in around):
        fix = "without a restart: in its screen window, Ctrl-a H logs to a file, then --log-path FILE; or " + fix
    why = "the server writes to the terminal %s, which nobody else can read" % target
    return Place({"kind": "terminal", "target": target, "why": why, "fix": fix}, None, [])


def _readers(pipe: str, writer: int) -> list[int]:
    """Processes that read from a pipe, as far as they may be looked into."""
    found = []
    for pid in procfs.pids():
        if pid == writer:
            continue
        table = procfs.file_descriptors(pid) or {}
        if any(target == pipe and procfs.open_for_writing(pid, fd) is False for fd, target in table.items()):
            found.append(pid)
    return found


def tee_files(argv: list[str]) -> list[str]:
    """The files that a `tee` command line names."""
    if not argv or os.path.basename(argv[0]) != "tee":
        return []
    plain = argv.index("--") if "--" in argv else len(argv)
    names = [word for at, word in enumerate(argv[1:], 1) if at > plain or not word.startswith("-")]
    return [name for name in names if name]


def _pipe(pid: int, target: str) -> Place:
    fix = "start the server with `>> FILE 2>&1` instead of a pipe"
    why = "the server's output goes into a pipe; who reads it may not be seen by this user"
    depth = 0
    writer, pipe = pid, target
    chain: list[str] = []
    while depth < MAX_PIPE_DEPTH:
        depth += 1
        readers = _readers(pipe, writer)
        if not readers:
            if depth == 1 and procfs.owner(pid) == os.getuid():
                why = "the server's output goes into a pipe that nobody reads"
            break
        reader = readers[0]
        words = procfs.argv(reader)
        chain.append(os.path.basename(words[0]) if words else "?")
        path = _written_by(reader, words)
        if path is not None:
            why = "the server's output goes through `| %s`: its file can be read, the pipe cannot be restored"
            place = {"kind": "pipe", "target": path, "why": why % " | ".join(chain), "fix": fix + " before a restart"}
            return Place(place, {"kind": "file", "target": path}, [])
        why = "the server's output is read by `%s` (pid %d) through a pipe" % (" | ".join(chain), reader)
        onward = procfs.link(reader, "fd/1") or ""
        if not onward.startswith("pipe:"):
            break
        writer, pipe = reader, onward
    return Place({"kind": "pipe", "why": why, "fix": fix + ", or name its log with --log-path or `logs:`"}, None, [])


def _written_by(reader: int, words: list[str]) -> str | None:
    """The file that a pipe's reader writes what it reads to."""
    names = tee_files(words)
    if names:
        return os.path.join(procfs.link(reader, "cwd") or "/", names[0])
    if _is_regular(reader, 1):
        return visible_path(reader, 1)[0]
    return None
