"""What a configuration file may say, as types: one class a table, one field a key. Holds no reading or merging."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

TransportKind = Literal["auto", "ssh", "openssh", "local"]


@dataclass(frozen=True)
class Between:
    """Bounds of a number, both included; `or_zero` allows 0 below them."""

    low: float
    high: float
    or_zero: bool = False


@dataclass(frozen=True)
class Form:
    """A text must match the whole pattern; `what` completes "expected ..."."""

    pattern: re.Pattern[str]
    what: str


_PRINTABLE = r"[^\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]"

Text = Annotated[str, Form(re.compile(f"{_PRINTABLE}{{1,4096}}"), "text on one line without control characters")]
Word = Annotated[str, Form(re.compile(r"[\w.@%+][\w.@%+:-]{0,127}"), "a word of letters, digits and . _ : @ % + -")]
RemotePath = Annotated[
    str, Form(re.compile(rf"(?:/|~/){_PRINTABLE}{{0,4094}}"), "a path on the host that begins with / or ~/")
]
UnitName = Annotated[str, Form(re.compile(r"[A-Za-z0-9_@.][A-Za-z0-9:_.@\\-]{0,254}"), "a systemd unit's name")]
ContainerName = Annotated[str, Form(re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,254}"), "a container's name or id")]
EnvName = Annotated[str, Form(re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}"), "a variable's name")]
Argument = Annotated[str, Form(re.compile(r"[^\x00]{0,65536}"), "text without NUL")]
HealthUrl = Annotated[
    str,
    Form(
        re.compile(rf"(?:https?://[^\s@/]+(?:/(?:(?!\s){_PRINTABLE})*)?|/(?:(?!\s){_PRINTABLE})*)"),
        "a path (/health) or an http URL without a password",
    ),
]
Interpreter = Annotated[
    str, Form(re.compile(r"(?:/[\w./+-]{1,254}|python[\w.]{0,20})"), "python3 or the whole path of an interpreter")
]
HostPattern = Annotated[
    str, Form(re.compile(r"[\w.*?!@%+:,\- ]{1,255}"), "a pattern of Host aliases, such as gpu* or gpu*,!gpu-old")
]
Port = Annotated[int, Between(1, 65535)]
Interval = Annotated[float, Between(0.1, 3600)]
"""Seconds between samples; under 0.1 s GPM sample pairs are void (measured on an H200)."""
Timeout = Annotated[float, Between(1, 86400)]
ConnectTimeout = Annotated[float, Between(1, 300)]
Window = Annotated[float, Between(0.1, 3600, or_zero=True)]
"""Seconds a state is judged over; 0 is one sample."""


@dataclass(frozen=True, kw_only=True)
class LogSpec:
    """One log to follow; exactly one of `path`, `unit`, `container`, `command` is given. A bare text is a path."""

    shorthand: ClassVar[str] = "path"

    source: Word | None = None
    path: RemotePath | None = None
    unit: UnitName | None = None
    container: ContainerName | None = None
    command: tuple[Argument, ...] | None = None

    def __post_init__(self) -> None:
        given = [key for key in ("path", "unit", "container", "command") if getattr(self, key) is not None]
        if len(given) != 1:
            found = "none" if not given else " and ".join(given)
            raise ValueError(f"a log has exactly one of path, unit, container, command; found {found}")
        if self.command is not None and not (self.command and self.command[0]):
            raise ValueError("command is a list: the program, then its arguments")
        if self.source is None and self.command is not None:
            raise ValueError("a log read with a command needs a source: the name it has on screen")

    def name(self) -> str:
        """The log's name on screen and in frames."""
        if self.source is not None:
            return self.source
        if self.path is not None:
            return self.path.rstrip("/").rsplit("/", 1)[-1] or self.path
        return self.unit or self.container or "log"

    def probe_option(self) -> dict[str, object]:
        """The log as the probe's `logs` option takes it."""
        kinds = (("path", "file"), ("unit", "journal"), ("container", "container"))
        for key, kind in kinds:
            target = getattr(self, key)
            if target is not None:
                return {"source": self.name(), "kind": kind, "target": target}
        return {"source": self.name(), "kind": "command", "argv": list(self.command or ())}


@dataclass(frozen=True, kw_only=True)
class ServerMatch:
    """Which server an override is for: all that is given must fit. A bare text must stand in its command line."""

    shorthand: ClassVar[str] = "argv"

    argv: Text | None = None
    engine: Literal["sglang", "vllm", "tensorrt_llm"] | None = None
    port: Port | None = None
    unit: UnitName | None = None
    container: ContainerName | None = None

    def __post_init__(self) -> None:
        if all(value is None for value in (self.argv, self.engine, self.port, self.unit, self.container)):
            raise ValueError("match needs at least one of argv, engine, port, unit, container")


@dataclass(frozen=True, kw_only=True)
class Command:
    """A program with its arguments, never a shell line. A bare list is `argv`."""

    shorthand: ClassVar[str] = "argv"

    argv: tuple[Argument, ...]
    cwd: RemotePath | None = None
    output: RemotePath | None = None

    def __post_init__(self) -> None:
        if not (self.argv and self.argv[0]):
            raise ValueError("a command is a list: the program, then its arguments")


@dataclass(frozen=True, kw_only=True)
class Timeouts:
    """Seconds each step of a retune may take; what is not given keeps the recipe's value.

    `baseline_s` is the window measured before and after, `settle_s` how long the load may take to come back, `ask_s`
    how long a question waits for its answer.
    """

    baseline_s: Timeout | None = None
    drain_s: Timeout | None = None
    ask_s: Timeout | None = None
    stop_s: Timeout | None = None
    tune_s: Timeout | None = None
    start_s: Timeout | None = None
    health_s: Timeout | None = None
    settle_s: Timeout | None = None


@dataclass(frozen=True, kw_only=True)
class ServerSpec:
    """What moetop cannot find out, or should do otherwise, about one server of a host."""

    match: ServerMatch
    name: Word | None = None
    log: LogSpec | None = None
    stop: Command | None = None
    start: Command | None = None
    tune: Command | None = None
    health: HealthUrl | None = None
    env: dict[EnvName, Argument] | None = field(default=None, repr=False)
    timeouts: Timeouts | None = None


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What defaults, a group and a host may each set; the nearest wins, labels add up."""

    user: Text | None = None
    port: Port | None = None
    transport: TransportKind | None = None
    identity_file: Text | None = None
    logs: tuple[LogSpec, ...] | None = None
    servers: tuple[ServerSpec, ...] | None = None
    connect_timeout_s: ConnectTimeout | None = None
    ask_password: bool | None = None
    python: Interpreter | None = None
    interval_s: Interval | None = None
    labels: dict[Word, Text] | None = None
    sudo: bool | None = None
    discover: bool | None = None


@dataclass(frozen=True, kw_only=True)
class HostEntry(Settings):
    """A host under `hosts:`. Without `address` its name is what ssh is asked for."""

    shorthand: ClassVar[str] = "name"

    name: Text
    address: Text | None = None


@dataclass(frozen=True, kw_only=True)
class GroupEntry(Settings):
    """Hosts that share settings: named here (ranges such as `gpu[01-32]`), in a file, or in ssh_config."""

    name: Word
    hosts: tuple[Text, ...] = ()
    hosts_file: Text | None = None
    ssh_config: HostPattern | None = None

    def __post_init__(self) -> None:
        if not self.hosts and self.hosts_file is None and self.ssh_config is None:
            raise ValueError("a group needs hosts, hosts_file or ssh_config")


@dataclass(frozen=True, kw_only=True)
class Document:
    """The whole file."""

    hosts: tuple[HostEntry, ...] = ()
    groups: tuple[GroupEntry, ...] = ()
    defaults: Settings = field(default_factory=Settings)
    window_s: Window | None = None
    interval_s: Interval = 1.0
    theme: Word | None = None
    readonly: bool = False
    accept_new_host_keys: bool = False
    record: Text | None = None
    debug: Text | None = None
