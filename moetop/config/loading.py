"""Configuration files and command-line values to one resolved Config. The only part that touches the file system."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moetop.config.hosts import MAX_HOSTS, HostSpec, expand_hosts, parse_host
from moetop.config.schema import Document, GroupEntry, HostEntry, LogSpec, Settings
from moetop.errors import UsageError
from moetop.places import config_path, has_config
from moetop.text import plain

if TYPE_CHECKING:
    from moetop.config.binding import Binder
    from moetop.config.sources import Named

MAX_BYTES = 1 << 20
"""Largest configuration read (judgement: 4,000 hosts written out in full take a quarter of it)."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Everything a mode needs to know. `window_s` None is the mode's own default (10 s, 2 s for a snapshot)."""

    hosts: tuple[HostSpec, ...] = ()
    defaults: Settings = field(default_factory=Settings)
    window_s: float | None = None
    interval_s: float = 1.0
    theme: str | None = None
    readonly: bool = False
    accept_new_host_keys: bool = False
    record: str | None = None
    debug: str | None = None
    path: str | None = None

    def interval_of(self, host: HostSpec) -> float:
        """Seconds between samples of `host`."""
        return self.interval_s if host.interval_s is None else host.interval_s

    def host(self, name: str) -> HostSpec:
        """The host of that name (a user before it wins), or a new one reached with the defaults. Raises UsageError."""
        wanted = plain(name.strip())
        known = {host.name: host for host in self.hosts}
        if wanted in known:
            return known[wanted]
        given = parse_host(name)
        if given.name in known:
            return replace(known[given.name], user=given.user or known[given.name].user)
        return _settle(given, self.defaults)


@dataclass(frozen=True, kw_only=True)
class Overrides:
    """Values of the command line; None (or empty) leaves the file's."""

    hosts: tuple[str, ...] = ()
    window_s: float | None = None
    interval_s: float | None = None
    theme: str | None = None
    readonly: bool = False
    accept_new_host_keys: bool = False
    log_path: str | None = None
    record: str | None = None
    debug: str | None = None


def load_config(path: str | None) -> Config:
    """The configuration in `path`; without one the user's own file where there is one. Raises UsageError."""
    if path is not None:
        return read_config(_read(Path(path).expanduser(), path), path)
    own = config_path()
    return read_config(_read(own, str(own)), str(own)) if has_config() else Config()


def _read(path: Path, shown: str) -> str:
    name = plain(shown, 300)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise UsageError(f"configuration {name} does not exist", "see config.example.yaml") from None
    except OSError as error:
        raise UsageError(f"configuration {name} cannot be read: {error.strerror}") from None
    if len(data) > MAX_BYTES:
        raise UsageError(f"configuration {name} is larger than {MAX_BYTES >> 20} MiB")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{name}:{line}: not YAML: the text is not UTF-8") from None


def read_config(text: str, file: str = "config.yaml") -> Config:
    """The configuration in `text`; `file` names it in errors. Raises UsageError with file, line and key."""
    from moetop.config.binding import Binder
    from moetop.config.document import parse_yaml

    shown = plain(file, 300)
    node = parse_yaml(text, shown)
    binder = Binder(shown)
    document = Document() if node is None else binder.bind(node, Document)
    return Config(
        hosts=_Resolver(binder, document).resolve(),
        defaults=document.defaults,
        window_s=document.window_s,
        interval_s=document.interval_s,
        theme=document.theme,
        readonly=document.readonly,
        accept_new_host_keys=document.accept_new_host_keys,
        record=document.record,
        debug=document.debug,
        path=file,
    )


@dataclass
class _Resolver:
    """Expands ranges and lays defaults, group and host over each other."""

    binder: Binder
    document: Document
    placed: dict[str, str] = field(default_factory=dict)

    def resolve(self) -> tuple[HostSpec, ...]:
        members: dict[str, tuple[HostSpec, Settings]] = {}
        for number, group in enumerate(self.document.groups):
            key = f"groups[{number}]"
            specs = [
                spec for index, text in enumerate(group.hosts) for spec in self._hosts(text, f"{key}.hosts[{index}]")
            ]
            specs += self._elsewhere(group, key)
            members.update({spec.name: (replace(spec, group=group.name), group) for spec in specs})
        self.placed.clear()
        hosts = {name: self._finish(spec, group) for name, (spec, group) in members.items()}
        for number, entry in enumerate(self.document.hosts):
            for spec in self._entry(entry, f"hosts[{number}]"):
                member, settings = members.get(spec.name, (None, Settings()))
                hosts[spec.name] = self._finish(_own(spec, member), _lay(entry, settings))
        self._check_addresses(hosts)
        return tuple(hosts.values())

    def _finish(self, spec: HostSpec, settings: Settings) -> HostSpec:
        return _settle(spec, _lay(settings, self.document.defaults))

    def _hosts(self, text: str, key: str) -> list[HostSpec]:
        """The hosts that `text` at `key` names, each once in the whole list."""
        try:
            specs = [parse_host(name) for name in expand_hosts(text)]
        except UsageError as error:
            raise self.binder.fail(self.binder.lines[key], key, str(error), error.advice) from None
        for spec in specs:
            self._place(spec, key)
        return specs

    def _elsewhere(self, group: GroupEntry, key: str) -> list[HostSpec]:
        """The hosts that a group takes from a list or from ssh_config; errors name that file and its line."""
        from moetop.config.sources import read_hosts_file, ssh_aliases

        specs = []
        if group.hosts_file is not None:
            try:
                listed = read_hosts_file(self._beside(group.hosts_file))
            except UsageError as error:
                at = f"{key}.hosts_file"
                raise self.binder.fail(self.binder.lines[at], at, str(error), error.advice) from None
            specs += [spec for named in listed for spec in self._named(named, expand_hosts)]
        if group.ssh_config is not None:
            try:
                aliases = ssh_aliases(group.ssh_config)
            except UsageError as error:
                at = f"{key}.ssh_config"
                raise self.binder.fail(self.binder.lines[at], at, str(error), error.advice) from None
            specs += [spec for named in aliases for spec in self._named(named, lambda text: [text])]
        return specs

    def _beside(self, name: str) -> Path:
        """A file named in the configuration: relative names lie beside it."""
        return Path(self.binder.file).expanduser().parent / Path(name).expanduser()

    def _named(self, named: Named, expand: Callable[[str], list[str]]) -> list[HostSpec]:
        try:
            specs = [parse_host(name) for name in expand(named.text)]
        except UsageError as error:
            raise UsageError(f"{named.where}: {error}", error.advice) from None
        for spec in specs:
            before = self.placed.get(spec.name)
            if before is not None:
                raise UsageError(f"{named.where}: the host {spec.name!r} stands twice (also in {self._where(before)})")
            self.placed[spec.name] = named.where
            if len(self.placed) > MAX_HOSTS:
                raise UsageError(f"{named.where}: more than {MAX_HOSTS} hosts")
        return specs

    def _where(self, place: str) -> str:
        """A key of this file as its line; a place in another file as it is."""
        line = self.binder.lines.get(place)
        return place if line is None else f"line {line}"

    def _entry(self, entry: HostEntry, key: str) -> list[HostSpec]:
        if entry.address is None:
            return self._hosts(entry.name, key)
        try:
            spec = replace(parse_host(entry.address), name=entry.name)
        except UsageError as error:
            raise self.binder.fail(
                self.binder.lines[f"{key}.address"], f"{key}.address", str(error), error.advice
            ) from None
        self._place(spec, key)
        return [spec]

    def _place(self, spec: HostSpec, key: str) -> None:
        line = self.binder.lines[key]
        before = self.placed.get(spec.name)
        if before is not None:
            other = self._where(before)
            raise self.binder.fail(line, key, f"the host {spec.name!r} stands twice (also in {other})")
        self.placed[spec.name] = key
        if len(self.placed) > MAX_HOSTS:
            raise self.binder.fail(line, key, f"more than {MAX_HOSTS} hosts")

    def _check_addresses(self, specs: dict[str, HostSpec]) -> None:
        """Two names for one place would watch it twice."""
        seen: dict[tuple[str, int | None, str | None], str] = {}
        for spec in specs.values():
            other = seen.setdefault((spec.address.lower(), spec.port, spec.user), spec.name)
            if other != spec.name:
                key = self.placed.get(spec.name) or self.placed.get(other) or "hosts"
                raise self.binder.fail(
                    self.binder.lines.get(key, 1),
                    key,
                    f"{spec.name!r} and {other!r} have the same address {spec.address}",
                )


def _own(spec: HostSpec, member: HostSpec | None) -> HostSpec:
    """A host's own entry; where it is a group's member too, that says what the entry leaves open."""
    if member is None:
        return spec
    return replace(spec, group=member.group, user=spec.user or member.user, port=spec.port or member.port)


def _lay(near: Settings, far: Settings) -> Settings:
    """What `near` says, with what it leaves open taken from `far`; labels add up."""
    values: dict[str, Any] = {}
    for item in fields(Settings):
        close, wide = getattr(near, item.name), getattr(far, item.name)
        if item.name == "labels" and close and wide:
            values["labels"] = {**wide, **close}
        else:
            values[item.name] = wide if close is None else close
    return Settings(**values)


def _settle(spec: HostSpec, settings: Settings) -> HostSpec:
    """The host with `settings`; a user or port written in its address wins over them."""
    values = {item.name: value for item in fields(Settings) if (value := getattr(settings, item.name)) is not None}
    for name in ("user", "port"):
        if getattr(spec, name) is not None:
            values.pop(name, None)
    return replace(spec, **values)


def merge(config: Config, given: Overrides) -> Config:
    """`config` with the command line's values over it. Hosts named there replace the file's list, each with the
    file's settings for that name, or the defaults. Raises UsageError."""
    hosts = config.hosts
    if given.hosts:
        named = [config.host(name) for text in given.hosts for name in expand_hosts(text)]
        names = [host.name for host in named]
        twice = next((name for number, name in enumerate(names) if name in names[:number]), None)
        if twice is not None:
            raise UsageError(f"the host {twice!r} is given twice")
        hosts = tuple(named)
    if given.log_path is not None:
        log = _log_path(given.log_path)
        hosts = tuple(replace(host, logs=(*host.logs, log)) for host in hosts)
    if given.interval_s is not None:
        hosts = tuple(replace(host, interval_s=None) for host in hosts)
    changes = {
        name: value
        for name in ("window_s", "interval_s", "theme", "record", "debug")
        if (value := getattr(given, name)) is not None
    }
    return replace(
        config,
        hosts=hosts,
        readonly=config.readonly or given.readonly,
        accept_new_host_keys=config.accept_new_host_keys or given.accept_new_host_keys,
        **changes,
    )


def _log_path(text: str) -> LogSpec:
    if not text.startswith(("/", "~/")) or plain(text) != text:
        raise UsageError(f"--log-path {plain(text, 80)!r} is not a path on the host", "begin it with / or ~/")
    return LogSpec(path=text)
