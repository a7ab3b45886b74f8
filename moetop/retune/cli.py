"""`moetop --retune`: plan, confirm, follow the job on the host, prove, exit code. It alone writes to the terminal."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TextIO

import msgspec

from moetop.errors import ExitCode, LinkError, MoetopError
from moetop.model import HostReport, ServerReport
from moetop.retune import actions, proof, report
from moetop.retune import job as jobs
from moetop.retune.plan import find_server, refused_plan
from moetop.retune.types import (
    NO_OVERRIDES,
    JobLine,
    JobRef,
    JobState,
    JobStatus,
    Overrides,
    Plan,
    Refusal,
    StepState,
)
from moetop.stdout import print_text
from moetop.transport.base import Transport

if TYPE_CHECKING:
    import argparse

    from moetop.config import Config

POLL_S = 1.0
LINK_PATIENCE_S = 120.0
"""How long a lost link is retried before moetop leaves the job to itself (exit code 8)."""
SAMPLE_S = 1.0
WINDOW_S = 10.0
"""Seconds over which figures are taken for the proof."""
SETTLE_S = 15.0
"""Judged windows and log rates of the old server have left the report after this long."""

Report = Callable[[], HostReport]


@dataclass
class Call:
    """What was asked for, and the ends of the terminal. `report` gives the newest report of the host."""

    transport: Transport
    host: str
    report: Report
    server: str | None = None
    dry_run: bool = False
    yes: bool = False
    attach: bool = False
    readonly: bool = False
    as_json: bool = False
    format: str | None = None
    overrides: Callable[[ServerReport], Overrides] = lambda server: NO_OVERRIDES
    python: str = "python3"
    out: TextIO = field(default_factory=lambda: sys.stdout)
    err: TextIO = field(default_factory=lambda: sys.stderr)
    input: TextIO = field(default_factory=lambda: sys.stdin)
    window_s: float = WINDOW_S
    settle_s: float = SETTLE_S
    poll_s: float = POLL_S

    def say(self, text: str) -> None:
        """Progress for people goes to standard error; results go to standard output."""
        print(text, file=self.err, flush=True)

    def write(self, text: str) -> None:
        """A result. Raises UsageError where standard output is closed or full."""
        print_text(text, self.out)


def run_on(call: Call) -> ExitCode:
    """Retune one server, or attach to the job that runs. Raises MoetopError where that is not possible."""
    if call.attach:
        return _attach(call)
    found = find_server(call.report(), call.server)
    if isinstance(found, Refusal):
        if found.code == "no_server":
            found = jobs.open_job(call.transport, call.server, python=call.python) or found
        return _show_refused(call, refused_plan(call.report(), call.server or "a server", found))
    overrides = call.overrides(found)
    plan = jobs.prepare(call.transport, call.report(), found, overrides, python=call.python)
    if call.server is None and plan.beside and not plan.refused:
        text = f"which server is meant is not sure: a job works on another one ({', '.join(plan.beside)})"
        advice = f"say it with --server {found.name}, or watch that job with --attach"
        plan = msgspec.structs.replace(plan, refusals=(Refusal(code="several", text=text, advice=advice),), steps=())
    if plan.refused:
        return _show_refused(call, plan)
    if call.dry_run:
        call.write(plan.to_json() if call.as_json else plan.to_text())
        return ExitCode.OK
    if call.readonly:
        raise jobs.RetuneRefused("moetop was started with --readonly")
    call.err.write(plan.to_text())
    if not _confirmed(call, plan):
        raise jobs.RetuneRefused("not confirmed, nothing touched")
    call.window_s = window_of(plan, call.window_s)
    before = _measure(call, found.name) if call.window_s > 0 else None
    ref = jobs.start(call.transport, plan, confirmed=plan.confirm, python=call.python)
    call.say(f"job {ref.job} is running on {call.host}; it goes on if this ends (--attach comes back to it)")
    return _follow(call, ref, before)


def window_of(plan: Plan, window_s: float) -> float:
    """Seconds over which this side measures: as long as the runner's window where that was configured longer."""
    given = (plan.spec or {}).get("timeouts", {}).get("baseline_s", 0.0)
    return max(window_s, given) if window_s > 0 else window_s


def _show_refused(call: Call, plan: Plan) -> ExitCode:
    """The reasons on standard output, the first also as the one line of the error."""
    if call.dry_run:
        call.write(plan.to_json() if call.as_json else plan.to_text())
        return ExitCode.REFUSED
    actions.record(call.host, f"retune {plan.server}", f"refused: {plan.refusals[0].text}")
    call.err.write(plan.to_text())
    first = plan.refusals[0]
    raise jobs.RetuneRefused(f"retune refused: {first.text}", first.advice or None)


def _confirmed(call: Call, plan: Plan) -> bool:
    """`--yes` stands for the answer: the host's name was typed on the command line already."""
    if call.yes:
        if plan.confirm is not None:
            call.say(f"--yes given for {plan.host}: {plan.confirm_why}; they may drain before the server ends")
        return True
    if not call.input.isatty():
        raise jobs.RetuneRefused("nobody to ask: standard input is no terminal", "give --yes, or look with --dry-run")
    word = plan.confirm or "yes"
    call.err.write(f"type {word} to go on: ")
    call.err.flush()
    return call.input.readline().strip() == word


def _measure(call: Call, server: str) -> proof.Window:
    """Figures of the server now, from one report a second over the window.

    The runner on the host measures tokens and power in windows of its own; what the GPUs did (states, tensor and
    DRAM activity) is known on this side alone.
    """
    call.say(f"measuring what its GPUs do for {call.window_s:.0f} s (tokens and power the host measures itself) ...")
    reports = []
    begun = time.monotonic()
    while time.monotonic() - begun < call.window_s:
        reports.append(call.report())
        time.sleep(min(SAMPLE_S, call.window_s))
    return proof.window(reports, server, round(time.monotonic() - begun, 1))


class _Progress:
    """Prints each change of a step once, and the lines of the job's output."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._shown: dict[str, StepState] = {}
        self.asked = ""
        self.offset = 0

    def show(self, state: JobState) -> None:
        """In the order in which it happened; steps that are later than the lines still to come wait for those."""
        told = [(line.t, 0, f"  {line.source}: {line.text}") for line in state.lines if line.source != "moetop"]
        until = state.lines[-1].t if state.more and state.lines else math.inf
        undone = min(
            (step.started or state.now for step in state.steps if step.id.startswith("rb_")), default=state.now
        )
        for number, step in enumerate(state.steps, start=1):
            if step.state in (StepState.PENDING, self._shown.get(step.id)):
                continue
            when = (step.started if step.state == StepState.RUNNING else step.ended) or undone
            if when <= until:
                self._shown[step.id] = step.state
                told.append((when, number, report.step_line(step, state.now)))
        for _, _, text in sorted(told, key=lambda one: one[:2]):
            self._call.say(text)
        question = state.asks.question if state.asks else ""
        if question and question != self.asked:
            self._call.say(report.next_things(state)[0])
        self.asked = question


def _follow(call: Call, ref: JobRef, before: proof.Window | None) -> ExitCode:
    """Watch a job to its end. An interrupt leaves it running, or cancels it when the person says so."""
    progress = _Progress(call)
    while True:
        try:
            state = _watch(call, ref, progress)
        except KeyboardInterrupt:
            if not _cancels(call, ref):
                call.say(f"left running on {call.host}: moetop --retune {call.host} --attach")
                return ExitCode.RUNNING
            continue
        return ExitCode.RUNNING if state is None else _end(call, ref, state, before)


def _watch(call: Call, ref: JobRef, progress: _Progress) -> JobState | None:
    """Show a job until it is over. A lost link is retried; None where it stays lost and the job goes on alone."""
    lost_since: float | None = None
    while True:
        try:
            state = jobs.poll(call.transport, ref, progress.offset, python=call.python)
        except LinkError as error:
            lost_since = lost_since or time.monotonic()
            if time.monotonic() - lost_since > LINK_PATIENCE_S:
                call.say(f"{error.sentence()}; the job goes on on the host: moetop --retune {call.host} --attach")
                return None
            call.say(f"link lost ({error}); the job goes on, trying again")
            time.sleep(call.poll_s * 3)
            continue
        lost_since, progress.offset = None, state.offset
        progress.show(state)
        if state.more:
            continue
        if state.over:
            return state
        if state.asks is not None and call.input.isatty() and not call.yes:
            _answer(call, ref, state)
        time.sleep(call.poll_s)


def _cancels(call: Call, ref: JobRef) -> bool:
    """After an interrupt: whether the job is to be cancelled, asked only where somebody can answer."""
    if not call.input.isatty() or not _means_cancel(call):
        return False
    try:
        jobs.cancel(call.transport, ref, python=call.python)
    except MoetopError as error:
        call.say(error.sentence())
    return True


def _means_cancel(call: Call) -> bool:
    """`cancel`, or Enter alone (or a second interrupt, or end of input); any other words are asked about again."""
    _forget_typed(call)
    call.err.write("\nthe job goes on meanwhile; type cancel to put everything back, Enter alone leaves it running: ")
    try:
        while True:
            call.err.flush()
            line = call.input.readline()
            if line.strip() in ("", "cancel"):
                return line.strip() == "cancel"
            call.err.write("that is neither: cancel, or Enter alone: ")
    except KeyboardInterrupt:
        return False


def _forget_typed(call: Call) -> None:
    """What was typed before a question is no answer to it."""
    import termios

    termios.tcflush(call.input.fileno(), termios.TCIFLUSH)


def _answer(call: Call, ref: JobRef, state: JobState) -> None:
    """Ask the person at the terminal, without holding up the job: its own time-out goes on."""
    import select

    if state.asks is None:
        return
    _forget_typed(call)
    call.err.write(f"{' / '.join(state.asks.options)}? ")
    call.err.flush()
    ready, _, _ = select.select([call.input], [], [], max(1.0, state.asks.deadline - state.now - 1.0))
    word = call.input.readline().strip() if ready else ""
    if word in state.asks.options:
        try:
            jobs.answer(call.transport, ref, word, python=call.python)
        except MoetopError as error:
            call.say(error.sentence())


def _end(call: Call, ref: JobRef, state: JobState, before: proof.Window | None) -> ExitCode:
    """Say how it ended, prove it, keep the report beside the job."""
    made = None
    if state.status == JobStatus.RETUNED and before is not None:
        time.sleep(call.settle_s)
        made = proof.compare(before, _measure(call, state.server))
    markdown, as_json = report.report_markdown(state, made), report.report_json(state, made)
    try:
        jobs.keep_report(call.transport, ref, {"report.md": markdown, "report.json": as_json}, python=call.python)
    except MoetopError as error:
        call.say(f"the report was not kept on the host: {error.sentence()}")
    actions.record(call.host, f"retune {state.server}", f"{state.status}: {state.message}", ref.job)
    plain = report.job_text(state) + (report.proof_text(made) if made is not None else "")
    code = jobs.exit_code(state)
    try:
        call.write(markdown if call.format == "md" else as_json if call.as_json else plain)
    except MoetopError as error:
        if code == ExitCode.OK:
            raise
        call.say(error.sentence())  # a server that is down is graver than a report that nobody reads
    return code


def _attach(call: Call) -> ExitCode:
    """Follow the newest running job; one that was interrupted or ended down is finished or rolled back on request."""
    found = _newest(jobs.list_jobs(call.transport, python=call.python), call.server)
    if found is None:
        raise jobs.RetuneRefused(f"no job on {call.host} to attach to")
    ref = JobRef(job=found.job, host=call.host)
    state = jobs.poll(call.transport, ref, 0, python=call.python)
    if state.status not in (JobStatus.INTERRUPTED, JobStatus.DOWN) or call.readonly:
        return _follow(call, ref, None)
    call.err.write(report.job_text(state))
    how = _choose(call, state)
    if how is None:
        return jobs.exit_code(state)
    jobs.finish_or_rollback(call.transport, ref, how, python=call.python)
    return _follow(call, ref, None)


def _newest(listed: tuple[JobLine, ...], server: str | None) -> JobLine | None:
    """What runs or is left open first, else the newest."""
    mine = [one for one in listed if server is None or one.server == server]
    unfinished = [one for one in mine if one.status in (JobStatus.RUNNING, JobStatus.INTERRUPTED)]
    return next(iter(unfinished or mine), None)


def _choose(call: Call, state: JobState) -> str | None:
    """finish, rollback or nothing. `--yes` alone rolls back: that needs no judgement of how far it came."""
    options = ("rollback",) if state.status == JobStatus.DOWN or state.mode == "rollback" else ("finish", "rollback")
    if call.yes:
        return "rollback"
    if not call.input.isatty():
        return None
    call.err.write(f"{' / '.join(options)} (anything else leaves it)? ")
    call.err.flush()
    word = call.input.readline().strip()
    return word if word in options else None


def run(args: argparse.Namespace, config: Config) -> ExitCode:
    """`moetop --retune HOST` from parsed arguments: watch the host, then `run_on`. Raises MoetopError."""
    from moetop.retune.wiring import watching

    print_text("")  # a closed standard output is said before anything is touched
    with watching(args, config) as call:
        return run_on(call)
