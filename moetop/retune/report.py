"""Plans, jobs and proofs as text, markdown and JSON; everything is safe to print. Decides nothing."""

from __future__ import annotations

import json
import textwrap
from typing import Any

import msgspec

from moetop.retune.proof import Proof, Row
from moetop.retune.types import JobState, JobStatus, JobStep, Plan, StepState
from moetop.text import plain

WIDTH = 118

END_WORDS: dict[JobStatus, str] = {
    JobStatus.RETUNED: "RETUNED",
    JobStatus.ROLLED_BACK: "ROLLED BACK",
    JobStatus.DOWN: "THE SERVER IS DOWN",
    JobStatus.REFUSED: "REFUSED, NOTHING TOUCHED",
    JobStatus.INTERRUPTED: "INTERRUPTED: its runner is gone",
    JobStatus.RUNNING: "RUNNING",
}

STEP_MARKS: dict[StepState, str] = {
    StepState.PENDING: "·",
    StepState.RUNNING: "▸",
    StepState.DONE: "✓",
    StepState.FAILED: "✕",
    StepState.CANCELLED: "✕",
    StepState.SKIPPED: "-",
}


def span(seconds: float) -> str:
    """Seconds as people say them."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def plan_text(plan: Plan) -> str:
    """The plan: what is there, what would be done and undone, or why nothing will."""
    said = [f"Retune {plan.server} on {plan.host}"]
    facts = [
        f"{plan.engine or 'engine not known'} {plan.version or ''}".strip(),
        f"MoE backend {plan.backend or 'not known'}",
        f"tuning: {plan.verdict}",
    ]
    if plan.requests_running is not None:
        facts.append(f"{plan.requests_running:.0f} requests running")
    said.append("  " + " · ".join(facts))
    said += [f"  seen: {note}" for note in plan.notes]
    if plan.refused:
        said += ["", "Refused, nothing will be touched:"]
        for refusal in plan.refusals:
            said.append(f"  ✕ {refusal.text}")
            said += [f"    do: {refusal.advice}"] if refusal.advice else []
        return _join(said)
    said.append("")
    for number, step in enumerate(plan.steps, start=1):
        limit = f"   (at most {span(step.timeout_s)})" if step.timeout_s is not None else ""
        said.append(f"{number:3}  {step.title}{limit}")
        said += [f"       {line}" for line in step.lines]
        said.append(f"       undo: {step.undo}")
    said.append("")
    said += [f"  ▲ {warning}" for warning in plan.warnings]
    said += [f"  rule: {rule}" for rule in plan.never]
    said.append("  Any step that fails or takes too long puts everything back and starts the server as it was.")
    if plan.confirm is not None:
        said.append(f"  {plan.confirm_why}: type the host's name ({plan.confirm}) to go on.")
    if not plan.surveyed:
        said.append("  A preview: the host has not been asked yet.")
    return _join(said)


def _join(lines: list[str]) -> str:
    """Wrapped for a terminal, one harmless line each."""
    out = []
    for line in lines:
        indent = len(line) - len(line.lstrip())
        safe = plain(line, 3000)
        out += textwrap.wrap(safe, WIDTH, subsequent_indent=" " * (indent + 2), break_on_hyphens=False) or [""]
    return "\n".join(out) + "\n"


def step_line(step: JobStep, now: float) -> str:
    """One step with its mark, word and running time."""
    clock = ""
    if step.started is not None:
        clock = f"  {span(max(0.0, (step.ended or now) - step.started))}"
        if step.ended is None and step.timeout_s is not None:
            clock += f" of at most {span(step.timeout_s)}"
    detail = f"  {step.detail}" if step.detail else ""
    return plain(f"{STEP_MARKS[step.state]} {step.title}: {step.state}{clock}{detail}", 600)


def job_text(state: JobState) -> str:
    """A job's steps and end for people."""
    said = [f"{END_WORDS[state.status]}   {state.server} on {state.host}   job {state.job} by {state.operator}"]
    said += [f"  {step_line(step, state.now)}" for step in state.steps if step.state != StepState.PENDING]
    if state.message:
        said.append(f"  {state.message}")
    said += [f"  do: {advice}" for advice in (*state.advice, *next_things(state))]
    said.append(f"  kept on the host in {state.folder}")
    return _join(said)


def next_things(state: JobState) -> tuple[str, ...]:
    """What a person should do now."""
    if state.asks is not None:
        options = "; ".join(f"{name}: {what}" for name, what in state.asks.options.items())
        return (f"answer: {state.asks.question} ({options}; {state.asks.default} if nobody does)",)
    if state.status == JobStatus.INTERRUPTED:
        why = "the host was rebooted" if state.rebooted else "its runner was killed"
        return (f"{why} in the middle: finish the job or roll it back (moetop --retune {state.host} --attach)",)
    return ()


def proof_markdown(proof: Proof, title: str = "Before and after") -> str:
    """The table as markdown."""
    lines = [
        f"### {title}",
        "",
        f"**{plain(proof.sentence)}**",
        "",
        "| | before | after | change |",
        "|---|---:|---:|---:|",
    ]
    for row in proof.rows:
        lines.append(f"| {_md(_name(row))} | {_md(row.before)} | {_md(row.after)} | {_md(row.change)} |")
    return "\n".join(lines) + "\n"


def _name(row: Row) -> str:
    return f"{row.name} ({row.unit})" if row.unit else row.name


def _md(text: str) -> str:
    return plain(text, 200).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


def proof_text(proof: Proof) -> str:
    """The table for a terminal."""
    cells = [(_name(row), row.before, row.after, row.change) for row in proof.rows]
    widths = [max(len(cell[column]) for cell in cells) for column in range(3)]
    lines = [
        f"  {name:<{widths[0]}}  {old:>{widths[1]}}  {new:>{widths[2]}}  {change}".rstrip()
        for name, old, new, change in cells
    ]
    return "\n".join(plain(line, 400) for line in [proof.sentence, *lines]) + "\n"


def report_markdown(state: JobState, proof: Proof | None) -> str:
    """A job's end, steps and proof as markdown."""
    lines = [
        f"## Retune of {_md(state.server)} on {_md(state.host)}: {state.status}",
        "",
        f"{_md(state.message)}  ",
        f"job `{_md(state.job)}` by {_md(state.operator)}",
        "",
        "| step | state | seconds | |",
        "|---|---|---:|---|",
    ]
    for step in state.steps:
        took = f"{step.ended - step.started:.1f}" if step.started is not None and step.ended is not None else ""
        lines.append(f"| {_md(step.title)} | {step.state} | {took} | {_md(step.detail)} |")
    lines += ["", *(f"- {_md(advice)}" for advice in (*state.advice, *next_things(state))), ""]
    text = "\n".join(lines)
    return text + (proof_markdown(proof) if proof is not None else "")


def report_json(state: JobState, proof: Proof | None) -> str:
    """A job's end, steps and proof as one JSON object."""
    job: dict[str, Any] = msgspec.to_builtins(state)
    for key in ("lines", "offset", "more", "now"):
        job.pop(key)
    shown = {"schema": "moetop.retune/1", "job": job, "proof": None if proof is None else msgspec.to_builtins(proof)}
    return json.dumps(shown, indent=2) + "\n"
