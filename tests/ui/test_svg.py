"""Pictures: words at their own places, lines and dots as shapes, no font from elsewhere."""

from __future__ import annotations

import re
import xml.dom.minidom

from moetop.ui.loglines import args_digest
from moetop.ui.svg import CELL, steady
from tests.ui import scenes
from tests.ui.driving import opened

TEXT = '<text class="r1" x="12.2" y="44.4" textLength="97.6" clip-path="url(#t-line-1)">{}</text>'


def test_every_word_stands_at_its_own_cell() -> None:
    drawn = steady(TEXT.format("&#160;ab&#160;&#160;c&lt;d"))
    places = re.findall(r'x="([\d.]+)"[^>]*>([^<]+)</text>', drawn)
    assert [(round(float(x) / CELL), word) for x, word in places] == [(2, "ab"), (6, "c&lt;d")]


def test_braille_and_boxes_are_shapes_and_signs_shift_nothing() -> None:
    drawn = steady(TEXT.format("⣿─┐▲ok"))
    assert drawn.count("<path") == 1 and "⣿" not in drawn and "─" not in drawn
    assert drawn.count("h3v3h-3z") == 8, "a dot for each of the eight"
    places = re.findall(r'x="([\d.]+)"[^>]*>([^<]+)</text>', drawn)
    assert [(round(float(x) / CELL), word) for x, word in places] == [(4, "▲"), (5, "ok")]


async def test_a_picture_of_the_app_is_sound_and_fetches_nothing() -> None:
    async with opened(scenes.hostile()) as screen:
        svg = steady(screen.app.export_screenshot(title="moetop"))
    assert xml.dom.minidom.parseString(svg).documentElement.tagName == "svg"
    assert "url(" not in re.sub(r"url\(#[^)]*\)", "", svg), "no font and no picture from elsewhere"
    assert len(svg) < 300_000


def test_a_line_of_all_arguments_is_cut_down_to_those_that_decide_the_tuning() -> None:
    line = (
        "server_args=ServerArgs(model_path='/m/GLM', tp_size=8, moe_runner_backend='flashinfer_cutlass', dtype='auto')"
    )
    assert args_digest(line) == "moe_runner_backend=flashinfer_cutlass  tp_size=8  model_path=/m/GLM"
    assert args_digest("non-default args: {'model': 'x/y', 'tensor_parallel_size': 4}") == (
        "tensor_parallel_size=4  model=x/y"
    )
    assert args_digest("The server is fired up and ready to roll!") is None
