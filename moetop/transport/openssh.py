"""The SSH transport on the system's own ssh: for what paramiko cannot do, at one process a host."""

from __future__ import annotations

import re
import shlex
import threading
from collections.abc import Mapping, Sequence

from moetop.errors import LinkError
from moetop.transport.base import Channel, Completed, HostTarget
from moetop.transport.fallback import open_fallback
from moetop.transport.process import ProcessPipe, run_process
from moetop.transport.spawn import spawn
from moetop.transport.ssh_config import find_ssh, ssh_arguments
from moetop.transport.starting import Place
from moetop.transport.stream import BytePipe, Ending, last_words, probe_command, start_probe

SSH_FAILED = 255
"""Exit status of ssh when it is ssh that failed (ssh(1), EXIT STATUS)."""

_WORDS: tuple[tuple[str, str, str | None, bool], ...] = (
    (r"Could not resolve hostname", "unknown_host", "check the spelling, ~/.ssh/config and DNS", True),
    (
        r"REMOTE HOST IDENTIFICATION HAS CHANGED",
        "host_key_changed",
        "if you know why, run: ssh-keygen -R '{host}'",
        False,
    ),
    (r"is revoked|REVOKED HOST KEY", "host_key_revoked", "do not connect; ask the administrator", False),
    (
        r"Host key verification failed",
        "host_key_unknown",
        "connect once by hand with `ssh {label}`, or use --accept-new-host-keys",
        False,
    ),
    (r"Permission denied|Too many authentication failures", "auth", "see `ssh -v {label}`", False),
    (r"Connection refused", "refused", "see that sshd runs there and listens on that port", True),
    (r"timed out|Operation timed out", "timeout", "see that the host is up and no firewall drops the port", True),
    (r"No route to host|Network is unreachable", "unreachable", "check the network and the address", True),
    (r"no matching \w+", "algorithms", "update the host's sshd", False),
    (r"kex_exchange_identification|Connection (?:closed|reset) by", "max_startups", None, True),
    (r"Bad configuration option|Bad owner or permissions", "config", "see `ssh -G {label}`", False),
)
"""What OpenSSH 8 to 10 prints, the code it stands for, the advice, and whether to try again soon."""


class OpensshTransport:
    """A host over `ssh`. It asks no questions (BatchMode): agents and plain keys only."""

    finite = False
    renews = False

    def __init__(self, target: HostTarget) -> None:
        self.name = target.name
        self._target = target
        self._lock = threading.Lock()
        self._pipe: ProcessPipe | None = None
        self._closed = threading.Event()

    def open(self, options: Mapping[str, object], notes: tuple[bytes, ...] = ()) -> Channel:
        python = self._target.python
        place = Place(self._closed)
        place.take()
        # of ssh it cannot be seen when it is through with the login and waits for the login shell
        through = threading.Timer(self._target.connect_timeout_s, place.leave)
        through.daemon = True
        through.start()
        try:
            pipe, _ = self._start(probe_command(python))
            return start_probe(pipe, options, python=python, label=self._target.label, notes=notes)
        except LinkError as error:
            if error.code not in ("no_python", "old_python"):
                raise
            return open_fallback(self._start, options, error)
        finally:
            through.cancel()
            place.leave()

    def run(self, argv: Sequence[str], stdin: bytes = b"", timeout_s: float = 30.0) -> Completed:
        self._check_open()
        done = run_process(self._command(shlex.join(argv)), stdin, timeout_s)
        if done.returncode == SSH_FAILED:
            raise explain(done.stderr.decode("utf-8", "replace"), self._target)
        return done

    def close(self) -> None:
        with self._lock:
            self._closed.set()
            pipe = self._pipe
        if pipe is not None:
            pipe.shut()

    def _start(self, command: str) -> tuple[BytePipe, tuple[bytes, ...]]:
        self._check_open()
        pipe = _SshProcess(self._command(command), self._target)
        with self._lock:
            self._pipe = pipe
            closed = self._closed.is_set()
        if closed:
            pipe.shut()
        return pipe, ()

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise LinkError("the transport is closed", code="closed", retry=False)

    def _command(self, command: str) -> list[str]:
        ssh = find_ssh()
        if ssh is None:
            raise LinkError(
                "there is no ssh on this machine", "install OpenSSH's client", code="no_program", retry=False
            )
        target = self._target
        settings = [
            "-T",
            "-oBatchMode=yes",
            f"-oConnectTimeout={max(1, round(target.connect_timeout_s))}",
            "-oServerAliveInterval=5",
            "-oServerAliveCountMax=3",
            "-oEscapeChar=none",
            "-oRequestTTY=no",
            "-oRemoteCommand=none",
            "-oClearAllForwardings=yes",
            "-oControlMaster=no",
        ]
        if target.accept_new_host_keys:
            settings.append("-oStrictHostKeyChecking=accept-new")
        return [ssh, *settings, *ssh_arguments(target), "--", target.address, command]


class _SshProcess(ProcessPipe):
    """A pipe that tells ssh's own failures from those of the command."""

    def __init__(self, argv: list[str], target: HostTarget) -> None:
        super().__init__(spawn(argv))
        self._target = target

    def finish(self) -> Ending:
        ending = super().finish()
        if ending.status == SSH_FAILED:
            raise explain(ending.stderr, self._target)
        return ending


def explain(stderr: str, target: HostTarget) -> LinkError:
    """What ssh printed when it failed, as a LinkError."""
    said = last_words(stderr) or "ssh failed without a word"
    for pattern, code, advice, retry in _WORDS:
        if re.search(pattern, stderr):
            filled = advice.format(host=_key_name(target), label=target.label) if advice else None
            return LinkError(f"ssh to {target.address}: {said}", filled, code=code, retry=retry)
    return LinkError(f"ssh to {target.address}: {said}", code="lost")


def _key_name(target: HostTarget) -> str:
    return f"[{target.address}]:{target.port}" if target.port not in (None, 22) else target.address
