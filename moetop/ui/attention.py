"""Findings over time and the answer lines. Pure: time comes with the scene."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from moetop.model import FINDING_RANK, Calm, Finding, FindingKind, GpuReport, LinkPhase, Severity, Verdict
from moetop.ui import fmt
from moetop.ui.paint import clean
from moetop.ui.scene import HostView, Scene, calm_sign, finding_key, host_words
from moetop.ui.widgets.bars import Answer
from moetop.ui.words import FINDING_TITLES, SEVERITY_SIGNS

KEPT_GONE = 200
"""Cleared findings kept in the list."""

START_S = 15.0
"""Findings of a host's first window and a little more stood before moetop came: the answer line says them, no toast."""


MOST_TOASTS = 2
"""More at once would hide what they speak of."""


@dataclass(frozen=True)
class Noted:
    """A finding with when it came and went (epoch seconds; `gone` None: it stands)."""

    host: str
    finding: Finding
    came: float
    gone: float | None = None
    at_start: bool = False

    @property
    def mark(self) -> tuple[str, FindingKind, str | None, float]:
        """What tells it from all others, also once it cleared and came again."""
        return (*finding_key(self.host, self.finding), self.came)


class FindingsLog:
    """What came and went. Findings of a host's start make no noise, unless they are critical and new."""

    def __init__(self) -> None:
        self._standing: dict[tuple[str, FindingKind, str | None], Noted] = {}
        self._gone: list[Noted] = []
        self._first_seen: dict[str, float] = {}

    def update(self, scene: Scene) -> tuple[list[Noted], list[Noted]]:
        """Take over a scene; what appeared and what cleared since the one before."""
        came: list[Noted] = []
        gone: list[Noted] = []
        present: set[tuple[str, FindingKind, str | None]] = set()
        for host in scene.hosts:
            seen = self._first_seen.get(host.name)
            starting = seen is None or scene.t - seen < START_S
            for finding in host.report.findings:
                key = finding_key(host.name, finding)
                present.add(key)
                noted = self._standing.get(key)
                if noted is None:
                    noted = self._standing[key] = Noted(host.name, finding, scene.t, at_start=starting)
                    if not starting or (seen is not None and finding.severity is Severity.CRITICAL):
                        came.append(noted)
                else:
                    self._standing[key] = replace(noted, finding=finding)
            if host.report.gpus or host.lost or host.report.findings:
                self._first_seen.setdefault(host.name, scene.t)
        for key in [key for key in self._standing if key not in present]:
            noted = replace(self._standing.pop(key), gone=scene.t)
            self._gone.append(noted)
            if scene.t - self._first_seen.get(noted.host, scene.t) >= START_S:
                gone.append(noted)
        del self._gone[:-KEPT_GONE]
        return came, gone

    def listed(self) -> list[Noted]:
        """Standing findings, gravest first and of these the newest, then those that cleared, newest first."""
        order = list(Severity)
        standing = sorted(self._standing.values(), key=lambda noted: (order.index(noted.finding.severity), -noted.came))
        return [*standing, *sorted(self._gone, key=lambda noted: -(noted.gone or 0.0))]


RetuneWhy = Callable[[HostView, "str | None"], "str | None"]
"""Why a server of a host cannot be retuned now; None where it can."""


def answers(
    scene: Scene, limit: int, why: RetuneWhy, chosen: str | None = None, kind: str = "recording"
) -> list[Answer]:
    """What a person must know now, gravest first, at least one line and at most `limit`.

    Only the first names the key of its why, and retune stands only beside the host that the cursor is
    on (`chosen`; None: the first answer's), since that is what the key would act on. `kind` is the session's.
    """
    if scene.reading:
        return [_calm_answer(scene)]
    worst = scene.worst_per_host()
    chosen = worst[0][0].name if chosen is None and worst else chosen
    found = [
        _finding_answer(host, finding, why, first=at == 0, acts=host.name == chosen)
        for at, (host, finding) in enumerate(worst)
    ]
    named = {answer.host for answer in found}
    for host in scene.hosts:
        if host.lost and host.name not in named:
            found.append(Answer("✕", "critical", host.name, host_words(host, scene.t) or "lost"))
    if found:
        shown = found[:limit]
        if len(found) > limit:
            more = len(found) - limit
            last = shown[-1]
            shown[-1] = replace(last, keys=(*last.keys, ("f", f"+{more} more", True)))
        return shown
    return [_calm_answer(scene, kind)]


def _finding_answer(host: HostView, finding: Finding, why: RetuneWhy, *, first: bool, acts: bool) -> Answer:
    sign = SEVERITY_SIGNS[finding.severity]
    keys = [("w", "why", True)] if first else []
    if acts and retune_may_help(host, finding):
        keys.append(("r", "retune", why(host, finding.server) is None))
    text = finding.summary.removeprefix(f"{host.name} ").removeprefix(f"{host.name}: ")
    return Answer(sign.glyph, sign.role, host.name, text, finding.confidence.value, tuple(keys))


RETUNE_HELPS = frozenset(
    {
        FindingKind.UNTUNED_KERNELS,
        FindingKind.PARTLY_TUNED,
        FindingKind.TUNING_OFF,
        FindingKind.TUNING_FAILED,
        FindingKind.TENSOR_STARVED,
        FindingKind.STARVATION_SIGNATURE,
    }
)
"""Findings beside which the retune key is named, unless the tuning is in place already."""


def retune_may_help(host: HostView, finding: Finding) -> bool:
    """Whether the retune key belongs beside a finding."""
    if finding.kind not in RETUNE_HELPS:
        return False
    concerned = [one for one in host.report.servers if finding.server in (None, one.name) and not one.gone]
    return not concerned or any(one.tuning.verdict is not Verdict.TUNED for one in concerned)


def _calm_answer(scene: Scene, kind: str = "recording") -> Answer:
    if scene.reading:
        return Answer("◔", "notice", "", "reading what came before")
    if scene.generation < 0:
        return Answer("◌", "notice", "", "starting")
    if not scene.hosts:
        return Answer("·", "notice", "", "no hosts: start with --host NAME, or --demo to look around")
    waiting = [host for host in scene.hosts if not host.report.gpus and host.link.phase is not LinkPhase.FINISHED]
    if len(waiting) == len(scene.hosts):
        names = ", ".join(clean(host.name, 40) for host in waiting[:3])
        more = f" and {len(waiting) - 3} more" if len(waiting) > 3 else ""
        since = min((host.link.since_t for host in waiting if host.link.since_t is not None), default=None)
        ago = f" for {fmt.span(scene.t - since)}" if since is not None else ""
        phase = waiting[0].link.phase
        doing = "connecting to" if phase is LinkPhase.CONNECTING else "waiting for the first sample of"
        return Answer("◌", "notice", "", f"{doing} {names}{more}{ago}")
    busy = [host for host in scene.hosts if host.report.headline in (Calm.TUNING.value, Calm.LOADING.value)]
    if busy:
        sign = calm_sign(busy[0].report.headline)
        more = f" (and {len(busy) - 1} more)" if len(busy) > 1 else ""
        return Answer(sign.glyph, "notice", busy[0].name, f"{sign.meaning}{more}", "", (("l", "log", True),))
    if all(host.link.phase is LinkPhase.FINISHED for host in scene.hosts):
        open_words = _open_words(scene)
        last = f"no finding; {open_words}" if open_words else "nothing stands out in its last window"
        return Answer("■", "quiet", "", f"{ENDED_WORDS.get(kind, ENDED_WORDS['recording'])}; {last}")
    return _quiet_answer(scene)


ENDED_WORDS: dict[str, str] = {
    "recording": "the recording is at its end",
    "demo": "the demo is at its end",
    "pasted": "the whole text is read",
    "live": "the hosts have ended",
}
"""What is over, by the kind of a session."""

TOO_LITTLE = "too little has been seen to judge"


def _quiet_answer(scene: Scene) -> Answer:
    """No finding stands: good news only where every GPU of every host has a state from a whole window."""
    open_words = _open_words(scene)
    if open_words:
        return Answer("·", "notice", "", f"no finding so far; {open_words}")
    kinds: dict[str, int] = {}
    for host in scene.hosts:
        word = calm_sign(host.report.headline).word
        kinds[word] = kinds.get(word, 0) + 1
    parts = list(kinds) if len(scene.hosts) == 1 else [f"{count} {word}" for word, count in kinds.items()]
    return Answer("●", "good", "", f"nothing needs you: {', '.join(parts)}")


def _open_words(scene: Scene) -> str:
    """What is not judged yet, and why; empty where everything is."""
    unjudged = [host for host in scene.hosts if not host.judged]
    if not unjudged:
        return ""
    gpus = [gpu for host in unjudged for gpu in host.unjudged]
    reason = next(filter(None, map(_why_unknown, gpus)), "")
    if any(not host.window_full or not host.report.gpus for host in unjudged) or not reason:
        names = ", ".join(clean(host.name, 40) for host in unjudged[:3])
        more = f" and {len(unjudged) - 3} more" if len(unjudged) > 3 else ""
        return TOO_LITTLE if len(unjudged) == len(scene.hosts) else f"{TOO_LITTLE} {names}{more}"
    return f"{len(gpus)} of {scene.gpu_count()} GPUs not judged: {reason}"


def _why_unknown(gpu: GpuReport) -> str:
    """Why a GPU's state is not known, as its evidence says."""
    said = [sentence.partition(": ")[2] for sentence in gpu.evidence if sentence.startswith(NOT_KNOWN)]
    return clean(said[0], 200) if said else ""


NOT_KNOWN = "Not known: "
"""The label that diagnosis puts before what it could not find out."""


def is_loud(noted: Noted, at_work: Collection[str]) -> bool:
    """Whether a change makes a noise: a retune job that stops, tunes and starts a server (its host is in `at_work`)
    brings findings of its own, which are only listed."""
    return noted.host not in at_work or noted.finding.severity is Severity.CRITICAL


def toasts(came: Sequence[Noted], gone: Sequence[Noted]) -> list[tuple[str, str, str]]:
    """Titles, sentences and severities of what appeared and cleared at once: many become one."""
    noted = [*sorted(came, key=lambda one: FINDING_RANK.get(one.finding.kind, 99)), *gone]
    if len(noted) <= MOST_TOASTS:
        return [toast(one) for one in noted]
    first = toast(noted[0])
    appeared = f"{len(came)} finding{'' if len(came) == 1 else 's'} appeared" if came else ""
    counts = [appeared, f"{len(gone)} cleared" if gone else ""]
    return [(", ".join(filter(None, counts)), f"{first[0]} and others; f lists them", first[2])]


def toast(noted: Noted) -> tuple[str, str, str]:
    """Title, sentence and Textual severity of a finding that appeared or cleared."""
    finding = noted.finding
    title = f"{clean(noted.host, 60)}: {FINDING_TITLES.get(finding.kind, finding.kind.value)}"
    if noted.gone is not None:
        if noted.at_start:
            return title, "cleared; it stood already when moetop came", "information"
        return title, f"cleared after {fmt.span(noted.gone - noted.came)}", "information"
    severity = {"critical": "error", "warning": "warning"}.get(finding.severity.value, "information")
    return title, clean(finding.summary, 400), severity
