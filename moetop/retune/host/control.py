"""Starting, stopping and finding the server through whatever manages it. Runs argument lists, never a shell line."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from . import procs
from .restore import query, unit_facts

COMMAND_TIMEOUT_S = 60.0


class CannotStart(Exception):
    """The server or a tool could not be started; `str()` says why."""


def run_command(argv: list[str], timeout_s: float, env: dict[str, str] | None = None, cwd: str | None = None) -> str:
    """Run a short command of the plan; its output. Raises CannotStart with the last line it printed."""
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=timeout_s, check=False, env=env, cwd=cwd, start_new_session=True,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise CannotStart(f"{Path(argv[0]).name} did not end within {timeout_s:.0f} s") from None
    except OSError as error:
        raise CannotStart(f"{argv[0]} cannot be run: {error.strerror}") from None
    text = done.stdout.decode("utf-8", "replace")
    if done.returncode != 0:
        last = (text.strip().splitlines() or ["no output"])[-1]
        raise CannotStart(f"{Path(argv[0]).name} failed with exit code {done.returncode}: {last[:300]}")
    return text


def _as_before(recovered: dict[str, Any]) -> Callable[[], None]:
    """What the child sets before it becomes the server: limits, priority, CPUs, umask, user, as they were."""

    def prepare() -> None:
        for name, pair in (recovered.get("limits") or {}).items():
            number = getattr(resource, f"RLIMIT_{name}")
            values = [resource.RLIM_INFINITY if word == "unlimited" else int(word) for word in pair]
            try:
                resource.setrlimit(number, (values[0], values[1]))
            except (ValueError, OSError):
                soft = min(values[0], resource.getrlimit(number)[1])
                resource.setrlimit(number, (soft, resource.getrlimit(number)[1]))
        if recovered.get("affinity"):
            try:
                os.sched_setaffinity(0, recovered["affinity"])
            except OSError:
                os.write(2, b"moetop: CPU affinity could not be set again\n")
        if recovered.get("umask"):
            os.umask(int(recovered["umask"], 8))
        if os.geteuid() == 0:
            if recovered.get("nice") is not None:
                os.setpriority(os.PRIO_PROCESS, 0, recovered["nice"])
            if recovered.get("uid") not in (None, 0):
                os.setgroups(recovered["groups"])
                os.setgid(recovered["gid"])
                os.setuid(recovered["uid"])

    return prepare


def spawn(
    argv: list[str],
    recovered: dict[str, Any],
    output: dict[str, dict[str, Any]],
    cwd: str,
    env: dict[str, str],
    executable: str | None = None,
) -> subprocess.Popen[bytes]:
    """Start a process of its own session with the recovered limits and user; `output` has `stdout` and `stderr`.

    Raises CannotStart.
    """
    opened: dict[str, int] = {}
    try:
        for name in ("stdout", "stderr"):
            place = output[name]
            path = place["target"] if place["kind"] == "file" else os.devnull
            opened[name] = _open_log(path, recovered)
        return subprocess.Popen(
            argv, executable=executable, stdin=subprocess.DEVNULL, stdout=opened["stdout"], stderr=opened["stderr"],
            cwd=cwd, env=env, start_new_session=True, preexec_fn=_as_before(recovered),  # noqa: PLW1509 - one thread
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        raise CannotStart(f"{argv[0]} cannot be started: {error}") from None
    finally:
        for fd in opened.values():
            os.close(fd)


def _open_log(path: str, recovered: dict[str, Any]) -> int:
    """Append to the server's log with its user's rights: root must not follow a link that this user put there.

    A log that only root may write (a shell opened it before it became that user) is opened as what it is.
    """
    if path == os.devnull:
        return os.open(path, os.O_WRONLY)
    try:
        with _as_user(recovered):
            return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    except PermissionError:
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)


@contextmanager
def _as_user(recovered: dict[str, Any]) -> Iterator[None]:
    """Root takes the rights of the server's user for a moment; anybody else keeps theirs."""
    uid = recovered.get("uid")
    if os.geteuid() != 0 or uid in (None, 0):
        yield
        return
    gid, groups = os.getegid(), os.getgroups()
    os.setgroups(recovered["groups"])
    os.setegid(recovered["gid"])
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(gid)
        os.setgroups(groups)


def managed_pid(managed: dict[str, Any]) -> int | None:
    """Main process of a unit or container now; None if it does not run or cannot be asked."""
    if managed["kind"] == "systemd":
        main = unit_facts(managed["name"], bool(managed.get("user"))).get("MainPID", "")
    elif managed["kind"] in ("docker", "podman"):
        main = (query([managed["kind"], "inspect", "-f", "{{.State.Pid}}", managed["name"]]) or "").strip()
    else:
        return None
    return int(main) if main.isdigit() and int(main) > 0 else None


def listening_pid(port: int | None) -> int | None:
    """The eldest process that listens on the port."""
    inodes = procs.listeners(port) if port else []
    if not inodes:
        return None
    holders = [pid for pid in procs.pids() if procs.holds_socket(pid, inodes)]
    return min(holders, key=lambda pid: procs.started_at(pid) or 0.0) if holders else None


def end_tree(
    ident: dict[str, Any] | None, grace_s: float, wait: Callable[[Callable[[], bool], float], bool]
) -> list[dict[str, Any]]:
    """SIGTERM a process we started, then SIGKILL what is left of its tree after `grace_s`; the tree as it was."""
    if not procs.alive(ident):
        return []
    family = procs.tree(ident["pid"])  # type: ignore[index]
    procs.send(ident, signal.SIGTERM)  # type: ignore[arg-type]
    if not wait(lambda: not any(procs.alive(one) for one in family), grace_s):
        procs.kill_all(family)
        wait(lambda: not any(procs.alive(one) for one in family), 10.0)
    return family
