"""The demo's recorded retune: what is played, what the screen is told of it, and what it refuses."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Any

import pytest

from moetop.cli import build_parser
from moetop.config import Config
from moetop.demo import RECORDED, SCRIPTED
from moetop.demo.recorded import recorded_job
from moetop.demo.retune import MARK, PROOF_S, RecordedRetune
from moetop.demodesk import PLAYED_WORDS, DemoDesk
from moetop.errors import MoetopError
from moetop.recording import decode, encode
from moetop.retune.types import JobStatus
from moetop.session import Session, open_session
from moetop.watch import Watch

NOW_T = 1_771_463_370.0
ENDED_S = recorded_job()["ended"]


class Clock:
    """Stands in for the wall: what lasts a minute and a half is told here, not waited for."""

    def __init__(self) -> None:
        self.t = 1000.0

    def monotonic(self) -> float:
        return self.t

    def time(self) -> float:
        return NOW_T + self.t


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("moetop.demo.retune.time", made)
    return made


class Player:
    """Takes a host's frames as its transport would, the clock going with them, into a watch state."""

    def __init__(self, retune: RecordedRetune, clock: Clock) -> None:
        self.watch = Watch(10.0, live=False, source=None, keep_history=False)
        self.watch.expect(RECORDED)
        self._frames: Iterator[dict[str, Any]] = retune.frames(NOW_T, 0.0)
        self._clock = clock
        self._t = NOW_T

    def play(self, seconds: float) -> None:
        """Go on by so much of the host's time."""
        end_t = self._t + seconds
        while self._t < end_t:
            frame = next(self._frames)
            self._clock.t += max(0.0, frame["t"] - self._t)
            assert frame["t"] >= self._t
            self._t = frame["t"]
            raw = encode(frame)
            self.watch.frame(RECORDED, decode(raw), raw)  # type: ignore[arg-type]

    def seen(self) -> tuple[str, str, str]:
        """The GPU's state, the server's phase and its tuning verdict."""
        report = self.watch.report(RECORDED)
        (server,) = report.servers
        return str(report.gpus[0].state), str(server.phase), str(server.tuning.verdict)


def test_it_stays_untuned_until_somebody_retunes(clock: Clock) -> None:
    player = Player(RecordedRetune(), clock)
    player.play(100)
    assert player.seen() == ("tensor_starved", "ready", "untuned")


def test_a_started_retune_goes_through_stop_tune_and_start_to_tuned_kernels(clock: Clock) -> None:
    retune = RecordedRetune()
    player = Player(retune, clock)
    player.play(30)
    retune.start()
    player.play(20)
    running = retune.state(RECORDED)
    assert running is not None and running.status is JobStatus.RUNNING
    assert [step.title for step in running.steps if step.state == "running"] == ["tune"]
    assert running.lines[0].text == MARK and "SIGTERM: sent to process 1897" in [line.text for line in running.lines]
    player.play(70)
    assert player.seen() == ("balanced", "ready", "tuned")
    ended = retune.state(RECORDED)
    assert ended is not None and ended.status is JobStatus.RETUNED
    assert {str(step.state) for step in ended.steps} == {"done"}
    took = [round(step.ended - step.started, 1) for step in ended.steps if step.ended and step.started]
    assert took == [0.0, 10.3, 1.8, 0.0, 18.4, 0.0, 0.0, 5.4, 15.1, 10.3], "as long as it was recorded"
    player.play(300)
    assert player.seen() == ("balanced", "ready", "tuned"), "the tuned part goes on for good"
    proof = retune.proof()
    assert proof is not None and "132,215 -> 670,399 tokens/s" in proof.sentence and "5.07 times" in proof.sentence


def test_printed_times_go_with_the_hosts_clock(clock: Clock) -> None:
    retune = RecordedRetune()
    player = Player(retune, clock)
    player.play(10)
    retune.start()
    player.play(90)
    state = retune.state(RECORDED)
    assert state is not None
    assert not any("2026-11-30" in line.text for line in state.lines)
    assert any("[2026-02-19 01:1" in line.text and "Completed tuning" in line.text for line in state.lines)


def test_the_report_comes_when_it_came(clock: Clock) -> None:
    retune = RecordedRetune()
    player = Player(retune, clock)
    player.play(2)
    retune.start()
    player.play(ENDED_S + PROOF_S - 5)
    assert retune.status is JobStatus.RETUNED and retune.proof() is None
    player.play(10)
    assert retune.proof() is not None


@pytest.mark.parametrize("after_s", [5, 20, 33, 50])
def test_a_cancelled_job_is_rolled_back_in_words_and_the_host_is_untuned_again(clock: Clock, after_s: float) -> None:
    retune = RecordedRetune()
    player = Player(retune, clock)
    player.play(30)
    retune.start()
    player.play(after_s)
    assert retune.cancel()
    player.play(40)
    assert player.seen() == ("tensor_starved", "ready", "untuned")
    state = retune.state(RECORDED)
    assert state is not None and state.status is JobStatus.ROLLED_BACK
    assert "cancelled" in " ".join(state.advice) and "On a host" in " ".join(state.advice)
    assert [str(step.state) for step in state.steps].count("cancelled") == 1
    assert not retune.cancel(), "it is over"
    retune.start()
    player.play(100)
    assert player.seen() == ("balanced", "ready", "tuned"), "it can be played again"


@pytest.fixture
def session() -> Iterator[Session]:
    args: argparse.Namespace = build_parser().parse_args(["--demo"])
    made = open_session(args, Config())
    with made.running():
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            if all(made.watch.is_searched(name) and made.watch.report(name).servers for name in (SCRIPTED, RECORDED)):
                break
            time.sleep(0.05)
        yield made


def test_the_screen_is_given_the_recorded_plan_the_running_job_and_its_cancelling(session: Session) -> None:
    assert session.retune is not None
    desk = DemoDesk(session, Config(), session.retune)
    assert desk.refusal(RECORDED, None) is None and desk.views() == ()
    plan = desk.plan(RECORDED, None)
    assert plan.confirm == RECORDED and len(plan.steps) == 10 and MARK in plan.notes and MARK in plan.steps[0].detail
    assert any("tune.py" in step.detail for step in plan.steps)
    key = desk.start(plan)
    refused = desk.refusal(RECORDED, None)
    assert refused is not None and "a retune job holds sglang:30000" in refused
    with pytest.raises(MoetopError, match="a retune job holds"):
        desk.start(plan)
    deadline = time.monotonic() + 10
    while desk.views()[0].steps[0].state != "done" and time.monotonic() < deadline:
        time.sleep(0.05)
    (view,) = desk.views()
    assert (view.id, view.state, view.steps[0].state) == (key, "running", "done") and MARK in view.log
    desk.cancel(key)
    (view,) = desk.views()
    assert view.state == "rolled_back" and "back at its part before" in view.next_thing
    with pytest.raises(MoetopError, match="is over"):
        desk.cancel(key)
    assert desk.refusal(RECORDED, None) is None
    again = desk.start(desk.plan(RECORDED, None))
    assert [view.id for view in desk.views()] == [again, key]


def test_the_scripted_host_is_refused_as_a_real_one_would_be(session: Session) -> None:
    assert session.retune is not None
    why = DemoDesk(session, Config(), session.retune).refusal(SCRIPTED, None)
    assert why is not None and "flashinfer_cutlass" in why and "upgrade to SGLang 0.5.16" in why
    assert "recording" not in why


def test_readonly_plays_nothing(session: Session) -> None:
    assert session.retune is not None
    desk = DemoDesk(session, Config(readonly=True), session.retune)
    why = desk.refusal(RECORDED, None)
    assert why is not None and "--readonly" in why
    assert desk.plan(RECORDED, None).refusal == why and session.retune.status is None


def test_once_played_it_says_how_to_see_it_again(session: Session, clock: Clock) -> None:
    assert session.retune is not None
    desk = DemoDesk(session, Config(), session.retune)
    desk.start(desk.plan(RECORDED, None))
    deadline = time.monotonic() + 10
    while not desk.views()[0].log[1:] and time.monotonic() < deadline:
        clock.t += 0.2
        time.sleep(0.05)
    clock.t += ENDED_S
    (view,) = desk.views()
    assert view.state == "retuned" and "measuring the new server" in view.next_thing and not view.report
    clock.t += PROOF_S
    (view,) = desk.views()
    assert "5.07 times" in view.report[0] and view.report[-1] == MARK
    assert desk.refusal(RECORDED, None) == PLAYED_WORDS
