"""One SSH connection over any number of hops, each verified and logged in. Runs nothing on the hosts."""

from __future__ import annotations

import logging
import select
import socket
import threading
import time
from contextlib import suppress

import paramiko

from moetop.errors import LinkError
from moetop.text import plain
from moetop.transport.auth import Login, Prompt
from moetop.transport.base import HostTarget
from moetop.transport.host_keys import key_names, preferred_types, verify
from moetop.transport.known_hosts import KnownHosts
from moetop.transport.reach import ProxyProcess, connect_tcp
from moetop.transport.ssh_config import MAX_HOPS, Settings, hop_target, resolve
from moetop.transport.starting import PLACE_WAIT_S, Place, first_hop

MAX_CHANNELS = 3
"""Session channels of one connection: the probe, a command, one to spare (sshd's MaxSessions is 10)."""

GREETING_TIMEOUT_S = 15.0
CHANNEL_TIMEOUT_S = 15.0

logging.getLogger("paramiko").addHandler(logging.NullHandler())  # else its errors reach the terminal


class _Session(paramiko.Transport):
    """A session whose key exchange waits for a place among the logins once the host has greeted."""

    place: Place | None = None

    def _check_banner(self) -> None:
        super()._check_banner()  # type: ignore[misc]  # missing from the stubs
        if self.place is not None:
            self.place.take()


def find_route(target: HostTarget) -> list[tuple[HostTarget, Settings]]:
    """The hops to a target, the target last, as ProxyJump settings give them. Raises LinkError."""
    route: list[tuple[HostTarget, Settings]] = []
    settings = resolve(target)
    route.append((target, settings))
    while settings.proxy_jump:
        hops = [hop_target(target, hop) for hop in settings.proxy_jump]
        resolved = [(hop, resolve(hop)) for hop in hops]
        route = resolved + route
        settings = resolved[0][1]  # only the first hop's own jump counts, as in ssh
        if len(route) > MAX_HOPS:
            raise LinkError(
                f"more than {MAX_HOPS} jump hosts lead to {target.address}: they refer to each other",
                "check ProxyJump in ~/.ssh/config",
                code="config",
                retry=False,
            )
    return route


class Connection:
    """An SSH connection being made or in use. `abort` may come from any thread at any time.

    Whoever uses it holds one of its channels from `enter` to `leave`; whoever made it holds one from
    the beginning. A retired connection takes nobody in and closes when the last one leaves.
    """

    def __init__(self, target: HostTarget, prompt: Prompt | None, *, streaming: bool = False) -> None:
        self.target = target
        self.notes: list[str] = []
        self.given_up = threading.Event()
        self._users = 1
        self._streaming = streaming
        self._retired = False
        self._prompt = prompt
        self._sessions: list[_Session] = []
        self._base: socket.socket | None = None
        self._proxy: ProxyProcess | None = None
        self._lock = threading.Lock()
        self._closing = threading.Lock()

    @property
    def session(self) -> paramiko.Transport:
        """The session with the host itself."""
        return self._sessions[-1]

    def enter(self, *, streaming: bool) -> bool:
        """Take one of the channels, if the connection is good; only one may be a probe's stream."""
        with self._lock:
            free = not self._retired and self._users < MAX_CHANNELS and not (streaming and self._streaming)
            if not free or not self.is_alive():
                return False
            self._users += 1
            self._streaming |= streaming
            return True

    def leave(self) -> None:
        """Give the channel back; the last user of a retired connection closes it."""
        with self._lock:
            self._users -= 1
            over = self._users == 0 and (self._retired or self.given_up.is_set())
        if over:
            self.close()

    def retire(self) -> bool:
        """Let nobody else in. Whether the caller was alone on it: then the line is cut at once."""
        with self._lock:
            self._retired = True
            alone = self._users <= 1
        if alone:
            self.abort()
        return alone

    def doubt(self) -> None:
        """A command had no answer: where no stream proves the line good, use it no more."""
        if not self._streaming:
            self.retire()

    def close_if_idle(self) -> None:
        """Release everything where nobody is left who will."""
        with self._lock:
            idle = self._users == 0
        if idle:
            self.close()

    def is_alive(self) -> bool:
        return not self.given_up.is_set() and bool(self._sessions) and all(s.is_active() for s in self._sessions)

    def can_write(self) -> bool:
        """Whether a short message would go out without waiting (no key exchange, room in the socket)."""
        if not self.is_alive() or self._base is None:
            return False
        if not all(session.clear_to_send.is_set() for session in self._sessions):
            return False
        try:
            poll = select.poll()
            poll.register(self._base, select.POLLOUT)
            return bool(poll.poll(0))
        except (OSError, ValueError):
            return False

    def connect(self) -> None:
        """Go all the way. Raises LinkError; whatever was opened is closed then."""
        try:
            with Place(self.given_up):  # asking `ssh -G` starts a process
                route = find_route(self.target)
            first = route[0][1]
            with first_hop(first, self.given_up):
                sock = self._reach(first)
                self._join_hop(sock, *route[0])
            for hop, settings in route[1:]:
                self._join_hop(self._tunnel(settings), hop, settings)
        except BaseException as error:
            given_up = self.given_up.is_set()
            self.close()
            if given_up and isinstance(error, LinkError):
                raise LinkError("the attempt was given up", code="closed") from error
            raise

    def abort(self) -> None:
        """Cut the line at once, whatever is going on over it; never blocks."""
        self.given_up.set()
        base = self._base
        if base is not None:
            with suppress(OSError):  # not connected, or closed already
                base.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Release everything. Idempotent."""
        self.abort()
        with self._closing:
            for session in reversed(self._sessions):
                with suppress(EOFError, OSError, paramiko.SSHException):  # its line is cut already
                    session.close()
            if self._base is not None:
                self._base.close()
            if self._proxy is not None:
                self._proxy.close()

    # ── steps ────────────────────────────────────────────────────────────────────────────────────

    def _timeout_s(self, settings: Settings) -> float:
        return settings.connect_timeout_s or self.target.connect_timeout_s

    def _reach(self, first: Settings) -> socket.socket:
        if first.proxy_command is not None:
            if first.flag("proxyusefdpass"):
                raise LinkError(
                    "ProxyUseFdpass needs the system's ssh",
                    "set `transport: openssh`",
                    code="needs_openssh",
                    retry=False,
                )
            self._proxy = ProxyProcess(first)
            self._base = self._proxy.sock
        else:
            self._base = connect_tcp(first, self._timeout_s(first), self.given_up)
        if self.given_up.is_set():
            self.abort()
        return self._base

    def _tunnel(self, settings: Settings) -> paramiko.Channel:
        """A channel through the last hop to the next one."""
        before = self.session
        try:
            return before.open_channel(
                "direct-tcpip",
                (settings.hostname, settings.port),
                ("127.0.0.1", 0),
                timeout=self._timeout_s(settings) + 5.0,
            )
        except paramiko.ChannelException as error:
            if error.code == 1:
                raise LinkError(
                    "the jump host does not allow forwarding (AllowTcpForwarding)",
                    "ask its administrator, or use another jump host",
                    code="jump",
                    retry=False,
                ) from error
            raise LinkError(
                f"the jump host cannot reach {settings.hostname} port {settings.port}",
                "see from the jump host that the name is known there and sshd listens",
                code="jump",
            ) from error
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise LinkError(f"the jump host ended the connection: {_words(error)}", code="jump") from error

    def _join_hop(self, sock: socket.socket | paramiko.Channel, hop: HostTarget, settings: Settings) -> None:
        """Greeting, key exchange, host key, login."""
        known = KnownHosts([*settings.user_known_hosts, *settings.global_known_hosts])
        session = _Session(sock)
        session.place = place = Place(self.given_up)
        self._sessions.append(session)
        session.banner_timeout = max(GREETING_TIMEOUT_S, self._timeout_s(settings))
        session.handshake_timeout = session.banner_timeout
        names = key_names(settings)
        options = session.get_security_options()
        options.key_types = preferred_types(options.key_types, settings, known.key_types(names))
        try:
            self._greet(session, settings)
            verify(session, hop, settings, known, names, jumped=len(self._sessions) > 1, notes=self.notes)
            Login(session, settings, hop, self._prompt, on_question=place.leave).run()
        finally:
            place.leave()

    def _greet(self, session: paramiko.Transport, settings: Settings) -> None:
        begun = time.monotonic()
        shown = f"{settings.hostname} port {settings.port}"
        try:
            session.start_client(timeout=session.banner_timeout * 2 + PLACE_WAIT_S)
            if not session.initial_kex_done:
                raise LinkError(f"{shown} did not finish the key exchange in time", code="banner")
        except paramiko.ssh_exception.IncompatiblePeer as error:
            raise LinkError(
                f"{shown} and paramiko have no algorithm in common: {_words(error)}",
                "set `transport: openssh` for this host, or update its sshd",
                code="needs_openssh",
                retry=False,
            ) from error
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise self._no_greeting(error, shown, time.monotonic() - begun, session.banner_timeout) from error

    def _no_greeting(self, error: Exception, shown: str, waited_s: float, timeout_s: float) -> LinkError:
        said = self._proxy.said() if self._proxy is not None and len(self._sessions) == 1 else ""
        if said:
            return LinkError(
                f"the ProxyCommand ended without a connection: {said}",
                f"try `ssh {self.target.label}`",
                code="proxy",
            )
        if waited_s >= timeout_s * 0.9:
            return LinkError(
                f"{shown} accepted the connection and said nothing for {waited_s:.0f} s",
                "it may be overloaded or hung, or the port may not be SSH's",
                code="banner",
            )
        if "banner" in str(error) or isinstance(error, (EOFError, ConnectionError)):
            return LinkError(
                f"{shown} closed the connection before its greeting",
                "too many logins at once (MaxStartups), a firewall, or no SSH server there",
                code="max_startups",
            )
        return LinkError(f"{shown} does not speak SSH as expected: {_words(error)}", code="protocol")


def _words(error: Exception) -> str:
    return plain(" ".join(str(error).split()) or type(error).__name__, 200)
