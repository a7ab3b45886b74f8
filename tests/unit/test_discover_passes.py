"""How often /proc is looked through: old processes and kernel threads seldom, and no server is missed by it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from moetop.probe import discover, procfs
from moetop.probe.discover import BORING_PASSES, Finder


@pytest.fixture
def becoming(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A shell that becomes a serving process as soon as a line comes in."""
    script = tmp_path / "sglang" / "launch_server.py"
    script.parent.mkdir()
    script.write_text("import sys\nprint('up', flush=True)\nsys.stdin.read()\n")
    process = subprocess.Popen(
        ["sh", "-c", 'read line; exec "$@"', "sh", sys.executable, str(script), "--tp", "8"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    yield process
    process.kill()
    process.wait()


def test_an_old_process_that_turns_into_a_server_is_found_within_a_few_passes(
    becoming: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discover, "OLD_S", 0.0)
    finder = Finder()
    assert becoming.pid not in [server.pid for server in finder.find({})]
    assert becoming.stdin and becoming.stdout
    becoming.stdin.write(b"go\n")
    becoming.stdin.flush()
    assert becoming.stdout.readline() == b"up\n"
    passes = [[server.pid for server in finder.find({})] for _ in range(BORING_PASSES)]
    assert becoming.pid not in passes[0], "it was looked at again at once"
    assert becoming.pid in passes[-1]


def test_old_processes_are_not_read_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discover, "OLD_S", 0.0)
    read: list[int] = []
    plain = procfs.argv
    monkeypatch.setattr(procfs, "argv", lambda pid: read.append(pid) or plain(pid))
    finder = Finder()
    finder.find({})
    first = set(read)
    for _ in range(BORING_PASSES - 1):
        finder.find({})
    again = [pid for pid in read[len(first) :] if pid in first and plain(pid)]
    assert len(again) < len(first) / 2
