"""`moetop --doctor` over the rig: every step has its line, the broken one its fix, those after it are not reached."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from moetop.doctor import STEPS
from tests.rig.cli_kit import Moetop, Said, ended, place
from tests.rig.nvml_rig import Scenario
from tests.rig.sshd_rig import Client, Sshd, free_port, keygen, until
from tests.rig.standin.prefix import command, make_prefix

LATER = ["nvml", "gpm", "server", "log"]


def steps(said: Said) -> dict[str, tuple[str, str]]:
    """step -> (glyph, words and fix) of a report on one host."""
    found: dict[str, tuple[str, str]] = {}
    step = ""
    for line in said.out.splitlines()[3:]:
        if line.lstrip().startswith("->"):
            found[step] = (found[step][0], f"{found[step][1]} {line.strip()}")
            continue
        glyph, rest = line.split(maxsplit=1)
        step, words = rest[:15].strip(), rest[15:]
        found.setdefault(step, (glyph, words))
    return found


def broken_at(said: Said, step: str) -> str:
    """The words of the one step that failed; everything before is fine, everything after not reached."""
    assert said.code == 4, said.err
    assert said.err == ""
    found = steps(said)
    order = [name for name, _ in STEPS] + LATER
    assert list(found)[: len(order)] == order
    at = order.index(step)
    assert all(found[name][0] == "✓" for name in order[:at]), said.out
    assert found[step][0] == "✕", said.out
    assert all(found[name][0] == "–" for name in order[at + 1 :]), said.out
    assert "->" in found[step][1], "no fix is given"
    return found[step][1]


@pytest.fixture
def doctor(moetop: Moetop) -> Callable[..., subprocess.Popen[str]]:
    moetop.environment["PYTHONIOENCODING"] = "utf-8"
    return lambda *arguments: moetop.start("--doctor", *arguments)


def test_a_host_where_all_is_well_has_a_tick_at_every_step(
    gpu_host: Sshd, doctor: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    log = tmp_path / "server.log"
    prefix = make_prefix(tmp_path / "vllm", "vllm")
    with log.open("wb") as out:
        server = subprocess.Popen(
            command(prefix, "vllm", ["/models/m", f"--port={free_port()}"]),
            stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=tmp_path, start_new_session=True,
            env={**os.environ, "HOME": str(tmp_path)},
        )  # fmt: skip
    try:
        until(lambda: "startup complete" in log.read_text())
        said = ended(doctor("--host", place(gpu_host)))
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
    assert (said.code, said.err) == (0, "")
    found = steps(said)
    assert all(found[step][0] == "✓" for step in [name for name, _ in STEPS] + LATER), said.out
    assert found["settings"][1].endswith(f"@127.0.0.1:{gpu_host.port}")
    assert "NVIDIA H200, driver 580.159.04" in found["nvml"][1]
    assert "vllm" in found["server"][1]
    assert str(log) in said.out


def test_each_broken_step_of_a_connection_is_named_with_its_fix(
    sshd: Sshd, client: Client, doctor: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    here = f"HostName 127.0.0.1\n  Port {sshd.port}\n"
    client.configure(
        f"Host strange\n  {here}  UserKnownHostsFile /dev/null\n"
        f"Host locked\n  {here}  IdentityFile {keygen(tmp_path / 'wrong')}\n",
        identity="Compression no",
    )
    config = tmp_path / "c.yaml"
    config.write_text(
        f"hosts: [{{name: bare, address: 127.0.0.1, port: {sshd.port}, identity_file: {client.key}, "
        "python: /nowhere/python3}]\n"
    )
    closed = free_port()
    running = {
        "host key": doctor("--host", "strange"),
        "authentication": doctor("--host", "locked"),
        "reach": doctor("--host", f"127.0.0.1:{closed}"),
        "python": doctor("--config", str(config)),
    }
    words = {step: broken_at(ended(process), step) for step, process in running.items()}
    assert "ssh-keyscan" in words["host key"]
    assert "key" in words["authentication"]
    assert f"port {closed} refused" in words["reach"]
    assert "no /nowhere/python3" in words["python"]


def test_a_mismatch_of_the_driver_is_the_step_that_failed_with_its_fix(
    gpu_host: Sshd, scenario: Scenario, doctor: Callable[..., subprocess.Popen[str]]
) -> None:
    scenario.write("init 18")
    said = ended(doctor("--host", place(gpu_host)))
    found = steps(said)
    assert (said.code, said.err) == (4, "")
    assert found["python"][0] == "✓"
    assert found["nvml"][0] == "✕" and "reboot" in found["nvml"][1]
    assert found["gpm"] == ("–", "no GPU to ask")


@pytest.mark.parametrize(("name", "words"), [("folder", "is not a regular file"), ("missing.log", "does not exist")])
def test_a_log_that_cannot_be_read_is_said_and_the_host_is_still_watched(
    gpu_host: Sshd, doctor: Callable[..., subprocess.Popen[str]], tmp_path: Path, name: str, words: str
) -> None:
    log = tmp_path / name
    (tmp_path / "folder").mkdir()
    config = tmp_path / "c.yaml"
    config.write_text(
        f"hosts: [{{name: h, address: 127.0.0.1, port: {gpu_host.port}, discover: false, logs: [{log}]}}]"
    )
    said = ended(doctor("--config", str(config)))
    found = steps(said)
    assert found["server"] == ("–", "not looked for (discover: false)")
    assert "rights" not in found
    assert said.code == 0, said.out
    assert found["log"][0] == "✕" and words in found["log"][1], said.out


def test_without_utf8_the_report_is_ascii(moetop: Moetop) -> None:
    moetop.environment.update(PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    said = moetop("--doctor", "--host", f"127.0.0.1:{free_port()}")
    assert said.code == 4 and said.err == ""
    assert "fail reach" in said.out and said.out.isascii()
