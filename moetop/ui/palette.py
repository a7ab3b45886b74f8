"""The command palette: every deed that applies here, as `area: Action`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

from textual.command import DiscoveryHit, Hit, Hits, Provider

from moetop.ui import keys

if TYPE_CHECKING:
    from moetop.ui.app import MoetopApp
    from moetop.ui.screens.base import MoeScreen


class MoeCommands(Provider):
    """Deeds of the screen under the palette, and the themes by name."""

    def _entries(self) -> list[tuple[str, str, partial[None]]]:
        screen = cast("MoeScreen", self.screen)
        app = cast("MoetopApp", self.app)
        entries = [
            (f"{deed.area}: {deed.title}", f"{deed.help}  ({keys.faces(deed)})", partial(screen.action_deed, deed.name))
            for deed in keys.deeds_of(getattr(screen, "where", ""))
            if deed.name != "palette" and screen.applies(deed.name) and screen.refusal(deed.name) is None
        ]
        entries += [
            (f"theme: {theme.title}", f"colours {theme.name}", partial(app.use_theme, theme))
            for theme in app.themes.values()
        ]
        return sorted(entries, key=lambda entry: entry[0])

    async def discover(self) -> Hits:
        for title, text, call in self._entries():
            yield DiscoveryHit(title, call, help=text)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for title, text, call in self._entries():
            score = matcher.match(title)
            if score > 0:
                yield Hit(score, matcher.highlight(title), call, help=text)
