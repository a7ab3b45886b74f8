"""A host that has nothing but `nvidia-smi`: a folder with the stand-in program, and the environment to find it."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tests.rig.probe_kit import gone

STAND_IN = Path(__file__).parent / "stand_in_smi.py"


class Smi:
    """A folder with a stand-in `nvidia-smi` and the environment of a host that has only that."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        program = folder / "nvidia-smi"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E {folder}/smi.py "$@"\n')
        program.chmod(0o755)
        (folder / "smi.py").write_text(STAND_IN.read_text())
        self.mode("ok")

    def mode(self, words: str) -> Smi:
        (self.folder / "MODE").write_text(words)
        return self

    @property
    def environment(self) -> dict[str, str]:
        return {"PATH": f"{self.folder}:/usr/bin:/bin", "LD_LIBRARY_PATH": str(self.folder)}


def wait_until_gone(pids: list[int], timeout_s: float = 5.0) -> None:
    end = time.monotonic() + timeout_s
    while not all(gone(pid) for pid in pids):
        assert time.monotonic() < end, f"still there: {[pid for pid in pids if not gone(pid)]}"
        time.sleep(0.02)
