"""One frozen picture of the fleet for the screens, and the words drawn from it. No widgets, no clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import fmean

from moetop.model import (
    EPOCH_FLOOR_S,
    FINDING_RANK,
    RECORDING,
    Calm,
    Confidence,
    Finding,
    FindingKind,
    GpuReport,
    GpuState,
    HostReport,
    HostStatus,
    Link,
    LinkPhase,
    Severity,
    Status,
)
from moetop.ui import fmt
from moetop.ui.paint import clean
from moetop.ui.words import CALM_SIGNS, LINK_WORDS, LOST_SIGN, NEVER_DOUBTED, STATE_ORDER, STATE_SIGNS, Sign


@dataclass(frozen=True)
class HostView:
    """One host at one moment. `now` is the present time on its own clock, seconds. `window_full`: its GPUs were
    watched for a whole window."""

    name: str
    report: HostReport
    link: Link
    now: float | None = None
    last_t: float | None = None
    statuses: Mapping[str, Status] = field(default_factory=dict)
    window_full: bool = True

    @property
    def lost(self) -> bool:
        """Whether nothing comes from it now."""
        return self.link.phase is LinkPhase.LOST

    @property
    def unjudged(self) -> list[GpuReport]:
        """GPUs of which nobody can say yet what they do."""
        return [gpu for gpu in self.report.gpus if gpu.state is GpuState.UNKNOWN]

    @property
    def judged(self) -> bool:
        """Whether every GPU has a state, from a whole window."""
        return bool(self.report.gpus) and self.window_full and not self.unjudged

    @property
    def grave(self) -> list[Finding]:
        """Findings that need a person, gravest first."""
        found = [f for f in self.report.findings if f.severity is not Severity.INFO]
        return sorted(found, key=lambda f: (FINDING_RANK.get(f.kind, 99), f.severity is Severity.WARNING))


@dataclass(frozen=True)
class Scene:
    """The fleet at one moment. `t` is this machine's clock, epoch seconds. While `reading`, what came before is
    still being read: the numbers are not the present."""

    hosts: tuple[HostView, ...] = ()
    generation: int = -1
    t: float = 0.0
    reading: bool = False

    def host(self, name: str) -> HostView | None:
        """The host called `name`."""
        return next((host for host in self.hosts if host.name == name), None)

    def gpu_count(self) -> int:
        """All GPUs seen."""
        return sum(len(host.report.gpus) for host in self.hosts)

    def grave(self) -> list[tuple[HostView, Finding]]:
        """Every finding that needs a person, gravest first."""
        found = [(host, finding) for host in self.hosts for finding in host.grave]
        return sorted(found, key=lambda pair: (FINDING_RANK.get(pair[1].kind, 99), pair[0].name))

    def worst_per_host(self) -> list[tuple[HostView, Finding]]:
        """The gravest finding of each host that has one, gravest first."""
        first: dict[str, tuple[HostView, Finding]] = {}
        for host, finding in self.grave():
            first.setdefault(host.name, (host, finding))
        return list(first.values())


def gpu_sign(gpu: GpuReport) -> Sign:
    """Glyph, word and role of a GPU's state; a question mark says it is inferred."""
    if gpu.error is not None:
        word, meaning = GPU_ERRORS.get(gpu.error, ("unreadable", gpu.error.replace("_", " ")))
        return Sign("✕", word, "critical", meaning)
    sign = STATE_SIGNS[gpu.state]
    if gpu.confidence is Confidence.INFERRED and gpu.state not in NEVER_DOUBTED:
        return Sign(sign.glyph, f"{sign.word}?", sign.role, sign.meaning)
    return sign


_LOST = ("lost", "it cannot be read any more; usually only a reboot helps")
_STUCK = ("stuck", "it does not answer the driver's calls")
_NO_ACCESS = ("no access", "this user may not read it")

GPU_ERRORS: dict[str, tuple[str, str]] = {
    "gpu_lost": _LOST,
    "lost": _LOST,
    "reset_required": ("needs reset", "it requires a reset; its memory stays taken until then"),
    "stuck": _STUCK,
    "stuck_gpu": _STUCK,
    "not_permitted": _NO_ACCESS,
    "no_permission": _NO_ACCESS,
}
"""A word and its meaning for `GpuReport.error`."""


def host_sign(host: HostView) -> Sign:
    """State of a host: of its connection while that is news, else of its GPUs, worst first."""
    phase = host.link.phase
    if phase is LinkPhase.LOST:
        return LOST_SIGN
    gpus = host.report.gpus
    if not gpus:
        if phase is LinkPhase.CONNECTING:
            return LINK_WORDS[phase]
        if host.report.status is HostStatus.UNREACHABLE:
            return Sign("✕", "no data", "critical")
        return Sign("◌", "waiting", "notice") if phase is not LinkPhase.FINISHED else LINK_WORDS[phase]
    lost = sum(gpu.error is not None for gpu in gpus)
    if lost:
        return Sign("✕", f"lost {lost}/{len(gpus)}", "critical")
    worst = min((gpu.state for gpu in gpus), key=STATE_ORDER.index)
    alike = [gpu for gpu in gpus if gpu.state is worst]
    sign = gpu_sign(alike[0])
    if len(gpus) == 1:
        return sign
    return Sign(sign.glyph, f"{sign.word} {len(alike)}/{len(gpus)}", sign.role, sign.meaning)


def host_words(host: HostView, now: float) -> str | None:
    """The sentence a host row shows instead of numbers, None where numbers say it. `now` is epoch seconds."""
    link = host.link
    since = f" {fmt.span(now - link.since_t)}" if link.since_t is not None else ""
    if link.phase is LinkPhase.LOST:
        again = (
            f"; next try in {fmt.span(link.next_try_t - now)}" if link.next_try_t is not None else "; not tried again"
        )
        return f"lost{since}: {clean(link.reason or 'no frames', 200)}{again}"
    if link.phase is LinkPhase.CONNECTING and not host.report.gpus:
        tries = f", try {link.attempt + 1}" if link.attempt else ""
        return f"connecting{since}{tries}"
    if host.report.gpus:
        return None
    if host.report.error is not None:
        return clean(host.report.error, 200)
    for code in ("no_driver", "driver_mismatch", "no_nvml", "no_gpu", "smi_missing", "smi_failed", "smi_hang"):
        if code in host.statuses:
            return clean(host.statuses[code].message, 200)
    if link.phase is LinkPhase.FINISHED:
        return "finished without a GPU sample"
    return f"waiting for the first sample{since}"


def no_server_words(host: HostView) -> str:
    """Why no server of a host is shown: not reached, not looked yet, or none there."""
    if host.lost or host.report.status is HostStatus.UNREACHABLE:
        return "not looked for serving processes: the host is not reached"
    if "no_server" in host.statuses or "searched" in host.statuses:
        return "no serving process was found on this host"
    if host.link.phase is LinkPhase.CONNECTING:
        return "not looked for serving processes yet: connecting"
    if host.link.phase is LinkPhase.FINISHED:
        return "no serving process is in what was read of this host"
    return "no serving process is known on this host so far"


def text_time(scene: Scene) -> str:
    """The last time of day that pasted text prints, as printed since no zone is known; nothing where it has none."""
    samples = [host.last_t for host in scene.hosts if host.last_t is not None and host.last_t >= EPOCH_FLOOR_S]
    if samples:
        return fmt.printed_time(max(samples))
    reports = [host.report for host in scene.hosts if host.report.source != RECORDING]  # its log is older
    logs = [events for report in reports for events in (report.events, *(s.events for s in report.servers))]
    printed = [event.t_text for events in logs for event in events if event.t_text]
    return (fmt.printed_clock(printed[-1]) or "") if printed else ""


@dataclass(frozen=True)
class Totals:
    """A host's GPUs together: means of percentages, sums of the rest; None where no GPU says."""

    util_gpu_pct: float | None
    power_w: float | None
    power_limit_w: float | None
    power_pct: float | None
    tensor_pct: float | None
    dram_pct: float | None
    sm_clock_mhz: float | None
    sm_active_pct: float | None
    util_mem_pct: float | None
    temp_c: float | None
    memory_used_mib: float | None
    memory_total_mib: float | None


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _sum(values: Iterable[float | None]) -> float | None:
    """The sum, only where every part is known: a partial sum would read as the whole."""
    parts = list(values)
    known = [value for value in parts if value is not None]
    return sum(known) if known and len(known) == len(parts) else None


def totals(gpus: Iterable[GpuReport]) -> Totals:
    """What a host row shows of its GPUs. The temperature is the hottest."""
    alive = [gpu for gpu in gpus if gpu.error is None]
    temps = [gpu.temp_c for gpu in alive if gpu.temp_c is not None]
    return Totals(
        util_gpu_pct=_mean(gpu.util_gpu_pct for gpu in alive),
        power_w=_sum(gpu.power_w for gpu in alive),
        power_limit_w=_sum(gpu.power_limit_w for gpu in alive),
        power_pct=_mean(fmt.power_pct(gpu) for gpu in alive),
        tensor_pct=_mean(gpu.gpm.tensor_pct if gpu.gpm else None for gpu in alive),
        dram_pct=_mean(gpu.gpm.dram_pct if gpu.gpm else None for gpu in alive),
        sm_clock_mhz=_mean(gpu.sm_clock_mhz for gpu in alive),
        sm_active_pct=_mean(gpu.gpm.sm_active_pct if gpu.gpm else None for gpu in alive),
        util_mem_pct=_mean(gpu.util_mem_pct for gpu in alive),
        temp_c=max(temps) if temps else None,
        memory_used_mib=_sum(gpu.memory_used_mib for gpu in alive),
        memory_total_mib=_sum(gpu.memory_total_mib for gpu in alive),
    )


def calm_sign(headline: str) -> Sign:
    """Sign of a headline that is no finding."""
    try:
        return CALM_SIGNS[Calm(headline)]
    except ValueError:
        return Sign("·", headline, "quiet")


def is_calm(gpu: GpuReport) -> bool:
    """Whether a GPU's row needs nobody: it is drawn quietly."""
    return gpu.error is None and gpu.state in CALM_STATES


CALM_STATES = frozenset(
    {GpuState.IDLE, GpuState.MEMORY_BOUND, GpuState.BALANCED, GpuState.TENSOR_BUSY, GpuState.UNKNOWN}
)


def counts_words(scene: Scene) -> str:
    """`1 lost · 3 hosts · 17 GPUs`."""
    hosts = len(scene.hosts)
    lost = sum(host.lost for host in scene.hosts)
    gpus = scene.gpu_count()
    words = [f"{lost} lost"] if lost else []
    words += [f"{hosts} host{'' if hosts == 1 else 's'}", f"{gpus} GPU{'' if gpus == 1 else 's'}"]
    connecting = sum(host.link.phase is LinkPhase.CONNECTING for host in scene.hosts)
    if connecting:
        words.append(f"{connecting} connecting")
    return " · ".join(words)


def finding_key(host: str, finding: Finding) -> tuple[str, FindingKind, str | None]:
    """What makes two findings the same finding as time goes on."""
    return host, finding.kind, finding.server
