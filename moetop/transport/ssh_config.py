"""What `ssh HOST` would use: settings from `ssh -G`, or from a small reader where there is no ssh.

Connects to nothing. paramiko's own reader ignores Include and applies Match blocks with words it does
not know to every host, so it is the fallback only.
"""

from __future__ import annotations

import getpass
import os
import re
import shutil
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from moetop.errors import LinkError, UsageError
from moetop.transport.base import HostTarget, check_host_word
from moetop.transport.process import run_process
from moetop.transport.stream import last_words

SSH_G_TIMEOUT_S = 15.0
"""`ssh -G` may run Match exec commands and look names up."""

MAX_HOPS = 8
DEFAULT_KEYS = ("~/.ssh/id_rsa", "~/.ssh/id_ecdsa", "~/.ssh/id_ed25519")


@dataclass(frozen=True, slots=True)
class Settings:
    """Resolved settings of one hop. `original` is what the user typed; lists hold expanded paths."""

    original: str
    hostname: str
    user: str
    port: int = 22
    identity_files: tuple[Path, ...] = ()
    certificate_files: tuple[Path, ...] = ()
    identities_only: bool = False
    identity_agent: str | None = None  # None: SSH_AUTH_SOCK; "none": no agent
    proxy_command: str | None = None
    proxy_jump: tuple[str, ...] = ()
    host_key_alias: str | None = None
    user_known_hosts: tuple[Path, ...] = ()
    global_known_hosts: tuple[Path, ...] = ()
    revoked_host_keys: Path | None = None
    hash_known_hosts: bool = False
    accept_new: bool = False
    host_key_algorithms: tuple[str, ...] = ()
    connect_timeout_s: float | None = None
    raw: Mapping[str, str] = field(default_factory=dict)

    def flag(self, key: str) -> bool:
        """Whether a yes/no setting is on."""
        return self.raw.get(key, "no") in ("yes", "true")

    @property
    def shown(self) -> str:
        return f"{self.user}@{self.hostname}" + (f":{self.port}" if self.port != 22 else "")


def find_ssh() -> str | None:
    """The system's ssh, if any."""
    return shutil.which("ssh")


def resolve(target: HostTarget, ssh: str | None = None) -> Settings:
    """The settings of a target. Raises LinkError (code config) with ssh's own words."""
    ssh = ssh if ssh is not None else find_ssh()
    values = _ask_ssh(target, ssh) if ssh else _read_config(target)
    return _settings(target, values)


def hop_target(target: HostTarget, hop: str) -> HostTarget:
    """A jump host as `ProxyJump` names it, with what the target says of files and new keys."""
    text = hop.removeprefix("ssh://").rstrip("/")
    user, _, place = text.rpartition("@")
    match = re.fullmatch(r"(\[[^\]]+\]|[^:]+)(?::(\d+))?|([0-9A-Fa-f:.%]+)", place)
    if match is None:
        raise LinkError(f"the jump host {hop!r} is not [user@]host[:port]", code="config", retry=False)
    host = (match[1] or match[3]).strip("[]")
    try:
        return HostTarget(
            address=host,
            user=user or None,
            port=int(match[2]) if match[2] else None,
            accept_new_host_keys=target.accept_new_host_keys,
            ask_password=target.ask_password,
            ssh_config_file=target.ssh_config_file,
            connect_timeout_s=target.connect_timeout_s,
        )
    except UsageError as error:
        raise LinkError(f"the jump host {hop!r}: {error}", code="config", retry=False) from error


def ssh_arguments(target: HostTarget) -> list[str]:
    """The options of `ssh` that say what the target says."""
    arguments = []
    if target.config_file is not None:
        arguments += ["-F", target.config_file]
    if target.port is not None:
        arguments += ["-p", str(target.port)]
    if target.user is not None:
        arguments += ["-l", target.user]
    if target.identity_file is not None:
        arguments += ["-i", target.identity_file]
    for key, value in target.options.items():
        arguments += ["-o", f"{key}={value}"]
    return arguments


def _ask_ssh(target: HostTarget, ssh: str) -> dict[str, list[str]]:
    """`ssh -G` as lower-case keys and their values in order."""
    done = run_process([ssh, "-G", *ssh_arguments(target), "--", target.address], b"", SSH_G_TIMEOUT_S)
    if done.returncode != 0:
        said = last_words(done.stderr.decode("utf-8", "replace").strip().partition("\n")[0])
        raise LinkError(
            f"ssh cannot make sense of its configuration for {target.address}: {said}",
            f"try `ssh -G {target.address}`",
            code="config",
            retry=False,
        )
    values: dict[str, list[str]] = {}
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        key, _, value = line.partition(" ")
        values.setdefault(key.lower(), []).append(value.strip())
    return values


def _read_config(target: HostTarget) -> dict[str, list[str]]:
    """The fallback without ssh: paramiko's reader, which knows no Include and few Match words."""
    import paramiko

    path = Path(target.config_file or "~/.ssh/config").expanduser()
    config = paramiko.SSHConfig()
    try:
        if path.is_file():
            config = paramiko.SSHConfig.from_text(re.sub(r"[ \t]+#[^\n\"]*$", "", path.read_text(), flags=re.MULTILINE))
        found: Mapping[str, Any] = config.lookup(target.address)
    except (paramiko.SSHException, OSError, ValueError, KeyError) as error:
        raise LinkError(f"cannot read {path}: {error}", "install OpenSSH's ssh", code="config", retry=False) from error
    values = {key: list(value) if isinstance(value, list) else [str(value)] for key, value in found.items()}
    if target.user is not None:
        values["user"] = [target.user]
    if target.port is not None:
        values["port"] = [str(target.port)]
    values.update({key.lower(): [value] for key, value in target.options.items()})
    values.setdefault("identityfile", list(DEFAULT_KEYS))
    return values


def _settings(target: HostTarget, values: dict[str, list[str]]) -> Settings:
    """Typed settings from `ssh -G`'s words."""
    raw = {key: found[0] for key, found in values.items()}
    hostname = raw.get("hostname") or target.address
    user = raw.get("user") or getpass.getuser()
    try:
        check_host_word(hostname, "host")
        check_host_word(user, "user")
        port = int(raw.get("port", "22"))
    except (UsageError, ValueError) as error:
        raise LinkError(f"the settings for {target.address}: {error}", code="config", retry=False) from error
    expand = Tokens(target.address, hostname, user, port, _given(raw, "hostkeyalias"), raw.get("proxyjump", ""))
    # ssh -G leaves out a file named by -i that is not there
    identities = [*([target.identity_file] if target.identity_file else []), *values.get("identityfile", [])]
    agent = raw.get("identityagent", "SSH_AUTH_SOCK").strip()
    revoked = _given(raw, "revokedhostkeys")
    timeout = raw.get("connecttimeout", "none")
    jump = _given(raw, "proxyjump")
    return Settings(
        original=target.address,
        hostname=hostname,
        user=user,
        port=port,
        identity_files=tuple(dict.fromkeys(expand.path(text) for text in identities if text != "none")),
        certificate_files=tuple(expand.path(text) for text in values.get("certificatefile", []) if text != "none"),
        identities_only=raw.get("identitiesonly", "no") == "yes",
        identity_agent=None if agent == "SSH_AUTH_SOCK" else expand.agent(agent),
        proxy_command=_given(raw, "proxycommand"),
        proxy_jump=tuple(hop.strip() for hop in jump.split(",") if hop.strip()) if jump else (),
        host_key_alias=_given(raw, "hostkeyalias"),
        user_known_hosts=expand.paths(raw.get("userknownhostsfile", "~/.ssh/known_hosts ~/.ssh/known_hosts2")),
        global_known_hosts=expand.paths(
            raw.get("globalknownhostsfile", "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2")
        ),
        revoked_host_keys=expand.path(revoked) if revoked else None,
        hash_known_hosts=raw.get("hashknownhosts", "no") == "yes",
        accept_new=target.accept_new_host_keys
        or raw.get("stricthostkeychecking", "ask") in ("accept-new", "no", "off", "false"),
        host_key_algorithms=tuple(raw.get("hostkeyalgorithms", "").split(",")) if "hostkeyalgorithms" in raw else (),
        connect_timeout_s=float(timeout) if timeout.isdigit() and int(timeout) > 0 else None,
        raw=raw,
    )


def _given(raw: Mapping[str, str], key: str) -> str | None:
    """A setting's value, None where it is not given or says that there is none."""
    value = raw.get(key, "").strip()
    return None if not value or value.lower() == "none" else value


class Tokens:
    """Expansion of `%h` and its like (ssh_config(5), TOKENS), `~` and `${VAR}`."""

    def __init__(self, original: str, hostname: str, user: str, port: int, alias: str | None, jump: str) -> None:
        local = socket.gethostname()
        self._tokens = {
            "%": "%",
            "n": original,
            "h": hostname,
            "r": user,
            "p": str(port),
            "k": alias or original,
            "j": "" if jump == "none" else jump,
            "d": str(Path.home()),
            "u": getpass.getuser(),
            "i": str(os.getuid()) if hasattr(os, "getuid") else "0",
            "l": local,
            "L": local.split(".", 1)[0],
        }

    def text(self, text: str) -> str:
        return re.sub(r"%(.)", lambda match: self._tokens.get(match[1], match[0]), text)

    def path(self, text: str) -> Path:
        text = re.sub(r"\$\{(\w+)\}", lambda match: os.environ.get(match[1], match[0]), text.strip('"'))
        return Path(self.text(text)).expanduser()

    def paths(self, text: str) -> tuple[Path, ...]:
        """Several paths of one line; those with blanks stand in quotes."""
        found = re.findall(r'"([^"]*)"|(\S+)', text)
        return tuple(self.path(quoted or bare) for quoted, bare in found if (quoted or bare) != "none")

    def agent(self, text: str) -> str:
        if text.lower() == "none":
            return "none"
        if text.startswith("$") and not text.startswith("${"):
            return os.environ.get(text[1:], "none")
        return str(self.path(text))


def proxy_command_line(settings: Settings) -> str:
    """The ProxyCommand with its tokens put in. Names were checked for characters a shell would read."""
    expand = Tokens(settings.original, settings.hostname, settings.user, settings.port, settings.host_key_alias, "")
    return expand.text(settings.proxy_command or "")
