"""The requests moetop sends to a host, one function each: survey, start, poll, cancel, answer, resume, list."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import procs, restore, store, survey
from .job import DOWN, REFUSED, RUNNING

START_WAIT_S = 15.0
MAX_REPLY_LINES = 2000
_READ_BYTES = 1 << 20


class Denied(Exception):
    """The request is not carried out; `str()` says why."""


def answer(request: dict[str, Any], program: dict[str, Any]) -> dict[str, Any]:
    """Carry out one request; always an object, with `error` where it was not carried out."""
    functions: dict[str, Callable[[], dict[str, Any]]] = {
        "survey": lambda: survey.look(request),
        "start": lambda: start(request, program),
        "poll": lambda: poll(request),
        "cancel": lambda: cancel(request),
        "answer": lambda: answer_question(request),
        "resume": lambda: resume(request),
        "list": lambda: survey.list_jobs(int(request.get("limit", 50))),
        "keep": lambda: keep(request),
    }
    function = functions.get(request.get("op", ""))
    if function is None:
        return {"error": f"unknown request {str(request.get('op'))[:40]}"}
    try:
        return function()
    except (Denied, ValueError) as error:
        return {"error": str(error)}
    except OSError as error:
        return {"error": f"{error.filename or 'the host'}: {error.strerror}"}


def start(request: dict[str, Any], program: dict[str, Any]) -> dict[str, Any]:
    """Make the job's folder and start its runner; the job's id once the runner holds the lock."""
    spec = request["spec"]
    folder = store.new_job(spec["server"])
    try:
        _fill(folder, spec, request["operator"], program)
        _launch(folder, "forward")
    except (OSError, Denied):
        shutil.rmtree(str(folder), ignore_errors=True)
        raise
    return _wait_for_runner(folder)


def _fill(folder: Path, spec: dict[str, Any], operator: str, program: dict[str, str]) -> None:
    """Everything the runner reads; nothing runs yet."""
    spec["lock_key"] = survey.lock_key(spec.get("port"), spec["ident"]["pid"])
    store.write_json(folder / "spec.json", spec)
    state = _new_state(folder, spec, operator)
    for entry in state["steps"]:
        entry.update(state="pending", started=None, ended=None, detail="")
    store.write_json(folder / "state.json", state)
    store.keep_reserve(folder)
    _write_program(folder, program)
    store.log_action(operator, f"{spec['server']}: retune", "asked for", folder.name)


def _new_state(folder: Path, spec: dict[str, Any], operator: str) -> dict[str, Any]:
    """The state of a job before its first step."""
    lists = ("undo", "moved", "installed", "not_back", "tree", "gpus", "gpu_others", "advice")
    nothing = ("ended", "asks", "runner", "old", "new", "tuner", "start_begun")
    return {
        "schema": 1,
        "job": folder.name,
        "host": spec["host"],
        "server": spec["server"],
        "operator": operator,
        "user": restore.user_name(os.geteuid()),
        "created": round(time.time(), 3),
        "status": RUNNING,
        "mode": "forward",
        "lock_key": spec["lock_key"],
        "steps": spec.pop("steps"),
        "signalled": False,
        "before": {},
        "after": {},
        "message": "",
        "reason": "",
        **{key: [] for key in lists},
        **dict.fromkeys(nothing),
    }


def _write_program(folder: Path, program: dict[str, Any]) -> None:
    """The job keeps the very program it was started with, for the day another version attaches."""
    package = folder / "program" / "moetop_retune"
    package.mkdir(parents=True, mode=0o700)
    for name, source in program.items():
        (package / f"{name}.py").write_text(source)


def _launch(folder: Path, mode: str) -> None:
    """Detach the runner from this session: its own session, no stream of ours, out of reach of the login manager."""
    code = "import sys; sys.path.insert(0, sys.argv[1]); from moetop_retune.main import run_job; run_job(sys.argv[2:])"
    argv = [sys.executable, "-c", code, str(folder / "program"), str(folder), mode]
    if restore.logind_kills():
        if shutil.which("systemd-run") is None:
            raise Denied("the login manager ends processes at logout: run `loginctl enable-linger` first")
        unit = f"moetop-retune-{folder.name[-6:]}-{int(time.time())}"
        argv = [
            "systemd-run",
            "--user",
            "--quiet",
            "--collect",
            f"--unit={unit}",
            "-p",
            "KillMode=process",
            "--",
            *argv,
        ]
    with (folder / "runner.log").open("ab") as log:
        (folder / "runner.log").chmod(0o600)
        subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", start_new_session=True)


def _wait_for_runner(folder: Path) -> dict[str, Any]:
    deadline = time.monotonic() + START_WAIT_S
    while time.monotonic() < deadline:
        state = store.read_json(folder / "state.json")
        if state["status"] == REFUSED and state["runner"] is None:
            return {"error": state["message"], "refused": True, "job": folder.name}
        if state["runner"] is not None:
            return {"job": folder.name}
        time.sleep(0.05)
    store.write_json(folder / "cancel.json", {"who": "moetop, because the runner was late", "when": time.time()})
    words = (folder / "runner.log").read_text(errors="replace").strip().splitlines()
    why = words[-1][:300] if words else "no word from it"
    return {"error": f"the runner did not start in time and will touch nothing: {why}", "job": folder.name}


def _load(request: dict[str, Any]) -> tuple[Path, dict[str, Any]]:
    folder = store.job_dir(str(request.get("job", "")))
    try:
        return folder, store.read_json(folder / "state.json")
    except (OSError, ValueError):
        raise Denied("no such job on this host") from None


def poll(request: dict[str, Any]) -> dict[str, Any]:
    """State of a job with the output after byte `since`. The plan's environment is not part of the state."""
    folder, state = _load(request)
    since = max(0, int(request.get("since", 0)))
    raw = b""
    path = folder / "output.jsonl"
    if path.exists():
        with path.open("rb") as stream:
            stream.seek(since)
            raw = stream.read(_READ_BYTES)
    whole = raw[: raw.rfind(b"\n") + 1]
    there = whole.splitlines(keepends=True)
    lines = there[:MAX_REPLY_LINES]
    shown = ("job", "host", "server", "operator", "user", "created", "ended", "mode", "asks", "steps", "moved",
             "installed", "before", "after", "message", "advice", "reason", "not_back", "signalled")  # fmt: skip
    rebooted = bool(state["runner"]) and state["runner"]["boot"] != procs.boot_id()
    return {
        **{key: state.get(key) for key in shown},
        "status": store.status_of(state),
        "now": time.time(),
        "rebooted": rebooted,
        "folder": str(folder),
        "lines": [line.decode("utf-8", "replace").rstrip("\n") for line in lines],
        "offset": since + sum(len(line) for line in lines),
        "more": len(there) > len(lines) or len(raw) == _READ_BYTES,
        "cancel_asked": (folder / "cancel.json").exists(),
    }


def _may_act(request: dict[str, Any], state: dict[str, Any]) -> None:
    """A running job is its operator's; a second one watches."""
    if request["operator"] != state["operator"]:
        raise Denied(f"the job belongs to {state['operator']}; you can watch it")


def cancel(request: dict[str, Any]) -> dict[str, Any]:
    """Ask the runner to roll back."""
    folder, state = _load(request)
    _may_act(request, state)
    if state["status"] != RUNNING:
        raise Denied(f"the job has ended: {state['status']}")
    if state["mode"] == "rollback":
        raise Denied("it is rolling back already")
    store.write_json(folder / "cancel.json", {"who": request["operator"], "when": time.time()})
    store.log_action(request["operator"], f"{state['server']}: cancel", "asked for", folder.name)
    return {"job": folder.name}


def answer_question(request: dict[str, Any]) -> dict[str, Any]:
    """Answer what the runner asks."""
    folder, state = _load(request)
    _may_act(request, state)
    if not state.get("asks"):
        raise Denied("the job asks nothing now")
    if request.get("answer") not in state["asks"]["options"]:
        raise Denied(f"answer one of {', '.join(state['asks']['options'])}")
    store.write_json(folder / "answer.json", {"answer": request["answer"], "who": request["operator"]})
    return {"job": folder.name}


def resume(request: dict[str, Any]) -> dict[str, Any]:
    """Let a new runner finish or roll back a job whose runner is gone; roll back once more one that ended down."""
    folder, state = _load(request)
    how = request.get("how")
    if how not in ("finish", "rollback"):
        raise Denied("finish or rollback")
    if state["status"] == DOWN:
        if how == "finish":
            raise Denied("the server is down: only rolling back is left")
    elif state["status"] != RUNNING:
        raise Denied(f"the job has ended: {state['status']}")
    elif store.runner_alive(state):
        raise Denied(f"the job is running, started by {state['operator']}")
    elif how == "finish" and state["mode"] == "rollback":
        raise Denied("it was rolling back when its runner ended: only rolling back is left")
    for name in ("cancel.json", "answer.json"):
        if (folder / name).exists():
            (folder / name).unlink()
    before = state["runner"]
    state.update(status=RUNNING, operator=request["operator"])
    store.write_json(folder / "state.json", state)
    store.log_action(request["operator"], f"{state['server']}: {how}", "asked for an interrupted job", folder.name)
    _launch(folder, how)
    deadline = time.monotonic() + START_WAIT_S
    while time.monotonic() < deadline:
        now = store.read_json(folder / "state.json")
        if now["runner"] != before:
            return {"job": folder.name}
        time.sleep(0.05)
    return {"error": "the runner did not start (does another job hold the server?)", "job": folder.name}


def keep(request: dict[str, Any]) -> dict[str, Any]:
    """Keep the before/after report in the job's folder."""
    folder, _ = _load(request)
    for name in ("report.md", "report.json"):
        text = request.get("files", {}).get(name)
        if isinstance(text, str):
            (folder / name).write_text(text)
            (folder / name).chmod(0o600)
    return {"job": folder.name}
