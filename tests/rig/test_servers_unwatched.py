"""What becomes of a server while no probe looks, on a real server over a real sshd."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from moetop.model import LinkPhase
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


def test_a_server_that_dies_between_two_probes_is_told_gone(watched: tuple[WatchedRig, Path]) -> None:
    rig, path = watched
    with watching(path, rig) as (session, _):
        for number in (signal.SIGSTOP, signal.SIGKILL):
            if number is signal.SIGKILL:
                os.kill(rig.pids()[0], signal.SIGKILL)
                rig.process.wait(10)
            for pid in probes():
                os.kill(pid, number)
        until(lambda: session.watch.link_of("rig").phase is not LinkPhase.WATCHING, "the host is lost")
        until(lambda: session.watch.link_of("rig").phase is LinkPhase.WATCHING, "the host is watched again")

        def mine() -> list[bool]:
            return [one.gone for one in session.watch.report("rig").servers if one.name == rig.server]

        until(lambda: mine() == [True], "the server is told gone")
        kinds = {str(one.kind) for one in session.watch.report("rig").findings if one.server == rig.server}
        assert "crashed" in kinds, kinds
