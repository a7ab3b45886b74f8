"""Tells whether a retune job works on a server of this host, by its lock and its state on disk; it changes neither."""

from __future__ import annotations

import hashlib
import json
import os
import re
from typing import Any, Iterable

from . import procfs
from .redact import redact_text

MAX_STATE_BYTES = 1 << 20
NEWEST = 12
"""Jobs of this user that are looked at; one that works is among the newest."""

_LOCK = re.compile(rb"@(moetop-retune-[0-9a-f]{16})$", re.MULTILINE)


def lock_name(key: str) -> str:
    """The name that retune/host/store.py gives a server's lock."""
    return "moetop-retune-" + hashlib.sha256(key.encode()).hexdigest()[:16]


def held_locks() -> set[str]:
    """Names of the locks that jobs of any user hold now; the kernel lets go of one when its job's process ends."""
    table = procfs.read_bytes(procfs.PROC + "/net/unix", procfs.MAX_TABLE_BYTES) or b""
    return {name.decode() for name in _LOCK.findall(table)}


def jobs_folder() -> str:
    """Where this user's jobs are kept."""
    base = os.environ.get("XDG_STATE_HOME") or ""
    home = base if base.startswith("/") else os.path.expanduser("~/.local/state")
    return os.path.join(home, "moetop", "jobs")


def _states() -> Iterable[dict[str, Any]]:
    """States of this user's newest jobs, newest first."""
    folder = jobs_folder()
    try:
        names = sorted(os.listdir(folder), reverse=True)[:NEWEST]
    except OSError:
        return
    for name in names:
        try:
            state = json.loads(procfs.read_bytes(os.path.join(folder, name, "state.json"), MAX_STATE_BYTES) or b"")
        except ValueError:
            continue
        if isinstance(state, dict):
            yield state


def _step(state: dict[str, Any]) -> str:
    steps = state.get("steps")
    running = [one for one in steps if isinstance(one, dict)] if isinstance(steps, list) else []
    return next((str(one.get("title")) for one in running if one.get("state") == "running"), "")


def at_work(ports: Iterable[int]) -> tuple[str, dict[str, list[Any]]] | None:
    """What works now on this user's behalf, or on the server of one of `ports`, with the names or ports of the servers
    that are worked on; None where nothing does."""
    held = held_locks()
    said: list[str] = []
    servers: list[Any] = []
    theirs: list[Any] = []
    for state in _states():
        lock = lock_name(str(state.get("lock_key")))
        if state.get("status") == "running" and lock in held:
            held.discard(lock)
            step = _step(state)
            now = ", now: %s" % step if step else ""
            who = "by %s%s" % (state.get("operator"), now)
            said.append("a retune job works on %s (%s): `moetop --retune HOST --attach`" % (state.get("server"), who))
            servers.append(str(state.get("server"))[:200])
    for port in sorted(ports):
        if lock_name("port %d" % port) in held:
            said.append("a retune job of another user works on the server on port %d" % port)
            theirs.append(port)
    return (redact_text("; ".join(said))[:600], {"servers": servers, "ports": theirs}) if said else None
