"""A real terminal of a given size, by tmux, with `moetop` in it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rig.cli_kit import Moetop

needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")


class Terminal:
    """A real terminal of a given size with `moetop` in it."""

    def __init__(self, moetop: Moetop, folder: Path, width: int, height: int, *arguments: str) -> None:
        self.socket = str(folder / "tmux")
        self.status = folder / "status"
        words = " ".join([sys.executable, "-m", "moetop", *arguments])
        environment = {**moetop.environment, "TERM": "screen-256color", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}
        for name in ("COLUMNS", "LINES", "NO_COLOR"):  # they would speak of another terminal
            environment.pop(name, None)
        self.tmux(
            "-f", "/dev/null", "new-session", "-d", "-x", str(width), "-y", str(height),
            f"{words}; echo $? > {self.status}; sleep 60", env=environment,
        )  # fmt: skip

    def tmux(self, *words: str, env: dict[str, str] | None = None) -> str:
        command = ["tmux", "-u", "-S", self.socket, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True, env=env).stdout

    def text(self) -> str:
        return self.tmux("capture-pane", "-p")

    def press(self, key: str) -> None:
        self.tmux("send-keys", key)

    def ended(self) -> bool:
        return self.status.exists() and self.status.read_text().strip() != ""

    def close(self) -> None:
        subprocess.run(["tmux", "-S", self.socket, "kill-server"], check=False, capture_output=True)
