"""The host's clock against ours: late frames, drift, steps in either direction."""

from __future__ import annotations

from moetop.hostclock import HostClock


def test_the_frame_that_came_fastest_tells_the_offset() -> None:
    clock = HostClock()
    assert clock.offset_s is None
    for now, t in ((100.5, 90.0), (101.1, 91.0), (104.0, 92.0)):
        clock.note(now, t)
    assert clock.offset_s is not None and abs(clock.offset_s - 10.1) < 1e-9


def test_a_clock_set_back_or_forward_is_followed_at_once() -> None:
    clock = HostClock()
    clock.note(1000.0, 1000.0)
    clock.note(1001.0, 1001.0 - 3600)
    assert clock.offset_s == 3600
    clock.note(1002.0, 1002.0 + 86400)
    assert clock.offset_s == -86400
    clock.note(1003.0, 1003.0 + 86395)
    assert clock.offset_s == -86395


def test_a_clock_that_drifts_is_followed_over_days() -> None:
    clock = HostClock()
    for second in range(0, 2 * 86400, 5):
        clock.note(float(second), second * (1 - 100e-6))
    assert clock.offset_s is not None and abs(clock.offset_s - 2 * 86400 * 100e-6) < 0.1


def test_our_own_clock_set_back_does_not_keep_an_old_offset_for_ever() -> None:
    clock = HostClock()
    clock.note(10_000.0, 10_000.0)
    clock.note(6_400.0, 10_001.0)
    assert clock.offset_s == -3601.0
    for second in range(1200):
        clock.note(10_000.0 + second, 10_000.0 + second)
    assert clock.offset_s == 0.0
