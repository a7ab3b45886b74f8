"""Nothing that is quoted steers a terminal: error sentences, JSON, a closed standard input, a full debug log."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from moetop.export.json_writer import write_json, write_json_line
from moetop.model import HostReport, Snapshot

HOSTILE = "x\x1b[31mX\x1b]0;p\x07\u202e\x9b1m"


def moetop(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "moetop", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False, **options)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--replay", HOSTILE),
        ("--record", f"/nonexist{HOSTILE}/x"),
        ("--debug", f"/nonexist{HOSTILE}/x"),
        (f"--{HOSTILE}",),
    ],
)
def test_error_sentences_quote_names_without_their_escapes(arguments: tuple[str, ...]) -> None:
    result = moetop(*arguments)
    assert result.returncode == 2
    assert not set(result.stderr.rstrip("\n")) & set("\x1b\x07\u202e\x9b")


def test_json_escapes_what_steers_a_terminal_and_means_the_same() -> None:
    snapshot = Snapshot(hosts=(HostReport(name=f"a\x7f{HOSTILE}\u200f", headline="idle"),))
    for written in (write_json(snapshot), write_json_line(snapshot)):
        assert not set(written.decode().rstrip("\n")) & set("\x1b\x07\u202e\x9b\x7f\u200f")
        assert json.loads(written)["hosts"][0]["name"] == snapshot.hosts[0].name


@pytest.mark.parametrize("option", ["--log", "--smi-log", "--metrics"])
def test_a_closed_standard_input_is_said(option: str) -> None:
    result = moetop(option, "-", "--snapshot", "-", preexec_fn=lambda: os.close(0))
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1
    assert "standard input is closed" in result.stderr


def test_a_debug_log_that_cannot_grow_costs_nothing_but_its_lines(tmp_path: Path) -> None:
    result = moetop("--demo", "--snapshot", str(tmp_path / "s.json"), "--debug", "/dev/full")
    assert result.returncode == 0
    assert "Traceback" not in result.stderr
