"""Before and after: a gain, no gain, and what cannot be compared."""

from __future__ import annotations

import json

import pytest

from moetop.model import Gpm, GpuReport, GpuState, HostReport, ServerMetrics, ServerReport, Tuning, Verdict
from moetop.retune import proof, report
from moetop.retune.types import JobState, JobStatus, JobStep, StepState


def host(tokens: float | None, running: float | None = 8.0, power: float | None = 600.0, **gpm: float) -> HostReport:
    metrics = ServerMetrics(running=running, generation_tokens_s=tokens)
    state = GpuState.TENSOR_BUSY if gpm.get("tensor_pct", 0) > 50 else GpuState.TENSOR_STARVED
    gpu = GpuReport(index=0, state=state, power_w=power, gpm=Gpm(**gpm) if gpm else None)
    one = ServerReport(name="s", metrics=metrics, gpus=(0,), tuning=Tuning(verdict=Verdict.UNTUNED))
    return HostReport(name="h", headline="x", gpus=(gpu, GpuReport(index=1, power_w=50.0)), servers=(one,))


def window(*reports: HostReport) -> proof.Window:
    return proof.window(reports, "s", 10.0)


def test_more_tokens_at_the_same_load_are_a_gain():
    made = proof.compare(
        window(host(100, tensor_pct=9.0), host(104, tensor_pct=9.2)),
        window(host(300, tensor_pct=57.0), host(310, tensor_pct=57.4)),
    )
    assert made.outcome == proof.Outcome.RETUNED
    assert "102 -> 305 tokens/s" in made.sentence
    rows = {row.name: row for row in made.rows}
    assert rows["tensor activity"].before == "9.1 (9..9.2)" and rows["tokens a second"].change == "+199 %"
    assert rows["tokens a joule"].before == "0.17 (0.1667..0.1733)"
    assert rows["GPU state"].after == "tensor_busy 100 %"
    assert rows["window"].before == "10 (2 samples)"


@pytest.mark.parametrize(
    ("before", "after"), [((100, 104), (101, 102)), ((100, 140), (120, 122)), ((100, 100), (90, 90))]
)
def test_a_change_within_the_spread_is_no_gain(before, after):
    made = proof.compare(window(*map(host, before)), window(*map(host, after)))
    assert made.outcome == proof.Outcome.NO_GAIN and "no gain" in made.sentence


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (host(100, 8), host(300, 16), "the load differs (8 requests running before, 16 after)"),
        (host(100, 8), host(300, 0), "no requests were running after"),
        (host(100, None), host(300, 8), "is not known"),
        (host(None, 8), host(300, 8), "no token rate"),
    ],
)
def test_what_cannot_be_compared_is_said(before, after, words):
    made = proof.compare(window(before), window(after))
    assert made.outcome == proof.Outcome.NOT_COMPARABLE and words in made.sentence


def test_absent_figures_are_dashes_and_a_partial_sum_of_power_is_none():
    made = window(host(100, power=None))
    assert made.power_w.median is None and made.tokens_j.median is None
    assert {row.before for row in proof.compare(made, made).rows if row.name == "power"} == {"—"}


def test_the_report_is_written_as_text_markdown_and_json():
    made = proof.compare(window(host(100)), window(host(300)))
    step = JobStep(id="stop", title="stop the server", state=StepState.FAILED, started=1.0, ended=3.5)
    end = {"status": JobStatus.DOWN, "message": "bad\x1b[2J", "advice": ("start it",), "folder": "/f"}
    state = JobState(job="j", host="h|x", server="s", operator="me", steps=(step,), **end)
    text = report.job_text(state)
    assert text.startswith("THE SERVER IS DOWN") and "do: start it" in text and "\x1b" not in text
    markdown = report.report_markdown(state, made)
    assert "h\\|x" in markdown and "| stop the server | failed | 2.5 |" in markdown and "tokens a second" in markdown
    assert "\x1b" not in markdown + report.proof_text(made)
    assert json.loads(report.report_json(state, made))["proof"]["outcome"] == "retuned"
