"""How a server's newest run ended, as a finding. It judges no tuning and no GPU state."""

from __future__ import annotations

from collections.abc import Iterator

from moetop.diagnose import words
from moetop.diagnose.crash_remedies import crash_remedy
from moetop.diagnose.faults import crash_xids
from moetop.diagnose.view import HostView
from moetop.engines.reader import read_line
from moetop.model import (
    Confidence,
    EventKind,
    EventSeverity,
    Finding,
    FindingKind,
    LogEvent,
    Phase,
    ServerReport,
    Severity,
)

ROOT_KINDS = frozenset((EventKind.CRASH, EventKind.OOM, EventKind.NCCL_TIMEOUT))
"""Kinds that name a cause; the others (dead engine, failed start, shutdown, exit) are its echo."""

ECHO_KINDS = frozenset(
    (EventKind.ENGINE_START_FAILED, EventKind.ENGINE_DEAD, EventKind.SHUTDOWN, EventKind.EXIT, EventKind.TRACEBACK)
)


WHO_KILLED = (
    "look for a kill by the kernel or the manager",
    words.COMMAND + "dmesg -T | grep -iE 'out of memory|killed process' | tail",
)

KILLED_STATUSES = frozenset(("9", "-9", "137"))


def _is_kill(left: LogEvent) -> bool:
    """Whether a shell, a container or a manager says that the process ended by SIGKILL."""
    said = {str(left.fields.get(name)) for name in ("status", "signal")}
    return str(left.fields.get("how")).lower() == "killed" or bool(said & KILLED_STATUSES)


def find_crash(view: HostView, server: ServerReport) -> Iterator[Finding]:
    """`crashed`: the newest run ended in a crash or its start failed; the cause is the first error.
    A process that is gone without a word while a retune job works on its server was stopped by the job."""
    if server.phase is Phase.CRASHED:
        yield _crash(view, server)
    elif server.phase is Phase.EXITED and not view.is_retuned(server):
        yield _exited(view, server)


def _cause(view: HostView, server: ServerReport) -> LogEvent | None:
    told = view.digest(server).cause
    if told is not None:
        return told
    fatal = [e for e in view.run(server) if e.kind in ROOT_KINDS and e.severity is EventSeverity.FATAL]
    return fatal[0] if fatal else next(view.events(server, EventKind.ENGINE_START_FAILED), None)


def _without_head(line: str) -> str:
    """A line without rank, level, time and source file, which the finding tells by itself."""
    records = read_line(line)
    return records[0].text if len(records) == 1 and records[0].headed and records[0].text.strip() else line


def _words_of(event: LogEvent) -> str:
    error = event.fields.get("error")
    text = error if isinstance(error, str) and error else _without_head(event.line)
    rank = f"{event.ranks[0]}: " if event.ranks else ""
    return rank + " ".join(text.split())[:300]


def _crash(view: HostView, server: ServerReport) -> Finding:
    cause = _cause(view, server)
    evidence: list[str] = []
    summary = f"{server.name} crashed; the cause is not in what was read"
    remedy = ["look further up in the log for the first error"]
    if cause is None and any(_is_kill(left) for left in view.events(server, EventKind.EXIT)):
        summary = f"{server.name} was killed (SIGKILL); the log does not say by whom"
        remedy = list(WHO_KILLED)
    elif cause is not None:
        when = f" at {cause.t_text}" if cause.t_text else ""
        evidence.append(f"{words.LOG}{_words_of(cause)}{when}")
        if cause.kind is EventKind.ENGINE_START_FAILED:
            summary = f"{server.name} failed to start: {_words_of(cause)}"
            if _tells_why(cause):
                remedy = list(crash_remedy(cause, _words_of(cause)))
            else:
                summary += "; the root cause stands earlier in the log"
        elif cause.kind in ROOT_KINDS and cause.fields.get("root_cause_in_excerpt") is not False:
            summary = f"{server.name} crashed{_stage(view, server, cause)}: {_words_of(cause)}"
            remedy = list(crash_remedy(cause, _words_of(cause)))
        else:
            summary = f"{server.name} crashed ({cause.kind.replace('_', ' ')}); the cause is not in what was read"
    echoes = [e for e in view.run(server) if e.kind in ECHO_KINDS and (cause is None or e.line != cause.line)]
    evidence.extend(f"{words.LOG}then {e.kind}: {_words_of(e)}" for e in echoes[:3])
    evidence.extend(f"{words.LOG}kernel record: {e.line}" for e in crash_xids(view)[:2])
    if server.pid is not None and not server.gone:
        evidence.append(f"{words.SEEN}process {server.pid} is still there")
    return Finding(
        kind=FindingKind.CRASHED,
        severity=Severity.CRITICAL,
        confidence=Confidence.REPORTED,
        summary=summary,
        server=server.name,
        gpus=server.gpus,
        evidence=tuple(evidence),
        remedy=tuple(remedy),
    )


def _tells_why(failed: LogEvent) -> bool:
    """Whether the record of a failed start names its error itself, and does not only point further up."""
    told = failed.fields.get("root_cause_in_excerpt")
    return told is True or (told is None and bool(failed.fields.get("error")))


def _stage(view: HostView, server: ServerReport, cause: LogEvent) -> str:
    phase = cause.fields.get("phase")
    if isinstance(phase, str) and phase:
        return f" during {'tuning' if phase == 'autotune' else phase}"
    before = [e.kind for e in view.run(server)]
    tuning = EventKind.AUTOTUNE_START in before and EventKind.AUTOTUNE_END not in before
    return " during tuning" if tuning else ""


def _exited(view: HostView, server: ServerReport) -> Finding:
    unread = server.name in view.unread
    readable = not unread and (bool(server.events) or bool(server.counts))
    left = next(view.events(server, EventKind.EXIT), None)
    evidence = [f"{words.LOG}{left.line}"] if left is not None else []
    if server.pid is not None:
        evidence.append(f"{words.SEEN}process {server.pid} is gone")
    if readable:
        evidence.append(words.LOG + "no clean stop and no error in the newest run")
        evidence.append(
            words.NOT_KNOWN + "whether it was killed (out of memory, an operator, a manager) or died silently"
        )
    elif unread:
        evidence.append(words.NOT_KNOWN + "how it ended: it went while nobody watched, its log was not read on")
    else:
        evidence.append(words.NOT_KNOWN + "how it ended: its log cannot be read")
    return Finding(
        kind=FindingKind.CRASHED,
        severity=Severity.CRITICAL if readable else Severity.INFO,
        confidence=Confidence.INFERRED,
        summary=f"{server.name} is gone" + (" and its log shows no clean stop" if readable else ""),
        server=server.name,
        gpus=server.gpus,
        evidence=tuple(evidence),
        remedy=WHO_KILLED,
    )
