"""The log: follows, stops when scrolled up, searches, steps between events, hides noise."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual.widget import Widget

from moetop.model import LogLine, ServerReport
from moetop.ui import fmt, keys
from moetop.ui.loglines import LEVEL_STEPS, LEVELS, line_clock
from moetop.ui.logtext import hidden_words, log_words, order_sources, source_of, source_shown
from moetop.ui.paint import clean
from moetop.ui.screens.base import MoeScreen
from moetop.ui.widgets.logview import LogView
from moetop.ui.widgets.prompt import PromptLine
from moetop.ui.words import EVENT_WORDS


class LogScreen(MoeScreen):
    """One log of the chosen host."""

    where: ClassVar[str] = keys.LOG

    def __init__(self) -> None:
        super().__init__()
        self._shown: tuple[str, str | None] = ("", None)
        self._searched_from: int | None = None

    def body(self) -> Iterable[Widget]:
        yield LogView(id="lines", level="no noise")
        yield PromptLine("search", "words or a regular expression; enter finds, esc leaves", id="search")
        yield PromptLine("only lines with", "kind:ready severity:warn rank:TP3 !word; esc: all lines", id="filter")

    @property
    def view(self) -> LogView:
        """The pane."""
        return self.query_one(LogView)

    def on_mount(self) -> None:
        self.view.styles.height = "1fr"
        self.view.focus()

    def sources(self) -> list[str]:
        """Logs of the host, the server's first."""
        host = self.host()
        return order_sources(host, self.moetop.feed.sources(host.name)) if host is not None else []

    def source(self) -> str | None:
        """The log shown: the one that tab picked, else the server's, else the first."""
        host, sources = self.host(), self.sources()
        if host is None:
            return None
        picked = self.moetop.picked_log
        if picked is not None and picked[0] == host.name and picked[1] in sources:
            return picked[1]
        found = source_shown(host, self.server(), sources)
        return found if found is not None or not sources else sources[0]

    def crumbs(self) -> tuple[str, ...]:
        host = self.host()
        if host is None:
            return ("log",)
        source, sources = self.source(), self.sources()
        place = f" ({sources.index(source) + 1} of {len(sources)})" if source is not None and len(sources) > 1 else ""
        return (host.name, f"log {source or ''}{place}".strip())

    def _tail(self) -> Sequence[LogLine]:
        host, source = self.host(), self.source()
        return self.moetop.feed.tail(host.name, source) if host is not None and source is not None else ()

    def show_scene(self) -> None:
        host, source, view = self.host(), self.source(), self.view
        lines = view.log_lines
        key = (host.name if host is not None else "", source)
        if key != self._shown:
            self._shown = key
            lines.reset()
            lines.follow = True
            lines.marks = []
        tail = self._tail()
        until = self.moetop.host_cursor(host) if host is not None else None
        if lines.until != until:
            lines.until = until
            lines.rebuild(tail)
        lines.update(tail)
        what = f"only {EVENT_WORDS.get(lines.kind, '')}" if lines.kind is not None else f"lines: {lines.level}"
        found = f"   only: {lines.filter_text}" if lines.filter is not None else ""
        found += f"   search: {lines.pattern.pattern}" if lines.pattern is not None else ""
        server = self._owner(source)
        lines.engine = server.engine.value if server is not None and server.engine is not None else ""
        where = f"{lines.cursor + 1:,} of {len(lines.shown):,}" if lines.shown else "no line"
        state = "following" if lines.follow else "stopped"
        view.title = [
            (f"{source or 'no log'}", "text!"),
            (f"   {what}", "notice" if lines.level != "no noise" or lines.kind else "quiet"),
            (clean(found, 80), "accent"),
        ]
        view.title_right = f"{lines.hidden:,} hidden   {where}   {state}"
        if host is None:
            view.empty_words = "no host is selected"
        else:
            view.empty_words = hidden_words(lines) if tail else log_words(host, source, False, self.server())
        view.redraw()

    def applies(self, name: str) -> bool:
        if name == "follow":
            return not self.view.log_lines.follow
        return super().applies(name)

    def footer_word(self, deed: keys.Deed) -> str:
        if deed.name == "level":
            at = LEVELS.index(self.view.log_lines.level)
            return LEVEL_STEPS[LEVELS[(at + 1) % len(LEVELS)]]
        return super().footer_word(deed)

    def on_log_view_moved(self) -> None:
        self.show()

    # ── deeds ────────────────────────────────────────────────────────────────────────────────────

    def do_search(self) -> None:
        self._searched_from = self.view.log_lines.place()
        self.query_one("#search", PromptLine).open()

    def do_log_filter(self) -> None:
        self.query_one("#filter", PromptLine).open(self.view.log_lines.filter_text)

    def _filters(self) -> bool:
        """Whether the open prompt is the filter's."""
        return self.query_one("#filter", PromptLine).is_open

    def on_prompt_line_changed(self, message: PromptLine.Changed) -> None:
        if self._filters():
            self.view.log_lines.set_filter(message.text, self._tail())
        else:
            self._search(message.text)
        self.show()

    def _search(self, text: str) -> bool:
        """Search from where the search began: what half a word found on the way is no place of its own."""
        lines = self.view.log_lines
        lines.return_to(self._searched_from)
        return lines.search(text)

    def on_prompt_line_done(self, message: PromptLine.Done) -> None:
        if self._filters():
            self.view.log_lines.set_filter(message.text, self._tail())
        elif not self._search(message.text):
            self.moetop.say(f"{message.text!r} is not in the lines shown")
        self._close_prompt()

    def on_prompt_line_left(self) -> None:
        if self._filters():
            self.view.log_lines.set_filter("", self._tail())
        else:
            self._search("")
        self._close_prompt()

    def _close_prompt(self) -> None:
        for prompt in self.query(PromptLine):
            prompt.close()
        self.view.focus()
        self.show()

    def do_back(self) -> None:
        lines = self.view.log_lines
        if lines.pattern is not None or lines.filter is not None:
            lines.search("")
            lines.set_filter("", self._tail())
            self.show()
        else:
            super().do_back()

    def _step(self, found: bool, what: str) -> None:
        self.show()
        if not found:
            self.moetop.say(what)

    def do_next_event(self) -> None:
        self._step(self.view.log_lines.next_event(1), "no further event")

    def do_previous_event(self) -> None:
        self._step(self.view.log_lines.next_event(-1), "no earlier event in what is kept")

    def do_next_match(self) -> None:
        self._step(self.view.log_lines.next_match(1), "no further match (/ searches)")

    def do_previous_match(self) -> None:
        self._step(self.view.log_lines.next_match(-1), "no earlier match (/ searches)")

    def do_level(self) -> None:
        lines = self.view.log_lines
        lines.level = LEVELS[(LEVELS.index(lines.level) + 1) % len(LEVELS)]
        lines.kind = None
        lines.rebuild(self._tail())
        self.show()

    def do_kind(self) -> None:
        lines = self.view.log_lines
        chosen = lines.selected
        if lines.kind is not None:
            lines.kind = None
        elif chosen is not None and chosen.kind is not None:
            lines.kind = chosen.kind
        else:
            self.moetop.say("the selected line has no kind of its own; e goes to the next that has")
            return
        lines.rebuild(self._tail())
        self.show()

    def do_source(self) -> None:
        if len(self.sources()) < 2:
            self.moetop.say("this host has one log only" if self.sources() else "this host has no log")
            return
        host, source, sources = self.host(), self.source(), self.sources()
        if host is None or source is None:
            return
        after = sources[(sources.index(source) + 1) % len(sources)]
        self.moetop.picked_log = (host.name, after)
        owner = self._owner(after)
        if owner is not None:
            self.moetop.chosen_server = (host.name, owner.name)
        self.show()

    def _owner(self, source: str | None) -> ServerReport | None:
        """The server that writes a log."""
        host, sources = self.host(), self.sources()
        servers = host.report.servers if host is not None and source is not None else ()
        return next((server for server in servers if source_of(server, sources) == source), None)

    def do_mark(self) -> None:
        lines = self.view.log_lines
        lines.add_mark(f"mark {fmt.clock_time(self.moetop.clock())}")
        self.show()

    def do_follow(self) -> None:
        self.view.log_lines.end()
        self.show()

    def do_copy(self) -> None:
        line = self.view.log_lines.selected
        if line is None:
            self.moetop.say("no line is selected")
            return
        self.moetop.copy_text(clean(line.text, 20000), "the line", "line.txt")

    def do_save_log(self) -> None:
        lines = list(self.view.log_lines.shown)
        text = "\n".join(f"{line_clock(line)} {clean(line.text, 20000)}" for line in lines) + "\n"
        name = f"{self._shown[0]}-{self._shown[1] or 'log'}.log"
        self.moetop.perform(
            lambda: f"{len(lines):,} lines: {self.moetop.actions.write_text(name, text)}", "lines saved"
        )
