"""Looks at another user's process with `sudo -n`, only where configuration allows it; reads, changes nothing."""

from __future__ import annotations

import subprocess

from . import procfs

TIMEOUT_S = 5.0


def _run(words: list[str], limit: int) -> bytes | None:
    try:
        done = subprocess.run(
            ["sudo", "-n", "--", *words],
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=TIMEOUT_S,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout[:limit] if done.returncode == 0 else None


def environ(pid: int) -> dict[str, str] | None:
    """The environment of any process, None where sudo refuses."""
    data = _run(["cat", "%s/%d/environ" % (procfs.PROC, pid)], procfs.MAX_ENVIRON_BYTES)
    return None if data is None else procfs.parse_environ(data)


def link(pid: int, name: str) -> str | None:
    """Target of /proc/PID/NAME, None where sudo refuses."""
    data = _run(["readlink", "--", "%s/%d/%s" % (procfs.PROC, pid, name)], 8192)
    return data.decode("utf-8", "replace").rstrip("\n") if data else None


def tail_words(path: str, lines: int) -> list[str]:
    """A command (for sudo) that follows a file by name, its last lines first."""
    return ["tail", "-n", str(lines), "-F", "--", path]
