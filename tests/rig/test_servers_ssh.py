"""A log whose writer never stops, over a real sshd whose line is cut, through rotations: no line is lost or twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import moetop.fleet as fleet_module
from moetop.fleet import Fleet
from moetop.model import LinkPhase, Log, Status
from moetop.transport import open_transport
from moetop.transport.base import ProbeOptions
from tests.rig.proxy_rig import Proxy
from tests.rig.sshd_rig import Client, Sshd
from tests.rig.test_fleet import Ear

ROTATE_EVERY = 300


class Writer:
    """Writes numbered event lines for ever; renames its file away or truncates it now and then."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.written = 0
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._write, daemon=True)
        self.thread.start()

    def _write(self) -> None:
        out = self.path.open("ab", buffering=0)
        while not self.over.is_set():
            out.write(b"[2026-06-28 13:36:54 TP0] autotun number %d\n" % self.written)
            self.written += 1
            if self.written % ROTATE_EVERY == 0:
                for n in (3, 2, 1):
                    old = self.path.with_name(f"{self.path.name}.{n}")
                    if old.exists():
                        old.replace(self.path.with_name(f"{self.path.name}.{n + 1}"))
                self.path.rename(self.path.with_name(f"{self.path.name}.1"))
                out.close()
                out = self.path.open("ab", buffering=0)
            time.sleep(0.002)
        out.close()

    def end(self) -> int:
        self.over.set()
        self.thread.join()
        return self.written


def test_every_line_arrives_once_through_cut_connections_and_rotations(
    tmp_path: Path,
    sshd: Sshd,
    client: Client,
    make_proxy: Callable[[int], Proxy],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fleet_module, "BACKOFF_FIRST_S", 0.1)
    proxy = make_proxy(sshd.port)
    with client.known_hosts.open("a") as file:
        file.write(sshd.keyscan_line(name=f"[127.0.0.1]:{proxy.port}"))
    log = tmp_path / "server.log"
    writer = Writer(log)
    ear = Ear()
    options = ProbeOptions(
        literals=("autotun",), logs=({"source": "server", "kind": "file", "target": str(log)},), discover=False
    )
    fleet = Fleet([open_transport(client.target("127.0.0.1", port=proxy.port, name="rig"))], ear, options)
    fleet.start()

    def numbers() -> list[int]:
        lines = [frame.line for _, frame, _ in list(ear.frames) if isinstance(frame, Log) and frame.source == "server"]
        return [int(line.rsplit(" ", 1)[1]) for line in lines if line]

    try:
        for _ in range(3):
            seen = len(numbers())
            ear.until(lambda seen=seen: len(numbers()) > seen + 150, 30)
            lost = len([link for link in ear.of("rig") if link.phase is LinkPhase.LOST])
            proxy.cut()
            ear.until(lambda lost=lost: len([x for x in ear.of("rig") if x.phase is LinkPhase.LOST]) > lost, 20)
        seen = len(numbers())
        ear.until(lambda: len(numbers()) > seen + 100, 30)
        written = writer.end()
        ear.until(lambda: (written - 1) in numbers(), 20)
    finally:
        writer.over.set()
        fleet.stop()
    gaps = [frame.message for _, frame, _ in ear.frames if isinstance(frame, Status) and frame.code == "log_gap"]
    assert gaps == []
    assert written > 2 * ROTATE_EVERY
    got = numbers()
    assert sorted(got) == list(range(got[0], written))
