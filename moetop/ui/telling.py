"""What the app tells in lines above the footer, and the actions whose outcome it tells. Knows no single screen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from textual.app import App
from textual.screen import Screen

from moetop.errors import MoetopError
from moetop.ui.feed import Actions
from moetop.ui.layout import SMALLEST
from moetop.ui.paint import clean
from moetop.ui.widgets.notices import Told


def words_of(error: MoetopError | OSError) -> str:
    """What an action that failed is told as."""
    return error.sentence() if isinstance(error, MoetopError) else str(error)


class TellingApp(App[int]):
    """Messages come and go; some only stand while the screen and the host are shown that they speak of."""

    actions: Actions
    chosen: tuple[str, int | None] | None = None

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Told] = []

    def show_top(self) -> None:
        """Draw the screen on top."""

    def say(self, text: str, severity: str = "information", title: str = "", *, here: bool = False) -> None:
        """A message above the footer for some seconds; foreign text in it is made harmless. With `here` it goes as
        soon as another screen opens or another host is chosen."""
        if self.size.width < SMALLEST[0] or self.size.height < SMALLEST[1]:
            return  # it would hide the words that say how much room is needed
        level = severity if severity in ("information", "warning", "error") else "information"
        told = Told(clean(title, 120), clean(text, 600), level, self._place() if here else None)
        self.told.append(told)
        self.set_timer((4 if level == "information" else 7) + len(told.words()) // 60, lambda: self._forget(told))
        self.show_top()

    def _place(self) -> tuple[int, str]:
        """The screen on top, the palette apart, and the host that is chosen."""
        screens = [screen for screen in self.screen_stack if not screen.is_modal]
        return id(screens[-1]) if screens else 0, self.chosen[0] if self.chosen is not None else ""

    def heed_place(self, screen: Screen[Any]) -> bool:
        """Take away what was told on another screen or of another host than `screen` is to show; whether there was
        something."""
        place = (id(screen), self._place()[1])
        before, self.told = self.told, [one for one in self.told if one.place in (None, place)]
        return len(self.told) < len(before)

    def _forget(self, told: Told) -> None:
        """Take a message away again."""
        self.told = [one for one in self.told if one is not told]
        self.show_top()

    def perform(self, deed: Callable[[], str], done: str, *, here: bool = False) -> None:
        """Run a blocking action in a worker; say what came of it (nothing where it returns no words), with `here`
        as `say` does."""

        def work() -> None:
            try:
                result = deed()
            except (MoetopError, OSError) as error:
                self.call_from_thread(self.say, words_of(error), "error", "not done", here=here)
            else:
                if result:
                    self.call_from_thread(self.say, result, "information", done, here=here)

        self.run_worker(work, thread=True, group="actions", name=done)

    def copy_text(self, text: str, what: str, file_name: str) -> None:
        """Copy by OSC 52 and keep a file beside it, since not every terminal takes the sequence."""
        self.copy_to_clipboard(text)

        def write() -> str:
            path = self.actions.write_text(file_name, text)
            return f"{what} sent to the terminal's clipboard (OSC 52); if yours does not take it: {path}"

        self.perform(write, "copied")
