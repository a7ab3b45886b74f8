"""Who may import whom, and what headless runs must not pay for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHOW = "\nimport sys; print(*sorted({name.split('.')[0] for name in sys.modules}), file=sys.stderr)"


def modules_after(code: str) -> set[str]:
    """Top-level modules loaded once `code` has run in an interpreter of its own."""
    done = subprocess.run(
        [sys.executable, "-c", code + SHOW], capture_output=True, text=True, cwd=ROOT, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return set(done.stderr.splitlines()[-1].split())


def cli(*argv: str) -> str:
    return f"from moetop.cli import main\ncode = main({list(argv)!r})\nassert code == 0, code"


def test_the_import_contracts_hold() -> None:
    tool = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([tool, "--no-cache"], capture_output=True, text=True, cwd=ROOT, check=False, timeout=60)
    assert done.returncode == 0, done.stdout[-3000:]
    assert "0 broken" in done.stdout


@pytest.mark.parametrize("form", ["json", "csv"])
def test_a_headless_run_loads_neither_textual_nor_plotext(form: str) -> None:
    loaded = modules_after(cli("--demo", "--snapshot", "-", "--format", form))
    assert "msgspec" in loaded and not loaded & {"textual", "plotext", "rich", "paramiko"}


def test_a_markdown_report_loads_plotext_alone() -> None:
    loaded = modules_after(cli("--demo", "--snapshot", "-", "--format", "md"))
    assert "plotext" in loaded and not loaded & {"textual", "rich", "paramiko"}


def test_triage_of_a_pasted_log_reaches_for_no_wire(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("[2026-02-19 01:06:12] The server is fired up and ready to roll!\n")
    loaded = modules_after(cli("--log", str(log), "--snapshot", "-"))
    assert not loaded & {"textual", "plotext", "paramiko", "pynvml"}


def test_help_loads_next_to_nothing() -> None:
    loaded = modules_after(
        "from moetop.cli import main\ntry:\n    main(['--help'])\nexcept SystemExit as end:\n    assert not end.code"
    )
    assert not loaded & {"msgspec", "yaml", "paramiko", "textual", "plotext", "pynvml"}


def test_a_screen_on_a_host_stands_before_what_its_connection_needs_is_loaded() -> None:
    loaded = modules_after(
        "from moetop.cli import build_parser\nfrom moetop.session import load_config, open_session\n"
        "args = build_parser().parse_args(['--host', 'gpu01'])\n"
        "session = open_session(args, load_config(args))\nassert session.transports[0].name == 'gpu01'"
    )
    assert "moetop" in loaded and "paramiko" not in loaded


def test_no_source_hands_anything_to_a_shell() -> None:
    """Ruff checks shell=True; this finds the ways around it, in what runs here and on the host."""
    ways = ("os.system(", "os.popen(", "shell=True", "getoutput(", "eval(", "exec_command(f", "pty.spawn(")
    found = [
        f"{path.relative_to(ROOT)}: {way}"
        for path in (ROOT / "moetop").rglob("*.py")
        for way in ways
        if way in path.read_text("utf-8").replace("literal_eval(", "")
    ]
    assert found == []


def test_every_module_says_first_what_it_is_for() -> None:
    for path in (ROOT / "moetop").rglob("*.py"):
        if path.stat().st_size:
            first = path.read_text("utf-8").lstrip().splitlines()[0]
            assert first.startswith(('"""', 'r"""')), f"{os.fspath(path)} has no docstring"
