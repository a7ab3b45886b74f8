"""Supervisors against real far processes: what they say of a host, and that none delays another."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest

import moetop.fleet as fleet_module
from moetop import heartbeat
from moetop.errors import LinkError, MoetopError
from moetop.fleet import Fleet
from moetop.model import AnyFrame, Gpus, Link, LinkPhase
from moetop.transport.base import Channel, Completed, ProbeOptions
from moetop.transport.process import ProcessPipe, spawn
from moetop.transport.replay import FrameTransport
from moetop.transport.stream import ProbeChannel

SAY = "import json,sys,time\ndef say(**f): print(json.dumps(f),flush=True)\n"
ONE = "say(type='gpus',t=1,gpus=[{'index':0,'util_gpu_pct':5}])\n"


class Ear:
    """A sink that keeps everything and can be waited on."""

    def __init__(self) -> None:
        self.frames: list[tuple[str, AnyFrame, bytes]] = []
        self.links: list[tuple[str, Link]] = []
        self.changed = threading.Condition()
        self.slow_s = 0.0

    def frame(self, host: str, frame: AnyFrame, raw: bytes) -> None:
        time.sleep(self.slow_s)
        with self.changed:
            self.frames.append((host, frame, raw))
            self.changed.notify_all()

    def link(self, host: str, link: Link) -> None:
        with self.changed:
            self.links.append((host, link))
            self.changed.notify_all()

    def until(self, holds: Callable[[], bool], timeout_s: float = 15.0) -> None:
        with self.changed:
            assert self.changed.wait_for(holds, timeout_s), self.links

    def of(self, host: str) -> list[Link]:
        return [link for name, link in self.links if name == host]

    def phase(self, host: str) -> LinkPhase | None:
        links = self.of(host)
        return links[-1].phase if links else None

    def saw(self, phase: LinkPhase, code: str | None = None) -> Callable[[], bool]:
        return lambda: any(link.phase is phase and (code is None or link.code == code) for _, link in self.links)

    def link_with(self, phase: LinkPhase, code: str | None = None) -> Link:
        return next(link for _, link in self.links if link.phase is phase and (code is None or link.code == code))


class ScriptHost:
    """A transport whose far side is a real Python process running each of `scripts` in turn."""

    finite = False
    renews = True

    def __init__(self, name: str, *scripts: str) -> None:
        self.name = name
        self.scripts = scripts
        self.opened: list[dict[str, object]] = []
        self.pids: list[int] = []

    def open(self, options: Mapping[str, object]) -> Channel:
        script = self.scripts[min(len(self.opened), len(self.scripts) - 1)]
        self.opened.append(dict(options))
        process = spawn([sys.executable, "-c", SAY + script])
        self.pids.append(process.pid)
        return ProbeChannel(ProcessPipe(process))

    def run(self, argv: Sequence[str], stdin: bytes = b"", timeout_s: float = 30.0) -> Completed:
        raise LinkError("nothing to run here")

    def close(self) -> None:
        """Channels are closed by the supervisor."""


class DeafHost(ScriptHost):
    """A host whose connecting takes for ever, or fails."""

    def __init__(self, name: str, error: LinkError | None = None) -> None:
        super().__init__(name)
        self.error = error
        self.gone = threading.Event()

    def open(self, options: Mapping[str, object]) -> Channel:
        self.opened.append(dict(options))
        if self.error is None:
            self.gone.wait(60)
        raise self.error or LinkError("closed", code="closed")

    def close(self) -> None:
        self.gone.set()


WRONG = "say(type='status',t=1,code='gpm_wrong',level='warning',message='x',detail={'gpu':0})\n"


def test_a_probe_whose_activity_values_are_wrong_is_replaced_once(ear: Ear, watching: Callable[..., Fleet]) -> None:
    host = ScriptHost("a", ONE + WRONG + "time.sleep(60)", ONE + WRONG + ONE + "time.sleep(60)")
    watching(host)
    ear.until(lambda: sum(isinstance(frame, Gpus) for _, frame, _ in ear.frames) == 3)
    assert [link.phase for link in ear.of("a")] == 2 * [LinkPhase.CONNECTING, LinkPhase.WATCHING]
    assert len(host.opened) == 2
    ear.until(lambda: not is_running(host.pids[0]))
    assert is_running(host.pids[1])


def test_a_single_sample_or_a_way_that_needs_a_new_login_replaces_no_probe(
    ear: Ear, watching: Callable[..., Fleet]
) -> None:
    once, system = ScriptHost("a", ONE + WRONG + ONE), ScriptHost("b", ONE + WRONG + ONE + "time.sleep(60)")
    system.renews = False
    watching(once, once=True)
    watching(system)
    ear.until(lambda: ear.phase("a") is LinkPhase.FINISHED)
    ear.until(lambda: sum(isinstance(frame, Gpus) for host, frame, _ in ear.frames if host == "b") == 2)
    assert len(once.opened) == len(system.opened) == 1


def test_only_a_loss_is_carried_into_the_next_try(
    ear: Ear, watching: Callable[..., Fleet], quick_retries: None
) -> None:
    watching(DeafHost("noisy", LinkError("it prints noise", code="garbage")))
    ear.until(lambda: len(ear.of("noisy")) > 4)
    assert {link.phase: link.is_lost for link in ear.of("noisy")} == {
        LinkPhase.CONNECTING: False,
        LinkPhase.DEGRADED: False,
    }
    watching(DeafHost("lost", LinkError("refused", code="refused")))
    ear.until(lambda: len(ear.of("lost")) > 4)
    assert all(link.is_lost for link in ear.of("lost")[1:])


@pytest.fixture
def ear() -> Ear:
    return Ear()


@pytest.fixture
def watching(ear: Ear) -> Iterator[Callable[..., Fleet]]:
    started: list[Fleet] = []

    def start(*hosts: object, **options: object) -> Fleet:
        fleet = Fleet(hosts, ear, ProbeOptions(**options))  # type: ignore[arg-type]
        started.append(fleet)
        fleet.start()
        return fleet

    yield start
    for fleet in started:
        fleet.stop()


@pytest.fixture
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_module, "BACKOFF_FIRST_S", 0.02)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_replay_is_connected_watched_and_finished(ear: Ear, watching: Callable[..., Fleet]) -> None:
    frames = [{"type": "hello", "t": 0, "gpus": []}, {"type": "gpus", "t": 1, "gpus": []}]
    watching(FrameTransport("r", lambda: iter(frames), speed=0))
    ear.until(ear.saw(LinkPhase.FINISHED))
    assert [link.phase for link in ear.of("r")] == [LinkPhase.CONNECTING, LinkPhase.WATCHING, LinkPhase.FINISHED]
    assert [type(frame).__name__ for _, frame, _ in ear.frames] == ["Hello", "Gpus"]


def test_a_probe_that_dies_is_lost_with_its_last_words_and_started_again_where_its_logs_stood(
    ear: Ear, watching: Callable[..., Fleet], quick_retries: None
) -> None:
    dies = (
        "say(type='log',t=1,source='s',line='x',offset=10)\n"
        "say(type='status',t=1,code='log_position',message='',source='s',detail={'offset':14,'inode':7,'head':'h'})\n"
        "say(type='log',t=1,source='s',line='y',offset=17)\n"
        "say(type='log',t=1,source='j',line='z',offset='s=cursor')\n"
        "sys.exit('MemoryError: \\x1b[31mno room')\n"
    )
    host = ScriptHost("h", dies, ONE + "time.sleep(60)")
    watching(host)
    ear.until(lambda: len(host.opened) == 2 and ear.phase("h") is LinkPhase.WATCHING)
    lost = ear.link_with(LinkPhase.LOST)
    assert lost.code == "probe_ended"
    assert "MemoryError: no room" in (lost.reason or "")
    assert (lost.next_try_t or 0) > 0
    assert "resume" not in host.opened[0]
    assert host.opened[1]["resume"] == {"s": {"offset": 17, "inode": 7, "head": "h"}, "j": {"offset": "s=cursor"}}


def test_an_offset_that_went_back_belongs_to_another_file(
    ear: Ear, watching: Callable[..., Fleet], quick_retries: None
) -> None:
    rotates = (
        "say(type='status',t=1,code='log_position',message='',source='s',detail={'offset':90,'inode':7})\n"
        "say(type='log',t=1,source='s',line='y',offset=3)\n"
        "sys.exit(1)\n"
    )
    host = ScriptHost("h", rotates, ONE + "time.sleep(60)")
    watching(host)
    ear.until(lambda: len(host.opened) == 2)
    assert host.opened[1]["resume"] == {"s": {"offset": 3}}


def test_a_host_that_falls_silent_is_lost_and_its_process_is_gone(
    ear: Ear, watching: Callable[..., Fleet], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "SILENT_MIN_S", 0.6)
    host = ScriptHost("h", ONE + "time.sleep(60)")
    watching(host, interval_s=0.1)
    ear.until(ear.saw(LinkPhase.LOST, "silent"))
    assert "nothing heard" in (ear.link_with(LinkPhase.LOST).reason or "")
    ear.until(lambda: not is_running(host.pids[0]))


def test_pings_reach_the_probe_and_its_frames_keep_the_link(ear: Ear, watching: Callable[..., Fleet]) -> None:
    echo = "for line in sys.stdin: say(type='status',t=1,code='heard',message=line)\n"
    watching(ScriptHost("h", ONE + echo))
    ear.until(lambda: sum(getattr(frame, "code", "") == "heard" for _, frame, _ in ear.frames) >= 2)
    assert json.loads(next(f.message for _, f, _ in ear.frames if getattr(f, "code", "") == "heard")) == {"cmd": "ping"}


def test_a_slow_reader_of_ours_is_not_mistaken_for_a_silent_host(
    ear: Ear, watching: Callable[..., Fleet], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "SILENT_MIN_S", 0.5)
    ear.slow_s = 0.8
    watching(ScriptHost("h", "while True:\n " + ONE + " time.sleep(0.1)\n"), interval_s=0.1)
    ear.until(lambda: len(ear.frames) >= 3)
    assert not ear.saw(LinkPhase.LOST)()


def test_lines_that_are_no_frames_degrade_the_host_and_it_recovers(
    ear: Ear, watching: Callable[..., Fleet], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_module, "MALFORMED_WINDOW_S", 0.5)
    noisy = ONE + "for n in range(40): print('not a frame', flush=True)\n" + "while True:\n time.sleep(0.2)\n " + ONE
    watching(ScriptHost("h", noisy))
    ear.until(ear.saw(LinkPhase.DEGRADED, "garbage"))
    ear.until(lambda: ear.phase("h") is LinkPhase.WATCHING)


def test_a_host_that_sends_a_line_without_end_is_cut_and_degraded(ear: Ear, watching: Callable[..., Fleet]) -> None:
    host = ScriptHost("h", "b='x'*1000000\nwhile True: sys.stdout.write(b)\n")
    watching(host)
    ear.until(ear.saw(LinkPhase.DEGRADED, "garbage"), 30)
    ear.until(lambda: not is_running(host.pids[0]))


def test_a_host_that_floods_is_read_no_faster_than_the_bound(
    ear: Ear, watching: Callable[..., Fleet], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moetop.transport.stream.MAX_LINES_S", 1000)
    begun = time.monotonic()
    watching(ScriptHost("flood", 'while True: sys.stdout.write(\'{"type":"gpus","t":1}\\n\')\n'))
    ear.until(lambda: len(ear.frames) >= 6000)
    assert time.monotonic() - begun > 1.0


def test_what_a_host_says_of_its_logs_is_remembered_within_bounds(
    ear: Ear, watching: Callable[..., Fleet], quick_retries: None
) -> None:
    swollen = (
        "for n in range(400): say(type='log',t=1,source='s%d'%n,line='x',offset=n)\n"
        "say(type='status',t=1,code='log_position',message='',source='s1',detail={'offset':2,'head':'h'*9999,'x':[1]})\n"
        "say(type='log',t=1,source='l'*9999,line='x',offset=1)\n"
        "sys.exit(1)\n"
    )
    host = ScriptHost("h", swollen, ONE + "time.sleep(60)")
    watching(host)
    ear.until(lambda: len(host.opened) == 2)
    resume = host.opened[1]["resume"]
    assert isinstance(resume, dict)
    assert len(resume) == fleet_module.MAX_RESUME_SOURCES
    assert resume["s1"] == {"offset": 2}


def test_a_fatal_status_degrades_and_data_heals(ear: Ear, watching: Callable[..., Fleet]) -> None:
    script = (
        "say(type='status',t=1,code='no_driver',message='no NVIDIA driver is loaded',level='error',fatal=True)\n"
        "time.sleep(0.2)\n" + ONE + "time.sleep(60)\n"
    )
    watching(ScriptHost("h", script))
    ear.until(ear.saw(LinkPhase.DEGRADED, "no_driver"))
    assert ear.link_with(LinkPhase.DEGRADED).reason == "no NVIDIA driver is loaded"
    ear.until(lambda: ear.phase("h") is LinkPhase.WATCHING)


def test_one_host_that_hangs_or_fails_does_not_delay_another(ear: Ear, watching: Callable[..., Fleet]) -> None:
    refused = LinkError("connection refused", "start sshd", code="refused")
    fleet = watching(DeafHost("hangs"), DeafHost("fails", refused), ScriptHost("good", ONE + "time.sleep(60)"))
    ear.until(lambda: ear.phase("good") is LinkPhase.WATCHING and ear.phase("fails") is LinkPhase.LOST, 5)
    assert ear.link_with(LinkPhase.LOST).advice == "start sshd"
    assert ear.phase("hangs") is LinkPhase.CONNECTING
    begun = time.monotonic()
    fleet.stop()
    assert time.monotonic() - begun < 5


def test_waits_between_tries_double_to_a_ceiling_with_jitter(
    ear: Ear, watching: Callable[..., Fleet], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_module, "BACKOFF_FIRST_S", 0.01)
    monkeypatch.setattr(fleet_module, "BACKOFF_LAST_S", 0.08)
    asked: list[float] = []
    monkeypatch.setattr(fleet_module.random, "uniform", lambda low, high: asked.append(low) or high)
    watching(DeafHost("h", LinkError("refused", code="refused")))
    lost = lambda: [link for link in ear.of("h") if link.phase is LinkPhase.LOST]  # noqa: E731
    ear.until(lambda: len(lost()) >= 6)
    assert set(asked) == {0.5}
    assert [link.attempt for link in lost()[:6]] == [1, 2, 3, 4, 5, 6]
    assert len({link.since_t for link in ear.of("h")}) == 1, "a host is down since its first failure"


def test_what_trying_again_cannot_mend_is_tried_seldom_but_at_once_when_asked(
    ear: Ear, watching: Callable[..., Fleet]
) -> None:
    host = DeafHost("h", LinkError("host key unknown", code="host_key_unknown", retry=False))
    fleet = watching(host)
    ear.until(ear.saw(LinkPhase.LOST))
    assert (ear.link_with(LinkPhase.LOST).next_try_t or 0) - time.time() > 25
    assert fleet.retry("h")
    ear.until(lambda: len(host.opened) == 2)


def test_a_host_that_is_connected_or_being_tried_is_not_tried_again(ear: Ear, watching: Callable[..., Fleet]) -> None:
    fleet = watching(ScriptHost("fine", ONE + "time.sleep(60)"), DeafHost("deaf"))
    ear.until(lambda: ear.phase("fine") is LinkPhase.WATCHING and ear.phase("deaf") is LinkPhase.CONNECTING)
    assert not fleet.retry("fine") and not fleet.retry("deaf")


def test_a_broken_sink_costs_only_its_own_host(ear: Ear, watching: Callable[..., Fleet]) -> None:
    def frame(host: str, frame: AnyFrame, raw: bytes) -> None:
        if host == "bad":
            raise ZeroDivisionError("oops")
        Ear.frame(ear, host, frame, raw)

    ear.frame = frame  # type: ignore[method-assign]
    watching(ScriptHost("bad", ONE + "time.sleep(60)"), ScriptHost("good", ONE + "time.sleep(60)"))
    ear.until(ear.saw(LinkPhase.LOST, "fault"))
    ear.until(lambda: any(host == "good" for host, _, _ in ear.frames))


def test_hosts_come_and_go_while_watching(ear: Ear, watching: Callable[..., Fleet]) -> None:
    a, b = ScriptHost("a", ONE + "time.sleep(60)"), ScriptHost("b", ONE + "time.sleep(60)")
    fleet = watching(a)
    fleet.add(b)
    ear.until(lambda: ear.phase("a") is LinkPhase.WATCHING and ear.phase("b") is LinkPhase.WATCHING)
    with pytest.raises(MoetopError, match="watched already"):
        fleet.add(ScriptHost("b"))
    fleet.remove("a")
    assert not is_running(a.pids[0])
    assert is_running(b.pids[0])
    with pytest.raises(LinkError, match="not watched"):
        fleet.send("a", b"{}")


def test_a_single_sample_is_taken_once(ear: Ear, watching: Callable[..., Fleet]) -> None:
    host = ScriptHost("h", ONE)
    watching(host, once=True)
    ear.until(ear.saw(LinkPhase.FINISHED))
    assert host.opened[0]["once"] is True
    assert len(host.opened) == 1


def test_hundreds_of_hosts_are_watched_and_stopped_at_once(ear: Ear, watching: Callable[..., Fleet]) -> None:
    def frames() -> Iterator[dict[str, object]]:
        return ({"type": "gpus", "t": float(t), "gpus": [{"index": n} for n in range(8)]} for t in range(10_000))

    fleet = watching(*[FrameTransport(f"h{n}", frames) for n in range(256)])
    ear.until(lambda: len({host for host, frame, _ in ear.frames if isinstance(frame, Gpus)}) == 256)
    begun = time.monotonic()
    fleet.stop()
    assert time.monotonic() - begun < 5
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("moetop-h")]
