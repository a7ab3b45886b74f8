"""What `--retune` prints while it follows a job: steps and output as they happened, each once."""

from __future__ import annotations

import io

from moetop.retune import cli
from moetop.retune.types import JobState, JobStatus, JobStep, OutputLine, StepState
from moetop.transport.local import LocalTransport


def step(name: str, state: StepState, started: float | None = None, ended: float | None = None) -> JobStep:
    return JobStep(id=name, title=name, state=state, started=started, ended=ended)


def line(t: float, text: str, source: str = "tuner") -> OutputLine:
    return OutputLine(t=t, source=source, text=text)


def state(steps: tuple[JobStep, ...], lines: tuple[OutputLine, ...] = (), more: bool = False) -> JobState:
    return JobState(
        job="j", host="h", server="s", operator="o", status=JobStatus.RUNNING, now=99.0, steps=steps, lines=lines,
        more=more,
    )  # fmt: skip


def told(*states: JobState) -> list[str]:
    """The first two words of each line that is printed."""
    call = cli.Call(LocalTransport("h"), "h", lambda: None, err=io.StringIO())
    progress = cli._Progress(call)
    for one in states:
        progress.show(one)
    return [" ".join(text.split()[:2]).rstrip(":") for text in call.err.getvalue().splitlines()]


def test_steps_and_lines_of_one_poll_are_told_in_the_order_of_their_times():
    steps = (
        step("stop", StepState.DONE, 1.0, 2.0),
        step("tune", StepState.DONE, 2.0, 5.0),
        step("start", StepState.RUNNING, 5.0),
        step("ready", StepState.PENDING),
    )
    lines = (line(3.0, "a"), line(4.0, "b"), line(4.5, "hidden", "moetop"), line(6.0, "c", "server"))
    assert told(state(steps, lines)) == ["✓ stop", "tuner: a", "tuner: b", "✓ tune", "▸ start", "server: c"]


def test_a_step_is_not_told_before_lines_of_it_that_are_still_to_come():
    steps = (step("stop", StepState.DONE, 1.0, 2.0), step("tune", StepState.DONE, 2.0, 5.0))
    first = state(steps, (line(3.0, "a"),), more=True)
    assert told(first) == ["✓ stop", "tuner: a"]
    assert told(first, state(steps, (line(4.0, "b"),))) == ["✓ stop", "tuner: a", "tuner: b", "✓ tune"]


def test_what_a_roll_back_leaves_out_is_told_where_it_began():
    steps = (
        step("tune", StepState.FAILED, 2.0, 3.0),
        step("start", StepState.SKIPPED),
        step("rb_files", StepState.DONE, 3.0, 3.5),
        step("rb_start", StepState.RUNNING, 3.5),
    )
    assert told(state(steps)) == ["✕ tune", "- start", "✓ rb_files", "▸ rb_start"]
    assert told(state(steps), state(steps)) == told(state(steps)), "each once"
