"""Fixtures that put the stand-in NVML library under a probe: `nvml_lib` (its folder) and `scenario`."""

from __future__ import annotations

import fcntl
import os
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent / "nvml" / "nvml.c"
BUILD = Path(__file__).parents[1] / ".build"


def build_library(*, old_driver: bool = False) -> Path:
    """Compile the stand-in when its source is newer; the folder that holds `libnvidia-ml.so.1`."""
    folder = BUILD / ("nvml-old" if old_driver else "nvml")
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / "libnvidia-ml.so.1"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists() or library.stat().st_mtime < SOURCE.stat().st_mtime:
            fresh = folder / "fresh.so"
            flags = ["-DOLD_DRIVER"] if old_driver else []
            command = ["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", *flags]
            command += ["-Wl,-soname,libnvidia-ml.so.1", "-o", str(fresh), str(SOURCE), "-lm", "-lpthread"]
            subprocess.run(command, check=True, capture_output=True, text=True)
            fresh.rename(library)
    return folder


class Scenario:
    """The file that the stand-in library reads. Lines are `key value`, see nvml/nvml.c."""

    def __init__(self, path: Path, library: Path) -> None:
        self.path = path
        self.library = library
        self._lines: list[str] = []
        self.write()

    def write(self, *lines: str) -> Scenario:
        """Say exactly these lines from now on."""
        self._lines = list(lines)
        return self._flush()

    def add(self, *lines: str) -> Scenario:
        """Say these lines as well; the last of a key wins."""
        self._lines += lines
        return self._flush()

    def drop(self, key: str) -> Scenario:
        """Take back every line of a key."""
        self._lines = [line for line in self._lines if line.split(maxsplit=1)[0] != key]
        return self._flush()

    def _flush(self) -> Scenario:
        fresh = self.path.with_suffix(".new")
        fresh.write_text("".join(f"{line}\n" for line in self._lines))
        fresh.rename(self.path)
        return self

    @property
    def environment(self) -> dict[str, str]:
        """Variables for the probe's process (`sshd -o SetEnv=...` can carry them too)."""
        return {"MOETOP_NVML_SCENARIO": str(self.path), "LD_LIBRARY_PATH": str(self.library)}

    def full_environment(self) -> dict[str, str]:
        return {**os.environ, **self.environment}


@pytest.fixture(scope="session")
def nvml_lib() -> Path:
    """Folder with the stand-in `libnvidia-ml.so.1`, for LD_LIBRARY_PATH."""
    return build_library()


@pytest.fixture
def scenario(tmp_path: Path, nvml_lib: Path) -> Scenario:
    """One healthy busy H200; write other lines to change it, also while it is watched."""
    return Scenario(tmp_path / "nvml.scenario", nvml_lib)
