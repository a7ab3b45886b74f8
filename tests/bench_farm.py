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
    """Arguments that make moetop watch it, the environment it needs, and the pids of the sshds."""

    arguments: list[str]
    env: dict[str, str]
    sshds: list[int]


@contextmanager
def farm(hosts: int, gpus: int, *, slow_s: float = 0.0) -> Iterator[Farm]:
    """`hosts` addresses of the loopback network, shared out among the sshds. With `slow_s` the first, `host000`, is
    behind one of its own whose login shell takes so long."""
    with tempfile.TemporaryDirectory(prefix="moetop-bench-") as name:
        folder = Path(name)
        client = Client(folder / "client")
        # -I -S: the far side must cost next to nothing
        command = f"exec {sys.executable} -I -S {bench_frames.__file__} {gpus}"
        commands = [command] * min(SSHDS, hosts)
        if slow_s:
            commands.append(f"sleep {slow_s}; {command}")
        sshds = [
            Sshd(folder / f"sshd{number}", "MaxStartups 400", f"ForceCommand {line}", listen="0.0.0.0")
            for number, line in enumerate(commands)
        ]
        try:
            entries = []
            for sshd in sshds:
                sshd.start()
                client.admit(sshd)
                with client.known_hosts.open("a") as known:
                    known.write(sshd.keyscan_line(name=f"[127.0.*]:{sshd.port}"))
            for number in range(hosts):
                slow = slow_s > 0 and number == 0
                port = sshds[-1 if slow else number % min(SSHDS, hosts)].port
                address = f"127.0.{1 + number // 250}.{1 + number % 250}"
                entries.append(f"  - {{name: host{number:03d}, address: {address}, port: {port}}}\n")
            config = folder / "config.yaml"
            config.write_text("hosts:\n" + "".join(entries))
            env = environment({"MOETOP_SSH_CONFIG": str(client.config)})
            yield Farm(["--config", str(config)], env, [sshd.process.pid for sshd in sshds if sshd.process])
        finally:
            for sshd in sshds:
                sshd.kill()
