"""Runs every test that the table of docs/reliability.md names: `python -m tests.faults`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "docs" / "reliability.md"
NAME = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def named_tests() -> list[tuple[str, str]]:
    """(file, test) of every row, in the order of the table, each once."""
    return list(dict.fromkeys(NAME.findall(TABLE.read_text("utf-8"))))


def main() -> int:
    """Exit status of pytest."""
    names = [f"{file}::{test}" for file, test in named_tests()]
    command = [sys.executable, "-m", "pytest", "-p", "no:xdist", "-v", *names, *sys.argv[1:]]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
