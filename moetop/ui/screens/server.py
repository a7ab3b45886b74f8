"""A server: verdict, numbers, files, runs, versions, arguments."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.containers import Horizontal
from textual.widget import Widget

from moetop.ui import fmt, keys, pages
from moetop.ui.charts import Line, Series, dots, time_chart
from moetop.ui.paint import clean
from moetop.ui.scene import no_server_words
from moetop.ui.screens.base import MoeScreen
from moetop.ui.series import marks_of, nice_top, window_of
from moetop.ui.serverpage import server_page
from moetop.ui.widgets.plots import Plot
from moetop.ui.widgets.text import TextPage


class ServerScreen(MoeScreen):
    """The chosen host's servers; tab goes to the next."""

    where: ClassVar[str] = keys.SERVER

    def body(self) -> Iterable[Widget]:
        with Horizontal(id="charts"):
            yield Plot(self._draw_tokens, id="tokens")
            yield Plot(self._draw_requests, id="requests")
        yield TextPage(id="page")

    def on_mount(self) -> None:
        self.query_one(TextPage).focus()

    def on_screen_suspend(self) -> None:
        if self not in self.app.screen_stack:  # left, not covered: opened anew it starts at its top
            self.query_one(TextPage).top = 0

    def crumbs(self) -> tuple[str, ...]:
        host, server = self.host(), self.server()
        if host is None:
            return ()
        if server is None:
            return (host.name, "no server")
        count = len(host.report.servers)
        at = [one.name for one in host.report.servers].index(server.name) + 1
        return (host.name, f"{server.name} ({at} of {count}, tab: next)" if count > 1 else server.name)

    def show_scene(self) -> None:
        width, height = self.app.size.width, self.app.size.height
        server, host = self.server(), self.host()
        history = self.moetop.feed.server_history(host.name, server.name) if host and server else None
        charts = self.query_one("#charts")
        charts.display = height >= 26 and history is not None and len(history) > 1
        charts.styles.height = max(7, min(12, height // 4))
        self.query_one("#requests").display = width >= 100
        for plot in self.query(Plot):
            if plot.display and charts.display:
                plot.redraw()
        subject = (host.name if host else None, server.name if server else None)
        self.query_one(TextPage).set_lines(self._page(max(30, width - 3)), subject=subject)

    def _page(self, width: int) -> pages.Page:
        host, server = self.host(), self.server()
        if host is None:
            return [[("no host is selected; esc goes back", "notice")]]
        if host.lost:
            lost = pages.connection_lines(host, self.scene.t, width)
            return lost if server is None else [*lost, pages.blank(), *server_page(server, width)]
        if server is None:
            page: pages.Page = [[(no_server_words(host), "notice")]]
            if "no_server" in host.statuses:
                page += pages.labelled("", host.statuses["no_server"].message, width)
            page += pages.labelled(
                "looked for", "SGLang, vLLM and TensorRT-LLM parents in /proc, and GPU processes", width
            )
            page += pages.labelled(
                "what helps", "name the log with --log-path or in the configuration (servers:)", width
            )
            return page
        return server_page(server, width)

    def _draw(self, width: int, height: int, title: str, names: tuple[tuple[str, str, str], ...]) -> list[Line]:
        host, server, app = self.host(), self.server(), self.moetop
        if host is None or server is None:
            return []
        history = app.feed.server_history(host.name, server.name)
        window = window_of(host, app.range_s, app.host_cursor(host))
        if history is None or window is None:
            return []
        columns = [
            (label, role, history.resample(name, window.start, window.end, dots(width))) for label, role, name in names
        ]
        known = [value for _label, _role, values in columns for value in values if value is not None]
        top = nice_top(max(known)) if known else 1.0
        series = [Series(label, role, values, top) for label, role, values in columns]
        marks = marks_of(app.feed.recent_events(host.name), window)
        head: Line = [(f"     {title}", "text"), (f"   last {fmt.short_span(app.range_s)}", "quiet")]
        return [head, *time_chart(width, height - 1, series, window.axis(marks), top)]

    def _draw_tokens(self, width: int, height: int) -> list[Line]:
        return self._draw(width, height, "tokens a second", (("tok/s", "series_tokens", "generation_tokens_s"),))

    def _draw_requests(self, width: int, height: int) -> list[Line]:
        names = (("waiting", "series_power", "waiting"), ("running", "series_util", "running"))
        return self._draw(width, height, "requests", names)

    def applies(self, name: str) -> bool:
        host = self.host()
        if name == "next_server":
            return host is not None and len(host.report.servers) > 1
        return super().applies(name)

    def do_next_server(self) -> None:
        host, server = self.host(), self.server()
        if host is not None and server is not None:
            names = [one.name for one in host.report.servers]
            self.moetop.chosen_server = (host.name, names[(names.index(server.name) + 1) % len(names)])
            self.show()

    def do_copy(self) -> None:
        page = self.query_one(TextPage)
        text = "\n".join("".join(clean(piece, 4000) for piece, _role in line) for line in page.lines)
        self.moetop.copy_text(text, "this page", "server.txt")
