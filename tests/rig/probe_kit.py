"""A probe as a real process, started as a host would: the loader's text, then the packed program."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from moetop.model import AnyFrame
from moetop.transport.bootstrap import loader_argv, payload

Frame = dict[str, Any]
PATIENCE_S = 15.0


class Probe:
    """Its frames so far in `frames`; every line is checked against the model as it comes."""

    def __init__(self, environment: Mapping[str, str], options: Mapping[str, object], python: str) -> None:
        self.process = subprocess.Popen(
            loader_argv(python),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **environment},
        )
        assert self.process.stdin and self.process.stdout and self.process.stderr
        self.marker = self.process.stdout.readline()
        self.frames: list[Frame] = []
        self.errors = b""
        self._changed = threading.Condition()
        self.process.stdin.write(payload({"discover": False, **options}))
        self.process.stdin.flush()
        self._threads = [threading.Thread(target=self._read, daemon=True), threading.Thread(target=self._errors)]

    def read(self) -> Probe:
        for thread in self._threads:
            thread.start()
        return self

    def _read(self) -> None:
        assert self.process.stdout
        decoder = msgspec.json.Decoder(AnyFrame)
        with contextlib.suppress(ValueError):
            for line in self.process.stdout:
                decoder.decode(line)
                with self._changed:
                    self.frames.append(json.loads(line))
                    self._changed.notify_all()

    def _errors(self) -> None:
        assert self.process.stderr
        self.errors = self.process.stderr.read()

    def until(self, wanted: Callable[[Frame], object], timeout_s: float = PATIENCE_S) -> Frame:
        """The first frame, from the start, that is wanted; fails when none comes."""
        return self._until(wanted, 0, timeout_s)

    def next(self, wanted: Callable[[Frame], object], timeout_s: float = PATIENCE_S) -> Frame:
        """The first wanted frame of those that come after this call."""
        with self._changed:
            start = len(self.frames)
        return self._until(wanted, start, timeout_s)

    def _until(self, wanted: Callable[[Frame], object], start: int, timeout_s: float) -> Frame:
        end = time.monotonic() + timeout_s
        with self._changed:
            while True:
                for frame in self.frames[start:]:
                    if wanted(frame):
                        return frame
                start = len(self.frames)
                left = end - time.monotonic()
                if left <= 0:
                    raise AssertionError(
                        f"no such frame within {timeout_s} s; last: {self.frames[-4:]} {self.errors!r}"
                    )
                self._changed.wait(left)

    def hello(self) -> Frame:
        return self.until(lambda frame: frame["type"] == "hello")

    def status(self, code: str) -> Frame:
        return self.until(lambda frame: frame["type"] == "status" and frame["code"] == code)

    def row(self, index: int, wanted: Callable[[Frame], object], timeout_s: float = PATIENCE_S) -> Frame:
        """The first row of a GPU, from now on, that is wanted."""
        found: list[Frame] = []

        def search(frame: Frame) -> bool:
            rows = frame["gpus"] if frame["type"] == "gpus" else []
            found[:] = [row for row in rows if row["index"] == index and wanted(row)]
            return bool(found)

        self.next(search, timeout_s)
        return found[0]

    def send(self, **message: object) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def close_input(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()

    def wait(self, timeout_s: float = PATIENCE_S) -> int:
        """Exit status; all frames are in afterwards."""
        status = self.process.wait(timeout_s)
        for thread in self._threads:
            if thread.is_alive():
                thread.join(2.0)
        return status


@contextlib.contextmanager
def probe(
    environment: Mapping[str, str], *, python: str = sys.executable, read: bool = True, **options: object
) -> Iterator[Probe]:
    """A running probe, killed at the end should it still be there. It samples at 5 Hz unless told else."""
    running = Probe(environment, {"interval_s": 0.2, **options}, python)
    if read:
        running.read()
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.process.kill()
        running.process.wait()
        for stream in (running.process.stdin, running.process.stdout, running.process.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


def children_of(pid: int) -> list[int]:
    """Live processes whose parent is `pid`, and theirs."""
    found: list[int] = []
    front = [pid]
    while front:
        parent = front.pop()
        for entry in Path(f"/proc/{parent}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                ids = [int(word) for word in entry.read_text().split()]
                found += ids
                front += ids
    return found


def gone(pid: int) -> bool:
    """Whether a process has ended (a zombie has)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
