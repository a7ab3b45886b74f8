"""The first bytes to a host: TCP connect or ProxyCommand, both to be given up at any moment. Speaks no SSH."""

from __future__ import annotations

import errno
import os
import select
import socket
import subprocess
import threading
import time

from moetop.errors import LinkError
from moetop.transport.process import kill_group
from moetop.transport.ssh_config import Settings, proxy_command_line
from moetop.transport.stream import Tail, last_words

SLICE_S = 0.1

_ERRNO_WORDS: dict[int, tuple[str, str, str]] = {
    errno.ECONNREFUSED: (
        "refused",
        "refused the connection",
        "see that sshd runs there and listens on that port",
    ),
    errno.EHOSTUNREACH: ("unreachable", "is unreachable (no route to host)", "check the network and the address"),
    errno.ENETUNREACH: ("unreachable", "is unreachable (no network to it)", "check the network and the address"),
    errno.ENETDOWN: ("unreachable", "is unreachable (the network is down)", "check the network"),
    errno.ETIMEDOUT: ("timeout", "did not answer in time", "see that the host is up and no firewall drops the port"),
    errno.ECONNRESET: ("refused", "reset the connection", "see that sshd runs there"),
    errno.EACCES: ("unreachable", "cannot be connected to from here (permission denied)", "check the firewall here"),
    errno.EADDRNOTAVAIL: ("unreachable", "is no address to connect to", "check the address"),
}


def connect_tcp(settings: Settings, timeout_s: float, given_up: threading.Event) -> socket.socket:
    """A connected socket to any address of the host. Raises LinkError with what the last address said."""
    host, port = settings.hostname, settings.port
    family = {"inet": socket.AF_INET, "inet6": socket.AF_INET6}.get(settings.raw.get("addressfamily", ""), 0)
    try:
        found = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        temporary = isinstance(error, socket.gaierror) and error.errno == socket.EAI_AGAIN
        raise LinkError(
            f"the name {host} cannot be looked up" + (" just now" if temporary else ""),
            "check the spelling, ~/.ssh/config and DNS",
            code="unknown_host",
        ) from error
    deadline = time.monotonic() + timeout_s
    fault = errno.ETIMEDOUT
    for left, (kind, _, protocol, _, address) in enumerate(found, start=1 - len(found)):
        share_s = max(1.0, (deadline - time.monotonic()) / (1 - left))
        sock = socket.socket(kind, socket.SOCK_STREAM, protocol)
        try:
            fault = _connect(sock, address, share_s, given_up)
        except OSError as error:
            fault = error.errno or errno.EIO
        if fault == 0:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock
        sock.close()
        if given_up.is_set() or time.monotonic() >= deadline:
            break
    if given_up.is_set():
        raise LinkError("the attempt was given up", code="closed")
    code, words, advice = _ERRNO_WORDS.get(fault, ("unreachable", f"cannot be reached ({os.strerror(fault)})", ""))
    waited = f" within {timeout_s:.0f} s" if code == "timeout" else ""
    raise LinkError(f"{host} port {port} {words.replace(' in time', waited)}", advice or None, code=code)


def _connect(sock: socket.socket, address: object, timeout_s: float, given_up: threading.Event) -> int:
    """Connect without blocking; 0 or the error number."""
    sock.setblocking(False)
    fault = sock.connect_ex(address)  # type: ignore[arg-type]
    if fault not in (0, errno.EINPROGRESS):
        return fault
    poll = select.poll()
    poll.register(sock, select.POLLOUT)
    deadline = time.monotonic() + timeout_s
    while not poll.poll(SLICE_S * 1000):
        if given_up.is_set() or time.monotonic() >= deadline:
            return errno.ETIMEDOUT
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)


class ProxyProcess:
    """A ProxyCommand whose both streams are one end of a socket pair; the other end is `sock`.

    The command is the user's own line from ssh_config and is run as ssh runs it: by their shell.
    """

    def __init__(self, settings: Settings) -> None:
        self.sock, far = socket.socketpair()
        shell = os.environ.get("SHELL") or "/bin/sh"
        command = proxy_command_line(settings)
        try:
            self._process = subprocess.Popen(
                [shell, "-c", f"exec {command}"],
                stdin=far.fileno(),
                stdout=far.fileno(),
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            self.sock.close()
            why = (error.strerror or str(error)).lower()
            raise LinkError(f"cannot run the ProxyCommand: {why}", code="proxy", retry=False) from error
        finally:
            far.close()
        self._tail = Tail()
        self._drain = threading.Thread(target=self._read_errors, name="moetop-proxy-stderr", daemon=True)
        self._drain.start()

    def _read_errors(self) -> None:
        stream = self._process.stderr
        while stream is not None and (data := os.read(stream.fileno(), 4096)):
            self._tail.add(data)

    def said(self) -> str:
        """Its last words, if it printed any."""
        self._drain.join(0.2)
        return last_words(self._tail.text())

    def close(self) -> None:
        if self._process.returncode is None:
            kill_group(self._process)
            self._process.wait()
        self._drain.join(1.0)
        if self._process.stderr is not None and not self._drain.is_alive():
            self._process.stderr.close()
