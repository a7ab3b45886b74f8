"""What can go wrong in a retune, with real processes and signals; afterwards what was moved is back or named."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys

import pytest

from moetop.errors import ExitCode
from moetop.retune import actions, cli, wire
from moetop.retune import job as jobs
from moetop.retune.host import procs
from moetop.retune.types import StepState
from moetop.transport.ssh import SshTransport
from tests.rig.retune_kit import Rig, until


@pytest.fixture
def rig(tmp_path, monkeypatch):
    made = Rig(tmp_path, monkeypatch)
    yield made
    made.clean()


def slow(*values: object) -> object:
    return pytest.param(*values, marks=pytest.mark.slow)


def assert_back(rig: Rig, message: str, state) -> None:
    """Rolled back, with these words, and the old server serves untuned as before."""
    assert state.status == "rolled_back", state
    assert message in state.message
    assert rig.healthy() and len(rig.pids()) == 1
    assert not rig.table.exists()


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        slow("fails", "no kernel image is available"),
        slow("hangs", "did not end within 1 s"),
        slow("nothing", "was not written"),
        ("garbage", "not readable JSON"),
        slow("other_name", "E=1,N=1,device_name=other.json instead"),
    ],
)
def test_a_tuner_that_goes_wrong_is_rolled_back(rig, fault, words):
    rig.tune_fault(fault)
    rig.start()
    state = rig.end(rig.begin(rig.plan(timeouts={"tune_s": 1.0 if fault == "hangs" else 20.0})))
    assert_back(rig, words, state)


@pytest.mark.parametrize(
    ("faults", "words"),
    [
        slow("never_ready@2", "not ready after 2 s"),
        slow("unhealthy@2", "health answers 503"),
        slow("crash_after_ready@2", "it was ready, then the server ended with exit code 9"),
        slow("forgets_table@2", "did not take the tuning"),
    ],
)
def test_a_server_that_does_not_come_back_right_is_rolled_back(rig, faults, words):
    rig.faults(faults)
    rig.start()
    state = rig.end(rig.begin(rig.plan(timeouts={"start_s": 2.0, "verify_s": 2.5})))
    assert_back(rig, words, state)


def test_a_server_that_ignores_sigterm_is_ended_only_after_the_drain_and_an_unanswered_question(rig):
    rig.faults("ignore_sigterm@1 leftover@1")
    rig.start()
    with (rig.home / "gpu_pids").open("a") as pids:
        pids.write(" " + (rig.home / "leftover_pid").read_text())
    ref = rig.begin(rig.plan(timeouts={"drain_s": 1.0, "ask_s": 1.0, "stop_s": 1.0}))
    asked = rig.wait(ref, lambda state: state.asks is not None, "it asks")
    assert set(asked.asks.options) == {"wait", "kill"} and rig.pids()
    state = rig.end(ref)
    assert state.status == "retuned", state.message
    details = {step.id: step.detail for step in state.steps}
    assert "by force" in details["stop"]


@pytest.mark.slow
def test_an_answer_lets_it_drain_longer(rig):
    rig.faults("ignore_sigterm@1")
    rig.start()
    ref = rig.begin(rig.plan(timeouts={"drain_s": 1.0, "ask_s": 8.0}))
    rig.wait(ref, lambda state: state.asks is not None, "it asks")
    jobs.answer(rig.transport, ref, "wait")
    rig.wait(ref, lambda state: state.asks is None, "it goes on")
    rig.wait(ref, lambda state: state.asks is not None, "it asks again")
    os.kill(rig.process.pid, signal.SIGKILL)
    assert rig.end(ref).status == "retuned"


@pytest.mark.slow
def test_leftover_children_are_ended_before_anything_starts(rig):
    rig.faults("leftover@1")
    rig.start()
    child = int((rig.home / "leftover_pid").read_text())
    state = rig.end(rig.begin(rig.plan(timeouts={"stop_s": 1.0})))
    assert state.status == "retuned"
    assert "1 leftovers were ended" in {step.id: step.detail for step in state.steps}["free"]
    assert procs.identity(child) is None


@pytest.mark.parametrize(
    "step", [slow("baseline"), slow("stop"), slow("tune"), slow("ready"), slow("verify"), slow("measure")]
)
def test_a_cancel_puts_everything_back(rig, step):
    longer = {"baseline": {"baseline_s": 20.0}, "verify": {"verify_s": 20.0}, "measure": {"baseline_s": 4.0}}
    if step == "stop":
        rig.faults("ignore_sigterm@1")
    if step == "ready":
        rig.faults("never_ready@2")
    if step == "tune":
        rig.tune_fault("hangs")
    rig.start()
    old = rig.pids()
    ref = rig.begin(rig.plan(timeouts=longer.get(step, {"drain_s": 1.5})))
    rig.at_step(ref, step)
    jobs.cancel(rig.transport, ref)
    state = rig.end(ref)
    assert_back(rig, f"cancelled by {actions.operator()}", state)
    assert (rig.pids() == old) == (step == "baseline"), "only a server that was not touched keeps its process"


@pytest.mark.parametrize(
    ("step", "how"),
    [
        ("tune", "rollback"),
        *[
            slow(step, how)
            for step in ("check", "baseline", "stop", "tune", "install", "ready", "verify")
            for how in ("finish", "rollback")
            if (step, how) != ("tune", "rollback")
        ],
    ],
)
def test_a_killed_runner_is_found_and_its_job_finished_or_rolled_back(rig, step, how):
    if step == "stop":
        rig.faults("ignore_sigterm@1")
    if step == "tune":
        rig.tune_fault("hangs")
    if step == "ready":
        rig.faults("never_ready@2")
    rig.start()
    ref = rig.begin(rig.plan(timeouts={"drain_s": 2.0, "baseline_s": 1.0, "verify_s": 1.5}))
    rig.at_step(ref, step)
    rig.kill_runner(ref)
    rig.tune_fault("")
    with pytest.raises(jobs.RetuneRefused) if rig.pids() else pytest.raises(jobs.MoetopError):
        rig.begin(rig.plan())
    if step == "ready":
        for pid in rig.pids():
            os.kill(pid, signal.SIGKILL)
    jobs.finish_or_rollback(rig.transport, ref, how)
    state = rig.end(ref)
    assert rig.healthy() and len(rig.pids()) == 1
    if step == "ready":
        assert state.status == "rolled_back"
    else:
        assert state.status == ("retuned" if how == "finish" else "rolled_back"), state
    assert rig.table.exists() == (state.status == "retuned")


def test_a_second_operator_sees_who_works_and_cannot_interfere(rig, monkeypatch):
    rig.tune_fault("hangs")
    rig.start()
    plan = rig.plan()
    ref = rig.begin(plan)
    first = actions.operator()
    monkeypatch.setattr(actions, "operator", lambda: "other@laptop")
    with pytest.raises(jobs.RetuneRefused, match=f"being retuned by {first}"):
        jobs.start(rig.transport, plan, confirmed=plan.confirm)
    rig.at_step(ref, "tune")
    folder = rig.state / "moetop/jobs" / ref.job
    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in folder.iterdir()}
    assert modes["process.json"] == modes["spec.json"] == modes["state.json"] == "0o600"
    assert oct(folder.stat().st_mode & 0o777) == oct(folder.parent.stat().st_mode & 0o777) == "0o700"
    assert [line.status for line in jobs.list_jobs(rig.transport) if line.job == ref.job] == ["running"]
    for act in (lambda: jobs.cancel(rig.transport, ref), lambda: jobs.finish_or_rollback(rig.transport, ref, "finish")):
        with pytest.raises(wire.HostError, match=first):
            act()
    assert rig.state_of(ref).status == "running"
    monkeypatch.undo()
    monkeypatch.setenv("XDG_STATE_HOME", str(rig.state))
    jobs.cancel(rig.transport, ref)
    assert rig.end(ref).status == "rolled_back"
    logged = [json.loads(line) for line in (rig.state / "moetop/actions.jsonl").read_text().splitlines()]
    assert any(entry["who"] == "other@laptop" and "refused" in entry["result"] for entry in logged)


def test_a_server_that_was_restarted_since_the_plan_is_not_touched(rig):
    rig.start()
    plan = rig.plan()
    os.kill(rig.process.pid, signal.SIGKILL)
    rig.process.wait(10)
    rig.start()
    old = rig.pids()
    state = rig.end(rig.begin(plan))
    assert state.status == "refused" and "nothing was touched" in state.message
    assert rig.pids() == old and rig.healthy()


@pytest.mark.slow
def test_a_server_that_something_else_starts_again_is_left_to_it(rig):
    """A shell loop stands for any supervisor that moetop knows nothing of."""
    rig.start()
    os.kill(rig.process.pid, signal.SIGKILL)
    rig.process.wait(10)
    (rig.home / "loop.sh").write_text('while :; do "$@" >> server.log 2>&1; sleep 0.2; done\n')
    env = {
        **os.environ, "MINIMOE_CPU_STANDIN": "1", "MINIMOE_SRC": str(rig.root / "examples/minimoe"),
        "RIG_HOME": str(rig.home), "SGLANG_MOE_CONFIG_DIR": str(rig.home / "moe"),
    }  # fmt: skip
    loop = subprocess.Popen(["sh", str(rig.home / "loop.sh"), *rig.argv()], cwd=rig.home, env=env)
    try:
        until(rig.healthy, "the loop's server is healthy")
        pid = next(pid for pid in rig.pids() if pid != loop.pid)
        (rig.home / "gpu_pids").write_text(str(pid))
        state = rig.end(rig.begin(rig.plan(pid=pid)))
        assert state.status == "rolled_back", state
        assert "something restarts the server by itself" in state.message
        assert rig.healthy()
    finally:
        loop.kill()
        loop.wait()


@pytest.mark.slow
def test_a_job_from_before_a_reboot_can_be_rolled_back(rig):
    """The boot id in the job's state is changed: this machine cannot be rebooted in the middle of a test."""
    rig.tune_fault("hangs")
    rig.start()
    ref = rig.begin(rig.plan())
    rig.at_step(ref, "tune")
    tuner = json.loads((rig.state / f"moetop/jobs/{ref.job}/state.json").read_text())["tuner"]
    rig.kill_runner(ref)
    if tuner:
        os.kill(tuner["pid"], signal.SIGKILL)
    path = rig.state / f"moetop/jobs/{ref.job}/state.json"
    text = path.read_text()
    boot = json.loads(text)["runner"]["boot"]
    path.write_text(text.replace(boot, "00000000-0000-0000-0000-000000000000"))
    assert rig.state_of(ref).rebooted
    jobs.finish_or_rollback(rig.transport, ref, "rollback")
    assert rig.end(ref).status == "rolled_back" and rig.healthy()


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_full_disk_is_refused_before_and_survived_in_the_middle(rig):
    disk = rig.home / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=70m", "tmpfs", str(disk)], check=False).returncode != 0:
        pytest.skip("no right to mount here")
    try:
        os.environ["XDG_STATE_HOME"] = str(disk)
        rig.state = disk
        rig.tune_fault("hangs")
        rig.start()
        ref = rig.begin(rig.plan())
        rig.at_step(ref, "tune")
        with (disk / "filler").open("wb") as filler:
            while True:
                try:
                    filler.write(b"x" * (1 << 20))
                    filler.flush()
                except OSError:
                    break
        jobs_state = disk / f"moetop/jobs/{ref.job}/state.json"
        os.kill(json.loads(jobs_state.read_text())["tuner"]["pid"], signal.SIGKILL)
        until(lambda: json.loads(jobs_state.read_text())["status"] == "rolled_back", "the end is written", 40)
        assert rig.healthy()
        refused = rig.plan(pid=rig.pids()[0])
        assert [refusal.code for refusal in refused.refusals] == ["disk_full"]
    finally:
        rig.clean()
        subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.parametrize("step", [slow("baseline"), slow("stop"), "tune", slow("ready"), slow("verify")])
def test_a_link_that_is_cut_at_any_step_does_not_stop_the_job(rig, make_sshd, client, step):
    """Over a real sshd: its sessions are killed, moetop comes back on a new connection and finds the end."""
    sshd = make_sshd(env={"XDG_STATE_HOME": str(rig.state), "PATH": os.environ["PATH"]})
    client.admit(sshd)
    rig.tune_fault("slow")
    rig.start()
    rig.transport = SshTransport(client.target(sshd))
    try:
        ref = rig.begin(rig.plan(timeouts={"baseline_s": 0.8, "verify_s": 1.0}))
        rig.at_step(ref, step)
        for pid in sshd.session_pids():
            os.kill(pid, signal.SIGKILL)
        until(lambda: ended_by_now(rig, ref), "the job ends by itself", 40)
        asked = cli.Call(rig.transport, "rig", rig.report, attach=True, as_json=True, poll_s=0.1)
        asked.out, asked.err = io.StringIO(), io.StringIO()
        assert cli.run_on(asked) == ExitCode.OK
        assert json.loads(asked.out.getvalue())["job"]["status"] == "retuned"
        assert rig.healthy()
    finally:
        rig.transport.close()


def ended_by_now(rig, ref) -> bool:
    return json.loads((rig.state / "moetop/jobs" / ref.job / "state.json").read_text())["status"] != "running"


@pytest.mark.slow
def test_a_job_outlives_moetop_and_its_connection(rig, tmp_path):
    """moetop is killed right after the start, with the shell it ran in: the job goes on to its end."""
    rig.start()
    plan = rig.plan()
    (tmp_path / "request").write_text(json.dumps(plan.spec))
    code = (
        "import json, sys; from moetop.retune import wire; from moetop.transport.local import LocalTransport\n"
        "r = {'op': 'start', 'operator': 'me@laptop', 'spec': json.load(open(sys.argv[1]))}\n"
        "print(wire.ask(LocalTransport('rig'), r)['job'], flush=True); import time; time.sleep(60)\n"
    )
    client = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "request")],
        stdout=subprocess.PIPE,
        start_new_session=True,
        cwd=rig.root,
    )
    job = client.stdout.readline().decode().strip()
    os.killpg(client.pid, signal.SIGKILL)
    client.wait()
    state = rig.end(jobs.JobRef(job=job, host="rig"))
    assert state.status == "retuned" and state.operator == "me@laptop"
    assert all(step.state == StepState.DONE for step in state.steps)
