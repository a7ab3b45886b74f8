"""The recorded retune as a job that can be started and cancelled: it chooses what the demo's host plays.

Executes nothing and touches no host.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from moetop.demo.recorded import (
    AFTER_S,
    BEFORE_S,
    Frame,
    looped,
    opening,
    part,
    recorded_job,
    reopening,
    restamped,
    shifted,
)
from moetop.retune.proof import Proof
from moetop.retune.types import JobState, JobStatus, JobStep, OutputLine, Plan, PlanStep, StepState

MARK = "recorded on an H200; nothing is executed"

PROOF_S = 25.0
"""The person's side watches the new server this long after the job's end before it compares (15 s and 10 s)."""

CANCELLED = (
    "cancelled: the recording is back at its part before. On a host the runner would now have put moved files back, "
    "started the old command and checked its health"
)


@dataclass
class _Run:
    """One playing of the job. `began` and `cancelled` are monotonic seconds; `zero_t` is the host's time at `began`."""

    began: float | None = None
    zero_t: float = 0.0
    cancelled: float | None = None


class RecordedRetune:
    """The loop of one demo host. Any thread may start, cancel and ask; the transport's thread takes the frames."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._run: _Run | None = None

    # ── what the host plays ──────────────────────────────────────────────────────────────────────

    def frames(self, now_t: float, past_s: float) -> Iterator[Frame]:
        """Frames from `past_s` before `now_t` on, without end: before, then the retune once it is started."""
        last_t = now_t - past_s
        for frame in opening(last_t):
            last_t = frame["t"]
            yield frame
        while True:
            last_t = yield from looped(BEFORE_S, last_t, self._is_asked)
            for frame in self._played(last_t):
                last_t = frame["t"]
                yield frame

    def _is_asked(self) -> bool:
        with self._lock:
            return self._run is not None and self._run.cancelled is None

    def _is_cancelled(self) -> bool:
        return not self._is_asked()

    def _played(self, last_t: float) -> Iterator[Frame]:
        """The recorded job and what came after it; ends only where it is cancelled."""
        with self._lock:
            run = self._run
            if run is None or run.cancelled is not None:
                return
            run.began, run.zero_t = time.monotonic(), last_t
        stopped_s = next(step["started"] for step in recorded_job()["steps"] if step["id"] == "stop")
        for frame in part(0.0, AFTER_S[1]):
            if self._is_cancelled():
                if last_t - run.zero_t >= stopped_s:
                    yield from reopening(last_t)
                return
            moved = shifted(frame, run.zero_t)
            last_t = moved["t"]
            yield moved
        yield from looped(AFTER_S, run.zero_t + AFTER_S[1], lambda: False)

    # ── what a person does ───────────────────────────────────────────────────────────────────────

    def plan(self, host: str) -> Plan:
        """The recorded plan."""
        known = recorded_job()["plan"]
        steps = [msgspec.convert(step, PlanStep) for step in known["steps"]]
        steps[0] = msgspec.structs.replace(steps[0], lines=(MARK, *steps[0].lines))
        return Plan(
            host=host,
            server=self.server,
            steps=tuple(steps),
            notes=(MARK, *known["notes"]),
            never=tuple(known["never"]),
            requests_running=known["requests_running"],
            confirm=host,
            confirm_why=known["confirm_why"],
            surveyed=True,
        )

    @property
    def server(self) -> str:
        """Name of the recorded server."""
        return str(next(frame["name"] for frame in part(*BEFORE_S) if frame["type"] == "server"))

    @property
    def status(self) -> JobStatus | None:
        """Where the newest job stands; None where none was started."""
        with self._lock:
            run = self._run
        if run is None:
            return None
        if run.cancelled is not None:
            return JobStatus.ROLLED_BACK
        return JobStatus.RETUNED if self._elapsed_s(run) >= recorded_job()["ended"] else JobStatus.RUNNING

    def start(self) -> None:
        """Play the job from the host's next frame on."""
        with self._lock:
            self._run = _Run()

    def cancel(self) -> bool:
        """Go back to the part before; whether there was a running job to cancel."""
        if self.status is not JobStatus.RUNNING:
            return False
        with self._lock:
            if self._run is not None:
                self._run.cancelled = time.monotonic()
        return True

    def state(self, host: str) -> JobState | None:
        """The newest job as a poll would give it, with all its lines so far; None where none was started."""
        with self._lock:
            run = self._run
        status = self.status
        if run is None or status is None:
            return None
        known = recorded_job()
        at_s = self._elapsed_s(run)
        now = time.time()
        zero = now - (time.monotonic() - run.began) if run.began is not None else now
        ended_s = None if status is JobStatus.RUNNING else min(at_s, known["ended"])
        return JobState(
            job=known["job"],
            host=host,
            server=self.server,
            operator="demo",
            status=status,
            created=zero,
            ended=None if ended_s is None else zero + ended_s,
            steps=tuple(_step(step, at_s, zero, run) for step in known["steps"]),
            message=known["message"] if status is JobStatus.RETUNED else "",
            advice=(CANCELLED,) if status is JobStatus.ROLLED_BACK else (),
            lines=_lines(at_s, zero, run),
            now=now,
        )

    def proof(self) -> Proof | None:
        """The recorded before and after, once its time has come."""
        with self._lock:
            run = self._run
        if run is None or run.cancelled is not None or self._elapsed_s(run) < recorded_job()["ended"] + PROOF_S:
            return None
        return msgspec.convert(recorded_job()["proof"], Proof)

    @staticmethod
    def _elapsed_s(run: _Run) -> float:
        """Seconds of the recorded job that were played; below 0 before the first."""
        if run.began is None:
            return -1.0
        return (run.cancelled if run.cancelled is not None else time.monotonic()) - run.began


def _step(known: Frame, at_s: float, zero: float, run: _Run) -> JobStep:
    """A recorded step as it stands `at_s` seconds into the job; `zero` is the job's beginning, epoch seconds."""
    step = JobStep(id=known["id"], title=known["title"], timeout_s=known["timeout_s"])
    if at_s < known["started"]:
        return step
    if at_s >= known["ended"]:
        return msgspec.structs.replace(
            step,
            state=StepState.DONE,
            started=zero + known["started"],
            ended=zero + known["ended"],
            detail=restamped(known["detail"], run.zero_t),
        )
    cancelled = run.cancelled is not None
    return msgspec.structs.replace(
        step,
        state=StepState.CANCELLED if cancelled else StepState.RUNNING,
        started=zero + known["started"],
        ended=zero + at_s if cancelled else None,
        detail="cancelled" if cancelled else "",
    )


def _lines(at_s: float, zero: float, run: _Run) -> tuple[OutputLine, ...]:
    """What the job had written `at_s` seconds after its beginning."""
    lines = [OutputLine(t=zero, source="moetop", text=MARK)]
    for line in recorded_job()["lines"]:
        if line["t"] <= at_s:
            text = restamped(line["text"], run.zero_t)
            lines.append(OutputLine(t=zero + line["t"], source=line["source"], text=text))
    if run.cancelled is not None:
        lines.append(OutputLine(t=zero + at_s, source="moetop", text=CANCELLED))
    return tuple(lines)
