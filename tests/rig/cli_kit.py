"""The `moetop` command as a person starts it: a process of its own, the rig's ssh_config, nothing of the user's."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest

from tests.rig.nvml_rig import Scenario
from tests.rig.sshd_rig import Client, Sshd

PATIENCE_S = 45.0
FAST = ("--window", "0.3", "--interval", "0.1")


@dataclass(frozen=True)
class Said:
    """How a command ended."""

    code: int
    out: str
    err: str

    def hosts(self) -> dict[str, dict[str, Any]]:
        return {host["name"]: host for host in json.loads(self.out)["hosts"]}


AS_A_TERMINAL = ("env", "--default-signal=INT")
"""A test run in the background hands down that SIGINT is ignored; a terminal does not."""


class Moetop:
    """Starts `moetop`; every process it started is gone after the test."""

    def __init__(self, folder: Path, client: Client | None = None) -> None:
        self.folder = folder
        self.environment = {
            **os.environ,
            "XDG_CONFIG_HOME": str(folder / "xdg-config"),
            "XDG_STATE_HOME": str(folder / "xdg-state"),
            "PYTHONFAULTHANDLER": "",
        }
        if client is not None:
            self.environment["MOETOP_SSH_CONFIG"] = str(client.config)
        self.started: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str, **settings: Any) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*AS_A_TERMINAL, sys.executable, "-m", "moetop", *arguments],
            env=self.environment,
            cwd=settings.pop("cwd", self.folder),
            stdin=settings.pop("stdin", subprocess.DEVNULL),
            stdout=settings.pop("stdout", subprocess.PIPE),
            stderr=settings.pop("stderr", subprocess.PIPE),
            text=True,
            **settings,
        )
        self.started.append(process)
        return process

    def __call__(self, *arguments: str, **settings: Any) -> Said:
        return ended(self.start(*arguments, **settings))

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
                process.wait()
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()


def ended(process: subprocess.Popen[str], timeout_s: float = PATIENCE_S) -> Said:
    """Wait for the end."""
    out, err = process.communicate(timeout=timeout_s)
    return Said(process.returncode, out or "", err or "")


def sentence(said: Said) -> str:
    """The one line on standard error; fails where it is not exactly one, or is a traceback."""
    assert "Traceback" not in said.err
    lines = said.err.splitlines()
    assert len(lines) == 1 and lines[0].startswith("moetop: "), said.err
    assert "unexpected fault" not in said.err
    return lines[0]


def interrupt(process: subprocess.Popen[str], kind: signal.Signals = signal.SIGINT) -> Said:
    """Press control-C and wait for the end."""
    process.send_signal(kind)
    return ended(process, 10)


class Lines:
    """Standard output of a running process, line by line."""

    def __init__(self, stream: IO[str]) -> None:
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._stream = stream
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        with contextlib.suppress(ValueError):
            for line in self._stream:
                with self._changed:
                    self.lines.append(line)
                    self._changed.notify_all()

    def until(self, wanted: Callable[[str], object], timeout_s: float = PATIENCE_S) -> str:
        """The first line that is wanted."""
        with self._changed:
            found = self._changed.wait_for(lambda: next(filter(wanted, self.lines), None), timeout_s)
        assert found, self.lines[-3:]
        return found


@pytest.fixture
def moetop(client: Client, tmp_path: Path) -> Iterator[Moetop]:
    command = Moetop(tmp_path, client)
    yield command
    command.close()


@pytest.fixture
def gpu_host(make_sshd: Callable[..., Sshd], client: Client, scenario: Scenario) -> Sshd:
    """An sshd whose sessions find the stand-in driver."""
    server = make_sshd(env=scenario.environment)
    client.admit(server)
    return server


def place(server: Sshd) -> str:
    """A server as --host takes it."""
    return f"127.0.0.1:{server.port}"
