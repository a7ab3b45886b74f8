"""Many hosts behind a few real sshd of this machine, each a cheap generator of frames; with a configuration of all."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests import bench_frames
from tests.bench_kit import environment
from tests.rig.sshd_rig import Client, Sshd

SSHDS = 4


class Farm(NamedTuple):
    """Arguments that make moetop watch it, and the environment it needs."""

    arguments: list[str]
    env: dict[str, str]


@contextmanager
def farm(hosts: int, gpus: int) -> Iterator[Farm]:
    """`hosts` addresses of the loopback network, shared out among the sshds."""
    with tempfile.TemporaryDirectory(prefix="moetop-bench-") as name:
        folder = Path(name)
        client = Client(folder / "client")
        # -I -S: the far side must cost next to nothing
        command = f"{sys.executable} -I -S {bench_frames.__file__} {gpus}"
        lines = ["MaxStartups 400", f"ForceCommand {command}"]
        sshds = [Sshd(folder / f"sshd{number}", *lines, listen="0.0.0.0") for number in range(min(SSHDS, hosts))]
        try:
            entries = []
            for sshd in sshds:
                sshd.start()
                client.admit(sshd)
                with client.known_hosts.open("a") as known:
                    known.write(sshd.keyscan_line(name=f"[127.0.*]:{sshd.port}"))
            for number in range(hosts):
                port = sshds[number % len(sshds)].port
                address = f"127.0.{1 + number // 250}.{1 + number % 250}"
                entries.append(f"  - {{name: host{number:03d}, address: {address}, port: {port}}}\n")
            config = folder / "config.yaml"
            config.write_text("hosts:\n" + "".join(entries))
            yield Farm(["--config", str(config)], environment({"MOETOP_SSH_CONFIG": str(client.config)}))
        finally:
            for sshd in sshds:
                sshd.kill()
