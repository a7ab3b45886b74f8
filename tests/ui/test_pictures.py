"""Whole screens, with their colours, against kept pictures; docs/testing.md says how they are renewed."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from textual.widgets import Input

from moetop.model import Snapshot
from moetop.ui.app import render_svg
from tests.ui import picture, scenes
from tests.ui.driving import opened
from tests.ui.picture_cases import CASES, Case

PICTURES = Path(__file__).parent / "pictures"
WRITE = os.environ.get("MOETOP_PICTURES") == "write"


async def taken(case: Case) -> picture.Picture:
    """The screen of a case."""
    async with opened(
        case.feed(), case.size, actions=case.actions(), few_colors=case.few_colours, **case.options
    ) as screen:
        if case.keys:
            await screen.press(*case.keys)
        for field in screen.app.screen.query(Input):
            field.cursor_blink = False
        await screen.settle()
        found = picture.from_export(screen.app.export_screenshot(title="moetop"))
    return picture.in_sixteen_colours(found) if case.few_colours else found


@pytest.mark.parametrize("case", CASES, ids=[case.file.removesuffix(".svg") for case in CASES])
async def test_screens_look_as_kept(case: Case, tmp_path: Path) -> None:
    now = await taken(case)
    assert {len(row) for row in now} == {case.size[0]} and len(now) == case.size[1]
    assert not picture.unseen(now), "signs in the colour of their ground"
    kept, new = PICTURES / case.file, tmp_path / case.file
    (kept if WRITE else new).write_text(picture.to_svg(now), "utf-8")
    assert kept.exists(), f"no picture is kept of this screen; it looks like {new}"
    if kept.read_text("utf-8") != picture.to_svg(now):
        words = picture.difference(picture.from_kept(kept.read_text("utf-8")), now)
        pytest.fail(f"{kept} differs from {new}\n{words}", pytrace=False)


def test_each_kept_picture_is_of_a_case() -> None:
    assert {path.name for path in PICTURES.iterdir()} == {case.file for case in CASES}
    assert len({case.file for case in CASES}) == len(CASES)


async def test_a_change_of_colour_alone_is_named_with_its_place() -> None:
    case = next(case for case in CASES if case.name == "fleet" and case.size == (80, 24))
    kept = await taken(case)
    assert picture.from_kept(picture.to_svg(kept)) == kept, "nothing is lost on the way to the file and back"
    at = next(n for n, line in enumerate(picture.lines_of(kept)) if "starved?" in line)
    now = [list(row) for row in kept]
    column = picture.lines_of(kept)[at].index("starved?")
    for cell in range(column, column + 8):
        now[at][cell] = now[at][cell]._replace(look="#123456")
    words = picture.difference(kept, now)
    assert "the text is the same" in words and "#123456" in words
    assert f"line {at + 1}, columns {column + 1}-{column + 8} 'starved?'" in words


async def test_a_change_of_words_is_a_diff_of_lines() -> None:
    case = next(case for case in CASES if case.name == "empty" and case.size == (80, 24))
    kept = await taken(case)
    now = [list(row) for row in kept]
    now[3][2] = picture.Cell("語", "#ffffff", now[3][2].ground)
    now[3][3] = picture.Cell("", "#ffffff", now[3][3].ground)
    assert picture.from_kept(picture.to_svg(now)) == now
    assert any(line.startswith("+") and "語" in line for line in picture.difference(kept, now).split("\n"))


def test_a_snapshot_becomes_an_svg_with_its_findings_and_without_markup() -> None:
    hosts = (scenes.glm5_host(), scenes.lost_host(), scenes.hostile().reports[scenes.HOSTILE])
    svg = render_svg(Snapshot(taken_at=scenes.NOW, hosts=hosts))
    text = " ".join(re.sub(r"<[^>]+>", " ", svg).split())
    assert svg.startswith("<svg")
    assert "kernels never tuned" in text and "node-07" in text
    assert "snapshot" in text
    assert "\x1b" not in svg and "\u202e" not in svg
