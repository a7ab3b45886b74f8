"""A real sshd on 127.0.0.1 with its own host keys, and the client's side of it; touches nothing of the user's."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from moetop.transport.base import HostTarget

SSHD = shutil.which("sshd") or "/usr/sbin/sshd"
USER = pwd.getpwuid(os.getuid()).pw_name


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def until(holds: Callable[[], object], timeout_s: float = 15.0) -> None:
    """Wait for a condition; fail when it does not come."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, "it did not come to pass in time"
        time.sleep(0.02)


def keygen(path: Path, kind: str = "ed25519", passphrase: str = "") -> Path:
    bits = ["-b", "2048"] if kind == "rsa" else []
    subprocess.run(["ssh-keygen", "-q", "-t", kind, *bits, "-N", passphrase, "-f", str(path)], check=True)
    return path


def parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def descendants(pid: int) -> list[int]:
    """Processes below `pid`, nearest first."""
    parents = {int(entry.name): parent_of(int(entry.name)) for entry in Path("/proc").iterdir() if entry.name.isdigit()}
    found, front = [], [pid]
    while front:
        front = [child for child, parent in parents.items() if parent in front]
        found += front
    return found


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Sshd:
    """One sshd. `lines` are further lines of its configuration, `env` more variables of its sessions."""

    def __init__(
        self,
        folder: Path,
        *lines: str,
        port: int | None = None,
        host_keys: tuple[str, ...] = ("ed25519",),
        listen: str = "127.0.0.1",
        env: Mapping[str, str] | None = None,
    ) -> None:
        # A HOME of its own: the login shell would read what this user has in .bashrc, and a version manager
        # there leaves a lock behind when a test kills it, at which every later login waits a minute.
        (folder / "home").mkdir(parents=True, exist_ok=True)
        self.env = {"HOME": str(folder / "home"), **(env or {})}
        self.folder = folder
        self.port = port or free_port()
        self.lines = lines
        self.listen = listen
        self.host_keys = {kind: folder / f"host_{kind}" for kind in host_keys}
        for kind, path in self.host_keys.items():
            if not path.exists():
                keygen(path, kind)
        self.authorized = folder / "authorized_keys"
        self.log = folder / "sshd.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> Sshd:
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        config = self.folder / "sshd_config"
        config.write_text(
            "\n".join(
                [
                    *self.lines,
                    "SetEnv " + " ".join(f"{name}={value}" for name, value in self.env.items()),
                    f"Port {self.port}",
                    f"ListenAddress {self.listen}",
                    *[f"HostKey {path}" for path in self.host_keys.values()],
                    f"AuthorizedKeysFile {self.authorized}",
                    "StrictModes no",
                    "UsePAM no",
                    "PasswordAuthentication no",
                    "KbdInteractiveAuthentication no",
                    "PermitRootLogin yes",
                    "PermitUserEnvironment no",
                    "PidFile none",
                    "LogLevel VERBOSE",
                    "",
                ]
            )
        )
        self.process = subprocess.Popen(
            [SSHD, "-D", "-f", str(config), "-E", str(self.log)], stdin=subprocess.DEVNULL, start_new_session=True
        )
        until(self.answers)
        until(lambda: not self.session_pids())
        return self

    def answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text() if self.log.exists() else "sshd did not start"
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as sock:
                sock.sendall(b"SSH-2.0-rig\r\n")
                return sock.recv(4) == b"SSH-"
        except OSError:
            return False

    def session_pids(self) -> list[int]:
        """Every process below this sshd: its sessions and what runs in them."""
        return descendants(self.process.pid) if self.process is not None else []

    def logins(self) -> int:
        return self.log.read_text().count("Accepted publickey for") if self.log.exists() else 0

    def kill(self, *, sessions: bool = True) -> None:
        """End it the hard way."""
        if self.process is None:
            return
        pids = [self.process.pid, *(self.session_pids() if sessions else [])]
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait(10)
        self.process = None

    def keyscan_line(self, kind: str = "ed25519", name: str | None = None) -> str:
        fields = self.host_keys[kind].with_name(f"host_{kind}.pub").read_text().split()
        return f"{name or f'[127.0.0.1]:{self.port}'} {fields[0]} {fields[1]}\n"


class Client:
    """The client's files: a key, known_hosts and an ssh_config that names them."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.key = keygen(folder / "user_key")
        self.known_hosts = folder / "known_hosts"
        self.known_hosts.touch(0o600)
        self.config = folder / "ssh_config"
        self.configure("")

    def configure(self, text: str, *, identity: str | None = None) -> None:
        """Write the ssh_config: `text` first, then what holds for all."""
        self.config.write_text(
            f"{text}\nHost *\n"
            f"  UserKnownHostsFile {self.known_hosts}\n"
            "  GlobalKnownHostsFile /dev/null\n"
            f"  {identity or f'IdentityFile {self.key}'}\n"
            "  IdentitiesOnly yes\n"
            "  IdentityAgent none\n"
        )

    def admit(self, sshd: Sshd, key: Path | None = None) -> None:
        """Let the client's key in, and know the host's keys."""
        with sshd.authorized.open("a") as file:
            file.write((key or self.key).with_name((key or self.key).name + ".pub").read_text())
        with self.known_hosts.open("a") as file:
            file.writelines(sshd.keyscan_line(kind) for kind in sshd.host_keys)

    def target(self, place: Sshd | str, **settings: object) -> HostTarget:
        where: dict[str, object] = (
            {"address": "127.0.0.1", "port": place.port, "name": "rig"}
            if isinstance(place, Sshd)
            else {"address": place}
        )
        return HostTarget(**{"user": USER, "ssh_config_file": str(self.config), **where, **settings})  # type: ignore[arg-type]


@pytest.fixture
def make_sshd(tmp_path: Path) -> Iterator[Callable[..., Sshd]]:
    """Starts sshds that end with the test."""
    started: list[Sshd] = []

    def make(*lines: str, **settings: object) -> Sshd:
        sshd = Sshd(tmp_path / f"sshd{len(started)}", *lines, **settings)  # type: ignore[arg-type]
        started.append(sshd)
        return sshd.start()

    yield make
    for sshd in started:
        sshd.kill()


@pytest.fixture
def client(tmp_path: Path) -> Client:
    return Client(tmp_path / "client")


@pytest.fixture
def sshd(make_sshd: Callable[..., Sshd], client: Client) -> Sshd:
    """An sshd that knows the client and is known to it."""
    server = make_sshd()
    client.admit(server)
    return server


TINY_LOADER = (
    "import sys; s = sys.stdin.buffer; print('MOETOP-READY %d.%d' % sys.version_info[:2], flush=True); "
    "exec(s.read(int(s.readline())))"
)
TINY_PROBE = """
import json, os, sys, threading, time
def say(**frame): print(json.dumps(frame), flush=True)
def listen():
    for line in sys.stdin.buffer: pass
    os._exit(0)
threading.Thread(target=listen, daemon=True).start()
say(type='hello', t=time.time(), gpus=[{'index': 0}], hostname=str(os.getpid()))
while True:
    say(type='gpus', t=time.time(), gpus=[{'index': 0, 'util_gpu_pct': 5}])
    time.sleep(options['interval_s'])
"""


@pytest.fixture
def tiny_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    """A probe of a few lines instead of the real one, so that only the way to it is tried."""
    stub = types.ModuleType("moetop.transport.bootstrap")

    def payload(options: object) -> bytes:
        program = f"options = {options!r}\n{TINY_PROBE}".encode()
        return str(len(program)).encode() + b"\n" + program

    stub.LOADER = TINY_LOADER  # type: ignore[attr-defined]
    stub.payload = payload  # type: ignore[attr-defined]
    stub.loader_argv = lambda python: [python, "-u", "-c", TINY_LOADER]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "moetop.transport.bootstrap", stub)
