"""One word for a host and for a fleet: the gravest finding, else what goes on. Words only, no finding is made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from moetop.diagnose.view import ENDED, WORKING
from moetop.model import (
    FINDING_RANK,
    Calm,
    Finding,
    GpuReport,
    GpuState,
    HostReport,
    Phase,
    ServerReport,
    Severity,
)

GRAVE = frozenset((Severity.CRITICAL, Severity.WARNING))
_WEIGHT = {Severity.CRITICAL: 0, Severity.WARNING: 1, Severity.INFO: 2}


def _rank(finding: Finding) -> int:
    return FINDING_RANK[finding.kind]


def sort_findings(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Gravest first: what stands (warning or worse) by rank, then hints by rank."""
    return tuple(
        sorted(findings, key=lambda f: (f.severity not in GRAVE, FINDING_RANK[f.kind], _WEIGHT[f.severity], f.gpus))
    )


def gravest(findings: Iterable[Finding]) -> Finding | None:
    """The gravest finding of severity warning or worse."""
    standing = [f for f in findings if f.severity in GRAVE]
    return min(standing, key=_rank) if standing else None


def host_headline(findings: Iterable[Finding], gpus: Sequence[GpuReport], servers: Sequence[ServerReport]) -> str:
    """`FindingKind` of the gravest finding, else the first `Calm` word that fits."""
    worst = gravest(findings)
    if worst is not None:
        return str(worst.kind)
    return str(_calm(gpus, servers))


def _calm(gpus: Sequence[GpuReport], servers: Sequence[ServerReport]) -> Calm:
    phases = {s.phase for s in servers if not s.gone}
    serving = any(is_serving(s) for s in servers)
    if Phase.TUNING in phases:
        return Calm.TUNING
    if phases & {Phase.LOADING, Phase.CAPTURING}:
        return Calm.LOADING
    if not serving and any(s.phase in (Phase.STOPPED, Phase.DRAINING) or s.gone for s in servers):
        return Calm.STOPPED
    if len({g.state for g in gpus}) > 1:
        return Calm.MIXED
    if serving or any(is_working(g) for g in gpus):
        return Calm.HEALTHY
    if gpus and all(g.state is GpuState.IDLE for g in gpus):
        return Calm.IDLE
    return Calm.NO_FINDING


def is_serving(server: ServerReport) -> bool:
    """Whether a server is ready or has requests, and is still there."""
    if server.gone or server.phase in ENDED:
        return False
    return server.ready or server.phase is Phase.READY


def is_working(gpu: GpuReport) -> bool:
    """Whether a GPU does something, whatever that is."""
    return gpu.state in WORKING or (gpu.util_gpu_pct is not None and gpu.util_gpu_pct >= 5.0 and gpu.error is None)


def fleet_headline(reports: Sequence[HostReport]) -> str:
    """The gravest finding of any host; without one, the hosts' common word, else `mixed`."""
    worst = gravest(f for report in reports for f in report.findings)
    if worst is not None:
        return str(worst.kind)
    there = {report.headline for report in reports}
    if not there:
        return str(Calm.NO_FINDING)
    if len(there) == 1:
        return reports[0].headline
    for calm in (Calm.TUNING, Calm.LOADING):
        if calm.value in there:
            return str(calm)
    return str(Calm.MIXED)
