"""Plans and jobs of a retune -> what the screen shows of them. Pure; asks no host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from moetop.retune import report
from moetop.retune.types import JobState, JobStatus, Plan, StepState
from moetop.ui.feed import JobStep, JobView, RetunePlan

STATUS_WORDS: dict[JobStatus, str] = {
    JobStatus.RUNNING: "running",
    JobStatus.INTERRUPTED: "interrupted",
    JobStatus.RETUNED: "retuned",
    JobStatus.ROLLED_BACK: "rolled_back",
    JobStatus.DOWN: "down",
    JobStatus.REFUSED: "refused",
}
"""Ends of a job in the screen's words."""

OPEN_WORDS = {
    "planned": "it is about to start",
    "running": "it is running",
    "attached": "it is running, started elsewhere",
    "interrupted": "it was interrupted and waits for a decision",
}
"""Jobs that hold their server, in the screen's words, with what that means."""

STEP_WORDS: dict[StepState, str] = {
    StepState.PENDING: "waiting",
    StepState.RUNNING: "running",
    StepState.DONE: "done",
    StepState.FAILED: "failed",
    StepState.CANCELLED: "undone",
    StepState.SKIPPED: "skipped",
}
"""Steps of a job in the screen's words."""

CANCEL_NOTE = "stops the running step, puts moved files back, starts the old command and checks its health"

INTERRUPTED_QUESTION = "its runner is gone in the middle of it: finish the job or roll it back?"
ROLLBACK_ONLY = (("rollback", "put everything back and start the old command"),)
INTERRUPTED_OPTIONS = (("finish", "go on where it stopped"), *ROLLBACK_ONLY)
DOWN_QUESTION = "the server is down: try to roll back once more?"


def plan_view(host: str, plan: Plan) -> RetunePlan:
    """A surveyed plan."""
    refusal = None
    if plan.refused:
        refusal = "; ".join(f"{one.text}. {one.advice}".strip() for one in plan.refusals)
    steps = tuple(
        JobStep(step.title, detail="\n".join(step.lines), undo=step.undo, timeout_s=step.timeout_s)
        for step in plan.steps
    )
    notes = (*plan.warnings, *plan.notes, *(f"never: {what}" for what in plan.never), plan.confirm_why)
    return RetunePlan(host, plan.server, steps, plan.confirm, tuple(note for note in notes if note), refusal)


def job_view(before: JobView, state: JobState, log: Sequence[str], *, mine: bool, here: float) -> JobView:
    """`before` brought up to `state`. `here` is this machine's time now: the host's times are moved by how far
    its clock is off."""
    off_s = here - state.now if state.now else 0.0

    def local(t: float | None) -> float | None:
        return None if t is None else t + off_s

    steps = tuple(
        JobStep(
            step.title,
            STEP_WORDS[step.state],
            step.detail,
            timeout_s=step.timeout_s,
            started=local(step.started),
            ended=local(step.ended),
        )
        for step in state.steps
    )
    question, options = _question(state)
    word = "attached" if state.status is JobStatus.RUNNING and not mine else STATUS_WORDS[state.status]
    return replace(
        before,
        state=word,
        steps=steps,
        started=before.started if before.started is not None else local(state.created),
        ended=local(state.ended),
        log=tuple(log),
        next_thing=" ".join((*state.advice, *(() if question else report.next_things(state)))),
        cancel_note=CANCEL_NOTE,
        question=question,
        options=options,
    )


def _question(state: JobState) -> tuple[str, tuple[tuple[str, str], ...]]:
    """What waits for an answer, and the answers with their meanings."""
    if state.status is JobStatus.RUNNING and state.asks is not None:
        options = tuple(
            (option, f"{meaning} (if nobody answers)" if option == state.asks.default else meaning)
            for option, meaning in state.asks.options.items()
        )
        return state.asks.question, options
    if state.status is JobStatus.INTERRUPTED:
        return INTERRUPTED_QUESTION, ROLLBACK_ONLY if state.mode == "rollback" else INTERRUPTED_OPTIONS
    if state.status is JobStatus.DOWN:
        return DOWN_QUESTION, ROLLBACK_ONLY
    return "", ()
