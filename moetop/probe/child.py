"""Child processes that cannot outlive the probe: tied to a pipe it holds, killed when it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from typing import IO, List, Sequence, Set

# The shell holds the read end of our pipe: when we end, however we end, `read` returns and the child goes.
_TETHER = 'exec 3<&0; "$@" 3<&- & p=$!; exec >&- 2>&-; read _ <&3; kill -9 $p 2>/dev/null; wait $p'

_alive: "Set[Child]" = set()
_lock = threading.Lock()


class Child:
    """A running command. Its output, errors included, is `stdout`."""

    def __init__(self, argv: Sequence[str], sudo: bool = False) -> None:
        environment = dict(os.environ, LC_ALL="C", LANG="C")
        self._process = subprocess.Popen(
            (["sudo", "-n"] if sudo else []) + ["sh", "-c", _TETHER, "moetop", *argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            close_fds=True,
            start_new_session=True,
        )
        with _lock:
            _alive.add(self)

    @property
    def stdout(self) -> "IO[bytes]":
        assert self._process.stdout is not None
        return self._process.stdout

    def stop(self) -> None:
        """Kill the command and the shell that holds it; safe to call again, from any thread.

        Whoever reads `stdout` then sees its end; closing it here could wait for that reader.
        """
        with _lock:
            if self not in _alive:
                return
            _alive.discard(self)
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except OSError:
            pass
        if self._process.stdin is not None:
            try:
                self._process.stdin.close()
            except OSError:
                pass
        try:
            self._process.wait(0.5)
        except subprocess.TimeoutExpired:
            return  # a process of root, or one stuck in the driver: the closed pipe ends it


def stop_all() -> None:
    """End every child that still runs."""
    with _lock:
        children: List[Child] = list(_alive)
    for child in children:
        child.stop()
