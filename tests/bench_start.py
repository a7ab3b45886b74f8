"""Start-up: --help, and one sample of this machine against the tools that show one."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from tests.bench_kit import Figure, Times, environment, time_command
from tests.rig.nvml_rig import Scenario, build_library

PEERS = (("nvitop -1", "nvitop", ("-1",)), ("gpustat --json", "gpustat", ("--json",)))


def figures() -> list[Figure]:
    """Real NVML where this machine has it, else the stand-in library."""
    with tempfile.TemporaryDirectory(prefix="moetop-bench-") as folder:
        real = shutil.which("nvidia-smi") is not None
        more = {} if real else Scenario(Path(folder) / "nvml.scenario", build_library()).environment
        env = environment(more)
        moetop = [sys.executable, "-m", "moetop"]
        bare = time_command([sys.executable, "-c", "pass"], env)
        one = time_command([*moetop, "--snapshot", "-", "--window", "0"], env)
        help_ = time_command([*moetop, "--help"], env)
        rows = [
            Figure("python -c pass", bare.wall_s * 1000, "ms", note=_note(bare)),
            Figure("moetop --help", help_.wall_s * 1000, "ms", "150 ms wanted", 150, _note(help_)),
        ]
        what = "moetop --snapshot - --window 0"
        rows.append(Figure(what, one.wall_s * 1000, "ms", note=_note(one)))
        for name, program, arguments in PEERS:
            found = _find(program)
            if found is None:
                rows.append(Figure(what, None, "ms", note=f"{name} is not installed"))
                continue
            peer = time_command([found, *arguments], env)
            note = "" if real else "over the stand-in library, which lacks calls it makes"
            rows.append(Figure(what, one.wall_s * 1000, "ms", name, peer.wall_s * 1000, note))
            rows.append(Figure("  processor time of both", one.cpu_s * 1000, "ms", name, peer.cpu_s * 1000))
    return rows


def _find(program: str) -> str | None:
    beside = Path(sys.executable).with_name(program)
    return str(beside) if beside.exists() else shutil.which(program)


def _note(times: Times) -> str:
    failed = f", EXIT STATUS {times.status}" if times.status else ""
    return f"best {times.best_s * 1000:.0f} ms, processor {times.cpu_s * 1000:.0f} ms{failed}"
