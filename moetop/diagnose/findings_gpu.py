"""Findings from several GPUs together: spinning ranks, links, stragglers. Figures and counters, no log."""

from __future__ import annotations

from collections.abc import Iterator

from moetop.diagnose import thresholds as th
from moetop.diagnose import words
from moetop.diagnose.crossgpu import (
    Straggler,
    equal_of,
    find_straggler,
    groups_of_equals,
    holds_memory,
    is_comms_bound,
    is_link_narrow,
    is_link_slow,
    is_really_working,
    is_seen_without_process,
    is_spinning,
    late_rank,
    link_share_pct,
    may_be_ranks,
    nvlink_share_pct,
    ranks_of_one_job,
    traffic_mib_s,
    working_alone,
)
from moetop.diagnose.view import STARTING, GpuView, HostView
from moetop.model import Confidence, Finding, FindingKind, Phase, ServerMetrics, ServerReport, Severity

# ── spinning: hang, ghost, idle spin ─────────────────────────────────────────────────────────────


def requests_of(view: HostView, gpu: GpuView) -> tuple[ServerReport | None, ServerMetrics | None]:
    """The server on a GPU and its request counters, where there are any."""
    server = view.server_of(gpu.index)
    metrics = server.metrics if server is not None else None
    return server, metrics if metrics is not None and metrics.running is not None else None


def _spin_seen(gpus: list[GpuView]) -> str:
    return (
        f"{words.SEEN}{words.gpus(g.index for g in gpus)}: "
        f"{words.span(g.figures.util_gpu_pct for g in gpus)} busy at "
        f"{words.span(g.figures.power_pct for g in gpus)} of the power limit, memory utilization "
        f"{words.span(g.figures.util_mem_pct for g in gpus)}"
    )


_SPIN_COMPARED = (
    f"{words.COMPARED}a kernel that only waits reads 100 % busy, 19 % power, 0 % memory utilization; "
    "work that starves still touches memory"
)


def find_spinning(view: HostView) -> Iterator[Finding]:
    """`idle_spin`, `ghost_busy` or `collective_hang` for GPUs that are busy waiting."""
    spinning = [g for g in view.gpus if is_spinning(g)]
    idle: list[GpuView] = []
    ghosts: list[GpuView] = []
    waiting: list[GpuView] = []
    for gpu in spinning:
        server, metrics = requests_of(view, gpu)
        starting = server is not None and server.phase in STARTING
        if metrics is None and server is not None and _was_drained(view, server):
            idle.append(gpu)
        elif metrics is not None and not starting:
            if metrics.running == 0 and not metrics.waiting:
                idle.append(gpu)
            elif metrics.generation_tokens_s == 0:
                waiting.append(gpu)
        elif is_seen_without_process(gpu) and (server is None or gpu.index not in server.gpus):
            ghosts.append(gpu)
        elif not starting or _stands_still(view, gpu, server):
            waiting.append(gpu)
    if idle:
        yield _idle_spin(idle)
    if ghosts:
        yield _ghost_busy(ghosts)
    yield from _hang(view, waiting)


def _was_drained(view: HostView, server: ServerReport) -> bool:
    """Whether the last numbers in a ready server's log are zero: a new request would have written more."""
    last = view.digest(server).metrics
    return server.phase is Phase.READY and last is not None and last.running == 0 and not last.waiting


def _stands_still(view: HostView, gpu: GpuView, server: ServerReport | None) -> bool:
    """Whether a server that starts has waited so long, without a word, that a barrier does not explain
    it. Pasted text has no clock: there the figures stand for themselves."""
    if not view.live or server is None:
        return True
    still_s = view.still_s(server)
    silent = still_s is None or still_s >= th.HANG_START_S
    return silent and (gpu.waiting_s or 0.0) >= th.HANG_START_S


def _idle_spin(gpus: list[GpuView]) -> Finding:
    return Finding(
        kind=FindingKind.IDLE_SPIN,
        severity=Severity.WARNING,
        confidence=Confidence.REPORTED,
        summary=(
            f"{words.gpus(g.index for g in gpus)} {words.verb(len(gpus), 'looks', 'look')} busy while no request runs: "
            "ranks wait for each other"
        ),
        gpus=tuple(g.index for g in gpus),
        evidence=(
            _spin_seen(gpus),
            words.SERVER + "0 requests running, none waiting",
            _SPIN_COMPARED,
            words.RULED_OUT + "load (the server's own counters are zero)",
        ),
        remedy=(
            "nothing is slow: the server is not at its limit; utilization is no measure of its load",
            "to save the power, look for the engine's option to sleep or back off when idle",
        ),
    )


def _ghost_busy(gpus: list[GpuView]) -> Finding:
    listed = all(g.report.processes is not None for g in gpus)
    why = (
        "the driver lists no process"
        if listed
        else f"next to no memory is used ({words.span((g.figures.memory_used_mib for g in gpus), 'MiB')})"
    )
    held = [g for g in gpus if (g.figures.memory_used_mib or 0) >= th.GHOST_MEMORY_MIB]
    unknown = (
        "whether a process in another PID namespace or container holds the memory"
        if held
        else "what left the counter so; public reports name a kernel killed with its container"
    )
    return Finding(
        kind=FindingKind.GHOST_BUSY,
        severity=Severity.WARNING,
        confidence=Confidence.INFERRED,
        summary=(
            f"{words.gpus(g.index for g in gpus)} {words.verb(len(gpus), 'reads', 'read')} 100 % busy "
            "and no process is seen there"
        ),
        gpus=tuple(g.index for g in gpus),
        evidence=(_spin_seen(gpus), words.SEEN + why, _SPIN_COMPARED, words.NOT_KNOWN + unknown),
        remedy=(
            "the card itself may be fine: a stuck counter clears when the driver starts anew or the GPU is reset",
            "first make sure that nobody works there: containers are not seen from here",
            *(f"{words.COMMAND}nvidia-smi -r -i {g.index}" for g in gpus[:1]),
        ),
    )


def _hang(view: HostView, waiting: list[GpuView]) -> Iterator[Finding]:
    if not waiting or len(view.gpus) < 2:
        return
    indices = {g.index for g in waiting}
    peers = [g for g in view.gpus if g.index not in indices]
    if len(waiting) == 1 and not any(_may_be_missing(view, waiting[0], g) for g in peers):
        return
    if any(is_really_working(g) for g in peers if view.server_of(g.index) is view.server_of(waiting[0].index)):
        return
    server = view.server_of(waiting[0].index)
    ready = server is not None and server.phase is Phase.READY
    phase = f" while {server.phase}" if server is not None and server.phase in STARTING else ""
    evidence = [_spin_seen(waiting)]
    if peers:
        evidence.append(
            f"{words.SEEN}{words.gpus(g.index for g in peers)}: {words.span(g.figures.util_gpu_pct for g in peers)} "
            f"busy, {words.span((g.figures.memory_used_mib for g in peers), 'MiB')} held"
        )
    evidence.append(_SPIN_COMPARED)
    _server, metrics = requests_of(view, waiting[0])
    if metrics is not None:
        evidence.append(f"{words.SERVER}{words.number(metrics.running or 0)} requests running, 0 tokens/s generated")
    elif not phase:
        evidence.append(words.NOT_KNOWN + "whether requests run: with none, this is idle spinning and no fault")
    yield Finding(
        kind=FindingKind.COLLECTIVE_HANG,
        severity=Severity.WARNING if ready and metrics is None else Severity.CRITICAL,
        confidence=Confidence.INFERRED,
        summary=(
            f"{words.gpus(indices)} {words.verb(len(indices), 'waits', 'wait')} at near-idle power{phase}"
            + (", the other ranks do nothing" if peers else ", nothing moves")
            + (": idle, or a hang between ranks" if ready and metrics is None else ": looks like a hang between ranks")
        ),
        gpus=tuple(sorted(indices)),
        server=server.name if server is not None else None,
        evidence=tuple(evidence),
        remedy=(
            "see where each rank stands before restarting (one that waits is not the one that hangs)",
            words.COMMAND + "py-spy dump --pid PID_OF_EACH_RANK",
            *(_TUNING_HANG if phase.endswith("tuning") else ()),
        ),
    )


def _may_be_missing(view: HostView, waiting: GpuView, peer: GpuView) -> bool:
    """Whether a GPU that waits may wait for this one: it holds a model, and nothing shows that it is another
    job's."""
    if not holds_memory(peer) or view.server_of(waiting.index) is not view.server_of(peer.index):
        return False
    return view.server_of(waiting.index) is not None or may_be_ranks(waiting, peer)


_TUNING_HANG = ("if it comes again during tuning, start once with the engine's autotuning switched off",)


# ── links and stragglers ─────────────────────────────────────────────────────────────────────────


def find_comms(view: HostView) -> Iterator[Finding]:
    """`comms_bound`: a full PCIe link beside idle SMs or memory; a narrow link alone is a hint."""
    full = [g for g in view.gpus if is_comms_bound(g)]
    narrow = [g for g in view.gpus if is_link_narrow(g) or is_link_slow(g)]
    evidence = [_link_seen(g) for g in (full or narrow)[:4]]
    if narrow:
        evidence.append(f"{words.SEEN}{words.listed(_link_width(g) for g in narrow)} under load")
    if full:
        paired = {g.index for ranks in ranks_of_one_job(full) for g in ranks}
        yield Finding(
            kind=FindingKind.COMMS_BOUND,
            severity=Severity.WARNING,
            confidence=Confidence.MEASURED if all(g.figures.n_gpm for g in full) else Confidence.REPORTED,
            summary=(
                f"{words.gpus(g.index for g in full)}: {_full_link(full)} loaded both ways while the chip idles"
                + (" (it runs narrower or slower than it could)" if narrow else "")
            ),
            gpus=tuple(g.index for g in full),
            evidence=(
                *evidence,
                f"{words.COMPARED}{words.number(th.COMMS_LINK_PCT)} % of what a PCIe link carries, "
                f"{words.number(th.COMMS_NVLINK_PCT)} % of NVLink, in both directions at once",
                words.RULED_OUT + "uploads (they load one direction)",
                words.COMPARED + "traffic is the same on these GPUs: ranks of one job talk to each other"
                if all(g.index in paired for g in full)
                else words.NOT_KNOWN + "with whom: moving a KV cache to host memory and back looks the same",
            ),
            remedy=(
                *(
                    ("check slot, riser and bifurcation: the link does not use its full width or speed",)
                    if narrow
                    else ()
                ),
                "fewer ranks, pipeline instead of tensor parallelism, or peer-to-peer if it is switched off",
                words.COMMAND + "nvidia-smi topo -m",
                words.COMMAND
                + "nvidia-smi --query-gpu=index,pcie.link.gen.current,pcie.link.width.current --format=csv",
            ),
        )
    elif narrow:
        yield Finding(
            kind=FindingKind.COMMS_BOUND,
            severity=Severity.INFO,
            confidence=Confidence.REPORTED,
            summary=f"{words.gpus(g.index for g in narrow)}: the PCIe link runs narrower or slower than it could",
            gpus=tuple(g.index for g in narrow),
            evidence=(*evidence, words.NOT_KNOWN + "whether it costs anything: the link is not near its limit"),
            remedy=("check slot, riser and bifurcation when the model spans GPUs without NVLink",),
        )


def _full_link(full: list[GpuView]) -> str:
    if all((link_share_pct(g) or 0.0) < th.COMMS_LINK_PCT for g in full):
        return "NVLink is"
    return "the PCIe link is"


def _link_width(gpu: GpuView) -> str:
    r = gpu.report
    return f"GPU {gpu.index} gen{r.pcie_gen} x{r.pcie_width} of gen{r.pcie_gen_max} x{r.pcie_width_max}"


def _link_seen(gpu: GpuView) -> str:
    f, load = gpu.figures, link_share_pct(gpu)
    nvlink = nvlink_share_pct(gpu)
    if nvlink is not None and nvlink >= th.COMMS_NVLINK_PCT:
        return (
            f"{words.SEEN}GPU {gpu.index}: NVLink at {words.number(nvlink)} % of what it carries each way, "
            f"{words.pct(f.util_gpu_pct)} busy, SMs {words.pct(f.sm_pct)} active"
        )
    if f.pcie_rx_mib_s is None or f.pcie_tx_mib_s is None:
        return f"{words.SEEN}GPU {gpu.index}: link traffic not known"
    share = f" ({words.number(load)} % of what it carries)" if load is not None else ""
    return (
        f"{words.SEEN}GPU {gpu.index}: {words.number(f.pcie_rx_mib_s)} MiB/s in, "
        f"{words.number(f.pcie_tx_mib_s)} MiB/s out{share}, {words.pct(f.util_gpu_pct)} busy, "
        f"memory utilization {words.pct(f.util_mem_pct)}"
    )


def find_stragglers(view: HostView) -> Iterator[Finding]:
    """`straggler`: one of equals that draws less, or that works while the others wait."""
    for group in groups_of_equals(view):
        alone = working_alone(group)
        if alone is not None:
            yield _working_alone(alone, group)
            continue
        jobs = [] if _is_starting(view, group) else ranks_of_one_job(group)
        late = [(gpu, ranks) for ranks in jobs if (gpu := late_rank(ranks)) is not None]
        if late:
            yield from (_late(gpu, ranks) for gpu, ranks in late)
            continue
        if any(is_spinning(g) for g in group):
            continue
        slow = find_straggler([equal_of(g) for g in group])
        if slow is not None:
            yield straggler_finding(slow, f"GPU {slow.key}", len(group), (slow.key,))


def _is_starting(view: HostView, group: tuple[GpuView, ...]) -> bool:
    """Whether a server on these GPUs loads or tunes: its ranks are not meant to keep step yet."""
    servers = [view.server_of(g.index) for g in group]
    return any(s is not None and s.phase in STARTING for s in servers)


def _working_alone(alone: GpuView, group: tuple[GpuView, ...]) -> Finding:
    rest = [g for g in group if g is not alone]
    return Finding(
        kind=FindingKind.STRAGGLER,
        severity=Severity.WARNING,
        confidence=Confidence.INFERRED,
        summary=f"GPU {alone.index} works while {words.gpus(g.index for g in rest)} wait",
        gpus=(alone.index,),
        evidence=(
            _spin_seen(rest),
            f"{words.SEEN}GPU {alone.index}: {words.pct(alone.figures.power_pct)} of its power limit",
        ),
        remedy=("compare the ranks' work: expert placement, batch split, or one rank still compiling or tuning",),
    )


def _late(late: GpuView, group: tuple[GpuView, ...]) -> Finding:
    f, rest = late.figures, [g for g in group if g is not late]
    at_host = f.util_gpu_pct is not None and f.util_gpu_pct < th.RANK_HOST_UTIL_PCT
    what = "waits for its own host" if at_host else "works more than its peers"
    remedy = (
        "look at that rank's process: CPU core, Python work between steps, logging, a debugger, other load on the host"
        if at_host
        else "compare the ranks' work: expert placement, batch split, kernel configuration, another process on that GPU"
    )
    return Finding(
        kind=FindingKind.STRAGGLER,
        severity=Severity.WARNING,
        confidence=Confidence.MEASURED,
        summary=(
            f"GPU {late.index} {what} while {words.gpus(g.index for g in rest)} "
            f"{words.verb(len(rest), 'waits', 'wait')}: a late rank holds up the job"
        ),
        gpus=(late.index,),
        evidence=(
            f"{words.SEEN}GPU {late.index}: {words.pct(f.util_gpu_pct)} busy, SMs {words.pct(f.sm_pct)} active, "
            f"tensor pipe {words.pct(f.tensor_pct)}",
            f"{words.SEEN}{words.gpus(g.index for g in rest)}: "
            f"{words.span(g.figures.util_gpu_pct for g in rest)} busy, "
            f"SMs {words.span(g.figures.sm_pct for g in rest)} active",
            f"{words.COMPARED}ranks of one job: link traffic is alike on all of them "
            f"({words.span((load[1] for g in group if (load := traffic_mib_s(g))), 'MiB/s')} out); "
            f"a rank with SMs under {words.number(th.SM_UNDERUSED_PCT)} % active at full utilization waits",
            words.NOT_KNOWN + "why that rank is late, and whether all it does is the job's own work",
        ),
        remedy=(remedy, words.COMMAND + "py-spy dump --pid PID_OF_THAT_RANK"),
    )


def straggler_finding(slow: Straggler, name: str, of: int, gpus: tuple[int, ...]) -> Finding:
    """Careful words: one that differs is suspected, not convicted."""
    clock = (
        f", clock {words.number(slow.clock_mhz)} MHz against {words.number(slow.peers_mhz)}"
        if slow.clock_mhz is not None and slow.peers_mhz is not None
        else ""
    )
    return Finding(
        kind=FindingKind.STRAGGLER,
        severity=Severity.WARNING,
        confidence=Confidence.INFERRED,
        summary=f"{name} may hold its peers back: {words.number(slow.less_pct)} % less power at the same load",
        gpus=gpus,
        evidence=(
            f"{words.SEEN}{words.number(slow.power_w)} W against {words.number(slow.peers_w)} W, the median of "
            f"{of - 1} equals{clock}",
            words.COMPARED + "equals lie within a few percent of each other",
            words.NOT_KNOWN + "its own share of the work; a slow state may show in no clock and no reason",
        ),
        remedy=("run the same single-GPU test on it and on a peer; swap its place, then its power feed",),
    )
