"""What becomes of a server while no probe looks, on a real server over a real sshd."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from moetop.model import LinkPhase, Phase, Severity
from moetop.session import Session
from tests.rig.jobdesk_kit import WatchedRig, watched, watching
from tests.rig.retune_kit import until
from tests.rig.sshd_rig import descendants

__all__ = ["watched"]


def probes() -> list[int]:
    """The probes that sessions below this process run."""
    found = []
    for pid in descendants(os.getpid()):
        try:
            if b"MOETOP-READY" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
        except OSError:
            continue
    return found


def unwatched(session: Session, act: Callable[[], None]) -> None:
    """Do `act` while no probe looks, and wait for the next one."""
    for pid in probes():
        os.kill(pid, signal.SIGSTOP)
    act()
    for pid in probes():
        os.kill(pid, signal.SIGKILL)
    until(lambda: session.watch.link_of("rig").phase is not LinkPhase.WATCHING, "the host is lost")
    until(lambda: session.watch.link_of("rig").phase is LinkPhase.WATCHING, "the host is watched again")


def standing(session: Session, rig: WatchedRig) -> set[str]:
    """Warnings and worse of the server."""
    findings = session.watch.report("rig").findings
    return {str(one.kind) for one in findings if one.server == rig.server and one.severity is not Severity.INFO}


@pytest.mark.parametrize(
    ("number", "phase", "alarms"),
    [(signal.SIGKILL, Phase.EXITED, {"crashed"}), (signal.SIGTERM, Phase.STOPPED, set())],
)
def test_a_server_that_dies_between_two_probes_is_told_gone(
    watched: tuple[WatchedRig, Path], number: int, phase: Phase, alarms: set[str]
) -> None:
    rig, path = watched

    def end() -> None:
        os.kill(rig.pids()[0], number)
        rig.process.wait(10)

    def mine() -> list[tuple[bool, Phase]]:
        return [(one.gone, one.phase) for one in session.watch.report("rig").servers if one.name == rig.server]

    with watching(path, rig) as (session, _):
        until(lambda: standing(session, rig) == {"untuned_kernels"}, "it is judged")
        unwatched(session, end)
        until(lambda: mine() == [(True, phase)], f"the server is told gone: {phase}")
        until(lambda: standing(session, rig) == alarms, f"what stands is {alarms}")
        if number == signal.SIGTERM:
            time.sleep(1.0)
            assert standing(session, rig) == alarms


def test_a_probe_that_looks_for_no_servers_any_more_misses_none(watched: tuple[WatchedRig, Path]) -> None:
    rig, path = watched
    with watching(path, rig) as (session, _):
        path.write_text(path.read_text().replace("    transport: ssh\n", "    transport: ssh\n    discover: false\n"))
        assert session.reloader.reload().changed == ("rig",)
        until(lambda: "switched off" in session.watch.statuses("rig")["searched"].message, "the new probe has begun")
        assert [one.gone for one in session.watch.report("rig").servers if one.name == rig.server] == [False]
