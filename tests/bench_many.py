"""256 hosts of 8 GPUs at 1 Hz without a screen: processor and memory, from generators and behind real sshd."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from moetop.fleet import Fleet
from moetop.model import AnyFrame, Link
from moetop.transport.base import ProbeOptions
from moetop.transport.replay import FrameTransport
from moetop.watch import Watch
from tests.bench_farm import farm
from tests.bench_frames import frames
from tests.bench_kit import Figure, cpu_of, own_cpu, rss_mib

HOSTS, GPUS = 256, 8
SETTLE_S, MEASURE_S = 6.0, 20.0
EVERY_S = 5.0
PATIENCE_S = 180.0


class _Deaf:
    """A sink that keeps nothing: what is left is making and decoding the frames."""

    def frame(self, host: str, frame: AnyFrame, raw: bytes) -> None:
        return None

    def link(self, host: str, link: Link) -> None:
        return None


def fleet_of(hosts: int, gpus: int) -> list[FrameTransport]:
    """Hosts made of frames, each at its own moment of the second."""

    def host(number: int) -> FrameTransport:
        def source() -> Iterator[bytes]:
            time.sleep(number / hosts)
            return frames(number, gpus, time.time())

        return FrameTransport(f"host{number:03d}", source)

    return [host(number) for number in range(hosts)]


def from_generators(sink: Watch | _Deaf) -> tuple[float, float, float]:
    """(share of a core, resident MiB, processor seconds of one snapshot) once the fleet runs evenly."""
    fleet = Fleet(fleet_of(HOSTS, GPUS), sink, ProbeOptions())
    snapshot_s = 0.0
    fleet.start()
    try:
        time.sleep(SETTLE_S)
        with own_cpu() as spent:
            end = time.monotonic() + MEASURE_S
            while (left := end - time.monotonic()) > 0:
                time.sleep(min(left, EVERY_S))
                if isinstance(sink, Watch):
                    begun = time.thread_time()
                    sink.snapshot(time.time())
                    snapshot_s = max(snapshot_s, time.thread_time() - begun)
        memory = rss_mib()
    finally:
        fleet.stop()
    return spent[0] / spent[1], memory, snapshot_s


def behind_sshd(hosts: int) -> tuple[float, float, float]:
    """The same of `moetop --snapshot --every`: (share of a core, resident MiB, seconds until all were there)."""
    with farm(hosts, GPUS) as made:
        command = [sys.executable, "-m", "moetop", *made.arguments, "--snapshot", "-", "--every", str(EVERY_S)]
        begun = time.monotonic()
        process = subprocess.Popen(command, env=made.env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert process.stdout is not None
        try:
            for line in process.stdout:
                there = sum(len(host["gpus"]) == GPUS for host in json.loads(line)["hosts"])
                if there == hosts:
                    break
                if time.monotonic() - begun > PATIENCE_S:
                    raise TimeoutError(f"{there} of {hosts} hosts after {PATIENCE_S:.0f} s")
            ready_s = time.monotonic() - begun
            cpu, start = cpu_of(process.pid), time.monotonic()
            while time.monotonic() - start < MEASURE_S and process.stdout.readline():
                continue
            return (cpu_of(process.pid) - cpu) / (time.monotonic() - start), rss_mib(process.pid), ready_s
        finally:
            process.terminate()
            process.communicate()


def coming_up(hosts: int) -> list[float]:
    """Seconds from the command until the first, half and all of the hosts were watched, by moetop's own log."""
    with farm(hosts, GPUS) as made, tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "debug.log"
        command = [sys.executable, "-m", "moetop", *made.arguments, "--snapshot", "-", "--every", str(EVERY_S)]
        begun = time.monotonic()
        process = subprocess.Popen([*command, "--debug", str(log)], env=made.env, stdout=subprocess.DEVNULL)
        try:
            reached = []
            for wanted in (1, hosts // 2, hosts):
                while not log.exists() or log.read_text("utf-8").count(" is watching") < wanted:
                    if time.monotonic() - begun > PATIENCE_S:
                        raise TimeoutError(f"{wanted} of {hosts} hosts are not there after {PATIENCE_S:.0f} s")
                    time.sleep(0.1)
                reached.append(time.monotonic() - begun)
            return reached
        finally:
            process.terminate()
            process.wait()


def figures() -> list[Figure]:
    """Generators into nothing, into what a headless run keeps, and the command over SSH."""
    bare, _, _ = from_generators(_Deaf())
    full, memory, snapshot_s = from_generators(Watch(10.0, keep_history=False))
    rows = [
        Figure("generators: frames made and decoded only", bare * 100, "% of a core"),
        Figure("generators: watched, a snapshot every 5 s", full * 100, "% of a core", "a core", 100.0),
        Figure("  of it one snapshot of all hosts", snapshot_s * 1000, "ms"),
        Figure("  resident", memory, "MiB", "1 GiB", 1024.0),
    ]
    share, memory, ready_s = behind_sshd(HOSTS)
    first_s, half_s, all_s = coming_up(HOSTS)
    return [
        *rows,
        Figure("4 sshd: moetop --snapshot --every 5", share * 100, "% of a core", "a core", 100.0),
        Figure("  resident", memory, "MiB", "1 GiB", 1024.0),
        Figure("  until a snapshot had all hosts", ready_s, "s"),
        Figure("  until the first was watched", first_s, "s"),
        Figure("  until half were", half_s, "s"),
        Figure("  until all were", all_s, "s"),
    ]
