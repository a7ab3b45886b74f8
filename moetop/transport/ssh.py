"""The SSH transport on paramiko: the probe's stream and single commands over one connection."""

from __future__ import annotations

import json
import shlex
import threading
import time
from collections.abc import Mapping, Sequence

import paramiko

from moetop.errors import LinkError
from moetop.text import plain
from moetop.transport import auth
from moetop.transport.auth import Prompt
from moetop.transport.base import Channel, Completed, HostTarget
from moetop.transport.fallback import open_fallback
from moetop.transport.hops import CHANNEL_TIMEOUT_S, Connection
from moetop.transport.process import MAX_OUTPUT_BYTES
from moetop.transport.stream import READ_BYTES, SIGNALLED, Ending, Tail, probe_command, start_probe

STATUS_WAIT_S = 1.0
"""How long after its output's end a command's exit status may take to arrive."""


class SshPipe:
    """The `BytePipe` over a session channel; gives its place on the connection back when finished."""

    def __init__(self, connection: Connection, channel: paramiko.Channel) -> None:
        self._connection = connection
        self._channel = channel
        self._tail = Tail()
        self._shut = threading.Event()
        self._ending: Ending | None = None
        self._shut_lock = threading.Lock()
        self._finish_lock = threading.Lock()

    def read(self, timeout_s: float) -> bytes | None:
        self._channel.settimeout(timeout_s)
        try:
            data = self._channel.recv(READ_BYTES)
        except TimeoutError:
            data = None
        self._drain_errors()
        return b"" if data is None and self._shut.is_set() else data

    def _drain_errors(self) -> None:
        while self._channel.recv_stderr_ready():
            self._tail.add(self._channel.recv_stderr(READ_BYTES))

    def write(self, data: bytes, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        left = data
        while left:
            if self._shut.is_set() or self._channel.closed:
                raise LinkError("the channel is closed", code="closed")
            if self._connection.can_write() and self._channel.send_ready():
                try:
                    left = left[self._channel.send(left) :]
                except OSError as error:
                    raise LinkError("the connection was lost", code="lost") from error
            elif time.monotonic() >= deadline:
                raise LinkError("the host takes no input just now", code="stuck")
            else:
                time.sleep(0.01)

    def shut(self) -> None:
        """The stream's end is the connection's end, unless a command still runs over it."""
        with self._shut_lock:
            if self._shut.is_set():
                return
            self._shut.set()
            alone = self._connection.retire()
        if not alone and self._connection.can_write() and not self._channel.closed:
            self._channel.close()

    def finish(self) -> Ending:
        with self._finish_lock:
            if self._ending is None:
                self._drain_errors()
                self._ending = Ending(self._status(), self._tail.text())
                self.shut()
                self._connection.leave()
            return self._ending

    def _status(self) -> int | None:
        """The exit status; None where the connection went first or we ended it."""
        if self._shut.is_set():
            return None
        self._channel.status_event.wait(STATUS_WAIT_S)
        self._drain_errors()
        status = self._channel.exit_status
        if status >= 0:
            return status
        return SIGNALLED if self._connection.is_alive() and self._channel.eof_received else None


class SshTransport:
    """A host over paramiko. `prompt` asks for passphrases, and for passwords where the target allows it."""

    finite = False
    renews = True

    def __init__(self, target: HostTarget, prompt: Prompt | None = None) -> None:
        self.name = target.name
        self._target = target
        self._prompt = prompt
        self._lock = threading.Lock()
        self._connecting = threading.Lock()
        self._connection: Connection | None = None
        self._closed = False

    def open(self, options: Mapping[str, object]) -> Channel:
        """Start a probe; on a host without a usable Python, `nvidia-smi` in a loop."""
        python = self._target.python
        try:
            pipe, notes = self.start(probe_command(python))
            return start_probe(pipe, options, python=python, label=self._target.label, notes=notes)
        except LinkError as error:
            if error.code not in ("no_python", "old_python"):
                raise
            return open_fallback(self.start, options, error)

    def start(self, command: str) -> tuple[SshPipe, tuple[bytes, ...]]:
        """Run a command line as a stream; with it, what there is to say of the connection."""
        connection = self._enter(streaming=True)
        try:
            channel = _execute(connection, command)
        except BaseException:
            connection.retire()
            connection.leave()
            raise
        notes = tuple(note_line(note) for note in connection.notes)
        connection.notes.clear()
        return SshPipe(connection, channel), notes

    def run(self, argv: Sequence[str], stdin: bytes = b"", timeout_s: float = 30.0) -> Completed:
        connection = self._enter(streaming=False)
        try:
            return _run_command(connection, shlex.join(argv), stdin, timeout_s)
        except LinkError as error:
            if error.code in ("lost", "timeout"):
                connection.doubt()
            raise
        finally:
            connection.leave()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            connection = self._connection
        if connection is not None:
            connection.abort()
            connection.close_if_idle()

    def ask_again(self) -> None:
        """What nobody answered may be asked again at the next connecting: of every host, for keys are shared."""
        auth.shared_keys.ask_again()

    def _enter(self, *, streaming: bool) -> Connection:
        """A place on the connection, made anew where there is none that is good."""
        with self._connecting:
            old = self._connection
            if old is not None and not self._closed and old.enter(streaming=streaming):
                return old
            fresh = Connection(self._target, self._prompt, streaming=streaming)
            with self._lock:
                if self._closed:
                    raise LinkError("the transport is closed", code="closed", retry=False)
                self._connection = fresh
            if old is not None:
                old.retire()
                old.close_if_idle()
            fresh.connect()
            return fresh


def note_line(text: str) -> bytes:
    """A status frame that says something of the connection itself."""
    frame = {"type": "status", "t": time.time(), "code": "link_note", "level": "info", "message": plain(text, 500)}
    return json.dumps(frame).encode()


def _execute(connection: Connection, command: str) -> paramiko.Channel:
    """Start a command line on a new session channel. Raises LinkError."""
    watchdog = threading.Timer(2 * CHANNEL_TIMEOUT_S, connection.abort)  # paramiko waits for the answer without end
    watchdog.daemon = True
    watchdog.start()
    try:
        channel = connection.session.open_session(timeout=CHANNEL_TIMEOUT_S)
        channel.exec_command(command)
        return channel
    except paramiko.ChannelException as error:
        raise LinkError(
            f"the host refuses another session on this connection ({error.text or 'MaxSessions'})",
            "raise MaxSessions in its sshd_config",
            code="max_sessions",
        ) from error
    except (paramiko.SSHException, EOFError, OSError) as error:
        if not connection.is_alive():
            raise LinkError("the connection was lost while the command was starting", code="lost") from error
        if "imeout" in str(error):
            raise LinkError("the host did not start the command in time", code="timeout") from error
        raise LinkError(
            "the host refuses to run a command",
            "see its sshd_config (ForceCommand, restricted shells) and authorized_keys (command=)",
            code="no_exec",
            retry=False,
        ) from error
    finally:
        watchdog.cancel()


def _run_command(connection: Connection, command: str, stdin: bytes, timeout_s: float) -> Completed:
    """Run to the end with bounded output. Raises LinkError (code timeout) after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    channel = _execute(connection, command)
    out, err = _Bounded(), _Bounded()
    left = stdin
    open_input = True
    try:
        while True:
            if time.monotonic() >= deadline:
                raise LinkError(f"the command did not end within {timeout_s:.0f} s", code="timeout")
            if left and channel.send_ready() and connection.can_write():
                left = left[channel.send(left) :]
            elif open_input and not left:
                channel.shutdown_write()
                open_input = False
            channel.settimeout(0.01 if left else min(0.25, timeout_s))
            try:
                data = channel.recv(READ_BYTES)
            except TimeoutError:
                data = None
            while channel.recv_stderr_ready():
                err.add(channel.recv_stderr(READ_BYTES))
            if data == b"":
                break
            out.add(data or b"")
        channel.status_event.wait(max(STATUS_WAIT_S, deadline - time.monotonic()))
        while channel.recv_stderr_ready():
            err.add(channel.recv_stderr(READ_BYTES))
        if not channel.status_event.is_set() or (channel.exit_status < 0 and not connection.is_alive()):
            raise LinkError("the connection was lost while the command ran", code="lost")
        return Completed(channel.exit_status, out.data(), err.data(), out.truncated or err.truncated)
    except OSError as error:
        raise LinkError("the connection was lost while the command ran", code="lost") from error
    finally:
        if connection.can_write():
            channel.close()


class _Bounded:
    """Output kept up to a bound."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self.truncated = False

    def add(self, data: bytes) -> None:
        kept = data[: max(0, MAX_OUTPUT_BYTES - self._size)]
        self.truncated |= len(kept) < len(data)
        self._parts.append(kept)
        self._size += len(kept)

    def data(self) -> bytes:
        return b"".join(self._parts)
