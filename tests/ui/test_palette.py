"""The command palette offers what the words typed name."""

from __future__ import annotations

from textual.command import CommandList

from tests.ui import scenes
from tests.ui.driving import Screen, opened


async def offered(screen: Screen, words: str) -> list[str]:
    await screen.press("ctrl+p", *words)
    found = screen.app.screen.query_one(CommandList)
    await screen.until(lambda: found.option_count > 0)
    await screen.settle()
    return [str(found.get_option_at_index(at).prompt) for at in range(found.option_count)]


async def test_letters_strewn_over_a_help_text_are_no_match_and_its_words_are() -> None:
    async with opened(scenes.sixteen()) as screen:
        shown = await offered(screen, "snap")
        assert "Write a snapshot" in shown[0] and not any("Bell" in line for line in shown)
        await screen.press("escape")
        shown = await offered(screen, "json")
        assert any("Write a snapshot" in line for line in shown), "its help speaks of JSON"
