"""This machine as a host: the same probe in a subprocess. Needs no network and no shell."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence

from moetop.errors import LinkError
from moetop.transport.base import Channel, Completed
from moetop.transport.process import ProcessPipe, run_process
from moetop.transport.spawn import spawn
from moetop.transport.stream import start_probe


class LocalTransport:
    """Watches this machine; the probe dies with its group.

    The installed probe runs in this interpreter; another `python` is sent it, as a far host is.
    """

    finite = False
    renews = True

    def __init__(self, name: str = "localhost", python: str | None = None) -> None:
        self.name = name
        self._python = python or (None if sys.executable else "python3")
        self._lock = threading.Lock()
        self._closed = False
        self._pipe: ProcessPipe | None = None

    def open(self, options: Mapping[str, object]) -> Channel:
        self._check_open()
        if self._python is not None:
            from moetop.transport.bootstrap import loader_argv

            return start_probe(self._adopt(spawn(loader_argv(self._python))), options, python=self._python)
        from moetop.transport.installed import installed_argv, program, take

        ahead = take(options)
        pipe = self._adopt(ahead or spawn(installed_argv()))
        return start_probe(pipe, options, python=sys.executable, program=b"" if ahead else program(options))

    def _adopt(self, process: subprocess.Popen[bytes]) -> ProcessPipe:
        """The process's pipe, kept where `close` finds it."""
        pipe = ProcessPipe(process)
        with self._lock:
            self._pipe = pipe
            closed = self._closed
        if closed:
            pipe.shut()
        return pipe

    def run(self, argv: Sequence[str], stdin: bytes = b"", timeout_s: float = 30.0) -> Completed:
        self._check_open()
        return run_process(argv, stdin, timeout_s)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            pipe = self._pipe
        if pipe is not None:
            pipe.shut()

    def _check_open(self) -> None:
        if self._closed:
            raise LinkError("the transport is closed", code="closed", retry=False)
