"""The keys that work on the screen one came from, and what the signs mean."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.widget import Widget

from moetop.ui import keys, pages
from moetop.ui.rows import FILTER_KEYS
from moetop.ui.screens.base import MoeScreen
from moetop.ui.widgets.text import TextPage
from moetop.ui.words import LIMIT_WORDS, STATE_SIGNS


class HelpScreen(MoeScreen):
    """Pushed over any screen; escape or ? leaves it."""

    where: ClassVar[str] = keys.HELP
    BINDINGS: ClassVar = [("question_mark", "deed('back')", "Back")]

    def __init__(self, about: str) -> None:
        super().__init__()
        self.about = about

    def body(self) -> Iterable[Widget]:
        yield TextPage(id="page")

    def on_mount(self) -> None:
        self.query_one(TextPage).focus()

    def crumbs(self) -> tuple[str, ...]:
        return ("keys",)

    def show_scene(self) -> None:
        self.query_one(TextPage).set_lines(self._page())

    def _page(self) -> pages.Page:
        behind = next(
            (screen for screen in reversed(self.app.screen_stack[:-1]) if isinstance(screen, MoeScreen)), None
        )
        width = max(30, self.app.size.width - 3)
        page: pages.Page = [pages.head(f"Keys on this screen ({keys.SCREEN_TITLES[self.about]})")]
        for deed in keys.deeds_of(self.about):
            if behind is not None and not behind.applies(deed.name):
                continue
            why = behind.refusal(deed.name) if behind is not None else None
            role = "faint" if why else "text"
            page.append([(f"{keys.faces(deed):<12} ", "faint" if why else "accent!"), (deed.help, role)])
            if why:
                page += pages.labelled("", f"not now: {why}", width, "quiet")
        page += [pages.blank(), pages.head("Everywhere")]
        page += [[(f"{face:<28} ", "accent!"), (text, "text")] for face, text in keys.MOVES]
        page += [pages.blank(), pages.head("States (a question mark: inferred, no counter measured it)")]
        page += pages.sign_legend((sign.glyph, sign.word, sign.role, sign.meaning) for sign in STATE_SIGNS.values())
        page += [pages.blank(), pages.head("Beside the power")]
        page += [[(f"{word:<6}", "text!"), (meaning, "text")] for word, meaning in LIMIT_WORDS.values()]
        page += [
            pages.blank(),
            pages.head("Filter: words that must all hold; ! before a word: must not; * stands for anything"),
        ]
        page += [[(f"{key + ':':<12}", "text!"), (meaning, "text")] for key, meaning in FILTER_KEYS.items()]
        return page
