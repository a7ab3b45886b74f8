"""Modes without a screen: snapshot (once or again and again), record. Never loads textual."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from moetop.diagnose.words import COMMAND
from moetop.errors import ExitCode
from moetop.model import Finding, HostReport, HostStatus, Severity, Snapshot
from moetop.text import plain

if TYPE_CHECKING:
    from moetop.export.output import Output
    from moetop.recording import Recorder
    from moetop.session import Session

CONNECT_GRACE_S = 30.0
"""How long a snapshot waits for a host's first sample (judgement: slow jump hosts answer in 10 s; a driver or an
nvidia-smi that hangs is only called so after 20 s, and must be called so rather than "no answer")."""

SEARCH_GRACE_S = 8.0
"""How long it waits beyond the window for servers and their logs (judgement: the answer is due in ten seconds)."""

TOLD_HOSTS = 8
"""Hosts whose trouble is told one by one on standard error."""

SENTENCE_CHARS = 600


def exit_code(snapshot: Snapshot, *, check: bool) -> ExitCode:
    """4 when a host could not be watched, 3 with `check` when a warning stands, else 0."""
    if any(host.status is HostStatus.UNREACHABLE for host in snapshot.hosts):
        return ExitCode.UNWATCHED
    grave = (Severity.CRITICAL, Severity.WARNING)
    if check and any(finding.severity in grave for host in snapshot.hosts for finding in host.findings):
        return ExitCode.FINDINGS
    return ExitCode.OK


def sample_once(session: Session) -> Snapshot:
    """Start the session's fleet, wait for a window of every host, and diagnose."""
    watch = session.watch
    names = watch.names()
    with session.running():
        if session.flat_out:
            watch.wait(lambda: all(watch.is_finished(name) for name in names), None)
        else:
            span_s = watch.window_s
            begun = time.monotonic()
            watch.wait(lambda: all(watch.is_sampled(name, span_s) for name in names), span_s + CONNECT_GRACE_S)
            left_s = max(0.0, span_s + SEARCH_GRACE_S - (time.monotonic() - begun))
            watch.wait(lambda: all(watch.is_searched(name) for name in names), left_s)
        watch.give_up_on_silent()
        return watch.snapshot(session.taken_at())


class Complaints:
    """One sentence for each host that cannot be watched, said once while the reason stays the same."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._told: dict[str, str] = {}
        self._recording_told = False

    def tell(self, snapshot: Snapshot, recorder: Recorder | None = None) -> None:
        """Say what is new in `snapshot`, and that the recording stopped; beyond TOLD_HOSTS only how many more."""
        if recorder is not None and recorder.error is not None and not self._recording_told:
            self._recording_told = True
            self._say(f"moetop: {recorder.error.sentence()}")
        broken = {host.name: _sentence(host) for host in snapshot.hosts if host.status is HostStatus.UNREACHABLE}
        new = [(name, text) for name, text in broken.items() if self._told.get(name) != text]
        self._told = broken
        for _, text in new[:TOLD_HOSTS]:
            self._say(f"moetop: {text}")
        if len(new) > TOLD_HOSTS:
            self._say(f"moetop: {len(new) - TOLD_HOSTS} more hosts cannot be watched; the snapshot says why")


def _sentence(host: HostReport) -> str:
    """Why a host cannot be watched and what to do, on one line."""
    finding = next((one for one in host.findings if one.severity is Severity.CRITICAL), None)
    reason = host.error or (finding.summary if finding is not None else "no data")
    advice = None if finding is None else first_remedy(finding)
    return plain(f"{host.name}: {reason}" + (f"; {advice}" if advice else ""), SENTENCE_CHARS)


def first_remedy(finding: Finding) -> str | None:
    """What to do about a finding in one clause: words before commands."""
    commands = [step.removeprefix(COMMAND) for step in finding.remedy if step.startswith(COMMAND)]
    words = [step for step in finding.remedy if not step.startswith(COMMAND)]
    return words[0] if words else f"try `{commands[0]}`" if commands else None


def _tell_faults(session: Session, say: Callable[[str], None]) -> None:
    """What is wrong with a recording, before what could be read of it."""
    for fault in session.faults:
        say(f"moetop: {fault}")


def run_snapshot(session: Session, output: Output, say: Callable[[str], None], *, check: bool) -> ExitCode:
    """One snapshot, written, and its exit code. Raises the recorder's error where there was one."""
    _tell_faults(session, say)
    snapshot = sample_once(session)
    output.write(snapshot, session.watch)
    Complaints(say).tell(snapshot)
    if session.recorder is not None and session.recorder.error is not None:
        raise session.recorder.error
    return exit_code(snapshot, check=check)


def run_every(session: Session, output: Output, every_s: float, say: Callable[[str], None], *, check: bool) -> ExitCode:
    """One JSON line every `every_s` seconds until interrupted; hosts stay connected in between."""
    watch = session.watch
    complaints = Complaints(say)
    worst = ExitCode.OK
    _tell_faults(session, say)

    def every(holds: Callable[[str], bool]) -> Callable[[], bool]:
        return lambda: all(holds(name) for name in watch.names())

    with session.running(lambda text: say(f"moetop: {text}")):
        sampled = every(lambda name: watch.is_sampled(name, watch.window_s))
        watch.wait(sampled, watch.window_s + CONNECT_GRACE_S)
        watch.wait(every(watch.is_searched), SEARCH_GRACE_S)
        due = time.monotonic()
        while True:
            snapshot = watch.snapshot(session.taken_at())
            output.write_line(snapshot)
            complaints.tell(snapshot, session.recorder)
            worst = max(worst, exit_code(snapshot, check=check))
            if watch.wait(every(watch.is_finished), 0):
                return worst
            due = max(due + every_s, time.monotonic())
            time.sleep(max(0.0, due - time.monotonic()))


def run_record(session: Session, duration_s: float | None, say: Callable[[str], None]) -> ExitCode:
    """Copy the stream into the recorder until interrupted or `duration_s` is over."""
    watch = session.watch
    with session.running(lambda text: say(f"moetop: {text}")):
        begun = time.monotonic()
        while duration_s is None or time.monotonic() - begun < duration_s:
            left_s = 1.0 if duration_s is None else min(1.0, duration_s - (time.monotonic() - begun))
            if watch.wait(lambda: all(watch.is_finished(name) for name in watch.names()), max(left_s, 0.01)):
                break
            if session.recorder is not None and session.recorder.error is not None:
                raise session.recorder.error
    if session.recorder is not None:
        if session.recorder.error is not None:
            raise session.recorder.error
        say(f"recorded {session.recorder.frames} frames to {session.recorder.path}")
    watch.give_up_on_silent()
    snapshot = watch.snapshot(session.taken_at())
    Complaints(say).tell(snapshot)
    return exit_code(snapshot, check=False)
