"""A log read by the real probe goes on where it stood when the probe was killed: no line twice, none lost."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

import moetop.fleet as fleet_module
from moetop.fleet import Fleet
from moetop.model import Log
from moetop.transport.base import ProbeOptions
from moetop.transport.local import LocalTransport
from tests.rig.sshd_rig import descendants
from tests.rig.test_fleet import Ear


@pytest.mark.parametrize("rotated", [False, True])
def test_lines_written_while_the_link_was_down_arrive_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rotated: bool
) -> None:
    monkeypatch.setattr(fleet_module, "BACKOFF_FIRST_S", 0.2)
    log = tmp_path / "server.log"
    log.write_text("".join(f"EVENT {n}\n" for n in range(100)))
    ear = Ear()

    def numbers() -> list[int]:
        return [int(f.line.split()[1]) for _, f, _ in list(ear.frames) if isinstance(f, Log) and "EVENT" in f.line]

    logs = ({"source": "server", "kind": "file", "target": str(log)},)
    options = ProbeOptions(interval_s=0.2, literals=("EVENT",), logs=logs, discover=False)
    fleet = Fleet([LocalTransport("here")], ear, options)
    fleet.start()
    try:
        ear.until(lambda: len(numbers()) >= 100)
        for upto in (150, 200):
            probe = next(pid for pid in descendants(os.getpid()) if "MOETOP-READY" in command_of(pid))
            os.kill(probe, signal.SIGKILL)
            if rotated:
                log.rename(log.with_suffix(f".{upto}"))
            with log.open("a") as file:
                file.writelines(f"EVENT {n}\n" for n in range(upto - 50, upto))
            ear.until(lambda upto=upto: upto - 1 in numbers())  # type: ignore[misc]
        assert numbers() == list(range(200))
    finally:
        fleet.stop()


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""
