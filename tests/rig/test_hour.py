"""The network is gone for an hour: a stepped clock over real connections, a real sshd and the real probe."""

from __future__ import annotations

import json
import threading
import time
import tracemalloc
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import moetop.fleet as fleet_module
from moetop import heartbeat
from moetop.fleet import BACKOFF_FIRST_S, BACKOFF_LAST_S, Fleet
from moetop.model import AnyFrame, HostStatus, Link, LinkPhase, Log
from moetop.transport.base import Channel, ProbeOptions
from moetop.transport.ssh import SshTransport
from moetop.watch import Watch
from tests.rig.sshd_rig import Client, Sshd, until

HOUR_S = 3600.0
WARM = 10
"""Tries after which everything is loaded and memory must stay."""

MEMORY_KIB = 256
REAL_S = 10.0
"""How long a login and the first sample may really take here."""


class Clock:
    """Time that goes on as it does, and is put forward. Stands in for the module `time`."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead_s

    def time(self) -> float:
        return time.time() + self.ahead_s


class Alarm(threading.Event):
    """An event whose waiting ends by the clock."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self.looks = 0
        """How often it was looked at the clock."""

    def wait(self, timeout: float | None = None) -> bool:
        end = self._clock.monotonic() + (timeout or 0.0)
        while not self.is_set() and self._clock.monotonic() < end:
            super().wait(0.002)
            self.looks += 1
        return self.is_set()


class Ahead:
    """A channel of a host whose clock is put forward too."""

    def __init__(self, channel: Channel, clock: Clock) -> None:
        self._channel = channel
        self._clock = clock
        self.send, self.close = channel.send, channel.close

    def lines(self) -> Iterator[bytes]:
        for raw in self._channel.lines():
            frame = json.loads(raw)
            frame["t"] += self._clock.ahead_s
            yield json.dumps(frame).encode()


class Host(SshTransport):
    """A host behind sshd; counts how often it was tried, and when."""

    clock: Clock

    def open(self, options: Mapping[str, object]) -> Channel:
        self.tries.append(self.clock.monotonic())
        return Ahead(super().open(options), self.clock)

    tries: list[float]


class Memory(Watch):
    """The watch state, counting what it is told."""

    told = 0

    def link(self, host: str, link: Link) -> None:
        self.told += 1
        super().link(host, link)

    def frame(self, host: str, frame: AnyFrame, raw: bytes) -> None:
        super().frame(host, frame, raw)
        if isinstance(frame, Log) and "EVENT" in frame.line:
            self.events.append(int(frame.line.split()[1]))

    events: list[int]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(fleet_module, "time", made)
    monkeypatch.setattr(heartbeat, "time", made)
    return made


def write(log: Path, first: int, end: int) -> None:
    with log.open("a") as file:
        file.writelines(f"EVENT {n}\n" for n in range(first, end))


def an_hour_without(host: Host, watch: Memory, clock: Clock, alarm: Alarm) -> list[float]:
    """Put the clock forward from try to try until an hour is over; the pauses between the tries, seconds."""
    gone_at, first = clock.monotonic(), len(host.tries)
    pauses = []
    while clock.monotonic() - gone_at < HOUR_S:
        tried = len(host.tries)
        until(lambda: watch.link_of("h").next_try_t is not None)
        pauses.append((watch.link_of("h").next_try_t or 0.0) - clock.time())
        clock.ahead_s += 0.9 * pauses[-1]
        looks = alarm.looks
        until(lambda looks=looks: alarm.looks > looks + 1)  # type: ignore[misc]
        assert watch.link_of("h").phase is LinkPhase.LOST and len(host.tries) == tried, "not before its time"
        clock.ahead_s += 0.1 * pauses[-1] + 0.01
        until(lambda tried=tried: len(host.tries) > tried)  # type: ignore[misc]
        if len(host.tries) == first + WARM:
            tracemalloc.start()
    return pauses


def test_an_hour_without_network_costs_little_and_ends_within_a_minute_of_its_return(
    gpu_host: Sshd, client: Client, clock: Clock, tmp_path: Path
) -> None:
    log = tmp_path / "server.log"
    write(log, 0, 50)
    host = Host(client.target(gpu_host, name="h"))
    host.clock, host.tries = clock, []
    watch = Memory(10.0, clock=clock.time)
    watch.events = []
    logs = ({"source": "server", "kind": "file", "target": str(log)},)
    fleet = Fleet([host], watch, ProbeOptions(interval_s=0.2, literals=("EVENT",), logs=logs, discover=False))
    alarm = fleet._hosts["h"]._again = Alarm(clock)
    fleet.start()
    try:
        until(lambda: len(watch.events) == 50 and samples(watch) >= 2)
        before = clock.time()
        gpu_host.kill()
        until(lambda: watch.link_of("h").phase is LinkPhase.LOST)
        told, threads = watch.told, threading.active_count()
        pauses = an_hour_without(host, watch, clock, alarm)
        check_pauses(pauses)
        assert watch.told - told <= 2 * len(pauses) + 2, "a try is told as begun and as failed"
        assert threading.active_count() <= threads + 2
        assert tracemalloc.get_traced_memory()[0] < MEMORY_KIB << 10
        report = watch.report("h")  # also while the last try is being made
        assert report.status is HostStatus.UNREACHABLE and "refused the connection" in (report.error or "")

        until(lambda: watch.link_of("h").next_try_t is not None)  # that one failed too
        write(log, 50, 100)
        gpu_host.start()
        back_at = clock.monotonic()
        clock.ahead_s += max(0.0, (watch.link_of("h").next_try_t or 0.0) - clock.time())
        until(lambda: watch.link_of("h").phase is LinkPhase.WATCHING)
        assert clock.monotonic() - back_at < BACKOFF_LAST_S + REAL_S
        until(lambda: len(watch.events) >= 100)
        assert watch.events == list(range(100)), "the log goes on where it stood"
        check_gap(watch, before, clock)
        assert watch.report("h").status is HostStatus.OK
    finally:
        tracemalloc.stop()
        fleet.stop()


def samples(watch: Memory) -> int:
    history = watch.history("h", 0)
    return 0 if history is None else len(history)


def check_pauses(pauses: list[float]) -> None:
    """Growing to the ceiling, spread, and as few as that makes of an hour."""
    full = [min(BACKOFF_LAST_S, BACKOFF_FIRST_S * 2.0**n) for n in range(len(pauses))]
    assert all(0.45 * most <= pause <= most for pause, most in zip(pauses, full, strict=True)), pauses
    assert HOUR_S / BACKOFF_LAST_S <= len(pauses) <= 2 * HOUR_S / BACKOFF_LAST_S + len("growth")
    assert len({round(pause, 2) for pause in pauses[len("growth") :]}) > 10, "many hosts do not come back at one moment"


def check_gap(watch: Memory, before: float, clock: Clock) -> None:
    """The chart has values at both ends and nothing in the hour between."""
    until(lambda: (watch.last_t("h") or 0.0) > before + HOUR_S)
    history = watch.history("h", 0)
    assert history is not None
    values = history.resample("util_gpu_pct", before - 1.0, clock.time(), 60)
    assert values[0] is not None and values[-1] is not None
    assert not any(value is not None for value in values[2:-3])
