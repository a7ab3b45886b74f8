"""GPUs, servers, hosts, histories and logs that the fleets of scenes.py are made of."""

from __future__ import annotations

import math

from moetop.history import GpuHistory
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
    Tuning,
    TuningFile,
    Verdict,
)
from moetop.trail import Standing, StateTrail
from tests.ui.stand_ins import NOW, StillFeed


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
    history, trail = GpuHistory(), StateTrail()
    for ago in range(seconds, -1, -1):
        if gap is not None and gap[1] <= ago <= gap[0]:
            continue
        wave = math.sin(ago / 17 + report.index)
        busy = ago < 190
        state = report.state if busy else GpuState.IDLE
        trail.add(feed.now - ago, Standing(state, report.confidence, report.error, 5.0))
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
    feed.trails[(host, report.index)] = trail


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
