"""What the screens need from the rest: a feed to read and actions to call. Interfaces only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from moetop.asking import Question
from moetop.errors import MoetopError
from moetop.history import GpuHistory, ServerHistory
from moetop.model import HostReport, Link, LogEvent, LogLine, Status
from moetop.trail import StateTrail


class WatchFeed(Protocol):
    """State of the watched fleet. Every method may be called from any thread and never blocks for long."""

    @property
    def generation(self) -> int:
        """Grows with every change; equal numbers mean nothing is new."""

    @property
    def window_s(self) -> float:
        """Seconds of samples that a GPU's state is judged over."""

    def names(self) -> list[str]:
        """Hosts, in the order of the configuration."""

    def report(self, host: str) -> HostReport:
        """Everything known about a host now."""

    def link_of(self, host: str) -> Link:
        """State of the connection to a host."""

    def last_t(self, host: str) -> float | None:
        """Time of the host's newest GPU sample, on the host's own clock, seconds."""

    def host_now(self, host: str) -> float | None:
        """The present time on the host's clock, seconds; its newest frame in a replay."""

    def history(self, host: str, gpu: int) -> GpuHistory | None:
        """Series of one GPU."""

    def states(self, host: str, gpu: int) -> StateTrail | None:
        """States of one GPU over time."""

    def server_history(self, host: str, server: str) -> ServerHistory | None:
        """Series of one server's own numbers."""

    def recent_events(self, host: str) -> list[LogEvent]:
        """Log events that came in while watching, oldest first."""

    def sources(self, host: str) -> list[str]:
        """Names of the logs read on a host."""

    def tail(self, host: str, source: str) -> Sequence[LogLine]:
        """The last lines of a log, oldest first."""

    def statuses(self, host: str) -> Mapping[str, Status]:
        """Newest status of each code that the probe or the connection gave."""


@dataclass(frozen=True)
class JobStep:
    """One step of a retune job as shown: `state` is waiting, running, done, failed, undone or skipped.

    `started` and `ended` are epoch seconds; `undo` says what takes it back.
    """

    title: str
    state: str = "waiting"
    detail: str = ""
    undo: str = ""
    timeout_s: float | None = None
    started: float | None = None
    ended: float | None = None


AT_WORK = ("planned", "running", "attached")
"""States of a job that works on its host."""


@dataclass(frozen=True)
class JobView:
    """A retune job as shown. `state` is planned, running, attached, unclear, interrupted, retuned, rolled_back,
    down, refused or cancelled; `next_thing` says what a person should do now. `question` waits for one of
    `options` (each with what it means)."""

    id: str
    host: str
    server: str
    state: str
    steps: tuple[JobStep, ...] = ()
    started: float | None = None
    ended: float | None = None
    log: tuple[str, ...] = ()
    report: tuple[str, ...] = ()
    next_thing: str = ""
    cancel_note: str = ""
    readonly: bool = False
    question: str = ""
    options: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class RetunePlan:
    """What a retune would do. `confirm` is the word to type before it starts; None needs only a yes."""

    host: str
    server: str
    steps: tuple[JobStep, ...]
    confirm: str | None = None
    notes: tuple[str, ...] = ()
    refusal: str | None = None


@dataclass(frozen=True)
class Playback:
    """Where a replay stands. `t` and `end` are recording seconds; `speed` 0 is halted."""

    t: float | None
    start: float | None = None
    end: float | None = None
    speed: float = 1.0
    finished: bool = False
    can_seek: bool = False


class Actions(Protocol):
    """What keys may do besides looking. Those that write, plan, start, cancel or seek are called from a
    worker thread and may block; `retune_refusal`, `hosts_refusal`, `take_notices`, `jobs`, `asking_jobs`, `playback`
    and `question` are asked while drawing and must answer at once, as must `answer_question`."""

    def write_snapshot(self) -> str:
        """Write a snapshot of the fleet now; the path it went to. Raises MoetopError."""

    def write_picture(self, svg: str) -> str:
        """Write an SVG of the screen; the path it went to. Raises MoetopError."""

    def write_text(self, name: str, text: str) -> str:
        """Write text (a copied line, a saved log) to a file named after `name`; its path."""

    def retune_refusal(self, host: str, server: str | None) -> str | None:
        """Why a retune cannot be started here now, in words; None where it can."""

    def plan_retune(self, host: str, server: str | None) -> RetunePlan:
        """The plan of a retune. Touches nothing. Raises MoetopError."""

    def start_retune(self, plan: RetunePlan) -> str:
        """Start a confirmed plan; the job's id. Raises MoetopError."""

    def cancel_job(self, job: str) -> None:
        """Ask a job to stop and put things back. Raises MoetopError."""

    def answer_job(self, job: str, option: str) -> None:
        """Answer a job's question. Raises MoetopError."""

    def question(self) -> Question | None:
        """What a host that is being connected to asks now (a passphrase, a code)."""

    def answer_question(self, question: int, text: str | None) -> None:
        """Answer it; None leaves it unanswered."""

    def hosts_refusal(self) -> str | None:
        """Why hosts cannot be added or removed here, in words; None where they can."""

    def add_host(self, text: str) -> str:
        """Watch one more host, written as --host takes it; its name on screen. Raises MoetopError."""

    def remove_host(self, name: str) -> None:
        """Stop watching a host. Raises MoetopError."""

    def reconnect(self, host: str) -> str:
        """Try a lost host now, asking again what was left unanswered; a sentence on it. Raises MoetopError."""

    def take_notices(self) -> list[str]:
        """Sentences that came up since the last call (the configuration was read anew), oldest first."""

    def jobs(self) -> Sequence[JobView]:
        """Jobs known here, newest first."""

    def asking_jobs(self) -> bool:
        """Whether the hosts are being asked for their jobs just now."""

    def playback(self) -> Playback | None:
        """Where a replay stands; None on live sources."""

    def seek(self, t: float) -> None:
        """Continue a replay at `t` recording seconds."""

    def set_speed(self, speed: float) -> None:
        """Set a replay's speed; 0 halts it."""


class NoActions:
    """Actions of a session that can do nothing; each refusal says so."""

    WHY = "this session cannot do that"

    def write_snapshot(self) -> str:
        raise self._refuse()

    def write_picture(self, svg: str) -> str:
        raise self._refuse()

    def write_text(self, name: str, text: str) -> str:
        raise self._refuse()

    def retune_refusal(self, host: str, server: str | None) -> str | None:
        return self.WHY

    def plan_retune(self, host: str, server: str | None) -> RetunePlan:
        raise self._refuse()

    def start_retune(self, plan: RetunePlan) -> str:
        raise self._refuse()

    def cancel_job(self, job: str) -> None:
        raise self._refuse()

    def answer_job(self, job: str, option: str) -> None:
        raise self._refuse()

    def question(self) -> Question | None:
        return None

    def answer_question(self, question: int, text: str | None) -> None:
        """Nobody asks."""

    def hosts_refusal(self) -> str | None:
        return self.WHY

    def add_host(self, text: str) -> str:
        raise self._refuse()

    def remove_host(self, name: str) -> None:
        raise self._refuse()

    def reconnect(self, host: str) -> str:
        raise self._refuse()

    def take_notices(self) -> list[str]:
        return []

    def jobs(self) -> Sequence[JobView]:
        return ()

    def asking_jobs(self) -> bool:
        return False

    def playback(self) -> Playback | None:
        return None

    def seek(self, t: float) -> None:
        raise self._refuse()

    def set_speed(self, speed: float) -> None:
        raise self._refuse()

    def _refuse(self) -> MoetopError:
        return MoetopError(self.WHY)
