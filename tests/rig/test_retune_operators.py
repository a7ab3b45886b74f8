"""What others see of a retune job while it works: who, what and how to follow it; never another server instead."""

from __future__ import annotations

import io

import msgspec
import pytest

from moetop.diagnose.host import HostEvidence
from moetop.errors import ExitCode
from moetop.model import HostReport, Phase, Status
from moetop.probe import retunes
from moetop.probe.servers import ServerWatch
from moetop.retune import actions, cli
from moetop.retune import job as jobs
from moetop.retune.host import store
from tests.rig.retune_kit import Rig, free_port, until


@pytest.fixture
def rig(tmp_path, monkeypatch):
    made = Rig(tmp_path, monkeypatch)
    yield made
    made.clean()


def refusal_of(rig, report, **changes) -> str:
    """The one line that `moetop --retune rig --yes` ends with."""
    given = {"yes": True, "err": io.StringIO(), "out": io.StringIO(), "window_s": 0.0}
    asked = cli.Call(rig.transport, "rig", lambda: report, **{**given, **changes})
    with pytest.raises(jobs.RetuneRefused) as refused:
        cli.run_on(asked)
    return refused.value.sentence()


def test_while_a_job_works_a_second_operator_is_told_of_it_whatever_the_server_looks_like(rig, monkeypatch):
    rig.faults("ignore_sigterm@1")
    rig.start()
    ref = rig.begin(rig.plan({"drain_s": 30.0}))
    first, pid = actions.operator(), rig.process.pid
    monkeypatch.setattr(actions, "operator", lambda: "other@laptop")
    rig.at_step(ref, "stop")
    seen = {
        "draining": rig.report(phase=Phase.DRAINING),
        "starting": rig.report(phase=Phase.LOADING),
        "crashed": rig.report(phase=Phase.CRASHED),
        "gone": rig.report(gone=True),
        "another process by now": rig.report(pid=pid + 100_000),
        "of an engine not known yet": rig.report(engine=None),
    }
    for what, report in seen.items():
        said = refusal_of(rig, report)
        assert f"minimoe is being retuned by {first}" in said and "moetop --retune rig --attach" in said, what
    nothing = HostReport(name="rig", headline="no_finding")
    for named in (None, "minimoe"):
        said = refusal_of(rig, nothing, server=named)
        assert f"minimoe is being retuned by {first}" in said and "now: stop the server" in said
    assert "no server other on rig" in refusal_of(rig, nothing, server="other")
    monkeypatch.setenv("XDG_STATE_HOME", str(rig.home / "of-another-user"))
    assert "no server found on rig, where another user's retune job is running now" in refusal_of(rig, nothing)
    assert "minimoe is being retuned by user id" in refusal_of(rig, seen["draining"])
    dry = cli.Call(
        rig.transport,
        "rig",
        lambda: rig.report(name="other", port=free_port()),
        dry_run=True,
        out=io.StringIO(),
        err=io.StringIO(),
    )
    assert cli.run_on(dry) == ExitCode.OK
    assert "▲ another user's retune job works on this host too" in dry.out.getvalue()


def test_the_probe_tells_of_a_job_while_it_works_also_where_its_server_is_gone(rig, monkeypatch):
    """So that a snapshot or screen taken meanwhile does not leave the reader guessing why a server is down."""
    said: list[dict[str, object]] = []
    watch = ServerWatch({"literals": (), "noise_literals": {}}, lambda frame, is_event: said.append(dict(frame)))

    def told() -> list[dict[str, object]]:
        return [frame for frame in said if frame.get("code") == "retune_job"]

    rig.tune_fault("hangs")
    rig.start()
    assert retunes.at_work([rig.port]) is None
    ref = rig.begin(rig.plan())
    rig.at_step(ref, "tune")
    assert not rig.pids()
    watch.start()
    try:
        until(lambda: told() and "now: tune" in told()[-1]["message"], "the probe tells of it")
        assert f"a retune job works on minimoe (by {actions.operator()}" in told()[-1]["message"]
        evidence = HostEvidence("rig")
        evidence.apply(msgspec.convert(told()[-1], Status))
        assert any("a retune job works on minimoe" in note for note in evidence.report(now=1.0).notes)
        monkeypatch.setenv("XDG_STATE_HOME", str(rig.home / "of-another-user"))
        words = f"a retune job of another user works on the server on port {rig.port}"
        assert retunes.at_work([rig.port, 1]) == (words, {"servers": [], "ports": [rig.port]})
        assert retunes.at_work([1]) is None
        monkeypatch.setenv("XDG_STATE_HOME", str(rig.state))
        jobs.cancel(rig.transport, ref)
        until(lambda: told()[-1]["level"] == "info", "the probe tells that it is over", 30)
    finally:
        watch.stop()
    assert rig.end(ref).status == "rolled_back"
    evidence.apply(msgspec.convert(told()[-1], Status))
    assert not evidence.report(now=2.0).notes
    assert retunes.lock_name("port 1") == store.lock_name("port 1")


def test_while_a_job_works_on_one_server_no_other_is_taken_for_it(rig):
    rig.faults("ignore_sigterm@1")
    rig.start()
    ref = rig.begin(rig.plan({"drain_s": 30.0}))
    rig.at_step(ref, "stop")
    other = rig.report(name="other", port=free_port())
    said = refusal_of(rig, other)
    assert "which server is meant is not sure" in said and "minimoe (by" in said and "--server other" in said
    dry = cli.Call(
        rig.transport, "rig", lambda: other, server="other", dry_run=True, out=io.StringIO(), err=io.StringIO()
    )
    assert cli.run_on(dry) == ExitCode.OK
    assert "▲ a retune job works on another server of this host: minimoe" in " ".join(dry.out.getvalue().split())


def test_a_server_that_is_gone_because_its_job_was_interrupted_or_ended_down_leads_to_that_job(rig):
    rig.tune_fault("hangs")
    rig.faults("fail_start@2")
    rig.start()
    ref = rig.begin(rig.plan())
    rig.at_step(ref, "tune")
    rig.kill_runner(ref)
    nothing = HostReport(name="rig", headline="no_finding")
    assert "an earlier job was interrupted" in refusal_of(rig, rig.report(gone=True))
    assert "was interrupted in the middle" in refusal_of(rig, nothing)
    jobs.finish_or_rollback(rig.transport, ref, "rollback")
    assert rig.end(ref).status == "down"
    said = refusal_of(rig, nothing)
    assert "left minimoe down" in said and "--attach" in said
