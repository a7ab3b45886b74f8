"""The way to a host over a real sshd: settings, host keys, login, jump hosts, single commands."""

from __future__ import annotations

import json
import os
import pwd
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from moetop.errors import LinkError
from moetop.transport import open_transport, stream
from moetop.transport.auth import KeyRing
from moetop.transport.base import Transport
from moetop.transport.ssh import SshTransport
from tests.rig.sshd_rig import USER, Client, Sshd, free_port, is_running, keygen, until

pytestmark = pytest.mark.usefixtures("tiny_probe")
FAST = {"interval_s": 0.05}


@pytest.fixture
def to() -> Iterator[Callable[..., Transport]]:
    """Opens transports that are closed with the test."""
    made: list[Transport] = []

    def make(target: object, prompt: object = None) -> Transport:
        made.append(open_transport(target, prompt))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for transport in made:
        transport.close()


def hello(transport: Transport) -> dict:
    """The first frame of a session, which is then closed."""
    channel = transport.open(FAST)
    lines = channel.lines()
    first = next(frame for frame in map(json.loads, lines) if frame["type"] == "hello")
    channel.close()
    assert all(json.loads(line) for line in lines), "what comes after closing are whole frames at most"
    return first


def refusal(transport: Transport) -> LinkError:
    with pytest.raises(LinkError) as caught:
        transport.open(FAST)
    assert "\n" not in caught.value.sentence()
    return caught.value


def advised(error: LinkError) -> str:
    """The command line that the advice gives."""
    assert error.advice is not None
    return error.advice.partition("run: ")[2].partition(", or")[0]


# ── settings ─────────────────────────────────────────────────────────────────────────────────────


def test_frames_come_and_nothing_is_left_on_the_host_after_closing(
    sshd: Sshd, client: Client, to: Callable[..., Transport]
) -> None:
    channel = to(client.target(sshd)).open(FAST)
    lines = channel.lines()
    pid = int(json.loads(next(lines))["hostname"])
    assert [json.loads(next(lines))["type"] for _ in range(3)] == ["gpus"] * 3
    assert is_running(pid)
    channel.close()
    assert list(lines) == []
    until(lambda: not is_running(pid))
    until(lambda: not sshd.session_pids())


def test_an_alias_of_ssh_config_gives_host_port_user_and_key(
    sshd: Sshd, client: Client, to: Callable[..., Transport], tmp_path: Path
) -> None:
    included = tmp_path / "more.conf"
    included.write_text(f"Host box\n  HostName 127.0.0.1\n  Port {sshd.port}  # of the rig\n")
    client.configure(f"Include {included}\nMatch tagged nothing\n  Port 1\n" if has_tags() else f"Include {included}\n")
    assert hello(to(client.target("box")))


def has_tags() -> bool:
    """Whether this ssh knows `Match tagged` (9.4 and later)."""
    done = subprocess.run(
        ["ssh", "-G", "-F", "/dev/stdin", "x"], input=b"Match tagged y\n Port 9\n", capture_output=True, check=False
    )
    return done.returncode == 0


def test_a_configuration_that_ssh_refuses_is_said_in_sshs_words(
    sshd: Sshd, client: Client, to: Callable[..., Transport]
) -> None:
    client.config.write_text("Host *\n  Prot 22\n")
    error = refusal(to(client.target(sshd)))
    assert error.code == "config"
    assert "prot" in str(error).lower()


# ── what the network says ────────────────────────────────────────────────────────────────────────


def test_an_unknown_name_a_closed_port_and_a_dead_address_have_their_own_words(
    client: Client, to: Callable[..., Transport]
) -> None:
    error = refusal(to(client.target("no-such-host.invalid")))
    assert (error.code, error.retry) == ("unknown_host", True)
    assert "no-such-host.invalid" in str(error)
    port = free_port()
    error = refusal(to(client.target("127.0.0.1", port=port)))
    assert error.code == "refused"
    assert str(port) in str(error)
    with full_listener() as port:
        begun = time.monotonic()
        error = refusal(to(client.target("127.0.0.1", port=port, connect_timeout_s=1.0)))
        assert error.code == "timeout"
        assert time.monotonic() - begun < 5


class full_listener:
    """A port whose queue is full, so that the kernel drops further connection attempts."""

    def __enter__(self) -> int:
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(0)
        self.waiting = []
        for _ in range(3):
            sock = socket.socket()
            sock.setblocking(False)
            sock.connect_ex(self.listener.getsockname())
            self.waiting.append(sock)
        return int(self.listener.getsockname()[1])

    def __exit__(self, *_: object) -> None:
        for sock in [*self.waiting, self.listener]:
            sock.close()


def test_a_port_that_greets_nobody_and_one_that_hangs_up_are_told_apart(
    client: Client, to: Callable[..., Transport], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moetop.transport.hops.GREETING_TIMEOUT_S", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        target = client.target("127.0.0.1", port=listener.getsockname()[1], connect_timeout_s=1.0)
        assert refusal(to(target)).code == "banner"

    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up() -> None:
            listener.accept()[0].close()

        threading.Thread(target=hang_up, daemon=True).start()
        error = refusal(to(client.target("127.0.0.1", port=listener.getsockname()[1])))
        assert error.code == "max_startups"
        assert "MaxStartups" in (error.advice or "")


def test_closing_gives_up_a_connection_attempt_at_once(client: Client, to: Callable[..., Transport]) -> None:
    with full_listener() as port:
        transport = to(client.target("127.0.0.1", port=port, connect_timeout_s=30.0))
        outcome: list[str] = []
        thread = threading.Thread(target=lambda: outcome.append(refusal(transport).code))
        thread.start()
        time.sleep(0.3)
        transport.close()
        thread.join(2)
        assert outcome == ["closed"]


def test_many_logins_at_once_to_one_sshd_all_succeed(sshd: Sshd, client: Client, to: Callable[..., Transport]) -> None:
    transports = [to(client.target(sshd, name=f"h{n}")) for n in range(14)]
    channels: list[object] = []
    threads = [threading.Thread(target=lambda t=t: channels.append(t.open(FAST))) for t in transports]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(50)
    assert len(channels) == 14


def test_an_sshd_with_no_room_is_named_as_such(
    make_sshd: Callable[..., Sshd], client: Client, to: Callable[..., Transport]
) -> None:
    server = make_sshd("MaxStartups 1:100:1")
    client.admit(server)
    until(lambda: not server.session_pids())
    with socket.create_connection(("127.0.0.1", server.port)) as idle:
        assert idle.recv(4) == b"SSH-"
        error = refusal(to(client.target(server)))
    assert (error.code, error.retry) == ("max_startups", True)


# ── host keys ────────────────────────────────────────────────────────────────────────────────────


def test_an_unknown_key_is_refused_and_the_advice_mends_it(
    sshd: Sshd, client: Client, to: Callable[..., Transport]
) -> None:
    client.known_hosts.write_text("")
    transport = to(client.target(sshd))
    error = refusal(transport)
    assert (error.code, error.retry) == ("host_key_unknown", False)
    assert "SHA256:" in str(error)
    command, _, file = advised(error).partition(" >> ")
    assert (command, Path(file).expanduser()) == (f"ssh-keyscan -p {sshd.port} 127.0.0.1", client.known_hosts)
    subprocess.run(["sh", "-c", advised(error)], check=True, capture_output=True)
    assert hello(transport)


def test_a_changed_key_is_refused_even_when_new_ones_are_taken_and_the_advice_mends_it(
    sshd: Sshd, client: Client, to: Callable[..., Transport], tmp_path: Path
) -> None:
    other = keygen(tmp_path / "other").with_name("other.pub").read_text()
    client.known_hosts.write_text(f"[127.0.0.1]:{sshd.port} {other}")
    before = client.known_hosts.read_text()
    error = refusal(to(client.target(sshd, accept_new_host_keys=True)))
    assert (error.code, error.retry) == ("host_key_changed", False)
    assert f"{client.known_hosts}:1" in str(error)
    assert client.known_hosts.read_text() == before
    assert advised(error) == f"ssh-keygen -R '[127.0.0.1]:{sshd.port}' -f {client.known_hosts}"
    subprocess.run(["sh", "-c", advised(error)], check=True, capture_output=True)
    assert refusal(to(client.target(sshd))).code == "host_key_unknown"


def test_a_host_that_shows_another_kind_of_key_than_the_known_one_has_changed(
    sshd: Sshd, client: Client, to: Callable[..., Transport], tmp_path: Path
) -> None:
    other = keygen(tmp_path / "other", "ecdsa").with_name("other.pub").read_text()
    client.known_hosts.write_text(f"[127.0.0.1]:{sshd.port} {other}")
    assert refusal(to(client.target(sshd, accept_new_host_keys=True))).code == "host_key_changed"


def test_a_revoked_key_is_refused(sshd: Sshd, client: Client, to: Callable[..., Transport]) -> None:
    with client.known_hosts.open("a") as file:
        file.write("@revoked " + sshd.keyscan_line(name="*"))
    assert refusal(to(client.target(sshd, accept_new_host_keys=True))).code == "host_key_revoked"


def test_a_new_key_is_added_where_asked_and_needs_no_asking_then(
    sshd: Sshd, client: Client, to: Callable[..., Transport]
) -> None:
    client.known_hosts.unlink()
    channel = to(client.target(sshd, accept_new_host_keys=True)).open(FAST)
    note = json.loads(next(channel.lines()))
    assert note["code"] == "link_note"
    assert "was added to" in note["message"]
    channel.close()
    assert stat.S_IMODE(client.known_hosts.stat().st_mode) == 0o600
    assert client.known_hosts.read_text() == sshd.keyscan_line()
    assert hello(to(client.target(sshd)))


@pytest.mark.parametrize("kind", ["rsa", "ecdsa", "ed25519"])
def test_a_host_known_by_one_kind_of_key_is_known_whatever_it_would_rather_show(
    make_sshd: Callable[..., Sshd], client: Client, to: Callable[..., Transport], kind: str
) -> None:
    server = make_sshd(host_keys=("ed25519", "ecdsa", "rsa"))
    client.admit(server)
    client.known_hosts.write_text(server.keyscan_line(kind))
    assert hello(to(client.target(server)))


def test_hashed_wildcard_and_aliased_names_are_known(sshd: Sshd, client: Client, to: Callable[..., Transport]) -> None:
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", client.known_hosts], check=True, capture_output=True)
    assert "127.0.0.1" not in client.known_hosts.read_text()
    assert hello(to(client.target(sshd)))
    client.known_hosts.write_text(
        "garbage line\n@cert-authority * ssh-ed25519 AAAA\n" + sshd.keyscan_line(name="127.0.0.?")
    )
    assert hello(to(client.target(sshd)))
    client.known_hosts.write_text(sshd.keyscan_line(name="the-box"))
    assert hello(to(client.target(sshd, options={"HostKeyAlias": "the-box"})))


def test_a_host_certificate_goes_to_the_systems_ssh_and_says_why(
    make_sshd: Callable[..., Sshd], client: Client, to: Callable[..., Transport], tmp_path: Path
) -> None:
    authority = keygen(tmp_path / "ca")
    server = make_sshd()
    client.admit(server)
    public = server.host_keys["ed25519"].with_name("host_ed25519.pub")
    sign = ["ssh-keygen", "-q", "-s", authority, "-h", "-I", "rig", "-n", "127.0.0.1", public]
    subprocess.run(sign, check=True, capture_output=True)
    server.kill()
    server.lines = (f"HostCertificate {public.with_name('host_ed25519-cert.pub')}",)
    server.start()
    kind, blob = authority.with_name("ca.pub").read_text().split()[:2]
    client.known_hosts.write_text(
        f"@cert-authority 127.0.0.* {kind} {blob}\n@cert-authority [127.0.0.1]:* {kind} {blob}\n"
    )
    error = refusal(to(client.target(server, kind="ssh")))
    assert error.code == "needs_openssh"
    assert "openssh" in (error.advice or "")
    channel = to(client.target(server)).open(FAST)
    lines = channel.lines()
    assert "host certificate" in json.loads(next(lines))["message"]
    assert json.loads(next(lines))["type"] == "hello"
    channel.close()
    assert all(json.loads(line) for line in lines)


# ── login ────────────────────────────────────────────────────────────────────────────────────────


def test_a_wrong_key_is_named_with_what_the_host_would_take(
    sshd: Sshd, client: Client, to: Callable[..., Transport], tmp_path: Path
) -> None:
    wrong = keygen(tmp_path / "wrong")
    client.configure("", identity=f"IdentityFile {wrong}")
    error = refusal(to(client.target(sshd)))
    assert (error.code, error.retry) == ("auth", False)
    assert str(wrong) in str(error)
    assert "publickey" in str(error)
    assert "ssh-copy-id" in (error.advice or "")


def test_without_any_key_the_message_says_that_none_was_offered(
    sshd: Sshd, client: Client, to: Callable[..., Transport], tmp_path: Path
) -> None:
    client.configure("", identity=f"IdentityFile {tmp_path}/absent")
    assert "offered no key" in str(refusal(to(client.target(sshd))))


def test_a_locked_key_is_asked_for_once_whatever_the_number_of_hosts(
    sshd: Sshd, client: Client, tmp_path: Path, to: Callable[..., Transport], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moetop.transport.auth.shared_keys", KeyRing())
    locked = keygen(tmp_path / "locked", passphrase="sesame")
    client.admit(sshd, locked)
    client.configure("", identity=f"IdentityFile {locked}")
    error = refusal(to(client.target(sshd)))
    assert f"ssh-add {locked}" in (error.advice or "")
    asked: list[str] = []

    def answer(question: str, visible: bool) -> str:
        asked.append(question)
        assert not visible
        return "wrong" if len(asked) == 1 else "sesame"

    assert hello(to(client.target(sshd), answer))
    assert hello(to(client.target(sshd), answer))
    assert asked == [f"Passphrase for {locked}:"] * 2, "once wrong, once right, never again"


def test_an_agent_named_by_identity_agent_is_used(
    sshd: Sshd, client: Client, to: Callable[..., Transport], tmp_path: Path
) -> None:
    sock = tmp_path / "agent"
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", str(sock)], stdout=subprocess.DEVNULL)
    try:
        until(sock.exists)
        extra = keygen(tmp_path / "extra")
        for key in (extra, client.key):
            subprocess.run(["ssh-add", "-q", key], env={**os.environ, "SSH_AUTH_SOCK": str(sock)}, check=True)
        hidden = client.key.rename(tmp_path / "moved")
        client.config.write_text(
            f"Host *\n  UserKnownHostsFile {client.known_hosts}\n  IdentityAgent {sock}\n  IdentityFile {client.key}\n"
        )
        assert hello(to(client.target(sshd)))
        assert "Failed publickey" not in sshd.log.read_text(), "the key that IdentityFile names goes first"
        hidden.rename(client.key)
    finally:
        agent.terminate()
        agent.wait(5)


def test_a_user_certificate_logs_in(
    make_sshd: Callable[..., Sshd], client: Client, to: Callable[..., Transport], tmp_path: Path
) -> None:
    authority = keygen(tmp_path / "ca")
    server = make_sshd(f"TrustedUserCAKeys {authority}.pub")
    client.known_hosts.write_text(server.keyscan_line())
    user = client.target(server).user
    public = client.key.with_name("user_key.pub")
    subprocess.run(["ssh-keygen", "-q", "-s", authority, "-I", "me", "-n", str(user), public], check=True)
    moved = public.with_name("user_key-cert.pub").rename(tmp_path / "user_key-elsewhere-cert.pub")
    client.configure(f"CertificateFile {moved}")
    assert hello(to(client.target(server)))


# ── jump hosts ───────────────────────────────────────────────────────────────────────────────────


def test_a_chain_of_jump_hosts_is_gone_through_and_each_is_verified(
    make_sshd: Callable[..., Sshd], client: Client, to: Callable[..., Transport]
) -> None:
    first, second, last = (make_sshd() for _ in range(3))
    for server in (first, second, last):
        client.admit(server)
    client.configure(
        f"Host first\n  HostName 127.0.0.1\n  Port {first.port}\n"
        f"Host second\n  HostName 127.0.0.1\n  Port {second.port}\n"
        f"Host last\n  HostName 127.0.0.1\n  Port {last.port}\n  ProxyJump first,second\n"
    )
    transport = to(client.target("last"))
    assert hello(transport)
    assert [server.logins() for server in (first, second, last)] == [1, 1, 1]
    lines = client.known_hosts.read_text().splitlines(keepends=True)
    client.known_hosts.write_text(lines[0] + lines[2])
    error = refusal(transport)
    assert error.code == "host_key_unknown"
    assert "ssh-keyscan" not in error.sentence(), "keyscan cannot go through a jump host"
    until(lambda: not first.session_pids())


def test_a_jump_host_that_may_not_forward_or_cannot_reach_says_so(
    make_sshd: Callable[..., Sshd], sshd: Sshd, client: Client, to: Callable[..., Transport]
) -> None:
    strict = make_sshd("AllowTcpForwarding no")
    client.admit(strict)
    error = refusal(to(client.target(sshd, options={"ProxyJump": f"127.0.0.1:{strict.port}"})))
    assert error.code == "jump"
    assert "AllowTcpForwarding" in str(error)
    gone = client.target("127.0.0.1", port=free_port(), options={"ProxyJump": f"127.0.0.1:{sshd.port}"})
    error = refusal(to(gone))
    assert error.code == "jump"
    assert "cannot reach 127.0.0.1" in str(error)


def test_jump_hosts_that_refer_to_each_other_are_refused(client: Client, to: Callable[..., Transport]) -> None:
    client.configure("Host a\n  ProxyJump b\nHost b\n  ProxyJump a\n")
    assert "refer to each other" in str(refusal(to(client.target("a"))))


def test_a_proxy_command_carries_the_connection_and_ends_with_it(
    make_sshd: Callable[..., Sshd], sshd: Sshd, client: Client, to: Callable[..., Transport]
) -> None:
    gate = make_sshd()
    client.admit(gate)
    through = f"ssh -F {client.config} -p {gate.port} -W %h:%p 127.0.0.1"
    assert hello(to(client.target(sshd, options={"ProxyCommand": through})))
    until(lambda: not gate.session_pids())
    error = refusal(to(client.target(sshd, options={"ProxyCommand": "sh -c 'echo no gate today >&2; exit 1'"})))
    assert error.code == "proxy"
    assert "no gate today" in str(error)


# ── shells and Pythons ───────────────────────────────────────────────────────────────────────────


def test_a_login_shell_that_prints_a_banner_without_a_newline_does_no_harm(
    make_sshd: Callable[..., Sshd], client: Client, to: Callable[..., Transport]
) -> None:
    server = make_sshd("""ForceCommand printf 'Welcome\\nto the cluster> '; eval "$SSH_ORIGINAL_COMMAND" """)
    client.admit(server)
    assert hello(to(client.target(server)))


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        ("echo This account is currently not available.; exit 1", "shell_exits", "not available"),
        ("while :; do echo noise noise noise noise noise noise; done", "no_marker", "without end"),
        ("echo MOETOP-OLD 3.6", "old_python", "3.6"),
        ("echo python3: command not found >&2; exit 127", "no_python", "no python3"),
    ],
)
def test_a_shell_that_starts_no_probe_is_described(
    make_sshd: Callable[..., Sshd], client: Client, to: Callable[..., Transport], command: str, code: str, words: str
) -> None:
    server = make_sshd(f"ForceCommand {command}")
    client.admit(server)
    error = refusal(to(client.target(server)))
    assert error.code == code
    assert words in str(error)
    assert error.advice


@pytest.mark.skipif(Path(pwd.getpwnam(USER).pw_shell).name != "bash", reason="the login shell is not bash")
@pytest.mark.parametrize(
    ("lines", "did"),
    [
        ("sleep 60", "it printed nothing"),
        ("printf 'Loading \\033[31mmodules'; sleep 60", "it last printed: Loading modules"),
        ("echo 'pyenv: cannot rehash' >&2; sleep 60", "it last printed: pyenv: cannot rehash"),
    ],
)
def test_a_login_shell_that_hangs_in_its_start_files_is_named_as_the_cause(
    sshd: Sshd,
    client: Client,
    to: Callable[..., Transport],
    monkeypatch: pytest.MonkeyPatch,
    lines: str,
    did: str,
) -> None:
    monkeypatch.setattr(stream, "MARKER_TIMEOUT_S", 2.0)
    (sshd.folder / "home" / ".bashrc").write_text(f"{lines}\n")
    target = client.target(sshd)
    error = refusal(to(target))
    assert error.code == "no_marker" and error.retry
    assert str(error) == f"the login shell started no program within 2 s; {did}"
    assert error.advice is not None and f"`ssh {target.label} true` should return at once" in error.advice
    assert ".bashrc" in error.advice
    until(lambda: not sshd.session_pids())


SMI = """#!/bin/sh
case "$*" in *compute_cap*) echo 'Field "compute_cap" is not a valid field to query.'; exit 2;; esac
[ -e "$0.broken" ] && { echo "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."; exit 9; }
echo 'index, uuid, name, driver_version, memory.total [MiB], utilization.gpu [%], power.draw [W]'
while :; do
  echo '0, GPU-1, NVIDIA A100, 470.1, 40960 MiB, 97 %, 250.10 W'
  echo '1, GPU-2, NVIDIA A100, 470.1, 40960 MiB, [N/A], [N/A]'
  sleep 0.1
done
"""


def test_without_python_nvidia_smi_is_read_and_the_screen_is_told(
    make_sshd: Callable[..., Sshd], client: Client, to: Callable[..., Transport], tmp_path: Path
) -> None:
    smi = tmp_path / "bin" / "nvidia-smi"
    smi.parent.mkdir()
    smi.write_text(SMI)
    smi.chmod(0o755)
    server = make_sshd(env={"PATH": f"{smi.parent}:/usr/bin:/bin"})
    client.admit(server)
    transport = to(client.target(server, python="python3-nowhere"))
    channel = transport.open(FAST)
    lines = channel.lines()
    status, hello_frame, sample = (json.loads(next(lines)) for _ in range(3))
    assert status["code"] == "fallback_smi"
    assert "no python3-nowhere" in status["message"]
    assert (hello_frame["source"], hello_frame["driver"]) == ("nvidia-smi", "470.1")
    assert [gpu["name"] for gpu in hello_frame["gpus"]] == ["NVIDIA A100"] * 2
    assert sample["gpus"][0]["power_w"] == 250.1
    assert "power_w" not in sample["gpus"][1]
    assert sample["gpus"][1]["absent"]["power_w"] == "not_supported"
    channel.close()
    until(lambda: not server.session_pids())
    smi.with_name("nvidia-smi.broken").touch()
    status = json.loads(next(iter(transport.open(FAST).lines())))
    assert (status["code"], status["fatal"]) == ("no_driver", True)


def test_without_python_and_nvidia_smi_both_are_named(sshd: Sshd, client: Client, to: Callable[..., Transport]) -> None:
    error = refusal(to(client.target(sshd, python="python3-nowhere")))
    assert (error.code, error.retry) == ("no_python", False)
    assert "no nvidia-smi either" in str(error)


# ── single commands ──────────────────────────────────────────────────────────────────────────────


def test_a_command_gets_its_arguments_and_input_as_they_are(
    sshd: Sshd, client: Client, to: Callable[..., Transport]
) -> None:
    nasty = ["a b", "$HOME", "`id`", "'; echo x", "\n", "*", "", "ü"]
    show = "import sys; print(sys.argv[1:]); print(len(sys.stdin.buffer.read())); sys.exit(3)"
    done = to(client.target(sshd)).run([sys.executable, "-c", show, *nasty], stdin=b"x" * 3_000_000)
    assert done.returncode == 3
    assert done.stdout.decode().splitlines() == [str(nasty), "3000000"]


def test_a_command_shares_the_probes_connection_and_a_third_opens_no_new_one(
    sshd: Sshd, client: Client, to: Callable[..., Transport]
) -> None:
    transport = to(client.target(sshd))
    channel = transport.open(FAST)
    lines = channel.lines()
    next(lines)
    assert [transport.run(["echo", str(n)]).stdout for n in range(3)] == [b"0\n", b"1\n", b"2\n"]
    assert sshd.logins() == 1
    next(lines)
    channel.close()


def test_a_command_survives_the_end_of_the_stream_beside_it(
    sshd: Sshd, client: Client, to: Callable[..., Transport]
) -> None:
    transport = to(client.target(sshd))
    channel = transport.open(FAST)
    lines = channel.lines()
    next(lines)
    done: list[bytes] = []
    thread = threading.Thread(
        target=lambda: done.append(transport.run(["sh", "-c", "read x; echo $x"], b"on\n").stdout)
    )
    thread.start()
    channel.close()
    assert all(json.loads(line) for line in lines)
    thread.join(10)
    assert done == [b"on\n"]


def test_a_command_that_takes_too_long_is_given_up_with_words(
    sshd: Sshd, client: Client, to: Callable[..., Transport]
) -> None:
    with pytest.raises(LinkError, match="did not end within") as caught:
        to(client.target(sshd)).run(["sleep", "60"], timeout_s=0.5)
    assert caught.value.code == "timeout"


def test_an_sshd_that_allows_no_second_session_is_named(
    make_sshd: Callable[..., Sshd], client: Client, to: Callable[..., Transport]
) -> None:
    server = make_sshd("MaxSessions 1")
    client.admit(server)
    transport = to(client.target(server))
    channel = transport.open(FAST)
    with pytest.raises(LinkError, match="refuses another session") as caught:
        transport.run(["true"])
    assert caught.value.code == "max_sessions"
    channel.close()


# ── the system's ssh ─────────────────────────────────────────────────────────────────────────────


def test_the_systems_ssh_carries_the_same_probe_and_leaves_nothing(
    sshd: Sshd, client: Client, to: Callable[..., Transport]
) -> None:
    transport = to(client.target(sshd, kind="openssh"))
    assert hello(transport)
    assert transport.run(["printf", "%s", "a b"]).stdout == b"a b"
    until(lambda: not sshd.session_pids())


def test_the_systems_ssh_failures_carry_the_same_codes(
    sshd: Sshd, client: Client, to: Callable[..., Transport], tmp_path: Path
) -> None:
    assert refusal(to(client.target("127.0.0.1", port=free_port(), kind="openssh"))).code == "refused"
    assert refusal(to(client.target("no-such-host.invalid", kind="openssh"))).code == "unknown_host"
    known = client.known_hosts.read_text()
    client.known_hosts.write_text("")
    assert refusal(to(client.target(sshd, kind="openssh"))).code == "host_key_unknown"
    client.known_hosts.write_text(known.split()[0] + " " + keygen(tmp_path / "o").with_name("o.pub").read_text())
    assert refusal(to(client.target(sshd, kind="openssh"))).code == "host_key_changed"
    client.known_hosts.write_text(known)
    client.configure("", identity=f"IdentityFile {tmp_path}/o")
    error = refusal(to(client.target(sshd, kind="openssh")))
    assert (error.code, error.retry) == ("auth", False)


def test_the_transport_is_paramiko_unless_it_cannot_be(sshd: Sshd, client: Client) -> None:
    transport = open_transport(client.target(sshd, kind="ssh"))
    assert isinstance(transport, SshTransport)
    transport.close()
    assert refusal(transport).code == "closed"
