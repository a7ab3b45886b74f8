"""From the command to the first sample of a host behind a real sshd on this machine: snapshot and screen."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import statistics
import struct
import sys
import tempfile
import termios
import time
from collections.abc import Mapping
from pathlib import Path

from tests.bench_kit import Figure, environment, time_command
from tests.rig.nvml_rig import Scenario, build_library
from tests.rig.sshd_rig import Client, Sshd

WANTED_S = 1.5
RUNS = 5
POWER = re.compile(rb"\b694\b")
"""The stand-in's power draw: on screen once a sample is."""


def figures() -> list[Figure]:
    """Snapshot and screen, both from the start of the process; the bare login beside them."""
    with tempfile.TemporaryDirectory(prefix="moetop-bench-") as name:
        folder = Path(name)
        scenario = Scenario(folder / "nvml.scenario", build_library())
        client = Client(folder / "client")
        sshd = Sshd(folder / "sshd", env=scenario.environment).start()
        client.admit(sshd)
        try:
            return _measure(client, sshd)
        finally:
            sshd.kill()


def _measure(client: Client, sshd: Sshd) -> list[Figure]:
    env = environment({"MOETOP_SSH_CONFIG": str(client.config)})
    host = ["--host", f"127.0.0.1:{sshd.port}"]
    login = time_command(["ssh", "-F", str(client.config), "-p", str(sshd.port), "127.0.0.1", "true"], env)
    python = time_command(["ssh", "-F", str(client.config), "-p", str(sshd.port), "127.0.0.1", "python3 -c pass"], env)
    moetop = [sys.executable, "-m", "moetop", *host]
    once = time_command([*moetop, "--snapshot", "-", "--window", "0"], env, RUNS)
    screens = [first_sample_s([*moetop], env) for _ in range(RUNS)]
    return [
        Figure("ssh HOST true", login.wall_s, "s"),
        Figure("ssh HOST python3 -c pass", python.wall_s, "s"),
        Figure("snapshot --window 0 over sshd", once.wall_s, "s", f"{WANTED_S} s wanted", WANTED_S,
               f"processor of the client {once.cpu_s:.2f} s" + (f", EXIT STATUS {once.status}" if once.status else "")),
        Figure("first sample on the screen", statistics.median(screens), "s", f"{WANTED_S} s wanted", WANTED_S,
               f"best {min(screens):.2f} s"),
    ]  # fmt: skip


def first_sample_s(argv: list[str], env: Mapping[str, str], patience_s: float = 20.0) -> float:
    """Seconds from the start of a screen in a pseudo-terminal until the power draw is painted."""
    begun = time.perf_counter()
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(argv[0], argv, {**env, "TERM": "xterm-256color", "LANG": "C.UTF-8"})
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    seen = b""
    while not POWER.search(seen):
        left = begun + patience_s - time.perf_counter()
        if left <= 0 or not select.select([terminal], [], [], left)[0]:
            raise TimeoutError(f"no sample within {patience_s} s; the screen ends in {seen[-300:]!r}")
        seen += os.read(terminal, 65536)
    took = time.perf_counter() - begun
    os.write(terminal, b"q")
    while True:
        try:
            if not os.read(terminal, 65536):
                break
        except OSError:
            break
    os.waitpid(pid, 0)
    os.close(terminal)
    return took
