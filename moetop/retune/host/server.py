"""The server of a job: stop it, make sure it is gone, start it again, wait until it is ready. Used both ways."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import Any

from . import control, gpu, procs, store, web
from .job import FATAL_GRACE_S, Job, LineWatch, StepFailed
from .logs import LogTail

KILL_WAIT_S = 15.0
HEALTH_POLL_S = 10.0
"""A poll of a starting server gives up after this long, so that a cancel is seen; the next poll follows at once."""


class ServerControl:
    """`spec.stop` and `spec.start` carried out; what the host must remember is in `job.state`."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.lines = LineWatch(job)
        self._child: subprocess.Popen[bytes] | None = None
        self._stopper: subprocess.Popen[bytes] | None = None
        self._tail: LogTail | None = None

    # ── stopping ─────────────────────────────────────────────────────────────────────────────────

    def stop_old(self, may_ask: bool = True) -> str:
        """Ask the old server to end, let it drain, and only after the time-out end it; what was done, in words."""
        state = self.job.state
        old = state["old"]
        if not procs.alive(old):
            state["signalled"] = True
            return "it had ended already"
        state["tree"] = procs.tree(old["pid"])
        state["signalled"] = True
        self.job.save()
        self._request_stop(old)
        begun = time.monotonic()
        drain = self.job.timeout("drain_s")
        while not self.job.wait(self._old_is_gone, drain):
            if may_ask:
                left = self._requests_left()
                options = {"wait": f"let it drain for another {drain:.0f} s", "kill": "end it now"}
                question = f"the server has not ended {time.monotonic() - begun:.0f} s after it was asked to{left}"
                if self.job.ask(question, options, "kill", self.job.timeout("ask_s")) == "wait":
                    continue
            return self._kill_old(time.monotonic() - begun)
        return f"it ended by itself after {time.monotonic() - begun:.1f} s"

    def _requests_left(self) -> str:
        numbers = web.metrics(self.job.spec["metrics_url"], self.job.spec["metric_names"])
        return f"; {numbers['running']:.0f} requests still run" if "running" in numbers else ""

    def _request_stop(self, old: dict[str, Any]) -> None:
        """Through the manager or a configured command where there is one, else SIGTERM to the parent process."""
        stop = self.job.spec["stop"]
        if stop["how"] == "signal":
            try:
                procs.send(old, signal.SIGTERM)
            except PermissionError:
                raise StepFailed(f"no right to signal process {old['pid']}") from None
            self.job.act("SIGTERM", f"sent to process {old['pid']}")
            return
        try:
            with (self.job.folder / "stop.out").open("wb") as output:
                self._stopper = subprocess.Popen(
                    stop["argv"], stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
                )
        except OSError as error:
            raise StepFailed(f"{stop['argv'][0]} cannot be run: {error.strerror}") from None
        self.job.act("stop command", f"started ({stop['argv'][0]})")

    def _old_is_gone(self) -> bool:
        """Raises StepFailed where the stop command failed and the server lives on."""
        if not procs.alive(self.job.state["old"]):
            return True
        if self._stopper is not None and self._stopper.poll() not in (None, 0):
            text = (self.job.folder / "stop.out").read_text(errors="replace")
            last = (text.strip().splitlines() or ["no output"])[-1][:300]
            raise StepFailed(f"the stop command failed with exit code {self._stopper.returncode}: {last}")
        return False

    def _kill_old(self, after_s: float) -> str:
        stop = self.job.spec["stop"]
        self.job.act("SIGKILL", f"to the server's processes, {after_s:.0f} s after it was asked to end")
        if stop.get("kill_argv"):
            try:
                control.run_command(stop["kill_argv"], control.COMMAND_TIMEOUT_S)
            except control.CannotStart as error:
                self.job.say(str(error))
        family = self.job.state["tree"]
        if procs.alive(self.job.state["old"]):
            family = family + [one for one in procs.tree(self.job.state["old"]["pid"]) if one not in family]
        procs.kill_all(family)
        if not self.job.wait(lambda: not procs.alive(self.job.state["old"]), KILL_WAIT_S):
            raise StepFailed("the server does not end even after SIGKILL (a process stuck in the driver?)")
        return f"it was ended by force after {after_s:.0f} s"

    def wait_gone(self) -> str:
        """No process of the old server lives, its port is free, and no leftover holds its GPUs."""
        timeout = self.job.timeout("stop_s")
        family = self.job.state["tree"]
        killed: list[int] = []
        if not self.job.wait(lambda: not any(procs.alive(one) for one in family), timeout / 2):
            killed = procs.kill_all(family)
            self.job.act("SIGKILL", f"to leftover processes {killed}")
        if not self.job.wait(lambda: not any(procs.alive(one) for one in family), timeout):
            left = [one["pid"] for one in family if procs.alive(one)]
            raise StepFailed(f"processes {left} of the old server do not end")
        port = self.job.spec["port"]
        if port and not self.job.wait(lambda: not procs.listeners(port), timeout):
            pid = control.listening_pid(port)
            raise StepFailed(f"port {port} is in use again by process {pid}: something restarts the server by itself")
        found = {"why": ""}
        if not self.job.wait(lambda: self._gpus_free(found), timeout):
            raise StepFailed(found["why"])
        words = "no process of it is left" + (f" ({len(killed)} leftovers were ended)" if killed else "")
        return words + (f"; {found['why']}" if found["why"] else "; no leftover on its GPUs")

    def _gpus_free(self, found: dict[str, Any]) -> bool:
        """Only processes that were on the GPUs besides the server before may be there."""
        try:
            now = gpu.processes()
        except RuntimeError as error:
            found["why"] = str(error)
            return False
        if now is None:
            found["why"] = "leftovers on the GPUs could not be looked for (no nvidia-smi)"
            return True
        if self.job.state.get("gpu_blind"):
            found["why"] = "leftovers on the GPUs could not be told: nvidia-smi names no process of the server"
            return True
        known = {one["pid"] for one in self.job.state["gpu_others"]}
        gpus = set(self.job.state["gpus"])
        left = [one for one in now if one["pid"] not in known and (not gpus or one["gpu"] in gpus)]
        names = ", ".join(f"{one['pid']} ({one['name']})" for one in left[:4])
        found["why"] = f"processes hold GPUs of the server: {names}" if left else ""
        return not left

    # ── starting ─────────────────────────────────────────────────────────────────────────────────

    def recovered(self) -> dict[str, Any]:
        """How the old process was started; the only reader of the environment file."""
        try:
            return store.read_json(self.job.folder / "process.json")
        except (OSError, ValueError) as error:
            raise StepFailed(f"the recovered start command cannot be read: {error}") from None

    def start(self, start: dict[str, Any], extra_env: dict[str, str]) -> str:
        """Start by `start.how`; remembers the new process. Raises StepFailed."""
        state = self.job.state
        self._tail = LogTail(self.job.spec["log"])
        state["log_mark"] = self._tail.mark()
        state["new"], state["start_begun"] = None, round(time.time(), 3)
        self.job.save()
        self.lines = LineWatch(self.job)
        try:
            pid = self._start(start, extra_env)
        except control.CannotStart as error:
            raise StepFailed(str(error)) from None
        if pid is None:
            return "asked for"
        state["new"] = procs.identity(pid)
        self.job.save()
        return f"process {pid}"

    def _start(self, start: dict[str, Any], extra_env: dict[str, str]) -> int | None:
        how = start["how"]
        if how in ("unit", "container"):
            control.run_command(start["argv"], self.job.timeout("start_s"))
            return control.managed_pid(start["manager"])
        recovered = self.recovered()
        env = {**recovered["env"], **extra_env}
        if how == "process":
            place = {"stdout": recovered["stdout"], "stderr": recovered["stderr"]}
            argv, cwd, executable = recovered["argv"], recovered["cwd"], recovered["program"]
        else:
            output = (
                {"kind": "file", "target": start["output"]} if start.get("output") else {"kind": "null", "target": None}
            )
            place = {"stdout": output, "stderr": output}
            argv, cwd, executable = start["argv"], start.get("cwd") or recovered.get("cwd") or "/", None
        self._child = control.spawn(argv, recovered, place, cwd, env, executable)
        return self._child.pid

    def adopt(self, start: dict[str, Any]) -> bool:
        """Find the process of a start that another runner made before it was killed."""
        state = self.job.state
        self._tail = LogTail(self.job.spec["log"], state.get("log_mark"))
        if procs.alive(state.get("new")):
            return True
        pid = None
        if start["how"] in ("unit", "container"):
            pid = control.managed_pid(start["manager"])
        elif start["how"] == "command":
            pid = control.listening_pid(self.job.spec["port"])
        elif start["how"] == "process" and state.get("start_begun"):
            recovered = self.recovered()
            not_these = {one["pid"] for one in state["tree"]} | {os.getpid()}
            pid = procs.same_command(recovered["argv"], recovered.get("uid"), not_these, state["start_begun"])
        state["new"] = procs.identity(pid) if pid else None
        return state["new"] is not None

    def follow(self) -> None:
        """Read the log from where the start began, in a runner that did not start it."""
        if self._tail is None:
            self._tail = LogTail(self.job.spec["log"], self.job.state.get("log_mark"))

    def brought_back(self) -> dict[str, Any] | None:
        """The server as something other than moetop started it again; None if there is none."""
        port, state = self.job.spec["port"], self.job.state
        pid = control.listening_pid(port) if port else None
        new = state["new"]
        if pid is not None and new and pid in {new["pid"], *(one["pid"] for one in procs.tree(new["pid"]))}:
            return None
        if pid is None and self.job.spec["old_start"]["how"] == "process":
            recovered = self.recovered()
            known = {one["pid"] for one in state["tree"]} | {os.getpid(), new["pid"] if new else 0}
            pid = procs.same_command(recovered["argv"], recovered.get("uid"), known, state["created"])
        return procs.identity(pid) if pid else None

    def has_ended(self, start: dict[str, Any]) -> str | None:
        """Why the new server can no longer become ready; None while it can."""
        state = self.job.state
        child = self._child if start["how"] in ("process", "command") else None
        if child is not None and child.poll() is not None:
            code = child.returncode
            if start["how"] == "command" and code == 0:
                return None
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            return f"the server ended with {how}"
        if start["how"] in ("unit", "container"):
            pid = control.managed_pid(start["manager"])
            if pid is None:
                return f"{start['manager']['name']} does not run"
            if state["new"] is None or state["new"]["pid"] != pid:
                state["new"] = procs.identity(pid)
            return None
        if start["how"] in ("process", "found") and not procs.alive(state["new"]):
            return "the server ended"
        return None

    def read_log(self) -> None:
        if self._tail is not None:
            self.lines.feed(self._tail.lines())

    def wait_ready(self, start: dict[str, Any], timeout_s: float) -> str:
        """Until health answers 200 (or, without an address, the ready line). Raises StepFailed."""
        url = self.job.spec["health_url"]
        begun = time.monotonic()
        why = {"text": ""}

        def ready() -> bool:
            self.read_log()
            ended = self.has_ended(start)
            if ended:
                self.read_log()
                raise StepFailed(f"{ended}{self.first_failure()}{self._other_listener(start)}")
            if url is None:
                return "ready" in self.lines.first
            code, reason = web.get(url, HEALTH_POLL_S)
            why["text"] = f"health answers {code}" if code else f"health does not answer ({reason})"
            if code == 200:
                other = self._other_listener(start)
                if other:
                    raise StepFailed(other.lstrip("; "))
                return True
            failed = self.lines.failed_at
            if failed is not None and time.monotonic() - failed > FATAL_GRACE_S:
                raise StepFailed(f"the start failed{self.first_failure()}")
            return False

        if not self.job.wait(ready, timeout_s):
            raise StepFailed(
                f"not ready after {timeout_s:.0f} s: {why['text'] or 'no ready line'}{self.first_failure()}"
            )
        self._note_listener()
        return f"ready after {time.monotonic() - begun:.1f} s"

    def _other_listener(self, start: dict[str, Any]) -> str:
        """Words for a server on our port that we did not start; what it answers says nothing about ours."""
        port, new = self.job.spec["port"], self.job.state["new"]
        if start["how"] != "process" or not port or new is None:
            return ""
        pid = control.listening_pid(port)
        if pid is None or pid in {new["pid"], *(one["pid"] for one in procs.tree(new["pid"]))}:
            return ""
        return f"; process {pid}, which moetop did not start, has port {port}: something restarts the server by itself"

    def _note_listener(self) -> None:
        """A start command that only launched the server is replaced by the process that listens."""
        if not procs.alive(self.job.state["new"]):
            pid = control.listening_pid(self.job.spec["port"])
            self.job.state["new"] = procs.identity(pid) if pid else None

    def first_failure(self) -> str:
        """The line that looks like the cause, for the end of a sentence."""
        line = self.lines.first.get("failed")
        return f"; its log says: {line}" if line else ""

    def end_new(self) -> str:
        """End the server that a failed retune started; it serves no one we must wait for longer than the drain."""
        new, start = self.job.state.get("new"), self.job.spec["start"]
        if start["how"] in ("unit", "container", "command") and self.job.spec["stop"].get("argv"):
            try:
                control.run_command(self.job.spec["stop"]["argv"], self.job.timeout("stop_s") + KILL_WAIT_S)
            except control.CannotStart as error:
                self.job.say(str(error))
        ended = control.end_tree(new, self.job.timeout("stop_s"), self.job.wait)
        self.job.state["tree"] = self.job.state["tree"] + ended
        self.job.save()
        return f"process {new['pid']} ended" if new else "none was running"
