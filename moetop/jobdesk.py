"""Retune jobs as the screen needs them: plans, starts, follows and proves jobs in threads of its own."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from moetop.config import Config
from moetop.errors import LinkError, MoetopError
from moetop.model import HostReport, LinkPhase, ServerReport
from moetop.retune import actions, proof, report
from moetop.retune import job as jobs
from moetop.retune.cli import SAMPLE_S, SETTLE_S, WINDOW_S
from moetop.retune.plan import find_server, make_plan
from moetop.retune.types import JobRef, JobState, JobStatus, Overrides, Plan, Refusal, StepState, overrides_for
from moetop.session import Session
from moetop.transport.base import Transport
from moetop.ui.feed import JobStep, JobView, RetunePlan

POLL_S = 1.0
LIST_S = 20.0
"""Past jobs of the hosts are asked for again after this long, and only while somebody looks."""

KEPT_LINES = 500

STEP_WORDS: dict[StepState, str] = {
    StepState.PENDING: "waiting",
    StepState.RUNNING: "running",
    StepState.DONE: "done",
    StepState.FAILED: "failed",
    StepState.CANCELLED: "undone",
    StepState.SKIPPED: "skipped",
}
"""Steps of a job in the screen's words."""

CANCEL_NOTE = "stops the running step, puts moved files back, starts the old command and checks its health"

_log = logging.getLogger(__name__)


@dataclass
class _Job:
    """One job that is followed."""

    view: JobView
    transport: Transport
    mine: bool = True
    ref: JobRef | None = None
    lines: list[str] = field(default_factory=list)


class JobDesk:
    """Plans and jobs of one session. Methods that ask a host may block; the others answer at once."""

    def __init__(self, session: Session, config: Config) -> None:
        self._session = session
        self._config = config
        self._lock = threading.Lock()
        self._plans: dict[tuple[str, str], Plan] = {}
        self._jobs: dict[str, _Job] = {}
        self._previews: dict[tuple[str, str | None], tuple[HostReport, str | None]] = {}
        self._listed_at = float("-inf")
        self._number = 0

    # ── answers at once ──────────────────────────────────────────────────────────────────────────

    def refusal(self, host: str, server: str | None) -> str | None:
        """Why nothing can be started on `server` of `host` now; None where a plan can be asked for."""
        if not self._session.dated:
            return "this is a recording, the demo or pasted text: there is no server to act on"
        if self._config.readonly:
            return "moetop was started with --readonly"
        if self._session.watch.link_of(host).phase not in (LinkPhase.WATCHING, LinkPhase.DEGRADED):
            return f"{host} is not connected"
        newest = self._session.watch.report(host)
        known = self._previews.get((host, server))
        if known is None or known[0] is not newest:
            known = (newest, self._preview(newest, server))
            self._previews[host, server] = known
        return known[1]

    def _preview(self, newest: HostReport, server: str | None) -> str | None:
        found = find_server(newest, server)
        refusal = found if isinstance(found, Refusal) else None
        if refusal is None and not isinstance(found, Refusal):
            refusal = next(iter(make_plan(newest, found, self._overrides(newest.name, found)).refusals), None)
        if refusal is None:
            return None
        return f"{refusal.text}; {refusal.advice}" if refusal.advice else refusal.text

    def views(self) -> Sequence[JobView]:
        """Jobs started here and those last seen on the hosts, newest first."""
        if self._session.dated and time.monotonic() - self._listed_at > LIST_S:
            self._listed_at = time.monotonic()
            threading.Thread(target=self._list, name="moetop-jobs", daemon=True).start()
        with self._lock:
            views = [job.view for job in self._jobs.values()]
        return sorted(views, key=lambda view: view.started or 0.0, reverse=True)

    # ── asks the host ────────────────────────────────────────────────────────────────────────────

    def plan(self, host: str, server: str | None) -> RetunePlan:
        """The surveyed plan. Touches nothing. Raises MoetopError."""
        newest = self._session.watch.report(host)
        found = find_server(newest, server)
        if isinstance(found, Refusal):
            return RetunePlan(host, server or "", (), refusal=f"{found.text} {found.advice}".strip())
        python = self._config.host(host).python
        plan = jobs.prepare(self._transport(host), newest, found, self._overrides(host, found), python=python)
        refusal = None
        if plan.refused:
            refusal = "; ".join(f"{one.text}. {one.advice}".strip() for one in plan.refusals)
        with self._lock:
            self._plans[host, plan.server] = plan
        steps = tuple(
            JobStep(step.title, detail="  ".join(step.lines), undo=step.undo, timeout_s=step.timeout_s)
            for step in plan.steps
        )
        notes = (*plan.warnings, *plan.notes, *(f"never: {what}" for what in plan.never), plan.confirm_why)
        return RetunePlan(host, plan.server, steps, plan.confirm, tuple(note for note in notes if note), refusal)

    def start(self, shown: RetunePlan) -> str:
        """Start a plan that was shown and confirmed; a name for the job on screen. Raises MoetopError."""
        with self._lock:
            plan = self._plans.pop((shown.host, shown.server), None)
            self._number += 1
            key = f"here-{self._number}"
        if plan is None or plan.refused:
            raise MoetopError("this plan is no longer valid", "make it again with r")
        job = _Job(
            JobView(key, shown.host, shown.server, "planned", shown.steps, started=time.time()),
            self._transport(shown.host),
        )
        with self._lock:
            self._jobs[key] = job
        threading.Thread(target=self._run, args=(job, plan), name=f"moetop-job-{key}", daemon=True).start()
        return key

    def cancel(self, key: str) -> None:
        """Ask a job's runner to put everything back. Raises MoetopError."""
        with self._lock:
            job = self._jobs.get(key)
        if job is None or job.ref is None:
            raise MoetopError("that job has not begun on the host yet")
        jobs.cancel(job.transport, job.ref)

    # ── threads ──────────────────────────────────────────────────────────────────────────────────

    def _run(self, job: _Job, plan: Plan) -> None:
        """Measure, start, follow to the end, measure again."""
        try:
            self._show(job, log=f"measuring for {WINDOW_S:.0f} s before anything is touched")
            before = self._measure(plan.host, plan.server)
            python = self._config.host(plan.host).python
            job.ref = jobs.start(job.transport, plan, confirmed=plan.confirm, python=python)
            self._follow(job, before)
        except MoetopError as error:
            self._show(job, state="refused", log=error.sentence(), ended=time.time(), next_thing=error.sentence())
        except Exception as error:  # a fault here must be seen on the screen, not lose the job silently
            _log.exception("job of %s", plan.host)
            words = f"following the job failed ({type(error).__name__}); it goes on on the host: --retune --attach"
            self._show(job, log=words, next_thing=words)

    def _follow(self, job: _Job, before: proof.Window | None) -> None:
        offset = 0
        while job.ref is not None:
            try:
                state = jobs.poll(job.transport, job.ref, offset)
            except LinkError as error:
                self._show(job, next_thing=f"link lost ({error}); the job goes on on the host, trying again")
                time.sleep(POLL_S * 3)
                continue
            offset = state.offset
            self._take(job, state)
            if state.over:
                self._end(job, state, before)
                return
            time.sleep(POLL_S)

    def _end(self, job: _Job, state: JobState, before: proof.Window | None) -> None:
        made = None
        if state.status is JobStatus.RETUNED and before is not None:
            self._show(job, next_thing=f"measuring the new server for {SETTLE_S + WINDOW_S:.0f} s")
            time.sleep(SETTLE_S)
            made = proof.compare(before, self._measure(job.view.host, job.view.server))
        text = report.proof_text(made) if made is not None else report.job_text(state)
        self._show(job, report=tuple(text.splitlines()), next_thing=" ".join(report.next_things(state)))
        if job.mine and job.ref is not None:
            files = {"report.md": report.report_markdown(state, made), "report.json": report.report_json(state, made)}
            try:
                jobs.keep_report(job.transport, job.ref, files)
            except MoetopError as error:
                self._show(job, log=f"the report was not kept on the host: {error.sentence()}")
            actions.record(job.view.host, f"retune {job.view.server}", f"{state.status}: {state.message}", job.ref.job)

    def _measure(self, host: str, server: str) -> proof.Window:
        reports = []
        begun = time.monotonic()
        while time.monotonic() - begun < WINDOW_S:
            reports.append(self._session.watch.report(host))
            time.sleep(SAMPLE_S)
        return proof.window(reports, server, round(time.monotonic() - begun, 1))

    def _list(self) -> None:
        """Jobs that the hosts keep, also those of others; running ones are followed read-only."""
        for host in self._session.watch.names():
            if self._session.watch.link_of(host).phase is not LinkPhase.WATCHING:
                continue
            if not self._session.watch.report(host).servers:
                continue
            try:
                transport = self._transport(host)
                listed = jobs.list_jobs(transport)
            except MoetopError as error:
                _log.debug("jobs of %s: %s", host, error)
                continue
            for line in listed:
                self._adopt(host, transport, line.job)

    def _adopt(self, host: str, transport: Transport, name: str) -> None:
        ref = JobRef(job=name, host=host)
        with self._lock:
            if any(job.ref == ref for job in self._jobs.values()):
                return
        try:
            state = jobs.poll(transport, ref)
        except MoetopError as error:
            _log.debug("job %s of %s: %s", name, host, error)
            return
        mine = state.operator == actions.operator()
        view = JobView(name, host, state.server, "attached", started=state.created, readonly=not mine)
        job = _Job(view, transport, mine=False, ref=ref)
        with self._lock:
            self._jobs[name] = job
        self._take(job, state)
        if state.over:
            self._end(job, state, None)
        else:
            threading.Thread(target=self._follow, args=(job, None), name=f"moetop-job-{name}", daemon=True).start()

    # ── bookkeeping ──────────────────────────────────────────────────────────────────────────────

    def _take(self, job: _Job, state: JobState) -> None:
        """Show what was polled."""
        job.lines += [line.text if line.source == "moetop" else f"{line.source}: {line.text}" for line in state.lines]
        del job.lines[:-KEPT_LINES]
        steps = tuple(
            JobStep(
                step.title,
                STEP_WORDS[step.state],
                step.detail,
                timeout_s=step.timeout_s,
                started=step.started,
                ended=step.ended,
            )
            for step in state.steps
        )
        word = "attached" if state.status is JobStatus.RUNNING and not job.mine else state.status.value
        question = f"{state.asks.question}: moetop --retune {job.view.host} --attach answers" if state.asks else ""
        self._show(
            job,
            state=word,
            steps=steps,
            ended=state.ended,
            next_thing=question or " ".join(report.next_things(state)),
            cancel_note=CANCEL_NOTE,
        )

    def _show(self, job: _Job, *, log: str | None = None, **changes: object) -> None:
        if log is not None:
            job.lines.append(log)
        with self._lock:
            job.view = replace(job.view, log=tuple(job.lines), **changes)  # type: ignore[arg-type]

    def _transport(self, host: str) -> Transport:
        return self._session.fleet.transport(host)

    def _overrides(self, host: str, server: ServerReport) -> Overrides:
        return overrides_for(self._config.host(host).servers, server)
