"""Opens the app on a still feed and reads what stands on the screen."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from textual.pilot import Pilot

from moetop.ui.app import MoetopApp
from moetop.ui.screens.base import MoeScreen
from tests.ui import scenes

SIZES = ((80, 24), (120, 40), (200, 60))

PATIENCE_S = 20.0
"""How long anything is waited for at most."""


async def until(pilot: Pilot[int], holds: Callable[[], bool]) -> None:
    """Wait until `holds()`; fail after a while."""
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, "it never came"
        await pilot.pause()


def lines_of(app: MoetopApp) -> list[str]:
    """What is on the screen, line by line."""
    return ["".join(segment.text for segment in strip) for strip in app.screen._compositor.render_strips()]


def shown(app: MoetopApp) -> str:
    """What is on the screen."""
    return "\n".join(lines_of(app))


class Screen:
    """The app under a pilot."""

    def __init__(self, app: MoetopApp, pilot: Pilot[int], feed: scenes.StillFeed, deeds: scenes.Deeds) -> None:
        self.app = app
        self.pilot = pilot
        self.feed = feed
        self.deeds = deeds

    def lines(self) -> list[str]:
        """What is on the screen."""
        return lines_of(self.app)

    def text(self) -> str:
        return shown(self.app)

    def line_with(self, words: str) -> str:
        """The first line that holds `words`."""
        found = [line for line in self.lines() if words in line]
        assert found, f"{words!r} is nowhere on:\n{self.text()}"
        return found[0]

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.settle()

    async def settle(self) -> None:
        """Until workers and messages are through."""
        await self.app.workers.wait_for_complete()
        await self.pilot.pause()
        await self.pilot.pause()  # a size set while drawing reaches its widget one message later

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until `holds()`; fail after a while."""
        await until(self.pilot, holds)

    async def refetch(self) -> None:
        """Take over what the feed has now."""
        self.app.gather_now()
        await self.settle()

    def toasts(self) -> list[str]:
        """Messages as `title: text`."""
        return [f"{told.title}: {told.text}" for told in self.app.told]


def where(screen: object) -> str:
    """The name of a screen in the registry of keys."""
    assert isinstance(screen, MoeScreen)
    return screen.where


@asynccontextmanager
async def opened(feed: scenes.StillFeed, size: tuple[int, int] = (120, 40), **options: Any) -> AsyncIterator[Screen]:
    """The app on `feed`, with its first scene shown."""
    deeds = options.pop("actions", None) or scenes.Deeds()
    toasts = options.pop("show_toasts", False)
    given = {
        "clock": lambda: scenes.NOW,
        "ticking": False,
        "no_color": False,
        "ascii_only": False,
        "few_colors": False,
        **options,
    }
    app = MoetopApp(feed, actions=deeds, **given)
    async with app.run_test(size=size, notifications=toasts) as pilot:
        screen = Screen(app, pilot, feed, deeds)
        await screen.refetch()
        yield screen
