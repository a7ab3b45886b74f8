"""The detached program: takes the lock, runs the steps, rolls back. Ends in retuned, rolled_back, down or refused."""

from __future__ import annotations

import os
import signal
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import files, procs, store, tuner
from .job import DOWN, REFUSED, RETUNED, ROLLED_BACK, RUNNING, Cancelled, Job, StepFailed, prepare_process
from .redact import redact_argv
from .server import ServerControl
from .steps import STEPS, Refused

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

ROLLBACK_TITLES = {
    "rb_tuner": "roll back: end the tuner",
    "rb_stop": "roll back: stop what runs",
    "rb_free": "roll back: wait until it is gone",
    "rb_files": "roll back: put files back",
    "rb_start": "roll back: start the server as it was",
    "rb_ready": "roll back: wait until it is ready",
    "rb_found": "roll back: keep the server that was started by something else",
}


def run(folder: Path, mode: str) -> None:
    """Work on a job to its end. `mode` is forward, finish (go on where another runner died) or rollback."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    spec = store.read_json(folder / "spec.json")
    lock = store.Lock(spec["lock_key"])
    state = store.read_json(folder / "state.json")
    try:
        lock.take({"who": state["operator"], "job": folder.name, "since": time.time(), "pid": os.getpid()})
    except store.Busy as busy:
        if state["status"] == RUNNING and state.get("runner") is None:
            state.update(status=REFUSED, message=f"the server is being retuned by {busy}", ended=time.time())
            store.write_json(folder / "state.json", state)
        return
    prepare_process(folder)
    job = Job(folder)
    server = ServerControl(job)
    job.must_save = not job.state.get("signalled")
    if mode == "rollback":
        _roll_back(job, server, job.state.get("reason") or "asked for")
        return
    job.state["status"] = RUNNING
    _forward(job, server)


def _forward(job: Job, server: ServerControl) -> None:
    try:
        for entry in job.state["steps"]:
            if entry["state"] == "done" or entry["id"].startswith("rb_"):
                continue
            job.check_cancel()
            with job.step(entry):
                STEPS[entry["id"]](job, server, entry)
            if job.state.get("signalled"):
                job.must_save = False
        _drop_environment(job)
        job.finish(RETUNED, _retuned_words(job), _kept_words(job))
    except Refused as reason:
        _drop_environment(job)
        job.finish(REFUSED, f"nothing was touched: {reason}", [])
    except (Cancelled, StepFailed) as reason:
        _roll_back(job, server, str(reason))
    except Exception as error:  # a fault of ours must still put everything back
        traceback.print_exc()
        _roll_back(job, server, f"unexpected fault in the runner: {type(error).__name__}: {error}")


def _retuned_words(job: Job) -> str:
    before, after = job.state["before"].get("tokens_s"), job.state["after"].get("tokens_s")
    numbers = f"; {before:g} -> {after:g} tokens/s" if before and after else ""
    return f"{job.state['server']} is retuned and ready{numbers}"


def _kept_words(job: Job) -> list[str]:
    moved = [one["from"] for one in job.state["undo"] if one["do"] == "move_back" and os.path.lexists(one["from"])]
    return [f"the earlier files are kept: {', '.join(moved)}"] if moved else []


def _drop_environment(job: Job) -> None:
    """The environment is kept only as long as a roll back may need it."""
    path = job.folder / "process.json"
    if path.exists():
        path.unlink()
    if job.spec["env"]:
        store.write_json(job.folder / "spec.json", {**job.spec, "env": {}})


def _roll_back(job: Job, server: ServerControl, reason: str) -> None:
    """Put everything back as it was. A second cancel cannot stop this."""
    state = job.state
    job.cancellable, job.must_save = False, False
    state.update(reason=reason, mode="rollback", status=RUNNING, not_back=[], asks=None)
    state["steps"] = [one for one in state["steps"] if not one["id"].startswith("rb_")]
    for entry in state["steps"]:
        if entry["state"] in ("pending", "running"):
            entry["state"] = "skipped" if entry["state"] == "pending" else "failed"
    job.act("roll back", reason)
    try:
        touched = _undo_steps(job, server)
    except Exception as error:  # the end state must be said whatever happened
        if not isinstance(error, StepFailed):
            traceback.print_exc()
        job.finish(DOWN, f"{reason}; and the roll back failed: {error}", _down_advice(job))
        return
    _drop_environment(job)
    done = "the server runs as before" if touched else "the server was not touched and runs"
    not_back = [f"not put back, do it by hand: {words}" for words in state["not_back"]]
    job.finish(ROLLED_BACK, f"{reason}; {done}", not_back)


def _undo_steps(job: Job, server: ServerControl) -> bool:
    """The steps of a roll back; True if the server had to be started again. Raises StepFailed."""
    state = job.state
    with _rb(job, "rb_tuner") as entry:
        entry["detail"] = "ended" if tuner.stop(job) else "none was running"
    old, signalled = state.get("old"), state.get("signalled", False)
    if not signalled and procs.alive(old or job.spec["ident"]):
        _put_files_back(job)
        return False
    with _rb(job, "rb_stop") as entry:
        entry["detail"] = _stop_all(job, server)
    with _rb(job, "rb_free") as entry:
        _wait_gone(job, server, entry)
    _put_files_back(job)
    if not state.get("survivor"):
        try:
            _start_old(job, server)
            return True
        except StepFailed:
            found = server.brought_back()
            if found is None:
                raise
            server.end_new()
            state["new"] = found
    with _rb(job, "rb_found") as entry:
        ready = server.wait_ready({"how": "found"}, job.timeout("start_s"))
        entry["detail"] = f"process {state['new']['pid']}, {ready}"
    return True


def _start_old(job: Job, server: ServerControl) -> None:
    start = job.spec["old_start"]
    with _rb(job, "rb_start") as entry:
        entry["detail"] = server.start(start, {})
    with _rb(job, "rb_ready") as entry:
        entry["detail"] = server.wait_ready(start, job.timeout("start_s"))


def _stop_all(job: Job, server: ServerControl) -> str:
    """The old server may still be draining, the new one may run; both must be gone before the old one starts."""
    said = []
    if procs.alive(job.state.get("old")):
        said.append("old: " + server.stop_old(may_ask=False))
    start = job.spec["start"]
    if job.state.get("start_begun") and (server.adopt(start) or start["how"] == "command"):
        said.append("new: " + server.end_new())
    return "; ".join(said) or "nothing was running"


def _wait_gone(job: Job, server: ServerControl, entry: dict[str, Any]) -> None:
    """Where a supervisor brought the old server back by itself, that server is the one to keep."""
    try:
        entry["detail"] = server.wait_gone()
    except StepFailed as error:
        found = server.brought_back()
        if found is None:
            entry["detail"] = f"{error}; starting all the same, since nothing serves now"
            return
        job.state["survivor"], job.state["new"] = True, found
        entry["detail"] = f"{error}; it is kept as process {found['pid']}"


def _put_files_back(job: Job) -> None:
    """All that can be put back; what cannot is named, and the server is started all the same."""
    with _rb(job, "rb_files") as entry:
        said: list[str] = []
        stuck: list[dict[str, Any]] = []
        while job.state["undo"]:
            change = job.state["undo"].pop()
            try:
                words = files.undo(change)
            except files.Unusable as error:
                stuck.insert(0, change)
                job.state["not_back"].append(str(error))
                words = str(error)
            if words:
                said.append(words)
                job.act("put back", words)
            job.save()
        job.state["undo"] = stuck
        entry["detail"] = "; ".join(said) or "nothing had been moved"


def _rb(job: Job, name: str) -> AbstractContextManager[dict[str, Any]]:
    entry = {"id": name, "title": ROLLBACK_TITLES[name], "timeout_s": None, "state": "pending"}
    job.state["steps"].append(entry)
    return job.step(entry)


def _down_advice(job: Job) -> list[str]:
    log = job.spec["log"]
    where = f" ({log['target']})" if log.get("target") else ""
    start = job.spec["old_start"]
    shown = start["argv"] if start["how"] in ("unit", "container") else redact_argv(start["argv"])
    how = " ".join(shown) or "the command shown in the plan"
    return [
        f"the server is DOWN: read the end of its log{where}, remove the cause, then roll back again (moetop --retune"
        f" {job.state['host']} --attach) or start it yourself: {how}",
    ]
