"""Builders for the diagnosis tests: GPUs that work well unless told otherwise, and hosts made of frames."""

from __future__ import annotations

from typing import Any

import msgspec

from moetop.diagnose.host import HostEvidence
from moetop.model import FindingKind, Gpm, GpuInfo, Gpus, GpuSample, Hello, HostReport, Log, Server, ServerMetrics

GOOD_GPM: dict[str, float] = {
    "sm_active_pct": 95.0,
    "sm_occupancy_pct": 12.0,
    "tensor_pct": 40.0,
    "dram_pct": 65.0,
    "fp16_pct": 0.0,
    "fp32_pct": 0.0,
    "fp64_pct": 0.0,
    "int_pct": 5.0,
    "pcie_rx_mib_s": 20.0,
    "pcie_tx_mib_s": 10.0,
    "nvlink_rx_mib_s": 0.0,
    "nvlink_tx_mib_s": 0.0,
}
GOOD: dict[str, Any] = {
    "util_gpu_pct": 100.0,
    "util_mem_pct": 70.0,
    "power_w": 560.0,
    "power_limit_w": 700.0,
    "temp_c": 60.0,
    "memory_used_mib": 80000.0,
    "sm_clock_mhz": 1900.0,
    "mem_clock_mhz": 3200.0,
    "clock_event_reasons": 0,
}
SIGNATURE: dict[str, Any] = {"power_w": 385.0, "util_mem_pct": 31.0}
SPIN: dict[str, Any] = {"power_w": 130.0, "util_mem_pct": 0.0}


def gpm(**values: Any) -> Gpm:
    return Gpm(**{**GOOD_GPM, **values})


def sample(index: int = 0, **values: Any) -> GpuSample:
    return GpuSample(index=index, **{**GOOD, **values})


def info(index: int = 0, **values: Any) -> GpuInfo:
    known: dict[str, Any] = {
        "name": "NVIDIA H200",
        "pci_bus_id": f"00000000:{index + 6:02X}:00.0",
        "sm_clock_max_mhz": 1980.0,
        "power_limit_default_w": 700.0,
        "memory_total_mib": 143771.0,
    }
    return GpuInfo(index=index, **{**known, **values})


def host(
    *gpus: dict[str, Any],
    infos: dict[str, Any] | None = None,
    server: dict[str, Any] | None = None,
    log: tuple[str, ...] = (),
    kernel: tuple[str, ...] = (),
    seconds: int = 12,
    window_s: float = 10.0,
    hello: dict[str, Any] | None = None,
) -> HostEvidence:
    """A live host whose GPUs read the same for `seconds` at one sample a second."""
    evidence = HostEvidence("h", window_s)
    each = tuple(info(i, **(infos or {})) for i in range(len(gpus)))
    evidence.apply(Hello(t=0.0, source="nvml", driver="580.159.04", gpus=each, **(hello or {})))
    if server is not None:
        evidence.apply(make_server(t=0.0, **server))
    for line in log:
        evidence.apply(Log(t=0.0, source="serve.log", line=line))
    for line in kernel:
        evidence.apply(Log(t=0.0, source="kernel", line=line))
    for t in range(seconds):
        evidence.apply(Gpus(t=float(t), gpus=tuple(sample(i, **values) for i, values in enumerate(gpus))))
    return evidence


def make_server(t: float = 0.0, **values: Any) -> Server:
    known: dict[str, Any] = {"name": "sglang", "pid": 100, "engine": "sglang", "source": "serve.log"}
    known.update(values)
    metrics = known.get("metrics")
    if isinstance(metrics, dict):
        known["metrics"] = ServerMetrics(**metrics)
    return Server(t=t, **known)


def kinds(report: HostReport) -> list[str]:
    return [str(finding.kind) for finding in report.findings]


def standing(report: HostReport) -> list[str]:
    return [str(f.kind) for f in report.findings if f.severity != "info"]


def finding(report: HostReport, kind: FindingKind | str) -> Any:
    return next(f for f in report.findings if f.kind == str(kind))


def text_of(report: HostReport) -> str:
    """Every word a person would read, in lower case."""
    parts = [report.error or "", *report.notes]
    for found in report.findings:
        parts += [found.summary, *found.evidence, *found.remedy]
    for server in report.servers:
        parts += [*server.tuning.evidence, *server.tuning.remedy]
    for gpu in report.gpus:
        parts += gpu.evidence
    return "\n".join(parts).lower()


def without_gpm(frame: Gpus) -> Gpus:
    return msgspec.structs.replace(frame, gpus=tuple(msgspec.structs.replace(s, gpm=None) for s in frame.gpus))
