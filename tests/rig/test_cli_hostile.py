"""Names and paths made of shell words, given to the `moetop` command every way there is: nothing runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from moetop.cli import main
from tests.rig.cli_kit import Moetop, place, sentence
from tests.rig.sshd_rig import Sshd

HOSTILE = (
    "$(touch {mark})",
    "`touch {mark}`",
    "; touch {mark}",
    "a;touch${{IFS}}{mark}",
    "| touch {mark}",
    "a\ntouch {mark}",
    "-oProxyCommand=touch {mark}",
    "-E{mark}",
    "x'$(touch {mark})'",
    "root@$(touch {mark})",
    "$(touch {mark})@127.0.0.1",
    "%h\x1b]0;owned\x07",
)


def test_hostile_host_names_run_nothing_and_are_refused(
    moetop: Moetop, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    mark = tmp_path / "mark"
    config, hosts = tmp_path / "c.yaml", tmp_path / "hosts"
    for text in HOSTILE:
        name = text.format(mark=mark)
        hosts.write_text(name)
        for ways in (
            {"hosts": [{"name": "alias", "address": name}]},
            {"groups": [{"name": "g", "hosts": [name]}]},
            {"groups": [{"name": "g", "hosts_file": str(hosts)}]},
        ):
            config.write_text(json.dumps(ways))
            assert main(["--config", str(config), "--snapshot", "-"]) == 2, (name, ways)
        assert main([f"--retune={name}", "--dry-run"]) == 2, name
        assert main([f"--host={name}", "--snapshot", "-"]) == 2, name
        said = capsys.readouterr()
        assert said.out == "" and "\x1b" not in said.err and len(said.err.splitlines()) == 5
    whole = moetop(f"--host={HOSTILE[0].format(mark=mark)}", "--snapshot", "-")
    assert whole.code == 2 and sentence(whole)
    assert not mark.exists()


def test_hostile_paths_and_server_names_reach_no_shell(gpu_host: Sshd, moetop: Moetop, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    paths = [f"/tmp/$(touch {mark})", f"/tmp/`touch {mark}`", f"/tmp/; touch {mark}", f"/tmp/'; touch {mark}; '"]
    config = tmp_path / "c.yaml"
    entry = {
        "name": place(gpu_host),
        "logs": [*paths, {"source": "c", "command": ["sh", "-c", 'cat "$0"', f"$(touch {mark})"]}],
        "servers": [{"match": {"argv": f"$(touch {mark})"}, "log": paths[0], "start": [f"; touch {mark}"]}],
    }
    config.write_text(json.dumps({"hosts": [entry]}))
    record = tmp_path / "r.jsonl"
    watched = moetop("--config", str(config), "--record", str(record), "--duration", "1.5")
    assert watched.code == 0, watched.err
    assert "does not exist" in record.read_text()
    assert moetop(f"--host={place(gpu_host)}", "--log-path=-x;touch", "--snapshot", "-").code == 2
    assert not mark.exists()


@pytest.mark.faults
def test_hostile_server_names_of_a_retune_reach_no_shell(gpu_host: Sshd, moetop: Moetop, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    named = moetop("--retune", place(gpu_host), "--server", f"$(touch {mark}); touch {mark}", "--dry-run")
    assert named.code in (2, 7)
    assert not mark.exists()
