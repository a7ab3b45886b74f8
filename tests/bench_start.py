"""Start-up: --help, and one sample of this machine against the tools that show one."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from tests.bench_kit import Figure, Times, environment, time_in_turn
from tests.bench_ui import Terminal
from tests.rig.nvml_rig import SOURCE, Scenario
from tests.rig.sshd_rig import free_port

PAINTS = 7

PEERS = (("nvitop -1", "nvitop", ("-1",)), ("gpustat --json", "gpustat", ("--json",)))


def figures() -> list[Figure]:
    """Real NVML where this machine has it, else the stand-in library."""
    with tempfile.TemporaryDirectory(prefix="moetop-bench-") as folder:
        real = shutil.which("nvidia-smi") is not None
        more = {} if real else Scenario(Path(folder) / "nvml.scenario", peers_library(Path(folder))).environment
        env = environment(more)
        moetop = [sys.executable, "-m", "moetop"]
        what = "moetop --snapshot - --window 0"
        peers = {name: found for name, program, _ in PEERS if (found := _find(program)) is not None}
        commands = [[sys.executable, "-c", "pass"], [*moetop, "--help"], [*moetop, "--snapshot", "-", "--window", "0"]]
        commands += [[peers[name], *arguments] for name, _, arguments in PEERS if name in peers]
        bare, help_, one, *theirs = time_in_turn(commands, env)
        rows = [
            Figure("python -c pass", bare.wall_s * 1000, "ms", note=_note(bare)),
            Figure("moetop --help", help_.wall_s * 1000, "ms", "150 ms wanted", 150, _note(help_)),
            Figure(what, one.wall_s * 1000, "ms", note=_note(one)),
            *_first_paints(env),
        ]
        rows += [Figure(what, None, "ms", note=f"{name} is not installed") for name, _, _ in PEERS if name not in peers]
        for name, peer in zip(peers, theirs, strict=True):
            rows.append(Figure(what, one.wall_s * 1000, "ms", name, peer.wall_s * 1000, _note(peer)))
    return rows


def _first_paints(env: Mapping[str, str]) -> list[Figure]:
    """From the start of the process to the first picture, before a host has answered."""
    rows = []
    for arguments in (["--demo"], ["--host", f"127.0.0.1:{free_port()}"]):
        took = []
        for _ in range(PAINTS):
            terminal = Terminal(120, 40, [sys.executable, "-m", "moetop", *arguments], env)
            terminal.read(10.0, until=b"moetop")
            took.append((time.perf_counter() - terminal.started) * 1000)
            terminal.close()
        what = f"moetop {arguments[0]}: first paint at 120x40"
        rows.append(Figure(what, statistics.median(took), "ms", "500 ms wanted", 500, f"best {min(took):.0f} ms"))
    return rows


def peers_library(folder: Path) -> Path:
    """The stand-in library with the calls that the other tools make."""
    command = ["gcc", "-shared", "-fPIC", "-O1", "-Wl,-soname,libnvidia-ml.so.1"]
    command += ["-o", str(folder / "libnvidia-ml.so.1"), str(SOURCE.with_name("peers.c")), "-lm", "-lpthread"]
    subprocess.run(command, check=True, capture_output=True)
    return folder


def _find(program: str) -> str | None:
    beside = Path(sys.executable).with_name(program)
    return str(beside) if beside.exists() else shutil.which(program)


def _note(times: Times) -> str:
    failed = f", EXIT STATUS {times.status}" if times.status else ""
    return f"best {times.best_s * 1000:.0f} ms, processor {times.cpu_s * 1000:.0f} ms{failed}"
