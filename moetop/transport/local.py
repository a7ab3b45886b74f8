"""This machine as a host: the same probe in a subprocess. Needs no network and no shell."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping, Sequence

from moetop.errors import LinkError
from moetop.transport.base import Channel, Completed
from moetop.transport.process import ProcessPipe, run_process, spawn
from moetop.transport.stream import start_probe


class LocalTransport:
    """Watches this machine with this interpreter; the probe dies with its group."""

    finite = False

    def __init__(self, name: str = "localhost", python: str | None = None) -> None:
        self.name = name
        self._python = python or sys.executable or "python3"
        self._lock = threading.Lock()
        self._closed = False
        self._pipe: ProcessPipe | None = None

    def open(self, options: Mapping[str, object]) -> Channel:
        from moetop.transport.bootstrap import loader_argv

        self._check_open()
        pipe = ProcessPipe(spawn(loader_argv(self._python)))
        with self._lock:
            self._pipe = pipe
            closed = self._closed
        if closed:
            pipe.shut()
        return start_probe(pipe, options, python=self._python, with_binding=False)

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
