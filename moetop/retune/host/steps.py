"""The forward steps of a retune, one function each; each may run again after its runner was killed."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import files, gpu, procs, restore, store, tuner, web
from .job import Job, StepFailed
from .server import ServerControl

MIN_FREE_MIB = 64
LOAD_BACK_SHARE = 0.5
"""The load counts as back when this share of the earlier running requests runs (judgement)."""
HEALTH_TRIES = 3


class Refused(Exception):
    """A check failed before anything was touched."""


def check(job: Job, server: ServerControl, entry: dict[str, Any]) -> None:
    """Everything that must hold is checked again here, under the lock, in the moment before the first change."""
    spec, state = job.spec, job.state
    if not procs.alive(spec["ident"]):
        raise Refused(
            f"the server is no longer process {spec['ident']['pid']}: it ended or was restarted since the plan"
        )
    uid = procs.owner(spec["ident"]["pid"])
    if os.geteuid() not in (0, uid):
        raise Refused("the server belongs to another user")
    free = shutil.disk_usage(str(job.folder)).free >> 20
    if free < MIN_FREE_MIB:
        raise Refused(f"{free} MiB free on the disk of {job.folder.parent}; {MIN_FREE_MIB} are needed")
    for path in [*spec["tune"].get("targets", []), *files.expand(spec["moves"])]:
        why = files.why_not_movable(path)
        if why:
            raise Refused(why)
    _look_at_gpus(job)
    if spec["tune"]["how"] == "offline" and not spec["tune"].get("custom"):
        script = spec["tune"]["script"]
        if not Path(script).is_file():
            raise Refused(f"the tuner {script} is not there")
    _keep_process(job)
    state["old"] = spec["ident"]
    entry["detail"] = f"process {spec['ident']['pid']}, {len(state['gpus'])} GPUs held, {free} MiB free"


def _look_at_gpus(job: Job) -> None:
    state = job.state
    family = {one["pid"] for one in procs.tree(job.spec["ident"]["pid"])}
    try:
        found = gpu.processes()
    except RuntimeError as error:
        raise Refused(f"{error}; a restart would not come back") from None
    ours = [one for one in found or [] if one["pid"] in family]
    state["gpus"] = sorted({one["gpu"] for one in ours})
    state["gpu_blind"] = bool(found) and not ours
    state["gpu_others"] = [one for one in found or [] if one["pid"] not in family]
    shared = [one for one in state["gpu_others"] if one["gpu"] in state["gpus"]]
    if shared and job.spec["tune"]["how"] == "offline":
        names = ", ".join(f"{one['pid']} ({one['name']})" for one in shared[:4])
        raise Refused(f"other processes use the same GPUs: {names}; the tuner would measure them too")


def _keep_process(job: Job) -> None:
    """The start command with its environment goes to a file only its owner can read."""
    try:
        recovered = restore.recover(job.spec["ident"]["pid"])
    except OSError as error:
        raise Refused(f"the server's environment cannot be read: {error.strerror}") from None
    if job.spec["old_start"]["how"] == "process" and not recovered["program"]:
        raise Refused("the server's start command cannot be recovered from its process")
    store.write_json(job.folder / "process.json", recovered)


def measure(job: Job, window_s: float) -> dict[str, Any]:
    """Tokens a second, requests and power over a window; what cannot be had is absent."""
    spec = job.spec
    begun, first = time.time(), web.metrics(spec["metrics_url"], spec["metric_names"])
    power: list[float] = []
    running: list[float] = []
    deadline = time.monotonic() + window_s
    while True:
        watts = gpu.power_w(job.state["gpus"])
        if watts is not None:
            power.append(watts)
        now = web.metrics(spec["metrics_url"], spec["metric_names"])
        if "running" in now:
            running.append(now["running"])
        left = deadline - time.monotonic()
        if left <= 0:
            break
        pause = time.monotonic() + min(1.0, left)
        job.wait(lambda until=pause: time.monotonic() >= until, 2.0)  # type: ignore[misc]
    last, ended = web.metrics(spec["metrics_url"], spec["metric_names"]), time.time()
    found: dict[str, Any] = {"from": round(begun, 3), "to": round(ended, 3)}
    if "generated" in first and "generated" in last and last["generated"] >= first["generated"]:
        found["tokens_s"] = round((last["generated"] - first["generated"]) / max(ended - begun, 1e-3), 2)
    if running:
        found["running"] = round(sum(running) / len(running), 2)
    if power:
        found["power_w"] = round(sum(power) / len(power), 1)
        if found.get("tokens_s") and found["power_w"] > 0:
            found["tokens_j"] = round(found["tokens_s"] / found["power_w"], 4)
    return found


def _words(found: dict[str, Any]) -> str:
    parts = (("tokens_s", "tokens/s"), ("running", "requests running"), ("power_w", "W"), ("tokens_j", "tokens/J"))
    said = [f"{found[key]:g} {unit}" for key, unit in parts if key in found]
    return ", ".join(said) or "the server gives no numbers"


def baseline(job: Job, server: ServerControl, entry: dict[str, Any]) -> None:
    job.state["before"] = measure(job, job.timeout("baseline_s"))
    entry["detail"] = _words(job.state["before"])


def stop(job: Job, server: ServerControl, entry: dict[str, Any]) -> None:
    if not job.state.get("signalled") and not procs.alive(job.state["old"]):
        raise StepFailed("the server ended by itself before it was asked to")
    entry["detail"] = server.stop_old()


def free(job: Job, server: ServerControl, entry: dict[str, Any]) -> None:
    entry["detail"] = server.wait_gone()


def move(job: Job, server: ServerControl, entry: dict[str, Any]) -> None:
    moved = job.state["moved"]
    for path in files.expand(job.spec["moves"]):
        try:
            aside = files.move_aside(path, job.id, job.remember)
        except files.Unusable as error:
            raise StepFailed(str(error)) from None
        moved.append({"path": path, "aside": aside})
        job.act("moved aside", f"{path} -> {aside}")
    entry["detail"] = f"{len(moved)} files moved aside"


def tune(job: Job, server: ServerControl, entry: dict[str, Any]) -> None:
    tuner.stop(job)
    tuner.keep_targets(job)
    entry["detail"] = tuner.run(job, server.recovered())
    if job.spec["tune"]["outputs"]:
        tuner.outputs(job)


def install(job: Job, server: ServerControl, entry: dict[str, Any]) -> None:
    entry["detail"] = tuner.install(job)


def start(job: Job, server: ServerControl, entry: dict[str, Any]) -> None:
    if job.state.get("start_begun") and server.adopt(job.spec["start"]):
        entry["detail"] = f"process {job.state['new']['pid']} runs already"
        return
    entry["detail"] = server.start(job.spec["start"], job.spec["env"])


def ready(job: Job, server: ServerControl, entry: dict[str, Any]) -> None:
    server.follow()
    entry["detail"] = server.wait_ready(job.spec["start"], job.timeout("start_s"))


def verify(job: Job, server: ServerControl, entry: dict[str, Any]) -> None:
    """It stays up, answers, and took the new tuning."""
    spec = job.spec
    server.follow()
    pid = (job.state["new"] or {}).get("pid")
    until = time.monotonic() + job.timeout("verify_s")

    def steady() -> bool:
        server.read_log()
        ended = server.has_ended(spec["start"])
        if ended or (pid and (job.state["new"] or {}).get("pid") != pid):
            raise StepFailed(f"it was ready, then {ended or 'it was restarted'}{server.first_failure()}")
        if server.lines.failed_at is not None and time.monotonic() > until:
            raise StepFailed(f"it was ready, then failed{server.first_failure()}")
        return time.monotonic() >= until

    job.wait(steady, job.timeout("verify_s") + 5.0)
    if spec["health_url"]:
        answers = [web.get(spec["health_url"])[0] for _ in range(1)]
        while answers[-1] != 200 and len(answers) < HEALTH_TRIES:
            job.wait(lambda: False, 1.0)
            answers.append(web.get(spec["health_url"])[0])
        if answers[-1] != 200:
            raise StepFailed(f"it was ready, but health answers {answers[-1] or 'nothing'}")
    entry["detail"] = _tuned_words(job, server)


def _tuned_words(job: Job, server: ServerControl) -> str:
    """What shows that the new tuning is in use. Raises StepFailed where it shows that it is not."""
    lines = server.lines
    targets = [Path(one).name for one in job.spec["tune"].get("targets", [])]
    at_start = job.spec["tune"]["how"] == "at_start"
    missed = [line for line in lines.named["untuned"] if at_start or any(name in line for name in targets)]
    if missed:
        raise StepFailed(f"the engine did not take the tuning: {missed[0].strip()[:300]}")
    if job.state["moved"]:
        back = [one for one in job.state["moved"] if Path(one["path"]).exists()]
        if not back:
            raise StepFailed("the engine wrote no new cache in place of those moved aside")
        words = f"{len(back)} of {len(job.state['moved'])} caches written anew"
    else:
        words = ""
    if "tuned" in lines.first:
        return f"{words}{'; ' if words else ''}its log says: {lines.first['tuned']}"
    return words or "it is up; no line says yet that the new tuning is read (some engines say it at first use)"


def measure_after(job: Job, server: ServerControl, entry: dict[str, Any]) -> None:
    """Wait for the load to come back, then the same window as before."""
    spec = job.spec
    before = job.state["before"].get("running", 0.0)
    if before > 0:

        def load_is_back() -> bool:
            now = web.metrics(spec["metrics_url"], spec["metric_names"])
            return bool(now.get("running", 0.0) >= before * LOAD_BACK_SHARE)

        job.wait(load_is_back, job.timeout("settle_s"))
    job.state["after"] = measure(job, job.timeout("baseline_s"))
    ended = server.has_ended(spec["start"])
    if ended:
        raise StepFailed(f"while it was measured {ended}")
    entry["detail"] = _words(job.state["after"])


STEPS: dict[str, Callable[[Job, ServerControl, dict[str, Any]], None]] = {
    "check": check,
    "baseline": baseline,
    "stop": stop,
    "free": free,
    "move": move,
    "tune": tune,
    "install": install,
    "start": start,
    "ready": ready,
    "verify": verify,
    "measure": measure_after,
}
