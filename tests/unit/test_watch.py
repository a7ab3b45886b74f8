"""The state of a fleet behind one lock: what is said of a host, when it is stale, and who may ask when."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec
import pytest

from moetop.diagnose.thresholds import LOG_HELD_S
from moetop.fleet import Fleet
from moetop.model import (
    AnyFrame,
    FindingKind,
    GpuInfo,
    Gpus,
    GpuSample,
    Hello,
    HostStatus,
    Link,
    LinkPhase,
    Log,
    Server,
    ServerMetrics,
    Status,
)
from moetop.transport.base import ProbeOptions
from moetop.transport.replay import FrameTransport
from moetop.watch import RECENT_EVENTS, RESUME_S, Watch
from tests.unit.test_cases import LOADED

ROOT = Path(__file__).parents[2]
CRASH = "Received sigquit from a child process. It usually means the child failed."
BEGUN = "[2026-02-19 01:05:00] server_args=ServerArgs(model_path='/m', port=8000)"
READY = "[2026-02-19 01:06:12] The server is fired up and ready to roll!"
START = 1_800_000_000.0


class Clock:
    """This machine's clock, set by hand."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def watch(clock: Clock) -> Watch:
    return Watch(10.0, clock=clock)


def hello(t: float, gpus: int = 1) -> Hello:
    infos = tuple(GpuInfo(index=n, name="NVIDIA H200", power_limit_default_w=700.0) for n in range(gpus))
    return Hello(t=t, driver="580", gpus=infos, source="nvml")


def gpus(t: float, util: float = 100.0, number: int = 1) -> Gpus:
    return Gpus(
        t=t,
        gpus=tuple(
            GpuSample(index=n, util_gpu_pct=util, util_mem_pct=40.0, power_w=600.0, power_limit_w=700.0)
            for n in range(number)
        ),
    )


def put(watch: Watch, host: str, *frames: AnyFrame) -> None:
    for frame in frames:
        watch.frame(host, frame, msgspec.json.encode(frame))


# ── time ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("ahead_s", [0.0, 3600.0, -86400.0])
def test_a_host_whose_clock_is_wrong_is_judged_like_any_other(watch: Watch, clock: Clock, ahead_s: float) -> None:
    put(watch, "a", hello(clock.now + ahead_s))
    watch.link("a", Link(phase=LinkPhase.WATCHING))
    for _ in range(12):
        put(watch, "a", gpus(clock.now + ahead_s))
        clock.now += 1.0
    report = watch.report("a")
    assert report.status is HostStatus.OK and report.gpus[0].util_gpu_pct == 100.0
    assert watch.host_now("a") == pytest.approx(clock.now + ahead_s, abs=1.1)


def test_a_live_host_that_stops_sending_grows_stale_by_itself(watch: Watch, clock: Clock) -> None:
    put(watch, "a", hello(clock.now), *(gpus(clock.now + n) for n in range(3)))
    clock.now += 3.0
    assert watch.report("a").gpus[0].util_gpu_pct == 100.0
    for _ in range(60):
        clock.now += 2.0
        report = watch.report("a")
    assert report.gpus[0].util_gpu_pct is None and report.status is not HostStatus.OK
    put(watch, "a", gpus(clock.now, util=7.0))
    assert watch.report("a").gpus[0].util_gpu_pct == 7.0


def test_silence_while_this_process_itself_stood_still_does_not_count(watch: Watch, clock: Clock) -> None:
    put(watch, "a", hello(clock.now), *(gpus(clock.now + n) for n in range(3)))
    clock.now += 3.0
    assert watch.report("a").gpus[0].util_gpu_pct == 100.0
    clock.now += 3600.0
    assert watch.report("a").gpus[0].util_gpu_pct == 100.0
    clock.now += RESUME_S
    assert watch.report("a").gpus[0].util_gpu_pct is None


def test_a_replay_is_judged_at_its_own_newest_frame_whenever_it_is_looked_at(clock: Clock) -> None:
    watch = Watch(10.0, live=False, source="recording", clock=clock)
    put(watch, "a", hello(0.0), *(gpus(float(n)) for n in range(5)))
    watch.link("a", Link(phase=LinkPhase.FINISHED))
    first = watch.report("a")
    clock.now += 86400.0
    assert watch.report("a") is first
    assert first.gpus[0].util_gpu_pct == 100.0 and first.source == "recording"
    assert watch.host_now("a") == 4.0


def test_a_report_is_made_once_until_something_comes_in_or_a_second_is_over(watch: Watch, clock: Clock) -> None:
    put(watch, "a", hello(clock.now), gpus(clock.now))
    first = watch.report("a")
    clock.now += 0.5
    assert watch.report("a") is first
    put(watch, "a", gpus(clock.now))
    second = watch.report("a")
    assert second is not first
    clock.now += 1.0
    assert watch.report("a") is not second
    assert watch.last_report("a") is watch.report("a")


# ── several hosts ────────────────────────────────────────────────────────────────────────────────


def busy_fleet(watch: Watch, clock: Clock) -> None:
    """Three equal servers at work for half a minute."""
    for second in range(30):
        for host, speed in (("a", 1000.0), ("b", 1010.0), ("c", 990.0)):
            t = clock.now
            numbers = ServerMetrics(running=8.0, waiting=0.0, generation_tokens_s=speed, source="metrics", t=t)
            server = Server(t=t, name="sglang:30000", engine="sglang", pid=7, args={"model_path": "m"}, metrics=numbers)
            put(watch, host, *([hello(t)] if second == 0 else []), server, gpus(t))
        clock.now += 1.0


def test_hosts_are_compared_once_a_second_and_a_new_host_at_once(watch: Watch, clock: Clock) -> None:
    busy_fleet(watch, clock)
    reports = {name: watch.report(name) for name in watch.names()}
    put(watch, "a", gpus(clock.now, util=1.0))
    assert watch.report("a") is reports["a"], "within a second the comparison stands"
    watch.expect("d")
    assert watch.report("d").name == "d"
    clock.now += 1.0
    assert watch.report("a") is not reports["a"]


def test_two_hosts_are_not_compared_and_an_old_comparison_is_not_taken_for_a_report(watch: Watch, clock: Clock) -> None:
    put(watch, "a", hello(clock.now), gpus(clock.now))
    put(watch, "b", hello(clock.now), gpus(clock.now))
    compared = watch.snapshot(clock.now).hosts[0]
    put(watch, "a", gpus(clock.now, util=3.0))
    fresh = watch.report("a")
    assert watch.last_report("a") is fresh and fresh is not compared


def test_a_forgotten_host_is_gone_and_what_is_still_said_of_it_is_passed_over(watch: Watch, clock: Clock) -> None:
    put(watch, "a", hello(clock.now), gpus(clock.now))
    put(watch, "b", hello(clock.now), gpus(clock.now))
    before = watch.generation
    watch.forget("a")
    put(watch, "a", gpus(clock.now))
    watch.link("a", Link(phase=LinkPhase.LOST))
    assert watch.names() == ["b"] and watch.generation == before + 1
    assert [host.name for host in watch.snapshot(clock.now).hosts] == ["b"]
    assert watch.report("a").gpus == () and watch.history("a", 0) is None and watch.tail("a", "x") == []
    watch.expect("a")
    put(watch, "a", gpus(clock.now))
    assert watch.names() == ["b", "a"]


def test_hosts_may_be_forgotten_and_read_and_fed_at_the_same_time() -> None:
    watch = Watch(2.0)
    stop = threading.Event()
    faults: list[BaseException] = []

    def guarded(work: object) -> threading.Thread:
        def run() -> None:
            try:
                while not stop.is_set():
                    work()  # type: ignore[operator]
            except BaseException as error:
                faults.append(error)
                stop.set()

        return threading.Thread(target=run)

    def feed(name: str) -> object:
        def once() -> None:
            t = time.time()
            line = Log(t=t, source="s", line=READY)
            put(watch, name, hello(t, 2), gpus(t, number=2), line, Server(t=t, name="s", source="s"))

        return once

    def read() -> None:
        for name in watch.names():
            watch.report(name), watch.link_of(name), watch.last_report(name), watch.history(name, 1)
            watch.tail(name, "s"), watch.statuses(name), watch.sources(name), watch.recent_events(name)
            watch.is_sampled(name, 1.0), watch.is_searched(name), watch.is_finished(name), watch.host_now(name)
        watch.snapshot(time.time())

    def come_and_go() -> None:
        watch.forget("b")
        watch.expect("b")

    threads = [guarded(feed(name)) for name in "abcd"] + [guarded(read), guarded(read), guarded(come_and_go)]
    for thread in threads:
        thread.start()
    time.sleep(1.0)
    stop.set()
    for thread in threads:
        thread.join(10.0)
        assert not thread.is_alive()
    assert faults == []
    assert set(watch.names()) == set("abcd")


# ── what is kept ─────────────────────────────────────────────────────────────────────────────────


def test_the_newest_events_of_a_noisy_log_are_kept_and_no_more(watch: Watch, clock: Clock) -> None:
    put(watch, "a", hello(clock.now), Server(t=clock.now, name="s", source="log"))
    line = "[2026-06-28 13:36:54 TP0] Load weight begin. avail mem={:.2f} GB"
    put(watch, "a", *(Log(t=clock.now, source="log", line=line.format(n)) for n in range(RECENT_EVENTS + 50)))
    events = watch.recent_events("a")
    assert len(events) == RECENT_EVENTS and f"={RECENT_EVENTS + 49:.2f}" in events[-1].line
    assert watch.sources("a") == ["log"] and watch.tail("a", "log")[-1].text == events[-1].line


def test_a_servers_numbers_make_a_series_each_reading_once(watch: Watch, clock: Clock) -> None:
    busy_fleet(watch, clock)
    watch.report("a")
    watch.report("a")
    series = watch.server_history("a", "sglang:30000")
    assert series is not None and series.last_t == clock.now - 1.0
    first = series.first_t
    for _ in range(5):
        clock.now += 1.0
        watch.report("a")
    assert (series.first_t, series.last_t) == (first, clock.now - 6.0), "no new reading, no new point"


def test_without_charts_no_series_are_kept(clock: Clock) -> None:
    watch = Watch(2.0, keep_history=False, clock=clock)
    put(watch, "a", hello(clock.now), gpus(clock.now))
    assert watch.history("a", 0) is None and watch.report("a").gpus[0].util_gpu_pct == 100.0


# ── enough seen ──────────────────────────────────────────────────────────────────────────────────


def test_sampled_means_a_span_of_samples_or_that_none_will_come(watch: Watch) -> None:
    assert not watch.is_sampled("never heard of", 0.0)
    put(watch, "a", hello(0.0), gpus(10.0))
    assert watch.is_sampled("a", 0.0) and not watch.is_sampled("a", 2.0)
    put(watch, "a", gpus(12.0))
    assert watch.is_sampled("a", 2.0)
    watch.link("lost", Link(phase=LinkPhase.LOST))
    watch.link("over", Link(phase=LinkPhase.FINISHED))
    put(watch, "broken", Status(t=0.0, code="driver_mismatch", message="m", level="error", fatal=True))
    put(watch, "warned", Status(t=0.0, code="xid_unavailable", message="m", level="warning"))
    assert [watch.is_sampled(name, 2.0) for name in ("lost", "over", "broken", "warned")] == [True, True, True, False]


def test_a_probe_that_replaces_another_is_waited_for_and_a_host_that_comes_back_is_not(watch: Watch) -> None:
    put(watch, "a", hello(0.0), gpus(10.0), gpus(13.0))
    assert watch.is_sampled("a", 2.0)
    watch.link("a", Link(phase=LinkPhase.CONNECTING, reason="cut", attempt=1))
    assert watch.is_sampled("a", 2.0)
    watch.link("a", Link(phase=LinkPhase.CONNECTING))
    assert not watch.is_sampled("a", 0.0)
    put(watch, "a", hello(14.0), gpus(14.0))
    assert watch.is_sampled("a", 0.0) and not watch.is_sampled("a", 2.0)
    put(watch, "a", gpus(16.0))
    assert watch.is_sampled("a", 2.0)


def test_searched_means_that_the_log_of_every_server_was_read(watch: Watch) -> None:
    put(watch, "a", hello(0.0))
    assert not watch.is_searched("a")
    put(watch, "a", Server(t=0.0, name="one", source="one.log"), Server(t=0.0, name="two", source="two.log"))
    put(watch, "a", Status(t=0.0, code="log_read", message="", source="one.log"))
    assert not watch.is_searched("a")
    put(watch, "a", Status(t=0.0, code="log_denied", message="", source="two.log"))
    assert watch.is_searched("a")
    put(watch, "b", Status(t=0.0, code="no_server", message=""))
    assert watch.is_searched("b")


def log_status(code: str, source: str = "/log", t: float = START) -> Status:
    return Status(t=t, code=code, message=code, source=source)


def lines(*texts: str, source: str = "/log") -> tuple[Log, ...]:
    return tuple(Log(t=START, source=source, line=text, history=True) for text in texts)


@pytest.mark.parametrize("before", [(), (BEGUN, READY)], ids=["first sight", "after an absence"])
def test_half_a_logs_past_is_not_told_as_the_present(watch: Watch, clock: Clock, before: tuple[str, ...]) -> None:
    """It begins with its oldest lines: a crash, of which the rest tells the restart."""
    said = Server(t=START, name="sglang:8000", source="/log", pid=7)
    put(watch, "a", hello(START), gpus(START), said, *lines(*before))
    (phase,) = (server.phase for server in watch.report("a").servers)
    other = Log(t=START, source="/other", line=READY)
    put(
        watch,
        "a",
        log_status("log_behind"),
        *lines(CRASH),
        other,
        log_status("log_read", "/other"),
        gpus(START + 1, 7.0),
    )
    report = watch.report("a")
    assert [server.phase for server in report.servers if server.name == "sglang:8000"] == [phase]
    assert not report.findings and report.gpus[0].util_gpu_pct == 53.5, "what else the host tells is not held back"
    put(watch, "a", *lines(BEGUN, READY), log_status("log_read"))
    assert watch.report("a").servers[0].phase == "ready" and not watch.report("a").findings


def test_a_crash_at_the_end_of_the_past_is_told_and_an_end_that_never_comes_is_not_waited_for(
    watch: Watch, clock: Clock
) -> None:
    said = Server(t=START, name="sglang:8000", source="/log", pid=7)
    put(watch, "a", hello(START), gpus(START), said, log_status("log_behind"), *lines(BEGUN, READY, CRASH))
    assert watch.report("a").servers[0].phase == "unknown"
    clock.now += LOG_HELD_S
    put(watch, "a", gpus(START + LOG_HELD_S))
    assert watch.report("a").servers[0].phase == "crashed"


def test_silent_hosts_are_given_up_with_the_reason_and_others_are_left_alone(watch: Watch) -> None:
    watch.expect("silent")
    watch.link("slow", Link(phase=LinkPhase.CONNECTING, reason="waiting for the jump host"))
    put(watch, "fine", hello(0.0), gpus(0.0))
    watch.link("fine", Link(phase=LinkPhase.WATCHING))
    watch.give_up_on_silent()
    assert watch.link_of("silent").reason == "no answer in time"
    assert watch.link_of("slow").reason == "waiting for the jump host"
    assert [watch.link_of(name).phase is LinkPhase.LOST for name in ("silent", "slow", "fine")] == [True, True, False]
    assert [finding.kind for finding in watch.report("silent").findings] == [FindingKind.UNREACHABLE]


def test_waiting_ends_with_what_was_waited_for_or_in_time(watch: Watch) -> None:
    began = time.monotonic()
    assert not watch.wait(lambda: False, 0.1)
    assert 0.1 <= time.monotonic() - began < 5.0
    assert watch.wait(lambda: True, 0.0)
    timer = threading.Timer(0.1, watch.expect, ["late"])
    timer.start()
    assert watch.wait(lambda: "late" in watch.names(), None)
    timer.join()


WAITS = """
from moetop.watch import Watch
print("waiting", flush=True)
try:
    Watch(1.0).wait(lambda: False, None)
except KeyboardInterrupt:
    raise SystemExit(42)
"""


def test_control_c_ends_a_wait_without_end() -> None:
    child = subprocess.Popen([sys.executable, "-c", WAITS], stdout=subprocess.PIPE, cwd=ROOT)
    assert child.stdout is not None and child.stdout.readline() == b"waiting\n"
    time.sleep(0.3)  # it is in the wait by then; earlier is right as well
    os.kill(child.pid, signal.SIGINT)
    assert child.wait(10) == 42
    child.stdout.close()


# ── with real supervisors ────────────────────────────────────────────────────────────────────────


def test_hosts_of_a_fleet_come_in_through_their_own_threads_and_end_finished() -> None:
    lines = [msgspec.json.encode(frame) for frame in (hello(0.0), *(gpus(float(n)) for n in range(20)))]
    watch = Watch(10.0, live=False)
    transports = [FrameTransport(f"host-{n}", lambda: iter(lines), speed=0.0) for n in range(8)]
    for transport in transports:
        watch.expect(transport.name)
    fleet = Fleet(transports, watch, ProbeOptions())
    fleet.start()
    try:
        assert watch.wait(lambda: all(watch.is_finished(name) for name in watch.names()), 20.0)
    finally:
        fleet.stop()
    snapshot = watch.snapshot(None)
    assert [host.name for host in snapshot.hosts] == [f"host-{n}" for n in range(8)]
    assert all(host.gpus[0].util_gpu_pct == 100.0 for host in snapshot.hosts)


def test_one_hosts_driver_mismatch_hides_nothing_of_the_other(watch: Watch, clock: Clock) -> None:
    """The two hosts of the case of a mixed fleet: one cannot be read, the other works."""
    said = [line.partition("] ")[2] for line in LOADED["108"]["input"].splitlines()]
    mismatch, rows = said[0], [row.split(", ") for row in said[1:]]
    put(watch, "host-a", Hello(t=clock.now, source="nvml"))
    put(watch, "host-a", Status(t=clock.now, code="driver_mismatch", message=mismatch, level="error", fatal=True))
    watch.link("host-a", Link(phase=LinkPhase.DEGRADED, code="driver_mismatch", reason=mismatch))
    watch.link("host-b", Link(phase=LinkPhase.WATCHING))
    infos = tuple(GpuInfo(index=int(row[0]), name=row[1], power_limit_default_w=400.0, gpm=False) for row in rows)
    samples = tuple(
        GpuSample(
            index=int(row[0]),
            util_gpu_pct=float(row[2].split()[0]),
            util_mem_pct=60.0,
            power_w=float(row[3].split()[0]),
            power_limit_w=float(row[4].split()[0]),
        )
        for row in rows
    )
    put(watch, "host-b", Hello(t=clock.now, source="nvml", gpus=infos))
    for _ in range(12):
        put(watch, "host-b", Gpus(t=clock.now, gpus=samples))
        clock.now += 1.0
    snapshot = watch.snapshot(clock.now)
    a, b = snapshot.hosts
    assert snapshot.headline == a.headline == "driver_mismatch"
    assert a.error is not None and "mismatch" in a.error and a.gpus == () and a.findings[0].remedy
    assert b.headline not in ("driver_mismatch", "no_data") and b.status is HostStatus.OK
    assert [gpu.util_gpu_pct for gpu in b.gpus] == [99.0, 98.0]
    assert all(82 <= (gpu.power_pct or 0) <= 83 for gpu in b.gpus)
    assert not any(finding.kind is FindingKind.DRIVER_MISMATCH for finding in b.findings)
