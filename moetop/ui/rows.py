"""Rows of the fleet table: filter language, order, folding. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from moetop.errors import UsageError
from moetop.model import FINDING_RANK, Confidence, GpuReport, GpuState
from moetop.ui import fmt
from moetop.ui.scene import HostView, Scene, gpu_sign, host_sign
from moetop.ui.words import STATE_ORDER


@dataclass(frozen=True)
class TableRow:
    """A host row (`gpu` None) or a GPU row. `hidden` counts GPUs that the filter took from a host row."""

    host: HostView
    gpu: GpuReport | None = None
    folded: bool = False
    hidden: int = 0

    @property
    def key(self) -> tuple[str, int | None]:
        """Identity of the row over time."""
        return self.host.name, None if self.gpu is None else self.gpu.index


FILTER_KEYS: dict[str, str] = {
    "host": "the host's name",
    "state": "state of the GPU as written in the table or in full (starved, tensor_starved)",
    "gpu": "name of the GPU, or its index",
    "finding": "kind of a finding of the host",
    "model": "model of a server on the host",
    "engine": "engine of a server on the host",
    "server": "name of a server on the host",
    "confidence": "measured or inferred",
    "label": "label that the configuration gives the host: label:prod, label:rack=b7",
}
"""Words before the colon in a filter; a bare word looks in all of them."""


@dataclass(frozen=True)
class Filter:
    """Terms that must all hold; each is a key (None: any), a pattern, and whether it is negated."""

    terms: tuple[tuple[str | None, str, bool], ...] = ()

    def matches(self, host: HostView, gpu: GpuReport | None) -> bool:
        """Whether a GPU (or a host without GPUs) passes."""
        return all(self._term(key, pattern, host, gpu) != negated for key, pattern, negated in self.terms)

    def _term(self, key: str | None, pattern: str, host: HostView, gpu: GpuReport | None) -> bool:
        keys = FILTER_KEYS if key is None else (key,)
        return any(_like(value, pattern) for name in keys for value in _values(name, host, gpu))


def parse_filter(text: str) -> Filter:
    """Read `state:starved host:a* !model:*glm*`. Raises UsageError with the unknown key."""
    terms: list[tuple[str | None, str, bool]] = []
    for raw in text.split():
        negated = raw.startswith(("!", "-")) and len(raw) > 1
        word = raw[1:] if negated else raw
        key, colon, pattern = word.partition(":")
        if colon and key.lower() in FILTER_KEYS:
            if pattern:
                terms.append((key.lower(), pattern.lower(), negated))
        elif colon and key.isalpha():
            raise UsageError(f"unknown filter key {key!r}", f"known: {', '.join(FILTER_KEYS)}")
        else:
            terms.append((None, word.lower(), negated))
    return Filter(tuple(terms))


def _like(value: str, pattern: str) -> bool:
    value = value.lower()
    if any(mark in pattern for mark in "*?["):
        return fnmatchcase(value, pattern)
    return pattern in value


def _values(key: str, host: HostView, gpu: GpuReport | None) -> Iterable[str]:
    servers = host.report.servers
    if key == "host":
        return (host.name,)
    if key == "state":
        if gpu is None:
            return (host_sign(host).word,)
        return (gpu_sign(gpu).word, gpu.state.value) if gpu.error is None else (gpu_sign(gpu).word, gpu.error)
    if key == "gpu":
        return () if gpu is None else (gpu.name or "", str(gpu.index))
    if key == "label":
        return [text for name, value in host.report.labels.items() for text in (value, f"{name}={value}")]
    if key == "finding":
        return [finding.kind.value for finding in host.report.findings]
    if key == "model":
        return [str(value) for server in servers for name in MODEL_ARGS if (value := server.args.get(name))]
    if key == "engine":
        return [server.engine.value for server in servers if server.engine is not None]
    if key == "server":
        return [server.name for server in servers]
    return () if gpu is None else (gpu.confidence.value,)


MODEL_ARGS = ("model_path", "model", "served_model_name", "model_tag")
"""Names under which engines print their model."""


SORTS: dict[str, str] = {
    "given": "order of the configuration",
    "worst": "worst finding and state first",
    "name": "host name",
    "util": "utilization, busiest first",
    "power": "power in percent of the limit, highest first",
    "temp": "temperature, hottest first",
    "memory": "memory used, most first",
}
"""Orders of the table; the key steps through them. Hosts keep their GPUs together."""


def _host_rank(host: HostView) -> tuple[int, int, int]:
    if host.lost:
        return (0, 0, 0)
    grave = host.grave
    rank = min((FINDING_RANK.get(finding.kind, 99) for finding in grave), default=99)
    states = [STATE_ORDER.index(gpu.state) for gpu in host.report.gpus]
    return (1, rank, min(states, default=99))


def _figure(gpu: GpuReport, sort: str) -> float:
    value = {
        "util": gpu.util_gpu_pct,
        "power": fmt.power_pct(gpu),
        "temp": gpu.temp_c,
        "memory": gpu.memory_used_mib,
    }[sort]
    return -1.0 if value is None else value


def _gpu_rank(gpu: GpuReport) -> tuple[int, int]:
    if gpu.error is not None:
        return (0, gpu.index)
    doubted = gpu.confidence is Confidence.INFERRED and gpu.state is not GpuState.UNKNOWN
    return (1 + 2 * STATE_ORDER.index(gpu.state) + doubted, gpu.index)


def _sorted_hosts(hosts: Iterable[HostView], sort: str) -> list[HostView]:
    found = list(hosts)
    if sort == "worst":
        return sorted(found, key=_host_rank)
    if sort == "name":
        return sorted(found, key=lambda host: host.name)
    if sort in ("util", "power", "temp", "memory"):
        return sorted(found, key=lambda host: -max((_figure(gpu, sort) for gpu in host.report.gpus), default=-2.0))
    return found


def _sorted_gpus(gpus: Iterable[GpuReport], sort: str) -> list[GpuReport]:
    if sort == "worst":
        return sorted(gpus, key=_gpu_rank)
    if sort in ("util", "power", "temp", "memory"):
        return sorted(gpus, key=lambda gpu: (-_figure(gpu, sort), gpu.index))
    return list(gpus)


def build_rows(
    scene: Scene, folded: Collection[str] = (), chosen: Filter | None = None, sort: str = "given"
) -> list[TableRow]:
    """The table's rows in order. A filter unfolds nothing; a host none of whose GPUs pass is left out."""
    rows: list[TableRow] = []
    for host in _sorted_hosts(scene.hosts, sort):
        gpus = host.report.gpus if not host.lost else ()
        passing = [gpu for gpu in gpus if chosen is None or chosen.matches(host, gpu)]
        if chosen is not None and not passing and not (not gpus and chosen.matches(host, None)):
            continue
        is_folded = host.name in folded
        rows.append(TableRow(host, None, is_folded, len(gpus) - len(passing)))
        if not is_folded:
            rows.extend(TableRow(host, gpu) for gpu in _sorted_gpus(passing, sort))
    return rows
