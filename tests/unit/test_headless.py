"""Runs without a screen: what is waited for, what is written and said, and the exit code."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from moetop import headless
from moetop.errors import ExitCode, UsageError
from moetop.export.output import open_output
from moetop.fleet import Fleet
from moetop.headless import exit_code, run_every, run_record, run_snapshot, sample_once
from moetop.interrupts import interruptible
from moetop.model import (
    AnyFrame,
    Confidence,
    Finding,
    FindingKind,
    GpuInfo,
    Gpus,
    GpuSample,
    Hello,
    HostReport,
    HostStatus,
    Severity,
    Snapshot,
    Status,
)
from moetop.recording import Recorder
from moetop.session import Session
from moetop.transport.base import ProbeOptions
from moetop.transport.replay import FrameTransport
from moetop.watch import Watch

MISMATCH = "Failed to initialize NVML: Driver/library version mismatch"


def at_work(seconds: int = 4, step_s: float = 0.25, limit_w: float = 700.0, t0: float = 0.0) -> list[AnyFrame]:
    """A GPU at work; a limit under its default is a warning."""
    info = GpuInfo(index=0, name="NVIDIA H200", power_limit_default_w=700.0, sm_clock_max_mhz=1980)
    sample = GpuSample(
        index=0, util_gpu_pct=100.0, util_mem_pct=99.0, power_w=300.0, power_limit_w=limit_w, sm_clock_mhz=1965.0
    )
    times = [t0 + n * step_s for n in range(int(seconds / step_s))]
    searched = Status(t=t0, code="no_server", message="no server")
    return [Hello(t=t0, gpus=(info,), source="nvml"), searched, *(Gpus(t=t, gpus=(sample,)) for t in times)]


def broken() -> list[AnyFrame]:
    trouble = Status(t=0.0, code="driver_mismatch", message=MISMATCH, level="error", fatal=True)
    return [Hello(t=0.0), trouble, Status(t=0.0, code="no_server", message="no server")]


def frames(name: str, of: Iterable[AnyFrame], speed: float = 0.0) -> FrameTransport:
    lines = [msgspec.json.encode(frame) for frame in of]
    return FrameTransport(name, lambda: iter(lines), speed=speed)


@pytest.fixture
def silence() -> Iterator[Callable[[str], FrameTransport]]:
    """Hosts that are reached and never say a word that a reader knows."""
    over = threading.Event()

    def source() -> Iterator[bytes]:
        while not over.wait(0.05):
            yield b'{"type":"hum","t":0}'

    yield lambda name: FrameTransport(name, source)
    over.set()


def session_of(
    transports: Sequence[FrameTransport], *, flat_out: bool = True, window_s: float = 0.5, record: Path | None = None
) -> Session:
    recorder = Recorder(str(record)) if record is not None else None
    watch = Watch(window_s, live=not flat_out, on_frame=recorder.write if recorder is not None else None)
    for transport in transports:
        watch.expect(transport.name)
    fleet = Fleet(transports, watch, ProbeOptions())
    return Session(watch, fleet, flat_out=flat_out, recorder=recorder, transports=transports)


def snapshot(session: Session, folder: Path, *, check: bool = False) -> tuple[ExitCode, dict[str, object], list[str]]:
    """(exit code, what was written, what was said)."""
    said: list[str] = []
    code = run_snapshot(session, open_output(str(folder / "out.json")), said.append, check=check)
    return code, json.loads((folder / "out.json").read_text()), said


# ── exit codes ───────────────────────────────────────────────────────────────────────────────────


def host(status: HostStatus = HostStatus.OK, *severities: Severity) -> HostReport:
    findings = tuple(
        Finding(kind=FindingKind.OVERLOADED, severity=one, confidence=Confidence.MEASURED, summary="s")
        for one in severities
    )
    return HostReport(name="a", headline="x", status=status, findings=findings)


LOST, DEGRADED, FINE = HostStatus.UNREACHABLE, HostStatus.DEGRADED, HostStatus.OK


@pytest.mark.parametrize(
    ("hosts", "plain", "checked"),
    [
        ([], 0, 0),
        ([host()], 0, 0),
        ([host(FINE, Severity.INFO)], 0, 0),
        ([host(FINE, Severity.WARNING)], 0, 3),
        ([host(FINE, Severity.INFO, Severity.CRITICAL), host()], 0, 3),
        ([host(DEGRADED)], 0, 0),
        ([host(), host(LOST)], 4, 4),
        ([host(FINE, Severity.CRITICAL), host(LOST)], 4, 4),
    ],
)
def test_a_host_that_cannot_be_watched_beats_findings_which_count_only_when_asked(
    hosts: list[HostReport], plain: int, checked: int
) -> None:
    taken = Snapshot(hosts=tuple(hosts))
    assert (exit_code(taken, check=False), exit_code(taken, check=True)) == (plain, checked)


# ── one snapshot ─────────────────────────────────────────────────────────────────────────────────


def test_a_recording_is_read_flat_out_to_its_end(tmp_path: Path) -> None:
    hour = at_work(seconds=3600, step_s=1.0)
    began = time.monotonic()
    code, written, said = snapshot(session_of([frames("a", hour), frames("b", hour)], window_s=10.0), tmp_path)
    assert time.monotonic() - began < 30.0
    assert code == ExitCode.OK and said == []
    hosts = {one["name"]: one for one in written["hosts"]}
    assert set(hosts) == {"a", "b"} and hosts["a"]["gpus"][0]["util_gpu_pct"] == 100.0


def test_a_host_of_a_recording_whose_gpus_gave_no_sample_was_not_watched(tmp_path: Path) -> None:
    unsampled, lost = at_work()[:1], [*at_work()[:2], Gpus(t=1.0, gpus=(GpuSample(index=0, error="gpu_lost"),))]
    code, written, said = snapshot(session_of([frames("fine", at_work()), frames("empty", unsampled)]), tmp_path)
    assert code == ExitCode.UNWATCHED and written["headline"] == "no_data"
    assert [one["status"] for one in written["hosts"]] == ["ok", "unreachable"]
    assert len(said) == 1 and said[0].startswith("moetop: empty: its GPUs were named and not one sample of them came;")
    assert snapshot(session_of([frames("lost", lost)]), tmp_path)[0] == ExitCode.OK, "a lost GPU is seen to be lost"


def test_a_recording_has_no_connection_to_make_anew() -> None:
    session = session_of([frames("a", at_work())])
    session.kind = "recording"
    with pytest.raises(UsageError, match="no connection"):
        session.reconnect("a")


def test_a_warning_ends_with_3_only_when_checked(tmp_path: Path) -> None:
    for check, code in ((False, 0), (True, 3)):
        session = session_of([frames("a", at_work(limit_w=350.0))])
        assert snapshot(session, tmp_path, check=check)[0] == code


def test_a_live_host_is_waited_for_until_its_samples_span_the_window(tmp_path: Path) -> None:
    now = time.time()
    session = session_of([frames("a", at_work(20, 0.1, t0=now), speed=1.0)], flat_out=False, window_s=0.8)
    began = time.monotonic()
    assert snapshot(session, tmp_path)[0] == ExitCode.OK
    assert 0.8 <= time.monotonic() - began < 15.0, "not to the end of the stream"


def test_a_host_that_never_answers_ends_the_wait_in_words_and_the_others_are_told(
    tmp_path: Path, silence: Callable[[str], FrameTransport], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(headless, "CONNECT_GRACE_S", 0.5)
    monkeypatch.setattr(headless, "SEARCH_GRACE_S", 0.1)
    now = time.time()
    fine = frames("fine", at_work(30, 0.1, t0=now), speed=1.0)
    code, written, said = snapshot(session_of([silence("mute"), fine], flat_out=False, window_s=0.3), tmp_path)
    assert code == ExitCode.UNWATCHED
    assert len(said) == 1 and said[0].startswith("moetop: mute: no answer in time")
    hosts = {one["name"]: one for one in written["hosts"]}
    assert hosts["mute"]["status"] == "unreachable"
    assert hosts["fine"]["gpus"][0]["util_gpu_pct"] == 100.0


def test_one_hosts_trouble_is_told_and_hides_nothing_of_the_others(tmp_path: Path) -> None:
    now = time.time()
    fine = frames("host-b", at_work(30, 0.1, t0=now), speed=1.0)
    session = session_of([frames("host-a", broken(), speed=1.0), fine], flat_out=False, window_s=0.3)
    code, written, said = snapshot(session, tmp_path, check=True)
    a, b = written["hosts"]
    assert code == ExitCode.UNWATCHED and written["headline"] == "driver_mismatch"
    assert a["error"] and a["gpus"] == [] and b["gpus"][0]["util_gpu_pct"] == 100.0
    assert len(said) == 1 and "host-a" in said[0] and "mismatch" in said[0]


def test_of_very_many_hosts_that_cannot_be_watched_the_first_are_named(tmp_path: Path) -> None:
    many = [frames(f"host-{n:03}", broken(), speed=1.0) for n in range(headless.TOLD_HOSTS + 30)]
    _, written, said = snapshot(session_of(many, flat_out=False, window_s=0.3), tmp_path)
    assert len(said) == headless.TOLD_HOSTS + 1 and "30 more hosts" in said[-1]
    assert len(written["hosts"]) == len(many)


def test_the_fleet_is_stopped_whatever_happens(tmp_path: Path) -> None:
    class Full:
        def write(self, taken: Snapshot, series: object = None) -> None:
            raise OSError(28, "No space left on device")

        write_line = write

    session = session_of([frames("a", at_work())])
    with pytest.raises(OSError, match="No space"):
        run_snapshot(session, Full(), lambda text: None, check=False)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("moetop-heartbeat")]


# ── again and again ──────────────────────────────────────────────────────────────────────────────


def test_every_writes_a_line_at_a_time_until_the_stream_is_over(tmp_path: Path) -> None:
    now = time.time()
    session = session_of([frames("a", at_work(2, 0.1, limit_w=350.0, t0=now), speed=1.0)], flat_out=False, window_s=0.3)
    out = tmp_path / "lines.jsonl"
    code = run_every(session, open_output(str(out)), 0.3, lambda text: None, check=True)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert code == ExitCode.FINDINGS, "the worst of all lines"
    assert 4 <= len(lines) <= 10
    times = [line["taken_at"] for line in lines]
    assert times == sorted(times) and all(line["schema"] == "moetop.snapshot/1" for line in lines)


def test_every_says_a_hosts_trouble_once(tmp_path: Path) -> None:
    now = time.time()
    fine = frames("fine", at_work(2, 0.1, t0=now), speed=1.0)
    stuck = [*broken(), Status(t=2.5, code="bye", message="")]
    session = session_of([frames("bad", stuck, speed=1.0), fine], flat_out=False, window_s=0.3)
    said: list[str] = []
    out = tmp_path / "lines.jsonl"
    assert run_every(session, open_output(str(out)), 0.2, said.append, check=False) == ExitCode.UNWATCHED
    assert len(out.read_text().splitlines()) > 3
    assert len([text for text in said if text.startswith("moetop: bad")]) == 1


# ── recording ────────────────────────────────────────────────────────────────────────────────────


def test_a_recording_ends_after_its_duration_and_holds_every_frame(tmp_path: Path) -> None:
    path = tmp_path / "kept.jsonl"
    now = time.time()
    session = session_of([frames("a", at_work(30, 0.1, t0=now), speed=1.0)], flat_out=False, record=path)
    said: list[str] = []
    began = time.monotonic()
    assert run_record(session, 0.8, said.append) == ExitCode.OK
    assert 0.8 <= time.monotonic() - began < 20.0
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert said == [f"recorded {len(lines)} frames to {path}"]
    assert lines[0]["type"] == "hello" and sum(line["type"] == "gpus" for line in lines) >= 2
    assert path.stat().st_mode & 0o077 == 0


def test_a_recording_without_a_duration_ends_with_its_stream(tmp_path: Path) -> None:
    path = tmp_path / "kept.jsonl"
    given = at_work(2)
    session = session_of([frames("a", given)], flat_out=False, record=path)
    assert run_record(session, None, lambda text: None) == ExitCode.OK
    assert len(path.read_text().splitlines()) == len(given)


def test_a_recording_of_a_host_that_never_answered_is_not_a_good_end(
    tmp_path: Path, silence: Callable[[str], FrameTransport]
) -> None:
    said: list[str] = []
    session = session_of([silence("mute")], flat_out=False, record=tmp_path / "kept.jsonl")
    assert run_record(session, 0.3, said.append) == ExitCode.UNWATCHED
    assert said[0].startswith("recorded 0 frames") and "mute: no answer in time" in said[1]


# ── signals ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGHUP])
def test_being_ended_cleans_up_like_control_c(kind: signal.Signals, silence: Callable[[str], FrameTransport]) -> None:
    before = signal.getsignal(kind)
    session = session_of([silence("mute")], flat_out=False)
    timer = threading.Timer(0.3, os.kill, [os.getpid(), kind])
    timer.start()
    with pytest.raises(KeyboardInterrupt), interruptible():
        sample_once(session)
    timer.join()
    assert signal.getsignal(kind) is before
    assert session.watch.names() == ["mute"] and not session.fleet._hosts
