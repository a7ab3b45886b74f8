"""Every key of the registry is pressed on every screen where it works, and what it does is seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import pytest
from textual.command import CommandPalette

from moetop.model import LogLine
from moetop.ui import keys
from moetop.ui.screens.base import READONLY_WORDS, MoeScreen
from moetop.ui.screens.question import QuestionScreen
from moetop.ui.widgets.prompt import PromptLine
from tests.ui import odd_scenes, scenes
from tests.ui.driving import Screen, opened

SIZE = (110, 32)
"""The smallest at which everything that a key changes is on the screen."""

CHANGED = object()
"""Stands for any value but the one before the key."""


@dataclass(frozen=True)
class Effect:
    """What a key does: `look` reads it off, `want` is its value after the key.

    `before` are keys that make the deed possible, `undo` keys that take it back for the next screen.
    """

    look: Callable[[Screen], object]
    want: object = True
    before: tuple[str, ...] = ()
    undo: tuple[str, ...] = ()
    actions: Callable[[], scenes.Deeds] = odd_scenes.with_jobs


def where(screen: Screen) -> str:
    top = screen.app.screen
    return top.where if isinstance(top, MoeScreen) else type(top).__name__


def shows(words: str) -> Callable[[Screen], bool]:
    """Whether words stand on the screen."""
    return lambda screen: words in screen.text()


def header(screen: Screen) -> str:
    return screen.lines()[0]


def asks(screen: Screen) -> bool:
    """Whether a prompt is open and has the keys."""
    return any(prompt.is_open for prompt in screen.app.screen.query(PromptLine)) and screen.app.focused is not None


def done(name: str) -> Callable[[Screen], int]:
    """How often an action was asked for."""
    return lambda screen: sum(deed == name for deed, _what in screen.deeds.done)


def line(screen: Screen) -> object:
    """The selected line of the log."""
    return screen.app.screen.query_one("LogView").log_lines.selected.n  # type: ignore[attr-defined]


def in_log(screen: Screen) -> bool:
    """Whether the log pane of the fleet has the keys."""
    return screen.app.screen.query_one("#log").has_focus


def goes_to(screen: str) -> Effect:
    return Effect(where, screen)


def last_minutes(words: str, before: str) -> Effect:
    return Effect(shows(f"last {words}"), before=(before,))


BACK_3 = ("left_square_bracket",) * 3
SEARCH = ("end", "slash", *"mem", "enter")

EFFECTS: dict[str | tuple[str, str], Effect] = {
    "quit": Effect(lambda screen: screen.app.return_value, 0),
    "help": goes_to(keys.HELP),
    "back": goes_to(keys.FLEET),
    ("back", keys.FLEET): Effect(shows("filter lab"), False, before=("slash", *"lab", "enter")),
    "open": goes_to(keys.DETAIL),
    "why": goes_to(keys.DETAIL),
    ("why", keys.DETAIL): Effect(header, CHANGED),
    "log": goes_to(keys.LOG),
    "server": goes_to(keys.SERVER),
    "retune": goes_to(keys.PLAN),
    ("retune", keys.FINDINGS): Effect(where, keys.PLAN, before=("down",)),
    "filter": Effect(asks),
    "search": Effect(asks),
    "log_filter": Effect(asks),
    "pause": Effect(lambda screen: "paused" in header(screen), undo=("space",)),
    "next_event": Effect(line, CHANGED, before=("home",)),
    ("next_event", keys.FLEET): Effect(in_log),
    "previous_event": Effect(line, CHANGED, before=("end",)),
    ("previous_event", keys.FLEET): Effect(in_log, undo=("escape",)),
    "findings": goes_to(keys.FINDINGS),
    "jobs": goes_to(keys.JOBS),
    "snapshot": Effect(done("snapshot"), CHANGED),
    "picture": Effect(done("picture"), CHANGED),
    "theme": Effect(lambda screen: screen.app.paint.theme.name, CHANGED),
    "map_screen": goes_to(keys.MAP),
    "map_kind": Effect(shows("tensor → DRAM"), undo=("p",)),
    "sort": Effect(shows("by worst")),
    "fold": Effect(shows("▸ glm5-sm120"), undo=("plus",)),
    "unfold": Effect(shows("▾ glm5-sm120"), before=("minus",)),
    "fold_all": Effect(shows("▸ h200-lab"), undo=("underscore",)),
    "range_1m": last_minutes("1 min", "2"),
    "range_5m": last_minutes("5 min", "1"),
    "range_15m": last_minutes("15 min", "1"),
    "range_1h": last_minutes("1 h", "1"),
    "earlier": Effect(lambda screen: " ago" in header(screen), undo=("0",)),
    "later": Effect(header, CHANGED, before=BACK_3, undo=("0",)),
    "now": Effect(lambda screen: " ago" in header(screen), False, before=BACK_3),
    "slower": Effect(done("speed"), CHANGED, actions=odd_scenes.playing),
    "faster": Effect(done("speed"), CHANGED, actions=odd_scenes.playing),
    "next_match": Effect(line, CHANGED, before=(*SEARCH, "N")),
    "previous_match": Effect(line, CHANGED, before=SEARCH),
    "level": Effect(shows("lines: events")),
    "kind": Effect(shows("only weights"), before=("home", "e"), undo=("k",)),
    "source": Effect(header, CHANGED),
    "next_server": Effect(header, CHANGED),
    "mark": Effect(shows("mark 08:09:33")),
    "follow": Effect(shows("following"), before=("home",)),
    "save_log": Effect(done("glm5-sm120-sglang.log"), CHANGED),
    "copy": Effect(lambda screen: screen.app.clipboard, CHANGED),
    "add_host": Effect(asks),
    "reconnect": Effect(done("reconnect"), CHANGED, before=("end",)),
    ("reconnect", keys.DETAIL): Effect(done("reconnect"), CHANGED, before=("escape", "end", "enter")),
    ("reconnect", keys.SERVER): Effect(done("reconnect"), CHANGED, before=("escape", "end", "v")),
    ("reconnect", keys.LOG): Effect(done("reconnect"), CHANGED, before=("escape", "end", "l")),
    "remove_host": Effect(shows("stop watching glm5-sm120?")),
    "cancel_job": Effect(done("cancel"), CHANGED),
    "answer_job": Effect(lambda screen: isinstance(screen.app.screen, QuestionScreen), before=("down",)),
    "bell": Effect(lambda screen: screen.app.bell_on, CHANGED),
    "palette": Effect(lambda screen: isinstance(screen.app.screen, CommandPalette)),
}
"""By the name of the deed, or by name and screen where a screen has its own."""


def workshop() -> scenes.StillFeed:
    """The reference fleet, with a second server and a second log on its first host."""
    feed = scenes.reference_fleet()
    host = feed.reports["glm5-sm120"]
    second = msgspec.structs.replace(host.servers[0], name="vllm:8001", source=None, port=8001)
    feed.put(msgspec.structs.replace(host, servers=(*host.servers, second)))
    feed.tails["glm5-sm120"]["kernel"] = [LogLine(n=0, text="a line of the kernel", t=scenes.NOW)]
    return feed


async def reach(screen: Screen, there: str) -> None:
    """From any screen to another, without the keys that lead there: each of them has a row of its own."""
    app = screen.app
    while len(app.screen_stack) > 2:  # Textual's own screen, and the fleet over it
        await app.pop_screen()
    if there == keys.HELP:
        app.do_help()
    elif there == keys.PLAN:
        app.do_retune()
    elif there != keys.FLEET:
        app.open_screen(there)
    await screen.settle()
    assert where(screen) == there


@pytest.mark.parametrize("deed", [deed for deed in keys.DEEDS if deed.name != "quit"], ids=lambda deed: deed.name)
async def test_each_key_does_what_it_says_on_each_of_its_screens(deed: keys.Deed) -> None:
    async with opened(workshop(), SIZE, actions=EFFECTS[deed.name].actions()) as screen:
        await screen.press("home")
        for there in deed.where:
            effect = EFFECTS.get((deed.name, there)) or EFFECTS[deed.name]
            for key in deed.keys:
                await reach(screen, there)
                await pressed(screen, effect, key, there)


async def pressed(screen: Screen, effect: Effect, key: str, there: str) -> None:
    """Press a key and see its effect, which was not there before."""
    if effect.before:
        await screen.press(*effect.before)
    was = effect.look(screen)
    assert was != effect.want, f"{key} on {there}: already so\n{screen.text()}"
    await screen.press(key)
    now = effect.look(screen)
    seen = now != was if effect.want is CHANGED else now == effect.want
    assert seen, f"{key} on {there}: {was!r} before, {now!r} after\n{screen.text()}"
    if effect.undo:
        await screen.press(*effect.undo)


@pytest.mark.parametrize("there", keys.deed("quit").where)
async def test_q_leaves_from_every_screen(there: str) -> None:
    async with opened(workshop(), SIZE, actions=odd_scenes.with_jobs()) as screen:
        await screen.press("home")
        await reach(screen, there)
        await screen.pilot.press("q")
        assert EFFECTS["quit"].look(screen) == EFFECTS["quit"].want


def test_effects_are_of_deeds_there_are() -> None:
    deeds = {deed.name: deed for deed in keys.DEEDS}
    for row in EFFECTS:
        name, there = row if isinstance(row, tuple) else (row, None)
        assert name in deeds and (there is None or there in deeds[name].where), row


ACTING = [(deed, there) for deed in keys.DEEDS if deed.acts for there in deed.where]


@pytest.mark.parametrize(("deed", "there"), ACTING, ids=[f"{deed.name}-{there}" for deed, there in ACTING])
async def test_with_readonly_each_acting_key_says_why_not_on_each_of_its_screens(deed: keys.Deed, there: str) -> None:
    async with opened(workshop(), SIZE, actions=odd_scenes.with_jobs(), readonly=True) as screen:
        effect = EFFECTS[deed.name]
        await screen.press("home")
        await reach(screen, there)
        await screen.press(*effect.before)
        for key in deed.keys:
            screen.app.told.clear()
            await screen.press(key)
            assert any(READONLY_WORDS in told for told in screen.toasts()), f"{key} on {there}:\n{screen.text()}"
        assert where(screen) == there and not screen.deeds.done
