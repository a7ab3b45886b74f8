"""Whatever frames come, in whatever order: no exception, no NaN, a report that can be written."""

from __future__ import annotations

import math
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moetop.diagnose.fleet import compare_hosts
from moetop.diagnose.host import HostEvidence
from moetop.diagnose.states import GpuContext, judge_gpu
from moetop.errors import UsageError
from moetop.model import (
    FINDING_RANK,
    AnyFrame,
    Calm,
    Gpm,
    GpuInfo,
    GpuProcess,
    Gpus,
    GpuSample,
    Hello,
    HostReport,
    Inventory,
    Link,
    LinkPhase,
    Log,
    Server,
    ServerMetrics,
    Status,
    TuningFile,
)
from moetop.triage.offline import build_offline

number = st.one_of(
    st.none(),
    st.floats(0, 100),
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-(2**31), 2**63).map(float),
)
pct = st.one_of(st.none(), st.sampled_from([0.0, 5.0, 20.0, 59.9, 60.0, 75.0, 95.0, 100.0]), number)
whole = st.one_of(st.none(), st.integers(0, 2**31))
word = st.one_of(st.none(), st.sampled_from(["NVIDIA H200", "NVIDIA GB10", "", "\x1b[31m"]), st.text(max_size=20))
index = st.integers(0, 3)
moment = st.one_of(st.floats(0, 60), st.floats(-1e12, 1e12))

gpms = st.builds(Gpm, **dict.fromkeys(Gpm.__struct_fields__, pct))
processes = st.lists(st.builds(GpuProcess, pid=st.integers(1, 99999), name=word, memory_used_mib=number), max_size=2)
samples = st.builds(
    GpuSample,
    index=index,
    util_gpu_pct=pct,
    util_mem_pct=pct,
    power_w=number,
    power_limit_w=number,
    temp_c=number,
    memory_used_mib=number,
    sm_clock_mhz=number,
    clock_event_reasons=st.one_of(st.none(), st.integers(0, 0x1FF), st.integers(0, 2**64 - 1)),
    gpm=st.one_of(st.none(), gpms),
    pcie_gen=whole,
    pcie_width=whole,
    pcie_rx_mib_s=number,
    pcie_tx_mib_s=number,
    ecc_uncorrected=whole,
    last_xid=st.one_of(st.none(), st.sampled_from([0, 13, 45, 48, 79, 999])),
    processes=st.one_of(st.none(), processes.map(tuple)),
    error=st.one_of(st.none(), st.none(), st.sampled_from(["gpu_lost", "stuck", "reset_required", "odd"])),
)
infos = st.builds(
    GpuInfo,
    index=index,
    name=word,
    pci_bus_id=st.one_of(st.none(), st.just("00000000:06:00.0"), st.text(max_size=12)),
    power_limit_default_w=number,
    sm_clock_max_mhz=number,
    memory_total_mib=number,
    gpm=st.one_of(st.none(), st.booleans()),
    mig=st.one_of(st.none(), st.booleans()),
    pcie_gen_max=whole,
    pcie_width_max=whole,
)
LINES = (
    "[2026-02-19 01:04:33] server_args=ServerArgs(model_path='/m', tp_size=8, moe_runner_backend='flashinfer_cutlass')",
    "[2026-02-19 01:06:58] The server is fired up and ready to roll!",
    "[2026-02-19 02:00:00 TP3] Scheduler hit an exception: Traceback (most recent call last):",
    "RuntimeError: boom",
    "NVRM: Xid (PCI:0000:06:00): 79, pid=77, name=python3, GPU has fallen off the bus.",
    "NVRM: Xid (PCI:0000:06:00): 45, pid=77, name=python3, Ch 1 caused by previous Xid 149",
    "(APIServer pid=1) INFO 05-12 01:46:22 [loggers.py:271] Engine 000: Avg prompt throughput: 75.3 tokens/s, Avg "
    "generation throughput: 34.4 tokens/s, Running: 7 reqs, Waiting: 9 reqs, GPU KV cache usage: 99.0%",
    "[Autotuner]: Autotuning process starts ...",
)
lines = st.one_of(st.sampled_from(LINES), st.text(max_size=60))
metrics = st.builds(
    ServerMetrics, running=number, waiting=number, generation_tokens_s=number, kv_usage_pct=pct, t=st.none()
)
servers = st.builds(
    Server,
    t=moment,
    name=st.sampled_from(["a", "b"]),
    pid=whole,
    engine=st.sampled_from([None, "sglang", "vllm", "tensorrt_llm", "odd"]),
    versions=st.sampled_from([{}, {"sglang": "0.5.9"}, {"vllm": "nonsense"}]),
    args=st.sampled_from([{}, {"moe_runner_backend": "flashinfer_cutlass"}, {"enforce_eager": True, "kt_x": 1}]),
    source=st.sampled_from([None, "log", "other"]),
    gpus=st.lists(index, max_size=3).map(tuple),
    metrics=st.one_of(st.none(), metrics),
    healthy=st.one_of(st.none(), st.booleans()),
    gone=st.booleans(),
)
statuses = st.builds(
    Status,
    t=moment,
    code=st.sampled_from(["driver_mismatch", "no_driver", "gpu_lost", "smi_hang", "fallback_smi", "odd"]),
    message=st.text(max_size=20),
    level=st.sampled_from(["info", "warning", "error"]),
    fatal=st.booleans(),
    detail=st.sampled_from([{}, {"index": 2}, {"library": "570.86"}, {"gpu": "x"}]),
)
frames: st.SearchStrategy[AnyFrame] = st.one_of(
    st.builds(
        Hello, t=moment, gpus=st.lists(infos, max_size=3).map(tuple), source=st.sampled_from([None, "nvml", "csv"])
    ),
    st.builds(Gpus, t=moment, gpus=st.lists(samples, max_size=4).map(tuple)),
    st.builds(Gpus, t=moment, gpus=st.lists(samples, max_size=4).map(tuple)),
    st.builds(Log, t=moment, source=st.sampled_from(["log", "kernel"]), line=lines, history=st.booleans()),
    servers,
    st.builds(
        Inventory,
        t=moment,
        server=st.sampled_from(["a", "b"]),
        files=st.just((TuningFile(path="/c", role="flashinfer_cache", exists=False),)),
    ),
    statuses,
)
links = st.builds(Link, phase=st.sampled_from(list(LinkPhase)), reason=word, advice=word, code=word)
HEADLINES = {str(kind) for kind in FINDING_RANK} | {str(calm) for calm in Calm}
MANY = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def assert_sound(report: HostReport) -> None:
    raw = msgspec.json.encode(report)
    assert msgspec.json.decode(raw, type=HostReport) == report
    assert report.headline in HEADLINES
    assert_finite(report)
    for found in report.findings:
        assert found.summary
        assert found.evidence


def assert_finite(value: msgspec.Struct) -> None:
    """Every number is one (checked before the encoder, which would write null for NaN)."""
    assert all(math.isfinite(n) for n in _numbers(msgspec.to_builtins(value)))


def _numbers(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [n for v in value.values() for n in _numbers(v)]
    if isinstance(value, (list, tuple)):
        return [n for v in value for n in _numbers(v)]
    return [value] if isinstance(value, float) else []


@MANY
@given(
    st.lists(frames, max_size=12),
    st.one_of(st.none(), moment),
    st.one_of(st.none(), links),
    st.sampled_from([0.0, 10.0]),
)
def test_any_frames_in_any_order_give_a_sound_report(
    sequence: list[AnyFrame], now: float | None, link: Link | None, window_s: float
) -> None:
    evidence = HostEvidence("h", window_s)
    for frame in sequence:
        evidence.apply(frame)
    if link is not None:
        evidence.apply_link(link)
    assert_sound(evidence.report(now))
    assert evidence.report(now) == evidence.report(now)


@MANY
@given(infos, st.lists(samples, max_size=6), number)
def test_any_samples_give_a_state(known: GpuInfo, several: list[GpuSample], running: float | None) -> None:
    report = judge_gpu(known, several, GpuContext(running=running))
    assert_finite(report)
    assert report.evidence


@MANY
@given(st.lists(st.lists(samples, min_size=1, max_size=3).map(tuple), min_size=2, max_size=4))
def test_any_hosts_can_be_compared(fleet: list[tuple[GpuSample, ...]]) -> None:
    reports = []
    for gpus in fleet:
        evidence = HostEvidence("h")
        evidence.apply(Gpus(t=1.0, gpus=gpus))
        reports.append(evidence.report())
    for report in compare_hosts(reports):
        assert_sound(report)


cell = st.one_of(
    st.sampled_from(["[N/A]", "ERR!", "0", "97 %", "331.2 W", "4 MiB", "0x24", "-", "NVIDIA H200", "[GPU is lost]"]),
    st.text(max_size=8),
)
pasted_line = st.one_of(
    st.sampled_from(
        [
            "index, name, utilization.gpu [%], power.draw [W]",
            "timestamp, index, utilization.gpu [%], memory.used [MiB]",
            "# gpu    pwr  gtemp     sm    mem",
            "# Idx      W      C      %      %",
            "|   0  NVIDIA H200                    On  |   00000000:03:00.0 Off |                    0 |",
            "| N/A   33C    P0            115W /  700W |  124585MiB / 143771MiB |      0%      Default |",
            "|                                         |                        |             Disabled |",
            "No devices were found",
            "Unable to determine the device handle for GPU0: 0000:09:00.0: Unknown Error",
        ]
    ),
    st.lists(cell, max_size=6).map(", ".join),
    st.lists(cell, max_size=6).map(" ".join),
    st.lists(cell, max_size=4).map(lambda cells: "| " + " | ".join(cells) + " |"),
)


@MANY
@given(st.lists(pasted_line, max_size=14).map("\n".join))
def test_any_pasted_text_gives_a_sound_report_or_one_clear_refusal(text: str) -> None:
    try:
        report = build_offline(smi_log=text).report()
    except UsageError as error:
        assert str(error)
        return
    assert_sound(report)


prom_line = st.builds(
    "{}{} {}".format,
    st.sampled_from(
        ["DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_PROF_SM_ACTIVE", "vllm:num_requests_running"]
    ),
    st.sampled_from(["", '{gpu="0"}', '{gpu="x"}', '{gpu="1",GPU_I_ID="3"}', '{gpu="0",Hostname="b"}']),
    st.one_of(st.floats().map(str), st.integers(-(2**70), 2**70).map(str), st.text(max_size=5)),
)


@MANY
@given(st.lists(prom_line, max_size=8).map("\n".join))
def test_any_metrics_page_gives_a_sound_report_or_one_clear_refusal(text: str) -> None:
    try:
        report = build_offline(metrics=text).report()
    except UsageError as error:
        assert str(error)
        return
    assert_sound(report)
