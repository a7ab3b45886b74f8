"""How the server was started, recovered from the running process: command, folder, output, limits, manager.

The environment is read only to be kept in the job's 0600 file; this module never prints or returns its values
except to the caller that writes that file.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
from pathlib import Path
from typing import Any

from . import procs

QUERY_TIMEOUT_S = 15.0


def query(argv: list[str]) -> str | None:
    """Standard output of a query; None if it cannot be run or fails."""
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            timeout=QUERY_TIMEOUT_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None


def unit_facts(unit: str, user: bool) -> dict[str, str]:
    """What systemd knows of a unit, as `systemctl show` prints it."""
    wanted = "Id,LoadState,ActiveState,SubState,MainPID,Restart,TimeoutStopUSec,KillMode,FragmentPath,UnitFileState"
    text = query(["systemctl", *(["--user"] if user else []), "show", "-p", wanted, "--", unit])
    return dict(line.partition("=")[::2] for line in (text or "").splitlines() if "=" in line)


def manager(pid: int) -> dict[str, Any]:
    """`{kind, name, ...}`: systemd, docker, podman, kubernetes, or plain.

    A process started by hand inside a terminal's or sshd's unit is plain: the unit must run it itself.
    """
    held = procs.container(pid)
    if held is not None:
        kind, _, name = held.partition(":")
        return {"kind": kind, "name": name}
    found = procs.service(pid)
    if found is not None:
        unit, user = found
        facts = unit_facts(unit, user)
        main = int(facts["MainPID"]) if facts.get("MainPID", "").isdigit() else 0
        if main and main in (pid, procs.parent(pid)):
            return {"kind": "systemd", "name": unit, "user": user, "facts": facts}
    return {"kind": "plain", "name": ""}


def mounts(held: dict[str, Any]) -> dict[str, str]:
    """Folder in the container -> folder on this host, of each of its mounts."""
    text = query([held["kind"], "inspect", "-f", "{{json .Mounts}}", held["name"]]) or "[]"
    try:
        rows = json.loads(text)
    except ValueError:
        return {}
    rows = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    return {str(row["Destination"]): str(row["Source"]) for row in rows if row.get("Destination") and row.get("Source")}


def program(argv: list[str], cwd: str | None, path: str, exe: str | None) -> str | None:
    """The file to run for argv[0] as the process's own shell would have found it; None if it is not that program.

    A rewritten command line (a process title) names no program, and one that resolves elsewhere would start
    something else.
    """
    if not argv or not argv[0]:
        return None
    name = argv[0]
    if "/" in name:
        found = name if name.startswith("/") else str(Path(cwd or "/") / name)
    else:
        found = shutil.which(name, path=path) or ""
    if not found or not os.access(found, os.X_OK):
        return None
    if exe and os.path.realpath(found) != os.path.realpath(exe.replace(" (deleted)", "")):
        return None
    return found


def survey_start(pid: int) -> dict[str, Any]:
    """What is known of how a plain process was started, without its environment's values."""
    argv = procs.argv(pid)
    cwd = procs.link(pid, "cwd")
    exe = procs.link(pid, "exe")
    try:
        env = procs.environ(pid)
        env_names: list[str] | None = sorted(env)
        path = env.get("PATH", os.defpath)
    except OSError:
        env_names, path = None, os.defpath
    uid = procs.owner(pid)
    return {
        "argv": argv,
        "program": program(argv, cwd, path, exe),
        "exe": exe,
        "cwd": cwd,
        "cwd_ok": bool(cwd) and Path(cwd or "").is_dir(),
        "env_names": env_names,
        "stdout": procs.stream(pid, 1),
        "stderr": procs.stream(pid, 2),
        "uid": uid,
        "user": user_name(uid),
    }


def user_name(uid: int | None) -> str | None:
    if uid is None:
        return None
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def recover(pid: int) -> dict[str, Any]:
    """Everything needed to start the same process again. Holds the environment's values: 0600 file only.

    Raises OSError where the environment cannot be read.
    """
    facts = survey_start(pid)
    state = procs.status(pid)
    facts["env"] = procs.environ(pid)
    facts["limits"] = procs.limits(pid)
    facts["umask"] = state.get("Umask")
    facts["gid"] = int(state.get("Gid", "0").split()[0])
    facts["groups"] = [int(one) for one in state.get("Groups", "").split()]
    try:
        facts["affinity"] = sorted(os.sched_getaffinity(pid))
        facts["nice"] = os.getpriority(os.PRIO_PROCESS, pid)
    except OSError:
        facts["affinity"], facts["nice"] = None, None
    return facts


def logind_kills() -> bool:
    """Whether the login manager ends a user's processes at logout (KillUserProcesses=yes and no lingering)."""
    text = query(["loginctl", "show-user", "-p", "KillUserProcesses", "--value"]) or ""
    if text.strip() != "yes":
        return False
    lingers = query(["loginctl", "show-user", str(os.geteuid()), "-p", "Linger", "--value"]) or ""
    return os.geteuid() != 0 and lingers.strip() != "yes"
