"""The one-line prompts above the footer: for filters and searches, and for a yes or no. They decide nothing."""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input, Label


class PromptLine(Horizontal):
    """A label, an input and a hint. `Changed` comes while typing, `Done` on enter, `Left` on escape."""

    class Changed(Message):
        """The text changed."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Done(Message):
        """Enter."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Left(Message):
        """Escape: as it was before."""

    def __init__(self, label: str, hint: str = "", *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._label = label
        self._hint = hint

    def compose(self) -> ComposeResult:
        yield Label(self._label, markup=False, id="label")
        yield Input(compact=True)
        yield Label(self._hint, markup=False, classes="hint")

    def open(self, text: str = "", label: str | None = None) -> None:
        """Show the prompt and type into it; `label` replaces the words in front."""
        self.display = True
        self.add_class("-open")
        if label is not None:
            self.query_one("#label", Label).update(label)
        field = self.query_one(Input)
        field.value = text
        field.cursor_position = len(text)
        self.screen.set_focus(field)  # at once: what is typed or pasted next must not reach the keys of the screen

    def close(self) -> None:
        """Hide the prompt."""
        self.remove_class("-open")
        self.display = False

    @property
    def is_open(self) -> bool:
        """Whether it is shown."""
        return self.has_class("-open")

    def hint(self, text: str, wrong: bool = False) -> None:
        """Words at the right: what is wrong with the text, or how it is written."""
        self.query_one(".hint", Label).update(text)
        self.set_class(wrong, "-wrong")

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        if self.is_open:
            self.post_message(self.Changed(event.value))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.post_message(self.Done(event.value))

    def on_key(self, event: events.Key) -> None:
        if event.key == "escape":
            event.stop()
            event.prevent_default()
            self.post_message(self.Left())


class YesNo(Widget, can_focus=True):
    """A question that a single key answers: y yes; n and esc no; every other key is nothing."""

    class Answered(Message):
        """It was answered."""

        def __init__(self, yes: bool) -> None:
            super().__init__()
            self.yes = yes

    def compose(self) -> ComposeResult:
        yield Label("", markup=False)

    def open(self, question: str) -> None:
        """Ask."""
        self.query_one(Label).update(f"{question}  y yes · n no")
        self.add_class("-open")
        self.screen.set_focus(self)

    def close(self) -> None:
        """Hide it."""
        self.remove_class("-open")

    @property
    def is_open(self) -> bool:
        """Whether it is shown."""
        return self.has_class("-open")

    def on_key(self, event: events.Key) -> None:
        event.stop()
        event.prevent_default()
        if event.key in ("y", "Y", "upper_y"):
            self.post_message(self.Answered(True))
        elif event.key in ("n", "N", "upper_n", "escape"):
            self.post_message(self.Answered(False))
