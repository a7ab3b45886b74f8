"""Pages that are longer than the screen: where they start, and what is said of the rest."""

from __future__ import annotations

import re

import pytest

from moetop.ui import keys
from moetop.ui.widgets.logview import LogView
from moetop.ui.widgets.text import TextPage
from tests.ui import scenes
from tests.ui.driving import Screen, opened, where
from tests.ui.test_screens import long_log
from tests.ui.test_servers import two_servers

LOW = (80, 24)


def page(screen: Screen) -> TextPage:
    return screen.app.screen.query_one("#page", TextPage)


@pytest.mark.parametrize(
    ("way", "again"),
    [
        (("w",), ("w",)),
        (("w",), ("escape", "w")),
        (("enter",), ("escape", "enter")),
        (("enter",), ("escape", "down", "enter")),
        (("v",), ("escape", "v")),
    ],
)
async def test_a_page_opened_anew_starts_at_its_top(way: tuple[str, ...], again: tuple[str, ...]) -> None:
    async with opened(scenes.fleet_without_lost(), LOW) as screen:
        await screen.press(*way, *["down"] * 5)
        assert page(screen).top == 5
        await screen.press(*again)
        assert where(screen.app.screen) in (keys.DETAIL, keys.SERVER) and page(screen).top == 0


async def test_another_server_starts_at_the_top_and_help_or_news_keep_the_place() -> None:
    feed = two_servers()
    async with opened(feed, LOW) as screen:
        await screen.press("v", *["down"] * 5)
        await screen.press("question_mark", "escape")
        await screen.refetch()
        assert page(screen).top == 5
        await screen.press("tab")
        assert page(screen).top == 0


async def test_the_words_about_what_is_above_and_below_hide_no_line() -> None:
    async with opened(scenes.fleet_without_lost(), LOW) as screen:
        await screen.press("w")
        whole = [" " + "".join(text for text, _role in line) for line in page(screen).lines]
        end = len(whole)
        seen: set[int] = set()
        for _ in range(end):
            rows = page(screen).plain_lines()
            first = re.search(r"▲ (\d+) above", rows[0])
            last = re.search(r"▼ (\d+) more", rows[-1])
            start, stop = int(first[1]) if first else 0, end - (int(last[1]) if last else 0)
            shown = rows[first is not None : len(rows) - (last is not None)]
            assert len(shown) == stop - start
            for at, row in zip(range(start, stop), shown, strict=True):
                assert row.rstrip()[:40] == whole[at].rstrip()[:40]
            assert not seen or start <= max(seen) + 1, "a page down skips no line"
            seen.update(range(start, stop))
            if last is None:
                break
            await screen.press("pagedown")
        assert seen == set(range(end))


@pytest.mark.parametrize("start", [(), ("home", *["down"] * 60)])
@pytest.mark.parametrize("end", ["enter", "escape"])
async def test_a_search_that_finds_nothing_or_is_left_returns_to_where_it_began(
    start: tuple[str, ...], end: str
) -> None:
    async with opened(long_log()) as screen:
        await screen.press("l", *start)
        lines = screen.app.screen.query_one(LogView).log_lines
        before = (lines.selected, lines.follow)
        await screen.press("slash", *"number 2")
        assert (lines.selected, lines.follow) != before, "half of the words were found on the way"
        await screen.press(*"zz", end)
        assert (lines.selected, lines.follow) == before
        assert lines.follow == (not start)


async def test_letters_taken_back_search_from_where_the_search_began() -> None:
    async with opened(long_log()) as screen:
        await screen.press("l", "slash", *"number 12", "backspace", "enter")
        selected = screen.app.screen.query_one(LogView).log_lines.selected
        assert selected is not None and selected.text.endswith("number 199")
