"""Retune jobs as the screen needs them: plans, starts, follows and proves jobs in threads of its own."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from moetop.config import Config
from moetop.errors import LinkError, MoetopError
from moetop.jobviews import OPEN_WORDS, STATUS_WORDS, job_view, plan_view
from moetop.model import HostReport, LinkPhase, ServerReport
from moetop.retune import actions, proof, report
from moetop.retune import job as jobs
from moetop.retune.cli import SAMPLE_S, SETTLE_S, WINDOW_S, window_of
from moetop.retune.plan import find_server, make_plan
from moetop.retune.types import JobLine, JobRef, JobState, JobStatus, Overrides, Plan, Refusal, overrides_for
from moetop.session import Session
from moetop.transport.base import Transport
from moetop.ui.feed import JobView, RetunePlan

POLL_S = 1.0
LIST_S = 20.0
"""Past jobs of the hosts are asked for again after this long, and only while somebody looks."""

LISTED_JOBS = 12
"""Newest jobs of a host that are asked for one by one; each asks the host once (judgement: a screenful)."""

KEPT_LINES = 500

RESUMES = ("finish", "rollback")
"""Answers that let a new runner take over an interrupted job."""

READONLY = "moetop was started with --readonly"

_log = logging.getLogger(__name__)


@dataclass
class _Job:
    """One job that is followed. `mine` was started here; `cancelled` before it began on the host."""

    view: JobView
    transport: Transport
    python: str
    mine: bool = True
    ref: JobRef | None = None
    followed: bool = True
    offset: int = 0
    window_s: float = 0.0
    cancelled: threading.Event = field(default_factory=threading.Event)
    lines: list[str] = field(default_factory=list)


class JobDesk:
    """Plans and jobs of one session. `refusal` and `views` answer at once; what asks a host may block."""

    def __init__(
        self,
        session: Session,
        config: Config,
        *,
        window_s: float = WINDOW_S,
        settle_s: float = SETTLE_S,
        poll_s: float = POLL_S,
        list_s: float = LIST_S,
    ) -> None:
        self._session = session
        self._given = config
        self._window_s = window_s
        self._settle_s = settle_s
        self._poll_s = poll_s
        self._list_s = list_s
        self._lock = threading.Lock()
        self._meetings: dict[str, threading.Lock] = {}
        self._plans: dict[tuple[str, str], Plan] = {}
        self._jobs: dict[str, _Job] = {}
        self._previews: dict[tuple[str, str | None], tuple[HostReport, str | None]] = {}
        self._listed_at = float("-inf")
        self._listing = False
        self._number = 0
        self._over = threading.Event()

    @property
    def _config(self) -> Config:
        """The configuration as it is now: hosts may have been added while watching."""
        reloader = self._session.reloader
        return self._given if reloader is None else reloader.config

    def close(self) -> None:
        """Follow no job any longer; they go on on their hosts."""
        self._over.set()

    # ── answers at once ──────────────────────────────────────────────────────────────────────────

    def refusal(self, host: str, server: str | None) -> str | None:
        """Why nothing can be started on `server` of `host` now; None where a plan can be asked for."""
        if self._session.kind != "live":
            return "this is a recording, the demo or pasted text: there is no server to act on"
        if self._given.readonly:
            return READONLY
        if self._session.watch.link_of(host).phase not in (LinkPhase.WATCHING, LinkPhase.DEGRADED):
            return f"{host} is not connected"
        newest = self._session.watch.last_report(host)
        if newest is None:
            return f"nothing is known of {host} yet"
        held = self._held(host, server)
        if held is not None:
            return held
        known = self._previews.get((host, server))
        if known is None or known[0] is not newest:
            known = (newest, self._preview(newest, server))
            self._previews[host, server] = known
        return known[1]

    def _held(self, host: str, server: str | None) -> str | None:
        """That a job known here holds the server: what it is doing is then the job's doing."""
        with self._lock:
            views = [job.view for job in self._jobs.values()]
        for view in views:
            if view.host == host and server in (None, view.server) and view.state in OPEN_WORDS:
                return f"a retune job holds {view.server} ({OPEN_WORDS[view.state]}); j shows it"
        return None

    def _preview(self, newest: HostReport, server: str | None) -> str | None:
        found = find_server(newest, server)
        if isinstance(found, Refusal):
            refusal: Refusal | None = found
        else:
            refusal = next(iter(make_plan(newest, found, self._overrides(newest.name, found)).refusals), None)
        if refusal is None:
            return None
        return f"{refusal.text}; {refusal.advice}" if refusal.advice else refusal.text

    def views(self) -> Sequence[JobView]:
        """Jobs started here and those last seen on the hosts, newest first."""
        with self._lock:
            due = time.monotonic() - self._listed_at > self._list_s
            begins = self._session.kind == "live" and due and not self._listing and not self._over.is_set()
            self._listing |= begins
            views = [job.view for job in self._jobs.values()]
        if begins:
            threading.Thread(target=self._list, name="moetop-jobs", daemon=True).start()
        return sorted(views, key=lambda view: view.started or 0.0, reverse=True)

    def asking(self) -> bool:
        """Whether the hosts are being asked for their jobs just now."""
        with self._lock:
            return self._listing

    # ── asks the host ────────────────────────────────────────────────────────────────────────────

    def plan(self, host: str, server: str | None) -> RetunePlan:
        """The surveyed plan. Touches nothing. Raises MoetopError."""
        newest = self._session.watch.report(host)
        found = find_server(newest, server)
        python = self._config.host(host).python
        if isinstance(found, Refusal):
            if found.code == "no_server":
                found = jobs.open_job(self._transport(host), server, python=python) or found
            return RetunePlan(host, server or "", (), refusal="; ".join(filter(None, (found.text, found.advice))))
        plan = jobs.prepare(self._transport(host), newest, found, self._overrides(host, found), python=python)
        with self._lock:
            self._plans[host, plan.server] = plan
        return plan_view(host, plan)

    def start(self, shown: RetunePlan) -> str:
        """Start a plan that was shown and confirmed; a name for the job on screen. Raises MoetopError."""
        if self._given.readonly:
            raise jobs.RetuneRefused(READONLY)
        transport = self._transport(shown.host)
        with self._lock:
            plan = self._plans.pop((shown.host, shown.server), None)
            self._number += 1
            key = f"here-{self._number}"
        if plan is None or plan.refused:
            raise jobs.RetuneRefused("this plan is no longer valid", "make it again with r")
        job = _Job(
            JobView(key, shown.host, shown.server, "planned", shown.steps, started=time.time()),
            transport,
            self._config.host(shown.host).python,
        )
        with self._lock:
            self._jobs[key] = job
        self._spawn(job, lambda: self._run(job, plan))
        return key

    def cancel(self, key: str) -> None:
        """Ask a job's runner to put everything back. Raises MoetopError."""
        job = self._acted_on(key)
        if job.ref is None:
            job.cancelled.set()  # nothing was touched yet
        else:
            jobs.cancel(job.transport, job.ref, python=job.python)

    def answer(self, key: str, option: str) -> None:
        """Answer what a job asks, or have an interrupted one finished or rolled back. Raises MoetopError."""
        job = self._acted_on(key)
        if job.ref is None:
            raise MoetopError("that job has not begun on the host yet")
        if option in RESUMES and not job.followed:
            jobs.finish_or_rollback(job.transport, job.ref, option, python=job.python)
            self._follow_on(job)
        else:
            jobs.answer(job.transport, job.ref, option, python=job.python)

    def _acted_on(self, key: str) -> _Job:
        if self._given.readonly:
            raise jobs.RetuneRefused(READONLY)
        with self._lock:
            job = self._jobs.get(key)
        if job is None:
            raise MoetopError("that job is not known here")
        return job

    # ── threads ──────────────────────────────────────────────────────────────────────────────────

    def _spawn(self, job: _Job, work: Callable[[], None]) -> None:
        threading.Thread(target=self._guarded, args=(job, work), name=f"moetop-job-{job.view.id}", daemon=True).start()

    def _guarded(self, job: _Job, work: Callable[[], None]) -> None:
        """A fault here must be seen on the screen, not lose the job silently."""
        try:
            work()
        except Exception as error:
            _log.exception("job of %s", job.view.host)
            job.followed = False
            what = error.sentence() if isinstance(error, MoetopError) else f"{type(error).__name__}: {error}"
            words = f"following the job failed ({what}); it goes on on the host: {_attach(job)} follows it"
            self._show(job, state="unclear", log=words, next_thing=words)

    def _run(self, job: _Job, plan: Plan) -> None:
        """Measure, start, follow to the end, measure again."""
        job.window_s = window_of(plan, self._window_s)
        words = f"measuring what its GPUs do for {job.window_s:.0f} s (tokens and power the host measures itself)"
        self._show(job, log=f"{words}; nothing is touched before")
        before = self._measure(job, plan.server)
        if job.cancelled.is_set() or self._over.is_set():
            self._show(job, state="cancelled", log="cancelled before anything was touched", ended=time.time())
            return
        try:
            with self._meeting_of(job.view.host):
                ref = jobs.start(job.transport, plan, confirmed=plan.confirm, python=job.python)
                with self._lock:
                    job.ref = ref
        except LinkError as error:  # it may have begun: the list of the host's jobs will tell
            self._show(job, state="unclear", log=error.sentence(), next_thing=error.sentence())
            return
        except MoetopError as error:
            self._show(job, state="refused", log=error.sentence(), ended=time.time(), next_thing=error.sentence())
            return
        self._follow(job, before)

    def _follow_on(self, job: _Job) -> None:
        with self._lock:
            if job.followed:
                return
            job.followed = True
        self._spawn(job, lambda: self._follow(job, None))

    def _follow(self, job: _Job, before: proof.Window | None) -> None:
        while job.ref is not None and not self._over.is_set():
            try:
                state = jobs.poll(job.transport, job.ref, job.offset, python=job.python)
            except LinkError as error:
                self._show(job, next_thing=f"link lost ({error}); the job goes on on the host, trying again")
                self._over.wait(self._poll_s * 3)
                continue
            self._take(job, state)
            if state.more:
                continue
            if state.over:
                self._end(job, state, before)
                return
            self._over.wait(self._poll_s)

    def _end(self, job: _Job, state: JobState, before: proof.Window | None) -> None:
        made = None
        if state.status is JobStatus.RETUNED and before is not None:
            self._show(job, next_thing=f"measuring the new server for {self._settle_s + job.window_s:.0f} s")
            self._over.wait(self._settle_s)
            made = proof.compare(before, self._measure(job, job.view.server))
        text = report.proof_text(made) if made is not None else report.job_text(state)
        self._show(job, report=tuple(text.splitlines()), next_thing=" ".join(state.advice))
        job.followed = False
        if job.mine and job.ref is not None:
            self._keep(job, job.ref, state, made)

    def _keep(self, job: _Job, ref: JobRef, state: JobState, made: proof.Proof | None) -> None:
        """Leave the report beside the job, and the end in the list of actions."""
        files = {"report.md": report.report_markdown(state, made), "report.json": report.report_json(state, made)}
        try:
            jobs.keep_report(job.transport, ref, files, python=job.python)
        except MoetopError as error:
            self._show(job, log=f"the report was not kept on the host: {error.sentence()}")
        actions.record(job.view.host, f"retune {job.view.server}", f"{state.status}: {state.message}", ref.job)

    def _measure(self, job: _Job, server: str) -> proof.Window:
        reports = []
        begun = time.monotonic()
        while time.monotonic() - begun < job.window_s and not job.cancelled.is_set():
            reports.append(self._session.watch.report(job.view.host))
            job.cancelled.wait(min(SAMPLE_S, job.window_s))
        return proof.window(reports, server, round(time.monotonic() - begun, 1))

    def _meeting_of(self, host: str) -> threading.Lock:
        """Held while a job starts on `host` or its jobs are listed: one that starts here is met only as that."""
        with self._lock:
            return self._meetings.setdefault(host, threading.Lock())

    # ── jobs that others started ─────────────────────────────────────────────────────────────────

    def _list(self) -> None:
        """Jobs that the hosts keep, also those of others; running ones are followed, others' read-only."""
        try:
            for host in self._session.watch.names():
                if self._over.is_set():
                    return
                newest = self._session.watch.last_report(host)
                watching = self._session.watch.link_of(host).phase is LinkPhase.WATCHING
                if watching and newest is not None and newest.servers:
                    self._list_of(host)
        except Exception:  # the list is a courtesy: without it the jobs of this session are still shown
            _log.exception("list of jobs")
        finally:
            with self._lock:
                self._listed_at = time.monotonic()
                self._listing = False

    def _list_of(self, host: str) -> None:
        with self._meeting_of(host):
            try:
                transport = self._transport(host)
                python = self._config.host(host).python
                for line in jobs.list_jobs(transport, LISTED_JOBS, python=python):
                    self._meet(host, transport, python, line)
            except MoetopError as error:
                _log.debug("jobs of %s: %s", host, error)

    def _meet(self, host: str, transport: Transport, python: str, line: JobLine) -> None:
        """Take up a job that is new here, or one that somebody took on after it had ended."""
        ref = JobRef(job=line.job, host=host)
        with self._lock:
            known = next((job for job in self._jobs.values() if job.ref == ref), None)
        if known is not None and (known.followed or STATUS_WORDS[line.status] == known.view.state):
            return
        state = jobs.poll(transport, ref, known.offset if known is not None else 0, python=python)
        job = known
        if job is None:
            view = JobView(
                line.job, host, state.server, STATUS_WORDS[state.status], readonly=state.operator != actions.operator()
            )
            job = _Job(view, transport, python, mine=False, ref=ref, followed=False)
        self._take(job, state)
        while state.more:
            state = jobs.poll(transport, ref, job.offset, python=python)
            self._take(job, state)
        with self._lock:
            self._jobs.setdefault(job.view.id, job)
        if state.over:
            self._end(job, state, None)
        else:
            self._follow_on(job)

    # ── bookkeeping ──────────────────────────────────────────────────────────────────────────────

    def _take(self, job: _Job, state: JobState) -> None:
        """Show what was polled."""
        job.lines += [line.text if line.source == "moetop" else f"{line.source}: {line.text}" for line in state.lines]
        del job.lines[:-KEPT_LINES]
        job.offset = state.offset
        with self._lock:
            job.view = job_view(job.view, state, job.lines, mine=job.mine, here=time.time())

    def _show(self, job: _Job, *, log: str | None = None, **changes: object) -> None:
        if log is not None:
            job.lines.append(log)
        with self._lock:
            job.view = replace(job.view, log=tuple(job.lines), **changes)  # type: ignore[arg-type]

    def _transport(self, host: str) -> Transport:
        return self._session.fleet.transport(host)

    def _overrides(self, host: str, server: ServerReport) -> Overrides:
        return overrides_for(self._config.host(host).servers, server)


def _attach(job: _Job) -> str:
    return f"moetop --retune {job.view.host} --attach"
