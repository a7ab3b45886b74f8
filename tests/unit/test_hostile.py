"""Hostile input: nothing foreign is put together into a shell's words, and any file can be taken for a recording."""

from __future__ import annotations

import ast
import gzip
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moetop.errors import UsageError
from moetop.recording import MAX_LINE_BYTES, Malformed, clean, index_recording, read_frames, read_host
from moetop.transport.replay import open_recording
from tests.faults import named_tests

ROOT = Path(__file__).parents[2]
SHELLS = {"sh", "bash", "/bin/sh", "/bin/bash"}

MADE_LINES = {
    # module -> why a command line is put together there
    "transport/reach.py": "the user's own ProxyCommand, read by their shell as ssh does; host names are checked before",
    "transport/stream.py": "ssh takes one line; every part goes through shlex.quote",
    "transport/smi_shell.py": "ssh takes one line; every part goes through shlex",
}


def made_at_run_time(node: ast.expr) -> bool:
    """Whether an expression builds text: an f-string with values, +, %, format or join."""
    if isinstance(node, ast.JoinedStr):
        return any(isinstance(part, ast.FormattedValue) for part in node.values)
    if isinstance(node, ast.BinOp):
        return True
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("format", "join")


def shell_words(tree: ast.AST) -> list[ast.expr]:
    """What follows `-c` in lists that start a shell or a program named by a variable, and exec lines of ssh."""
    found: list[ast.expr] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.List):
            words = [part.value if isinstance(part, ast.Constant) else None for part in node.elts]
            if "-c" in words and (words[0] in SHELLS or words[0] is None):
                found += node.elts[words.index("-c") + 1 :][:1]
        first = node.values[0] if isinstance(node, ast.JoinedStr) and node.values else None
        if isinstance(node, ast.JoinedStr) and isinstance(first, ast.Constant) and str(first.value)[:5] == "exec ":
            found.append(node)
    return found


def test_no_shells_words_are_put_together_but_where_the_reason_is_known() -> None:
    made = set()
    for path in (ROOT / "moetop").rglob("*.py"):
        if any(made_at_run_time(words) for words in shell_words(ast.parse(path.read_text("utf-8")))):
            made.add(str(path.relative_to(ROOT / "moetop")))
    assert made == set(MADE_LINES)


def test_words_for_ssh_are_quoted_in_every_place_that_sends_them() -> None:
    for name in ("transport/ssh.py", "transport/openssh.py", "transport/smi_shell.py", "transport/stream.py"):
        tree = ast.parse((ROOT / "moetop" / name).read_text("utf-8"))
        used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        assert used & {"join", "quote"}, name


def test_the_check_itself_sees_what_it_looks_for() -> None:
    bad = ast.parse('run(["sh", "-c", f"cat {name}"]); run([shell, "-c", "cat " + name]); f"exec {name}"')
    assert [made_at_run_time(words) for words in shell_words(bad)] == [True, True, True]
    good = ast.parse('run(["sh", "-c", "cat \\"$1\\"", "x", name]); run(["cat", name])')
    assert [made_at_run_time(words) for words in shell_words(good)] == [False]


pieces = st.one_of(
    st.binary(max_size=60),
    st.sampled_from(
        [
            b'{"type":"gpus","t":1,"gpus":[{"index":0,"util_gpu_pct":5}]}\n',
            b'{"type":"hello","t":0,"host":"a","gpus":[]}\n',
            b'{"type":"log","t":2,"source":"s","line":"\\ud800\\u202e"}\n',
            b'{"type":"gpus","t":1e999,"gpus":[]}\n',
            b'{"type":"gpus","t":-1e18,"gpus":[{"index":-1}]}\n',
            b"\n\n",
            b"[" * 300 + b"\n",
            b'{"type":"status","t":3,"code":1}\n',
        ]
    ),
)


@settings(max_examples=80, deadline=None)
@given(st.lists(pieces, max_size=12).map(b"".join), st.sampled_from(["plain", "packed", "cut"]))
def test_any_file_is_a_recording_or_refused_in_one_sentence(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, form: str
) -> None:
    file = tmp_path_factory.getbasetemp() / "any.jsonl"
    packed = gzip.compress(content)
    file.write_bytes({"plain": content, "packed": packed, "cut": packed[: len(packed) * 2 // 3]}[form])
    try:
        index = index_recording(file)
    except UsageError as error:
        assert error.sentence().isprintable()
        return
    lines = [raw for host in index.hosts.values() for raw in read_host(file, host)]
    assert sum(len(host.offsets) for host in index.hosts.values()) >= len(lines)
    list(read_frames(file))
    for transport in open_recording(file, speed=0):
        for raw in transport.open({}).lines():
            clean(raw)


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"gpus","t":1,"gpus":[' + b'{"index":0},' * 5000 + b'{"index":0}]}',
        b'{"type":"log","t":1,"source":"s","line":"' + b"x" * MAX_LINE_BYTES + b'"}',
        b'{"type":"status","t":1,"code":"c","message":"m","detail":' + b'{"a":' * 400 + b"1" + b"}" * 401,
        b'{"type":"server","t":1,"name":"s","args":{"n":' + b"9" * 5000 + b"}}",
        b'{"type":"gpus","t":1,"gpus":[{"index":0,"power_w":1e308,"util_gpu_pct":"100"}]}',
        b'{"type":"gpus","t":NaN,"gpus":[]}',
        b'{"type":"gpus","t":1,"gpus":{}}',
        b"\xff\xfe\x00",
    ],
    ids=["GPUs", "line", "nesting", "number", "type", "nan", "shape", "bytes"],
)
def test_a_frame_out_of_bounds_is_malformed_with_a_short_reason(line: bytes) -> None:
    frame, _ = clean(line)
    assert isinstance(frame, Malformed)
    assert 0 < len(frame.reason) <= 200


def test_the_fault_table_names_tests_that_exist_and_every_test_of_it() -> None:
    defined: dict[str, set[str]] = {}
    for file, name in named_tests():
        if file not in defined:
            tree = ast.parse((ROOT / file).read_text("utf-8"))
            functions = (ast.FunctionDef, ast.AsyncFunctionDef)
            defined[file] = {node.name for node in ast.walk(tree) if isinstance(node, functions)}
        assert name in defined[file], f"{file} has no {name}"
    named = {name for file, name in named_tests() if file == "tests/rig/test_faults.py"}
    assert named == {name for name in defined["tests/rig/test_faults.py"] if name.startswith("test_")}
