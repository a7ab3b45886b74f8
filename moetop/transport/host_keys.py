"""Decides whether a host's key is the right one, and says exactly what to do where it is not. Opens nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import paramiko

from moetop.errors import LinkError
from moetop.transport.base import HostTarget
from moetop.transport.known_hosts import (
    KnownHosts,
    Standing,
    append_key,
    fingerprint,
    host_key_name,
    parse_line,
)
from moetop.transport.ssh_config import Settings

RSA_ALGORITHMS = ("rsa-sha2-512", "rsa-sha2-256")


def key_names(settings: Settings) -> list[str]:
    """Names under which the host's key may be kept, the proper one first."""
    if settings.host_key_alias is not None:
        return [settings.host_key_alias.lower()]
    name = host_key_name(settings.hostname, settings.port)
    return [name] if settings.port == 22 else [name, settings.hostname.lower()]


def preferred_types(offered: Sequence[str], settings: Settings, known: list[str]) -> tuple[str, ...]:
    """Host key algorithms, those of which a key is known first."""
    wanted = [name for name in offered if name in settings.host_key_algorithms] or list(offered)
    first = [name for kind in known for name in (RSA_ALGORITHMS if kind == "ssh-rsa" else (kind,)) if name in wanted]
    return tuple(dict.fromkeys([*first, *wanted]))


def verify(
    session: paramiko.Transport,
    hop: HostTarget,
    settings: Settings,
    known: KnownHosts,
    names: list[str],
    *,
    jumped: bool,
    notes: list[str],
) -> None:
    """Check the host's key, or raise LinkError with what to do. Never accepts a changed or revoked one."""
    key = session.get_remote_server_key()
    kind, blob = key.get_name(), key.asbytes()
    shown = f"{kind} {fingerprint(blob)}"
    judged = known.judge(names[0], kind, blob, plain_name=names[1] if len(names) > 1 else None)
    if judged.standing is Standing.REVOKED or _is_revoked(settings, blob):
        raise LinkError(
            f"the host key of {settings.hostname} ({shown}) is revoked: somebody may be listening in",
            "do not connect; ask the administrator",
            code="host_key_revoked",
            retry=False,
        )
    notes += [f"known_hosts: {warning}" for warning in known.warnings[:5]]
    if judged.standing is Standing.KNOWN:
        return
    if judged.standing is Standing.CHANGED and judged.entry is not None:
        entry = judged.entry
        option = "" if Path(entry.path) == Path("~/.ssh/known_hosts").expanduser() else f" -f {entry.path}"
        raise LinkError(
            f"the host key of {settings.hostname} has changed (it is {shown}; {entry.path}:{entry.line} has another): "
            "the host was reinstalled, or somebody is listening in",
            f"if you know why, run: ssh-keygen -R '{names[0]}'{option}",
            code="host_key_changed",
            retry=False,
        )
    if judged.standing is Standing.CERTIFIED and judged.entry is not None:
        raise LinkError(
            f"{settings.hostname} is known by a host certificate only ({judged.entry.path}:{judged.entry.line}), "
            "which paramiko cannot check",
            "set `transport: openssh` for this host",
            code="needs_openssh",
            retry=False,
        )
    if settings.raw.get("knownhostscommand", "none") != "none":
        raise LinkError(
            f"the key of {settings.hostname} may be known to KnownHostsCommand, which needs the system's ssh",
            "set `transport: openssh` for this host",
            code="needs_openssh",
            retry=False,
        )
    if settings.accept_new and settings.user_known_hosts:
        path = settings.user_known_hosts[0]
        append_key(path, names[0], kind, blob, hashed=settings.hash_known_hosts)
        notes.append(f"the new host key of {settings.hostname} ({shown}) was added to {path}")
        return
    raise _unknown_key(hop, settings, shown, jumped=jumped)


def _unknown_key(hop: HostTarget, settings: Settings, shown: str, *, jumped: bool) -> LinkError:
    path = settings.user_known_hosts[0] if settings.user_known_hosts else Path("~/.ssh/known_hosts")
    home = str(Path.home())
    file = "~" + str(path)[len(home) :] if str(path).startswith(home + "/") else str(path)
    if jumped or settings.proxy_command is not None or settings.host_key_alias is not None:
        advice = f"connect once by hand with `ssh {hop.label}`, or use --accept-new-host-keys"
    else:
        port = f" -p {settings.port}" if settings.port != 22 else ""
        advice = (
            f"compare the fingerprint, then run: ssh-keyscan{port} {settings.hostname} >> {file}, "
            "or use --accept-new-host-keys"
        )
    return LinkError(
        f"the host key of {settings.hostname} is unknown: {shown}", advice, code="host_key_unknown", retry=False
    )


def _is_revoked(settings: Settings, blob: bytes) -> bool:
    """Whether RevokedHostKeys lists the key. Raises LinkError where the list cannot be read: then none is trusted."""
    path = settings.revoked_host_keys
    if path is None:
        return False
    try:
        data = path.read_bytes()
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise LinkError(f"RevokedHostKeys {path} cannot be read: {why}", code="config", retry=False) from error
    if data.startswith(b"SSHKRL\n\0"):
        raise LinkError(
            f"{path} is a key revocation list, which needs the system's ssh",
            "set `transport: openssh` for this host",
            code="needs_openssh",
            retry=False,
        )
    for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), start=1):
        entry = parse_line(f"* {line}" if line.strip() and not line.startswith("#") else "", str(path), number)
        if entry is not None and not isinstance(entry, str) and entry.blob == blob:
            return True
    return False
