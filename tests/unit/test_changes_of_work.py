"""When work begins or ends, a window holds two kinds of it for a while: no alarm comes of that."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from moetop.diagnose.host import HostEvidence
from moetop.model import AnyFrame, Gpus, Hello
from tests.unit.diagnose_kit import info, sample, standing, without_gpm

RETUNE = Path(__file__).parents[1] / "data" / "retune" / "h200-minimoe.jsonl.gz"
TRUE = {"untuned_kernels"}
"""What stands in that recording until the server is stopped."""

BEGINS = (
    (0, 115.4, 435, 1),
    (0, 79.2, 1980, 0),
    (0, 125.8, 1980, 0),
    (98, 443.8, 1845, 4),
    (98, 688.3, 1815, 4),
    (90, 697.0, 1815, 4),
    (98, 695.1, 1785, 4),
    (98, 694.5, 1785, 4),
    (88, 697.2, 1815, 4),
    (99, 692.5, 1710, 4),
)
"""A tuned server takes up its load on an H200: utilization, W of 700, SM MHz, clock-event reasons, at 1 Hz."""

ENDS = ((98, 582.8, 1980, 0), (98, 590.0, 1980, 0), (98, 237.5, 345, 0), (0, 118.8, 345, 1), (0, 78.8, 345, 1))
"""Work ends: the clock falls at once, utilization is of the second before (made from what the same card shows)."""


@cache
def frames() -> tuple[AnyFrame, ...]:
    with gzip.open(RETUNE) as lines:
        return tuple(msgspec.convert(msgspec.json.decode(line), AnyFrame) for line in lines)


def alarms(window_s: float, skip: int, every: int, *, gpm: bool) -> Iterator[str]:
    """What stands after each sample of the recording, of which the first `skip` and all but every `every`th are left
    out, so that windows begin and end anywhere."""
    evidence = HostEvidence("h", window_s)
    count = 0
    for frame in frames():
        if isinstance(frame, Gpus):
            count += 1
            if count <= skip or count % every:
                continue
            evidence.apply(frame if gpm else without_gpm(frame))
            yield from standing(evidence.report())
        else:
            evidence.apply(frame)


@pytest.mark.parametrize("gpm", [True, False], ids=["gpm", "no-gpm"])
@pytest.mark.parametrize("window_s", [10.0, 5.0, 3.0])
def test_a_stop_and_a_start_in_a_retune_raise_no_alarm_whenever_samples_are_taken(window_s: float, gpm: bool) -> None:
    for every in (1, 2, 3):
        for skip in range(0, 60, 4):
            assert set(alarms(window_s, skip, every, gpm=gpm)) <= TRUE, (skip, every)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ({"power_w": 400.0, "clock_event_reasons": 4}, "power_capped"),
        ({"sm_clock_mhz": 420, "clock_event_reasons": 0}, "clock_stuck_low"),
    ],
)
@pytest.mark.parametrize(("window_s", "every_s"), [(2.0, 1.0), (10.0, 5.0), (10.0, 1.0)])
def test_a_limit_that_is_always_there_is_told_of_few_samples_too(
    values: dict[str, Any], kind: str, window_s: float, every_s: float
) -> None:
    evidence = HostEvidence("h", window_s)
    evidence.apply(Hello(t=0.0, source="nvml", gpus=(info(),)))
    evidence.apply(Gpus(t=0.0, gpus=(sample(0, **values),)))
    assert kind not in standing(evidence.report()), "one sample may mix two moments"
    for n in range(1, 4):
        evidence.apply(Gpus(t=n * every_s, gpus=(sample(0, **values),)))
    assert kind in standing(evidence.report())


@pytest.mark.parametrize("story", [BEGINS, ENDS], ids=["begins", "ends"])
@pytest.mark.parametrize("idle_s", range(12))
@pytest.mark.parametrize("window_s", [10.0, 5.0, 0.0])
def test_a_limit_is_judged_by_the_samples_that_have_it(
    story: tuple[tuple[int, float, int, int], ...], idle_s: int, window_s: float
) -> None:
    evidence = HostEvidence("h", window_s)
    evidence.apply(Hello(t=0.0, source="nvml", gpus=(info(),)))
    before = story[:1] * idle_s
    for t, (util, power, clock, reasons) in enumerate(before + story):
        values = {"util_gpu_pct": util, "power_w": power, "sm_clock_mhz": clock, "clock_event_reasons": reasons}
        evidence.apply(Gpus(t=float(t), gpus=(sample(0, **values),)))
        assert not {"power_capped", "clock_stuck_low"} & set(standing(evidence.report())), t
