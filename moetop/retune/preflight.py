"""What must hold before anything is touched: from the report and the host's survey to refusals and warnings. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from moetop.model import Finding, FindingKind, HostReport, Phase, ServerReport, Severity, Verdict
from moetop.retune.recipes import REFUSALS, TunerRecipe, version_key
from moetop.retune.types import Overrides, Refusal, Tuner

MIN_FREE_MIB = 64
"""Room for the job's folder (state, output, a copy of the tuner's result); caches are renamed, not copied."""

_NO_RETURN = {
    FindingKind.GPU_LOST: "a GPU is lost: a restarted server would not find it",
    FindingKind.DRIVER_MISMATCH: "driver and library versions differ: no new process can use the GPUs until a reboot",
    FindingKind.NO_DATA: "the GPUs cannot be read: whether a restarted server comes back is not known",
    FindingKind.GPU_FAULT: "a GPU reported a fault: clear that first",
}
_STARTING = {Phase.LOADING, Phase.CAPTURING, Phase.TUNING}
_LIVING = {Phase.LOADING, Phase.CAPTURING, Phase.TUNING, Phase.READY, Phase.UNKNOWN}


def check_report(
    report: HostReport, server: ServerReport, row: TunerRecipe | None, backend: str | None, overrides: Overrides
) -> Iterator[Refusal]:
    """Refusals that need no look at the host."""
    if server.gone or server.phase in (Phase.STOPPED, Phase.CRASHED, Phase.EXITED):
        yield Refusal(
            code="not_running",
            text=f"{server.name} is not running ({server.phase})",
            advice="start it first: the start command is recovered from the running process",
        )
        return
    if server.phase in _STARTING:
        yield Refusal(
            code="starting", text=f"{server.name} is still starting ({server.phase})", advice="wait until it is ready"
        )
    if server.phase == Phase.DRAINING:
        yield Refusal(code="draining", text=f"{server.name} is shutting down", advice="wait for its end, then start it")
    if server.pid is None:
        yield Refusal(
            code="no_process", text=f"no process of {server.name} is known", advice="moetop --doctor says why"
        )
    for finding in report.findings:
        words = _fatal_for_restart(finding, server)
        if words:
            yield Refusal(code=str(finding.kind), text=words, advice=finding.remedy[0] if finding.remedy else "")
    yield from _check_tuner(server, row, backend, overrides)


def _fatal_for_restart(finding: Finding, server: ServerReport) -> str | None:
    words = _NO_RETURN.get(finding.kind)
    if words is None or finding.severity != Severity.CRITICAL:
        return None
    if finding.gpus and server.gpus and not set(finding.gpus) & set(server.gpus):
        return None
    return words


def _check_tuner(
    server: ServerReport, row: TunerRecipe | None, backend: str | None, overrides: Overrides
) -> Iterator[Refusal]:
    verdict = server.tuning.verdict
    for known in REFUSALS:
        if verdict not in known.verdicts or (known.code == "tuning_off" and overrides.start is not None):
            continue
        said = "; ".join(server.tuning.remedy[:2]) or known.advice
        yield Refusal(code=known.code, text=known.text.format(backend=backend or "this server's"), advice=said)
        return
    if row is None and overrides.tune is None:
        if backend is None:
            text = f"the MoE backend of {server.name} is not known, so neither is its tuner"
            advice = "its arguments line is not in the log: check the log's place, or give `tune:` in the configuration"
        else:
            text = f"backend {backend} of {server.engine or 'this engine'} has no tuner that moetop knows"
            advice = "; ".join(server.tuning.remedy[:2]) or "give `tune:` in the configuration if you have one"
        yield Refusal(code="no_tuner", text=text, advice=advice)


def check_files(
    server: ServerReport,
    row: TunerRecipe | None,
    moves: tuple[str, ...],
    targets: tuple[str, ...],
    overrides: Overrides,
) -> Iterator[Refusal]:
    """The tuner must have something to do: a table to make, or caches whose absence makes the engine tune."""
    if row is None:
        return
    if row.tuner == Tuner.OFFLINE and not targets:
        yield Refusal(
            code="no_target",
            text="the name of the tuned table that the engine looks for is not known",
            advice="the engine prints it at its first use of the experts: let it serve one request, then try again",
        )
    if row.tuner == Tuner.AT_START and not moves and server.tuning.verdict == Verdict.TUNED:
        yield Refusal(
            code="tuned_without_cache",
            text="this server tuned itself at its start and keeps no cache: a restart would only do the same again",
        )


def check_jobs(report: HostReport, server: ServerReport, survey: dict[str, Any]) -> Iterator[Refusal]:
    """Refusals because a job holds the server. They come first: while one works, the server may well be shutting
    down, gone or starting, and that is the job's doing."""
    attach = f"moetop --retune {report.name} --attach"
    if survey.get("lock"):
        yield Refusal(
            code="locked", text=f"{server.name} is being retuned by {survey['lock']}", advice=f"watch it with {attach}"
        )
    for job in survey.get("interrupted", [])[:1]:
        yield Refusal(
            code="interrupted",
            text=f"an earlier job was interrupted in the middle ({job['job']}, {job['operator']})",
            advice=f"finish it or roll it back first: {attach}",
        )


def check_survey(
    server: ServerReport, row: TunerRecipe | None, survey: dict[str, Any], overrides: Overrides
) -> Iterator[Refusal]:
    """Refusals from what the host says of the server now."""
    process = survey.get("server") or {}
    if not process.get("alive"):
        yield Refusal(code="no_process", text=f"process {server.pid} of {server.name} is gone", advice="look again")
        return
    yield from _check_process(server, process, survey, overrides)
    yield from _check_places(row, survey, overrides)
    yield from _check_gpus(row, survey, overrides)


def _check_process(
    server: ServerReport, process: dict[str, Any], survey: dict[str, Any], overrides: Overrides
) -> Iterator[Refusal]:
    if survey["uid"] not in (0, process.get("uid")):
        yield Refusal(
            code="not_permitted",
            text=f"the server belongs to {process.get('user')}, this session is {survey.get('user')}",
            advice=f"connect as {process.get('user')} or root",
        )
        return
    kind = process["manager"]["kind"]
    if process["pid"] == 1 or kind == "kubernetes":
        yield Refusal(
            code="cluster_managed",
            text="the server is its container's first process: stopping it ends the container and this session with it"
            if process["pid"] == 1
            else "the server belongs to a Kubernetes pod, which would start it again by itself",
            advice="retune through whatever deploys it: put the cache or the table on a volume and roll the pod",
        )
        return
    if kind == "plain" and process.get("same_mounts") is False:
        yield Refusal(
            code="other_namespace",
            text="the server sees another file system than this session (a namespace or chroot of its own)",
            advice="connect into that environment, or let a unit or container manage the server",
        )
        return
    for path in survey.get("unmapped", [])[:1]:
        yield Refusal(
            code="in_container",
            text=f"the cache {path} lies inside the container, not on a volume: it cannot be moved aside from the host",
            advice="put the cache's folder on a volume, else every new container tunes anew anyway",
        )
    if kind == "plain" and overrides.start is None:
        yield from check_recoverable(server, process)
    if kind == "systemd" and survey["uid"] != 0 and not process["manager"].get("user") and overrides.stop is None:
        yield Refusal(
            code="not_permitted",
            text=f"{process['manager']['name']} is a system unit and this session is not root",
            advice="connect as root, or give `stop:` and `start:` in the configuration (with sudo -n)",
        )
    if kind != "plain" and overrides.env and overrides.start is None:
        yield Refusal(
            code="env_of_managed",
            text=f"`env:` cannot be given to a server that {kind} starts",
            advice="put the variables into the unit or the container",
        )
    package = process.get("package")
    installed = package["version"] if package and package.get("newer_than_process") else None
    if installed and server.version and version_key(installed) != version_key(server.version):
        yield Refusal(
            code="version_changed",
            text=f"{server.engine} {server.version} runs, but {installed} is installed now: neither the"
            " retune nor a roll back would start what runs",
            advice="restart it with the new version first, then look whether it is still untuned",
        )


def check_recoverable(server: ServerReport, process: dict[str, Any]) -> Iterator[Refusal]:
    """Whether the very same process could be started again."""
    if not process.get("program"):
        yield Refusal(
            code="command_lost",
            text="the start command cannot be recovered from the process (its command line was rewritten, or its"
            " program was moved)",
            advice="give `start:` in the configuration",
        )
    if process.get("env_names") is None:
        yield Refusal(
            code="not_permitted", text="the server's environment cannot be read", advice="connect as its user or root"
        )
    if not process.get("cwd_ok"):
        yield Refusal(
            code="cwd_lost", text="the server's working directory is gone", advice="give `start:` with `cwd:`"
        )
    for name, stream in (("standard output", process["stdout"]), ("standard error", process["stderr"])):
        words = _cannot_restore(stream)
        if words:
            yield Refusal(
                code="output_lost",
                text=f"the server's {name} {words}, which cannot be restored",
                advice="start it once with its output in a file (COMMAND >> server.log 2>&1), or give `start:` with"
                " `output:`",
            )
            return


def _cannot_restore(stream: dict[str, Any]) -> str | None:
    kind = stream.get("kind")
    if kind == "pipe":
        reader = f" into {stream['reader']}" if stream.get("reader") else ""
        return f"goes through a pipe{reader}"
    if kind == "terminal":
        return f"goes to a terminal ({stream.get('target')})"
    if kind in ("socket", "other", "denied"):
        return f"goes to {stream.get('target') or 'something that cannot be read'}"
    return None


def _check_places(row: TunerRecipe | None, survey: dict[str, Any], overrides: Overrides) -> Iterator[Refusal]:
    state = survey.get("state", {})
    if state.get("error"):
        yield Refusal(code="no_state", text=f"the job's folder cannot be made: {state['path']}: {state['error']}")
    elif (state.get("free_mib") or 0) < MIN_FREE_MIB:
        yield Refusal(
            code="disk_full",
            text=f"{state.get('free_mib')} MiB free where jobs are kept ({state['path']}); {MIN_FREE_MIB} are needed",
        )
    for path, why in survey.get("not_movable", {}).items():
        yield Refusal(code="not_movable", text=f"{path} cannot be moved aside: {why}")
    offline = row is not None and row.tuner == Tuner.OFFLINE
    for target in survey.get("targets", []) if offline else []:
        if target.get("why_not"):
            yield Refusal(code="no_target", text=f"{target['path']} cannot be written: {target['why_not']}")
    managed = (survey.get("server") or {}).get("manager", {}).get("kind") in ("docker", "podman")
    if offline and managed and overrides.tune is None:
        yield Refusal(
            code="in_container",
            text="the offline tuner would have to run inside the container, which is stopped then",
            advice="give `tune:` in the configuration (a docker run of the same image with the tuner)",
        )
    elif offline and row is not None and overrides.tune is None and not survey.get("tuners"):
        yield Refusal(
            code="no_script",
            text=f"the tuning script {row.scripts[0]} was not found on the host",
            advice="clone the engine's repository at the installed version into the home folder, or give `tune:`",
        )
    if offline and row is not None and overrides.tune is None and survey.get("missing_packages"):
        missing = ", ".join(survey["missing_packages"])
        yield Refusal(code="no_package", text=f"the tuner needs {missing}, not installed for the server's Python",
                      advice=f"pip install {missing}")  # fmt: skip


def _check_gpus(row: TunerRecipe | None, survey: dict[str, Any], overrides: Overrides) -> Iterator[Refusal]:
    gpu = survey.get("gpu", {})
    if gpu.get("error"):
        yield Refusal(code="smi_fails", text=f"{gpu['error']}; a restarted server would not come back")
    rows = gpu.get("processes") or []
    ours = {one["gpu"] for one in rows if one.get("ours")}
    others = [one for one in rows if not one.get("ours") and one["gpu"] in ours]
    if others and row is not None and row.tuner == Tuner.OFFLINE:
        names = ", ".join(f"{one['pid']} ({one['name']})" for one in others[:3])
        yield Refusal(
            code="gpu_shared",
            text=f"other processes use the same GPUs: {names}; the tuner needs them free",
            advice="stop those first, or tune at a time when they are not there",
        )


def warnings_of(
    report: HostReport, server: ServerReport, survey: dict[str, Any] | None, timeouts: dict[str, float]
) -> Iterator[str]:
    """What does not stop a retune but should be known."""
    if server.tuning.verdict == Verdict.TUNED:
        yield "already tuned: a retune would measure again, a gain is unlikely"
    others = [one.name for one in report.servers if one.name != server.name and not one.gone and one.phase in _LIVING]
    if others:
        yield f"other servers on this host are left alone: {', '.join(others)}"
    if survey is None:
        return
    if survey.get("beside"):
        yield f"a retune job works on another server of this host: {', '.join(survey['beside'])}"
    if survey.get("beside_others"):
        yield "another user's retune job works on this host too"
    gpu = survey.get("gpu", {})
    if not gpu.get("smi"):
        yield "no nvidia-smi on the host: leftovers on the GPUs cannot be looked for"
    process = survey.get("server") or {}
    facts = process.get("manager", {}).get("facts") or {}
    limit = _systemd_seconds(facts.get("TimeoutStopUSec", ""))
    if limit is not None and limit < timeouts["drain_s"]:
        drain = timeouts["drain_s"]
        yield f"the unit's stop time-out of {limit:.0f} s is shorter than the plan's {drain:.0f} s: systemd cuts it off"
    if survey.get("logind_kills"):
        yield "the login manager ends processes at logout here: the runner goes through systemd-run"
    package = process.get("package")
    if package and package.get("newer_than_process"):
        yield f"the engine's package ({package['version']}) was installed after this process started"


def _systemd_seconds(text: str) -> float | None:
    """Seconds of a systemd time span such as `1min 30s`; None for infinity or nothing."""
    units = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
    parts = re.findall(r"(\d+(?:\.\d+)?)(us|ms|s|min|h|d)\b", text)
    return sum(float(number) * units[unit] for number, unit in parts) if parts else None
