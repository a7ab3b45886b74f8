"""Bounded series: exact when young, coarser with age, gaps kept, memory fixed."""

from __future__ import annotations

import threading

from hypothesis import given
from hypothesis import strategies as st

from moetop.history import LEVEL_POINTS, LEVELS, GpuHistory, History, ServerHistory
from moetop.model import Gpm, GpuSample, ServerMetrics


def filled(count: int, step_s: float = 1.0) -> GpuHistory:
    history = GpuHistory()
    for n in range(count):
        history.add(n * step_s, GpuSample(index=0, util_gpu_pct=float(n % 100), power_w=300.0, power_limit_w=600.0))
    return history


def test_the_last_minutes_are_exact() -> None:
    history = filled(200)
    assert history.resample("util_gpu_pct", 100, 109.99, 10) == [float(n % 100) for n in range(100, 110)]


def test_power_percent_is_of_the_limit_in_force() -> None:
    assert filled(3).latest("power_pct") == 50.0


def test_absent_values_stay_absent() -> None:
    history = GpuHistory()
    history.add(1.0, GpuSample(index=0, util_gpu_pct=5.0, power_w=100.0))
    assert history.latest("power_pct") is None
    assert history.latest("tensor_pct") is None
    assert history.at("util_gpu_pct", 1.2) == 5.0


def test_gpm_values_are_kept() -> None:
    history = GpuHistory()
    history.add(1.0, GpuSample(index=0, gpm=Gpm(tensor_pct=57.0, dram_pct=68.0)))
    assert (history.latest("tensor_pct"), history.latest("dram_pct")) == (57.0, 68.0)


def test_memory_is_bounded_and_hours_remain() -> None:
    history = filled(60_000)
    assert len(history) <= LEVEL_POINTS * LEVELS
    assert history.first_t is not None and history.last_t is not None
    assert history.last_t - history.first_t > 6 * 3600


def test_an_hour_is_kept_at_five_samples_a_second() -> None:
    history = filled(40_000, step_s=0.2)
    assert history.first_t is not None and history.last_t is not None
    assert history.last_t - history.first_t > 3600


def test_an_hour_without_samples_is_a_gap_however_few_there_were_before() -> None:
    history = filled(2)
    history.add(3600.0, GpuSample(index=0, util_gpu_pct=5.0))
    values = history.resample("util_gpu_pct", 0.0, 3601.0, 60)
    assert values[0] is not None and values[-1] == 5.0
    assert not any(value is not None for value in values[1:-1])


def test_old_points_are_means_of_their_neighbours() -> None:
    history = History(("x",), level_points=4, levels=2)
    for n in range(6):
        history.append(float(n), {"x": float(n)})
    assert history.resample("x", 0, 1.9, 2) == [0.5, 0.5]


def test_a_gap_stays_a_gap_however_old_it_grows() -> None:
    history = GpuHistory()
    for n in [*range(100), *range(400, 5000)]:
        history.add(float(n), GpuSample(index=0, util_gpu_pct=50.0))
    values = history.resample("util_gpu_pct", 0, 500, 50)
    assert values[5] == 50.0
    assert all(value is None for value in values[12:39])
    assert values[45] == 50.0


def test_one_lost_sample_is_no_gap() -> None:
    history = GpuHistory()
    for n in range(60):
        if n != 30:
            history.add(float(n), GpuSample(index=0, util_gpu_pct=50.0))
    assert None not in history.resample("util_gpu_pct", 0, 59, 59)


def test_time_that_runs_backwards_starts_anew() -> None:
    history = filled(100)
    history.add(5.0, GpuSample(index=0, util_gpu_pct=1.0))
    assert len(history) == 1 and history.last_t == 5.0


def test_recent_points_are_the_newest_with_all_names() -> None:
    history = GpuHistory()
    for n in range(300):
        power = None if n % 2 else 300.0
        history.add(float(n), GpuSample(index=0, util_gpu_pct=float(n), power_w=power, power_limit_w=600.0))
    points = history.recent(("util_gpu_pct", "power_pct"), 120.0, 16)
    assert points and all(point[0] >= 179 and point[1] == 50.0 for point in points)
    assert len(points) <= 20


def test_reading_while_another_thread_adds_never_sees_half_a_row() -> None:
    history = GpuHistory(level_points=16)
    ends = threading.Event()

    def write() -> None:
        n = 0
        while not ends.is_set():
            history.add(float(n), GpuSample(index=0, util_gpu_pct=42.0, power_w=1.0, power_limit_w=2.0))
            n += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(500):
            end = history.last_t or 1.0
            values = history.resample("util_gpu_pct", end - 20, end, 20)
            assert set(values) <= {42.0, None}
    finally:
        ends.set()
        writer.join()


@given(st.lists(st.floats(0.1, 50.0), min_size=1, max_size=300), st.integers(1, 40))
def test_any_rhythm_of_samples_resamples_within_its_values(steps: list[float], count: int) -> None:
    history = History(("x",), level_points=8, levels=3)
    t = 0.0
    for n, step in enumerate(steps):
        t += step
        history.append(t, {"x": float(n % 7)})
    values = history.resample("x", 0.0, t, count)
    assert len(values) == count
    assert all(value is None or 0.0 <= value <= 6.0 for value in values)
    assert values[-1] is not None


def test_servers_have_a_history_of_their_numbers() -> None:
    history = ServerHistory()
    history.add(1.0, ServerMetrics(running=16, generation_tokens_s=812.0))
    assert history.latest("generation_tokens_s") == 812.0
    assert history.latest("kv_usage_pct") is None


def test_an_empty_history_answers_with_nothing() -> None:
    history = GpuHistory()
    assert history.first_t is None and history.last_t is None and history.latest("util_gpu_pct") is None
    assert history.resample("util_gpu_pct", 0, 10, 5) == [None] * 5
    assert history.recent(("util_gpu_pct",), 60, 4) == []
    assert history.resample("util_gpu_pct", 10, 0, 5) == []
