"""What every transport offers: open a probe's stream, run one command, close. Opens nothing itself."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from moetop.errors import UsageError

_BAD_HOST = re.compile(r"[\s\x00-\x1f\x7f'\"`$\\;&<>|(){}*?!#]")
_BAD_USER = re.compile(r"[\s\x00-\x1f\x7f'\"`$;&<>|(){}*?!#]|\\\Z")
"""Characters no host or user name may hold: they end up in `ssh_config` commands (`%h`, `%r`), which
a shell reads. The sets are wider than OpenSSH's own (ssh.c valid_hostname, valid_ruser, 9.6). Like there, a
backslash may stand in a user name (`DOMAIN\\user`) but not end it, where it would take a quote's meaning away."""


@dataclass(frozen=True, slots=True)
class Completed:
    """A command that ran to its end. Output is bounded; `truncated` says that some was dropped."""

    returncode: int
    stdout: bytes = b""
    stderr: bytes = b""
    truncated: bool = False


class Channel(Protocol):
    """One running probe: frames out, control lines in."""

    def lines(self) -> Iterator[bytes]:
        """Frames as they come. Raises LinkError when the link ends; ends quietly after `close()`,
        and where the far side ended on purpose (a replay's end, one sample taken)."""

    def send(self, line: bytes) -> None:
        """Send one control line; never blocks for long. Raises LinkError when that is impossible."""

    def close(self) -> None:
        """End the session; idempotent, from any thread, quick. `lines()` then ends."""


class Transport(Protocol):
    """A way to one host. `open` and `run` may share one connection; `close` is final."""

    @property
    def name(self) -> str:
        """The host's name on screen."""

    @property
    def finite(self) -> bool:
        """Whether a quiet end of the stream means that all is told (a replay)."""

    @property
    def renews(self) -> bool:
        """Whether another probe can be started without a new login, of which a person might have to know."""

    def open(self, options: Mapping[str, object]) -> Channel:
        """Start a probe with `options` (docs/architecture.md). Raises LinkError."""

    def run(self, argv: Sequence[str], stdin: bytes = b"", timeout_s: float = 30.0) -> Completed:
        """Run one command on the host, without a shell reading `argv`. Raises LinkError."""

    def close(self) -> None:
        """Drop the connection and refuse further use; from any thread, quick."""


@runtime_checkable
class Asking(Protocol):
    """A transport that may ask the person for a passphrase or a password."""

    def ask_again(self) -> None:
        """Questions that were left unanswered may be asked again; until then they are not repeated."""


@dataclass(frozen=True, slots=True)
class HostTarget:
    """A host to watch over the network, as a user named it and as configuration refined it.

    `address` is what `ssh` would be given (an alias, a name, an address); None values are left to
    ssh_config. `kind` is auto, ssh (paramiko), openssh (the system's ssh) or local. `options` are
    further ssh_config settings, as `ssh -o` takes them.
    """

    address: str
    name: str = ""
    user: str | None = None
    port: int | None = None
    kind: str = "auto"
    identity_file: str | None = None
    accept_new_host_keys: bool = False
    ask_password: bool = False
    ssh_config_file: str | None = None
    connect_timeout_s: float = 10.0
    python: str = "python3"
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_host_word(self.address, "host")
        if self.user is not None:
            check_host_word(self.user, "user")
        if self.port is not None and not 0 < self.port < 65536:
            raise UsageError(f"{self.port} is not a port number", "ports are 1 to 65535")
        if not self.name:
            object.__setattr__(self, "name", self.address)

    @property
    def config_file(self) -> str | None:
        """The ssh_config to read instead of the usual ones, as `ssh -F`; MOETOP_SSH_CONFIG names one for all."""
        return self.ssh_config_file or os.environ.get("MOETOP_SSH_CONFIG") or None

    @property
    def label(self) -> str:
        """The host as one would type it for `ssh` (for advice in messages)."""
        place = f"{self.user}@{self.address}" if self.user else self.address
        return shlex.quote(place) + (f" -p {self.port}" if self.port else "")


def check_host_word(word: str, what: str) -> None:
    """Raise UsageError where `word` cannot be a host or user name."""
    bad = _BAD_USER if what == "user" else _BAD_HOST
    if not word or word.startswith("-") or len(word) > 255 or bad.search(word):
        shown = word if word.isprintable() else ascii(word)
        raise UsageError(f"{shown[:80]!r} is not a {what} name")


@dataclass(frozen=True, slots=True)
class ProbeOptions:
    """Options of the probe (docs/architecture.md, "The probe protocol"). Seconds in `_s`."""

    interval_s: float = 1.0
    once: bool = False
    silence_timeout_s: float = 30.0
    literals: tuple[str, ...] = ()
    noise_literals: Mapping[str, Sequence[str]] = field(default_factory=dict)
    logs: tuple[Mapping[str, Any], ...] = ()
    discover: bool = True
    history: bool = True
    tail_lines: int = 200
    sudo: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def single(cls, interval_s: float, *, sudo: bool = False) -> ProbeOptions:
        """One sample of the GPUs and the end: no servers, no logs, so no literals either."""
        return cls(interval_s=interval_s, once=True, discover=False, sudo=sudo)

    def wire(self, resume: Mapping[str, Mapping[str, Any]] | None = None) -> dict[str, object]:
        """The options as they travel; `resume` says where the reading of each log goes on."""
        options: dict[str, object] = {
            "interval_s": self.interval_s,
            "once": self.once,
            "silence_timeout_s": self.silence_timeout_s,
            "literals": list(self.literals),
            "noise_literals": {kind: list(words) for kind, words in self.noise_literals.items()},
            "logs": [dict(log) for log in self.logs],
            "discover": self.discover,
            "history": self.history,
            "tail_lines": self.tail_lines,
            "sudo": self.sudo,
            **self.extra,
        }
        if resume:
            options["resume"] = {source: dict(place) for source, place in resume.items()}
        return options
