"""The demo's job desk: `r` plays the recorded retune, elsewhere it gives a real plan's refusal. Executes nothing."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

from moetop.config import Config
from moetop.demo import RECORDED
from moetop.demo.retune import MARK, PROOF_S, RecordedRetune
from moetop.errors import MoetopError
from moetop.jobdesk import READONLY, JobDesk
from moetop.jobviews import OPEN_WORDS, job_view, plan_view
from moetop.model import LinkPhase
from moetop.retune import report
from moetop.retune.job import RetuneRefused
from moetop.retune.types import JobStatus
from moetop.session import Session
from moetop.ui.feed import JobView, RetunePlan

SCRIPTED_WORDS = "this host is scripted: there is no server to act on"
PLAYED_WORDS = "the recorded retune has been played: this server is tuned now; moetop --demo begins anew"
CANCEL_NOTE = "goes back to the recording's part before; nothing is executed"


class DemoDesk(JobDesk):
    """Plans and jobs of the demo: one recorded job, which can be played, cancelled and played again."""

    def __init__(self, session: Session, config: Config, played: RecordedRetune) -> None:
        super().__init__(session, config)
        self._played = played
        self._views_lock = threading.Lock()
        self._ended: list[JobView] = []
        self._current: JobView | None = None

    def refusal(self, host: str, server: str | None) -> str | None:
        if self._given.readonly:
            return READONLY
        if self._session.watch.link_of(host).phase not in (LinkPhase.WATCHING, LinkPhase.DEGRADED):
            return f"{host} is not connected"
        newest = self._session.watch.last_report(host)
        if newest is None:
            return f"nothing is known of {host} yet"
        if host != RECORDED:
            return self._preview(newest, server) or SCRIPTED_WORDS
        status = self._played.status
        if status is JobStatus.RUNNING:
            return f"a retune job holds {self._played.server} ({OPEN_WORDS['running']}); j shows it"
        return PLAYED_WORDS if status is JobStatus.RETUNED else None

    def plan(self, host: str, server: str | None) -> RetunePlan:
        why = self.refusal(host, server)
        if why is not None:
            return RetunePlan(host, server or "", (), refusal=why)
        return plan_view(host, self._played.plan(host))

    def start(self, shown: RetunePlan) -> str:
        why = self.refusal(shown.host, shown.server)
        if why is not None:
            raise RetuneRefused(why)
        with self._views_lock:
            if self._current is not None:
                self._ended.append(self._brought_up(self._current))
            key = f"demo-{len(self._ended) + 1}"
            self._current = JobView(key, shown.host, shown.server, "planned", shown.steps)
            self._played.start()
        return key

    def cancel(self, key: str) -> None:
        if self._given.readonly:
            raise RetuneRefused(READONLY)
        with self._views_lock:
            known = self._current is not None and self._current.id == key
        if not known or not self._played.cancel():
            raise MoetopError("that job is over")

    def answer(self, key: str, option: str) -> None:
        raise MoetopError("that job asks nothing")

    def views(self) -> Sequence[JobView]:
        with self._views_lock:
            if self._current is None:
                return ()
            return (self._brought_up(self._current), *reversed(self._ended))

    def _brought_up(self, view: JobView) -> JobView:
        """The job as it stands now, with its report once that was made."""
        state = self._played.state(view.host)
        if state is None:
            return view
        log = [line.text if line.source == "moetop" else f"{line.source}: {line.text}" for line in state.lines]
        shown = replace(job_view(view, state, log, mine=True, here=state.now), cancel_note=CANCEL_NOTE)
        if state.status is not JobStatus.RETUNED:
            return shown
        proof = self._played.proof()
        if proof is None:
            return replace(shown, next_thing=f"measuring the new server for {PROOF_S:.0f} s ({MARK})")
        return replace(shown, report=(*report.proof_text(proof).splitlines(), MARK), next_thing=state.message)
