"""Fleets made of model types for the tests of the screens, with the parts and stand-ins they are made of."""

from __future__ import annotations

import math

from moetop.history import ServerHistory
from moetop.model import (
    Confidence,
    EventKind,
    EventSeverity,
    Finding,
    FindingKind,
    Gpm,
    GpuReport,
    GpuState,
    HostReport,
    Link,
    LinkPhase,
    LogLine,
    ServerMetrics,
    ServerReport,
    Severity,
    Status,
)
from moetop.ui.feed import Playback
from tests.ui.parts import UNTUNED, add_history, add_log, glm5_host, gpu, h200, lost_host, lost_link
from tests.ui.stand_ins import NOW, Deeds, StillFeed

__all__ = [
    "HOSTILE", "NOW", "UNTUNED", "Deeds", "Playback", "StillFeed", "add_history", "add_log", "big_fleet",
    "connecting", "empty", "glm5_host", "gpu", "h200", "hostile", "lost_gpu", "lost_host", "lost_link", "no_values",
    "reference_fleet", "sixteen",
]  # fmt: skip


def reference_fleet() -> StillFeed:
    """The reference scenario: starved glm5-sm120, a busy H200, a lost node."""
    feed = StillFeed()
    host = glm5_host()
    feed.put(host)
    lab = HostReport(name="h200-lab", headline="healthy", driver="580.159.04", source="nvml", gpus=(h200(0),))
    feed.put(lab)
    feed.put(lost_host(), lost_link())
    for report in (host, lab):
        for each in report.gpus:
            add_history(feed, report.name, each, gap=(70, 50) if each.index == 0 and report is host else None)
    add_log(feed, host.name)
    history = ServerHistory()
    for ago in range(200, 0, -5):
        history.add(
            feed.now - ago, ServerMetrics(running=16, waiting=ago // 50, generation_tokens_s=800 + 20 * math.sin(ago))
        )
    feed.server_histories[(host.name, "sglang")] = history
    feed.status["h200-lab"] = {"no_server": Status(t=NOW, code="no_server", message="no serving process found")}
    return feed


def fleet_without_lost() -> StillFeed:
    """The reference fleet, its lost host left out."""
    feed = reference_fleet()
    del feed.reports["node-07"]
    return feed


def big_fleet(hosts: int = 8, gpus: int = 8) -> StillFeed:
    """Many GPUs in mixed states."""
    feed = StillFeed()
    states = (GpuState.TENSOR_BUSY, GpuState.MEMORY_BOUND, GpuState.TENSOR_STARVED, GpuState.IDLE, GpuState.BALANCED)
    for number in range(hosts):
        state = states[number % len(states)]
        values = {
            GpuState.TENSOR_BUSY: (99.0, 690.0, 60.0, 60.0),
            GpuState.MEMORY_BOUND: (99.0, 610.0, 9.0, 88.0),
            GpuState.TENSOR_STARVED: (100.0, 420.0, 8.0, 29.0),
            GpuState.IDLE: (0.0, 120.0, 0.0, 0.0),
            GpuState.BALANCED: (98.0, 600.0, 35.0, 55.0),
        }[state]
        reports = tuple(
            h200(
                index,
                state,
                util_gpu_pct=values[0],
                power_w=values[1] + index,
                gpm=Gpm(sm_active_pct=90, tensor_pct=values[2] + index / 2, dram_pct=values[3]),
                limits=(),
            )
            for index in range(gpus)
        )
        findings = ()
        if state is GpuState.TENSOR_STARVED:
            findings = (
                Finding(
                    kind=FindingKind.TENSOR_STARVED,
                    severity=Severity.WARNING,
                    confidence=Confidence.MEASURED,
                    summary=f"tensor cores starved on {gpus} GPUs: tensor 8 %, DRAM 29 %",
                    gpus=tuple(range(gpus)),
                ),
            )
        report = HostReport(
            name=f"node-{number:02d}",
            headline="tensor_starved" if findings else "healthy",
            gpus=reports,
            findings=findings,
        )
        feed.put(report)
        for each in reports:
            add_history(feed, report.name, each, seconds=200)
        add_log(feed, report.name)
    return feed


def sixteen() -> StillFeed:
    """One host of 16 GPUs."""
    return big_fleet(1, 16)


def lost_gpu() -> StillFeed:
    """A host one of whose GPUs has fallen off the bus."""
    feed = StillFeed()
    gpus = [h200(index) for index in range(4)]
    gpus[2] = GpuReport(index=2, name="NVIDIA H200", error="gpu_lost", absent={"power_w": "GPU is lost"})
    finding = Finding(
        kind=FindingKind.GPU_LOST,
        severity=Severity.CRITICAL,
        confidence=Confidence.MEASURED,
        summary="GPU 2 has fallen off the bus",
        gpus=(2,),
        evidence=("Log: NVRM: Xid (PCI:0000:1a:00): 79, GPU has fallen off the bus.",),
        remedy=("drain the host and reboot it",),
    )
    feed.put(HostReport(name="node-03", headline="gpu_lost", gpus=tuple(gpus), findings=(finding,)))
    return feed


def no_values() -> StillFeed:
    """GPUs that give nothing but their names."""
    feed = StillFeed()
    bare = tuple(
        GpuReport(index=index, name="NVIDIA GB10", absent={"power_limit_w": "not supported", "gpm": "not supported"})
        for index in range(2)
    )
    feed.put(HostReport(name="spark", headline="no_finding", gpus=bare))
    return feed


def empty() -> StillFeed:
    """No host at all."""
    return StillFeed()


def connecting() -> StillFeed:
    """Two hosts of which nothing is known yet."""
    feed = StillFeed()
    for name in ("node-01", "node-02"):
        feed.put(
            HostReport(name=name, headline="no_finding"), Link(phase=LinkPhase.CONNECTING, since_t=NOW - 3, attempt=0)
        )
    return feed


HOSTILE = "evil\x1b[2J\x1b]0;title\x07[bold red]x[/]\u202egnp.exe\u200b日本語 [link=http://x]y[/link]"
"""Escape sequences, markup, bidi override, wide characters."""


def hostile() -> StillFeed:
    """A host whose every text is hostile."""
    feed = StillFeed()
    evil = gpu(0, GpuState.UNKNOWN, name=HOSTILE, evidence=(HOSTILE,), absent={"gpm": HOSTILE})
    server = ServerReport(name=HOSTILE, args={HOSTILE: HOSTILE}, versions={"x": HOSTILE}, env={"y": HOSTILE})
    finding = Finding(
        kind=FindingKind.CRASHED,
        severity=Severity.CRITICAL,
        confidence=Confidence.REPORTED,
        summary=HOSTILE,
        evidence=(f"Log: {HOSTILE}",),
        remedy=(f"$ {HOSTILE}",),
    )
    feed.put(HostReport(name=HOSTILE, headline="crashed", gpus=(evil,), servers=(server,), findings=(finding,)))
    feed.tails[HOSTILE] = {
        HOSTILE: [
            LogLine(n=0, text=HOSTILE * 40, kind=EventKind.CRASH, severity=EventSeverity.FATAL),
            LogLine(n=1, text="x" * 1_000_000),
        ]
    }
    return feed
