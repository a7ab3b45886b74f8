"""What a retune is made of: overrides, survey, plan, job and question. Values only; nothing here acts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from moetop.model import Engine, ServerReport, Verdict, Word
from moetop.text import plain


class JobStatus(Word):
    """Where a job stands. `interrupted` means that its runner is gone in the middle of it."""

    RUNNING = "running"
    INTERRUPTED = "interrupted"
    RETUNED = "retuned"
    ROLLED_BACK = "rolled_back"
    DOWN = "down"
    REFUSED = "refused"


class StepState(Word):
    """State of one step of a job."""

    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"


class Tuner(Word):
    """How a backend is tuned: in the server's process at its start, or by a script with the GPUs free."""

    AT_START = "at_start"
    OFFLINE = "offline"


@dataclass(frozen=True)
class CommandLine:
    """A program with its arguments, never a shell line."""

    argv: tuple[str, ...]
    cwd: str | None = None
    output: str | None = None


@dataclass(frozen=True)
class Overrides:
    """What configuration says about one server instead of what would be found out.

    `health` is a URL or a path on the server's port; `timeouts` has any of drain_s, stop_s, tune_s,
    start_s, health_s, and the names in recipes.DEFAULT_TIMEOUTS.
    """

    stop: CommandLine | None = None
    start: CommandLine | None = None
    tune: CommandLine | None = None
    health: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    timeouts: Mapping[str, float] = field(default_factory=dict)


NO_OVERRIDES = Overrides()


def overrides_from(spec: Any) -> Overrides:
    """Overrides from a configured server: any object with stop, start, tune, health, env and timeouts."""

    def command(value: Any) -> CommandLine | None:
        return None if value is None else CommandLine(tuple(value.argv), value.cwd, value.output)

    given = spec.timeouts
    timeouts = {} if given is None else {key: value for key, value in vars(given).items() if value is not None}
    return Overrides(
        stop=command(spec.stop),
        start=command(spec.start),
        tune=command(spec.tune),
        health=spec.health,
        env=dict(spec.env or {}),
        timeouts=timeouts,
    )


def overrides_for(specs: Iterable[Any], server: ServerReport) -> Overrides:
    """Overrides of the first configured server that fits all it names of `server`; none if none does."""
    manager = server.manager or ""
    for spec in specs:
        match = spec.match
        fits = (
            (match.argv is None or match.argv in " ".join(server.argv))
            and (match.engine is None or match.engine == server.engine)
            and (match.port is None or match.port == server.port)
            and (match.unit is None or manager == f"systemd:{match.unit}")
            and (match.container is None or manager.partition(":")[2].startswith(match.container))
        )
        if fits:
            return overrides_from(spec)
    return NO_OVERRIDES


class PlanStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step as shown before anything happens. `lines` are commands and files, `undo` what takes it back."""

    id: str
    title: str
    lines: tuple[str, ...] = ()
    timeout_s: float | None = None
    undo: str = ""


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why a retune is not started, and what would help."""

    code: str
    text: str
    advice: str = ""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """All that would happen, or why nothing will. `spec` is what the runner gets; it is never shown.

    `requests_running` is None where the server does not tell. `confirm` is the host's name where it must be
    typed, with the reason in `confirm_why`. `beside` names other servers of the host that jobs of the same user hold.
    """

    host: str
    server: str
    engine: Engine | None = None
    version: str | None = None
    backend: str | None = None
    verdict: Verdict = Verdict.UNKNOWN
    recipe: str | None = None
    tuner: Tuner | None = None
    steps: tuple[PlanStep, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    requests_running: float | None = None
    confirm: str | None = None
    confirm_why: str = ""
    surveyed: bool = False
    spec: dict[str, Any] | None = None

    @property
    def refused(self) -> bool:
        """Whether nothing will be done."""
        return bool(self.refusals)

    @property
    def needs_confirmation(self) -> bool:
        """Whether the host's name has to be typed."""
        return self.confirm is not None

    def to_text(self) -> str:
        """The plan for people, safe to print, ending with a newline."""
        from moetop.retune.report import plan_text

        return plan_text(self)

    def to_json(self) -> str:
        """The plan for programs: one JSON object without what the runner alone may know."""
        shown = msgspec.to_builtins(self)
        shown.pop("spec")
        head = {
            "schema": "moetop.retune-plan/1",
            "refused": self.refused,
            "needs_confirmation": self.needs_confirmation,
        }
        return json.dumps({**head, **shown}, indent=2) + "\n"


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """A question of the runner; without an answer by `deadline` (epoch seconds of the host) it takes `default`."""

    question: str
    options: dict[str, str]
    default: str
    deadline: float


class JobStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a job. `started` and `ended` are epoch seconds of the host."""

    id: str
    title: str
    state: StepState = StepState.PENDING
    started: float | None = None
    ended: float | None = None
    timeout_s: float | None = None
    detail: str = ""


class OutputLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a job's output; `source` is moetop, tuner or server."""

    t: float
    source: str
    text: str


class JobRef(msgspec.Struct, frozen=True, kw_only=True):
    """Names a job on a host."""

    job: str
    host: str


class JobState(msgspec.Struct, frozen=True, kw_only=True):
    """A job as polled. `lines` are new since the asked offset; `offset` is where the next poll goes on, `more` whether
    lines are there already that did not fit in.

    `before` and `after` are what the runner measured itself: tokens_s, running, power_w, tokens_j.
    `now` is the host's clock, for running times.
    """

    job: str
    host: str
    server: str
    operator: str
    status: JobStatus
    user: str | None = None
    mode: str = "forward"
    created: float | None = None
    ended: float | None = None
    steps: tuple[JobStep, ...] = ()
    asks: Ask | None = None
    before: dict[str, float] = {}
    after: dict[str, float] = {}
    message: str = ""
    advice: tuple[str, ...] = ()
    not_back: tuple[str, ...] = ()
    installed: tuple[str, ...] = ()
    folder: str = ""
    rebooted: bool = False
    cancel_asked: bool = False
    signalled: bool = False
    lines: tuple[OutputLine, ...] = ()
    offset: int = 0
    more: bool = False
    now: float = 0.0

    @property
    def over(self) -> bool:
        """Whether nothing works on it any more."""
        return self.status != JobStatus.RUNNING


class JobLine(msgspec.Struct, frozen=True, kw_only=True):
    """A job in a list. `step` is the title of the one that runs."""

    job: str
    status: JobStatus
    server: str | None = None
    host: str | None = None
    operator: str | None = None
    created: float | None = None
    ended: float | None = None
    message: str | None = None
    step: str | None = None


def harmless(value: Any, limit: int = 4000) -> Any:
    """A decoded reply with every text made safe to show; what a host sends is hostile."""
    if isinstance(value, str):
        return plain(value, limit)
    if isinstance(value, list):
        return [harmless(one, limit) for one in value]
    if isinstance(value, dict):
        return {plain(str(key), 200): harmless(one, limit) for key, one in value.items()}
    return value
