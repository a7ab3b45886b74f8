"""The action log on this side: one JSON line for everything asked of a host (who, when, what, result)."""

from __future__ import annotations

import getpass
import json
import logging
import os
import socket
import time
from pathlib import Path

from moetop.errors import UsageError
from moetop.places import state_folder


def operator() -> str:
    """Who acts, as other operators see it: user@machine."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def log_path() -> Path:
    """The file; its folder is made private."""
    folder = state_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder / "actions.jsonl"


def check() -> None:
    """Raise UsageError where the log cannot be written: an action that cannot be logged is not asked for."""
    try:
        os.close(os.open(log_path(), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
    except OSError as error:
        raise UsageError(f"the action log cannot be written: {error.filename}: {error.strerror}") from None


def record(host: str, what: str, result: str, job: str | None = None) -> None:
    """Append one action. A disk that fills after `check` loses the line, not the action."""
    entry = {"when": round(time.time(), 3), "who": operator(), "host": host, "what": what, "result": result, "job": job}
    try:
        with log_path().open("a") as log:
            log.write(json.dumps(entry, ensure_ascii=True) + "\n")
    except OSError as error:
        logging.getLogger(__name__).warning("action not logged: %s", error)
