"""A watched host with one untuned minimoe (its stand-in for machines without a card), over a real sshd."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from moetop.cli import build_parser
from moetop.config import Config
from moetop.model import ServerReport
from moetop.retune import recipes
from moetop.session import Session, load_config, open_session
from tests.rig.nvml_rig import Scenario
from tests.rig.retune_kit import QUICK, Rig, until
from tests.rig.sshd_rig import USER, Client, Sshd

CONFIG = """
window_s: 2
interval_s: 0.3
hosts:
  - name: rig
    address: 127.0.0.1
    port: {ssh_port}
    user: {user}
    transport: ssh
    servers:
      - match: {{port: {port}}}
        timeouts: {{drain_s: 4, stop_s: 3, tune_s: 20, start_s: 12, health_s: 1}}
"""


class WatchedRig(Rig):
    """The rig where the probe finds it: under a folder named sglang, as SGLang's source tree."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(home, monkeypatch)
        (self.folder / "sglang").mkdir()
        (self.folder / "launch_server.py").rename(self.folder / "sglang" / "launch_server.py")

    def argv(self) -> list[str]:
        argv = super().argv()
        argv[1] = "minimoe/sglang/launch_server.py"
        return argv

    @property
    def server(self) -> str:
        """The server's name on screen."""
        return f"sglang:{self.port}"

    def jobs(self) -> list[str]:
        """Jobs that the host keeps, oldest first."""
        folder = self.state / "moetop" / "jobs"
        return sorted(entry.name for entry in folder.iterdir() if entry.is_dir()) if folder.exists() else []

    def kept(self, name: str) -> str:
        """A file of the newest job's folder on the host."""
        names = self.jobs()
        path = self.state / "moetop" / "jobs" / names[-1] / name if names else None
        return path.read_text() if path is not None and path.exists() else ""


@pytest.fixture
def watched(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make_sshd: Callable[..., Sshd],
    client: Client,
    scenario: Scenario,
) -> Iterator[tuple[WatchedRig, Path]]:
    """The running server and the path of a configuration that names its host."""
    for name in ("baseline_s", "settle_s"):
        monkeypatch.setitem(recipes.DEFAULT_TIMEOUTS, name, QUICK[name])
    rig = WatchedRig(tmp_path, monkeypatch)
    carried = {**scenario.environment, "PATH": os.environ["PATH"], "XDG_STATE_HOME": str(rig.state)}
    sshd = make_sshd(env=carried)
    client.admit(sshd)
    monkeypatch.setenv("MOETOP_SSH_CONFIG", str(client.config))
    path = tmp_path / "moetop.yaml"
    path.write_text(CONFIG.format(ssh_port=sshd.port, user=USER, port=rig.port))
    rig.start()
    yield rig, path
    rig.clean()


def session_of(path: Path, *more: str) -> tuple[Session, Config]:
    args = build_parser().parse_args(["--config", str(path), *more])
    config = load_config(args)
    return open_session(args, config), config


def server_seen(session: Session, rig: WatchedRig) -> ServerReport | None:
    """The server, once moetop knows it to be ready; None before."""
    servers = session.watch.report("rig").servers
    found = next((one for one in servers if one.name == rig.server), None)
    return found if found is not None and found.ready and session.watch.is_searched("rig") else None


@contextmanager
def watching(path: Path, rig: WatchedRig, *more: str) -> Iterator[tuple[Session, Config]]:
    """A running session that has found the server."""
    session, config = session_of(path, *more)
    with session.running():
        until(lambda: server_seen(session, rig), "the server is found", 30.0)
        yield session, config
