"""Every case of tests/data/cases that goes through a door: headline, figures, and what must not be said.

The table maps a case to its own checks; a case without a row fails, so that none is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from moetop.model import GpuReport, HostReport, LogEvent
from moetop.triage.offline import build_offline
from tests.unit.diagnose_kit import text_of

CASES = Path(__file__).parent.parent / "data" / "cases"
Check = Callable[[HostReport], bool]
SAME_WITHOUT_SERVER = {"healthy", "no_finding"}


def load(path: Path) -> dict[str, Any]:
    case: dict[str, Any] = yaml.safe_load(path.read_text())
    return case


LOADED = {path.name[:3]: load(path) for path in sorted(CASES.glob("*.yaml"))}
DOORS = {number: case for number, case in LOADED.items() if case["door"] != "none"}


def report_of(case: dict[str, Any], window_s: float = 2.0) -> HostReport:
    """What moetop says of a case, with its companions."""
    texts: dict[str, Any] = {case["door"]: case["input"]}
    for door in ("log", "smi_log", "metrics"):
        if f"{door}_input" in case:
            texts[door] = case[f"{door}_input"]
    if "log" in texts:
        texts["log"] = ("server.log", texts["log"].split("\n"))
    return build_offline(**texts, window_s=window_s).report()


# ── small words for the table ────────────────────────────────────────────────────────────────────


def says(*parts: str) -> Check:
    return lambda r: all(part in text_of(r) for part in parts)


def never_says(*parts: str) -> Check:
    return lambda r: not any(part in text_of(r) for part in parts)


def has_no(*kinds: str) -> Check:
    """No finding of these kinds, not even as a hint."""
    return lambda r: not any(f.kind in kinds for f in r.findings)


def at_most_a_hint(*kinds: str) -> Check:
    return lambda r: all(f.severity == "info" for f in r.findings if f.kind in kinds)


def gpu(index: int, **wanted: Any) -> Check:
    """Figures of one GPU; a pair is a range."""

    def check(report: HostReport) -> bool:
        found = next(g for g in report.gpus if g.index == index)
        return all(_fits(getattr(found, key), value) for key, value in wanted.items())

    return check


def _fits(found: object, wanted: object) -> bool:
    if isinstance(wanted, tuple) and len(wanted) == 2 and isinstance(found, (int, float)):
        return bool(wanted[0] <= found <= wanted[1])
    return found == wanted


def every_gpu(count: int, **wanted: Any) -> Check:
    def check(report: HostReport) -> bool:
        return len(report.gpus) == count and all(gpu(g.index, **wanted)(report) for g in report.gpus)

    return check


def limits(index: int, *wanted: str) -> Check:
    return lambda r: {str(x) for x in next(g for g in r.gpus if g.index == index).limits} == set(wanted)


def absent(index: int, *keys: str) -> Check:
    """Absent, with a reason, never a number."""

    def check(report: HostReport) -> bool:
        found: GpuReport = next(g for g in report.gpus if g.index == index)
        return all(getattr(found, key) is None and found.absent.get(key) for key in keys)

    return check


def events(report: HostReport, kind: str) -> list[LogEvent]:
    return [e for s in report.servers for e in s.events if e.kind == kind] + [
        e for e in report.events if e.kind == kind
    ]


def counts(kind: str, lines: int) -> Check:
    """One event of the kind that stands for so many lines."""
    return lambda r: [e.count for e in events(r, kind)] == [lines]


def no_events(*kinds: str) -> Check:
    return lambda r: not any(events(r, kind) for kind in kinds)


def one(kind: str, **wanted: Any) -> Check:
    """At least one event of the kind with these fields."""
    return lambda r: any(all(e.fields.get(k) == v for k, v in wanted.items()) for e in events(r, kind))


def verdict(*wanted: str) -> Check:
    return lambda r: str(r.servers[0].tuning.verdict) in wanted


def phase(*wanted: str) -> Check:
    return lambda r: str(r.servers[0].phase) in wanted


def engine(wanted: str | None) -> Check:
    return lambda r: r.servers[0].engine == wanted


def summary(kind: str, *parts: str) -> Check:
    return lambda r: any(f.kind == kind and all(p in f.summary for p in parts) for f in r.findings)


def summary_never(kind: str, *parts: str) -> Check:
    return lambda r: not any(f.kind == kind and any(p in f.summary for p in parts) for f in r.findings)


def field_never_holds(kind: str, key: str, *parts: str) -> Check:
    return lambda r: not any(part in str(e.fields.get(key)) for e in events(r, kind) for part in parts)


# ── case -> checks ───────────────────────────────────────────────────────────────────────────────

CHECKS: dict[str, tuple[Check, ...]] = {
    "001": (
        summary("crashed", "PassManager::run failed"),
        summary_never("crashed", "config"),
        at_most_a_hint("untuned_kernels"),
        lambda r: len(events(r, "crash")) == 1,
    ),
    "002": (
        at_most_a_hint("untuned_kernels"),
        field_never_holds("moe_config_default", "path", "[", "]", "'"),
        verdict("not_tunable"),
    ),
    "003": (
        lambda r: len(events(r, "moe_config_default")) == 1,
        one("moe_config_default", block_shape=[128, 128], device_name="NVIDIA_H100_80GB_HBM3"),
        says("benchmark_moe.py", "e=16,n=1536"),
        summary("untuned_kernels", "worth trying"),
    ),
    "004": (no_events("moe_config_default"), one("moe_config_fallback", device_name="NVIDIA_H200")),
    "005": (
        lambda r: len({e.fields["path"] for e in events(r, "moe_config_default")}) == 2,
        field_never_holds("moe_config_default", "path", "you can create"),
        lambda r: all(e.fields["device_name"] == "NVIDIA_H200_NVL" for e in events(r, "moe_config_default")),
    ),
    "006": (
        lambda r: all("E" in e.fields for e in events(r, "moe_config_default")),
        one("gemm_config_default", N=576, K=7168),
    ),
    "008": (has_no("collective_hang"), phase("loading"), at_most_a_hint("untuned_kernels")),
    "009": (verdict("tuned"), lambda r: all(not e.ranks for e in events(r, "autotune_progress"))),
    "011": (has_no("crashed"), engine("vllm"), no_events("crash")),
    "013": (has_no("crashed"), lambda r: not verdict("tuned")(r), says("memory")),
    "014": (
        lambda r: not verdict("tuned")(r),
        lambda r: sum(f.kind == "untuned_kernels" for f in r.findings) == 1,
        counts("autotune_oom_fallback", 3),
    ),
    "016": (has_no("untuned_kernels", "collective_hang"), never_says("hang"), phase("tuning")),
    "018": (lambda r: not verdict("tuned")(r), phase("tuning")),
    "019": (no_events("autotune_cache_loaded"), one("autotune_cache_rejected")),
    "020": (counts("autotune_no_entries", 2),),
    "021": (verdict("tuned"), lambda r: all(e.t is None or 1766188800 < e.t < 1766275200 for e in events(r, "ready"))),
    "023": (summary("crashed", "IndexError: list index out of range"), summary("crashed", "during tuning")),
    "024": (
        no_events("autotune_start"),
        summary("crashed", "AttributeError"),
        lambda r: sum(f.kind == "crashed" for f in r.findings) == 1,
    ),
    "025": (summary_never("crashed", "reentrant"), says("not in what was read")),
    "027": (one("nccl_timeout", timeout_ms=600000), lambda r: len(events(r, "nccl_timeout")) == 1),
    "029": (no_events("autotune_start", "autotune_progress"), lambda r: r.servers[0].args.get("tp_size") != 8),
    "031": (no_events("moe_config_default", "moe_backend_selected"),),
    "032": (
        summary("crashed", "failed to start"),
        says("root cause stands earlier"),
        lambda r: events(r, "exit")[0].t is None,
    ),
    "034": (
        lambda r: "\\u003c" not in text_of(r) and "\x1b" not in text_of(r),
        one("weights_progress", done=8, total=16),
        lambda r: all(e.t is not None for e in events(r, "ready")),
    ),
    "036": (lambda r: not r.findings, one("monitoring_gap")),
    "037": (lambda r: "\x1b" not in str([e.fields for e in events(r, "moe_config_default")]),),
    "039": (one("moe_config_default", device_name="NVIDIA_A100-SXM4-80GB"),),
    "040": (has_no("untuned_kernels", "starvation_signature"), phase("ready")),
    "042": (summary("crashed", "RPC call to sample_tokens timed out"), summary_never("crashed", "EngineDeadError")),
    "043": (never_says("does not have native support", "no fp4"), says("marlin")),
    "045": (lambda r: len(events(r, "ready")) == 1, lambda r: r.servers[0].ready),
    "046": (
        has_no("crashed"),
        lambda r: len(r.servers[0].runs) == 2,
        at_most_a_hint("untuned_kernels"),
        lambda r: r.servers[0].args["moe_runner_backend"] == "flashinfer_cutlass",
    ),
    "048": (counts("xid", 3), never_says("rma", "replace the card", "return it"), summary("crashed", "TP5")),
    "049": (one("xid", code=31, pci="0000:70:00", pid=684430), summary("gpu_fault", "31")),
    "050": (summary("gpu_fault", "145/149"), summary_never("gpu_fault", "Xid 45 on")),
    "051": (summary("gpu_lost", "lost"), says("fallen off the bus")),
    "054": (says("550.76", "550.67", "reboot"),),
    "055": (has_no("untuned_kernels"), says("cuda graphs are off")),
    "056": (
        every_gpu(8, util_gpu_pct=100.0, power_pct=(54, 56), state="tensor_starved", confidence="inferred"),
        has_no("untuned_kernels"),
        summary_never("starvation_signature", "untuned"),
        says("power cap (no reason bit)", "all-reduce"),
    ),
    "057": (every_gpu(8, util_gpu_pct=(27, 29), power_pct=(22, 24)), has_no("untuned_kernels", "starvation_signature")),
    "059": (
        gpu(0, util_gpu_pct=100.0, memory_used_mib=4.0),
        has_no("untuned_kernels", "starvation_signature", "collective_hang"),
    ),
    "061": (
        gpu(0, util_gpu_pct=(94, 96), sm_clock_mhz=637.0, power_w=15.4, power_limit_w=None, power_pct=None),
        limits(0, "clock_low_unexplained"),
        has_no("untuned_kernels"),
        says("2,411"),
    ),
    "063": (
        gpu(0, power_pct=(99, 101)),
        limits(0, "sw_power_cap", "limit_under_default"),
        has_no("thermal_throttle", "untuned_kernels"),
        says("350 w"),
    ),
    "065": (gpu(0, power_pct=(99, 100), sm_clock_mhz=1582.0), limits(0, "sw_power_cap"), lambda r: not r.findings),
    "067": (gpu(0, power_pct=(60, 61)), limits(0, "sw_power_cap"), has_no("untuned_kernels", "starvation_signature")),
    "069": (
        gpu(0, util_gpu_pct=100.0, power_pct=(19, 21)),
        gpu(7, util_gpu_pct=0.0, memory_used_mib=(70000, 72000)),
        has_no("untuned_kernels"),
        phase("tuning"),
        says("tuning"),
    ),
    "071": (
        every_gpu(8, util_gpu_pct=100.0, power_pct=(18, 20), util_mem_pct=0.0),
        has_no("untuned_kernels", "starvation_signature", "collective_hang"),
    ),
    "072": (
        every_gpu(2, util_gpu_pct=97.0, util_mem_pct=8.0, power_w=(228, 231), power_limit_w=None, memory_temp_c=None),
        has_no("untuned_kernels"),
        says("gen4 x8 of gen4 x16"),
    ),
    "074": (
        gpu(0, power_w=312.441, state="unknown"),
        absent(0, "util_gpu_pct", "power_limit_w"),
        never_says("922337", "1.4e14", "idle:"),
    ),
    "076": (
        one("xid", code=62, pid=None),
        one("xid", code=45, gpu=3, root=False),
        lambda r: all(e.count == 1 for e in events(r, "xid")),
        summary("gpu_fault", "62"),
        never_says("45 errors", "45 records"),
    ),
    "078": (limits(0, "sw_power_cap", "sw_thermal"), gpu(0, temp_c=92.0, sm_clock_mhz=628.0), says("airflow")),
    "079": (
        every_gpu(2, util_gpu_pct=100.0, power_pct=(44, 46)),
        has_no("starvation_signature"),
        says("benchmark_moe.py", "32 running requests"),
        lambda r: r.findings[0].gpus == (0, 1),
    ),
    "080": (
        gpu(0, name="NVIDIA H200", power_w=115.0, power_limit_w=700.0, util_gpu_pct=0.0, mig=False, temp_c=33.0),
        gpu(0, memory_used_mib=124585.0, memory_total_mib=143771.0, ecc_uncorrected=0),
        gpu(1, power_w=115.0, util_gpu_pct=0.0),
    ),
    "082": (
        gpu(1, util_gpu_pct=0.0, power_w=None, power_limit_w=250.0, pci_bus_id="00008ED0:00:00.0", error=None),
        absent(1, "power_w"),
    ),
    "084": (
        gpu(0, util_gpu_pct=0.0, power_w=11.17, temp_c=35.0, memory_used_mib=None, memory_total_mib=None),
        lambda r: len(r.gpus) == 1,
    ),
    "085": (
        gpu(
            0, util_gpu_pct=100.0, power_w=228.82, power_limit_w=210.0, power_pct=(108, 110), power_limit_default_w=None
        ),
        gpu(1, util_gpu_pct=None, power_w=None, temp_c=54.0),
        gpu(2, util_gpu_pct=0.0, state="idle"),
        gpu(3, util_gpu_pct=None, sm_clock_mhz=None),
        gpu(4, util_gpu_pct=12.0, power_w=None, power_limit_w=350.0),
        lambda r: len(r.gpus) == 5,
    ),
    "087": (lambda r: not r.gpus, says("570.86", "reboot"), lambda r: r.headline != "idle"),
    "088": (
        gpu(0, pci_bus_id="0000:09:00.0", error="gpu_lost", state="unknown"),
        has_no("no_data"),
        says("xid 79", "reboot"),
    ),
    "091": (
        gpu(1, mig=True, util_gpu_pct=None, memory_used_mib=None, power_w=64.0, power_limit_w=400.0, state="unknown"),
        gpu(1, ecc_uncorrected=None),
        lambda r: any("14366 of 19968 MiB" in note and "28 SMs" in note for note in r.notes),
    ),
    "093": (lambda r: r.driver == "572.16", has_no("driver_mismatch"), gpu(0, util_gpu_pct=2.0, power_w=9.0)),
}


@pytest.mark.parametrize("number", sorted(DOORS))
def test_the_headline_of_a_case_is_right(number: str) -> None:
    case = DOORS[number]
    wanted = case["expect"]["headline"]
    allowed = set(wanted if isinstance(wanted, list) else [wanted])
    report = report_of(case)
    if not report.servers and allowed & SAME_WITHOUT_SERVER:
        allowed |= SAME_WITHOUT_SERVER
    assert report.headline in allowed, [f.summary for f in report.findings]


@pytest.mark.parametrize("number", sorted(DOORS))
def test_a_case_shows_its_figures_and_holds_its_must_not_list(number: str) -> None:
    report = report_of(DOORS[number])
    for place, check in enumerate(CHECKS[number]):
        assert check(report), f"check {place} of case {number}: {text_of(report)[:2000]}"


@pytest.mark.parametrize("number", sorted(DOORS))
def test_a_case_reports_the_same_for_any_window(number: str) -> None:
    case = DOORS[number]
    assert report_of(case, window_s=10.0).headline == report_of(case, window_s=0.0).headline


@pytest.mark.parametrize("number", sorted(DOORS))
def test_a_case_can_be_written_as_json(number: str) -> None:
    raw = msgspec.json.encode(report_of(DOORS[number]))
    assert msgspec.json.decode(raw, type=HostReport).name == "offline"


def test_every_case_with_a_door_has_checks() -> None:
    assert set(CHECKS) == set(DOORS)


# ── cases without a door: the same text where a live path or triage would meet it ────────────────


def pasted(number: str) -> HostReport:
    return build_offline(smi_log=LOADED[number]["input"]).report()


def test_a_fan_error_loses_no_row_and_is_no_low_power() -> None:
    report = pasted("083")
    assert [(g.index, g.power_w, g.power_limit_w, g.util_gpu_pct) for g in report.gpus] == [
        (0, None, None, 0.0),
        (1, 9.0, 250.0, 0.0),
    ]
    assert report.headline == "idle"


def test_a_gpu_that_requires_a_reset_is_a_fault_with_its_memory_still_taken() -> None:
    report = pasted("090")
    only = report.gpus[0]
    assert (report.headline, only.error, only.memory_used_mib, only.temp_c) == (
        "gpu_fault",
        "reset_required",
        58222.0,
        None,
    )
    assert only.state == "unknown"


def test_pmon_dashes_make_no_process() -> None:
    first, second = pasted("095").gpus
    assert [(p.pid, p.name) for p in first.processes or ()] == [(1647159, "VLLM::Worker_TP")]
    assert second.processes == ()


def test_a_banner_is_no_gpu_data() -> None:
    report = pasted("104")
    assert (report.headline, report.gpus) == ("no_data", ())
    assert "/usr/lib/wsl/lib/nvidia-smi" in text_of(report)


def test_a_server_args_line_with_the_word_autotune_is_no_tuning_event() -> None:
    report = build_offline(log=("sglang.log", LOADED["096"]["input"].split("\n"))).report()
    server = report.servers[0]
    assert report.headline == "no_finding"
    assert (server.args["moe_runner_backend"], server.args["tp_size"]) == ("flashinfer_cutlass", 8)
    assert no_events("autotune_start", "autotune_end", "warmup")(report)


def test_tuning_switched_off_is_said_so() -> None:
    report = build_offline(log=("vllm.log", LOADED["098"]["input"].split("\n"))).report()
    assert report.headline == "tuning_off"
    assert "bug" not in text_of(report)


def test_a_crash_is_told_once_without_the_head_of_its_line_and_at_a_time_people_read() -> None:
    report = build_offline(log=("torch.log", LOADED["027"]["input"].split("\n"))).report()
    (crash,) = (finding for finding in report.findings if finding.kind == "crashed")
    assert crash.summary.startswith("torch.log crashed: rank 4: Watchdog caught collective operation timeout")
    assert crash.evidence[0].endswith(" at 02-10 02:06:33.321131395")
