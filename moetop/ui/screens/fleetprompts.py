"""What the fleet screen asks in a line above its footer: the filter, a host to add, whether to remove one."""

from __future__ import annotations

from collections.abc import Iterable

from textual.widget import Widget

from moetop.errors import UsageError
from moetop.ui import keys
from moetop.ui.paint import clean
from moetop.ui.rows import parse_filter
from moetop.ui.screens.base import MoeScreen
from moetop.ui.widgets.prompt import PromptLine, YesNo
from moetop.ui.widgets.table import FleetTable

FILTER_HINT = "state:starved host:a* !model:*glm*"
ADD_HINT = "HOST, USER@HOST:PORT or an ssh alias"


class FleetPrompts(MoeScreen):
    """The prompts of the fleet screen and what comes of them."""

    where = keys.FLEET

    def __init__(self) -> None:
        super().__init__()
        self.filter_text = ""
        self._to_remove = ""

    def prompts(self) -> Iterable[Widget]:
        """The prompt lines, closed."""
        yield PromptLine("filter", FILTER_HINT, id="filter")
        yield PromptLine("watch", ADD_HINT, id="add")
        yield YesNo(id="remove")

    def refusal(self, name: str) -> str | None:
        if name in ("add_host", "remove_host"):
            why = self.moetop.actions.hosts_refusal()
            if why is None and name == "remove_host" and self.host() is None:
                return "no host is selected"
            return why
        return super().refusal(name)

    def do_filter(self) -> None:
        self.query_one("#filter", PromptLine).open(self.filter_text)
        self.show()

    def do_add_host(self) -> None:
        self.query_one("#add", PromptLine).open()
        self.show()

    def do_remove_host(self) -> None:
        host = self.host()
        if host is not None:
            self._to_remove = host.name
            self.query_one(YesNo).open(f"stop watching {clean(host.name, 40)}?")
            self.show()

    def do_back(self) -> None:
        self._apply_filter("")
        self.show()

    def _apply_filter(self, text: str) -> bool:
        """Filter by `text`; False, with all rows shown and the reason in the prompt, where it is no filter."""
        prompt = self.query_one("#filter", PromptLine)
        try:
            parsed = parse_filter(text)
        except UsageError as error:
            prompt.hint(error.sentence(), wrong=True)
            self.filter_text, self.moetop.row_filter = "", None  # rows by half of a word would mislead
            return False
        prompt.hint(FILTER_HINT)
        self.filter_text = text.strip()
        self.moetop.row_filter = parsed if parsed.terms else None
        return True

    def _asked(self) -> str | None:
        """Which prompt is open."""
        return next((line.id for line in self.query(PromptLine) if line.is_open), None)

    def on_prompt_line_changed(self, message: PromptLine.Changed) -> None:
        if self._asked() == "filter":
            self._apply_filter(message.text)
            self.show()

    def on_prompt_line_done(self, message: PromptLine.Done) -> None:
        asked, text, actions = self._asked(), message.text.strip(), self.moetop.actions
        if asked == "filter" and not self._apply_filter(text):
            self.show()
            return
        if asked == "add" and text:
            self.moetop.perform(lambda: f"{actions.add_host(text)}: connecting", "host added")
        self._close_prompt()

    def on_yes_no_answered(self, message: YesNo.Answered) -> None:
        if message.yes:
            name = self._to_remove
            self.moetop.perform(lambda: self._remove(name), "host removed")
        self._close_prompt()

    def _remove(self, name: str) -> str:
        self.moetop.actions.remove_host(name)
        return f"{name} is no longer watched"

    def on_prompt_line_left(self) -> None:
        if self._asked() == "filter":
            self._apply_filter("")
        self._close_prompt()

    def _close_prompt(self) -> None:
        for line in self.query(PromptLine):
            line.close()
        self.query_one(YesNo).close()
        self.query_one(FleetTable).focus()
        self.show()
