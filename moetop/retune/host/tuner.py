"""The offline tuning script: run it with the GPUs free, judge what it wrote, put that where the engine reads it."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

from . import control, files, procs
from .job import Job, StepFailed
from .logs import LogTail

STOP_GRACE_S = 10.0


def work_folder(job: Job, recovered: dict[str, Any]) -> Path:
    """Where the tuner writes: in the job's folder, or one of the server's user when we are root for another."""
    if job.state.get("tune_folder"):
        return Path(job.state["tune_folder"])
    uid = recovered.get("uid")
    if uid in (None, os.geteuid()):
        folder = job.folder / "tune"
        folder.mkdir(mode=0o700, exist_ok=True)
    else:
        folder = Path(tempfile.mkdtemp(prefix="moetop-tune-"))
        os.chown(str(folder), uid, recovered.get("gid", -1))
    job.state["tune_folder"] = str(folder)
    job.save()
    return folder


def run(job: Job, recovered: dict[str, Any]) -> str:
    """Run the tuner to its end. Raises StepFailed when it fails, or takes longer than `tune_s`; Cancelled."""
    tune = job.spec["tune"]
    folder = work_folder(job, recovered)
    log = job.folder / "tuner.log"
    log.touch(mode=0o600)
    argv = [part.replace("{out}", str(folder)) for part in tune["argv"]]
    place = {"kind": "file", "target": str(log)}
    env = {**recovered["env"], **job.spec["env"], "PYTHONUNBUFFERED": "1"}
    begun = time.monotonic()
    tail = LogTail(place)
    try:
        child = control.spawn(argv, recovered, {"stdout": place, "stderr": place}, tune.get("cwd") or str(folder), env)
    except control.CannotStart as error:
        raise StepFailed(str(error)) from None
    ident = procs.identity(child.pid)
    job.state["tuner"] = ident
    job.save()
    last = {"line": ""}

    def ended() -> bool:
        over = child.poll() is not None
        for line in tail.lines():
            job.say(line, "tuner")
            last["line"] = line.strip() or last["line"]
        return over

    try:
        done = job.wait(ended, job.timeout("tune_s"))
    finally:
        if child.poll() is None:
            stop(job)
    ended()
    log.unlink()
    if not done:
        raise StepFailed(f"the tuner did not end within {job.timeout('tune_s'):.0f} s")
    if child.returncode != 0:
        raise StepFailed(f"the tuner failed with exit code {child.returncode}: {last['line'][:300] or 'no output'}")
    job.state["tuner"] = None
    return f"the tuner ended after {time.monotonic() - begun:.0f} s"


def stop(job: Job) -> bool:
    """End a tuner that still runs (also one of a killed runner). Not cancellable: it is part of every roll back."""
    ident = job.state.get("tuner")
    if not procs.alive(ident):
        return False

    def wait(done, timeout_s):  # type: ignore[no-untyped-def]
        deadline = time.monotonic() + timeout_s
        while not done() and time.monotonic() < deadline:
            time.sleep(0.1)
        return done()

    job.act("tuner", f"process {ident['pid']} is ended")  # type: ignore[index]
    control.end_tree(ident, STOP_GRACE_S, wait)
    job.state["tuner"] = None
    return True


def outputs(job: Job) -> list[tuple[str, str, int]]:
    """(copy, target, batch sizes) of each usable output, kept in the job's folder. Raises StepFailed if none is."""
    folder = Path(job.state["tune_folder"])
    usable: list[tuple[str, str, int]] = []
    problems: list[str] = []
    for one in job.spec["tune"]["outputs"]:
        try:
            data = files.read_made(str(folder / one["name"]))
            sizes = files.check_triton_json(data, one["name"])
        except files.Unusable as error:
            problems.append(str(error))
            continue
        kept = job.folder / f"made-{len(usable)}.json"
        kept.write_bytes(data)
        usable.append((str(kept), one["target"], sizes))
    if usable:
        for problem in problems:
            job.say(f"without: {problem}")
        return usable
    others = sorted(path.name for path in folder.glob("*.json"))[:4]
    hint = f"; it wrote {', '.join(others)} instead, which the engine does not read" if others else ""
    raise StepFailed(f"the tuner ended without a usable result: {'; '.join(problems)}{hint}")


def keep_targets(job: Job) -> None:
    """A configured command may write the engine's table itself: note how it was, to put it back."""
    for target in job.spec["tune"].get("targets", []):
        if job.spec["tune"]["outputs"] or any(one.get("path") == target for one in job.state["undo"]):
            continue
        try:
            files.keep_as_it_is(target, job.id, job.remember)
        except files.Unusable as error:
            raise StepFailed(str(error)) from None


def install(job: Job) -> str:
    """Put the results in place. Raises StepFailed."""
    placed = []
    for path, target, sizes in outputs(job):
        try:
            files.install(path, target, job.id, job.remember)
        except files.Unusable as error:
            raise StepFailed(str(error)) from None
        placed.append(f"{target} ({sizes} batch sizes)")
    job.state["installed"] = placed
    return "; ".join(placed)
