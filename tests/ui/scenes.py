"""Fleets made of model types for the tests of the screens: no probe, no diagnosis, no clock."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from moetop.errors import MoetopError
from moetop.history import GpuHistory, ServerHistory
from moetop.model import (
    Confidence,
    Engine,
    EventKind,
    EventSeverity,
    Finding,
    FindingKind,
    Gpm,
    GpuProcess,
    GpuReport,
    GpuSample,
    GpuState,
    HostLoad,
    HostReport,
    HostStatus,
    Limit,
    Link,
    LinkPhase,
    LogEvent,
    LogLine,
    LogPlace,
    Phase,
    ServerMetrics,
    ServerReport,
    ServerRun,
    Severity,
    Status,
    Tuning,
    TuningFile,
    Verdict,
)
from moetop.ui.feed import JobStep, JobView, NoActions, Playback, RetunePlan

NOW = 1_800_000_573.0
"""The frozen clock: 2027-01-15 08:09:33 UTC."""


class StillFeed:
    """A feed whose hosts are put in by the test; `change` counts its generation up."""

    window_s = 10.0

    def __init__(self) -> None:
        self.generation = 1
        self.reports: dict[str, HostReport] = {}
        self.links: dict[str, Link] = {}
        self.histories: dict[tuple[str, int], GpuHistory] = {}
        self.server_histories: dict[tuple[str, str], ServerHistory] = {}
        self.events: dict[str, list[LogEvent]] = {}
        self.tails: dict[str, dict[str, list[LogLine]]] = {}
        self.status: dict[str, dict[str, Status]] = {}
        self.now = NOW

    def put(self, report: HostReport, link: Link | None = None) -> None:
        """Add or replace a host."""
        self.reports[report.name] = report
        self.links[report.name] = link or Link(phase=LinkPhase.WATCHING, since_t=self.now - 600)
        self.generation += 1

    def names(self) -> list[str]:
        return list(self.reports)

    def report(self, host: str) -> HostReport:
        return self.reports[host]

    def link_of(self, host: str) -> Link:
        return self.links[host]

    def last_t(self, host: str) -> float | None:
        return self.now if self.reports[host].gpus else None

    def host_now(self, host: str) -> float | None:
        return self.last_t(host)

    def history(self, host: str, gpu: int) -> GpuHistory | None:
        return self.histories.get((host, gpu))

    def server_history(self, host: str, server: str) -> ServerHistory | None:
        return self.server_histories.get((host, server))

    def recent_events(self, host: str) -> list[LogEvent]:
        return self.events.get(host, [])

    def sources(self, host: str) -> list[str]:
        return list(self.tails.get(host, {}))

    def tail(self, host: str, source: str) -> Sequence[LogLine]:
        return self.tails.get(host, {}).get(source, [])

    def statuses(self, host: str) -> Mapping[str, Status]:
        return self.status.get(host, {})


class Deeds(NoActions):
    """Actions that note what was asked."""

    def __init__(self) -> None:
        self.done: list[tuple[str, object]] = []
        self.refusals: dict[str, str] = {}
        self.job_list: list[JobView] = []
        self.hosts_fixed: str | None = None
        self.notices: list[str] = []
        self.play: Playback | None = None
        self.snapshot_error: MoetopError | None = None

    def write_snapshot(self) -> str:
        if self.snapshot_error is not None:
            raise self.snapshot_error
        self.done.append(("snapshot", None))
        return "/tmp/moetop-1.json"

    def write_picture(self, svg: str) -> str:
        self.done.append(("picture", svg))
        return "/tmp/moetop-1.svg"

    def write_text(self, name: str, text: str) -> str:
        self.done.append((name, text))
        return f"/tmp/{name}"

    def hosts_refusal(self) -> str | None:
        return self.hosts_fixed

    def add_host(self, text: str) -> str:
        if text == "bad":
            raise MoetopError("no host is called bad")
        self.done.append(("add_host", text))
        return text

    def remove_host(self, name: str) -> None:
        self.done.append(("remove_host", name))

    def take_notices(self) -> list[str]:
        taken, self.notices = self.notices, []
        return taken

    def retune_refusal(self, host: str, server: str | None) -> str | None:
        return self.refusals.get(host)

    def plan_retune(self, host: str, server: str | None) -> RetunePlan:
        self.done.append(("plan", host))
        return RetunePlan(
            host,
            server or "server",
            (
                JobStep("stop the server", undo="start it again with the old command", timeout_s=120),
                JobStep("move caches aside", detail="mv ~/.cache/flashinfer ~/.cache/flashinfer.moetop-1"),
                JobStep("start and tune", timeout_s=3600, undo="caches back, old command"),
                JobStep("wait until ready", timeout_s=1800),
            ),
            confirm=host,
            notes=("16 requests are running: they are drained for up to 120 s",),
        )

    def start_retune(self, plan: RetunePlan) -> str:
        self.done.append(("start", plan.host))
        return "job-1"

    def cancel_job(self, job: str) -> None:
        self.done.append(("cancel", job))

    def jobs(self) -> Sequence[JobView]:
        return self.job_list

    def playback(self) -> Playback | None:
        return self.play

    def seek(self, t: float) -> None:
        self.done.append(("seek", t))

    def set_speed(self, speed: float) -> None:
        self.done.append(("speed", speed))


def gpu(index: int, state: GpuState, **values: object) -> GpuReport:
    """An RTX PRO 6000 unless told otherwise."""
    given: dict[str, object] = {
        "name": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        "power_limit_w": 600.0,
        "power_limit_default_w": 600.0,
        "memory_total_mib": 97887.0,
        "sm_clock_max_mhz": 2430.0,
        **values,
    }
    if given.get("power_w") is not None and given.get("power_limit_w"):
        given.setdefault("power_pct", 100 * float(given["power_w"]) / float(given["power_limit_w"]))  # type: ignore[arg-type]
    return GpuReport(index=index, state=state, **given)  # type: ignore[arg-type]


def starved_gpu(index: int) -> GpuReport:
    return gpu(
        index,
        GpuState.TENSOR_STARVED,
        uuid=f"GPU-0000000{index}",
        pci_bus_id=f"00000000:{index + 16:02X}:00.0",
        confidence=Confidence.INFERRED,
        evidence=("Seen: 100 % busy at 55 % of 600 W, full clock", "Not known: tensor activity (no GPM)"),
        util_gpu_pct=100.0,
        util_mem_pct=31.0,
        power_w=328.0 + index * 1.5,
        temp_c=56.0 + index,
        memory_used_mib=89100.0,
        sm_clock_mhz=2422.0,
        mem_clock_mhz=12481.0,
        pcie_gen=5,
        pcie_width=16,
        pcie_gen_max=5,
        pcie_width_max=16,
        ecc_uncorrected=0,
        mig=False,
        processes=(GpuProcess(pid=41230 + index, user="serve", name="sglang::scheduler_TP0", memory_used_mib=88900.0),),
        absent={"gpm": "not supported on this GPU", "memory_temp_c": "not supported"},
    )


def h200(index: int, state: GpuState = GpuState.TENSOR_BUSY, **values: object) -> GpuReport:
    given: dict[str, object] = {
        "name": "NVIDIA H200",
        "confidence": Confidence.MEASURED,
        "power_limit_w": 700.0,
        "power_limit_default_w": 700.0,
        "memory_total_mib": 143771.0,
        "util_gpu_pct": 99.0,
        "util_mem_pct": 86.0,
        "power_w": 694.0,
        "temp_c": 63.0,
        "memory_used_mib": 134400.0,
        "sm_clock_mhz": 1485.0,
        "limits": (Limit.SW_POWER_CAP,),
        "gpm": Gpm(
            sm_active_pct=96, sm_occupancy_pct=22, tensor_pct=57, dram_pct=68, pcie_rx_mib_s=12, pcie_tx_mib_s=9
        ),
        "evidence": ("Seen: tensor pipe 57 %, DRAM 68 %, SMs 96 %",),
        **values,
    }
    return gpu(index, state, **given)


UNTUNED = Finding(
    kind=FindingKind.UNTUNED_KERNELS,
    severity=Severity.WARNING,
    confidence=Confidence.INFERRED,
    summary="kernels never tuned: SGLang 0.5.9 does not autotune flashinfer_cutlass",
    gpus=tuple(range(8)),
    server="sglang",
    evidence=(
        "Seen: 8 of 8 GPUs 100 % busy at 54-56 % of 600 W for 4 min, full clocks, no throttle reason",
        "Compared: memory utilization 31 % (memory-bound work reads 88-100)",
        "Ruled out: power cap (no reason bit) · heat (58 °C) · idle spin (16 running requests)",
        "Log: SGLang 0.5.9, backend flashinfer_cutlass: this release's autotune list leaves it out",
        "Not known: tensor activity (GPM not supported here); share of time in all-reduce over PCIe",
    ),
    remedy=(
        "upgrade SGLang to 0.5.16 or later, same backend",
        "retune and restart",
        "$ nvidia-smi topo -m",
    ),
)

LOG_TEXT: tuple[tuple[float, str, EventKind | None, EventSeverity | None], ...] = (
    (300, "server_args=ServerArgs(model_path='/models/GLM-5-NVFP4', "
     "moe_runner_backend='flashinfer_cutlass', tp_size=8)",
     EventKind.SERVER_ARGS, EventSeverity.INFO),
    (282, "Load weight begin. avail mem=94.31 GB", EventKind.WEIGHTS_LOADING, EventSeverity.INFO),
    (281, "custom all-reduce is disabled because this platform lacks GPU P2P capability",
     EventKind.CUSTOM_ALLREDUCE_DISABLED, EventSeverity.WARN),
    (205, "Load weight end. type=Glm5ForCausalLM, avail mem=37.85 GB", EventKind.WEIGHTS_LOADED, EventSeverity.GOOD),
    (203, "INFO:     127.0.0.1:33456 - \"GET /health HTTP/1.1\" 200 OK", EventKind.HTTP_ACCESS, EventSeverity.NOISE),
    (201, "The server is fired up and ready to roll!", EventKind.READY, EventSeverity.GOOD),
    (120, "a line that is no event", None, None),
    (3, "Decode batch. #running-req: 16, token usage: 0.21, gen throughput (token/s): 812.11, #queue-req: 0",
     EventKind.THROUGHPUT, EventSeverity.METRIC),
)  # fmt: skip


def glm5_server() -> ServerReport:
    return ServerReport(
        name="sglang",
        engine=Engine.SGLANG,
        version="0.5.9",
        versions={"sglang": "0.5.9", "flashinfer": "0.6.2", "torch": "2.9.1", "triton": "3.5.0"},
        pid=41207,
        port=8000,
        manager="plain",
        argv=("python3", "-m", "sglang.launch_server"),
        args={
            "model_path": "/models/GLM-5-NVFP4",
            "moe_runner_backend": "flashinfer_cutlass",
            "quantization": "modelopt_fp4",
            "tp_size": 8,
            "port": 8000,
        },
        env={"CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7"},
        log=LogPlace(kind="file", target="/root/sglang-glm5.log"),
        phase=Phase.READY,
        ready=True,
        metrics=ServerMetrics(
            running=16, waiting=0, generation_tokens_s=812.1, kv_usage_pct=21, source="log", t=NOW - 3
        ),
        tuning=Tuning(
            verdict=Verdict.NEVER_RAN,
            evidence=("Log: SGLang 0.5.9 with flashinfer_cutlass: its list of autotuned backends leaves it out",),
            remedy=("upgrade SGLang to 0.5.16 or later, same backend",),
        ),
        files=(
            TuningFile(path="/root/.cache/flashinfer/0.6.2/120f/autotuner.json", role="flashinfer_cache", exists=False),
            TuningFile(
                path="/usr/lib/python3/dist-packages/sglang/configs/E=256,N=256.json",
                role="triton_config",
                exists=True,
                stale="made for triton 3.4.0, this is 3.5.0",
                size=4096,
            ),
        ),
        gpus=tuple(range(8)),
        runs=(
            ServerRun(n=1, start=NOW - 4000, phase=Phase.CRASHED),
            ServerRun(n=3, start=NOW - 300, phase=Phase.READY),
        ),
        events=tuple(
            LogEvent(kind=kind, rule="x", severity=severity, line=text, t=NOW - ago, run=3)
            for ago, text, kind, severity in LOG_TEXT
            if kind is not None and severity is not None
        ),
    )


def glm5_host(name: str = "glm5-sm120") -> HostReport:
    return HostReport(
        name=name,
        headline="untuned_kernels",
        driver="580.95.05",
        source="nvml",
        gpus=tuple(starved_gpu(index) for index in range(8)),
        servers=(glm5_server(),),
        findings=(UNTUNED,),
        load=HostLoad(cpu_pct=7.0, load1=9.2, memory_used_mib=211000, memory_total_mib=1547000),
    )


def lost_link(now: float = NOW) -> Link:
    return Link(
        phase=LinkPhase.LOST, since_t=now - 12, reason="no frames", next_try_t=now + 4, attempt=2, code="silent"
    )


def lost_host(name: str = "node-07") -> HostReport:
    return HostReport(
        name=name,
        headline="unreachable",
        status=HostStatus.UNREACHABLE,
        error="no frames for 12 s",
        findings=(
            Finding(
                kind=FindingKind.UNREACHABLE,
                severity=Severity.CRITICAL,
                confidence=Confidence.REPORTED,
                summary="node-07 cannot be reached: no frames for 12 s",
                remedy=("check the network and the host", "$ ssh node-07 true"),
            ),
        ),
    )


def add_history(
    feed: StillFeed, host: str, report: GpuReport, seconds: int = 400, gap: tuple[int, int] | None = None
) -> None:
    """A past that ends in the report's values; `gap` are seconds ago without samples."""
    history = GpuHistory()
    for ago in range(seconds, -1, -1):
        if gap is not None and gap[1] <= ago <= gap[0]:
            continue
        wave = math.sin(ago / 17 + report.index)
        busy = ago < 190
        util = report.util_gpu_pct if busy else 0.0
        power = None
        if report.power_w is not None:
            power = report.power_w + 6 * wave if busy else 88.0 + wave
        history.add(
            feed.now - ago,
            GpuSample(
                index=report.index,
                util_gpu_pct=util,
                power_w=power,
                power_limit_w=report.power_limit_w,
                temp_c=report.temp_c,
                sm_clock_mhz=report.sm_clock_mhz,
                memory_used_mib=report.memory_used_mib,
                gpm=report.gpm if busy else None,
            ),
        )
    feed.histories[(host, report.index)] = history


def add_log(feed: StillFeed, host: str, source: str = "sglang") -> None:
    feed.tails[host] = {
        source: [
            LogLine(n=n, text=text, t=feed.now - ago, kind=kind, severity=severity)
            for n, (ago, text, kind, severity) in enumerate(LOG_TEXT)
        ]
    }
    feed.events[host] = [
        LogEvent(kind=kind, rule="x", severity=severity, line=text, t=feed.now - ago, run=3)
        for ago, text, kind, severity in LOG_TEXT
        if kind is not None and severity is not None
    ]


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
