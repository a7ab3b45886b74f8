"""Every finding of a host, gravest first: the table of rules and the order they run in."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from moetop.diagnose import words
from moetop.diagnose.findings_crash import find_crash
from moetop.diagnose.findings_gpu import find_comms, find_spinning, find_stragglers
from moetop.diagnose.findings_host import find_host
from moetop.diagnose.findings_limits import find_limits
from moetop.diagnose.findings_load import find_launch_bound, find_log_hang, find_overload, find_slow_path
from moetop.diagnose.findings_tuning import find_open_starvation, find_tuning
from moetop.diagnose.headline import sort_findings
from moetop.diagnose.starvation import starvation_of
from moetop.diagnose.view import HostView
from moetop.model import Finding, Severity

Rule = Callable[[HostView], Iterator[Finding]]


def find_tunings(view: HostView) -> Iterator[Finding]:
    """Tuning verdicts, and the starvation that none of them explains."""
    claimed: set[int] = set()
    for server in view.servers:
        starved = starvation_of(view, server)
        found = list(find_tuning(view, server, starved))
        if starved is not None and any(f.severity is Severity.WARNING for f in found):
            claimed.update(starved.indices)
        yield from found
    yield from find_open_starvation(view, claimed)


def find_servers(view: HostView) -> Iterator[Finding]:
    """What each server's own run, log and counters show."""
    for server in view.servers:
        yield from find_crash(view, server)
        yield from find_log_hang(view, server)
        yield from find_slow_path(view, server)
        yield from find_launch_bound(view, server)
        yield from find_overload(view, server)


RULES: tuple[Rule, ...] = (
    find_host,  # ranks 1, 3
    find_servers,  # ranks 2, 4 (from a log), 9, 14
    find_spinning,  # ranks 4, 7
    find_limits,  # ranks 6, 11
    find_tunings,  # ranks 5, 8, 12, 13
    find_comms,  # rank 10
    find_stragglers,  # rank 10
)


def find_all(view: HostView) -> tuple[Finding, ...]:
    """All findings of the host, gravest first."""
    return sort_findings(_neutral(finding) for rule in RULES for finding in rule(view))


def _neutral(finding: Finding) -> Finding:
    """The finding with whatever a host or a log put into its sentences made harmless."""
    texts = (finding.summary, *finding.evidence, *finding.remedy)
    if all(text.isprintable() for text in texts):
        return finding
    return msgspec.structs.replace(
        finding,
        summary=words.neutral(finding.summary),
        evidence=tuple(words.neutral(line) for line in finding.evidence),
        remedy=tuple(words.neutral(line) for line in finding.remedy),
    )
