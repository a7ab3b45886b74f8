"""The command palette: every deed that applies here, as `area: Action`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content

from moetop.ui import keys
from moetop.ui.paint import fit

if TYPE_CHECKING:
    from moetop.ui.app import MoetopApp
    from moetop.ui.screens.base import MoeScreen

WIDTH = 100
"""Cells of the palette on a wide terminal; moetop.tcss has the same figure."""

TITLE_CELLS, KEY_CELLS, EDGE_CELLS, FRAME_CELLS = 34, 8, 6, 4


LEAST_HELP = 3
"""Letters from which on words are looked for in what a deed does, and not in its title alone."""

HELP_SCORE = 0.01
"""A match in the help stands below those in a title, whose scores are larger."""


class _Entry(NamedTuple):
    """What the palette offers: its title, its keys, what it does, and the doing."""

    title: str
    key: str
    help: str
    call: partial[None]


class MoeCommands(Provider):
    """Deeds of the screen under the palette, and the themes by name; one line each."""

    def _entries(self) -> list[_Entry]:
        screen = cast("MoeScreen", self.screen)
        app = cast("MoetopApp", self.app)
        entries = [
            _Entry(f"{deed.area}: {deed.title}", keys.faces(deed), deed.help, partial(screen.action_deed, deed.name))
            for deed in keys.deeds_of(getattr(screen, "where", ""))
            if deed.name != "palette" and screen.applies(deed.name) and screen.refusal(deed.name) is None
        ]
        entries += [
            _Entry(f"theme: {theme.title}", "", f"colours {theme.name}", partial(app.use_theme, theme))
            for theme in app.themes.values()
        ]
        return sorted(entries, key=lambda entry: entry.title.partition(":")[0])

    def _line(self, entry: _Entry, title: Content) -> Content:
        app = cast("MoetopApp", self.app)
        edges = EDGE_CELLS + (FRAME_CELLS if app.bare else 0)
        room = min(WIDTH, app.size.width) - edges - TITLE_CELLS - KEY_CELLS
        gap = " " * max(1, TITLE_CELLS - len(entry.title))
        rest = f"{gap}{fit(entry.key, KEY_CELLS)}{fit(entry.help, room)}"
        return title + Content.styled(rest.rstrip(), "not bold dim")

    async def discover(self) -> Hits:
        for entry in self._entries():
            yield DiscoveryHit(self._line(entry, Content(entry.title)), entry.call, text=entry.title)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for entry in self._entries():
            in_title = matcher.match(entry.title)
            in_help = len(query) >= LEAST_HELP and query.lower() in entry.help.lower()
            if in_title > 0 or in_help:
                title = matcher.highlight(entry.title) if in_title > 0 else Content(entry.title)
                yield Hit(max(in_title, HELP_SCORE), self._line(entry, title), entry.call, text=entry.title)
