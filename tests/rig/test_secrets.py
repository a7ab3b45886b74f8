"""Secrets planted in a server's arguments, environment, URLs and log, watched over a real sshd: in no output."""

from __future__ import annotations

import gzip
import os
import signal
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.rig.cli_kit import Moetop, place
from tests.rig.nvml_rig import Scenario
from tests.rig.sshd_rig import Client, Sshd, free_port, until
from tests.rig.standin.prefix import command, make_prefix

MARK = "PLANTED"
"""Part of every secret below and of nothing else."""

ARGUMENTS = (
    "--api-key", f"sk-{MARK}argv00000001", f"--admin-api-key={MARK}Argv2xyz",
    "--download-url", f"https://me:{MARK}urlPass3@models.example/v1?token={MARK}query4",
)  # fmt: skip
ENVIRONMENT = {
    "HF_TOKEN": f"hf_{MARK}Environment5",
    "SGLANG_API_KEY": f"{MARK}Environment6",
    "VLLM_API_KEY": f"{MARK}Environment7",
    "HTTPS_PROXY": f"http://proxy:{MARK}Environment8@10.0.0.1:3128",
    "SGLANG_TORCH_PROFILER_DIR": f"s3://key:{MARK}Environment9@bucket/p",
}
LOG_LINES = (
    f"[2026-02-19 01:02:03 TP0] server_args=ServerArgs(model_path='m', api_key='{MARK}log10', tp_size=2)",
    f"INFO: Authorization: Bearer {MARK}log11abcdefgh",
    f"ERROR: cannot fetch https://user:{MARK}log12@hub.example/x?api_key={MARK}log13",
    f'{{"level": "error", "message": "RuntimeError: denied", "password": "{MARK}log14"}}',
    f"RuntimeError: request failed: {{'authorization': 'Bearer {MARK}log15abcdefgh'}}",
    f"export OPENAI_API_KEY={MARK}log16",
    f"export AWS_SECRET_ACCESS_KEY={MARK}log17/abc+def",
    "-----BEGIN RSA PRIVATE KEY-----" + f"{MARK}log18" + "-----END RSA PRIVATE KEY-----",
)


@pytest.fixture
def planted_host(
    make_sshd: Callable[..., Sshd], client: Client, scenario: Scenario, tmp_path: Path
) -> Iterator[tuple[Sshd, Path]]:
    """A host with a server full of secrets."""
    log = tmp_path / "server.log"
    prefix = make_prefix(tmp_path / "sglang", "sglang")
    port = free_port()
    words = command(prefix, "sglang", ["--model-path", "m", "--tp", "2", "--port", str(port), *ARGUMENTS])
    with log.open("ab") as out:
        server = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=tmp_path, start_new_session=True,
            env={**os.environ, "HOME": str(tmp_path), **ENVIRONMENT},
        )  # fmt: skip
    until(lambda: "ready to roll" in log.read_text())
    with log.open("a") as out:
        out.writelines(f"{line}\n" for line in LOG_LINES)
    sshd = make_sshd(env=scenario.environment)
    client.admit(sshd)
    yield sshd, log
    os.killpg(server.pid, signal.SIGKILL)
    server.wait()


def unpacked(path: Path) -> str:
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8", "replace")


def test_planted_secrets_are_in_no_output_and_every_file_is_private(
    planted_host: tuple[Sshd, Path], moetop: Moetop, tmp_path: Path
) -> None:
    sshd, log = planted_host
    names = ("watched.json", "r.jsonl.gz", "debug.log", "replayed.csv", "replayed.md", "replayed.svg", "triage.json")
    watched, record, debug, *replayed, triage = (str(tmp_path / name) for name in names)
    os.umask(0o022)
    said = [
        moetop("--host", place(sshd), "--snapshot", watched, "--record", record, "--debug", debug, "--window", "0.5"),
        *[moetop("--replay", record, "--snapshot", file, "--format", file.rpartition(".")[2]) for file in replayed],
        moetop("--log", str(log), "--snapshot", triage),
        moetop("--host", place(sshd), "--doctor"),
    ]
    texts = {name: unpacked(tmp_path / name) for name in names}
    texts.update({f"output {n}": one.out + one.err for n, one in enumerate(said)})
    assert [one.code for one in said] == [0] * len(said), [one.err for one in said]
    assert "sglang:" in texts["watched.json"] and "***" in texts["watched.json"]  # the server was found and its
    assert "RuntimeError" in texts["r.jsonl.gz"]  # log was read: there was something to hide
    assert "HF_TOKEN" in texts["r.jsonl.gz"] or "api_key" in texts["r.jsonl.gz"]
    for name, text in texts.items():
        at = text.find(MARK)
        assert at < 0, f"{name}: {text[max(0, at - 120) : at + 40]}"
    for name in names:
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600, name


def test_the_debug_log_is_private_rotates_and_says_version_environment_and_what_happened(
    sshd: Sshd, client: Client, moetop: Moetop, tmp_path: Path
) -> None:
    debug = tmp_path / "debug.log"
    debug.write_bytes(b"x" * (5 << 20))
    moetop("--host", place(sshd), "--host", f"127.0.0.1:{free_port()}", "--snapshot", "-", "--window", "0.3",
           "--interval", "0.1", "--debug", str(debug), f"--log-path=/tmp/token={MARK}abcdefghijkl")  # fmt: skip
    text = debug.read_text()
    assert debug.stat().st_size < 1 << 20
    assert (tmp_path / "debug.log.1").stat().st_size == 5 << 20
    for words in ("moetop 0.", "Python 3.", "Linux", "arguments: --host", "watching", "lost", "refused", "paramiko"):
        assert words in text, words
    assert MARK not in text
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.glob("debug.log*")} == {0o600}


def test_an_unexpected_fault_is_one_line_and_its_traceback_goes_to_the_debug_log(
    moetop: Moetop, tmp_path: Path
) -> None:
    debug = tmp_path / "debug.log"
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Break:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'moetop.demo': raise RuntimeError('no good: password=PLANTEDfault')\n"
        "sys.meta_path.insert(0, Break())\n"
    )
    moetop.environment["PYTHONPATH"] = str(tmp_path)
    said = moetop("--demo", "--snapshot", "-", "--debug", str(debug))
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith("moetop: unexpected fault: RuntimeError: no good") and said.err.count("\n") == 1
    assert "Traceback" in debug.read_text()
    assert MARK not in said.err + debug.read_text()
