"""Two real GPUs: every recording of two ranks gets its states and its findings, and none without cause."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from moetop.diagnose.host import HostEvidence
from moetop.model import Confidence, Gpus, HostReport, Severity
from moetop.recording import read_frames

FOLDER = Path(__file__).resolve().parents[1] / "data" / "ranks"
EXPECTED: dict[str, dict[str, Any]] = yaml.safe_load((FOLDER / "expected.yaml").read_text())


def judge(name: str, *, gpm: bool = True) -> HostReport:
    evidence = HostEvidence(name)
    for frame in read_frames(FOLDER / f"{name}.jsonl"):
        evidence.apply(frame if gpm or not isinstance(frame, Gpus) else without_gpm(frame))
    return evidence.report()


def without_gpm(frame: Gpus) -> Gpus:
    return msgspec.structs.replace(frame, gpus=tuple(msgspec.structs.replace(gpu, gpm=None) for gpu in frame.gpus))


def standing(report: HostReport) -> list[str]:
    return [str(f.kind) for f in report.findings if f.severity is not Severity.INFO]


def test_every_recording_has_an_answer() -> None:
    assert {path.stem for path in FOLDER.glob("*.jsonl")} == set(EXPECTED)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_states_and_findings_of_two_ranks(name: str) -> None:
    wanted, report = EXPECTED[name], judge(name)
    for gpu, states in zip(report.gpus, wanted["states"], strict=True):
        assert gpu.state in states.split("|")
        assert gpu.confidence is Confidence.MEASURED
    assert standing(report) == wanted["findings"]
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


def test_communication_that_looks_like_starvation_is_not_called_untuned() -> None:
    report = judge("h200x2-reduce_large", gpm=False)
    words = " ".join((report.findings[0].summary, *report.findings[0].evidence, *report.findings[0].remedy))
    assert report.headline == "starvation_signature"
    assert "all-reduce" in words
