"""Fleets in which something is out of the ordinary, for pictures: foreign log lines, long names, jobs, replays."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from moetop.model import (
    Calm,
    Confidence,
    EventKind,
    EventSeverity,
    GpuProcess,
    HostReport,
    Link,
    LinkPhase,
    LogLine,
    Tuning,
)
from moetop.ui.feed import JobStep, JobView, Playback
from tests.ui import parts, scenes
from tests.ui.scenes import NOW, Deeds, StillFeed

LONG = "gpu-cluster-b-rack-17-node-0042.inference.eu-central-1.internal.example.org:22871"
MODEL = "/mnt/models/weights/2027-01/very-large-mixture-of-experts-instruct-1234b-a56b-nvfp4-block16-calibrated-v3"

STRANGE_LINES: tuple[tuple[str, EventKind | None, EventSeverity | None], ...] = (
    ("\x1b[31;1mred\x1b[0m and \x1b[7mreverse\x1b[0m words", None, None),
    ("\x1b[2J\x1b[Hcleared \x1b[10;10Hmoved \x1b[?1049l", EventKind.CRASH, EventSeverity.FATAL),
    ("\x1b]0;title\x07\x1b]8;;http://x.example\x1b\\link\x1b]8;;\x1b\\ \x1b]52;c;AAAA\x07", None, None),
    ("\x9b31mC1 controls\x9c \x90q\x9c and a backspace\b\b\b, a return\rover", None, None),
    ("服务器已经启动,可以接收请求了 日本語のログ 한국어 로그", EventKind.READY, EventSeverity.GOOD),
    ("emoji 🎉 👩‍💻 🇩🇪 ☃️ and combined e\u0301 a\u0308 \u0628\u0650", None, None),
    ("right to left \u202egnp.exe\u202c \u2067שלום\u2069 مرحبا", EventKind.NOTE, EventSeverity.WARN),
    ("zero\u200bwidth\u200d\ufeff \u00ad tab\there\tthere \x00nul \x7fdel", None, None),
    ("[bold red]markup[/] [link=http://x]y[/link] \\[not] &amp; <b>", None, None),
    ("全" * 200, EventKind.NOTE, EventSeverity.WARN),
    ("x" * 5000, None, None),
)
"""Text, kind and severity of lines that no screen may obey."""


def strange_log() -> StillFeed:
    """A healthy host whose server logs escape sequences, wide characters and markup."""
    feed = scenes.reference_fleet()
    feed.put(msgspec.structs.replace(feed.reports["glm5-sm120"], findings=(), headline=Calm.HEALTHY.value))
    del feed.reports["node-07"]
    feed.tails["glm5-sm120"]["sglang"] = [
        LogLine(n=n, text=text, t=NOW - 60 + n, kind=kind, severity=severity)
        for n, (text, kind, severity) in enumerate(STRANGE_LINES)
    ]
    return feed


def long_names() -> StillFeed:
    """A host, GPU, server, model, process and finding with names much longer than any column."""
    feed = StillFeed()
    host = scenes.glm5_host(LONG)
    process = GpuProcess(
        pid=4194303, user="service-account-for-inference", name="sglang::scheduler_" + "T" * 80, memory_used_mib=88900.0
    )
    gpus = tuple(
        msgspec.structs.replace(
            gpu, name="NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition with a long tail", processes=(process,)
        )
        for gpu in host.gpus[:4]
    )
    server = host.servers[0]
    server = msgspec.structs.replace(
        server, name="sglang-" + "n" * 60, args={**server.args, "model_path": MODEL}, gpus=(0, 1, 2, 3)
    )
    finding = msgspec.structs.replace(
        host.findings[0], gpus=(0, 1, 2, 3), server=server.name, summary=f"kernels never tuned: {MODEL}"
    )
    feed.put(msgspec.structs.replace(host, gpus=gpus, servers=(server,), findings=(finding,)))
    for gpu in gpus:
        scenes.add_history(feed, LONG, gpu)
    scenes.add_log(feed, LONG, server.name)
    return feed


def finished() -> StillFeed:
    """A recording at its end."""
    feed = scenes.sixteen()
    feed.put(feed.reports["node-00"], Link(phase=LinkPhase.FINISHED))
    return feed


def without_numbers() -> StillFeed:
    """GPUs that are judged by nothing, on a host with a server that says nothing of itself."""
    feed = scenes.no_values()
    bare = parts.glm5_server()
    bare = msgspec.structs.replace(
        bare,
        version=None,
        versions={},
        args={},
        env={},
        files=(),
        events=(),
        runs=(),
        metrics=None,
        ready=None,
        tuning=Tuning(),
    )
    feed.put(msgspec.structs.replace(feed.reports["spark"], servers=(bare,)))
    return feed


def mixed_findings() -> StillFeed:
    """The reference fleet with a host more, whose GPU fell off the bus, and one whose finding is measured."""
    feed = scenes.reference_fleet()
    lost = scenes.lost_gpu()
    feed.put(lost.reports["node-03"])
    starved = scenes.big_fleet(3, 4).reports["node-02"]
    feed.put(HostReport(name="node-02", headline=starved.headline, gpus=starved.gpus, findings=starved.findings))
    assert starved.findings[0].confidence is Confidence.MEASURED
    return feed


def with_jobs() -> Deeds:
    """A job that runs, one that asks, one that put everything back and one that left the server down."""
    deeds = Deeds()
    running = JobView(
        id="job-1",
        host="glm5-sm120",
        server="sglang",
        state="running",
        started=NOW - 75,
        steps=(
            JobStep("stop the server", "done", started=NOW - 75, ended=NOW - 60, timeout_s=120),
            JobStep("move caches aside", "done", "3 files", started=NOW - 60, ended=NOW - 59),
            JobStep("start and tune", "running", "step 3 of 17", timeout_s=3600, started=NOW - 59),
            JobStep("wait until ready", timeout_s=1800),
        ),
        log=("Running FlashInfer autotune with 17 shapes", "3/17 done"),
        cancel_note="stops here, caches back, old command started",
    )
    undone = tuple(replace(step, state="undone") for step in running.steps[:2])
    deeds.job_list = [
        running,
        replace(running, id="job-2", host="h200-lab", question="it still runs after 300 s",
                options=(("wait", "another 300 s"), ("kill", "ends it with SIGKILL"))),
        replace(running, id="job-3", host="node-02", state="rolled_back", steps=undone, ended=NOW - 10),
        replace(running, id="job-4", host="node-03", state="down", ended=NOW - 5, next_thing="start it: ./run.sh"),
    ]  # fmt: skip
    return deeds


def playing(speed: float = 2.0, finished: bool = False) -> Deeds:
    """A replay at 1 min 5 s of 90 s, which can be sought in."""
    deeds = Deeds()
    deeds.play = Playback(t=65.0, start=0.0, end=90.0, speed=speed, finished=finished, can_seek=True)
    return deeds


def replay_finished() -> Deeds:
    """The same replay at its end."""
    return playing(finished=True)
