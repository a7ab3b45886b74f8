"""Logins beyond plain keys, and the real probe over the wire."""

from __future__ import annotations

import base64
import json
import os
import queue
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import paramiko
import pytest

from moetop.errors import LinkError
from moetop.transport import open_transport
from moetop.transport.auth import KeyRing
from moetop.transport.base import Asking
from moetop.transport.hops import Connection
from tests.rig.sshd_rig import Client, Sshd, is_running, keygen, until

PASSWORD = "opensesame"


class Door(paramiko.ServerInterface):
    """An SSH server that wants what `wants` lists, one after the other."""

    def __init__(self, wants: list[str]) -> None:
        self.wants = list(wants)
        self.seen: list[str] = []

    def get_allowed_auths(self, username: str) -> str:
        return self.wants[0] if self.wants else "publickey"

    def _passed(self, method: str, good: bool) -> int:
        self.seen.append(f"{method} {'good' if good else 'bad'}")
        if not good or not self.wants or self.wants[0] != method:
            return paramiko.AUTH_FAILED
        self.wants.pop(0)
        return paramiko.AUTH_PARTIALLY_SUCCESSFUL if self.wants else paramiko.AUTH_SUCCESSFUL

    def check_auth_none(self, username: str) -> int:
        return paramiko.AUTH_FAILED

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        return self._passed("publickey", True)

    def check_auth_password(self, username: str, password: str) -> int:
        return self._passed("password", password == PASSWORD)

    def check_auth_interactive(self, username: str, submethods: str) -> object:
        return paramiko.InteractiveQuery("", "", ("One-time code:\x1b[2J", True), ("Password:", False))

    def check_auth_interactive_response(self, responses: list[str]) -> int:
        return self._passed("keyboard-interactive", list(responses) == ["123", PASSWORD])


@pytest.fixture
def doors(tmp_path: Path, client: Client) -> Iterator[Callable[[list[str]], int]]:
    """Opens SSH servers that want given methods; gives their port."""
    key = keygen(tmp_path / "door")
    listeners: list[socket.socket] = []

    def serve(listener: socket.socket, wants: list[str]) -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            session = paramiko.Transport(sock)
            session.add_server_key(paramiko.PKey.from_path(key))
            session.start_server(event=threading.Event(), server=Door(wants))

    def open_door(wants: list[str]) -> int:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)
        port = int(listener.getsockname()[1])
        with client.known_hosts.open("a") as file:
            file.write(f"[127.0.0.1]:{port} {key.with_name('door.pub').read_text()}")
        threading.Thread(target=serve, args=(listener, wants), daemon=True).start()
        return port

    yield open_door
    for listener in listeners:
        listener.close()


@pytest.fixture(autouse=True)
def own_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moetop.transport.auth.shared_keys", KeyRing())


class Person:
    """Somebody at the keyboard who knows the answers, after `wrong` wrong ones."""

    def __init__(self, wrong: int = 0) -> None:
        self.wrong = wrong
        self.asked: list[tuple[str, bool]] = []

    def __call__(self, question: str, visible: bool) -> str | None:
        self.asked.append((question, visible))
        if len(self.asked) <= self.wrong:
            return "wrong"
        return "123" if "code" in question else PASSWORD


def connect(target: object, prompt: object) -> None:
    connection = Connection(target, prompt)  # type: ignore[arg-type]
    try:
        connection.connect()
        assert connection.is_alive()
    finally:
        connection.close()


@pytest.mark.parametrize(
    "wants", [["password"], ["keyboard-interactive"], ["publickey", "keyboard-interactive"], ["publickey", "password"]]
)
def test_what_a_host_wants_is_given_in_turn(
    doors: Callable[[list[str]], int], client: Client, wants: list[str]
) -> None:
    person = Person()
    connect(client.target("127.0.0.1", port=doors(wants), ask_password=True), person)
    assert len(person.asked) == (2 if "keyboard-interactive" in wants else 1)
    assert all("127.0.0.1" in question and "\x1b" not in question for question, _ in person.asked)
    assert [visible for question, visible in person.asked if "assword" in question] == [False]


def test_a_password_is_asked_for_again_when_wrong_and_never_again_when_right(
    doors: Callable[[list[str]], int], client: Client
) -> None:
    person = Person(wrong=1)
    target = client.target("127.0.0.1", port=doors(["password"]), ask_password=True)
    connect(target, person)
    connect(target, person)
    assert len(person.asked) == 2


@pytest.mark.parametrize("ask", [False, True])
def test_nobody_is_asked_for_a_password_unless_the_user_said_so(
    doors: Callable[[list[str]], int], client: Client, ask: bool
) -> None:
    person = Person(wrong=99)
    with pytest.raises(LinkError) as caught:
        connect(client.target("127.0.0.1", port=doors(["password"]), ask_password=ask), person)
    assert (caught.value.code, caught.value.retry) == ("auth", False)
    assert len(person.asked) == (3 if ask else 0)
    assert ask or "ask_password" in (caught.value.advice or "")


def test_a_question_that_is_left_unanswered_is_asked_again_only_when_somebody_tries_again(
    doors: Callable[[list[str]], int], client: Client
) -> None:
    asked: list[str] = []
    transport = open_transport(
        client.target("127.0.0.1", port=doors(["password"]), ask_password=True, kind="auto"),
        lambda question, visible: asked.append(question),
    )
    for _ in range(2):
        with pytest.raises(LinkError, match="not answered") as caught:
            transport.open({})
        assert (caught.value.code, caught.value.retry) == ("auth", False)
        assert "ssh-copy-id" in (caught.value.advice or "")
    assert len(asked) == 1
    assert isinstance(transport, Asking)
    transport.ask_again()
    with pytest.raises(LinkError):
        transport.open({})
    assert len(asked) == 2
    transport.close()


def test_a_passphrase_may_be_given_late_and_after_a_refusal(sshd: Sshd, client: Client, tmp_path: Path) -> None:
    key = keygen(tmp_path / "locked", passphrase="pass phrase")
    client.admit(sshd, key)
    client.configure("", identity=f"IdentityFile {key}")
    answers: queue.Queue[str | None] = queue.Queue()
    transport = open_transport(client.target(sshd), lambda question, visible: answers.get(timeout=10))
    answers.put(None)
    with pytest.raises(LinkError, match="no passphrase given") as caught:
        transport.run(["true"])
    assert f"ssh-add {key}" in (caught.value.advice or "")
    assert isinstance(transport, Asking)
    transport.ask_again()
    threading.Timer(1.0, answers.put, ("pass phrase",)).start()
    assert transport.run(["true"]).returncode == 0
    transport.close()


def test_too_many_keys_are_named_as_the_reason(make_sshd: Callable[..., Sshd], client: Client, tmp_path: Path) -> None:
    server = make_sshd("MaxAuthTries 2")
    client.admit(server)
    sock = tmp_path / "agent"
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", str(sock)], stdout=subprocess.DEVNULL)
    try:
        until(sock.exists)
        for n in range(4):
            key = keygen(tmp_path / f"k{n}")
            subprocess.run(["ssh-add", "-q", key], env={**os.environ, "SSH_AUTH_SOCK": str(sock)}, check=True)
        client.config.write_text(f"Host *\n UserKnownHostsFile {client.known_hosts}\n IdentityAgent {sock}\n")
        with pytest.raises(LinkError, match="MaxAuthTries") as caught:
            connect(client.target(server), None)
        assert "IdentitiesOnly" in (caught.value.advice or "")
    finally:
        agent.terminate()
        agent.wait(5)


def test_a_security_key_goes_to_the_systems_ssh(sshd: Sshd, client: Client, tmp_path: Path) -> None:
    kind, body = b"sk-ssh-ed25519@openssh.com", b"x" * 32

    blob = b"".join(len(part).to_bytes(4, "big") + part for part in (kind, body, b"ssh:"))
    public = tmp_path / "id_sk.pub"
    public.write_text(f"{kind.decode()} {base64.b64encode(blob).decode()} token\n")
    client.configure("", identity=f"IdentityFile {tmp_path}/id_sk")
    with pytest.raises(LinkError, match="security key") as caught:
        connect(client.target(sshd), None)
    assert caught.value.code == "needs_openssh"


@pytest.mark.parametrize("kind", ["ssh", "openssh"])
def test_the_real_probe_answers_over_ssh_and_is_gone_after_closing(sshd: Sshd, client: Client, kind: str) -> None:
    transport = open_transport(client.target(sshd, kind=kind))
    channel = transport.open({"interval_s": 0.2, "discover": False})
    lines = channel.lines()
    hello = json.loads(next(lines))
    assert hello["type"] == "hello"
    probes = [pid for pid in sshd.session_pids() if b"MOETOP-READY" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert probes
    channel.close()
    assert all(json.loads(line) for line in lines)
    until(lambda: not any(is_running(pid) for pid in probes))
    transport.close()


def test_a_python_too_old_is_named_by_its_version(sshd: Sshd, client: Client) -> None:
    old = next(iter(sorted(Path.home().glob(".pyenv/versions/2.7*/bin/python2.7"))), None)
    if old is None:
        pytest.skip("no Python older than 3.8 here")
    with pytest.raises(LinkError, match=r"is 2\.7, too old") as caught:
        open_transport(client.target(sshd, python=str(old))).open({})
    assert caught.value.code == "old_python"
