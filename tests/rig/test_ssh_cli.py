"""The command line over a real sshd: exit codes, one clear line, and nothing left after control-C."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.rig.cli_kit import AS_A_TERMINAL
from tests.rig.sshd_rig import Client, Sshd, free_port, until


@pytest.fixture
def moetop(client: Client, tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    """Starts moetop with the rig's ssh_config and nothing of the user's."""
    environment = {**os.environ, "MOETOP_SSH_CONFIG": str(client.config), "XDG_CONFIG_HOME": str(tmp_path / "xdg")}

    def start(*arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*AS_A_TERMINAL, sys.executable, "-m", "moetop", *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


def interrupt(process: subprocess.Popen[str], kind: signal.Signals) -> tuple[str, str]:
    """Press control-C, and once more should nothing have come of it."""
    process.send_signal(kind)
    try:
        return process.communicate(timeout=3)
    except subprocess.TimeoutExpired:
        process.send_signal(kind)
        return process.communicate(timeout=5)


def test_every_host_that_cannot_be_watched_is_in_the_snapshot_with_its_reason(
    sshd: Sshd, client: Client, moetop: Callable[..., subprocess.Popen[str]]
) -> None:
    closed = free_port()
    known = client.known_hosts.read_text()
    client.configure(f"Host strange\n  HostName 127.0.0.1\n  Port {sshd.port}\n  UserKnownHostsFile /dev/null\n")
    hosts = [f"127.0.0.1:{closed}", "no-such-host.invalid", "strange", f"127.0.0.1:{sshd.port}"]
    process = moetop("--snapshot", "-", "--window", "0.3", *[part for host in hosts for part in ("--host", host)])
    out, err = process.communicate(timeout=40)
    assert process.returncode == 4, err
    assert "Traceback" not in err
    errors = {host["name"]: host["error"] or "" for host in json.loads(out)["hosts"]}
    assert "refused" in errors[f"127.0.0.1:{closed}"]
    assert "cannot be looked up" in errors["no-such-host.invalid"]
    assert "host key of 127.0.0.1 is unknown" in errors["strange"]
    assert errors[f"127.0.0.1:{sshd.port}"] is not None
    assert client.known_hosts.read_text() == known
    until(lambda: not sshd.session_pids())


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_with_130_and_nothing_is_left_on_the_host(
    sshd: Sshd, moetop: Callable[..., subprocess.Popen[str]], kind: signal.Signals
) -> None:
    process = moetop("--snapshot", "-", "--window", "30", "--host", f"127.0.0.1:{sshd.port}")
    until(lambda: sshd.logins() == 1)
    _, err = interrupt(process, kind)
    assert (process.returncode, err) == (130, "")
    until(lambda: not sshd.session_pids())


def test_an_interrupt_while_connecting_ends_at_once(moetop: Callable[..., subprocess.Popen[str]]) -> None:

    with socket.create_server(("127.0.0.1", 0)) as silent:
        process = moetop("--snapshot", "-", "--host", f"127.0.0.1:{silent.getsockname()[1]}")
        sock, _ = silent.accept()
        interrupt(process, signal.SIGINT)
        sock.close()
    assert process.returncode == 130


def test_what_is_recorded_over_ssh_plays_again(
    sshd: Sshd, moetop: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    file = tmp_path / "r.jsonl.gz"
    process = moetop("--record", str(file), "--duration", "2", "--host", f"127.0.0.1:{sshd.port}")
    process.communicate(timeout=30)
    out, err = moetop("--replay", str(file), "--snapshot", "-").communicate(timeout=30)
    assert [host["name"] for host in json.loads(out)["hosts"]] == [f"127.0.0.1:{sshd.port}"], err
