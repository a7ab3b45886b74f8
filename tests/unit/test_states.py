"""What a GPU is said to do: recordings, single values absent, rates, gaps, steadiness."""

from __future__ import annotations

import math
import statistics
from pathlib import Path

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from moetop.diagnose.host import HostEvidence
from moetop.diagnose.states import Decision, GpuContext, judge_gpu
from moetop.diagnose.window import GpuWindow, median
from moetop.model import AnyFrame, Confidence, Gpm, GpuReport, Gpus, GpuSample, GpuState, Hello
from tests.unit.diagnose_kit import GOOD_GPM, SIGNATURE, SPIN, gpm, host, info, sample, without_gpm

RECORDINGS = Path(__file__).parent.parent / "data" / "recordings"
EXPECTED: dict[str, str] = {
    name: row["state"] for name, row in yaml.safe_load((RECORDINGS / "expected.yaml").read_text()).items()
}
DECODE = msgspec.json.Decoder(AnyFrame).decode


def frames(name: str) -> list[AnyFrame]:
    return [DECODE(line) for line in (RECORDINGS / f"{name}.jsonl").read_text().splitlines()]


def states(name: str, *, window_s: float = 10.0, strip: bool = False, every: int = 1) -> list[GpuReport]:
    """The GPU's report after every sample of a recording."""
    evidence = HostEvidence("h", window_s)
    seen = []
    for place, frame in enumerate(frames(name)):
        if isinstance(frame, Gpus):
            if place % every:
                continue
            evidence.apply(without_gpm(frame) if strip else frame)
            seen.append(evidence.report().gpus[0])
        else:
            evidence.apply(frame)
    return seen


def judge(**context: object) -> GpuReport:
    """One GPU from one sample; `gpm` and sample values as keywords."""
    known = context.pop("info", info())
    ctx = GpuContext(running=context.pop("running", None), previous=context.pop("previous", None))  # type: ignore[arg-type]
    return judge_gpu(known, [sample(**context)], ctx)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_every_recording_ends_in_its_state_as_measured(name: str) -> None:
    last = states(name)[-1]
    assert (last.state, last.confidence) == (EXPECTED[name], Confidence.MEASURED)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_no_recording_ever_shows_a_wrong_measured_state(name: str) -> None:
    for report in states(name, window_s=2.0):
        if report.confidence is Confidence.MEASURED:
            assert report.state == EXPECTED[name]


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_with_gpm_stripped_a_recording_is_right_or_unknown_and_never_measured(name: str) -> None:
    for report in states(name, strip=True):
        assert report.state in (EXPECTED[name], GpuState.UNKNOWN)
        assert report.confidence is Confidence.INFERRED


def test_an_untuned_kernel_at_the_power_limit_cannot_be_seen_without_gpm() -> None:
    assert states("h200-moe_untuned", strip=True)[-1].state is GpuState.UNKNOWN


@pytest.mark.parametrize("every", [2, 5])
@pytest.mark.parametrize("name", ["h200-moe_untuned", "h200-spin_1block", "h200-dense_gemm"])
def test_a_lower_sampling_rate_gives_the_same_state(name: str, every: int) -> None:
    assert states(name, every=every)[-1].state == EXPECTED[name]


@pytest.mark.parametrize("interval_s", [0.1, 1.0, 5.0])
def test_rates_from_a_fifth_to_ten_a_second_work(interval_s: float) -> None:
    evidence = HostEvidence("h", 10.0)
    evidence.apply(Hello(t=0.0, gpus=(info(),)))
    for k in range(150):
        evidence.apply(Gpus(t=k * interval_s, gpus=(sample(gpm=gpm(tensor_pct=9.0, dram_pct=29.0)),)))
    assert evidence.report().gpus[0].state is GpuState.TENSOR_STARVED
    assert evidence.report(149 * interval_s + 0.9 * interval_s).gpus[0].state is GpuState.TENSOR_STARVED


def test_a_window_of_zero_judges_one_sample_and_infers() -> None:
    evidence = host({**SIGNATURE}, window_s=0.0, seconds=1)
    gpu = evidence.report().gpus[0]
    assert (gpu.state, gpu.confidence) == (GpuState.TENSOR_STARVED, Confidence.INFERRED)
    assert gpu.gpm is None


@pytest.mark.parametrize("first", sorted(EXPECTED))
def test_between_two_kinds_of_work_no_third_is_said(first: str) -> None:
    """While the window holds both, medians of the two look like a third kind: that must not be said."""
    for second in sorted(set(EXPECTED) - {first}):
        evidence = HostEvidence("h", 10.0)
        end = 0.0
        for frame in frames(first):
            evidence.apply(frame)
            end = frame.t
        for frame in frames(second):
            if isinstance(frame, Gpus):
                evidence.apply(msgspec.structs.replace(frame, t=frame.t + end + 1.0))
                assert evidence.report().gpus[0].state in (EXPECTED[first], EXPECTED[second], "unknown")
        assert evidence.report().gpus[0].state == EXPECTED[second]


def test_a_state_decided_by_most_samples_says_so() -> None:
    evidence = host(
        {"util_gpu_pct": 0.0, "power_w": 120.0, "gpm": gpm(sm_active_pct=0.0, tensor_pct=0.0, dram_pct=0.0)}
    )
    for t in range(12, 17):
        evidence.apply(Gpus(t=float(t), gpus=(sample(gpm=gpm(tensor_pct=90.0, dram_pct=20.0)),)))
    gpu = evidence.report().gpus[0]
    assert gpu.state is GpuState.TENSOR_BUSY
    assert any("change of work" in line for line in gpu.evidence)


def test_many_kinds_of_work_in_one_window_are_unknown() -> None:
    evidence = host()
    kinds = (
        {"gpm": gpm(tensor_pct=90.0, dram_pct=20.0)},
        {"gpm": gpm(tensor_pct=3.0, dram_pct=90.0)},
        {"gpm": gpm(sm_active_pct=10.0, tensor_pct=1.0, dram_pct=1.0)},
        {"gpm": gpm(tensor_pct=0.5, dram_pct=10.0, fp32_pct=40.0)},
    )
    evidence.apply(Hello(t=0.0, gpus=(info(),)))
    for t in range(8):
        evidence.apply(Gpus(t=float(t), gpus=(sample(**kinds[t % 4]),)))
    assert evidence.report().gpus[0].state is GpuState.UNKNOWN


# ── the signature ────────────────────────────────────────────────────────────────────────────────


def test_the_full_signature_is_inferred_starvation() -> None:
    report = judge(**SIGNATURE)
    assert (report.state, report.confidence) == (GpuState.TENSOR_STARVED, Confidence.INFERRED)


@pytest.mark.parametrize(
    "spoiled",
    [
        {"clock_event_reasons": 0x4},
        {"clock_event_reasons": 0x20},
        {"clock_event_reasons": 0x8},
        {"clock_event_reasons": 0x80},
        {"util_gpu_pct": 90.0},
        {"util_mem_pct": None},
        {"power_w": None},
        {"power_limit_w": None},
        {"sm_clock_mhz": 900.0},
        {"running": 1.0},
        {"running": 0.0},
    ],
    ids=lambda spoiled: "-".join(f"{k}={v}" for k, v in spoiled.items()),
)
def test_one_missing_part_of_the_signature_leaves_the_state_unknown(spoiled: dict[str, object]) -> None:
    assert judge(**{**SIGNATURE, **spoiled}).state is GpuState.UNKNOWN


def test_a_clock_without_a_known_maximum_passes() -> None:
    assert judge(info=info(sm_clock_max_mhz=None), **SIGNATURE).state is GpuState.TENSOR_STARVED


def test_without_reasons_and_without_a_clock_to_compare_a_cap_cannot_be_ruled_out() -> None:
    report = judge(info=info(sm_clock_max_mhz=None), clock_event_reasons=None, **SIGNATURE)
    assert report.state is GpuState.UNKNOWN
    assert any("cap cannot be ruled out" in line for line in report.evidence)


def test_before_the_first_activity_values_of_a_card_that_has_them_nothing_is_called_starved() -> None:
    evidence = HostEvidence("h", 10.0)
    evidence.apply(Hello(t=0.0, gpus=(info(gpm=True),)))
    evidence.apply(Gpus(t=0.0, gpus=(sample(**SIGNATURE),)))
    assert evidence.report().gpus[0].state is GpuState.UNKNOWN
    evidence.apply(Gpus(t=1.0, gpus=(sample(**SIGNATURE),)))
    assert evidence.report().gpus[0].state is GpuState.TENSOR_STARVED


def test_the_gpu_idle_bit_is_no_limit() -> None:
    report = judge(clock_event_reasons=0x1, **SIGNATURE)
    assert report.state is GpuState.TENSOR_STARVED
    assert report.limits == ()


# ── absent values ────────────────────────────────────────────────────────────────────────────────


def test_no_sample_at_all_is_unknown() -> None:
    report = judge_gpu(info(), [], GpuContext())
    assert report.state is GpuState.UNKNOWN
    assert report.evidence == ("Not known: no sample yet",)


@pytest.mark.parametrize("missing", ["dram_pct", "tensor_pct"])
def test_a_gpm_value_that_would_decide_leaves_the_state_open(missing: str) -> None:
    values = {**GOOD_GPM, "tensor_pct": 9.0, "dram_pct": 29.0, missing: None}
    report = judge(gpm=Gpm(**values), power_w=693.0)
    assert report.state is GpuState.UNKNOWN
    assert any("leave open" in line for line in report.evidence)


def test_a_gpm_value_that_does_not_decide_is_not_needed() -> None:
    assert judge(gpm=gpm(tensor_pct=None, dram_pct=90.0)).state is GpuState.MEMORY_BOUND
    assert judge(gpm=gpm(tensor_pct=None, sm_active_pct=40.0, dram_pct=10.0)).state is GpuState.UNKNOWN
    assert judge(gpm=gpm(tensor_pct=9.0, dram_pct=29.0, sm_active_pct=99.0, fp32_pct=None)).state == "tensor_starved"


def test_a_gpm_with_no_deciding_value_is_no_measurement() -> None:
    report = judge(gpm=Gpm(pcie_rx_mib_s=9000.0, pcie_tx_mib_s=9000.0), **SIGNATURE)
    assert (report.state, report.confidence) == (GpuState.TENSOR_STARVED, Confidence.INFERRED)


def test_what_is_inferred_never_contradicts_what_was_measured() -> None:
    """A partial GPM that rules starvation out beats the signature."""
    partial = Gpm(sm_active_pct=30.0, tensor_pct=None, dram_pct=10.0, pcie_rx_mib_s=1.0, pcie_tx_mib_s=1.0)
    assert judge(gpm=partial, **SIGNATURE).state is GpuState.UNKNOWN


def test_under_mig_utilization_is_absent_and_activity_decides_where_it_can() -> None:
    mig = info(mig=True)
    absent = {"util_gpu_pct": None, "util_mem_pct": None}
    assert judge(info=mig, **absent).state is GpuState.UNKNOWN
    assert (
        judge(info=mig, gpm=gpm(sm_active_pct=95.0, tensor_pct=9.0, dram_pct=20.0), **absent).state == "tensor_starved"
    )
    assert judge(info=mig, gpm=gpm(sm_active_pct=0.0, tensor_pct=0.0, dram_pct=0.0), **absent).state == "idle"
    assert judge(info=mig, gpm=gpm(sm_active_pct=40.0, tensor_pct=9.0), **absent).state is GpuState.UNKNOWN


def test_unified_memory_and_no_power_limit_show_as_absent_not_as_zero() -> None:
    report = judge(power_limit_w=None, memory_used_mib=None, util_gpu_pct=93.0, util_mem_pct=0.0)
    assert report.state is GpuState.UNKNOWN
    assert report.power_pct is None
    assert report.memory_used_mib is None


def test_a_draw_above_the_limit_is_not_clipped() -> None:
    assert judge(power_w=228.82, power_limit_w=210.0).power_pct == pytest.approx(108.96, abs=0.01)


def test_a_power_limit_of_zero_gives_no_percentage() -> None:
    assert judge(power_limit_w=0.0).power_pct is None


def test_utilization_zero_beside_busy_sms_is_a_contradiction_not_idle() -> None:
    report = judge(util_gpu_pct=0.0, gpm=gpm())
    assert report.state is GpuState.UNKNOWN
    assert any("contradict" in line for line in report.evidence)


WRONG = {"sm_active_pct": 0.17, "tensor_pct": 0.02, "dram_pct": 21.37, "pcie_rx_mib_s": 10.83}
"""What a process whose GPM values were all wrong read beside an untuned MoE kernel on an H200 at 575 W."""


def test_activity_that_the_power_drawn_contradicts_is_not_measured() -> None:
    report = judge(power_w=575.0, util_gpu_pct=99.0, gpm=gpm(**WRONG))
    assert report.confidence is not Confidence.MEASURED
    assert report.gpm is None
    assert any("the power drawn contradicts GPM" in line for line in report.evidence)
    assert judge(power_w=135.0, util_gpu_pct=99.0, gpm=gpm(**WRONG)).confidence is Confidence.MEASURED


def test_a_low_limit_makes_no_power_of_an_idle_chip_a_contradiction() -> None:
    report = judge(power_w=135.0, power_limit_w=200.0, util_gpu_pct=100.0, gpm=gpm(**WRONG))
    assert report.confidence is Confidence.MEASURED


def test_what_the_probe_left_out_for_it_is_said() -> None:
    report = judge(util_gpu_pct=99.0, gpm=None, absent={"gpm": "contradicted"})
    assert any("the power drawn contradicts GPM" in line for line in report.evidence)


def test_a_lost_gpu_is_unknown_and_says_so() -> None:
    report = judge_gpu(info(), [sample(), GpuSample(index=0, error="gpu_lost")], GpuContext())
    assert report.state is GpuState.UNKNOWN
    assert report.error == "gpu_lost"


# ── time ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_host_that_stopped_sending_grows_unknown_and_is_not_frozen() -> None:
    evidence = host({"gpm": gpm(tensor_pct=80.0)})
    assert evidence.report(12.0).gpus[0].state is GpuState.TENSOR_BUSY
    silent = evidence.report(40.0).gpus[0]
    assert silent.state is GpuState.UNKNOWN
    assert silent.util_gpu_pct is None
    assert "no sample for 29 s" in silent.evidence[0]


def test_one_gpu_that_fell_silent_does_not_hide_behind_the_others() -> None:
    evidence = host({}, {})
    for t in range(12, 40):
        evidence.apply(Gpus(t=float(t), gpus=(sample(0),)))
    first, second = evidence.report().gpus
    assert first.util_gpu_pct == 100.0
    assert (second.state, second.util_gpu_pct) == (GpuState.UNKNOWN, None)


def test_a_gap_leaves_only_the_samples_after_it() -> None:
    evidence = host({"gpm": gpm(tensor_pct=80.0)})
    evidence.apply(Gpus(t=100.0, gpus=(sample(util_gpu_pct=0.0, power_w=120.0, gpm=None),)))
    assert evidence.report().gpus[0].state is GpuState.IDLE


def test_a_clock_set_back_starts_over() -> None:
    window = GpuWindow(10.0)
    for t in (100.0, 101.0, 5.0):
        window.add(t, sample(temp_c=t))
    assert [s.temp_c for s in window.at(5.0)] == [5.0]


def test_medians_ignore_single_outliers() -> None:
    evidence = host({"gpm": gpm(tensor_pct=80.0)}, seconds=10)
    evidence.apply(Gpus(t=10.0, gpus=(sample(util_gpu_pct=0.0, power_w=1.0, gpm=gpm(tensor_pct=0.0)),)))
    gpu = evidence.report().gpus[0]
    assert (gpu.state, gpu.util_gpu_pct, gpu.power_w) == (GpuState.TENSOR_BUSY, 100.0, 560.0)


@given(st.lists(st.none() | st.floats(-10.0, 1e6) | st.sampled_from([math.inf, -math.inf, math.nan, 0.0]), max_size=12))
def test_a_median_is_of_the_values_that_are_there_and_can_be(column: list[float | None]) -> None:
    there = [value for value in column if value is not None and 0.0 <= value < math.inf]
    wanted = statistics.median(there) if there else None
    got = median(column)
    assert got == (pytest.approx(wanted, abs=1e-3) if wanted is not None else None)


def test_a_figure_that_swings_about_its_cut_does_not_make_the_state_flicker() -> None:
    evidence = HostEvidence("h", 0.0)
    evidence.apply(Hello(t=0.0, gpus=(info(),)))
    seen = set()
    for t in range(40):
        tensor = 51.0 if t % 2 else 49.0
        evidence.apply(Gpus(t=float(t), gpus=(sample(gpm=gpm(tensor_pct=tensor, dram_pct=30.0)),)))
        seen.add(evidence.report().gpus[0].state)
    assert seen == {GpuState.BALANCED}


def test_steadiness_ends_when_the_figure_really_moves() -> None:
    previous = Decision(GpuState.BALANCED, Confidence.MEASURED)
    assert judge(gpm=gpm(tensor_pct=51.9), previous=previous).state is GpuState.BALANCED
    assert judge(gpm=gpm(tensor_pct=52.1), previous=previous).state is GpuState.TENSOR_BUSY


def test_asking_often_changes_nothing() -> None:
    calm, nervous = HostEvidence("h"), HostEvidence("h")
    for frame in frames("h200-comm_mix"):
        calm.apply(frame)
        nervous.apply(frame)
        nervous.report()
    assert calm.report() == nervous.report()


# ── evidence ─────────────────────────────────────────────────────────────────────────────────────


def test_evidence_gives_the_figures_and_what_they_rule_out() -> None:
    report = states("h200-moe_untuned")[-1]
    text = " ".join(report.evidence)
    assert "tensor pipe 8.9 %" in text
    assert "DRAM 29 %" in text
    assert "memory_bound (DRAM activity 29, not >= 75)" in text


def test_inferred_evidence_says_what_is_not_known() -> None:
    report = judge(info=info(gpm=False), **SIGNATURE)
    assert any(line.startswith("Not known:") and "GPM is not supported" in line for line in report.evidence)


def test_an_undecided_state_names_the_figure_that_speaks_against_starvation() -> None:
    report = judge(power_w=693.0, util_mem_pct=38.0)
    assert any("tensor_starved (power 99, not <= 75)" in line for line in report.evidence)


def test_spinning_is_not_called_starved() -> None:
    assert judge(**SPIN).state is GpuState.UNKNOWN
