"""The client's side of a job: survey, start, attach, cancel, answer, finish or roll back; every action is logged."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from moetop.errors import ExitCode, LinkError, MoetopError
from moetop.model import HostReport, ServerReport
from moetop.retune import actions, wire
from moetop.retune.plan import make_plan, survey_request
from moetop.retune.types import (
    NO_OVERRIDES,
    JobLine,
    JobRef,
    JobState,
    JobStatus,
    OutputLine,
    Overrides,
    Plan,
    Refusal,
    harmless,
)
from moetop.transport.base import Transport


class RetuneRefused(MoetopError):
    """Nothing was touched."""

    exit_code = ExitCode.REFUSED


EXIT_CODES: dict[JobStatus, ExitCode] = {
    JobStatus.RETUNED: ExitCode.OK,
    JobStatus.ROLLED_BACK: ExitCode.ROLLED_BACK,
    JobStatus.DOWN: ExitCode.DOWN,
    JobStatus.REFUSED: ExitCode.REFUSED,
    JobStatus.RUNNING: ExitCode.RUNNING,
    JobStatus.INTERRUPTED: ExitCode.RUNNING,
}
"""An interrupted job is not over: somebody has to finish it or roll it back."""


def prepare(
    transport: Transport,
    report: HostReport,
    server: ServerReport,
    overrides: Overrides = NO_OVERRIDES,
    *,
    python: str = "python3",
) -> Plan:
    """Ask the host and make the plan; touches nothing. Raises LinkError, HostError.

    A host that cannot be asked does not hide a refusal that the report alone gives.
    """
    try:
        survey = wire.ask(transport, survey_request(server, overrides), python=python)
    except MoetopError:
        preview = make_plan(report, server, overrides)
        if preview.refused:
            return preview
        raise
    survey["hostname"] = harmless(survey.get("hostname", ""))
    return make_plan(report, server, overrides, survey)


def start(transport: Transport, plan: Plan, *, confirmed: str | None = None, python: str = "python3") -> JobRef:
    """Start a surveyed plan; returns once the runner holds the lock.

    `confirmed` is what was typed where the plan wants the host's name. Raises RetuneRefused (nothing was
    touched), LinkError.
    """
    if plan.refused:
        first = plan.refusals[0]
        raise RetuneRefused(first.text, first.advice or None)
    if plan.spec is None:
        raise RetuneRefused("the host was not asked yet: this plan is a preview")
    if plan.confirm is not None and confirmed != plan.confirm:
        raise RetuneRefused(f"{plan.confirm_why}: the host's name {plan.confirm} has to be typed")
    actions.check()
    request = {"op": "start", "operator": actions.operator(), "spec": plan.spec}
    try:
        reply = wire.ask(transport, request, python=python)
    except LinkError as error:
        actions.record(plan.host, f"retune {plan.server}", f"link lost while it was asked for: {error}")
        advice = f"whether the job started is not known: moetop --retune {plan.host} --attach"
        raise LinkError(str(error), advice, code=error.code, retry=False) from None
    except wire.HostError as error:
        actions.record(plan.host, f"retune {plan.server}", f"refused: {error}")
        raise RetuneRefused(str(error)) from None
    ref = JobRef(job=str(reply["job"]), host=plan.host)
    actions.record(plan.host, f"retune {plan.server}", "started", ref.job)
    return ref


def _lines(raw: Any) -> tuple[OutputLine, ...]:
    found = []
    for text in raw if isinstance(raw, list) else []:
        try:
            line = json.loads(text)
            found.append(
                OutputLine(t=float(line["t"]), source=harmless(str(line["from"]), 40), text=harmless(str(line["text"])))
            )
        except (ValueError, KeyError, TypeError):
            continue
    return tuple(found)


def poll(transport: Transport, ref: JobRef, since: int = 0, *, python: str = "python3") -> JobState:
    """State of a job with its output after byte `since`. Raises LinkError, HostError."""
    reply = wire.ask(transport, {"op": "poll", "job": ref.job, "since": since}, python=python)
    lines = _lines(reply.pop("lines", None))
    try:
        state = msgspec.convert(harmless(reply), JobState, strict=False)
    except msgspec.ValidationError as error:
        raise MoetopError(f"the job's state on {ref.host} makes no sense: {error}") from None
    return msgspec.structs.replace(state, lines=lines)


def cancel(transport: Transport, ref: JobRef, *, python: str = "python3") -> None:
    """Ask the runner to put everything back. Raises LinkError, HostError (not yours, ended, rolling back)."""
    _act(transport, ref, "cancel", {"op": "cancel"}, python)


def answer(transport: Transport, ref: JobRef, option: str, *, python: str = "python3") -> None:
    """Answer the runner's question. Raises LinkError, HostError."""
    _act(transport, ref, f"answer {option}", {"op": "answer", "answer": option}, python)


def finish_or_rollback(transport: Transport, ref: JobRef, how: str, *, python: str = "python3") -> None:
    """Let a new runner take over an interrupted job: `finish` or `rollback`. Raises LinkError, HostError."""
    _act(transport, ref, how, {"op": "resume", "how": how}, python)


def keep_report(transport: Transport, ref: JobRef, files: dict[str, str], *, python: str = "python3") -> None:
    """Keep the before/after report (report.md, report.json) in the job's folder. Raises LinkError, HostError."""
    wire.ask(transport, {"op": "keep", "job": ref.job, "files": files}, python=python)


def _act(transport: Transport, ref: JobRef, what: str, request: dict[str, Any], python: str) -> None:
    actions.check()
    try:
        wire.ask(transport, {**request, "job": ref.job, "operator": actions.operator()}, python=python)
    except MoetopError as error:
        actions.record(ref.host, what, f"refused: {error}", ref.job)
        raise
    actions.record(ref.host, what, "asked for", ref.job)


def list_jobs(transport: Transport, limit: int = 50, *, python: str = "python3") -> tuple[JobLine, ...]:
    """Jobs of this user on the host, newest first. Raises LinkError, HostError."""
    reply = wire.ask(transport, {"op": "list", "limit": limit}, python=python)
    try:
        return msgspec.convert(harmless(reply.get("jobs", [])), tuple[JobLine, ...], strict=False)
    except msgspec.ValidationError as error:
        raise MoetopError(f"the jobs on {transport.name} make no sense: {error}") from None


def open_job(transport: Transport, server: str | None, *, python: str = "python3") -> Refusal | None:
    """Why a server is not found on the host, where a job explains it; `server` is None where any is meant.

    None also where the host cannot be asked: what was found without it stands.
    """
    try:
        reply = wire.ask(transport, {"op": "list", "limit": 50}, python=python)
        listed = msgspec.convert(harmless(reply.get("jobs", [])), tuple[JobLine, ...], strict=False)
    except (MoetopError, msgspec.ValidationError):
        return None
    mine = [one for one in listed if server is None or one.server == server]
    attach = f"moetop --retune {transport.name} --attach"
    for one in mine:
        who = f"by {one.operator} (job {one.job}{f', now: {one.step}' if one.step else ''})"
        if one.status is JobStatus.RUNNING:
            return Refusal(code="locked", text=f"{one.server} is being retuned {who}", advice=f"watch it with {attach}")
        if one.status is JobStatus.INTERRUPTED:
            text = f"a retune of {one.server} was interrupted in the middle: started {who}"
            return Refusal(code="interrupted", text=text, advice=f"finish it or roll it back: {attach}")
    if mine and mine[0].status is JobStatus.DOWN:
        text = f"the newest retune left {mine[0].server} down ({mine[0].job}, {mine[0].operator})"
        return Refusal(code="down", text=text, advice=f"try to roll back once more: {attach}")
    if server is None and reply.get("others"):
        text = f"no server found on {transport.name}, where another user's retune job is running now"
        return Refusal(code="no_server", text=text, advice="if it is of that server, wait for its end")
    return None


def exit_code(state: JobState) -> ExitCode:
    """What `moetop --retune` ends with for a job in this state."""
    return EXIT_CODES[state.status]
