"""moetop's own log, on request (`--debug FILE`): rotating, private, without secrets."""

from __future__ import annotations

import logging
import logging.handlers
import os
import platform
import sys
from importlib import metadata
from pathlib import Path

from moetop import __version__
from moetop.errors import UsageError
from moetop.probe.redact import redact_argv, redact_text
from moetop.text import plain

MAX_BYTES = 4 * 1024 * 1024
KEPT_FILES = 2
PACKAGES = ("textual", "paramiko", "nvidia-ml-py", "msgspec", "plotext", "pyyaml")
VARIABLES = ("TERM", "COLORTERM", "LANG", "LC_ALL", "NO_COLOR", "TMUX", "SSH_AUTH_SOCK", "MOETOP_SSH_CONFIG")
"""Of the environment only what decides how moetop behaves."""


class _Redacting(logging.Formatter):
    """Formats a record and takes secrets and escape sequences out of the result."""

    def format(self, record: logging.LogRecord) -> str:
        return "\n".join(plain(line) for line in redact_text(super().format(record)).splitlines())


class _PrivateRotating(logging.handlers.RotatingFileHandler):
    """A rotating file that only its owner can read."""

    def _open(self):  # type: ignore[no-untyped-def]
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.fchmod(descriptor, 0o600)
        return os.fdopen(descriptor, "a", encoding="utf-8", errors="backslashreplace")


def start_debug_log(path: str) -> None:
    """Send everything under the logger `moetop` to `path`; the environment goes first."""
    try:
        handler = _PrivateRotating(str(Path(path).expanduser()), maxBytes=MAX_BYTES, backupCount=KEPT_FILES)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error
    logging.raiseExceptions = False  # a full disk costs lines of this log, not the screen
    handler.setFormatter(_Redacting("%(asctime)s %(levelname)s %(threadName)s %(name)s: %(message)s"))
    root = logging.getLogger("moetop")
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    root.propagate = False
    root.info("moetop %s, Python %s, %s", __version__, platform.python_version(), platform.platform())
    root.info("packages: %s", ", ".join(f"{name} {_version(name)}" for name in PACKAGES))
    root.info("environment: %s", ", ".join(f"{name}={os.environ[name]}" for name in VARIABLES if name in os.environ))
    root.info("arguments: %s", " ".join(redact_argv(sys.argv[1:])))


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "missing"


def log_exception(error: BaseException) -> None:
    """Write a fault with its traceback, where the debug log is on."""
    logging.getLogger("moetop").error("unexpected fault", exc_info=error)
