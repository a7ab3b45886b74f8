"""The demo's real half: one H200 as it was measured, workload after workload. Invents no value."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

SCENES = (
    "moe_untuned", "moe_tuned", "moe_decode_tuned", "dense_gemm", "comm_mix", "moe_few_ctas", "spin_1block", "fp32_alu",
    "decode_gemv", "copy", "pcie_upload", "host_bound", "launch_bound", "idle_ctx",
)  # fmt: skip
"""Recordings in the order they are played; the first is on at the demo's present."""

REPEATS = 3
"""Each recording lasts some ten seconds; a state needs a window of them to settle and an eye to see it."""

LEAD_S = 10.5
"""The first scene begins so long before the present: its window is full at once."""

NOTE = (
    "Recorded on an H200 (700 W, driver 580.159.04, GPM): {count} workloads, each {repeats} times in a row, then from "
    "the beginning. The values are measured; times are shifted."
)


def load_scene(name: str) -> list[dict[str, Any]]:
    """The frames of one packaged recording."""
    data = (files("moetop.demo") / "data" / f"h200-{name}.jsonl.gz").read_bytes()
    return [json.loads(line) for line in gzip.decompress(data).splitlines()]


def recorded_frames(now_t: float, past_s: float) -> Iterator[dict[str, Any]]:
    """Frames from about `past_s` before `now_t` on, without end."""
    scenes = [load_scene(name) for name in SCENES]
    runs = [[frame for frame in scene if frame["type"] == "gpus"] for scene in scenes]
    lengths = [REPEATS * _length(run) for run in runs]
    place, t = len(runs), now_t - LEAD_S
    while place > 1 and t > now_t - past_s:
        place -= 1
        t -= lengths[place]
    notes = [NOTE.format(count=len(SCENES), repeats=REPEATS)]
    yield {**scenes[0][0], "t": t, "source": "recording", "notes": notes}
    yield {
        "type": "status", "t": t, "code": "no_server", "level": "info",
        "message": "the recording holds GPU values only; no server was recorded with it",
    }  # fmt: skip
    while True:
        run = runs[place % len(runs)]
        for _ in range(REPEATS):
            for frame in run:
                yield {**frame, "t": round(t + frame["t"] - run[0]["t"], 3)}
            t += _length(run)
        place += 1


def _length(run: list[dict[str, Any]]) -> float:
    """Seconds a recording takes, the step to its repetition included."""
    step = (run[-1]["t"] - run[0]["t"]) / (len(run) - 1)
    return float(run[-1]["t"] - run[0]["t"] + step)
