"""32 hosts of 8 GPUs at 1 Hz in the whole program with its screen: from generators and behind real sshd."""

from __future__ import annotations

import sys

from moetop.fleet import Fleet
from moetop.transport.base import ProbeOptions
from moetop.ui.app import run
from moetop.watch import Watch
from tests.bench_farm import farm
from tests.bench_kit import Figure, environment
from tests.bench_many import fleet_of
from tests.bench_ui import Terminal, screen_figures, watch_screen

HOSTS, GPUS = 32, 8
COLUMNS, LINES = 200, 60
SETTLE_S = 20.0
"""Windows are full, hosts behind sshd are there."""


def child() -> None:
    """The program with generators for hosts."""
    watch = Watch(10.0)
    transports = fleet_of(HOSTS, GPUS)
    for transport in transports:
        watch.expect(transport.name)
    fleet = Fleet(transports, watch, ProbeOptions())
    fleet.start()
    try:
        sys.exit(run(watch))
    finally:
        fleet.stop()


def figures() -> list[Figure]:
    """Both ways to the same frames."""
    argv = [sys.executable, "-m", "tests.bench_fleet", "child"]
    rows = screen_figures("generators", watch_screen(Terminal(COLUMNS, LINES, argv, environment()), SETTLE_S))
    with farm(HOSTS, GPUS) as made:
        argv = [sys.executable, "-m", "moetop", *made.arguments]
        rows += screen_figures("4 sshd", watch_screen(Terminal(COLUMNS, LINES, argv, made.env), SETTLE_S))
    return rows


if __name__ == "__main__":
    child()
