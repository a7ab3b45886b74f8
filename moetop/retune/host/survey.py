"""Looks at everything a plan depends on and touches nothing: process, manager, rights, disk, lock, GPUs, files."""

from __future__ import annotations

import errno
import os
import re
import shutil
import socket
import sys
import time
from pathlib import Path
from typing import Any

from . import control, files, gpu, procs, restore, store, web
from .redact import redact_argv, redact_text

_SITE = re.compile(r"(/\S*?/(?:site|dist)-packages)/")


def look(request: dict[str, Any]) -> dict[str, Any]:
    """The facts; `request` names the process, its port, files, tuner candidates and addresses."""
    pid = request.get("pid")
    found: dict[str, Any] = {
        "now": time.time(),
        "hostname": socket.gethostname(),
        "user": restore.user_name(os.geteuid()),
        "uid": os.geteuid(),
        "python": ".".join(map(str, sys.version_info[:3])),
        "server": _server(pid, request) if pid else None,
        "targets": [_target(path) for path in request.get("targets", [])],
        "gpu": _gpu(pid),
        "logind_kills": restore.logind_kills(),
        "systemd_run": shutil.which("systemd-run") is not None,
    }
    found["moves"], found["unmapped"] = _on_host(request.get("moves", []), (found["server"] or {}).get("manager", {}))
    found["files"] = [{"path": path, "size": Path(path).stat().st_size} for path in files.expand(found["moves"])]
    found["not_movable"] = {
        one["path"]: why for one in found["files"] for why in [files.why_not_movable(one["path"])] if why
    }
    found["state"] = _state_folder()
    key = lock_key(request.get("port"), pid)
    found["lock"] = store.Lock(key).holder()
    jobs = store_jobs()
    found["interrupted"] = [job for job in jobs if job["status"] == "interrupted" and job["lock_key"] == key]
    beside = [job for job in jobs if job["status"] == "running" and job["lock_key"] != key]
    found["beside"] = [f"{job['server']} (by {job['operator']})" for job in beside]
    known = {store.lock_name(key), *(store.lock_name(str(job["lock_key"])) for job in beside)}
    found["beside_others"] = len(store.held_locks() - known)
    found["tuners"] = [path for path in _tuner_places(request, found["server"]) if Path(path).is_file()]
    packages = (found["server"] or {}).get("packages")
    if packages:
        found["missing_packages"] = [one for one in request.get("packages", []) if not (Path(packages) / one).is_dir()]
    if request.get("metrics_url"):
        found["requests"] = web.metrics(request["metrics_url"], request["metric_names"])
    return found


def _on_host(patterns: list[str], manager: dict[str, Any]) -> tuple[list[str], list[str]]:
    """(patterns as paths of this host, those that cannot be reached): a container's paths are its mounts' only."""
    if manager.get("kind") not in ("docker", "podman"):
        return patterns, []
    mounts = restore.mounts(manager)
    reached, lost = [], []
    for pattern in patterns:
        inside = [place for place in mounts if pattern.startswith(place.rstrip("/") + "/")]
        if inside:
            place = max(inside, key=len)
            reached.append(mounts[place].rstrip("/") + pattern[len(place.rstrip("/")) :])
        else:
            lost.append(pattern)
    return reached, lost


def lock_key(port: int | None, pid: int | None) -> str:
    """What two operators who mean the same server agree on: its port, else its command and folder."""
    if port:
        return f"port {port}"
    return f"command {procs.argv(pid)} in {procs.link(pid, 'cwd')}" if pid else "none"


def store_jobs() -> list[dict[str, Any]]:
    """Every job of this user on this host, newest first, with `interrupted` where the runner is gone."""
    found = []
    try:
        folders = sorted(store.jobs_dir().iterdir(), reverse=True)
    except OSError:
        return []
    for folder in folders:
        try:
            state = store.read_json(folder / "state.json")
        except (OSError, ValueError):
            continue
        status = store.status_of(state)
        keys = ("server", "host", "operator", "created", "ended", "message", "lock_key")
        step = next((one["title"] for one in state.get("steps") or [] if one.get("state") == "running"), None)
        found.append({"job": folder.name, "status": status, "step": step, **{key: state.get(key) for key in keys}})
    return found


def list_jobs(limit: int) -> dict[str, Any]:
    """Jobs of this user, and how many servers of the host jobs of other users hold now."""
    jobs = store_jobs()
    ours = {store.lock_name(str(job["lock_key"])) for job in jobs if job["status"] == "running"}
    return {"jobs": jobs[:limit], "others": len(store.held_locks() - ours)}


def _state_folder() -> dict[str, Any]:
    """Where jobs are kept and whether there is room, told from the nearest folder that is there."""
    path = there = store.jobs_dir()
    try:
        while not there.exists() and there != there.parent:
            there = there.parent
        if not there.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(there))
        if not os.access(str(there), os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(there))
        return {"path": str(path), "free_mib": shutil.disk_usage(str(there)).free >> 20, "error": None}
    except OSError as error:
        return {"path": str(error.filename), "free_mib": None, "error": error.strerror}


def _target(path: str) -> dict[str, Any]:
    return {"path": path, "exists": Path(path).exists(), "why_not": files.why_not_movable(path)}


def _gpu(pid: int | None) -> dict[str, Any]:
    family = {one["pid"] for one in procs.tree(pid)} if pid and procs.identity(pid) else set()
    try:
        rows = gpu.processes()
    except RuntimeError as error:
        return {"smi": True, "error": redact_text(str(error)), "processes": None}
    if rows is not None:
        for row in rows:
            row["ours"] = row["pid"] in family
            row["name"] = redact_text(row["name"])
    return {"smi": rows is not None, "error": None, "processes": rows}


def _server(pid: int, request: dict[str, Any]) -> dict[str, Any]:
    """The process as it is now; its arguments redacted, of its environment only the names."""
    ident = procs.identity(pid)
    if ident is None:
        return {"alive": False, "pid": pid}
    facts = restore.survey_start(pid)
    packages = site_packages(pid)
    port = request.get("port")
    return {
        "alive": True,
        "pid": pid,
        "ident": ident,
        "started": procs.started_at(pid),
        **facts,
        "argv": redact_argv(facts["argv"]),
        "manager": restore.manager(pid),
        "same_mounts": procs.link(pid, "ns/mnt") == procs.link(os.getpid(), "ns/mnt"),
        "tree": [one["pid"] for one in procs.tree(pid)],
        "listens": (control.listening_pid(port) is not None) if port else None,
        "packages": packages,
        "package": _package(packages, request.get("engine"), procs.started_at(pid)),
    }


def site_packages(pid: int) -> str | None:
    """Folder the process's Python packages are mapped from."""
    try:
        with Path(f"/proc/{pid}/maps").open(errors="replace") as lines:
            for line in lines:
                match = _SITE.search(line)
                if match:
                    return match.group(1)
    except OSError:
        return None
    return None


def _package(folder: str | None, engine: str | None, started: float | None) -> dict[str, Any] | None:
    """Version of the engine on disk now, and whether it was put there after the process started."""
    if not folder or not engine:
        return None
    for path in sorted(Path(folder).glob(f"{engine}-*.dist-info")):
        newer = started is not None and path.stat().st_mtime > started + 1.0
        return {"version": path.name[len(engine) + 1 : -len(".dist-info")], "newer_than_process": newer}
    return None


def _tuner_places(request: dict[str, Any], server: dict[str, Any] | None) -> list[str]:
    """Where the tuning script may be: named places, the server's folder and what is above its packages."""
    bases = [str(Path(base).expanduser()) for base in request.get("tuner_bases", [])]
    if server and server.get("alive"):
        cwd = server.get("cwd")
        script = next((part for part in server["argv"][1:3] if part.endswith(".py")), None)
        bases += [cwd] if cwd else []
        if script:
            bases.append(str((Path(cwd or "/") / script).resolve().parent))
        bases += [str(above) for above in list(Path(server["packages"]).parents)[:5]] if server.get("packages") else []
        bases += [str(above) for above in _source_trees(server.get("packages"), request.get("engine"))]
    seen: dict[str, None] = {}
    for base in bases:
        for relative in request.get("tuner_scripts", []):
            seen[os.path.normpath(os.path.join(base, relative))] = None  # noqa: PTH118 - a ".." must go
    return list(seen)


def _source_trees(packages: str | None, engine: str | None) -> list[Path]:
    """Git checkouts an editable install points to."""
    if not packages or not engine:
        return []
    found = []
    for path in Path(packages).glob(f"*{engine}*.pth"):
        try:
            first = path.read_text(errors="replace").splitlines()[:1]
        except OSError:
            continue
        if first and first[0].startswith("/"):
            found += [Path(first[0]), Path(first[0]).parent]
    return found
