"""What a job asks is answered by key; what a host asks comes over any screen and goes when nobody waits for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from moetop.asking import Question
from moetop.jobviews import INTERRUPTED_OPTIONS, INTERRUPTED_QUESTION
from moetop.retune.types import JobStatus
from moetop.ui.feed import JobView
from moetop.ui.screens.jobs import JOB_SIGNS
from moetop.ui.screens.question import QuestionScreen
from tests.ui import scenes
from tests.ui.driving import opened

ASKS = JobView(
    "j1",
    "glm5-sm120",
    "sglang:30000",
    "running",
    started=scenes.NOW - 30,
    question="it still runs after 300 s",
    options=(("wait", "another 300 s"), ("kill", "ends it with SIGKILL (if nobody answers)")),
)


class Answering(scenes.Deeds):
    """Deeds that take answers, and a host that asks."""

    def __init__(self) -> None:
        super().__init__()
        self.job_list = [ASKS]
        self.asked: Question | None = None

    def answer_job(self, job: str, option: str) -> None:
        self.done.append(("answer", (job, option)))

    def question(self) -> Question | None:
        return self.asked

    def answer_question(self, question: int, text: str | None) -> None:
        self.done.append(("said", (question, text)))
        self.asked = None


async def test_a_job_that_asks_shows_the_answers_and_takes_one_of_them() -> None:
    deeds = Answering()
    async with opened(scenes.reference_fleet(), actions=deeds) as screen:
        await screen.press("j")
        assert "it still runs after 300 s" in screen.text() and "kill: ends it with SIGKILL" in screen.text()
        assert "a answer" in screen.text()
        await screen.press("a", *"perhaps", "enter")
        assert "type one of: wait, kill" in screen.text() and deeds.done == []
        await screen.press(*["backspace"] * 7, *"kill", "enter")
        assert deeds.done == [("answer", ("j1", "kill"))]
        assert not isinstance(screen.app.screen, QuestionScreen)


async def test_an_answer_can_be_left_and_is_not_offered_where_nothing_is_asked() -> None:
    deeds = Answering()
    async with opened(scenes.reference_fleet(), actions=deeds) as screen:
        await screen.press("j", "a", "escape")
        assert deeds.done == [] and "jobs" in screen.lines()[0]
        deeds.job_list = [replace(ASKS, question="", options=())]
        await screen.refetch()
        await screen.press("a")
        assert "a answer" not in screen.text() and not isinstance(screen.app.screen, QuestionScreen)


@pytest.mark.parametrize(("changes", "options"), [({"readonly": True}, {}), ({}, {"readonly": True})])
async def test_a_job_of_somebody_else_or_a_readonly_screen_takes_no_answer(
    changes: dict[str, bool], options: dict[str, bool]
) -> None:
    deeds = Answering()
    deeds.job_list = [replace(ASKS, **changes)]
    async with opened(scenes.reference_fleet(), actions=deeds, **options) as screen:
        await screen.press("j", "a")
        assert not isinstance(screen.app.screen, QuestionScreen)
        assert any("read-only" in text or "readonly" in text for text in screen.toasts())


async def test_an_interrupted_job_says_so_and_what_can_be_done() -> None:
    deeds = Answering()
    deeds.job_list = [
        replace(ASKS, state="interrupted", question=INTERRUPTED_QUESTION, options=INTERRUPTED_OPTIONS, ended=None)
    ]
    async with opened(scenes.reference_fleet(), actions=deeds) as screen:
        await screen.press("j")
        assert "▲ interrupted" in screen.text() and "rollback" in screen.text()


def test_every_state_of_a_job_has_a_sign() -> None:
    assert {str(status) for status in JobStatus} <= set(JOB_SIGNS)


async def test_a_secret_is_asked_for_over_any_screen_and_never_shown() -> None:
    deeds = Answering()
    async with opened(scenes.reference_fleet(), actions=deeds) as screen:
        await screen.press("l")
        deeds.asked = Question(7, "Passphrase for /k\x1b[31mey:", False)
        screen.app.tick()
        await screen.settle()
        assert "Passphrase for /k" in screen.text() and "\x1b" not in screen.text()
        await screen.press(*"q s", "enter")
        assert ("said", (7, "q s")) in deeds.done and "q s" not in screen.text()


async def test_a_question_that_nobody_waits_for_any_more_goes_away() -> None:
    deeds = Answering()
    async with opened(scenes.reference_fleet(), actions=deeds) as screen:
        deeds.asked = Question(1, "code?", True)
        screen.app.tick()
        await screen.settle()
        assert isinstance(screen.app.screen, QuestionScreen)
        deeds.asked = None
        screen.app.tick()
        await screen.settle()
        assert not isinstance(screen.app.screen, QuestionScreen)
