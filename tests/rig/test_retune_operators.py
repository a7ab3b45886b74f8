"""What others see of a retune job while it works: who, what and how to follow it; never another server instead."""

from __future__ import annotations

import io

import pytest

from moetop.errors import ExitCode
from moetop.model import HostReport, Phase
from moetop.retune import actions, cli
from moetop.retune import job as jobs
from tests.rig.retune_kit import Rig, free_port


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
