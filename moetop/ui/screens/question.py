"""A question over any screen: a passphrase or code that a host wants, or an answer a job waits for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Label

from moetop.ui.paint import clean


class QuestionScreen(ModalScreen["str | None"]):
    """Dismissed with what was typed, None where it was left. `asked` numbers a question of a connection."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", show=False)]

    def __init__(
        self, text: str, *, secret: bool = False, options: Sequence[str] = (), asked: int | None = None, hint: str = ""
    ) -> None:
        super().__init__()
        self.asked = asked
        self._text = text
        self._secret = secret
        self._options = tuple(options)
        self._hint = hint or ("what you type is not shown; " if secret else "") + "enter answers, esc leaves it"

    def compose(self) -> ComposeResult:
        with Vertical(id="question"):
            yield Label(clean(self._text, 600), markup=False, id="question-text")
            yield Input(password=self._secret, compact=True)
            yield Label(clean(self._hint, 300), markup=False, classes="hint")

    def on_mount(self) -> None:
        self.query_one(Input).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        answer = event.value if self._secret else event.value.strip()
        if self._options and answer not in self._options:
            self.query_one(".hint", Label).update(f"type one of: {', '.join(self._options)}; esc leaves it")
            return
        self.dismiss(answer)

    def action_leave(self) -> None:
        self.dismiss(None)
