"""Jobs in a narrow terminal: nothing of a step or of the report is lost, and the running step has its number."""

from __future__ import annotations

from dataclasses import replace

import pytest

from moetop.ui.feed import JobStep
from moetop.ui.widgets.text import TextPage
from tests.ui import scenes
from tests.ui.driving import Screen, opened
from tests.ui.test_lists import running_job

DETAIL = "3 files moved to /root/.cache/flashinfer.before-20270115-080933"
REPORT = (
    "generation 812 → 1,960 tok/s",
    "  tuning                     never ran                tuned",
    "  GPU state                  starved 8 of 8           memory-bound 7, balanced 1 of 8",
    "  generation (tokens/s)      812 (790-830)            1,960 (1,900-2,010)             x2.41",
)


def whole(screen: Screen) -> str:
    """The job's page as shown, its breaks of lines taken out."""
    rows = screen.app.screen.query_one("#job", TextPage).plain_lines()
    return " ".join(" ".join(rows).split())


async def shown(width: int) -> tuple[str, str]:
    deeds = scenes.Deeds()
    steps = (
        JobStep("stop the server", "done", started=0, ended=15),
        JobStep("move the caches of FlashInfer and Triton aside", "done", DETAIL, started=15, ended=16),
        JobStep("start and tune", "running", "step 3 of 17", timeout_s=3600, started=scenes.NOW - 60),
        JobStep("wait until ready", timeout_s=1800),
    )
    deeds.job_list = [replace(running_job(), steps=steps, report=REPORT, log=())]
    async with opened(scenes.fleet_without_lost(), (width, 60), actions=deeds) as screen:
        await screen.press("j")
        return whole(screen), screen.text()


@pytest.mark.parametrize("width", [80, 120, 200])
async def test_details_and_report_are_whole_at_every_width(width: int) -> None:
    words, text = await shown(width)
    assert "…" not in words
    assert DETAIL in words and "step 3 of 17" in words
    for figure in ("never ran", "tuned", "memory-bound 7, balanced 1 of 8", "1,960 (1,900-2,010)", "x2.41"):
        assert figure in words
    assert "1 m 00 s of 1 h 00 m" in words and "at most 30 m 00 s" in words
    assert "step 3/4" in text, "the step that runs, not those done"


async def test_at_80_columns_a_row_of_the_report_reads_as_before_and_after() -> None:
    words, _text = await shown(80)
    assert "tuning never ran → tuned" in words
    assert "generation (tokens/s) 812 (790-830) → 1,960 (1,900-2,010) x2.41" in words


async def test_where_no_step_runs_those_done_are_counted() -> None:
    deeds = scenes.Deeds()
    steps = (JobStep("stop the server", "done"), JobStep("start it", "failed"), JobStep("wait"))
    deeds.job_list = [replace(running_job(), state="down", steps=steps)]
    async with opened(scenes.fleet_without_lost(), actions=deeds) as screen:
        await screen.press("j")
        assert "step 1/3" in screen.lines()[1]
