"""Slow kernel paths, missing graphs, overload and hangs of a server, from its log and counters."""

from __future__ import annotations

from collections.abc import Iterator

from moetop.diagnose import thresholds as th
from moetop.diagnose import words
from moetop.diagnose.processes import is_cache_full, is_queue_longer
from moetop.diagnose.view import ENDED, HostView
from moetop.model import Confidence, EventKind, Finding, FindingKind, LogEvent, ServerReport, Severity


def find_slow_path(view: HostView, server: ServerReport) -> Iterator[Finding]:
    """`slow_kernel_path`: the engine says that it took a fallback backend."""
    events = list(view.events(server, EventKind.MOE_BACKEND_FALLBACK))
    if not events or server.phase in ENDED:
        return
    names = [str(e.fields["to"]) for e in events if e.fields.get("to")]
    quants = [str(e.fields["quant"]) for e in events if e.fields.get("quant")]
    to = f" through {names[0]}" if names else " through a fallback backend"
    yield Finding(
        kind=FindingKind.SLOW_KERNEL_PATH,
        severity=Severity.WARNING,
        confidence=Confidence.REPORTED,
        summary=f"slow kernel path: {quants[0] + ' weights' if quants else 'weights'} run{to}",
        server=server.name,
        gpus=server.gpus,
        evidence=tuple(
            [f"{words.LOG}{_fallback_words(e)}" for e in events[:3]]
            + [words.NOT_KNOWN + "why: the line is printed for the path taken, its words on the GPU can be wrong"]
        ),
        remedy=(
            "name a MoE backend that supports this quantization on this GPU, or upgrade the engine",
            "tuning does not help this path",
        ),
    )


def _fallback_words(event: LogEvent) -> str:
    """The record without its claim on the hardware, which is known to be wrong on SM100 and SM120."""
    text = " ".join(event.line.split())
    for claim in ("Your GPU does not have native support for FP4 computation but FP4 quantization is being used. ",):
        text = text.replace(claim, "")
    return text[:400] + (f" (ranks {', '.join(event.ranks)})" if event.ranks else "")


EAGER_ARGS = ("enforce_eager", "disable_cuda_graph")
"""Arguments that switch CUDA graphs off (vLLM, SGLang)."""


def find_launch_bound(view: HostView, server: ServerReport) -> Iterator[Finding]:
    """`launch_bound`: no CUDA graphs, so that the host launches every kernel."""
    if server.phase in ENDED:
        return
    events = list(view.events(server, EventKind.CUDAGRAPHS_DISABLED))
    args = [name for name in EAGER_ARGS if server.args.get(name) is True]
    if not events and not args:
        return
    evidence = [f"{words.LOG}{e.line}" for e in events[:2]]
    evidence.extend(f"{words.SERVER}{name} is set" for name in args)
    metrics = server.metrics
    running, tokens_s = (metrics.running, metrics.generation_tokens_s) if metrics is not None else (None, None)
    if running is not None and running >= 1 and tokens_s is not None:
        evidence.append(
            f"{words.SERVER}{words.number(tokens_s)} tokens/s for "
            f"{words.plural(round(running), 'request')}: {words.number(tokens_s / running)} each"
        )
    waiting = [g for g in view.gpus_of(server) if g.report.state == "host_bound"]
    if waiting:
        busy = words.span(g.figures.util_gpu_pct for g in waiting)
        evidence.append(f"{words.SEEN}{words.gpus(g.index for g in waiting)} wait for the host ({busy} busy)")
    yield Finding(
        kind=FindingKind.LAUNCH_BOUND,
        severity=Severity.WARNING,
        confidence=Confidence.MEASURED
        if waiting and waiting[0].report.confidence == "measured"
        else Confidence.REPORTED,
        summary="CUDA graphs are off: the host launches every kernel",
        server=server.name,
        gpus=tuple(g.index for g in waiting) or server.gpus,
        evidence=tuple(evidence),
        remedy=(
            "start without the option that switches graphs off (enforce_eager, disable_cuda_graph)",
            "if graphs fail on this GPU in this build, upgrade the engine",
        ),
    )


def find_overload(view: HostView, server: ServerReport) -> Iterator[Finding]:
    """`overloaded`: the KV cache is full, or more requests wait than run, and not for a moment only."""
    metrics = server.metrics
    if metrics is None or server.phase in ENDED or server.gone:
        return
    long_s = min(th.OVERLOADED_S, th.OVERLOADED_SHARE * view.window_s)
    if view.live and view.answers and view.pressed_s.get(server.name, 0.0) < long_s:
        return
    evidence = []
    if is_cache_full(metrics):
        evidence.append(f"{words.SERVER}KV cache {words.number(metrics.kv_usage_pct or 0)} % used")
    if is_queue_longer(metrics):
        running, waiting = words.number(metrics.running or 0), words.number(metrics.waiting or 0)
        evidence.append(f"{words.SERVER}{waiting} requests wait while {running} run")
    if not evidence:
        return
    yield Finding(
        kind=FindingKind.OVERLOADED,
        severity=Severity.WARNING,
        confidence=Confidence.REPORTED,
        summary=f"{server.name} has more work than room",
        server=server.name,
        gpus=server.gpus,
        evidence=tuple(evidence),
        remedy=("more replicas, fewer or shorter requests, or more KV-cache memory",),
    )


def find_log_hang(view: HostView, server: ServerReport) -> Iterator[Finding]:
    """`collective_hang` from a log: ranks out of step, and wait lines again and again without progress."""
    if server.phase in ENDED or server.gone:
        return
    digest = view.digest(server)
    behind = digest.tuning.open_ranks if digest.tuning.ended_ranks else ()
    if digest.waits < th.HANG_WAIT_LINES or not behind:
        return
    wait = next(iter(list(view.events(server, EventKind.ENGINE_WAIT))[-1:]), None)
    yield Finding(
        kind=FindingKind.COLLECTIVE_HANG,
        severity=Severity.CRITICAL,
        confidence=Confidence.INFERRED,
        summary=f"ranks are out of step ({words.listed(behind)} did not follow) and nothing moves: looks like a hang",
        server=server.name,
        gpus=server.gpus,
        evidence=(
            *((words.LOG + wait.line,) if wait is not None else ()),
            f"{words.LOG}{digest.waits} wait lines and no progress between them",
            f"{words.LOG}tuning ended on some ranks and not on {words.listed(behind)}",
        ),
        remedy=(
            "see where each rank stands before restarting",
            words.COMMAND + "py-spy dump --pid PID_OF_EACH_RANK",
        ),
    )
