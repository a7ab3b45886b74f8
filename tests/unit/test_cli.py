"""The command line: what cannot be meant is refused in a sentence, and nothing ends in a traceback."""

from __future__ import annotations

import argparse
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from moetop import __version__, cli
from moetop.cli import main
from moetop.errors import ExitCode
from moetop.session import load_config, open_session

ROOT = Path(__file__).parents[2]
RECORDING = Path(__file__).parents[1] / "data" / "recordings" / "h200-dense_gemm.jsonl"


@pytest.fixture(autouse=True)
def nobodys_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


def refused(capsys: pytest.CaptureFixture[str], arguments: Sequence[str]) -> str:
    """The sentence on standard error; nothing else is printed anywhere."""
    code = main(list(arguments))
    out, err = capsys.readouterr()
    assert code == ExitCode.USAGE, (code, err)
    assert out == "" and err.startswith("moetop: ") and err.count("\n") == 1, (out, err)
    return err


EXCLUSIVE = ("--host a", "--demo", "--replay f", "--log f", "--retune a")


@pytest.mark.parametrize(
    "pair", [(one, other) for n, one in enumerate(EXCLUSIVE) for other in EXCLUSIVE[n + 1 :]], ids=" ".join
)
def test_two_things_to_watch_exclude_each_other(capsys: pytest.CaptureFixture[str], pair: tuple[str, str]) -> None:
    said = refused(capsys, " ".join(pair).split())
    assert "exclude each other" in said
    assert all(part.split()[0] in said for part in pair)


def test_several_hosts_and_several_pasted_files_go_together(capsys: pytest.CaptureFixture[str]) -> None:
    parser = cli.build_parser()
    for words in ("--host a --host b", "--log x --smi-log y --metrics z"):
        cli._check_combination(parser.parse_args(words.split()))
    assert "only one of" in refused(capsys, ["--log", "-", "--metrics", "-"])


@pytest.mark.parametrize(
    ("words", "need"),
    [
        ("--every 1", "--snapshot"),
        ("--check", "--snapshot"),
        ("--format csv", "--snapshot"),
        ("--speed 2", "--replay"),
        ("--from 1", "--replay"),
        ("--to 1", "--replay"),
        ("--duration 1", "--record"),
        ("--dry-run", "--retune"),
        ("--yes", "--retune"),
        ("--attach", "--retune"),
        ("--server x", "--retune"),
    ],
)
def test_an_option_alone_that_means_nothing_names_what_it_goes_with(
    capsys: pytest.CaptureFixture[str], words: str, need: str
) -> None:
    assert f"{words.split(maxsplit=1)[0]} goes with {need}" in refused(capsys, words.split())


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ("--demo --snapshot --every 1 --format csv", "JSON lines"),
        ("--log x --snapshot --every 1", "not a pasted file"),
        ("--replay x --speed 0", "--speed must be above 0"),
        ("--replay x --speed -3", "--speed must be above 0"),
        ("--replay x --speed nan", "--speed must be above 0"),
        ("--replay x --record y", "something live"),
        ("--log x --record y", "something live"),
        ("--interval 0.05", "GPM needs 0.1 s"),
        ("--interval soon", "'soon' is not a number of seconds"),
        ("--window 0.05", "GPM needs 0.1 s"),
        ("--demo --snapshot --theme drk", "--theme is of the screen; --snapshot has none"),
        ("--retune a --theme dark", "--theme is of the screen"),
        ("--demo --snapshot out.csv --every 1", "JSON lines, not csv"),
        ("--hots a", "did you mean --host?"),
        ("--snapshoot=out.json", "did you mean --snapshot?"),
        ("--qqqqqq", "try moetop --help"),
        ("gpu01", "to watch a host: moetop --host gpu01"),
        ("--demo gpu01;ls", "moetop --host 'gpu01;ls'"),
        ("--window -1", "not a sensible number"),
        ("--window 1e9", "not a sensible number"),
        ("--window nan", "not a sensible number"),
        ("--demo --snapshot --format xml", "invalid choice"),
        ("--dem", "--dem"),
        ("--host", "expected one argument"),
        ("stray", "stray"),
        ("--replay nowhere.jsonl --snapshot", "nowhere.jsonl"),
        ("--log nowhere.log --snapshot", "cannot read nowhere.log"),
        ("--config nowhere.yaml --snapshot", "nowhere.yaml"),
        ("--demo --snapshot nowhere/out.json", "nowhere"),
        ("--retune a --snapshot", "exclude each other"),
        ("--doctor --snapshot", "exclude each other"),
        ("--retune a --doctor", "exclude each other"),
        ("--doctor --demo", "--doctor checks hosts"),
        ("--retune a --attach --dry-run", "--attach follows a job"),
        ("--replay x --from 5 --to 5", "--from must be before --to"),
        ("--demo --debug nowhere/log --snapshot", "cannot write nowhere/log"),
        ("--demo", "the screen needs a terminal"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_is_watched(
    capsys: pytest.CaptureFixture[str], words: str, part: str
) -> None:
    assert part in refused(capsys, words.split())


@pytest.mark.parametrize("action", cli.build_parser()._actions, ids=lambda action: action.option_strings[-1])
def test_an_option_with_one_value_that_is_given_twice_is_refused(
    capsys: pytest.CaptureFixture[str], action: argparse.Action
) -> None:
    if action.option_strings[-1] == "--host" or action.nargs == 0:
        return
    option = action.option_strings[-1]
    value = "json" if option == "--format" else "1"
    assert f"{option} is given twice" in refused(capsys, [option, value, option, value])


@pytest.mark.parametrize(
    ("name", "words"),
    [("server.log", "--log server.log"), ("r.jsonl.gz", "--replay r.jsonl.gz"), ("c.yaml", "--config c.yaml")],
)
def test_a_file_that_stands_alone_is_answered_with_the_option_that_takes_it(
    capsys: pytest.CaptureFixture[str], name: str, words: str
) -> None:
    Path(name).write_text("x")
    assert f"moetop {words}\n" in refused(capsys, [name])


@pytest.mark.parametrize(
    ("words", "begins"),
    [
        ("out.json", b"{"),
        ("out.CSV", b"host,"),
        ("out.md", b"# moetop"),
        ("out.svg", b"<svg"),
        ("out.txt", b"{"),
        ("out.md --format json", b"{"),
    ],
)
def test_the_snapshots_format_follows_from_the_files_name_unless_it_is_given(words: str, begins: bytes) -> None:
    assert main(["--replay", str(RECORDING), "--snapshot", *words.split()]) == 0
    assert Path(words.split(maxsplit=1)[0]).read_bytes().startswith(begins)


@pytest.mark.parametrize("name", ["out.png", "report.PDF", "out.yaml"])
def test_a_name_that_asks_for_another_format_is_refused_before_anything_is_written(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert ".svg" in refused(capsys, ["--replay", str(RECORDING), "--snapshot", name])
    assert not Path(name).exists()
    assert main(["--replay", str(RECORDING), "--snapshot", name, "--format", "json"]) == 0


def test_a_snapshot_of_what_was_read_before_is_not_dated_now(capsys: pytest.CaptureFixture[str]) -> None:
    def taken_at(*words: str) -> float | None:
        assert main([*words, "--snapshot", "-"]) == 0
        found: float | None = json.loads(capsys.readouterr().out)["taken_at"]
        return found

    frame = '{"type":"gpus","t":%s,"gpus":[{"index":0,"util_gpu_pct":5}]}\n'
    Path("epoch.jsonl").write_text(frame % 1771463370.5 + frame % 1771463371.5)
    Path("zero.jsonl").write_text(frame % 0 + frame % 1)
    Path("smi.csv").write_text("timestamp, index, utilization.gpu [%]\n2026/03/05 11:00:00.120, 0, 5 %\n")
    assert taken_at("--replay", "epoch.jsonl") == 1771463371.5
    assert taken_at("--replay", "zero.jsonl") is None
    assert taken_at("--smi-log", "smi.csv") is None
    assert abs((taken_at("--demo") or 0.0) - time.time()) < 60


@pytest.mark.parametrize(
    ("words", "kind"),
    [("--demo", "demo"), (f"--replay {RECORDING}", "recording"), ("--log x", "pasted"), ("", "live")],
)
def test_a_session_knows_what_its_source_is(words: str, kind: str) -> None:
    Path("x").write_text("x")
    args = cli.build_parser().parse_whole(words.split())
    assert open_session(args, load_config(args)).kind == kind


def test_version_and_help_are_the_whole_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr() == (f"moetop {__version__}\n", "")
    assert main(["--help"]) == 0
    out, err = capsys.readouterr()
    assert err == "" and "exit codes:" in out
    parser = cli.build_parser()
    assert all(option in out for action in parser._actions for option in action.option_strings)
    for code in ExitCode:
        assert f"{int(code)} " in out.split("exit codes:")[1], code


def test_a_fault_nobody_expected_is_a_sentence_without_traceback_and_without_secrets(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fails(args: object) -> ExitCode:
        raise RuntimeError("cannot\x1b[2J reach http://me:hunter2@host/\nsecond line")

    monkeypatch.setattr(cli, "_run_mode", fails)
    assert main(["--demo"]) == ExitCode.FAULT
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and "Traceback" not in err and "\x1b" not in err
    assert err.startswith("moetop: unexpected fault: RuntimeError: cannot") and "--debug FILE" in err
    assert "hunter2" not in err


def test_with_a_debug_file_the_traceback_of_a_fault_is_there_and_only_there(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import logging

    from moetop import session

    def fails(*_: object, **given: object) -> None:
        raise ZeroDivisionError("token=sk-abcdefghijklmnopqrstuvwx")

    monkeypatch.setattr(session, "open_session", fails)
    root = logging.getLogger("moetop")
    before = list(root.handlers), root.level, root.propagate
    try:
        assert main(["--demo", "--snapshot", "--debug", "log"]) == ExitCode.FAULT
    finally:
        for handler in set(root.handlers) - set(before[0]):
            handler.close()
            root.removeHandler(handler)
        root.level, root.propagate = before[1:]
    assert "Traceback" not in capsys.readouterr().err
    written = (tmp_path / "log").read_text()
    assert "Traceback" in written and "ZeroDivisionError" in written and "sk-abc" not in written
    assert (tmp_path / "log").stat().st_mode & 0o077 == 0


def test_an_interrupt_ends_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(args: object) -> ExitCode:
        os.kill(os.getpid(), signal.SIGTERM)
        raise AssertionError("SIGTERM did nothing")

    monkeypatch.setattr(cli, "_run_mode", interrupted)
    before = signal.getsignal(signal.SIGINT)
    try:
        assert main(["--demo"]) == ExitCode.INTERRUPTED
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_reader_that_went_away_is_a_normal_end() -> None:
    """`moetop ... | head -c 0`: no word, no exit code but 0."""
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "moetop", "--replay", str(RECORDING), "--snapshot"],
        stdout=write,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        check=False,
        timeout=30,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


def test_where_there_is_no_standard_error_the_exit_code_still_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    assert main(["--every", "1"]) == ExitCode.USAGE


def test_a_log_comes_from_standard_input(
    capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = b"[2026-02-19 01:06:12] The server is fired up and ready to roll!\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert main(["--log", "-", "--snapshot"]) == ExitCode.OK
    assert b'"headline":"healthy"' in capfdbinary.readouterr().out.replace(b'": "', b'":"')
