"""What lies before the present (a demo's start, a replay's jump) fills charts and states as if it had been watched."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from moetop.demo import RECORDED, SCRIPTED, transports
from moetop.demo.fleet import NOW_T, PAST_S
from moetop.fleet import Fleet
from moetop.history import SERVER_FIELDS, GpuHistory, ServerHistory
from moetop.model import AnyFrame, Confidence, Gpus, GpuSample, GpuState, Log, Server, ServerMetrics
from moetop.player import PAST_S as SOUGHT_PAST_S
from moetop.player import Player
from moetop.trail import MOST_SPELLS, Standing, StateTrail
from moetop.transport.base import ProbeOptions, Transport
from moetop.watch import Watch
from tests.unit.test_watch import gpus, hello, put

ARGS = "[2026-02-19 01:04:33] server_args=ServerArgs(model_path='/m', port=8000)"
TERM = "[2026-02-19 02:00:00] SIGTERM received. signum=None frame=None. Draining requests and shutting down..."
DECODE = (
    "[2026-02-19 01:09:30 DP{rank} TP0] Decode batch, #running-req: {running}, #token: 9000, token usage: 0.1, "
    "cuda graph: True, gen throughput (token/s): {speed:.2f}, #queue-req: 0"
)
NAME = "sglang:8000"


@contextmanager
def playing(made: list[Transport]) -> Iterator[tuple[Watch, Fleet]]:
    """The transports played into a watch by real supervisors."""
    watch = Watch(10.0, live=False, source="recording")
    for transport in made:
        watch.expect(transport.name)
    fleet = Fleet(made, watch, ProbeOptions())
    fleet.start()
    try:
        yield watch, fleet
    finally:
        fleet.stop()


def reached(watch: Watch, host: str, t: float) -> None:
    assert watch.wait(lambda: (watch.last_t(host) or 0.0) >= t, 20), "the past comes at once"


def series(watch: Watch, host: str, server: str) -> tuple[GpuHistory, ServerHistory]:
    gpu, numbers = watch.history(host, 0), watch.server_history(host, server)
    assert gpu is not None and numbers is not None
    return gpu, numbers


def share_covered(numbers: ServerHistory, start: float, end: float) -> float:
    values = numbers.resample("generation_tokens_s", start, end, 40)
    return sum(value is not None for value in values) / len(values)


# ── the demo's start and a replay's jump ─────────────────────────────────────────────────────────


def test_at_the_demos_start_the_token_charts_cover_what_the_gpu_charts_cover() -> None:
    with playing(list(transports())) as (watch, _fleet):
        for host, server, begin in ((RECORDED, "sglang:30000", -PAST_S + 5), (SCRIPTED, NAME, -195.0)):
            reached(watch, host, NOW_T - 1)
            gpu, numbers = series(watch, host, server)
            assert gpu.first_t is not None and gpu.first_t <= NOW_T - PAST_S + 3
            assert share_covered(numbers, NOW_T + begin, NOW_T - 1) == 1.0
        numbers = series(watch, SCRIPTED, NAME)[1]
        assert numbers.first_t is not None and numbers.first_t > NOW_T - 198, "it was not ready before"


def test_at_the_demos_start_the_states_of_its_past_are_known() -> None:
    with playing(list(transports())) as (watch, _fleet):
        for host in (RECORDED, SCRIPTED):
            reached(watch, host, NOW_T - 1)
        trail = watch.states(SCRIPTED, 7)
        assert trail is not None
        seen = [found.state for ago_s in (290, 60) if (found := trail.at(NOW_T - ago_s)) is not None]
        assert seen == [GpuState.IDLE, GpuState.TENSOR_STARVED]
        assert trail.at(NOW_T - PAST_S - 60) is None, "nobody watched then"
        trail = watch.states(RECORDED, 0)
        found = trail.at(NOW_T - 200) if trail is not None else None
        assert found is not None
        assert (found.state, found.confidence) == (GpuState.TENSOR_STARVED, Confidence.MEASURED)


@pytest.fixture
def ten_minutes(tmp_path: Path) -> Path:
    """A recording: idle for five minutes, then work; numbers every five seconds."""
    frames: list[AnyFrame] = [hello(0.0), Server(t=0.0, name=NAME, pid=7)]
    for second in range(600):
        t = float(second)
        idle = GpuSample(index=0, util_gpu_pct=0.0, util_mem_pct=0.0, power_w=80.0, power_limit_w=700.0)
        frames.append(Gpus(t=t, gpus=(idle,)) if second < 400 else gpus(t, util=50.0))
        if second % 5 == 0:
            numbers = ServerMetrics(running=8.0, generation_tokens_s=100.0 + second, source="/metrics", t=t)
            frames.append(Server(t=t, name=NAME, pid=7, metrics=numbers))
    path = tmp_path / "ten.jsonl"
    path.write_bytes(b"".join(msgspec.json.encode(frame) + b"\n" for frame in frames))
    return path


def test_after_a_jump_in_a_replay_charts_and_states_cover_the_same_past(ten_minutes: Path) -> None:
    player = Player(str(ten_minutes), speed=1.0, from_s=None, to_s=None)
    (transport,) = player.transports()
    host, there = transport.name, 580.0
    with playing([transport]) as (watch, fleet):
        reached(watch, host, 0.0)
        player.seek(there, fleet, watch)
        reached(watch, host, there - 1)
        gpu, numbers = series(watch, host, NAME)
        assert gpu.first_t == there - SOUGHT_PAST_S
        assert share_covered(numbers, gpu.first_t, there) == 1.0
        assert numbers.at("generation_tokens_s", 300.5) == 400.0
        trail = watch.states(host, 0)
        assert trail is not None
        seen = [found.state for t in (300.0, 560.0) if (found := trail.at(t)) is not None]
        assert seen == [GpuState.IDLE, GpuState.HOST_BOUND]
        assert trail.at(100.0) is None


# ── the same values as a report ──────────────────────────────────────────────────────────────────


def told(t: float, speed: float, **more: object) -> Server:
    numbers = ServerMetrics(running=8.0, generation_tokens_s=speed, source="/metrics", t=t)
    return msgspec.structs.replace(Server(t=t, name=NAME, pid=7, source="/log", metrics=numbers), **more)


def line(t: float, text: str, **more: object) -> Log:
    return msgspec.structs.replace(Log(t=t, source="/log", line=text), **more)


def endpoint() -> list[AnyFrame]:
    return [told(float(t), 100.0 + t) for t in range(10, 60, 5)]


def log_of_ranks() -> list[AnyFrame]:
    dice = random.Random(1)
    beats = [(t, rank) for t in range(10, 60, 5) for rank in range(4)]
    decode = [DECODE.format(rank=rank, running=rank, speed=dice.uniform(90, 110)) for _t, rank in beats]
    lines = [line(t + 0.1 * rank, text) for (t, rank), text in zip(beats, decode, strict=True)]
    return [Server(t=9.0, name=NAME, pid=7, source="/log"), line(9.1, ARGS), *lines]


def endpoint_that_falls_silent() -> list[AnyFrame]:
    times = [float(t) for t in range(20, 200, 4)]
    lines = [(line(t, DECODE.format(rank=0, running=3, speed=t)), gpus(t)) for t in times]
    return [told(10.0, 50.0), *(frame for pair in lines for frame in pair)]


def log_without_a_process() -> list[AnyFrame]:
    return [line(t + 0.5, DECODE.format(rank=0, running=3, speed=100.0 + t)) for t in range(10, 60, 2)]


def server_that_stops() -> list[AnyFrame]:
    return [told(10.0, 50.0), line(11.0, TERM), line(12.0, "Server process exited"), told(13.0, 50.0, gone=True)]


@pytest.mark.parametrize(
    "make", [endpoint, log_of_ranks, endpoint_that_falls_silent, log_without_a_process, server_that_stops]
)
def test_the_numbers_of_a_series_are_those_that_reports_give(make: object) -> None:
    frames = make()  # type: ignore[operator]
    fast, looked = Watch(10.0, live=False), Watch(10.0, live=False)
    reported: dict[float, ServerMetrics] = {}
    name = ""
    for frame in (hello(8.0), gpus(8.0), *frames):
        put(fast, "a", frame)
        put(looked, "a", frame)
        for server in looked.report("a").servers:
            if server.metrics is not None:
                name = server.name
                reported[server.metrics.t or frame.t] = server.metrics
    numbers = fast.server_history("a", name)
    assert numbers is not None and numbers.first_t == min(reported)
    for t, metrics in reported.items():
        if t + 1.0 not in reported and not any(t < other < t + 1.0 for other in reported):
            found = {field: numbers.at(field, t) for field in SERVER_FIELDS}
            assert found == {field: getattr(metrics, field) for field in SERVER_FIELDS}, t
    once = {round(t) for t in reported}
    assert len(numbers) <= len(once), "a reading is one point"


def test_numbers_of_a_logs_past_have_no_time_and_make_no_point() -> None:
    watch = Watch(10.0)
    put(watch, "a", hello(8.0), gpus(8.0), line(9.0, DECODE.format(rank=0, running=3, speed=1.0), history=True))
    assert watch.server_history("a", "/log") is None


def test_more_lines_than_are_read_between_two_reports_make_points_all_the_same() -> None:
    watch = Watch(10.0, live=False)
    put(watch, "a", hello(0.0), gpus(0.0))
    put(watch, "a", *(line(2.0 * n, DECODE.format(rank=0, running=3, speed=100.0 + n)) for n in range(300)))
    numbers = watch.server_history("a", "/log")
    assert numbers is not None and numbers.last_t == 598.0
    assert numbers.latest("generation_tokens_s") == 399.0 and share_covered(numbers, 0.0, 598.0) == 1.0


def test_a_reading_told_again_or_overtaken_is_passed_over_and_a_clock_set_back_starts_anew() -> None:
    numbers = ServerHistory()
    for t, speed in ((10.0, 1.0), (15.0, 2.0), (15.0, 3.0), (14.0, 4.0)):
        numbers.add(t, ServerMetrics(generation_tokens_s=speed))
    assert len(numbers) == 2 and numbers.latest("generation_tokens_s") == 2.0
    numbers.add(3.0, ServerMetrics(generation_tokens_s=5.0))
    assert (len(numbers), numbers.first_t) == (1, 3.0)


# ── states ───────────────────────────────────────────────────────────────────────────────────────


def standing(state: GpuState, error: str | None = None) -> Standing:
    return Standing(state, Confidence.MEASURED, error, 5.0)


def state_at(trail: StateTrail, t: float) -> GpuState | None:
    found = trail.at(t)
    return found.state if found is not None else None


def test_a_trail_knows_changes_gaps_and_nothing_outside() -> None:
    trail = StateTrail()
    for t in (10.0, 11.0, 12.0):
        trail.add(t, standing(GpuState.IDLE))
    trail.add(13.0, standing(GpuState.TENSOR_BUSY))
    trail.add(60.0, standing(GpuState.TENSOR_BUSY))
    trail.add(61.0, standing(GpuState.UNKNOWN, "gpu_lost"))
    assert len(trail) == 4
    assert [state_at(trail, t) for t in (9.9, 12.9, 13.0, 18.0)] == [
        None, GpuState.IDLE, GpuState.TENSOR_BUSY, GpuState.TENSOR_BUSY,
    ]  # fmt: skip
    assert [state_at(trail, t) for t in (18.1, 59.0, 60.5)] == [None, None, GpuState.TENSOR_BUSY]
    found = trail.at(61.0)
    assert found is not None and found.error == "gpu_lost" and trail.at(66.1) is None


def test_a_trail_is_bounded_and_a_clock_set_back_starts_it_anew() -> None:
    trail = StateTrail()
    for n in range(MOST_SPELLS + 50):
        trail.add(float(n), standing(GpuState.IDLE if n % 2 else GpuState.BALANCED))
    assert len(trail) == MOST_SPELLS and trail.at(49.0) is None and state_at(trail, 51.0) is GpuState.IDLE
    trail.add(5.0, standing(GpuState.IDLE))
    assert len(trail) == 1 and trail.at(1000.0) is None


def test_a_trail_says_at_every_sample_what_a_report_says_then() -> None:
    watch = Watch(10.0, live=False)
    put(watch, "a", hello(0.0))
    dice = random.Random(3)
    said = {}
    for second in range(120):
        if not 60 <= second < 80:
            put(watch, "a", gpus(float(second), util=dice.choice((0.0, 0.0, 50.0)) if second < 90 else 50.0))
            (gpu,) = watch.report("a").gpus
            said[float(second)] = (gpu.state, gpu.confidence, gpu.error)
    trail = watch.states("a", 0)
    assert trail is not None and len({state for state, *_ in said.values()}) > 1
    for t, expected in said.items():
        found = trail.at(t)
        assert found is not None and (found.state, found.confidence, found.error) == expected, t
    assert trail.at(70.0) is None, "the link was down"


def test_without_charts_no_states_are_kept() -> None:
    watch = Watch(10.0, keep_history=False)
    put(watch, "a", hello(0.0), gpus(0.0))
    assert watch.states("a", 0) is None
