"""From a report (and the host's survey) to a plan: every command, file, signal and time-out. Pure; acts on nothing."""

from __future__ import annotations

import shlex
from pathlib import PurePosixPath
from typing import Any

from moetop.model import Engine, HostReport, LogPlace, ServerReport
from moetop.probe.redact import redact_argv
from moetop.retune import preflight
from moetop.retune.recipes import ENGINES, EngineRecipe, TunerRecipe, find_tuner, timeouts_for
from moetop.retune.subject import Subject, fill, moves_of, subject_of, targets_of, words_of
from moetop.retune.types import NO_OVERRIDES, CommandLine, Overrides, Plan, PlanStep, Refusal, Tuner

Survey = dict[str, Any]
_Row = tuple[str, str, tuple[str, ...], "float | None", str]
UNTOUCHED = "nothing to undo"
AS_IT_WAS = "start the server as it was"
_CHECKED = ("same process, rights, disk, GPUs, files; start command and environment are kept (0600)",)
_FREED = ("processes, port, nvidia-smi; leftovers of it are ended",)


def find_server(report: HostReport, name: str | None) -> ServerReport | Refusal:
    """The server that is meant, or why none can be picked."""
    there = [server for server in report.servers if not server.gone] or list(report.servers)
    if name is not None:
        named = [server for server in report.servers if server.name == name]
        if named:
            return named[0]
        names = ", ".join(server.name for server in there) or "none"
        return Refusal(code="no_server", text=f"no server {name} on {report.name}", advice=f"found: {names}")
    if not there:
        return Refusal(code="no_server", text=f"no server found on {report.name}", advice="moetop --doctor says why")
    if len(there) > 1:
        names = ", ".join(server.name for server in there)
        return Refusal(
            code="several", text=f"{len(there)} servers on {report.name}", advice=f"say which with --server: {names}"
        )
    return there[0]


def refused_plan(report: HostReport, server: str, refusal: Refusal) -> Plan:
    """A plan that only says why there is none."""
    return Plan(host=report.name, server=server, refusals=(refusal,))


def survey_request(server: ServerReport, overrides: Overrides = NO_OVERRIDES) -> dict[str, Any]:
    """What to ask the host before a plan can be started."""
    engine = _engine(server)
    if engine is None:
        return {"op": "survey", "pid": server.pid, "port": server.port}
    subject = subject_of(server, engine, overrides)
    row = find_tuner(server.engine, subject.backend, server.version, words_of(server))
    return {
        "op": "survey",
        "pid": server.pid,
        "port": subject.port,
        "engine": str(server.engine),
        "metrics_url": subject.metrics_url,
        "metric_names": {key: list(names) for key, names in engine.metrics.items()},
        "moves": list(moves_of(server, row)) if row and row.tuner == Tuner.AT_START else [],
        "targets": list(targets_of(server, row)) if row and row.tuner == Tuner.OFFLINE else [],
        "tuner_scripts": list(row.scripts) if row else [],
        "tuner_bases": list(row.bases) if row else [],
        "packages": list(row.needs) if row else [],
    }


def _engine(server: ServerReport) -> EngineRecipe | None:
    return ENGINES.get(server.engine) if isinstance(server.engine, Engine) else None


def make_plan(
    report: HostReport, server: ServerReport, overrides: Overrides = NO_OVERRIDES, survey: Survey | None = None
) -> Plan:
    """The plan for one server. Without a survey it is a preview: it can be shown, not started."""
    engine = _engine(server)
    held = list(preflight.check_jobs(report, server, survey)) if survey is not None else []
    if engine is None:
        refusal = Refusal(
            code="no_engine", text=f"the engine of {server.name} is not known", advice="moetop --doctor says why"
        )
        return refused_plan(report, server.name, held[0] if held else refusal)
    subject = subject_of(server, engine, overrides)
    row = find_tuner(server.engine, subject.backend, server.version, words_of(server))
    offline = overrides.tune is not None or (row is not None and row.tuner == Tuner.OFFLINE)
    moves = moves_of(server, row) if row and not offline else ()
    targets = targets_of(server, row) if row and offline else ()
    timeouts = timeouts_for(engine, row, dict(overrides.timeouts))
    refusals = held or list(preflight.check_report(report, server, row, subject.backend, overrides))
    if not refusals and overrides.tune is None:
        refusals += preflight.check_files(server, row, moves, targets, overrides)
    if survey is not None and not refusals:
        refusals += preflight.check_survey(server, row, survey, overrides)
    running = _running(server, survey)
    plan = Plan(
        host=report.name,
        server=server.name,
        engine=server.engine,
        version=server.version,
        backend=subject.backend,
        verdict=server.tuning.verdict,
        recipe=row.id if row else ("configured" if overrides.tune else None),
        tuner=(Tuner.OFFLINE if offline else Tuner.AT_START) if row or offline else None,
        refusals=tuple(refusals),
        warnings=tuple(preflight.warnings_of(report, server, survey, timeouts)),
        notes=server.tuning.evidence[:4],
        never=engine.never,
        beside=tuple((survey or {}).get("beside", ())),
        requests_running=running,
        surveyed=survey is not None,
    )
    if refusals:
        return plan
    draft = _Draft(report, server, overrides, survey, engine, row, subject, offline, moves, targets, timeouts)
    confirm = None if running == 0 else report.name
    why = "whether requests are running is not known" if running is None else f"{running:.0f} requests are running"
    return _replace(
        plan,
        steps=draft.steps(),
        spec=draft.spec() if survey is not None else None,
        confirm=confirm,
        confirm_why=why if confirm else "",
    )


def _replace(plan: Plan, **changes: Any) -> Plan:
    fields = {name: getattr(plan, name) for name in plan.__struct_fields__}
    return Plan(**{**fields, **changes})


def _running(server: ServerReport, survey: Survey | None) -> float | None:
    """Running requests, as the host says now, else as last seen."""
    if survey is not None and "running" in survey.get("requests", {}):
        return float(survey["requests"]["running"]) + float(survey["requests"].get("waiting", 0.0))
    return server.metrics.running if server.metrics is not None else None


def _shown(argv: list[str], how: str = "command") -> str:
    """A command as a person would type it, without its secrets; our own commands to a manager hold none."""
    return shlex.join(argv if how in ("unit", "container") else redact_argv(argv))


class _Draft:
    """The pieces of one plan while it is put together."""

    def __init__(
        self,
        report: HostReport,
        server: ServerReport,
        overrides: Overrides,
        survey: Survey | None,
        engine: EngineRecipe,
        row: TunerRecipe | None,
        subject: Subject,
        offline: bool,
        moves: tuple[str, ...],
        targets: tuple[str, ...],
        timeouts: dict[str, float],
    ) -> None:
        self.report, self.server, self.overrides, self.survey = report, server, overrides, survey
        self.engine, self.row, self.subject, self.offline = engine, row, subject, offline
        self.moves, self.targets, self.timeouts = moves, targets, timeouts
        self.process: dict[str, Any] = (survey or {}).get("server") or {}
        self.manager: dict[str, Any] = self.process.get("manager") or {"kind": "plain", "name": ""}

    # ── what is done ─────────────────────────────────────────────────────────────────────────────

    def stop(self) -> dict[str, Any]:
        kind, name = self.manager["kind"], self.manager["name"]
        if self.overrides.stop is not None:
            return {"how": "command", "argv": list(self.overrides.stop.argv)}
        if kind == "systemd":
            base = ["systemctl", *(["--user"] if self.manager.get("user") else []), "--no-ask-password"]
            return {
                "how": "unit",
                "argv": [*base, "stop", "--", name],
                "kill_argv": [*base, "kill", "--signal=SIGKILL", "--", name],
            }
        if kind in ("docker", "podman"):
            wait = str(int(self.timeouts["drain_s"]))
            return {"how": "container", "argv": [kind, "stop", "-t", wait, name], "kill_argv": [kind, "kill", name]}
        return {"how": "signal", "signal": "TERM"}

    def old_start(self) -> dict[str, Any]:
        """How the server is started as it was; a configured command only where the process does not tell."""
        kind, name = self.manager["kind"], self.manager["name"]
        if kind == "systemd":
            base = ["systemctl", *(["--user"] if self.manager.get("user") else []), "--no-ask-password"]
            return {"how": "unit", "argv": [*base, "start", "--", name], "manager": self.manager}
        if kind in ("docker", "podman"):
            return {"how": "container", "argv": [kind, "start", name], "manager": self.manager}
        recoverable = not list(preflight.check_recoverable(self.server, self.process)) if self.process else True
        if self.overrides.start is not None and not recoverable:
            return self._configured(self.overrides.start)
        return {"how": "process", "argv": list(self.process.get("argv") or self.server.argv)}

    def new_start(self) -> dict[str, Any]:
        return self._configured(self.overrides.start) if self.overrides.start is not None else self.old_start()

    def _configured(self, command: CommandLine) -> dict[str, Any]:
        output = command.output or (self.log().get("target") if self.log()["kind"] == "file" else None)
        return {"how": "command", "argv": list(command.argv), "cwd": command.cwd, "output": output}

    def log(self) -> dict[str, Any]:
        """Where the server's lines are read while it starts."""
        if self.manager["kind"] == "systemd":
            return {"kind": "journal", "target": self.manager["name"], "user": bool(self.manager.get("user"))}
        if self.manager["kind"] in ("docker", "podman"):
            return {"kind": "container", "target": f"{self.manager['kind']}:{self.manager['name']}"}
        if self.overrides.start is not None and self.overrides.start.output:
            return {"kind": "file", "target": self.overrides.start.output}
        for name in ("stderr", "stdout"):
            stream = self.process.get(name) or {}
            if stream.get("kind") == "file":
                return {"kind": "file", "target": stream["target"]}
        place = self.server.log or LogPlace(kind="none")
        return {"kind": "file", "target": place.target} if place.kind == "file" else {"kind": "none", "target": None}

    def tune(self) -> dict[str, Any]:
        if not self.offline:
            return {"how": "at_start", "outputs": [], "targets": []}
        outputs = [{"name": PurePosixPath(path).name, "target": path} for path in self.targets]
        targets = list(self.targets)
        if self.overrides.tune is not None:
            command = self.overrides.tune
            made = outputs if any("{out}" in part for part in command.argv) else []
            ours = {"how": "offline", "custom": True, "argv": list(command.argv), "cwd": command.cwd}
            return {**ours, "outputs": made, "targets": targets}
        found = (self.survey or {}).get("tuners") or []
        script = found[0] if found else (self.row.scripts[0] if self.row else "")
        python = self.process.get("program") or "python3"
        argv = fill(self.row, self.server, self.targets, script, python) if self.row else ()
        found_one = {"how": "offline", "custom": False, "argv": list(argv), "cwd": None, "script": script}
        return {**found_one, "outputs": outputs, "targets": targets}

    def spec(self) -> dict[str, Any]:
        """What the runner on the host gets."""
        engine = self.engine
        return {
            "schema": 1,
            "host": self.report.name,
            "server": self.server.name,
            "ident": self.process.get("ident"),
            "port": self.subject.port,
            "health_url": self.subject.health_url,
            "metrics_url": self.subject.metrics_url,
            "metric_names": {key: list(names) for key, names in engine.metrics.items()},
            "stop": self.stop(),
            "start": self.new_start(),
            "old_start": self.old_start(),
            "env": dict(self.overrides.env),
            "tune": self.tune(),
            "moves": list((self.survey or {}).get("moves", self.moves)),
            "log": self.log(),
            "lines": self.lines(),
            "timeouts": self.timeouts,
            "steps": [{"id": step.id, "title": step.title, "timeout_s": step.timeout_s} for step in self.steps()],
        }

    def lines(self) -> dict[str, list[str]]:
        """The patterns that speak of this server's kind of tuning."""
        tuner = Tuner.OFFLINE if self.offline else Tuner.AT_START
        names = ("ready", "failed", "tuned", "untuned")
        return {
            name: [line.pattern for line in getattr(self.engine, name) if line.tuner in (None, tuner)] for name in names
        }

    # ── what is shown ────────────────────────────────────────────────────────────────────────────

    def steps(self) -> tuple[PlanStep, ...]:
        """Every step in order."""
        t, again = self.timeouts, "stop it, start it as it was"
        source = self.subject.metrics_url or "nvidia-smi"
        ready = f"GET {self.subject.health_url} = 200" if self.subject.health_url else "its ready line"
        middle = self._offline_steps() if self.offline else self._move_steps()
        rows: list[_Row] = [
            ("check", "check again under the lock", _CHECKED, None, UNTOUCHED),
            ("baseline", "measure before", (f"tokens and power over {t['baseline_s']:.0f} s from {source}",),
             t["baseline_s"], UNTOUCHED),
            ("stop", "stop the server", self._stop_lines(), t["drain_s"], AS_IT_WAS),
            ("free", "wait until it is gone and its GPUs are free", _FREED, t["stop_s"], AS_IT_WAS),
            *middle,
            ("start", "start the server", self._start_lines(), None, again),
            ("ready", "wait until it is ready", (ready, "a fatal line in its log, or its end, means failure"),
             t["start_s"], again),
            ("verify", "verify", ("it stays up, health is 200, it took the new tuning",), t["verify_s"], again),
            ("measure", "measure after", ("the same window, once the load is back",), t["settle_s"] + t["baseline_s"],
             again),
        ]  # fmt: skip
        return tuple(
            PlanStep(id=name, title=title, lines=lines, timeout_s=timeout, undo=undo)
            for name, title, lines, timeout, undo in rows
        )

    def _stop_lines(self) -> tuple[str, ...]:
        stop = self.stop()
        if stop["how"] == "signal":
            first = f"SIGTERM to process {self.server.pid}: {self.engine.drain}"
        else:
            first = _shown(stop["argv"], stop["how"])
        wait = (
            f"after {self.timeouts['drain_s']:.0f} s you are asked: wait or kill; SIGKILL after another"
            f" {self.timeouts['ask_s']:.0f} s without an answer"
        )
        return (first, wait)

    def _offline_steps(self) -> list[_Row]:
        tune = self.tune()
        names = ", ".join(one["name"] for one in tune["outputs"]) or "as the command does"
        lines = (_shown(tune["argv"]), f"writes {names}")
        rows: list[_Row] = [("tune", "tune", lines, self.timeouts["tune_s"], f"end the tuner, {AS_IT_WAS}")]
        if tune["outputs"]:
            placed = tuple(f"{one['target']}{self._exists(one['target'])}" for one in tune["outputs"])
            title = "put the table where the engine reads it"
            rows.append(("install", title, placed, None, "take it away, put the earlier one back"))
        return rows

    def _exists(self, path: str) -> str:
        there = any(one["path"] == path and one["exists"] for one in (self.survey or {}).get("targets", []))
        return " (the earlier one is moved aside)" if there else ""

    def _move_steps(self) -> list[_Row]:
        found = (self.survey or {}).get("files", [])
        if not self.moves:
            lines: tuple[str, ...] = ("no cache is kept by this server: it tunes at every start",)
        elif self.survey is not None and not found:
            lines = (f"none exists: {', '.join(self.moves)}",)
        else:
            lines = tuple(one["path"] for one in found) or self.moves
        return [("move", "move the tuning caches aside", lines, None, "move them back, byte for byte")]

    def _start_lines(self) -> tuple[str, ...]:
        start = self.new_start()
        lines = [_shown(start["argv"], start["how"]) or "the command of the running process"]
        if start["how"] == "process":
            if self.process.get("cwd"):
                lines.append(f"in {self.process['cwd']}")
            lines += [
                f"{name} to {self.process[name].get('target')}" for name in ("stdout", "stderr") if name in self.process
            ]
            names = self.process.get("env_names")
            if names is not None:
                lines.append(f"environment of {len(names)} variables as it was")
        if self.overrides.env:
            lines.append(f"and {', '.join(sorted(self.overrides.env))} from the configuration")
        return tuple(lines)
