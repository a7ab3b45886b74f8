"""A far process behind a local one: byte pipes of a subprocess in its own group. Uses no shell."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence

from moetop.errors import LinkError
from moetop.transport.base import Completed
from moetop.transport.spawn import spawn
from moetop.transport.stream import READ_BYTES, Ending, Tail

GRACE_S = 0.3
"""How long a probe that lost its input may take to end by itself before its group is killed."""

MAX_OUTPUT_BYTES = 16 * 1024 * 1024
"""Most output kept of one command."""

_READABLE = select.POLLIN | select.POLLHUP | select.POLLERR


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill what `process` started with it. Only while it is not reaped: its number is still its own."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return  # all gone, or only children of another user are left, which end with their pipes


class ProcessPipe:
    """The `BytePipe` over a subprocess."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise ValueError("all three streams must be pipes")
        self._process = process
        self._stdin = process.stdin
        self._out = process.stdout.fileno()
        self._err = process.stderr.fileno()
        self._tail = Tail()
        self._poll = select.poll()
        self._poll.register(self._out, _READABLE)
        self._poll.register(self._err, _READABLE)
        self._writable = select.poll()
        self._writable.register(self._stdin.fileno(), select.POLLOUT)
        self._shut = threading.Event()
        self._write_lock = threading.Lock()
        self._finish_lock = threading.Lock()
        self._ended = False
        self._ending: Ending | None = None
        os.set_blocking(self._stdin.fileno(), False)

    def read(self, timeout_s: float) -> bytes | None:
        if self._ended or self._shut.is_set():
            return b""
        for number, _ in self._poll.poll(timeout_s * 1000):
            data = os.read(number, READ_BYTES)
            if number == self._out:
                self._ended = not data
                return data
            if data:
                self._tail.add(data)
            else:
                self._poll.unregister(self._err)
        return None

    def write(self, data: bytes, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        left = memoryview(data)
        with self._write_lock:
            while left:
                if self._shut.is_set():
                    raise LinkError("the channel is closed", code="closed")
                try:
                    left = left[os.write(self._stdin.fileno(), left) :]
                    continue
                except BlockingIOError:
                    pass
                except (BrokenPipeError, ValueError):
                    raise LinkError("the probe takes no more input", code="lost") from None
                if time.monotonic() >= deadline:  # a control line is under PIPE_BUF: whole or not at all
                    raise LinkError("the probe does not read its input", code="stuck")
                self._writable.poll(50)

    def shut(self) -> None:
        self._shut.set()
        with self._write_lock:
            try:
                self._stdin.close()
            except OSError:
                return  # it is closed all the same

    def finish(self) -> Ending:
        with self._finish_lock:
            if self._ending is None:
                self.shut()
                self._drain(time.monotonic() + GRACE_S)
                by_itself = self._exited(GRACE_S if self._ended else 0.0)
                kill_group(self._process)
                status = self._process.wait()
                for stream in (self._process.stdout, self._process.stderr):
                    if stream is not None:
                        stream.close()
                self._ending = Ending(status if by_itself else None, self._tail.text())
            return self._ending

    def _drain(self, deadline: float) -> None:
        """Read on until both streams end, so that last words are kept."""
        open_streams = {self._out, self._err}
        poll = select.poll()
        for number in open_streams:
            poll.register(number, _READABLE)
        while open_streams and (left := deadline - time.monotonic()) > 0:
            for number, _ in poll.poll(left * 1000):
                data = os.read(number, READ_BYTES)
                if data and number == self._err:
                    self._tail.add(data)
                if not data:
                    poll.unregister(number)
                    open_streams.discard(number)
        self._ended = self._ended or self._out not in open_streams

    def _exited(self, timeout_s: float) -> bool:
        """Whether the process ended by itself, without reaping it (its group is still to be killed)."""
        deadline = time.monotonic() + timeout_s
        while True:
            if not hasattr(os, "waitid"):  # macOS before Python 3.13
                return self._process.poll() is not None
            if os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                return True
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.005)


def run_process(argv: Sequence[str], stdin: bytes, timeout_s: float, env: Mapping[str, str] | None = None) -> Completed:
    """Run to the end with bounded output. Raises LinkError (code timeout) and kills the group at the time-out."""
    process = spawn(argv, env)
    kept: dict[int, list[bytes]] = {}
    if process.stdin is None or process.stdout is None or process.stderr is None:
        raise ValueError("all three streams must be pipes")
    out, err, inp = process.stdout.fileno(), process.stderr.fileno(), process.stdin.fileno()
    os.set_blocking(inp, False)
    poll = select.poll()
    for number in (out, err):
        kept[number] = []
        poll.register(number, _READABLE)
    sizes = {out: 0, err: 0}
    truncated = False
    left = memoryview(stdin)
    poll.register(inp, select.POLLOUT)
    open_streams = {out, err}
    deadline = time.monotonic() + timeout_s
    try:
        while open_streams:
            wait = deadline - time.monotonic()
            if wait <= 0:
                raise LinkError(f"{argv[0]} did not end within {timeout_s:.0f} s", code="timeout")
            for number, _ in poll.poll(min(wait, 1.0) * 1000):
                if number == inp:
                    left = _feed(process, poll, left)
                    continue
                data = os.read(number, READ_BYTES)
                if not data:
                    poll.unregister(number)
                    open_streams.discard(number)
                elif sizes[number] < MAX_OUTPUT_BYTES:
                    kept[number].append(data)
                    sizes[number] += len(data)
                else:
                    truncated = True
        status = process.wait(timeout=max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise LinkError(f"{argv[0]} did not end within {timeout_s:.0f} s", code="timeout") from None
    finally:
        if process.returncode is None:
            kill_group(process)
            process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            stream.close()
    return Completed(status, b"".join(kept[out]), b"".join(kept[err]), truncated)


def _feed(process: subprocess.Popen[bytes], poll: select.poll, left: memoryview) -> memoryview:
    """Write what the process takes of its input; close it at the end."""
    if process.stdin is None:
        return left
    number = process.stdin.fileno()
    try:
        left = left[os.write(number, left[:READ_BYTES]) :] if left else left
    except BlockingIOError:
        return left
    except BrokenPipeError:
        left = left[:0]
    if not left:
        poll.unregister(number)
        process.stdin.close()
    return left
