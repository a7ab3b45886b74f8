"""A pasted text that is not what its option says is said to be so; a real log never is."""

from __future__ import annotations

import gzip
import json
import os
import random
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from moetop.cli import main
from moetop.triage.pasted import is_smi_output
from tests.unit.test_triage import PROCESSES, TABLE_HEAD, TABLE_ROW

LOG = (
    "WARNING 09-01 10:00:00 [fused_moe.py:886] Using default MoE config. Performance might be sub-optimal! "
    "Config file not found at /x/E=8,N=14336,device_name=NVIDIA_H200.json\n"
)
CSV = "index, name, utilization.gpu [%], power.draw [W]\n0, NVIDIA H200, 100 %, 300.00 W\n"
HEADLESS = "0, NVIDIA H200, 100 %, 300.00 W\n1, NVIDIA H200, 99 %, 310.00 W\n"
DMON = "# gpu    pwr  gtemp     sm    mem\n# Idx      W      C      %      %\n    0    231     61     97      8\n"
TABLE = TABLE_HEAD + TABLE_ROW.format(index=0, bus="06", power=300, util=100) + PROCESSES


@pytest.fixture(autouse=True)
def nobodys_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)


def triage(capsys: pytest.CaptureFixture[str], option: str, content: bytes | str) -> tuple[int, dict[str, Any], str]:
    """Exit code, the host of the snapshot, and standard error."""
    Path("pasted").write_bytes(content if isinstance(content, bytes) else content.encode())
    code = main([option, "pasted", "--snapshot", "-", "--check"])
    out, err = capsys.readouterr()
    return code, json.loads(out)["hosts"][0] if out else {}, err


def test_an_empty_log_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = triage(capsys, "--log", "")
    assert code == 2 and "the log pasted is empty" in err


@pytest.mark.parametrize("text", [CSV, HEADLESS, DMON, TABLE], ids=("csv", "headless", "dmon", "table"))
def test_output_of_nvidia_smi_given_as_a_log_is_sent_to_its_own_option(
    capsys: pytest.CaptureFixture[str], text: str
) -> None:
    code, _, err = triage(capsys, "--log", text)
    assert code == 2 and "use --smi-log" in err


def test_a_recording_or_a_compressed_file_given_as_a_log_is_answered_with_what_reads_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    frame = '{"type":"hello","t":0,"gpus":[]}\n'
    packed = gzip.compress(LOG.encode())
    assert "is a recording, not a server's log; use --replay" in triage(capsys, "--log", frame)[2]
    assert "pasted is compressed; zcat pasted | moetop --log -" in triage(capsys, "--log", packed)[2]
    code, _, err = triage(capsys, "--log", '{"type":"request","t":0}\n{"type":"log"}\n')
    assert (code, err) == (0, "")


@pytest.mark.parametrize("option", ["--smi-log", "--metrics"])
def test_a_log_given_as_something_else_is_sent_to_its_own_option(
    capsys: pytest.CaptureFixture[str], option: str
) -> None:
    code, _, err = triage(capsys, option, LOG)
    assert code == 2 and "use --log" in err


@pytest.mark.parametrize(
    "content",
    [b"hello\nworld\n" * 300, b"\n \n", random.Random(1).randbytes(200_000)],
    ids=("words", "blank", "random"),
)
def test_a_text_of_which_no_line_is_understood_gets_no_clean_bill(
    capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    code, host, _ = triage(capsys, "--log", content)
    assert code == 0
    assert any("was understood: is this a server's log?" in note for note in host["notes"]), host["notes"]


@pytest.mark.parametrize(
    "text",
    [
        LOG,
        "hello\n" * 1000 + LOG,
        TABLE + LOG,
        'INFO:     127.0.0.1:5 - "GET /health HTTP/1.1" 200 OK\n',
    ],
    ids=("event", "late", "after a table", "only counted"),
)
def test_a_log_with_one_line_that_is_understood_is_a_log(capsys: pytest.CaptureFixture[str], text: str) -> None:
    code, host, err = triage(capsys, "--log", text)
    assert code in (0, 3) and err == ""
    assert not any("understood" in note for note in host["notes"])


def test_a_pipe_that_begins_with_a_table_is_read_on_and_loses_nothing() -> None:
    command = [sys.executable, "-m", "moetop", "--log", "-", "--snapshot", "-"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        out: list[bytes] = []
        reader = threading.Thread(target=lambda: out.append(process.stdout.read() if process.stdout else b""))
        reader.start()
        process.stdin.write(TABLE.encode())
        process.stdin.flush()
        process.stdin.write((LOG + "hello\n" * 30_000 + LOG.replace("N=14336", "N=7168")).encode())
        process.stdin.close()
        reader.join(60)
    server = json.loads(out[0])["hosts"][0]["servers"][0]
    assert server["counts"]["moe_config_default"] == 2


def test_a_table_within_a_log_is_no_reason_to_call_it_something_else() -> None:
    assert is_smi_output(TABLE) and not is_smi_output(TABLE + LOG) and not is_smi_output("hello\n")
