"""GPUs that look or are starved, worded for findings: seen, compared, ruled out, not known."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from moetop.diagnose import words
from moetop.diagnose.limits import is_busy
from moetop.diagnose.view import STARTING, GpuView, HostView
from moetop.model import Confidence, EventKind, GpuState, LogEvent, ServerReport


class Starved(msgspec.Struct, frozen=True, kw_only=True):
    """Starved GPUs of one kind of confidence with their sentences. `many` is whether ranks could be
    waiting for each other."""

    measured: bool
    indices: tuple[int, ...]
    summary: str
    evidence: tuple[str, ...]
    not_known: tuple[str, ...]
    many: bool


def starvation_of(
    view: HostView, server: ServerReport | None, *, measured: bool | None = None, without: Collection[int] = ()
) -> Starved | None:
    """The starved GPUs of a server (None: of the host) that are not in `without`. A server that is
    loading or tuning starves nobody: its GPUs are not serving yet."""
    group = view.gpus if server is None else view.gpus_of(server)
    if server is not None and (server.phase in STARTING or server.gone):
        return None
    starved = [g for g in group if g.report.state is GpuState.TENSOR_STARVED and g.index not in without]
    if server is None:
        starved = [g for g in starved if not (_is_starting(view, g) or _was_left(view, g))]
    wanted = Confidence.MEASURED
    if measured is False or (measured is None and not any(g.report.confidence is wanted for g in starved)):
        wanted = Confidence.INFERRED
    starved = [g for g in starved if g.report.confidence is wanted]
    if not starved:
        return None
    owner = server if server is not None else view.server_of(starved[0].index)
    return _worded(view, starved, len(group), owner, measured=wanted is Confidence.MEASURED)


def _is_starting(view: HostView, gpu: GpuView) -> bool:
    server = view.server_of(gpu.index)
    return server is not None and server.phase in STARTING


def _was_left(view: HostView, gpu: GpuView) -> bool:
    """Whether the window tells of a server that is gone: its GPU does nothing any more, or a retune job's tuner runs
    there."""
    left = [s for s in view.servers if s.gone and gpu.index in s.gpus]
    newest = gpu.newest
    quiet = newest is not None and newest.util_gpu_pct is not None and not is_busy(newest)
    return any(quiet or view.is_retuned(server) for server in left)


def _worded(view: HostView, starved: list[GpuView], of: int, server: ServerReport | None, *, measured: bool) -> Starved:
    figures = [g.figures for g in starved]
    indices = tuple(g.index for g in starved)
    share = f"{len(starved)} of {words.plural(of, 'GPU')}"
    allreduce = next(view.events(server, EventKind.CUSTOM_ALLREDUCE_DISABLED), None) if server is not None else None
    ruled = _ruled_out(starved, server)
    if measured:
        seen = (
            f"{share}: SMs {words.span(f.sm_pct for f in figures)} active, tensor pipe "
            f"{words.span(f.tensor_pct for f in figures)}, DRAM {words.span(f.dram_pct for f in figures)}, at "
            f"{words.span(f.power_pct for f in figures)} of the power limit"
        )
        compared = "a tuned MoE kernel on an H200 reads tensor 57 % with DRAM 69 %, or DRAM 92 % at small batch"
        summary = f"{share} measured starved: SMs busy, tensor pipe and memory far from busy"
        unknown: tuple[str, ...] = ()
    else:
        seen = (
            f"{share}: {words.span(f.util_gpu_pct for f in figures)} busy at "
            f"{words.span(f.power_pct for f in figures)} of the power limit "
            f"({words.span((f.power_limit_w for f in figures), 'W')})"
        )
        compared = (
            f"memory utilization {words.span(f.util_mem_pct for f in figures)} "
            "(memory-bound work reads 88-100, spinning 0)"
        )
        summary = f"{share} show the starvation signature"
        unknown = (
            words.NOT_KNOWN + "tensor activity (no GPM values): the signature is an inference, not a measurement",
        )
        if len(starved) > 1:
            unknown = (*unknown, words.NOT_KNOWN + _allreduce_words(allreduce))
    steady = [g.steady_s for g in starved if g.steady_s is not None]
    if steady and min(steady) >= 1:
        seen += f", for {duration(min(steady))}"
    return Starved(
        measured=measured,
        indices=indices,
        summary=summary,
        evidence=(words.SEEN + seen, words.COMPARED + compared, words.RULED_OUT + "; ".join(ruled)),
        not_known=unknown,
        many=len(starved) > 1,
    )


def _allreduce_words(event: LogEvent | None) -> str:
    if event is None:
        return "share of time in all-reduce: ranks that wait for each other look the same"
    when = f" at {event.t_text}" if event.t_text else ""
    return f'share of time in all-reduce over PCIe ("custom all-reduce is disabled" stands in the log{when})'


def _ruled_out(starved: list[GpuView], server: ServerReport | None) -> list[str]:
    figures = [g.figures for g in starved]
    ruled: list[str] = []
    reasons = [f.reasons for f in figures]
    if all(r is not None and not r for r in reasons):
        ruled.append("power cap (no reason bit)")
        temps = [f.temp_c for f in figures if f.temp_c is not None]
        ruled.append(f"heat ({words.span(temps, '°C')}, no reason bit)" if temps else "heat (no reason bit)")
    clocks = [f.clock_pct for f in figures if f.clock_pct is not None]
    if clocks:
        ruled.append(f"low clocks ({words.span(clocks)} of the maximum)")
    metrics = server.metrics if server is not None else None
    if metrics is not None and metrics.running:
        ruled.append(f"idle spin ({words.plural(round(metrics.running), 'running request')})")
    elif all(f.util_mem_pct for f in figures):
        ruled.append(f"idle spin (memory utilization {words.span(f.util_mem_pct for f in figures)}, spinning reads 0)")
    if server is not None and server.ready:
        ruled.append("crash or start (the server is ready)")
    return ruled or ["nothing further"]


def starvation_remedy(starved: Starved, *, cause_open: bool, tuned: bool = False) -> tuple[str, ...]:
    """What to check when the cause is open, or not only the tuning. With `tuned` the tuning is in place."""
    lines = []
    if cause_open and tuned:
        lines = [
            "the tuning is in place, so the same again changes nothing: it may be a shape outside the tuned sizes, a "
            "small batch, or other kernels than the MoE's",
            "compare with a larger batch; a profile of one step names the kernels that take the time",
        ]
    elif cause_open and starved.measured:
        lines = ["compare with a tuned configuration of the MoE kernel, and with a larger batch"]
    elif cause_open:
        lines = ["ask the log and the request rate: untuned kernels, a small batch and slow all-reduce look alike"]
    if starved.many and not starved.measured:
        lines += [
            "all-reduce: which links join the GPUs, whether peer-to-peer is on (NCCL_P2P_DISABLE, NCCL_P2P_LEVEL), "
            "and whether one request at a time shows the same power",
            words.COMMAND + "nvidia-smi topo -m",
            words.COMMAND + "nvidia-smi topo -p2p r",
        ]
    return tuple(lines)


def duration(seconds: float) -> str:
    """`40 s`, `4 min`, `2 h`."""
    if seconds < 100:
        return f"{round(seconds)} s"
    if seconds < 7200:
        return f"{round(seconds / 60)} min"
    return f"{round(seconds / 3600)} h"
