"""A host with one server for the retune tests: real processes, files and HTTP on this machine, nothing simulated."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

from moetop.engines.logbook import LogBook
from moetop.model import Engine, HostReport, LogPlace, Phase, ServerMetrics, ServerReport, Tuning, Verdict
from moetop.retune import job as jobs
from moetop.retune import wire
from moetop.retune.plan import make_plan, survey_request
from moetop.retune.types import JobRef, JobState, Overrides, Plan
from moetop.transport.local import LocalTransport

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent.parent / "examples" / "minimoe"
SECRET = "hf_verysecretvalue1234567890"

QUICK = {
    "baseline_s": 0.3,
    "drain_s": 4.0,
    "ask_s": 0.5,
    "stop_s": 3.0,
    "tune_s": 20.0,
    "start_s": 12.0,
    "verify_s": 0.4,
    "settle_s": 0.5,
}

SMI = """#!/bin/sh
# Stands for the card that is not here: compute processes are the living ones of the file `gpu_pids`.
case "$1" in
  --query-compute-apps*)
    for p in $(cat "{home}/gpu_pids" 2>/dev/null); do
      grep -q "^State:.[^ZX]" /proc/$p/status 2>/dev/null && echo "$p, GPU-0, 1000, python"
    done ;;
  --query-gpu*) echo "GPU-0, 300.0" ;;
esac
exit 0
"""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def until(done: Callable[[], object], what: str, timeout_s: float = 20.0) -> None:
    """Wait for a condition; fail with its name."""
    deadline = time.monotonic() + timeout_s
    while not done():
        assert time.monotonic() < deadline, f"timed out waiting until {what}"
        time.sleep(0.05)


def get(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=5) as reply:
            return int(reply.status)
    except OSError as error:
        return int(getattr(error, "code", 0) or 0)


class Rig:
    """A server's folder, its process and moetop's view of it."""

    def __init__(self, home: Path, monkeypatch) -> None:
        self.home = home
        self.root = HERE.parent.parent
        self.python = sys.executable
        self.state = home / "state"
        monkeypatch.setenv("XDG_STATE_HOME", str(self.state))
        binaries = home / "bin"
        binaries.mkdir()
        (binaries / "nvidia-smi").write_text(SMI.format(home=home))
        (binaries / "nvidia-smi").chmod(0o755)
        monkeypatch.setenv("PATH", f"{binaries}:{os.environ['PATH']}")
        self.folder = home / "minimoe"
        self.folder.mkdir()
        (self.folder / "launch_server.py").write_text((HERE / "retune_server.py").read_text())
        (self.folder / "tune.py").write_text((HERE / "retune_tuner.py").read_text())
        self.port = free_port()
        self.log = home / "server.log"
        self.transport = LocalTransport("rig")
        self.process: subprocess.Popen[bytes] | None = None
        self.table = home / "moe/configs/triton_0_0_0/E=64,N=2048,device_name=CPU_standin.json"

    def faults(self, words: str) -> None:
        (self.home / "faults").write_text(words)

    def tune_fault(self, word: str) -> None:
        (self.home / "tune_fault").write_text(word)

    def argv(self) -> list[str]:
        return [self.python, "minimoe/launch_server.py", "--model-path", str(SOURCE), "--port", str(self.port)]

    def start(self, stdout: object = None, user: int | None = None) -> None:
        """Start the server by hand, as a person would, and wait until it answers."""
        env = {
            **os.environ,
            "MINIMOE_CPU_STANDIN": "1",
            "MINIMOE_SRC": str(SOURCE),
            "SGLANG_MOE_CONFIG_DIR": str(self.home / "moe"),
            "RIG_HOME": str(self.home),
            "HF_TOKEN": SECRET,
        }
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.argv(),
                cwd=self.home,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=stdout or log,
                stderr=stdout or log,
                start_new_session=True,
                **({"user": user, "group": user, "extra_groups": []} if user is not None else {}),
            )
        until(self.healthy, "the server is healthy")
        (self.home / "gpu_pids").write_text(str(self.process.pid))

    def healthy(self) -> bool:
        return get(f"http://127.0.0.1:{self.port}/health") == 200

    def pids(self) -> list[int]:
        """Living server processes of this rig."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                if f"--port\0{self.port}".encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
        return found

    def report(self, **changes: object) -> HostReport:
        """moetop's report of this host, from the server's real log."""
        book = LogBook("server.log")
        for line in self.log.read_text().splitlines():
            book.feed(line)
        digest = book.digest()
        facts: dict[str, object] = {
            "name": "minimoe",
            "engine": Engine.SGLANG,
            "pid": self.process.pid if self.process else None,
            "argv": tuple(self.argv()),
            "args": dict(digest.args),
            "port": self.port,
            "manager": "plain",
            "log": LogPlace(kind="file", target=str(self.log)),
            "phase": Phase.READY,
            "ready": True,
            "metrics": ServerMetrics(running=0.0),
            "tuning": Tuning(verdict=Verdict.UNTUNED),
            "events": digest.events,
        }
        return HostReport(name="rig", headline="untuned_kernels", servers=(ServerReport(**{**facts, **changes}),))

    def plan(
        self,
        timeouts: dict[str, float] | None = None,
        overrides: Overrides | None = None,
        survey: dict[str, object] | None = None,
        requests: dict[str, float] | None = None,
        **changes: object,
    ) -> Plan:
        """A surveyed plan; `survey` changes what the host said of the process, `requests` what it runs."""
        report = self.report(**changes)
        given = overrides or Overrides(timeouts={**QUICK, **(timeouts or {})})
        server = report.servers[0]
        if survey is None and requests is None:
            return jobs.prepare(self.transport, report, server, given)
        said = wire.ask(self.transport, survey_request(server, given))
        said["server"].update(survey or {})
        said["requests"].update(requests or {})
        return make_plan(report, server, given, said)

    def as_unit(self, unit: str) -> None:
        """Let the stand-in systemctl manage the running server."""
        pid = self.process.pid
        raw = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        env = dict(part.decode().partition("=")[::2] for part in raw if part)
        kept = {"argv": self.argv(), "cwd": str(self.home), "env": env, "log": str(self.log), "unit": unit}
        (self.home / "unit.json").write_text(json.dumps(kept))
        (self.home / "unit.pid").write_text(str(pid))

    def begin(self, plan: Plan) -> JobRef:
        return jobs.start(self.transport, plan, confirmed=plan.confirm)

    def state_of(self, ref: JobRef) -> JobState:
        return jobs.poll(self.transport, ref)

    def wait(self, ref: JobRef, done: Callable[[JobState], bool], what: str, timeout_s: float = 45.0) -> JobState:
        seen = self.state_of(ref)
        deadline = time.monotonic() + timeout_s
        while not done(seen):
            assert time.monotonic() < deadline, f"timed out waiting until {what}: {seen.status} {seen.steps}"
            time.sleep(0.1)
            seen = self.state_of(ref)
        return seen

    def end(self, ref: JobRef) -> JobState:
        return self.wait(ref, lambda state: state.over, "the job is over")

    def at_step(self, ref: JobRef, step: str) -> JobState:
        """Wait until a step runs, reading the state on disk (quicker than polling through the door)."""
        path = self.state / "moetop" / "jobs" / ref.job / "state.json"

        def running() -> bool:
            steps = json.loads(path.read_text())["steps"]
            return any(one["id"] == step and one["state"] in ("running", "done") for one in steps)

        until(running, f"step {step} runs", 30.0)
        return self.state_of(ref)

    def runner_pid(self, ref: JobRef) -> int:
        return int(json.loads((self.state / "moetop" / "jobs" / ref.job / "state.json").read_text())["runner"]["pid"])

    def kill_runner(self, ref: JobRef) -> None:
        """kill -9, and wait until it is gone."""
        pid = self.runner_pid(ref)
        os.kill(pid, signal.SIGKILL)
        until(lambda: self.state_of(ref).status == "interrupted", "the job is seen as interrupted")

    def everything_written(self) -> str:
        """All text that moetop left on the host, but for the two files that may hold the environment."""
        texts = []
        for path in self.state.rglob("*"):
            if path.is_file() and path.name not in ("process.json", "spec.json") and "program" not in path.parts:
                texts.append(path.read_text(errors="replace"))
        return "\n".join(texts)

    def clean(self) -> None:
        """End what the test started, and only that."""
        for state in (self.state / "moetop" / "jobs").glob("*/state.json"):
            runner = (json.loads(state.read_text()).get("runner") or {"pid": 0})["pid"]
            command = Path(f"/proc/{runner}/cmdline")
            if command.exists() and b"moetop_retune" in command.read_bytes():
                os.kill(runner, signal.SIGKILL)
        for pid in self.pids():
            os.kill(pid, signal.SIGKILL)
        if self.process is not None:
            self.process.wait(10)
        leftover = self.home / "leftover_pid"
        if leftover.exists() and Path(f"/proc/{leftover.read_text()}/cmdline").exists():
            os.kill(int(leftover.read_text()), signal.SIGKILL)


def proc(pid: int, name: str) -> bytes:
    """A file of /proc/PID."""
    return Path(f"/proc/{pid}/{name}").read_bytes()
