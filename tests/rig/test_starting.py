"""Many hosts that come up together: few log in at a moment, and those that do not answer hold up nobody."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from moetop.fleet import Fleet
from moetop.model import LinkPhase
from moetop.transport import hops, starting
from moetop.transport.auth import KeyRing, Login, Prompt
from moetop.transport.base import HostTarget, ProbeOptions
from moetop.transport.ssh import SshTransport
from tests.rig.sshd_rig import Client, Sshd, keygen
from tests.rig.test_fleet import Ear

HOSTS, MOST = 12, 3
SOON_S = 6.0
"""Far less than the ten seconds of a connect time-out, far more than a login takes here."""


@pytest.fixture(autouse=True)
def few_places(monkeypatch: pytest.MonkeyPatch, tiny_probe: None) -> None:
    monkeypatch.setattr(starting, "logins", starting.Places(MOST))


@pytest.fixture
def ear() -> Ear:
    return Ear()


@pytest.fixture
def watch(ear: Ear, client: Client) -> Iterator[Callable[..., Fleet]]:
    """Watches targets; ends after the test."""
    started: list[Fleet] = []

    def begin(targets: list[HostTarget], prompt: Prompt | None = None) -> Fleet:
        fleet = Fleet([SshTransport(target, prompt) for target in targets], ear, ProbeOptions(interval_s=0.2))
        started.append(fleet)
        fleet.start()
        return fleet

    yield begin
    for fleet in started:
        fleet.stop()


@pytest.fixture
def many(make_sshd: Callable[..., Sshd], client: Client) -> Callable[[int], list[HostTarget]]:
    """Targets of one sshd by addresses of their own, so that each is a first hop of its own."""
    server = make_sshd("MaxStartups 100", listen="0.0.0.0")
    client.admit(server)
    with client.known_hosts.open("a") as file:
        file.write(server.keyscan_line(name=f"[127.0.*]:{server.port}"))

    def targets(count: int) -> list[HostTarget]:
        return [client.target(f"127.0.0.{n + 2}", port=server.port, name=f"host{n}") for n in range(count)]

    return targets


class Mute:
    """Takes connections on every address, says `greeting` and nothing more."""

    def __init__(self, greeting: bytes) -> None:
        self.greeting = greeting
        self.taken: list[socket.socket] = []
        self.full = threading.Event()
        self._listener = socket.create_server(("0.0.0.0", 0), backlog=128)
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self.taken.append(sock)
            with contextlib.suppress(OSError):  # one that left at once
                sock.sendall(self.greeting)
            if len(self.taken) >= HOSTS:
                self.full.set()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes who accepts
        self._listener.close()
        for sock in self.taken:
            sock.close()


def test_no_more_than_the_limit_log_in_at_a_moment(
    many: Callable[[int], list[HostTarget]], watch: Callable[..., Fleet], ear: Ear, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = threading.Barrier(MOST)
    lock, inside, most = threading.Lock(), 0, 0
    log_in = Login.run

    def counted(login: Login) -> None:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        together.wait(10)  # so many are let in at once
        log_in(login)
        with lock:
            inside -= 1

    monkeypatch.setattr(hops.Login, "run", counted)
    watch(many(HOSTS))
    ear.until(lambda: all(ear.phase(f"host{n}") is LinkPhase.WATCHING for n in range(HOSTS)))
    assert most == MOST


@pytest.mark.parametrize("greeting", [b"", b"SSH-2.0-hung\r\n"], ids=["say nothing", "greet and hang"])
def test_hosts_that_do_not_answer_hold_up_no_other(
    many: Callable[[int], list[HostTarget]],
    watch: Callable[..., Fleet],
    client: Client,
    ear: Ear,
    monkeypatch: pytest.MonkeyPatch,
    greeting: bytes,
) -> None:
    if greeting:  # these have places; the others never get one
        monkeypatch.setattr(starting, "PLACE_WAIT_S", 0.5)
    mute = Mute(greeting)
    try:
        fleet = watch([client.target(f"127.0.1.{n + 1}", port=mute.port, name=f"dead{n}") for n in range(HOSTS)])
        assert mute.full.wait(20), f"{len(mute.taken)} of {HOSTS} are connecting"
        fleet.add(SshTransport(many(1)[0]))
        ear.until(lambda: ear.phase("host0") is LinkPhase.WATCHING, SOON_S)
        assert {ear.phase(f"dead{n}") for n in range(HOSTS)} == {LinkPhase.CONNECTING}
    finally:
        mute.close()


def test_nobody_waits_while_a_person_is_asked(
    many: Callable[[int], list[HostTarget]],
    watch: Callable[..., Fleet],
    client: Client,
    ear: Ear,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("moetop.transport.auth.shared_keys", KeyRing())
    locked = keygen(tmp_path / "locked", passphrase="secret")
    asked, answer = threading.Event(), threading.Event()

    def prompt(_question: str, _visible: bool) -> str | None:
        asked.set()
        answer.wait(30)
        return None

    client.configure("", identity=f"IdentityFile {locked}")
    config = client.config.rename(tmp_path / "locked_config")
    client.configure("")
    targets = many(2 * MOST)
    fleet = watch([replace(target, ssh_config_file=str(config)) for target in targets[:MOST]], prompt)
    try:
        assert asked.wait(10)
        for target in targets[MOST:]:
            fleet.add(SshTransport(target))
        ear.until(lambda: all(ear.phase(target.name) is LinkPhase.WATCHING for target in targets[MOST:]), SOON_S)
    finally:
        answer.set()


def test_a_place_given_back_before_it_is_had_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "PLACE_WAIT_S", 2.0)
    places = starting.Places(1)
    first = starting.Place(threading.Event(), places)
    first.take()
    late = starting.Place(threading.Event(), places)
    waiting = threading.Thread(target=late.take)
    waiting.start()
    late.leave()
    first.leave()
    first.leave()
    waiting.join(5)
    assert places.acquire(threading.Event()), "the one place is free"


def test_an_attempt_that_is_given_up_waits_for_no_place() -> None:
    places = starting.Places(1)
    given_up = threading.Event()
    with starting.Place(threading.Event(), places):
        given_up.set()
        assert not places.acquire(given_up)
