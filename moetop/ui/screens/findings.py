"""All findings: those that stand and those that cleared, with their times."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual.widget import Widget

from moetop.model import ServerReport
from moetop.ui import fmt, keys, pages
from moetop.ui.attention import Noted
from moetop.ui.logtext import server_of
from moetop.ui.paint import clean, columns
from moetop.ui.scene import HostView
from moetop.ui.screens.base import MoeScreen
from moetop.ui.widgets.bars import Rule
from moetop.ui.widgets.text import TextPage
from moetop.ui.words import CLEARED_SIGN, FINDING_TITLES, SEVERITY_SIGNS

HOST_CELLS = 22
"""A longer host name is cut in the list; the why names it whole."""


class FindingsScreen(MoeScreen):
    """A list at the top, the why of the selected one below."""

    where: ClassVar[str] = keys.FINDINGS

    def body(self) -> Iterable[Widget]:
        yield TextPage(id="list", selectable=True)
        yield Rule()
        yield TextPage(id="why")

    def on_mount(self) -> None:
        self.query_one("#list").focus()

    def crumbs(self) -> tuple[str, ...]:
        return ("findings",)

    def chosen(self) -> Noted | None:
        """The selected finding."""
        mark = self.query_one("#list", TextPage).chosen
        return next((noted for noted in self.moetop.findings.listed() if noted.mark == mark), None)

    def host(self) -> HostView | None:
        """The host of the selected finding: here the keys mean it, not the row that the fleet's cursor is on."""
        noted = self.chosen()
        return self.scene.host(noted.host) if noted is not None else None

    def server(self) -> ServerReport | None:
        noted, host = self.chosen(), self.host()
        if noted is None or host is None:
            return None
        finding = noted.finding
        if finding.server is not None:
            return next((server for server in host.report.servers if server.name == finding.server), None)
        return server_of(host, None, finding.gpus[0] if finding.gpus else None)

    def show_scene(self) -> None:
        listed = self.moetop.findings.listed()
        page = self.query_one("#list", TextPage)
        page.styles.height = max(3, min(len(listed) or 1, self.app.size.height // 3))
        if not listed:
            page.set_lines([[("no finding stands, and none has cleared since moetop started", "quiet")]])
        else:
            rows = columns([self._cells(noted) for noted in listed])
            lines = [self._line(noted, row) for noted, row in zip(listed, rows, strict=True)]
            page.set_lines(lines, [noted.mark for noted in listed])
        self.query_one(Rule).redraw()
        self._show_why()

    def _times(self, noted: Noted) -> tuple[str, str]:
        """When it came, and how long ago or when it cleared. How long it has held is in the why."""
        since = "at start" if noted.at_start and noted.gone is None else fmt.clock_time(noted.came)
        if noted.gone is not None:
            return since, f"cleared {fmt.clock_time(noted.gone)}"
        return since, "" if noted.at_start else f"{fmt.span(self.scene.t - noted.came)} ago"

    def _cells(self, noted: Noted) -> tuple[str, str, str, str]:
        """Times, host and kind of a finding, as wide as they are."""
        title = FINDING_TITLES.get(noted.finding.kind, noted.finding.kind.value)
        return *self._times(noted), clean(noted.host, HOST_CELLS), title

    def _line(self, noted: Noted, cells: Sequence[str]) -> list[tuple[str, str]]:
        """A finding, its cells as wide as their columns."""
        gone = noted.gone is not None
        sign = CLEARED_SIGN if gone else SEVERITY_SIGNS[noted.finding.severity]
        role = sign.role
        since, until, host, title = cells
        return [
            (f"{sign.glyph} ", role),
            (f"{since}  {until}  " if until else f"{since}  ", "quiet"),
            (f"{host}  ", "quiet" if gone else "text!"),
            (f"{title}  ", role),
            (clean(noted.finding.summary, 400), "quiet" if gone else "text"),
        ]

    def _show_why(self) -> None:
        why = self.query_one("#why", TextPage)
        noted = self.chosen()
        if noted is None:
            why.set_lines([])
            return
        page = pages.finding_page(noted.host, noted.finding, max(30, self.app.size.width - 3))
        why.set_lines(page, subject=noted.mark)

    def on_text_page_moved(self) -> None:
        self._show_why()
        self.show_footer()

    def on_text_page_chosen(self) -> None:
        self.action_deed("open")

    def refusal(self, name: str) -> str | None:
        if name in ("open", "log", "server", "copy") and self.chosen() is None:
            return "no finding is selected"
        if name in ("open", "log", "server") and self.host() is None:
            return "its host is no longer watched"
        noted = self.chosen()
        named = noted.finding.server if noted is not None and self.host() is not None else None
        if name in ("retune", "log", "server") and named is not None and self.server() is None:
            return f"{clean(named, 60)}, which the finding is about, is no longer there"
        return super().refusal(name)

    def do_open(self) -> None:
        noted = self.chosen()
        if noted is not None:
            self.moetop.open_why(noted.host)

    def _aim(self) -> None:
        """What the next screen shows is the selected finding's."""
        host, server = self.host(), self.server()
        if host is not None:
            self.moetop.chosen = (host.name, None)
            self.moetop.chosen_server = (host.name, server.name) if server is not None else None

    def do_log(self) -> None:
        self._aim()
        self.moetop.do_log()

    def do_server(self) -> None:
        self._aim()
        self.moetop.do_server()

    def do_copy(self) -> None:
        noted = self.chosen()
        if noted is None:
            return
        commands = pages.commands_of(noted.finding)
        text = "\n".join(commands) or "\n".join((noted.finding.summary, *noted.finding.evidence, *noted.finding.remedy))
        what = f"{len(commands)} command(s) of the remedy" if commands else "the finding"
        self.moetop.copy_text(clean(text.replace("\n", " ; "), 20000) if not commands else text, what, "finding.txt")
