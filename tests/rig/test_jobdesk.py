"""Retune jobs behind the keys, on a real server over a real sshd: planned, started, followed, proven, put back."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from moetop.config import Config
from moetop.errors import MoetopError
from moetop.jobdesk import JobDesk
from moetop.retune import actions, recipes
from moetop.retune.job import RetuneRefused
from moetop.retune.types import JobRef
from moetop.session import Session
from moetop.ui.feed import JobView
from tests.rig.jobdesk_kit import WatchedRig, server_seen, watched, watching
from tests.rig.retune_kit import until

__all__ = ["watched"]

pytestmark = pytest.mark.timeout(120)

INSTANT_S = 0.005
"""A frame of a screen at 60 Hz is 0.017 s; what is asked while drawing has a third of it."""


@contextmanager
def desk_of(session: Session, config: Config) -> Iterator[JobDesk]:
    desk = JobDesk(session, config, window_s=0.5, settle_s=0.2, poll_s=0.1, list_s=0.2)
    try:
        yield desk
    finally:
        desk.close()


def begin(desk: JobDesk, rig: WatchedRig) -> str:
    plan = desk.plan("rig", rig.server)
    assert plan.refusal is None, plan.refusal
    return desk.start(plan)


def view(desk: JobDesk, key: str) -> JobView:
    return next(job for job in desk.views() if job.id == key)


def follow(desk: JobDesk, key: str, *ends: str) -> JobView:
    until(lambda: view(desk, key).state in ends, f"the job is one of {ends}", 60.0)
    return view(desk, key)


def running_step(desk: JobDesk, key: str) -> str:
    return next((step.title for step in view(desk, key).steps if step.state == "running"), "")


@pytest.mark.slow
def test_a_server_is_retuned_shown_proven_and_the_report_is_kept(watched: tuple[WatchedRig, Path]) -> None:
    rig, path = watched
    with watching(path, rig) as (session, config), desk_of(session, config) as desk:
        assert desk.refusal("rig", rig.server) is None
        assert "no server" in (desk.refusal("rig", "nobody") or "")
        plan = desk.plan("rig", rig.server)
        assert plan.refusal is None and plan.confirm is None
        assert [step.state for step in plan.steps] == ["waiting"] * len(plan.steps)
        assert all(step.title and step.undo for step in plan.steps)
        before = rig.pids()
        key = desk.start(plan)
        assert view(desk, key).state == "planned" and rig.pids() == before
        with pytest.raises(RetuneRefused, match="no longer valid"):
            desk.start(plan)
        done = follow(desk, key, "retuned", "rolled_back", "down", "refused")
        assert done.state == "retuned", done
        assert {step.state for step in done.steps} == {"done"}
        assert all(step.started <= step.ended <= time.time() + 1 for step in done.steps if step.started and step.ended)
        until(lambda: view(desk, key).report, "the proof is shown")
        assert any("running" in line.lower() for line in view(desk, key).report), view(desk, key).report
        until(lambda: rig.kept("report.md"), "the report is kept on the host")
        assert "retuned" in rig.kept("report.md") and '"proof": {' in rig.kept("report.json")
        assert rig.pids() != before and rig.healthy()
        assert [job.id for job in desk.views()] == [key], "the job is not met a second time as somebody else's"
    with watching(path, rig) as (session, config), desk_of(session, config) as desk:
        until(desk.views, "the job of before is listed")
        (past,) = desk.views()
        assert past.state == "retuned" and past.server == rig.server and past.report


def test_a_cancelled_job_is_rolled_back_and_another_person_only_watches(
    watched: tuple[WatchedRig, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    rig, path = watched
    rig.tune_fault("hangs")
    with watching(path, rig) as (session, config), desk_of(session, config) as desk:
        key = begin(desk, rig)
        until(lambda: running_step(desk, key).startswith("tune"), "it tunes", 30.0)
        with monkeypatch.context() as patch, desk_of(session, config) as other:
            patch.setattr(actions, "operator", lambda: "somebody@elsewhere")
            until(other.views, "the other desk sees the job")
            (seen,) = other.views()
            assert seen.readonly and seen.state == "attached" and seen.cancel_note
            told = f"a retune job holds {rig.server}"  # from the newest report, which may be a moment behind
            until(lambda: told in (other.refusal("rig", rig.server) or ""), "it is told", 10.0)
            held = f"{rig.server} is being retuned by"
            assert held in (other.plan("rig", rig.server).refusal or "")

            def said_unnamed() -> bool:  # gone while its tuner runs: the job's doing
                beside = len(session.watch.report("rig").servers) > 1  # tests beside this one run servers of their own
                return held in (other.plan("rig", None).refusal or "") or beside

            until(said_unnamed, "it is told of the only server too", 10.0)
            with pytest.raises(MoetopError, match="you can watch it"):
                other.cancel(seen.id)
            until(lambda: other.views()[0].log, "the other desk follows")
            time.sleep(0.5)  # several polls
            log = other.views()[0].log
            assert len(log) == len(set(log)), "each line is shown once"
        desk.cancel(key)
        done = follow(desk, key, "rolled_back", "down", "retuned")
        assert done.state == "rolled_back" and "cancel" in " ".join((*done.report, *done.log))
        assert rig.healthy() and not rig.table.exists()


def test_a_job_cancelled_while_it_measures_never_touches_the_host(watched: tuple[WatchedRig, Path]) -> None:
    rig, path = watched
    with watching(path, rig) as (session, config):
        desk = JobDesk(session, config, window_s=30.0, list_s=0.2)
        before = rig.pids()
        key = begin(desk, rig)
        desk.cancel(key)
        assert "before anything was touched" in follow(desk, key, "cancelled").log[-1]
        assert rig.pids() == before and not rig.jobs()
        desk.close()


def test_readonly_refuses_plans_are_not_started_and_nothing_is_cancelled(watched: tuple[WatchedRig, Path]) -> None:
    rig, path = watched
    with watching(path, rig, "--readonly") as (session, config), desk_of(session, config) as desk:
        assert "--readonly" in (desk.refusal("rig", rig.server) or "")
        plan = desk.plan("rig", rig.server)
        for act in (lambda: desk.start(plan), lambda: desk.cancel("here-1"), lambda: desk.answer("here-1", "kill")):
            with pytest.raises(RetuneRefused, match="--readonly"):
                act()
        assert rig.healthy() and not rig.jobs()


def test_what_is_asked_while_drawing_answers_at_once(watched: tuple[WatchedRig, Path]) -> None:
    """Also while the lock of the watch is held and a host is asked for its jobs."""
    rig, path = watched
    with watching(path, rig) as (session, config), desk_of(session, config) as desk:
        desk.refusal("rig", rig.server)
        with session.watch._lock:
            took = []
            for _ in range(20):
                began = time.perf_counter()
                desk.refusal("rig", rig.server)
                desk.views()
                took.append(time.perf_counter() - began)
        assert sorted(took)[len(took) // 2] < INSTANT_S


@pytest.mark.slow
def test_what_the_runner_asks_is_shown_and_answered(
    watched: tuple[WatchedRig, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    rig, path = watched
    os.kill(rig.pids()[0], 9)
    until(lambda: not rig.pids(), "the server is gone")
    rig.process.wait(10)
    rig.faults("ignore_sigterm@2")
    rig.start()
    monkeypatch.setitem(recipes.DEFAULT_TIMEOUTS, "ask_s", 30.0)
    with watching(path, rig) as (session, config), desk_of(session, config) as desk:
        until(lambda: (seen := server_seen(session, rig)) and seen.pid in rig.pids(), "the new server is found")
        key = begin(desk, rig)
        until(lambda: view(desk, key).question, "it asks", 30.0)
        asked = view(desk, key)
        assert [option for option, _ in asked.options] == ["wait", "kill"]
        desk.answer(key, "kill")
        done = follow(desk, key, "retuned", "rolled_back", "down")
        assert done.state == "retuned" and not done.question


@pytest.mark.slow
def test_an_interrupted_job_offers_to_roll_back_and_is_followed_to_its_end(watched: tuple[WatchedRig, Path]) -> None:
    rig, path = watched
    rig.tune_fault("hangs")
    with watching(path, rig) as (session, config), desk_of(session, config) as desk:
        key = begin(desk, rig)
        until(lambda: running_step(desk, key).startswith("tune"), "it tunes", 30.0)
        (job,) = rig.jobs()
        os.kill(rig.runner_pid(JobRef(job=job, host="rig")), 9)
        left = follow(desk, key, "interrupted")
        assert [option for option, _ in left.options] == ["finish", "rollback"] and left.question
        until(lambda: view(desk, key).report, "it says what is known")
        desk.answer(key, "rollback")
        done = follow(desk, key, "rolled_back", "down")
        assert done.state == "rolled_back" and not done.question and rig.healthy()
