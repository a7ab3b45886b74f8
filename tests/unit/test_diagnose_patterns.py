"""Several GPUs together, and what holds single ones back: findings from figures alone."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from moetop.diagnose.fleet import compare_hosts
from moetop.diagnose.headline import fleet_headline
from moetop.model import (
    Calm,
    Confidence,
    GpuProcess,
    GpuReport,
    Gpus,
    HostReport,
    HostStatus,
    Link,
    LinkPhase,
    Severity,
    Status,
)
from tests.unit.diagnose_kit import SIGNATURE, SPIN, finding, gpm, host, sample, standing, text_of

IDLE: dict[str, Any] = {"util_gpu_pct": 0.0, "util_mem_pct": 0.0, "power_w": 120.0}


# ── limits ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ({"clock_event_reasons": 0x24, "power_w": 698.0}, "thermal_throttle"),
        ({"clock_event_reasons": 0x40}, "thermal_throttle"),
        ({"clock_event_reasons": 0x48}, "thermal_throttle"),
        ({"clock_event_reasons": 0x8}, "hw_slowdown"),
        ({"clock_event_reasons": 0x80}, "hw_slowdown"),
        ({"sm_clock_mhz": 600.0}, "clock_stuck_low"),
        ({"clock_event_reasons": 0x4, "power_w": 400.0}, "power_capped"),
        ({"clock_event_reasons": 0x4, "power_limit_w": 500.0, "power_w": 499.0}, "power_capped"),
        ({"power_limit_w": 500.0, "power_w": 300.0, "util_mem_pct": 97.0}, "power_limit_low"),
    ],
)
def test_a_limit_becomes_its_finding(values: dict[str, Any], kind: str) -> None:
    assert standing(host(values).report()) == [kind]


@pytest.mark.parametrize(
    "values",
    [
        {"clock_event_reasons": 0x4, "power_w": 697.0},  # a power cap at the default limit is normal
        {"clock_event_reasons": 0x1},
        {"clock_event_reasons": 0x2},
        {"sm_clock_mhz": 600.0, "clock_event_reasons": 0x2},
        {"sm_clock_mhz": 600.0, "clock_event_reasons": None},
        {"sm_clock_mhz": 600.0, "util_gpu_pct": 3.0, "power_w": 120.0},
        {"power_w": 750.0},
    ],
    ids=str,
)
def test_what_is_normal_is_no_finding(values: dict[str, Any]) -> None:
    assert standing(host(values).report()) == []


def test_all_limits_stand_beside_the_state() -> None:
    gpu = host({"clock_event_reasons": 0x1F6, "power_limit_w": 500.0}).report().gpus[0]
    assert [str(limit) for limit in gpu.limits] == [
        "hw_thermal",
        "sw_thermal",
        "hw_power_brake",
        "sw_power_cap",
        "sync_boost",
        "apps_clock",
        "display_clock",
        "limit_under_default",
    ]


def test_the_remedy_names_the_default_limit_ready_to_copy() -> None:
    report = host({"power_limit_w": 500.0, "power_w": 300.0}).report()
    assert "$ nvidia-smi -pl 700" in finding(report, "power_limit_low").remedy


def test_a_limit_with_an_unknown_default_is_no_finding() -> None:
    values = {"power_limit_w": 315.0, "power_w": 314.0, "clock_event_reasons": 0x4}
    assert standing(host(values, infos={"power_limit_default_w": None}).report()) == []


# ── spinning ─────────────────────────────────────────────────────────────────────────────────────


def test_ranks_that_spin_with_no_counter_look_like_a_hang_and_the_words_stay_careful() -> None:
    report = host(SPIN, SPIN).report()
    found = finding(report, "collective_hang")
    assert (report.headline, found.severity, found.confidence) == ("collective_hang", "critical", "inferred")
    assert "looks like" in found.summary
    assert any(line.startswith("Not known:") and "idle spinning" in line for line in found.evidence)


def test_a_counter_of_zero_requests_makes_it_idle_spin() -> None:
    server = {"metrics": {"running": 0.0, "waiting": 0.0}}
    assert standing(host(SPIN, SPIN, server=server).report()) == ["idle_spin"]


def test_requests_that_run_without_a_token_hang() -> None:
    server = {"metrics": {"running": 4.0, "waiting": 0.0, "generation_tokens_s": 0.0}}
    report = host(SPIN, SPIN, server=server).report()
    assert report.headline == "collective_hang"
    assert any("4 requests running, 0 tokens/s" in line for line in finding(report, "collective_hang").evidence)


def test_requests_that_produce_tokens_are_no_hang() -> None:
    server = {"metrics": {"running": 4.0, "waiting": 0.0, "generation_tokens_s": 90.0}}
    assert standing(host(SPIN, SPIN, server=server).report()) == []


def test_one_gpu_alone_cannot_show_a_hang() -> None:
    assert standing(host(SPIN).report()) == []


def test_a_spinning_gpu_beside_empty_ones_is_no_hang() -> None:
    assert standing(host(SPIN, {**IDLE, "memory_used_mib": 4.0}).report()) == []


def test_one_rank_spins_while_the_others_that_hold_the_model_do_nothing() -> None:
    report = host(SPIN, IDLE, IDLE).report()
    assert report.headline == "collective_hang"
    assert finding(report, "collective_hang").gpus == (0,)


def test_one_rank_that_works_while_the_others_wait_is_a_straggler_not_a_hang() -> None:
    report = host({"gpm": gpm(tensor_pct=80.0)}, SPIN, SPIN).report()
    assert standing(report) == ["straggler"]
    assert finding(report, "straggler").gpus == (0,)


def test_busy_with_an_empty_process_list_is_a_ghost_in_careful_words() -> None:
    report = host({**SPIN, "processes": ()}).report()
    found = finding(report, "ghost_busy")
    assert (report.headline, found.confidence) == ("ghost_busy", Confidence.INFERRED)
    assert any("another PID namespace or container" in line for line in found.evidence)


def test_a_process_on_the_gpu_or_a_model_in_its_memory_is_no_ghost() -> None:
    listed = (GpuProcess(pid=7, name="python3", memory_used_mib=70000.0),)
    assert standing(host({**SPIN, "processes": listed}).report()) == []
    assert standing(host(SPIN).report()) == []


def test_real_work_by_an_unseen_process_is_no_ghost() -> None:
    assert standing(host({"gpm": gpm(tensor_pct=80.0), "processes": ()}).report()) == []


def test_dead_counters_and_unknown_limits_prove_no_spinning() -> None:
    gb10 = {"name": "NVIDIA GB10"}
    assert standing(host(SPIN, SPIN, infos=gb10).report()) == []
    assert standing(host({**SPIN, "power_limit_w": None}, {**SPIN, "power_limit_w": None}).report()) == []


def test_gpm_that_shows_work_beats_a_zero_of_memory_utilization() -> None:
    working = {**SPIN, "gpm": gpm(sm_active_pct=90.0, tensor_pct=5.0, dram_pct=85.0)}
    assert standing(host(working, working).report()) == []


@pytest.mark.parametrize("moving", [{"nvlink_tx_mib_s": 1800.0}, {"pcie_tx_mib_s": 2500.0}], ids=str)
def test_small_collectives_without_a_pause_are_no_hang(moving: dict[str, float]) -> None:
    talking = {**SPIN, "gpm": gpm(sm_active_pct=3.0, tensor_pct=0.0, dram_pct=0.0, **moving)}
    assert standing(host(talking, talking).report()) == []


def test_an_upload_is_no_spinning() -> None:
    loading = {**SPIN, "gpm": gpm(sm_active_pct=0.0, tensor_pct=0.0, dram_pct=1.0, pcie_rx_mib_s=50000.0)}
    assert standing(host(loading, loading).report()) == []


# ── links and stragglers ─────────────────────────────────────────────────────────────────────────

FULL_LINK: dict[str, Any] = {
    "util_mem_pct": 8.0,
    "pcie_gen": 4,
    "pcie_width": 8,
    "pcie_rx_mib_s": 9200.0,
    "pcie_tx_mib_s": 9100.0,
}


def test_a_full_link_beside_idle_memory_is_comms_bound_and_names_the_narrow_link() -> None:
    report = host(FULL_LINK, infos={"pcie_gen_max": 4, "pcie_width_max": 16}).report()
    assert report.headline == "comms_bound"
    assert "gen4 x8 of gen4 x16" in text_of(report)


def test_an_upload_loads_one_direction_and_is_not_comms_bound() -> None:
    assert standing(host({**FULL_LINK, "pcie_tx_mib_s": 300.0}).report()) == []


def test_a_link_of_unknown_width_is_not_judged() -> None:
    assert standing(host({**FULL_LINK, "pcie_width": None}).report()) == []


def test_a_narrow_link_alone_is_a_hint_under_load_and_nothing_when_idle() -> None:
    infos = {"pcie_gen_max": 5, "pcie_width_max": 16}
    busy = host({"pcie_gen": 5, "pcie_width": 8}, infos=infos).report()
    assert finding(busy, "comms_bound").severity is Severity.INFO
    assert busy.headline == Calm.HEALTHY
    assert host({**IDLE, "pcie_gen": 1, "pcie_width": 8}, infos=infos).report().findings == ()


def test_a_full_link_of_one_gpu_alone_may_be_a_cache_that_moves() -> None:
    activity = gpm(sm_active_pct=20.0, tensor_pct=1.0, dram_pct=10.0, pcie_rx_mib_s=30000.0, pcie_tx_mib_s=29000.0)
    busy = {"gpm": activity, "pcie_gen": 5, "pcie_width": 16}
    alone, pair = host(busy).report(), host(busy, busy).report()
    assert standing(alone) == standing(pair) == ["comms_bound"]
    assert "kv cache to host memory" in text_of(alone)
    assert "kv cache to host memory" not in text_of(pair)


def test_ranks_of_a_server_that_still_tunes_are_not_meant_to_keep_step() -> None:
    link = {"nvlink_rx_mib_s": 20000.0, "nvlink_tx_mib_s": 20000.0}
    first = {"gpm": gpm(sm_active_pct=20.0, tensor_pct=5.0, dram_pct=3.0, **link), "util_mem_pct": 5.0}
    second = {"gpm": gpm(sm_active_pct=80.0, tensor_pct=5.0, dram_pct=50.0, **link)}
    line = "[2026-02-19 01:05:00 TP0] Running FlashInfer autotune with cache: /c/rank_tp0_pp0_dp0.json"
    assert "straggler" in standing(host(first, second, server={}).report())
    assert "straggler" not in standing(host(first, second, server={}, log=(line,)).report())


def test_two_gpus_cannot_show_which_one_differs() -> None:
    assert standing(host({"power_w": 500.0}, {"power_w": 300.0}).report()) == []


def test_one_of_four_equals_that_draws_less_is_suspected() -> None:
    good = {"power_w": 500.0}
    report = host(good, good, {"power_w": 350.0}, good).report()
    found = finding(report, "straggler")
    assert (found.gpus, found.confidence) == ((2,), Confidence.INFERRED)
    assert "may hold its peers back" in found.summary


def test_equals_that_all_differ_show_nothing() -> None:
    powers = ({"power_w": p} for p in (500.0, 420.0, 350.0, 280.0))
    assert standing(host(*powers).report()) == []


# ── host and fleet ───────────────────────────────────────────────────────────────────────────────


def test_a_lost_link_is_unreachable_with_the_reason_and_the_advice() -> None:
    evidence = host({})
    evidence.apply_link(Link(phase=LinkPhase.LOST, reason="connection refused", advice="start sshd", code="refused"))
    report = evidence.report()
    assert (report.headline, report.status, report.error) == (
        "unreachable",
        HostStatus.UNREACHABLE,
        "connection refused",
    )
    assert finding(report, "unreachable").remedy == ("start sshd",)


def test_a_try_to_reach_a_lost_host_again_does_not_take_back_that_it_is_lost() -> None:
    evidence = host({})
    evidence.apply_link(Link(phase=LinkPhase.CONNECTING, reason="connection refused", code="refused", attempt=3))
    report = evidence.report()
    assert (report.headline, report.status) == ("unreachable", HostStatus.UNREACHABLE)
    evidence.apply_link(Link(phase=LinkPhase.CONNECTING))
    first = evidence.report()
    assert ([f.kind for f in first.findings], first.status) == ([], HostStatus.DEGRADED)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("driver_mismatch", "driver_mismatch"),
        ("no_driver", "no_data"),
        ("no_nvml", "no_data"),
        ("no_gpu", "no_data"),
        ("smi_missing", "no_data"),
        ("smi_failed", "no_data"),
        ("smi_hang", "no_data"),
        ("not_permitted", "no_data"),
        ("something_new", "no_data"),
    ],
)
def test_a_host_whose_gpus_cannot_be_read_says_why(code: str, kind: str) -> None:
    evidence = host()
    evidence.apply(Status(t=1.0, code=code, message="in words", level="error", fatal=True))
    report = evidence.report()
    assert (report.headline, report.status, report.error) == (kind, HostStatus.UNREACHABLE, "in words")


def test_values_that_come_in_again_end_the_trouble() -> None:
    evidence = host({})
    evidence.apply(Status(t=5.0, code="smi_failed", message="once", level="error"))
    assert standing(evidence.report()) == []


def test_a_condition_ends_when_its_code_comes_again_as_information() -> None:
    evidence = host({})
    evidence.apply(Status(t=5.0, code="fallback_smi", message="less detail", level="warning"))
    assert (evidence.report().status, evidence.report().notes) == (HostStatus.DEGRADED, ("less detail",))
    evidence.apply(Status(t=6.0, code="fallback_smi", message="NVML answers again", level="info"))
    assert (evidence.report().status, evidence.report().notes) == (HostStatus.OK, ())


def condition(code: str, gpu: int = 1, level: str = "error", t: float = 5.0, **detail: object) -> Status:
    return Status(t=t, code=code, message=f"GPU {gpu} in words", level=level, detail={"gpu": gpu, **detail})


def test_a_gpu_that_answers_again_is_lost_no_longer() -> None:
    evidence = host({}, {})
    evidence.apply(condition("gpu_lost"))
    assert evidence.report().headline == "gpu_lost"
    evidence.apply(condition("gpu_lost", level="info"))
    report = evidence.report()
    assert (standing(report), report.status, report.notes) == ([], HostStatus.OK, ())


def test_a_status_of_level_info_alone_is_no_condition() -> None:
    evidence = host({}, {})
    for code in ("gpu_lost", "stuck_gpu", "not_permitted", "smi_failed"):
        evidence.apply(condition(code, level="info"))
    report = evidence.report()
    assert (standing(report), report.status, report.notes) == ([], HostStatus.OK, ())


def test_a_gpu_that_was_stuck_then_lost_and_answers_again_leaves_nothing_behind() -> None:
    evidence = host({}, {})
    evidence.apply(condition("stuck_gpu"))
    evidence.apply(condition("gpu_lost"))
    assert evidence.report().notes == ("GPU 1 in words",)
    evidence.apply(condition("gpu_lost", level="info"))
    assert (evidence.report().status, evidence.report().notes) == (HostStatus.OK, ())


def test_a_gpu_that_wants_a_reset_is_not_called_lost() -> None:
    evidence = host({}, {"error": "reset_required"})
    evidence.apply(condition("gpu_lost", error="reset_required"))
    assert standing(evidence.report()) == ["gpu_fault"]


@pytest.mark.parametrize("code", ["not_permitted", "stuck_gpu", "smi_hang", "something_new"])
@pytest.mark.parametrize("before", [(), ("gpu_lost",)], ids=["alone", "after-a-lost-gpu"])
def test_a_fatal_status_is_no_data_though_values_came_before_it(code: str, before: tuple[str, ...]) -> None:
    evidence = host({}, {})
    for earlier in before:
        evidence.apply(condition(earlier, t=11.0))
    evidence.apply(Status(t=11.5, code=code, message="in words", level="error", fatal=True))
    report = evidence.report()
    assert (report.headline, report.status) == ("no_data", HostStatus.UNREACHABLE)
    evidence.apply(Gpus(t=13.0, gpus=(sample(0), sample(1))))
    assert "no_data" not in standing(evidence.report())


def test_readings_that_nobody_took_are_counted_in_a_note() -> None:
    evidence = host({})
    assert evidence.report().notes == ()
    evidence.apply(Gpus(t=12.0, gpus=(sample(0),), dropped=3))
    assert "3 readings lost on the way" in evidence.report().notes[0]


def test_a_lost_gpu_keeps_its_row_and_the_others_their_states() -> None:
    report = host({"gpm": gpm(tensor_pct=80.0)}, {"error": "gpu_lost"}).report()
    assert report.headline == "gpu_lost"
    assert [str(g.state) for g in report.gpus] == ["tensor_busy", "unknown"]
    assert finding(report, "gpu_lost").gpus == (1,)


def test_a_gpu_that_asks_for_a_reset_is_a_fault_and_not_idle() -> None:
    gpu = {"error": "reset_required", "util_gpu_pct": None, "memory_used_mib": 58222.0}
    report = host(gpu).report()
    assert (report.headline, report.gpus[0].memory_used_mib) == ("gpu_fault", 58222.0)
    assert "$ nvidia-smi -r -i 0" in finding(report, "gpu_fault").remedy


def test_gpus_in_different_states_are_mixed() -> None:
    assert host(IDLE, {"gpm": gpm(tensor_pct=80.0)}).report().headline == Calm.MIXED


def test_idle_working_and_empty_hosts_have_their_words() -> None:
    assert host(IDLE).report().headline == Calm.IDLE
    assert host({"gpm": gpm(tensor_pct=80.0)}).report().headline == Calm.HEALTHY
    assert host().report().headline == Calm.NO_FINDING


def test_measured_starvation_without_a_server_has_an_open_cause() -> None:
    report = host({"gpm": gpm(sm_active_pct=99.0, tensor_pct=9.0, dram_pct=29.0), "power_w": 693.0}).report()
    found = finding(report, "tensor_starved")
    assert (report.headline, found.confidence) == ("tensor_starved", Confidence.MEASURED)
    assert "the cause is open" in found.summary


def test_the_signature_is_an_inference_and_says_so() -> None:
    report = host(SIGNATURE, SIGNATURE).report()
    found = finding(report, "starvation_signature")
    assert found.confidence is Confidence.INFERRED
    assert "untuned" not in found.summary
    assert any("an inference, not a measurement" in line for line in found.evidence)
    assert "$ nvidia-smi topo -m" in found.remedy


def host_report(host_name: str, headline: str = "healthy", power_w: float = 38.5, **gpu: Any) -> HostReport:
    values: dict[str, Any] = {"util_gpu_pct": 96.0, "sm_clock_mhz": 2180.0, "name": "NVIDIA GB10"}
    return HostReport(
        name=host_name, headline=headline, gpus=(GpuReport(index=0, power_w=power_w, **{**values, **gpu}),)
    )


def test_one_host_of_a_fleet_that_draws_less_at_the_same_load_is_suspected_alone() -> None:
    fleet = [
        host_report("node-1", power_w=38.9, sm_clock_mhz=2184.0),
        host_report("node-2", power_w=38.1, sm_clock_mhz=2177.0),
        host_report("node-3", power_w=27.4, sm_clock_mhz=2190.0),
        host_report("node-4", power_w=39.3, sm_clock_mhz=2164.0, util_gpu_pct=95.0),
    ]
    compared = compare_hosts(fleet)
    assert [r.headline for r in compared] == ["healthy", "healthy", "straggler", "healthy"]
    assert "throttl" not in text_of(compared[2])
    assert fleet_headline(compared) == "straggler"


def test_a_machine_under_two_names_is_told() -> None:
    fleet = [host_report("a", uuid="GPU-1"), host_report("b", uuid="GPU-2"), host_report("alias\x1b[2J", uuid="GPU-1")]
    compared = compare_hosts(fleet)
    assert compared[:2] == tuple(fleet[:2])
    assert compared[2].notes == ("its GPUs are those of a: one machine under two names, counted twice",)


def test_hosts_with_different_gpus_or_models_are_no_equals() -> None:
    fleet = [host_report("a"), host_report("b"), host_report("c", power_w=20.0, name="NVIDIA H200")]
    assert compare_hosts(fleet) == tuple(fleet)


def test_one_hosts_trouble_heads_the_fleet_and_hides_no_other_host() -> None:
    bad = host_report("b")
    evidence = host()
    evidence.apply(Status(t=1.0, code="driver_mismatch", message="m", level="error", fatal=True))
    good, broken = host_report("a"), msgspec.structs.replace(evidence.report(), name="b")
    assert fleet_headline([good, broken]) == "driver_mismatch"
    assert fleet_headline([good, bad]) == "healthy"
    assert fleet_headline([good, host_report("c", "idle")]) == "mixed"
    assert fleet_headline([]) == "no_finding"
