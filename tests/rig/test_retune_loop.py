"""The whole retune on this machine: a server found untuned is stopped, tuned, started, verified, or put back."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from moetop.errors import ExitCode
from moetop.model import Engine, TuningFile
from moetop.retune import cli
from moetop.retune import job as jobs
from moetop.retune.host import procs
from moetop.retune.types import CommandLine, Overrides
from tests.rig.retune_kit import QUICK, SECRET, Rig, proc, until


@pytest.fixture
def rig(tmp_path, monkeypatch):
    made = Rig(tmp_path, monkeypatch)
    yield made
    made.clean()


def call(rig: Rig, **changes: object) -> cli.Call:
    """`moetop --retune` without a terminal."""
    given = {
        "transport": rig.transport,
        "host": "rig",
        "report": rig.report,
        "yes": True,
        "as_json": True,
        "overrides": lambda server: Overrides(timeouts=QUICK),
        "out": io.StringIO(),
        "err": io.StringIO(),
        "input": io.StringIO(),
        "window_s": 0.0,
        "poll_s": 0.1,
    }
    return cli.Call(**{**given, **changes})


def test_an_untuned_server_is_stopped_tuned_started_and_proven(rig):
    rig.start()
    old = rig.pids()
    asked = call(rig)
    assert cli.run_on(asked) == ExitCode.OK
    written = json.loads(asked.out.getvalue())
    assert written["job"]["status"] == "retuned"
    assert {step["state"] for step in written["job"]["steps"]} == {"done"}
    assert rig.healthy()
    assert len(rig.pids()) == 1 and rig.pids() != old
    assert json.loads(rig.table.read_text())["8192"]["BLOCK_SIZE_M"] == 128
    assert "Using MoE kernel config from" in rig.log.read_text()
    attached = call(rig, attach=True)
    assert cli.run_on(attached) == ExitCode.OK
    for told in (asked.err.getvalue(), attached.err.getvalue()):
        words = (
            "✓ stop the server",
            "  tuner: ",
            "✓ tune",
            "✓ start the server",
            "  server: ",
            "✓ wait until it is ready",
        )
        places = [told.index(word) for word in words]
        assert places == sorted(places), f"not in the order in which it happened: {told}"
    said = asked.err.getvalue() + asked.out.getvalue() + rig.everything_written()
    assert SECRET not in said
    assert "HF_TOKEN" not in rig.everything_written()
    started = (rig.state / "moetop" / "jobs").glob("*/process.json")
    assert not list(started), "the environment is kept no longer than it is needed"


@pytest.mark.slow
def test_what_the_new_process_gets_is_what_the_old_one_had(rig):
    rig.start()
    limit = os.sched_getaffinity(0)
    before = (rig.pids()[0], proc(rig.pids()[0], "environ"))
    os.sched_setaffinity(before[0], {min(limit)})
    subprocess.run(["prlimit", "--pid", str(before[0]), "--nofile=777:888"], check=True)
    assert rig.end(rig.begin(rig.plan())).status == "retuned"
    now = rig.pids()[0]
    assert sorted(proc(now, "environ").split(b"\0")) == sorted(before[1].split(b"\0"))
    assert procs.link(now, "cwd") == str(rig.home)
    assert procs.link(now, "fd/1") == str(rig.log)
    assert os.sched_getaffinity(now) == {min(limit)}
    assert b"Max open files            777                  888" in proc(now, "limits")


@pytest.mark.slow
def test_a_start_that_fails_puts_the_old_table_back_byte_for_byte(rig):
    rig.table.parent.mkdir(parents=True)
    old = (
        b'{"64": {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 32,   "GROUP_SIZE_M": 1, "num_warps": 4}}\n\n'
    )
    rig.table.write_bytes(old)
    rig.faults("fail_start@2")
    rig.start()
    state = rig.end(rig.begin(rig.plan()))
    assert state.status == "rolled_back"
    assert "Received sigquit from a child process" in state.message
    assert rig.table.read_bytes() == old
    assert rig.healthy()
    assert jobs.exit_code(state) == ExitCode.ROLLED_BACK


def test_when_the_old_start_fails_too_it_says_down_and_a_later_roll_back_brings_it_up(rig):
    rig.faults("fail_start@2 fail_start@3")
    rig.start()
    ref = rig.begin(rig.plan())
    state = rig.end(ref)
    assert (state.status, jobs.exit_code(state)) == ("down", ExitCode.DOWN)
    assert "DOWN" in state.advice[0] and str(rig.log) in state.advice[0]
    assert not rig.pids() and not rig.table.exists()
    assert cli.run_on(call(rig, attach=True)) == ExitCode.ROLLED_BACK
    assert rig.healthy()


def test_flashinfer_caches_of_all_ranks_are_moved_aside_and_written_anew(rig):
    folder = rig.home / "cache/flashinfer/autotune/0.6.14/sm90/88ed2caa135f6803"
    folder.mkdir(parents=True)
    ranks = [folder / f"rank_tp{rank}_pp0_dp0.json" for rank in range(2)]
    for rank in ranks:
        rank.write_text(f'{{"_metadata": {{}}, "old of": "{rank.name}"}}')
    rig.faults("writes_caches@2")
    (rig.home / "caches").write_text("\n".join(map(str, ranks)))
    rig.start()
    changes = {
        "args": {"moe_runner_backend": "flashinfer_cutlass", "port": rig.port},
        "version": "0.5.16",
        "files": (TuningFile(path=str(ranks[0]), role="flashinfer_cache", exists=True),),
        "events": (),
    }
    plan = rig.plan(**changes)
    assert [line for step in plan.steps if step.id == "move" for line in step.lines] == [str(rank) for rank in ranks]
    state = rig.end(rig.begin(plan))
    assert state.status == "retuned", state.message
    assert [rank.read_text() for rank in ranks] == ['{"new": 1}'] * 2
    aside = sorted(folder.glob("*.moetop-old-*"))
    assert [path.read_text() for path in aside] == [f'{{"_metadata": {{}}, "old of": "{rank.name}"}}' for rank in ranks]


@pytest.mark.slow
def test_flashinfer_caches_are_back_when_the_engine_writes_none(rig):
    folder = rig.home / "cache"
    folder.mkdir()
    ranks = [folder / f"rank_tp{rank}_pp0_dp0.json" for rank in range(2)]
    for rank in ranks:
        rank.write_bytes(os.urandom(200))
    old = [rank.read_bytes() for rank in ranks]
    rig.start()
    file = TuningFile(path=str(ranks[0]), role="flashinfer_cache", exists=True)
    args = {"moe_runner_backend": "flashinfer_cutlass", "port": rig.port}
    state = rig.end(rig.begin(rig.plan(args=args, version="0.5.16", files=(file,), events=())))
    assert state.status == "rolled_back" and "no new cache" in state.message
    assert [rank.read_bytes() for rank in ranks] == old
    assert rig.healthy()


@pytest.mark.slow
def test_configured_commands_stop_tune_and_start(rig):
    rig.start()
    tuned = rig.home / "tuned"
    overrides = Overrides(
        stop=CommandLine(("kill", "-TERM", str(rig.process.pid))),
        tune=CommandLine(("touch", str(tuned))),
        start=CommandLine(tuple(rig.argv()), cwd=str(rig.home), output=str(rig.home / "new.log")),
        env={"MOETOP_TEST": "secret of the operator"},
        timeouts=QUICK,
    )
    state = rig.end(rig.begin(rig.plan(overrides=overrides, events=())))
    assert state.status == "retuned", state.message
    assert tuned.exists()
    assert "fired up" in (rig.home / "new.log").read_text()
    assert b"MOETOP_TEST=secret of the operator" in proc(rig.pids()[0], "environ")
    assert "secret of the operator" not in rig.everything_written()


@pytest.mark.slow
def test_a_unit_is_stopped_and_started_through_its_manager(rig):
    """systemctl is a stand-in that starts and ends the real server; systemd itself is not on this machine."""
    rig.start()
    code = f"import sys; sys.path.insert(0, {str(rig.root)!r}); from tests.rig.retune_systemctl import main; "
    (rig.home / "bin/systemctl").write_text(f"#!/usr/bin/env python3\n{code}main({str(rig.home)!r})\n")
    (rig.home / "bin/systemctl").chmod(0o755)
    rig.as_unit("moe.service")
    plan = rig.plan(survey={"manager": {"kind": "systemd", "name": "moe.service", "user": False, "facts": {}}})
    assert "systemctl --no-ask-password stop -- moe.service" in plan.to_text()
    state = rig.end(rig.begin(plan))
    assert state.status == "retuned", state.message
    assert (rig.home / "systemctl.log").read_text().split("\n")[:2] == [
        "--no-ask-password stop -- moe.service",
        "--no-ask-password start -- moe.service",
    ]
    assert rig.healthy()


def test_dry_run_prints_the_plan_and_touches_nothing(rig):
    rig.start()
    old = rig.pids()
    asked = call(rig, dry_run=True)
    assert cli.run_on(asked) == ExitCode.OK
    plan = json.loads(asked.out.getvalue())
    assert plan["schema"] == "moetop.retune-plan/1" and not plan["refused"]
    assert [step["id"] for step in plan["steps"]][:5] == ["check", "baseline", "stop", "free", "tune"]
    assert "spec" not in plan and SECRET not in asked.out.getvalue()
    assert rig.pids() == old and not rig.state.exists(), "looking makes no folder on the host"


def test_running_requests_need_the_hosts_name(rig):
    rig.start()
    plan = rig.plan(survey={}, requests={"running": 3.0})
    assert plan.confirm == "rig" and "3 requests" in plan.confirm_why
    with pytest.raises(jobs.RetuneRefused, match="has to be typed"):
        jobs.start(rig.transport, plan, confirmed="yes")
    with pytest.raises(jobs.RetuneRefused, match="nobody to ask"):
        cli.run_on(call(rig, yes=False))
    assert len(rig.pids()) == 1 and not rig.state.exists()


def test_a_pipe_into_tee_and_a_terminal_are_refused_before_anything_is_touched(rig):
    with (rig.home / "server.log").open("ab") as log:
        tee = subprocess.Popen(["tee", "-a", str(rig.home / "tee.log")], stdin=subprocess.PIPE, stdout=log)
    rig.start(stdout=tee.stdin)
    tee.stdin.close()
    until(lambda: "fired up" in rig.log.read_text(), "the log says that it is up")
    plan = rig.plan()
    assert [refusal.code for refusal in plan.refusals] == ["output_lost"]
    assert f"a pipe into tee (pid {tee.pid})" in plan.refusals[0].text
    assert cli.run_on(call(rig, dry_run=True)) == ExitCode.REFUSED
    rig.clean()
    tee.wait(10)
    leader, follower = os.openpty()
    rig.start(stdout=follower)
    plan = rig.plan()
    os.close(follower)
    os.close(leader)
    assert "goes to a terminal" in plan.refusals[0].text


def test_a_vllm_server_is_asked_by_its_own_metric_names(rig):
    rig.start()
    plan = rig.plan(engine=Engine.VLLM, args={"moe_backend": "triton", "model": "m"}, version="0.11.0")
    assert any(refusal.code == "no_script" for refusal in plan.refusals)


@pytest.fixture
def terminal():
    """(what the person types into, what moetop reads): a real pseudo-terminal."""
    leader, follower = os.openpty()
    with os.fdopen(leader, "w", buffering=1) as keys, os.fdopen(follower, "r") as tty:
        yield keys, tty


def test_the_hosts_name_is_typed_at_the_terminal_and_anything_else_touches_nothing(rig, terminal):
    keys, tty = terminal
    rig.start()
    busy = call(rig, yes=False, input=tty, report=lambda: rig.report(metrics=None, port=None, args={}))
    keys.write("yes\n")
    with pytest.raises(jobs.RetuneRefused, match="not confirmed"):
        cli.run_on(busy)
    assert "type rig to go on" in busy.err.getvalue()
    assert not rig.state.exists()


@pytest.mark.slow
def test_at_the_terminal_the_question_of_a_long_drain_is_answered_and_an_interrupt_can_cancel(rig, terminal):
    keys, tty = terminal
    rig.faults("ignore_sigterm@1 never_ready@2")
    rig.start()
    timeouts = {**QUICK, "drain_s": 1.0, "ask_s": 30.0}
    asked = call(rig, yes=False, input=tty, overrides=lambda server: Overrides(timeouts=timeouts))
    keys.write("yes\n")
    code = []
    worker = threading.Thread(target=lambda: code.append(cli.run_on(asked)))
    worker.start()
    until(lambda: "wait / kill?" in asked.err.getvalue(), "it asks")
    keys.write("kill\n")
    until(lambda: "wait until it is ready: running" in asked.err.getvalue(), "it starts", 30)
    real, keyed = jobs.poll, []

    def interrupted(*args: object, **kwargs: object) -> object:
        if not keyed:
            keyed.append(keys.write("cancel\n"))  # typed before it is asked: no answer
            raise KeyboardInterrupt
        return real(*args, **kwargs)

    jobs.poll = interrupted
    try:
        until(lambda: "type cancel" in asked.err.getvalue(), "it asks whether to cancel")
        keys.write("cancle\n")
        until(lambda: "that is neither" in asked.err.getvalue(), "it asks again")
        keys.write("cancel\n")
        worker.join(60)
    finally:
        jobs.poll = real
    assert code == [ExitCode.ROLLED_BACK]
    assert "cancelled by" in asked.out.getvalue() and rig.healthy()


@pytest.mark.slow
def test_interrupting_moetop_leaves_the_job_running(rig, tmp_path):
    rig.tune_fault("slow")
    rig.start()
    (tmp_path / "spec").write_text(json.dumps(rig.plan().spec))
    code = (
        "import io, json, sys\n"
        "from moetop.retune import cli, job, wire; from moetop.transport.local import LocalTransport\n"
        "t = LocalTransport('rig')\n"
        "r = {'op': 'start', 'operator': 'me@laptop', 'spec': json.load(open(sys.argv[1]))}\n"
        "ref = job.JobRef(job=wire.ask(t, r)['job'], host='rig'); print(ref.job, flush=True)\n"
        "sys.exit(int(cli._follow(cli.Call(t, 'rig', None, input=io.StringIO()), ref, None)))\n"
    )
    client = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "spec")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=rig.root,
    )
    job = client.stdout.readline().decode().strip()
    ref = jobs.JobRef(job=job, host="rig")
    rig.at_step(ref, "tune")
    client.send_signal(signal.SIGINT)
    _, said = client.communicate(timeout=30)
    assert client.returncode == ExitCode.RUNNING and b"left running on rig" in said
    assert rig.end(ref).status == "retuned"


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="being root for another user needs root")
def test_root_starts_another_users_server_as_that_user(monkeypatch):
    nobody = 65534
    with tempfile.TemporaryDirectory(prefix="moetop-rig-") as folder:
        home = Path(folder)
        home.chmod(0o777)
        rig = Rig(home, monkeypatch)
        rig.python = "/usr/bin/python3"  # one that this user may run
        try:
            (home / "moe").mkdir(mode=0o777)
            (home / "moe").chmod(0o777)
            rig.log.touch()
            rig.log.chmod(0o666)
            rig.start(user=nobody)
            state = rig.end(rig.begin(rig.plan()))
            assert state.status == "retuned", rig.log.read_text()
            assert procs.owner(rig.pids()[0]) == nobody
            assert rig.table.stat().st_uid in (0, nobody) and rig.table.stat().st_mode & 0o444 == 0o444
        finally:
            rig.clean()
