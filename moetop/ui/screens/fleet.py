"""The fleet: the answer on top, every GPU in a row, its picture over time, and the log with its events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import ClassVar

from textual.containers import Horizontal, Vertical
from textual.widget import Widget

from moetop.model import LogLine, ServerReport
from moetop.ui import keys
from moetop.ui.attention import answers
from moetop.ui.layout import MOST_ANSWERS, ROOMY_LINES, lines_for_charts, share_lines
from moetop.ui.logtext import log_words, source_shown
from moetop.ui.paint import clean
from moetop.ui.rows import SORTS, build_rows
from moetop.ui.scene import HostView, counts_words
from moetop.ui.screens.fleetcharts import FleetCharts
from moetop.ui.widgets.bars import ROOMY_COLUMNS, AnswerLines, Rule, VerticalRule
from moetop.ui.widgets.logview import LogView
from moetop.ui.widgets.notices import NoticeLines
from moetop.ui.widgets.plots import Plot
from moetop.ui.widgets.prompt import PromptLine, YesNo
from moetop.ui.widgets.table import FleetTable
from moetop.ui.widgets.text import TextLine
from moetop.ui.words import PHASE_SIGNS, VERDICT_SIGNS


class FleetScreen(FleetCharts):
    """Hosts and GPUs at a glance."""

    where: ClassVar[str] = keys.FLEET

    def __init__(self) -> None:
        super().__init__()
        self.sort = "given"
        self.folded: set[str] = set()
        self._log_source: tuple[str, str | None] = ("", None)
        self._moved = False
        self._following = False

    def body(self) -> Iterable[Widget]:
        yield AnswerLines()
        yield Rule(id="rule-top")
        yield FleetTable(id="table")
        yield Rule(id="rule-charts")
        with Horizontal(id="charts"):
            with Vertical(id="map-pane"):
                yield TextLine(id="map-title")
                yield Plot(self._draw_map, id="map")
            yield VerticalRule(id="upright")
            with Vertical(id="chart-pane"):
                yield TextLine(id="chart-title")
                yield Plot(self._draw_chart, id="chart")
        yield Rule(id="rule-log")
        yield LogView(id="log", level="events")
        yield from self.prompts()

    def on_mount(self) -> None:
        self.query_one(FleetTable).focus()

    def crumbs(self) -> tuple[str, ...]:
        return ()

    # ── state ────────────────────────────────────────────────────────────────────────────────────

    def host(self) -> HostView | None:
        row = self.query_one(FleetTable).selected
        return self.scene.host(row.host.name) if row is not None else None

    def applies(self, name: str) -> bool:
        if name == "back":
            return bool(self.filter_text) or self._in_log()
        return super().applies(name)

    def _in_log(self) -> bool:
        """Whether the keys go to the log pane."""
        return self.is_mounted and self.query_one("#log").has_focus

    def footer_word(self, deed: keys.Deed) -> str:
        if deed.name == "open" and self._in_log():
            return "whole log"
        if deed.name == "back":
            return "to the table" if self._in_log() else "clear filter"
        return super().footer_word(deed)

    def do_open(self) -> None:
        """What enter means depends on where it is pressed; a click in the footer means the same."""
        if self._in_log():
            self.action_deed("log")
        else:
            self.moetop.do_open()

    def do_back(self) -> None:
        if self._in_log():
            self.query_one(FleetTable).focus()
        else:
            super().do_back()

    def on_descendant_focus(self) -> None:
        table = self.query_one(FleetTable)
        table.marked = not self._in_log()
        table.redraw()
        self.show_footer()

    def header_words(self) -> str:
        words = [f"filter {self.filter_text}"] if self.filter_text else []
        words += [f"by {self.sort}"] if self.sort != "given" else []
        return " · ".join((*words, counts_words(self.scene)))

    # ── drawing ──────────────────────────────────────────────────────────────────────────────────

    def show_scene(self) -> None:
        table = self.query_one(FleetTable)
        rows = build_rows(self.scene, self.folded, self.moetop.row_filter, self.sort)
        table.empty_words = self._empty_words()
        answer = self.query_one(AnswerLines)
        most = MOST_ANSWERS if self.app.size.height >= ROOMY_LINES else 1
        chosen = self.moetop.chosen[0] if self.moetop.chosen is not None and self._moved else None
        answer.answers = answers(self.scene, most, self.retune_why, chosen, self.moetop.kind)
        if self.moetop.cursor_t is not None:  # findings are not kept over time: those of now are named as such
            answer.answers = [replace(one, text=f"now: {one.text}") for one in answer.answers]
        self._arrange(len(rows), len(answer.answers))
        answer.redraw()
        table.set_rows(rows, self.scene.t)
        self._aim(table)
        self._remember()
        top = self.query_one("#rule-top", Rule)
        top.words = self.moetop.demo_note or ""
        top.redraw()
        self._show_selected()

    def _empty_words(self) -> str:
        if self.filter_text:
            return f"nothing passes the filter {clean(self.filter_text, 80)!r}; esc clears it"
        if self.scene.reading:
            return "reading what came before"
        if self.scene.generation < 0:
            return "looking at the hosts for the first time"
        if self.moetop.actions.hosts_refusal() is None:
            return "no hosts are watched; a adds one"
        return "no hosts: start moetop with --host NAME, --config FILE or --demo"

    def _aim(self, table: FleetTable) -> None:
        """Until a person moves the cursor it stands on the host of the first answer, which the keys then mean."""
        worst = self.scene.worst_per_host()
        if not self._moved and worst and not self.moetop.paused:
            table.select(worst[0][0].name, None)

    def _remember(self) -> None:
        row = self._selected()
        if row is not None:
            self.moetop.chosen = row.key

    def _show_selected(self) -> None:
        host = self.host()
        if self.query_one("#charts").display:
            self._show_chart_titles(host)
            for plot in self.query(Plot):
                if plot.display:
                    plot.redraw()
            self.query_one("#upright", VerticalRule).redraw()
        self._show_log(host)

    def _arrange(self, rows: int, answer_lines: int) -> None:
        """Share out the lines: the table takes what it needs, then charts and log (docs/keys.md says which go)."""
        size = self.app.size
        prompts = sum(line.is_open for line in self.query(PromptLine)) + self.query_one(YesNo).is_open
        prompts += self.query_one(NoticeLines).settle()
        shares = share_lines(size.width, size.height, rows, answer_lines, prompts, self.moetop.demo_note is not None)
        for name, there in (
            ("#rule-top", shares.note),
            ("#rule-log", shares.rules),
            ("#rule-charts", shares.charts > 0),
            ("#charts", shares.charts > 0),
            ("#map-pane", shares.map),
            ("#upright", shares.map),
        ):
            self.query_one(name).display = there
        self.lines_needed = lines_for_charts(size.width, rows, self.moetop.demo_note is not None)
        self.query_one(AnswerLines).styles.height = answer_lines
        self.query_one(FleetTable).styles.height = shares.table
        self.query_one("#charts").styles.height = max(1, shares.charts)
        self.query_one("#log").styles.height = shares.log

    def _show_log(self, host: HostView | None) -> None:
        view = self.query_one("#log", LogView)
        if host is None:
            view.log_lines.reset()
            view.title, view.title_right, view.empty_words = [], "", "no host is selected"
            view.redraw()
            return
        server = self.server()
        source = source_shown(host, server, self.moetop.feed.sources(host.name))
        if (host.name, source) != self._log_source:
            self._log_source = (host.name, source)
            view.log_lines.reset()
            view.log_lines.follow = True
        tail: Sequence[LogLine] = self.moetop.feed.tail(host.name, source) if source else ()
        until = self.moetop.host_cursor(host)
        if view.log_lines.until != until:
            view.log_lines.until = until
            view.log_lines.rebuild(tail)
        view.log_lines.update(tail)
        view.title = self._log_title(host, source, server)
        hidden = view.log_lines.hidden
        plural = "" if hidden == 1 else "s"
        words = f"line{plural} without an event hidden" if self.app.size.width >= ROOMY_COLUMNS else "hidden"
        view.title_right = f"{hidden:,} {words}" if hidden else ""
        view.empty_words = log_words(host, source, bool(tail), server)
        view.redraw()

    def _log_title(self, host: HostView, source: str | None, server: ServerReport | None) -> list[tuple[str, str]]:
        if server is None:
            return [(f"{source or 'log'} @ {host.name}", "text")]
        phase, verdict = PHASE_SIGNS[server.phase], VERDICT_SIGNS[server.tuning.verdict]
        engine = server.engine.value if server.engine is not None else server.name
        if len(host.report.servers) > 1:
            engine = server.name
        run = f"   run {server.runs[-1].n}" if server.runs else ""
        return [
            (f"{engine} @ {host.name}", "text"),
            (run, "quiet"),
            (f"   {phase.glyph} {phase.word}", phase.role),
            ("   tuning: ", "quiet"),
            (verdict.word, verdict.role),
        ]

    # ── deeds ────────────────────────────────────────────────────────────────────────────────────

    def do_sort(self) -> None:
        names = list(SORTS)
        self._sort_by(names[(names.index(self.sort) + 1) % len(names)])

    def _sort_by(self, sort: str) -> None:
        self.sort = sort
        self.moetop.say(f"order: {SORTS[sort]}")
        self.show()

    def do_fold(self) -> None:
        row = self._selected()
        if row is not None:
            self.folded.add(row.host.name)
            self.show()

    def do_unfold(self) -> None:
        row = self._selected()
        if row is not None:
            self.folded.discard(row.host.name)
            self.show()

    def do_fold_all(self) -> None:
        names = {host.name for host in self.scene.hosts}
        self.folded = set() if self.folded else names
        self.show()

    def do_next_event(self) -> None:
        self._step_event(1)

    def do_previous_event(self) -> None:
        self._step_event(-1)

    def _step_event(self, step: int) -> None:
        view = self.query_one("#log", LogView)
        view.focus()
        if not view.step_event(step):
            self.moetop.say("no further event in this log" if step > 0 else "no earlier event in what is kept")

    def do_copy(self) -> None:
        view = self.query_one("#log", LogView)
        line = view.log_lines.selected
        if view.has_focus and line is not None:
            self.moetop.copy_text(clean(line.text, 20000), "the log line", "line.txt")
            return
        table = self.query_one(FleetTable)
        text = "\n".join(line.rstrip() for line in table.plain_lines())
        self.moetop.copy_text(text, "the table", "table.txt")

    # ── messages of the widgets ──────────────────────────────────────────────────────────────────

    def on_fleet_table_selected(self, message: FleetTable.Selected) -> None:
        self._moved = self._moved or message.by_hand
        if message.by_hand:
            self.moetop.chosen_server = None
        self._remember()
        if not self._following:
            self._following = True
            self.call_after_refresh(self._follow_cursor)

    def _follow_cursor(self) -> None:
        """Charts and log of the new row, after the row itself is painted: a held key never waits for them."""
        self._following = False
        if not self.is_current:
            return
        if self.moetop.heed_place(self):
            self.show()
        else:
            self._show_selected()
            self.show_footer()

    def go_to_gpu(self, host: str, gpu: int) -> None:
        self._moved = True
        self.folded.discard(host)
        self.show()
        self.query_one(FleetTable).select(host, gpu)

    def on_fleet_table_opened(self) -> None:
        self.action_deed("open")

    def on_fleet_table_folded(self, message: FleetTable.Folded) -> None:
        self.folded.symmetric_difference_update({message.host})
        self.show()

    def on_fleet_table_sort_asked(self, message: FleetTable.SortAsked) -> None:
        self._sort_by(message.sort)

    def on_answer_lines_asked(self, message: AnswerLines.Asked) -> None:
        shown = self.query_one(AnswerLines).answers
        if message.at < len(shown) and shown[message.at].host:
            self.moetop.open_why(shown[message.at].host)

    def on_log_view_opened(self) -> None:
        self.action_deed("log")
