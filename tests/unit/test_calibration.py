"""Workloads that no threshold was set on, recorded on a real H200: the share judged right, and no false alarm."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from moetop.diagnose.host import HostEvidence
from moetop.model import Confidence, Gpus, GpuState, HostReport, Severity
from moetop.recording import read_frames
from tests.unit.diagnose_kit import without_gpm

FOLDER = Path(__file__).resolve().parents[1] / "data" / "calibration"
EXPECTED: dict[str, dict[str, Any]] = yaml.safe_load((FOLDER / "expected.yaml").read_text())


def judge(name: str) -> HostReport:
    evidence = HostEvidence(name)
    for frame in read_frames(FOLDER / f"{name}.jsonl"):
        evidence.apply(frame)
    return evidence.report()


def test_every_recording_has_an_answer() -> None:
    assert {path.stem for path in FOLDER.glob("*.jsonl")} == set(EXPECTED)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_the_state_is_right_and_measured(name: str) -> None:
    gpu = judge(name).gpus[0]
    assert gpu.confidence is Confidence.MEASURED
    assert gpu.state in EXPECTED[name]["state"].split("|")


def test_the_share_judged_right(record_property: Callable[[str, object], None]) -> None:
    right = [name for name, row in EXPECTED.items() if judge(name).gpus[0].state in row["state"].split("|")]
    print(f"{len(right)} of {len(EXPECTED)} right")
    record_property("right", f"{len(right)} of {len(EXPECTED)}")
    assert len(right) >= 0.95 * len(EXPECTED)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_without_gpm_a_state_is_right_or_unknown(name: str) -> None:
    evidence = HostEvidence(name)
    for frame in read_frames(FOLDER / f"{name}.jsonl"):
        evidence.apply(without_gpm(frame) if isinstance(frame, Gpus) else frame)
    gpu = evidence.report().gpus[0]
    assert gpu.confidence is Confidence.INFERRED
    assert gpu.state in (*EXPECTED[name]["state"].split("|"), GpuState.UNKNOWN)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_only_starved_work_raises_a_warning(name: str) -> None:
    report = judge(name)
    warned = [str(f.kind) for f in report.findings if f.severity is not Severity.INFO]
    assert warned == (["tensor_starved"] if EXPECTED[name]["state"] == GpuState.TENSOR_STARVED else [])


def test_a_polling_block_on_every_sm_is_told_by_its_idle_pipes_not_by_its_sms() -> None:
    compared = next(line for line in judge("h200-spin_132").gpus[0].evidence if line.startswith("Compared:"))
    assert "tensor activity < 1" in compared
    assert "SM activity" not in compared
