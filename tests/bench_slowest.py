"""A snapshot of 32 hosts behind real sshd, one of them slow, against a snapshot of the slow one alone."""

from __future__ import annotations

import sys

from tests.bench_farm import farm
from tests.bench_kit import Figure, cpu_of_ended, time_in_turn

HOSTS, GPUS = 32, 8
SLOW_S = 2.0
WANTED_S = 0.5
"""How much longer all may take than the slowest alone."""

RUNS = 5
SLOW = "host000"


def figures() -> list[Figure]:
    """Both with a window of one second, in turn. The far sides take their time from the same processors."""
    with farm(HOSTS, GPUS, slow_s=SLOW_S) as made:
        command = [sys.executable, "-m", "moetop", *made.arguments, "--snapshot", "-", "--window", "1"]
        before = sum(map(cpu_of_ended, made.sshds))
        every, alone = time_in_turn([command, [*command, "--host", SLOW]], made.env, RUNS)
        far_s = (sum(map(cpu_of_ended, made.sshds)) - before) / (RUNS + 1) * HOSTS / (HOSTS + 1)
    failed = [f"EXIT STATUS {times.status}" for times in (every, alone) if times.status]
    return [
        Figure(f"snapshot of {HOSTS} hosts, window 1", every.wall_s, "s", "the slowest alone", alone.wall_s,
               f"best {every.best_s:.2f} s, processor {every.cpu_s:.2f} s"),
        Figure(f"the slowest of them alone ({SLOW_S:.0f} s of login shell)", alone.wall_s, "s",
               note=f"best {alone.best_s:.2f} s, processor {alone.cpu_s:.2f} s"),
        Figure("difference of the medians", every.wall_s - alone.wall_s, "s", f"{WANTED_S} s wanted", WANTED_S,
               " ".join([f"of the best {every.best_s - alone.best_s:.2f} s", *failed])),
        Figure("  processor of the far sides (sshd and generators)", far_s, "s"),
    ]  # fmt: skip
