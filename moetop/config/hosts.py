"""Host names as people type them: `user@host:port`, `[v6]:port`, ssh:// addresses and ranges. Resolves nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from moetop.config.schema import LogSpec, ServerSpec, TransportKind
from moetop.errors import UsageError
from moetop.text import plain

MAX_HOSTS = 4096
"""Most hosts one range or one configuration names (judgement: 16 times the largest fleet measured)."""

MAX_NAME = 255
"""Longest host name (RFC 1035)."""

_HOSTILE = frozenset("'`\"$\\;&<>|(){}*?!#,/=^~[] \t")
"""Never part of a host's name. OpenSSH refuses most of these too, since names reach ProxyCommand."""

_HOSTILE_USER = frozenset("'`\";&<>|(){}/:[] \t")
_RANGE = re.compile(r"\[([0-9,-]+)\]")
_ADVICE = "write it as [user@]host[:port]"


@dataclass(frozen=True, kw_only=True)
class HostSpec:
    """One host to watch with everything resolved. `None` leaves the choice to ssh_config or the program's default.

    `name` is unique and is what screens and snapshots show; `address` is what ssh is asked for.
    """

    name: str
    address: str
    user: str | None = None
    port: int | None = None
    transport: TransportKind = "auto"
    identity_file: str | None = None
    connect_timeout_s: float = 10.0
    ask_password: bool = False
    python: str = "python3"
    logs: tuple[LogSpec, ...] = ()
    servers: tuple[ServerSpec, ...] = ()
    interval_s: float | None = None
    labels: dict[str, str] = field(default_factory=dict)
    sudo: bool = False
    discover: bool = True
    group: str | None = None

    def probe_logs(self) -> list[dict[str, object]]:
        """The logs to follow, in the form of the probe's `logs` option."""
        given = [log.probe_option() for log in self.logs]
        return given + [server.log.probe_option() for server in self.servers if server.log is not None]


def parse_host(text: str) -> HostSpec:
    """`text` as a host. Raises UsageError naming what is wrong with it."""
    whole = text.strip()
    shown = repr(plain(text, 80))
    if whole.lower().startswith("ssh://"):
        whole = whole[len("ssh://") :].rstrip("/")
    if not whole:
        raise UsageError("an empty host name", _ADVICE)
    user, at, place = whole.rpartition("@")
    if at:
        _check_user(user, shown)
    address, port = _split_port(place, shown)
    _check_address(address, shown)
    name = address if port is None else (f"[{address}]:{port}" if ":" in address else f"{address}:{port}")
    return HostSpec(name=name, address=address, user=user if at else None, port=port)


def _check_user(user: str, shown: str) -> None:
    if not user:
        raise UsageError(f"host {shown}: nothing before the @", _ADVICE)
    if user.startswith("-"):
        raise UsageError(f"host {shown}: a user cannot begin with '-'", _ADVICE)
    odd = plain(user) != user or not user.isprintable() or _HOSTILE_USER & set(user) or user.endswith("\\")
    if odd or len(user) > MAX_NAME:
        raise UsageError(f"host {shown}: the user holds characters that cannot stand there", _ADVICE)


def _split_port(place: str, shown: str) -> tuple[str, int | None]:
    if place.startswith("["):
        inner, bracket, rest = place[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise UsageError(f"host {shown}: the bracket is not closed", "write an IPv6 address as [address]:port")
        if not _is_v6(inner):
            raise UsageError(f"host {shown}: {inner!r} is not an IPv6 address", "brackets are for IPv6 addresses")
        return inner, _port(rest[1:], shown) if rest else None
    if place.count(":") > 1:
        if not _is_v6(place):
            raise UsageError(f"host {shown}: neither host:port nor an IPv6 address", _ADVICE)
        return place, None
    address, colon, port = place.partition(":")
    return address, _port(port, shown) if colon else None


def _is_v6(text: str) -> bool:
    import ipaddress

    try:
        return ipaddress.ip_address(text).version == 6
    except ValueError:
        return False


def _port(text: str, shown: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and 1 <= int(text) <= 65535):
        raise UsageError(f"host {shown}: {plain(text, 20)!r} is not a port from 1 to 65535", _ADVICE)
    return int(text)


def _check_address(address: str, shown: str) -> None:
    if not address:
        raise UsageError(f"host {shown}: no host name", _ADVICE)
    if address.startswith("-"):
        raise UsageError(f"host {shown}: a host name cannot begin with '-'", _ADVICE)
    if len(address) > MAX_NAME:
        raise UsageError(f"host {shown}: longer than {MAX_NAME} characters", _ADVICE)
    if plain(address) != address or _HOSTILE & set(address) or not address.isprintable():
        raise UsageError(f"host {shown}: a host name holds letters, digits and . - _ only", _ADVICE)


def expand_hosts(text: str) -> list[str]:
    """Names that a range stands for: `gpu[01-03]` is gpu01, gpu02, gpu03. Raises UsageError."""
    match = _RANGE.search(text)
    if match is None:
        return [text]
    heads = [text[: match.start()] + number for number in _numbers(match.group(1), text)]
    names = []
    for head in heads:
        for tail in expand_hosts(text[match.end() :]):
            names.append(head + tail)
            if len(names) > MAX_HOSTS:
                raise UsageError(f"{plain(text, 80)!r} names more than {MAX_HOSTS} hosts")
    return names


def _numbers(body: str, text: str) -> list[str]:
    numbers: list[str] = []
    for part in body.split(","):
        low, dash, high = part.partition("-")
        if not low or (dash and not high) or "-" in high or len(part) > 20:
            raise UsageError(f"{plain(text, 80)!r}: {part!r} is not a range", "write it as [01-32] or [1,4,7-9]")
        if not dash:
            numbers.append(low)
            continue
        first, last = int(low), int(high)
        if last < first or last - first >= MAX_HOSTS:
            raise UsageError(f"{plain(text, 80)!r}: {part!r} runs backwards or names more than {MAX_HOSTS} hosts")
        numbers.extend(str(number).zfill(len(low)) for number in range(first, last + 1))
    return numbers
