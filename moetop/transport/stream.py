"""A probe's stream over any pair of byte pipes: handshake, lines, control. Knows no SSH and no process.

A `BytePipe` is what ssh, openssh and local give; a `ProbeChannel` is the `Channel` made of it.
"""

from __future__ import annotations

import re
import shlex
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from moetop.errors import LinkError
from moetop.recording import MAX_LINE_BYTES
from moetop.text import plain, strip_ansi

READY = re.compile(rb"MOETOP-READY (\d+)\.(\d+)\s*$")
OLD = re.compile(rb"MOETOP-OLD (\d+)\.(\d+)\s*$")

MARKER_TIMEOUT_S = 20.0
"""How long a login shell and Python may take to start (judgement: network home directories)."""

MAX_NOISE_BYTES = 256 * 1024
"""Most that a login script may print before the marker."""

MAX_ENDLESS_BYTES = 8 * MAX_LINE_BYTES
"""A line longer than this ends the session: the far side is no probe."""

MAX_BYTES_S = 16 * 1024 * 1024
MAX_LINES_S = 10_000
"""What is taken from one host a second before reading pauses, so that one cannot starve the others
(a probe of 64 GPUs at 10 Hz with a log storm stays under 2 MiB and 2,000 lines)."""

BURST_S = 0.1

SIGNALLED = -255
"""Exit status of a process that a signal ended where its number is not told."""

READ_BYTES = 64 * 1024
POLL_S = 0.5
STDERR_TAIL_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Ending:
    """How a far process ended: its exit status (None: not told) and the last of its standard error."""

    status: int | None
    stderr: str


class BytePipe(Protocol):
    """Both directions of a far process. `shut` may come from any thread; the rest is for one reader."""

    def read(self, timeout_s: float) -> bytes | None:
        """Bytes as they come, None when there were none in time, b"" at the end. Raises LinkError."""

    def write(self, data: bytes, timeout_s: float) -> None:
        """All of `data`. Raises LinkError when the far side does not take it in time."""

    def shut(self) -> None:
        """Make `read` end soon; never blocks for long."""

    def finish(self) -> Ending:
        """Release everything; what is known of the end."""


class Tail:
    """The last few KiB of a stream, as text safe to show."""

    def __init__(self) -> None:
        self._parts: deque[bytes] = deque()
        self._size = 0

    def add(self, data: bytes) -> None:
        self._parts.append(data[-STDERR_TAIL_BYTES:])
        self._size += len(self._parts[-1])
        while self._size - len(self._parts[0]) >= STDERR_TAIL_BYTES:
            self._size -= len(self._parts.popleft())

    def text(self) -> str:
        return b"".join(self._parts).decode("utf-8", "replace").strip()


def last_words(text: str, limit: int = 200) -> str:
    """The last line of far-side text that says something, made harmless."""
    lines = [plain(strip_ansi(line), limit).strip() for line in text.splitlines()]
    return next((line for line in reversed(lines) if line), "")


class LineSplitter:
    """Bytes to lines with bounded memory: an over-long line comes out cut (and so is no frame)."""

    def __init__(self, limit: int = MAX_LINE_BYTES) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Lines completed by `data`, without their newline."""
        *ended, rest = data.split(b"\n")
        lines = []
        for piece in ended:
            self._keep(piece)
            lines.append(b"".join(self._parts).rstrip(b"\r"))
            self._parts.clear()
            self._size = 0
        self._keep(rest)
        return lines

    @property
    def pending(self) -> int:
        """Bytes seen since the last newline, kept or not."""
        return self._size

    def _keep(self, piece: bytes) -> None:
        room = self._limit + 1 - self._size
        if room > 0 and piece:
            self._parts.append(piece[:room])
        self._size += len(piece)


def probe_command(python: str = "python3") -> str:
    """The command line that starts the loader; every login shell reads it alike."""
    from moetop.transport.bootstrap import LOADER

    return f"exec {shlex.quote(python)} -u -c {shlex.quote(LOADER)}"


def _no_python(ending: Ending, noise: bytes, python: str) -> LinkError:
    """Why the marker never came, from the exit status and what was printed."""
    said = last_words(ending.stderr) or last_words(noise.decode("utf-8", "replace"))
    told = f" (it said: {said})" if said else ""
    missing = "not found" in said or "No such file" in said
    if ending.status == 127 or (missing and python.rpartition("/")[2] in said):
        return LinkError(
            f"the host has no {python}{told}",
            "install Python 3.8 or newer there, or name one with `python:` in the configuration",
            code="no_python",
            retry=False,
        )
    if "not recognized" in said or "CommandNotFoundException" in ending.stderr:
        return LinkError("the host's shell is a Windows shell, which moetop cannot use", code="no_shell", retry=False)
    if ending.status is None:
        return LinkError(f"the connection ended before the probe started{told}", code="lost")
    return LinkError(
        f"the login shell ended with status {ending.status} before the probe started{told}",
        "log in by hand and see that a command can be run",
        code="shell_exits",
    )


def start_probe(
    pipe: BytePipe,
    options: Mapping[str, object],
    *,
    python: str = "python3",
    label: str | None = None,
    notes: tuple[bytes, ...] = (),
    program: bytes | None = None,
) -> ProbeChannel:
    """Wait for the loader's marker, send the program, hand out the channel.

    `label` is the host as `ssh` takes it, None on this machine. `program` is sent instead of the packed probe;
    nothing is where it is empty.
    Raises LinkError with code no_python, old_python, no_shell, shell_exits, no_marker or lost; the
    pipe is released then.
    """
    try:
        rest = _await_marker(pipe, python, label)
        if program is None:
            from moetop.transport.bootstrap import payload

            program = payload(options)
        if program:
            pipe.write(program, MARKER_TIMEOUT_S)
    except BaseException:
        pipe.shut()
        pipe.finish()
        raise
    return ProbeChannel(pipe, rest, notes)


def _await_marker(pipe: BytePipe, python: str, label: str | None) -> bytes:
    """Pass over what a login script prints until the marker ends a line; what came after it."""
    deadline = time.monotonic() + MARKER_TIMEOUT_S
    seen = b""
    while time.monotonic() < deadline:
        data = pipe.read(min(POLL_S, MARKER_TIMEOUT_S))
        if data is None:
            continue
        if not data:
            raise _no_python(pipe.finish(), seen, python)
        start = max(0, seen.rfind(b"\n") + 1)
        seen += data
        while (end := seen.find(b"\n", start)) >= 0:
            line = seen[start:end]
            if READY.search(line):
                return seen[end + 1 :]
            old = OLD.search(line)
            if old is not None:
                version = f"{old[1].decode()}.{old[2].decode()}"
                raise LinkError(
                    f"the host's {python} is {version}, too old for the probe",
                    "install Python 3.8 or newer there, or name one with `python:` in the configuration",
                    code="old_python",
                    retry=False,
                )
            start = end + 1
        if len(seen) > MAX_NOISE_BYTES:
            raise LinkError(
                "the login shell printed without end and the probe never started",
                "log in by hand and see what its start files do",
                code="no_marker",
            )
    pipe.shut()
    raise _no_marker(seen, pipe.finish(), label)


def _no_marker(seen: bytes, ending: Ending, label: str | None) -> LinkError:
    """Time is up and no program ran: with an unharmed sshd that is the login shell at its start files."""
    said = last_words(seen.decode("utf-8", "replace")) or last_words(ending.stderr)
    if label is None:
        told = f" (last seen: {said})" if said else ""
        return LinkError(f"the probe did not start within {MARKER_TIMEOUT_S:.0f} s{told}", code="no_marker")
    did = f"last printed: {said}" if said else "printed nothing"
    return LinkError(
        f"the login shell started no program within {MARKER_TIMEOUT_S:.0f} s; it {did}",
        f"its start files (.bashrc, .profile, .zshenv) are the usual cause: `ssh {label} true` should return at once",
        code="no_marker",
    )


class ProbeChannel:
    """The `Channel` over a pipe whose probe is running. `notes` are lines put before the first frame.

    With `quiet_s` an empty line says that nothing came for so long.
    """

    def __init__(
        self, pipe: BytePipe, first: bytes = b"", notes: tuple[bytes, ...] = (), *, quiet_s: float | None = None
    ) -> None:
        self._pipe = pipe
        self._first = first
        self._notes = notes
        self._quiet_s = quiet_s
        self._closed = threading.Event()
        self._reading = threading.Lock()

    def lines(self) -> Iterator[bytes]:
        if not self._reading.acquire(blocking=False):
            raise LinkError("the channel is being read already", code="closed")
        try:
            yield from self._notes
            yield from self._read()
        finally:
            self._pipe.shut()
            self._pipe.finish()
            self._reading.release()

    def _read(self) -> Iterator[bytes]:
        splitter = LineSplitter()
        yield from splitter.feed(self._first)
        paid_until = time.monotonic()
        while not self._closed.is_set():
            data = self._pipe.read(self._quiet_s or POLL_S)
            if data is None:
                if self._quiet_s is not None:
                    yield b""
                continue
            if not data:
                self._raise_ending(splitter)
                return
            arrived = time.monotonic()
            lines = splitter.feed(data)
            yield from lines
            if splitter.pending > MAX_ENDLESS_BYTES:
                raise LinkError("the host sends a line without end, which no probe does", code="garbage", retry=False)
            paid_until = max(paid_until, arrived) + max(len(data) / MAX_BYTES_S, len(lines) / MAX_LINES_S)
            ahead_s = paid_until - time.monotonic()
            if ahead_s > BURST_S:
                self._closed.wait(min(ahead_s, 1.0))

    def _raise_ending(self, splitter: LineSplitter) -> None:
        """The far side ended: quietly where it meant to (status 0), else as a LinkError."""
        ending = self._pipe.finish()
        if self._closed.is_set() or ending.status == 0:
            return
        said = last_words(ending.stderr)
        told = f" (it said: {said})" if said else ""
        if ending.status is None:
            raise LinkError(f"the connection was lost{told}", code="lost")
        how = f"with status {ending.status}"
        if ending.status < 0:
            how = "by a signal" if ending.status == SIGNALLED else f"by signal {-ending.status}"
        raise LinkError(f"the probe ended {how}{told}", code="probe_ended")

    def send(self, line: bytes) -> None:
        if self._closed.is_set():
            raise LinkError("the channel is closed", code="closed")
        self._pipe.write(line.rstrip(b"\n") + b"\n", 0.0)

    def close(self) -> None:
        self._closed.set()
        self._pipe.shut()
        if self._reading.acquire(blocking=False):
            try:
                self._pipe.finish()
            finally:
                self._reading.release()
