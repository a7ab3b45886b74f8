"""The program that travels: parses on old Pythons, moves files without loss, judges tables, reads logs."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from moetop.errors import LinkError
from moetop.retune import wire
from moetop.retune.host import files, logs, procs, restore, store, web
from moetop.transport.base import Completed

TILES = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 64}


@pytest.fixture
def changes():
    return []


def test_every_module_that_travels_parses_on_python_3_8_and_imports_only_the_standard_library():
    for name, source in wire.program().items():
        tree = ast.parse(source, feature_version=(3, 8))
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                assert all(alias.name.partition(".")[0] in sys.stdlib_module_names for alias in node.names), name
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                assert node.module.partition(".")[0] in sys.stdlib_module_names, (name, node.module)


def test_a_python_2_would_still_be_able_to_say_that_it_is_too_old():
    head = wire.LOADER.split("import json")[0]
    assert "sys.exit" in head and 'f"' not in head


def test_what_was_moved_aside_is_put_back_byte_for_byte_and_undoing_twice_does_no_harm(tmp_path, changes):
    old = tmp_path / "rank_tp0_pp0_dp0.json"
    old.write_bytes(b"\x00old")
    files.move_aside(str(old), "job1", changes.append)
    assert not old.exists() and not files.expand([str(tmp_path / "rank*.json")])
    old.write_bytes(b"new")
    for _ in range(2):
        for change in reversed(changes):
            files.undo(change)
    assert old.read_bytes() == b"\x00old"
    assert [path.read_bytes() for path in tmp_path.glob("*.moetop-tuned-*")] == [b"new"]


def test_an_installed_table_is_taken_away_and_the_earlier_one_comes_back(tmp_path, changes):
    source, target = tmp_path / "made.json", tmp_path / "a/b/E=1.json"
    source.write_text("new")
    target.parent.mkdir(parents=True)
    target.write_text("old")
    inode = target.stat().st_ino
    files.install(str(source), str(target), "job1", changes.append)
    assert target.read_text() == "new"
    for _ in range(2):
        for change in reversed(changes):
            files.undo(change)
    assert target.read_text() == "old" and target.stat().st_ino == inode


def test_folders_that_were_made_for_a_table_go_again_when_empty(tmp_path, changes):
    source, target = tmp_path / "made.json", tmp_path / "x/y/E=1.json"
    source.write_text("new")
    old_mask = os.umask(0o077)
    files.install(str(source), str(target), "job1", changes.append)
    os.umask(old_mask)
    assert target.parent.stat().st_mode & 0o777 == 0o755 and target.stat().st_mode & 0o777 == 0o644
    said = [files.undo(change) for change in reversed(changes)]
    assert any("taken away" in words for words in said if words)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not readable JSON"),
        ("[]", "does not map"),
        ("{}", "no batch size"),
        ('{"1": {"BLOCK_SIZE_M": 16}}', "no tile sizes for batch size 1"),
        ('{"1": {"BLOCK_SIZE_M": true, "BLOCK_SIZE_N": 1, "BLOCK_SIZE_K": 1}}', "no tile sizes"),
    ],
)
def test_a_table_the_engine_could_not_use_is_not_taken(text, words):
    with pytest.raises(files.Unusable, match=words):
        files.check_triton_json(text.encode(), "t.json")


def test_a_link_in_the_place_of_a_table_is_not_followed(tmp_path):
    (tmp_path / "secret").write_text("{}")
    (tmp_path / "t.json").symlink_to(tmp_path / "secret")
    with pytest.raises(files.Unusable, match="cannot be read"):
        files.read_made(str(tmp_path / "t.json"))
    with pytest.raises(files.Unusable, match="was not written"):
        files.read_made(str(tmp_path / "none.json"))


@pytest.mark.parametrize("before", [None, b"old"])
def test_what_a_configured_tuner_wrote_itself_is_taken_back(tmp_path, changes, before):
    table = tmp_path / "E=1.json"
    if before is not None:
        table.write_bytes(before)
    files.keep_as_it_is(str(table), "job1", changes.append)
    table.write_bytes(b"new")
    for _ in range(2):
        files.undo(changes[0])
    assert (table.read_bytes() if table.exists() else None) == before


def test_a_table_with_words_beside_its_batch_sizes_is_fine():
    made = json.dumps({"triton_version": "3.6.0", "1": TILES, "64": TILES})
    assert files.check_triton_json(made.encode(), "t.json") == 2


def test_a_log_is_read_from_where_it_was_through_rotation_and_bars(tmp_path):
    path = tmp_path / "log"
    path.write_text("before\n")
    tail = logs.LogTail({"kind": "file", "target": str(path)})
    with path.open("a") as log:
        log.write("\x1b[32mone\x1b[0m\nbar 10%\rbar 20%\rhalf")
    assert tail.lines() == ["one", "bar 10%", "bar 20%"]
    path.rename(tmp_path / "log.1")
    path.write_text(" line\nnew\n")
    assert tail.lines() == ["half line", "new"]
    assert logs.LogTail({"kind": "file", "target": str(path)}, {"offset": 6, "since": 0}).lines() == ["new"]


def test_a_process_is_known_by_its_start_not_by_its_number(tmp_path):
    child = subprocess.Popen(["sleep", "60"])
    ident = procs.identity(child.pid)
    assert procs.alive(ident) and not procs.alive({**ident, "ticks": ident["ticks"] - 1})
    assert not procs.alive({**ident, "boot": "another"})
    assert not procs.send({**ident, "ticks": 1}, 9) and procs.alive(ident)
    child.kill()
    while procs.identity(child.pid):
        pass
    assert not procs.alive(ident), "a zombie is gone"
    child.wait()


def test_a_start_command_that_leads_elsewhere_is_not_taken_for_the_servers(tmp_path):
    exe = str(Path(sys.executable).resolve())
    assert restore.program([sys.executable], "/", "", exe) == sys.executable
    assert restore.program([Path(exe).name], "/", str(Path(exe).parent), exe) == exe
    assert restore.program(["sglang::scheduler_TP0"], "/", "/usr/bin", exe) is None
    assert restore.program(["/bin/sh"], "/", "", exe) is None
    assert restore.program([], "/", "", exe) is None


def test_where_a_stream_goes_is_told_with_the_reader_of_a_pipe(tmp_path):
    with (tmp_path / "log").open("w") as log:
        child = subprocess.Popen(["sleep", "60"], stdin=subprocess.PIPE, stdout=log, stderr=subprocess.DEVNULL)
    try:
        assert procs.stream(child.pid, 1) == {"kind": "file", "target": str(tmp_path / "log"), "deleted": False}
        assert procs.stream(child.pid, 2)["kind"] == "null" and procs.stream(child.pid, 0)["kind"] == "pipe"
        (tmp_path / "log").unlink()
        assert procs.stream(child.pid, 1)["deleted"]
    finally:
        child.kill()
        child.wait()
        child.stdin.close()


def test_numbers_are_summed_over_labels_under_the_first_name_that_is_there():
    text = '# HELP x\nsglang:num_running_reqs{a="1 2"} 3.0\nsglang:num_running_reqs{a="}"} 4\nodd # {t="x"} 1\n'
    names = {"running": ["vllm:num_requests_running", "sglang:num_running_reqs"], "waiting": ["none"]}
    assert web.totals(text, names) == {"running": 7.0}


def test_a_lock_is_held_against_others_and_ends_with_its_process(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    code = (
        "import sys, time; from moetop.retune.host import store\n"
        "lock = store.Lock('port 1x'); lock.take({'who': 'ann@desk', 'job': 'j', 'since': time.time()})\n"
        "print('held', flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(store.Busy, match="ann@desk since"):
        store.Lock("port 1x").take({})
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other-user"))
    with pytest.raises(store.Busy, match=f"process {holder.pid}"):
        store.Lock("port 1x").take({})
    holder.kill()
    holder.wait()
    holder.stdout.close()
    lock = store.Lock("port 1x")
    lock.take({"who": "me", "since": 0})
    assert "me" in lock.holder()


class Answers:
    """A transport that answers with fixed bytes: what a hostile or broken host may send."""

    name = "h"

    def __init__(self, stdout: bytes) -> None:
        self.stdout = stdout

    def run(self, argv, stdin=b"", timeout_s=30.0) -> Completed:
        return Completed(returncode=0, stdout=self.stdout, stderr=b"bash: python3: \x1b[31mnot found")


def test_a_banner_before_the_answer_does_no_harm_and_an_error_cannot_move_the_cursor():
    reply = wire.ask(Answers(b'Welcome!MOETOP-RETUNE:{"jobs": ["\\u001b[2J"]}\n'), {})
    assert reply["jobs"] == ["\x1b[2J"]
    with pytest.raises(wire.HostError) as told:
        wire.ask(Answers(b'MOETOP-RETUNE:{"error": "\\u001b[2Jno"}'), {})
    assert "\x1b" not in str(told.value)


@pytest.mark.parametrize("sent", [b"", b"MOETOP-RETUNE:{", b"MOETOP-RETUNE:[1]"])
def test_no_answer_or_a_broken_one_is_a_link_error_in_words(sent):
    with pytest.raises(LinkError) as told:
        wire.ask(Answers(sent), {})
    assert "\x1b" not in str(told.value)
