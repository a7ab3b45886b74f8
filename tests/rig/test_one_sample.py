"""One sample of this machine: what it must not load, and that the probe started ahead is used or ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from moetop.errors import LinkError
from moetop.transport.base import ProbeOptions
from moetop.transport.installed import installed_argv, program, started_ahead, take
from moetop.transport.local import LocalTransport
from tests.rig.nvml_rig import Scenario
from tests.rig.probe_kit import children_of

ROOT = Path(__file__).parents[2]
SHOW = "\nimport sys; print(*sys.modules, file=sys.stderr)"
ONCE = ProbeOptions.single(1.0).wire()


def run_in_process(scenario: Scenario, home: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    """`moetop ARGV` in an interpreter that then names every module it loaded on standard error."""
    code = f"from moetop.cli import main\ncode = main({list(argv)!r}){SHOW}\nsys.exit(code)"
    environment = {**scenario.full_environment(), "HOME": str(home), "XDG_CONFIG_HOME": str(home)}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False
    )


@pytest.fixture
def busy(scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> Scenario:
    """A busy H200 under the probes that this process starts."""
    for name, value in scenario.environment.items():
        monkeypatch.setenv(name, value)
    return scenario


def test_one_sample_loads_neither_configuration_reader_nor_engine_tables_nor_screens(
    scenario: Scenario, tmp_path: Path
) -> None:
    done = run_in_process(scenario, tmp_path, "--snapshot", "-", "--window", "0")
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout)["hosts"][0]["gpus"][0]["power_w"] == 694.1
    loaded = set(done.stderr.splitlines()[-1].split())
    unwanted = ("yaml", "paramiko", "textual", "plotext", "jsonschema", "pynvml", "moetop.engines.rules")
    assert "moetop.diagnose.host" in loaded and not loaded & set(unwanted)


def test_with_a_configuration_one_sample_says_the_same(scenario: Scenario, tmp_path: Path) -> None:
    plain = run_in_process(scenario, tmp_path, "--snapshot", "-", "--window", "0")
    (tmp_path / "moetop").mkdir()
    (tmp_path / "moetop" / "config.yaml").write_text("interval_s: 2\n")
    configured = run_in_process(scenario, tmp_path, "--snapshot", "-", "--window", "0")
    first, second = (json.loads(done.stdout)["hosts"][0]["gpus"] for done in (plain, configured))
    assert first == second


def test_the_probe_started_ahead_is_the_one_that_is_read(busy: Scenario) -> None:
    with started_ahead(lambda: ONCE):
        begun = children_of(os.getpid())
        channel = LocalTransport().open(ONCE)
        assert children_of(os.getpid()) == begun
        assert take(ONCE) is None
        lines = list(channel.lines())
    assert [json.loads(line)["type"] for line in lines] == ["hello", "gpus", "status"]


def test_a_probe_started_ahead_with_other_options_is_not_read(busy: Scenario) -> None:
    with started_ahead(lambda: ONCE):
        channel = LocalTransport().open({**ONCE, "once": False})
        assert json.loads(next(channel.lines()))["type"] == "hello"
        channel.close()
        ahead = take(ONCE)
    assert ahead is not None
    ahead.communicate(timeout=10)


def test_a_probe_started_ahead_that_nobody_takes_is_ended(busy: Scenario) -> None:
    with pytest.raises(LinkError), started_ahead(lambda: ONCE):
        begun = children_of(os.getpid())
        assert begun
        raise LinkError("the output cannot be written")
    assert not set(begun) & set(children_of(os.getpid()))


def test_the_installed_probe_says_what_the_shipped_one_says(busy: Scenario) -> None:
    own, shipped = (
        [json.loads(line) for line in LocalTransport(python=python).open(ONCE).lines()]
        for python in (None, sys.executable)
    )
    assert [frame["type"] for frame in own] == [frame["type"] for frame in shipped] == ["hello", "gpus", "status"]
    assert own[0]["gpus"] == shipped[0]["gpus"]
    assert own[1]["gpus"] == shipped[1]["gpus"]


def test_the_installed_probe_ends_quietly_without_options() -> None:
    for sent in (b"", b"20\n{", program({})[:3]):
        done = subprocess.run(installed_argv(), input=sent, capture_output=True, check=False, timeout=20)
        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout == b"MOETOP-READY %d.%d\n" % sys.version_info[:2]
