"""A replay goes in the order of its file, whatever the clocks of its hosts did; no step of theirs is waited for."""

from __future__ import annotations

import json
import time
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetop.fleet import Fleet
from moetop.player import Player
from moetop.playtime import MAX_GAP_S, MAX_STRETCHES, Playtime
from moetop.recording import index_recording
from moetop.transport.base import ProbeOptions
from moetop.transport.replay import _cut, open_recording
from moetop.watch import Watch

S = 1.8e9
HOUR = 3600.0


def run(start: float, count: int, host: str = "a") -> list[tuple[str, float]]:
    return [(host, start + n) for n in range(count)]


def mixed(*runs: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """The runs as one recorder writes them, a frame of each in turn."""
    return [frame for frames in zip(*runs, strict=True) for frame in frames]


def written(path: Path, frames: list[tuple[str, float]]) -> Path:
    lines = [
        {"type": "gpus", "t": t, "host": host, "gpus": [{"index": 0, "util_gpu_pct": 5, "power_w": 100}]}
        for host, t in frames
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def played(path: Path, frames: list[tuple[str, float]]) -> dict[str, list[float]]:
    """When each host's frames are played, from the beginning."""
    index = index_recording(written(path, frames))
    begin = index.playtime.begin
    return {
        name: [timed.at - begin for timed in _cut(index, host, begin, float("inf"), 0.0)]
        for name, host in index.hosts.items()
    }


STEPS = {
    "set back after four samples": run(S, 4) + run(S - HOUR, 30),
    "set back to the epoch after four samples": run(S, 4) + run(1000.0, 30),
    "one stray from the epoch": run(5.0, 1) + run(S, 30),
    "one stray from far ahead": run(2.5e11, 1) + run(S, 30),
    "set back late": run(S, 30) + run(S - HOUR, 30),
    "set back and forward": run(S, 4) + run(S - HOUR, 5) + run(S + 8, 30),
    "set back by ten seconds": run(S, 8) + run(S - 2, 30),
    "set forward for a while": run(S, 20) + run(S + HOUR, 5) + run(S + 24, 30),
    "a time that is none": [*run(S, 3), ("a", 1e300), *run(S + 3, 30)],
}


@pytest.mark.parametrize("frames", STEPS.values(), ids=STEPS)
def test_a_clock_that_was_set_is_not_waited_for(frames: list[tuple[str, float]], tmp_path: Path) -> None:
    times = played(tmp_path / "r.jsonl", frames)["a"]
    assert len(times) == len(frames)
    assert times[0] == 0
    assert all(0 <= later - sooner <= 1 for sooner, later in pairwise(times))


def test_the_screen_shows_a_sample_at_once_after_a_clock_set_back(tmp_path: Path) -> None:
    (transport,) = open_recording(written(tmp_path / "r.jsonl", STEPS["set back after four samples"]), speed=200)
    begun = time.monotonic()
    assert len(list(transport.open({}).lines())) == 34
    assert time.monotonic() - begun < 5


def test_hosts_whose_clocks_differ_begin_together(tmp_path: Path) -> None:
    for skew_s in (HOUR, -HOUR, 20.0, -20.0):
        times = played(tmp_path / "r.jsonl", mixed(run(S, 20), run(S + skew_s, 20, "b")))
        assert times["a"] == times["b"] == list(range(20))


def test_a_silence_of_all_is_cut_once_and_one_of_a_single_host_is_kept(tmp_path: Path) -> None:
    both = mixed(run(S, 10), run(S, 10, "b")) + mixed(run(S + HOUR, 5), run(S + HOUR, 5, "b"))
    times = played(tmp_path / "r.jsonl", both)
    assert times["a"] == times["b"] == [*range(10), *(9 + MAX_GAP_S + n for n in range(5))]
    alone = [*mixed(run(S, 5), run(S, 5, "b")), *run(S + 5, 295), *mixed(run(S + 300, 5), run(S + 300, 5, "b"))]
    times = played(tmp_path / "r.jsonl", alone)
    assert times["a"] == list(range(305))
    assert times["b"] == [*range(5), *range(300, 305)]


def test_two_recordings_of_one_time_in_one_file_play_side_by_side(tmp_path: Path) -> None:
    times = played(tmp_path / "r.jsonl", run(S, 300) + run(S - 30, 300, "b"))
    assert (times["a"][0], times["b"][0], times["b"][-1]) == (30, 0, 299)
    times = played(tmp_path / "r.jsonl", run(S, 100) + run(S - 24 * HOUR, 100, "b"))
    assert (times["a"][0], times["b"][0]) == (0, 99)


def test_a_clock_set_without_end_costs_bounded_memory() -> None:
    playtime = Playtime()
    for n in range(3 * MAX_STRETCHES):
        playtime.take("a", n, S - HOUR * (n % 2))
    playtime.place()
    assert len(playtime.stretches) == MAX_STRETCHES


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(-1e9, 1e11)), min_size=1, max_size=40))
def test_any_times_have_a_place_that_is_not_waited_for_long(frames: list[tuple[str, float]]) -> None:
    playtime = Playtime()
    for offset, (host, t) in enumerate(frames):
        playtime.take(host, offset, t)
    playtime.place()
    ends = sorted((stretch.first_at, stretch.last_at) for stretch in playtime.stretches)
    reached = ends[0][1]
    for first, last in ends:
        assert first - reached <= MAX_GAP_S + 1e-3
        reached = max(reached, last)
    assert playtime.begin == ends[0][0]


def test_after_a_jump_a_replay_goes_on_there_on_either_side_of_a_clock_set_back(tmp_path: Path) -> None:
    path = written(tmp_path / "r.jsonl", run(S, 30) + run(S - HOUR, 30))
    player = Player(str(path), speed=1.0, from_s=None, to_s=None)
    assert (player.start, player.end) == (S - HOUR, S + 29)
    watch = Watch(10.0, live=False)
    fleet = Fleet(player.transports(), watch, ProbeOptions())
    fleet.start()
    try:
        for there in (S - HOUR + 10, S + 10, S - HOUR + 28):
            player.seek(there, fleet, watch)
            reached = lambda there=there: there <= (watch.last_t("a") or 0.0) < there + 5  # noqa: E731
            assert watch.wait(reached, 10), there
    finally:
        fleet.stop()


def test_from_and_to_count_from_where_the_clock_stood_at_the_beginning(tmp_path: Path) -> None:
    path = written(tmp_path / "r.jsonl", run(5.0, 1) + run(S, 30))
    (transport,) = open_recording(path, speed=0, from_s=10, to_s=12)
    assert [json.loads(raw)["t"] for raw in transport.open({}).lines()] == [S + 10, S + 11, S + 12]
