"""Whole screens as text against kept pictures; `MOETOP_PICTURES=write pytest tests/ui/test_pictures.py` renews them.

A difference shows as a diff of lines: look at it, and renew the pictures only if it is an improvement.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from moetop.model import Snapshot
from moetop.ui.app import render_svg
from tests.ui import scenes
from tests.ui.driving import opened

PICTURES = Path(__file__).parent / "pictures"

CASES: tuple[tuple[str, str, tuple[int, int], tuple[str, ...], dict[str, object]], ...] = (
    ("fleet-80x24", "reference_fleet", (80, 24), (), {}),
    ("fleet-120x40", "reference_fleet", (120, 40), (), {}),
    ("fleet-200x60", "reference_fleet", (200, 60), (), {}),
    ("fleet-ascii-80x24", "reference_fleet", (80, 24), (), {"ascii_only": True, "no_color": True}),
    ("fleet-64-gpus-200x60", "big_fleet", (200, 60), (), {}),
    ("fleet-64-gpus-80x24", "big_fleet", (80, 24), (), {}),
    ("fleet-16-gpus-80x24", "sixteen", (80, 24), (), {}),
    ("gpu-lost-120x40", "lost_gpu", (120, 40), (), {}),
    ("no-values-80x24", "no_values", (80, 24), (), {}),
    ("empty-80x24", "empty", (80, 24), (), {}),
    ("connecting-80x24", "connecting", (80, 24), (), {}),
    ("hostile-120x40", "hostile", (120, 40), (), {}),
    ("why-120x40", "reference_fleet", (120, 40), ("w", "w"), {}),
    ("gpu-80x24", "lost_gpu", (80, 24), ("down", "enter"), {}),
    ("server-120x40", "reference_fleet", (120, 40), ("up", "up", "v"), {}),
    ("log-80x24", "reference_fleet", (80, 24), ("home", "l", "x", "x"), {}),
    ("map-120x40", "reference_fleet", (120, 40), ("M",), {}),
    ("help-80x24", "reference_fleet", (80, 24), ("question_mark",), {}),
)


@pytest.mark.parametrize(("name", "scene", "size", "keys", "options"), CASES, ids=[case[0] for case in CASES])
async def test_screens_look_as_kept(
    name: str, scene: str, size: tuple[int, int], keys: tuple[str, ...], options: dict[str, object]
) -> None:
    async with opened(getattr(scenes, scene)(), size, **options) as screen:
        if keys:
            await screen.press(*keys)
        shown = "\n".join(line.rstrip() for line in screen.lines()) + "\n"
    path = PICTURES / f"{name}.txt"
    if os.environ.get("MOETOP_PICTURES") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_text(shown, "utf-8")
    assert shown.splitlines() == path.read_text("utf-8").splitlines()


def test_a_snapshot_becomes_an_svg_with_its_findings_and_without_markup() -> None:
    hosts = (scenes.glm5_host(), scenes.lost_host(), scenes.hostile().reports[scenes.HOSTILE])
    svg = render_svg(Snapshot(taken_at=scenes.NOW, hosts=hosts))
    text = " ".join(re.sub(r"<[^>]+>", " ", svg).split())
    assert svg.startswith("<svg")
    assert "kernels never tuned" in text and "node-07" in text
    assert "snapshot" in text
    assert "\x1b" not in svg and "\u202e" not in svg
