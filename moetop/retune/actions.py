"""The action log on this side: one JSON line for everything asked of a host (who, when, what, result)."""

from __future__ import annotations

import getpass
import json
import os
import socket
import time
from pathlib import Path


def operator() -> str:
    """Who acts, as other operators see it: user@machine."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def log_path() -> Path:
    """The file; its folder is made private."""
    base = os.environ.get("XDG_STATE_HOME", "")
    home = Path(base) if base.startswith("/") else Path.home() / ".local" / "state"
    folder = home / "moetop"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder / "actions.jsonl"


def record(host: str, what: str, result: str, job: str | None = None) -> None:
    """Append one action. A log that cannot be written raises OSError: an action that is not logged is not done."""
    entry = {"when": round(time.time(), 3), "who": operator(), "host": host, "what": what, "result": result, "job": job}
    fd = os.open(log_path(), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(fd, (json.dumps(entry, ensure_ascii=True) + "\n").encode())
    finally:
        os.close(fd)
