"""Two real GPUs: every recording of two ranks gets its states and its findings, and none without cause."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from moetop.diagnose import thresholds as th
from moetop.diagnose.host import HostEvidence
from moetop.model import Confidence, GpuProcess, Gpus, Hello, HostReport
from moetop.recording import read_frames
from tests.unit.diagnose_kit import standing, without_gpm

FOLDER = Path(__file__).resolve().parents[1] / "data" / "ranks"
EXPECTED: dict[str, dict[str, Any]] = yaml.safe_load((FOLDER / "expected.yaml").read_text())


def replay(
    name: str, *, window_s: float = 10.0, change: Callable[[Gpus], Gpus] = lambda frame: frame
) -> list[HostReport]:
    """The report after every sample."""
    evidence, reports = HostEvidence(name, window_s), []
    for frame in read_frames(FOLDER / f"{name}.jsonl"):
        if isinstance(frame, Gpus):
            evidence.apply(change(frame))
            reports.append(evidence.report())
        else:
            evidence.apply(frame)
    return reports


def judge(name: str, *, gpm: bool = True) -> HostReport:
    return replay(name, change=(lambda frame: frame) if gpm else without_gpm)[-1]


def second_gpu(frame: Gpus, **values: object) -> Gpus:
    """The same reading with something else told of the second GPU."""
    first, second = frame.gpus
    return msgspec.structs.replace(frame, gpus=(first, msgspec.structs.replace(second, **values)))


def test_every_recording_has_an_answer() -> None:
    assert {path.stem for path in FOLDER.glob("*.jsonl")} == set(EXPECTED)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_states_and_findings_of_two_ranks(name: str) -> None:
    wanted, report = EXPECTED[name], judge(name)
    for gpu, states in zip(report.gpus, wanted["states"], strict=True):
        assert gpu.state in states.split("|")
        assert gpu.confidence is Confidence.MEASURED
    assert (report.headline, standing(report)) == (wanted["headline"], wanted["findings"])
    if "late" in wanted:
        assert report.findings[0].gpus == (wanted["late"],)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_without_gpm_nothing_is_measured_and_nobody_is_accused(name: str) -> None:
    wanted, report = EXPECTED[name], judge(name, gpm=False)
    for gpu, states in zip(report.gpus, wanted["states"], strict=True):
        assert gpu.confidence is Confidence.INFERRED
        assert gpu.state in (*states.split("|"), "unknown", wanted.get("blind"))
    may = {kind for kind in wanted["findings"] if kind != "straggler"}
    assert set(standing(report)) <= may | ({"starvation_signature"} if "blind" in wanted else set())


@pytest.mark.parametrize("window_s", [2.0, 10.0])
@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_at_no_sample_is_anything_wrong_said_as_measured(name: str, window_s: float) -> None:
    wanted = EXPECTED[name]
    for report in replay(name, window_s=window_s):
        for gpu, states in zip(report.gpus, wanted["states"], strict=True):
            assert gpu.confidence is Confidence.INFERRED or gpu.state in states.split("|")
        measured = {str(f.kind) for f in report.findings if f.confidence is Confidence.MEASURED}
        assert measured <= set(wanted["findings"])
        assert set(standing(report)) <= set(wanted["findings"])


OTHER = (GpuProcess(pid=9, user="eve", name="train.py", memory_used_mib=1900.0),)


@pytest.mark.parametrize("name", ["h200x2-slow_host", "h200x2-slow_grid", "h200x2-slow_kernel"])
@pytest.mark.parametrize("other", [{"processes": OTHER}, {"memory_used_mib": 90000.0}], ids=["program", "memory"])
def test_two_gpus_of_different_jobs_are_no_stragglers(name: str, other: dict[str, object]) -> None:
    report = replay(name, change=lambda frame: second_gpu(frame, **other))[-1]
    assert standing(report) == []


@pytest.mark.parametrize("name", ["h200x2-slow_host", "h200x2-slow_grid", "h200x2-slow_kernel"])
def test_two_gpus_without_traffic_between_them_are_no_stragglers(name: str) -> None:
    def apart(frame: Gpus) -> Gpus:
        second = frame.gpus[1].gpm
        if second is None:
            return frame
        return second_gpu(frame, gpm=msgspec.structs.replace(second, nvlink_rx_mib_s=0.0, nvlink_tx_mib_s=0.0))

    assert standing(replay(name, change=apart)[-1]) == []


@pytest.mark.parametrize("other", [{"processes": OTHER}, {"memory_used_mib": 90000.0}], ids=["program", "memory"])
def test_a_kernel_that_polls_beside_another_jobs_idle_gpu_is_no_hang(other: dict[str, object]) -> None:
    assert standing(replay("h200x2-hang", change=lambda frame: second_gpu(frame, **other))[-1]) == []


def test_two_jobs_on_one_host_are_told_apart_and_the_late_rank_of_one_is_named() -> None:
    evidence = HostEvidence("both")
    good, slow = (list(read_frames(FOLDER / f"h200x2-{name}.jsonl")) for name in ("tp_good", "slow_kernel"))
    for frame, other in zip(good, slow, strict=False):
        if isinstance(frame, Hello) and isinstance(other, Hello):
            more = tuple(msgspec.structs.replace(gpu, index=gpu.index + 2) for gpu in other.gpus)
            evidence.apply(msgspec.structs.replace(frame, gpus=(*frame.gpus, *more)))
        elif isinstance(frame, Gpus) and isinstance(other, Gpus):
            more_samples = tuple(msgspec.structs.replace(gpu, index=gpu.index + 2) for gpu in other.gpus)
            evidence.apply(msgspec.structs.replace(frame, gpus=(*frame.gpus, *more_samples)))
    report = evidence.report()
    assert len(report.gpus) == 4
    assert standing(report) == ["straggler"]
    assert report.findings[0].gpus == (3,)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_the_evidence_of_a_state_fits_its_figures(name: str) -> None:
    """The cuts named beside "Compared" are those that were passed, not another way to the same state."""
    for gpu in judge(name).gpus:
        compared = next(line for line in gpu.evidence if line.startswith("Compared:"))
        if "SM activity <" in compared:
            assert gpu.gpm is not None and (gpu.gpm.sm_active_pct or 0) < th.SM_UNDERUSED_PCT


def test_communication_that_looks_like_starvation_is_not_called_untuned() -> None:
    report = judge("h200x2-reduce_large", gpm=False)
    words = " ".join((report.findings[0].summary, *report.findings[0].evidence, *report.findings[0].remedy))
    assert report.headline == "starvation_signature"
    assert "all-reduce" in words
