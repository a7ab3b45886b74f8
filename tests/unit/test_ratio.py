"""Numbers that no card gives make no share of anything, and every float has its place on a scale and in a chart."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetop.cli import main
from moetop.diagnose.limits import is_limit_low
from moetop.export.sparks import nice_top as top_of_sparks
from moetop.export.sparks import spark
from moetop.history import GpuHistory
from moetop.model import GpuReport, GpuSample
from moetop.ratio import percent, power_percent, step
from moetop.ui import fmt
from moetop.ui.charts import Series, TimeAxis, dots, time_chart
from moetop.ui.series import nice_top

FLOATS = st.floats(allow_nan=True, allow_infinity=True, allow_subnormal=True)

SAMPLES = {
    "limit": {"power_w": 400, "power_limit_w": 1e-307},
    "memory": {"memory_used_mib": 5, "memory_total_mib": 1e-307},
    "much": {
        "util_gpu_pct": 1e20,
        "temp_c": 1e19,
        "power_w": 1e20,
        "gpm": {"sm_active_pct": 1e19, "tensor_pct": 1e20, "dram_pct": -1e20},
    },
    "negative": {"util_gpu_pct": -5, "power_w": -400, "power_limit_w": -7, "memory_total_mib": 0},
}


@pytest.mark.parametrize("limit_w", [None, 0.0, -700.0, 1e-307, 0.9, math.nan])
def test_a_limit_that_is_none_makes_no_percent(limit_w: float | None) -> None:
    assert power_percent(400.0, limit_w) is None
    assert not is_limit_low(700.0, limit_w)
    history = GpuHistory()
    history.add(0.0, GpuSample(index=0, power_w=400.0, power_limit_w=limit_w))
    assert history.latest("power_pct") is None
    assert fmt.power_pct(GpuReport(index=0, power_w=400.0, power_limit_w=limit_w)) is None


@given(FLOATS, FLOATS)
def test_a_percent_is_finite_or_absent(part: float, whole: float) -> None:
    share = percent(part, whole)
    assert share is None or 0.0 <= share <= 1000.0


def test_a_percent_and_a_step_are_what_they_say() -> None:
    assert (percent(350.0, 700.0), power_percent(350.0, 700.0)) == (50.0, 50.0)
    assert [step(value, 100.0, 10) for value in (-1.0, 0.0, 14.0, 50.0, 100.0, math.inf)] == [0, 0, 1, 5, 10, 10]


@given(st.lists(FLOATS, min_size=1, max_size=40), FLOATS)
def test_charts_take_any_float(values: list[float], top: float) -> None:
    width = 60
    series = Series("any", "text", (values * dots(width))[: dots(width)], top)
    assert len(time_chart(width, 8, [series], TimeAxis("-5 min", "now"))) == 8
    assert len(spark(values, top)) == len(values)
    highest = max(values)
    assert nice_top(highest) > 0
    assert top_of_sparks(highest) > 0
    assert sum(map(len, fmt.bar(values[0], 10))) == 10


@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
@pytest.mark.parametrize("form", ["md", "json", "svg", "csv"])
def test_a_report_of_such_a_host_is_written(form: str, sample: dict[str, object], tmp_path: Path) -> None:
    frames = [{"type": "hello", "t": 1.8e9, "host": "a", "gpus": [{"index": 0, "name": "NVIDIA H200"}]}]
    frames += [
        {"type": "gpus", "t": 1.8e9 + n, "host": "a", "gpus": [{"index": 0, "util_gpu_pct": 99, **sample}]}  # type: ignore[list-item]
        for n in range(20)
    ]
    path, out = tmp_path / "r.jsonl", tmp_path / "out"
    path.write_text("".join(json.dumps(frame) + "\n" for frame in frames))
    main(["--replay", str(path), "--snapshot", str(out), "--format", form])
    assert "a" in out.read_text()
