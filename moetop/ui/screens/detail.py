"""Detail of a GPU or host: why first, then charts, state, values, processes, connection."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual.containers import Horizontal
from textual.widget import Widget

from moetop.history import GpuHistory, ServerHistory
from moetop.model import Finding, GpuReport
from moetop.ui import fmt, keys, pages
from moetop.ui.attention import retune_may_help
from moetop.ui.charts import Line, TimeAxis, time_chart
from moetop.ui.paint import clean
from moetop.ui.scene import HostView
from moetop.ui.screens.base import MoeScreen
from moetop.ui.series import Window, histories_of, marks_of, percent_series, value_series, window_of
from moetop.ui.widgets.plots import Plot
from moetop.ui.widgets.text import TextPage

WIDE_COLUMNS = 110
WIDER_COLUMNS = 170
"""From so many columns on there are two and three charts beside each other."""


class DetailScreen(MoeScreen):
    """Everything about the chosen GPU or host."""

    where: ClassVar[str] = keys.DETAIL

    def body(self) -> Iterable[Widget]:
        with Horizontal(id="charts"):
            yield Plot(self._draw_percent, id="percent")
            yield Plot(self._draw_watts, id="watts")
            yield Plot(self._draw_tokens, id="tokens")
            yield Plot(self._draw_clocks, id="clocks")
        yield TextPage(id="page")

    def on_mount(self) -> None:
        self.query_one(TextPage).focus()

    def on_screen_suspend(self) -> None:
        if self not in self.app.screen_stack:  # left, not covered: opened anew it starts at its top
            self.query_one(TextPage).top = 0

    def gpu(self) -> GpuReport | None:
        """The chosen GPU; None: the whole host."""
        host, chosen = self.host(), self.moetop.chosen
        if host is None or chosen is None or chosen[1] is None:
            return None
        return next((gpu for gpu in host.report.gpus if gpu.index == chosen[1]), None)

    def crumbs(self) -> tuple[str, ...]:
        chosen = self.moetop.chosen
        if chosen is None:
            return ()
        return (chosen[0],) if chosen[1] is None else (chosen[0], f"gpu {chosen[1]}")

    def findings(self) -> list[Finding]:
        """Findings of the host, those about the chosen GPU first."""
        host, gpu = self.host(), self.gpu()
        if host is None:
            return []

        def order(finding: Finding) -> tuple[int, int]:
            about = 0 if gpu is None or not finding.gpus or gpu.index in finding.gpus else 1
            return (about, pages.severity_order(finding))

        return sorted(host.report.findings, key=order)

    def show_scene(self) -> None:
        width, height = self.app.size.width, self.app.size.height
        charts = self.query_one("#charts")
        charts.display = height >= 20 and self._window() is not None
        charts.styles.height = max(7, min(16, height // 3))
        tokens = bool(self._token_histories())
        self.query_one("#watts").display = width >= WIDE_COLUMNS
        self.query_one("#tokens").display = width >= WIDER_COLUMNS and tokens
        self.query_one("#clocks").display = width >= WIDER_COLUMNS and not tokens
        for plot in self.query(Plot):
            if plot.display and charts.display:
                plot.redraw()
        self.query_one(TextPage).set_lines(self._page(max(30, width - 3)), subject=self.moetop.chosen)

    def _page(self, width: int) -> pages.Page:
        host = self.host()
        if host is None:
            return [[("this host is no longer watched; esc goes back", "notice")]]
        page: pages.Page = []
        for finding in self.findings():
            page += [*pages.finding_page(host.name, finding, width, self._retune_word(host, finding)), pages.blank()]
        gpu = self.gpu()
        if gpu is not None:
            page += [*pages.gpu_page(gpu, width), pages.blank()]
        elif self.moetop.chosen is not None and self.moetop.chosen[1] is not None:
            page += [[("this GPU is not in the last reading", "warning")], pages.blank()]
        else:
            page += [*pages.host_page(host, self.scene.t, width), pages.blank()]
        return page + pages.link_page(host, self.scene.t, width)

    def _retune_word(self, host: HostView, finding: Finding) -> str | None:
        if not retune_may_help(host, finding):
            return None
        why = self.retune_why(host, finding.server)
        return pages.RETUNE_WORD if why is None else f"r: retune cannot be started here: {why}"

    # ── charts ───────────────────────────────────────────────────────────────────────────────────

    def _window(self) -> tuple[Window, Sequence[GpuHistory]] | None:
        host, app = self.host(), self.moetop
        if host is None:
            return None
        gpu = app.chosen[1] if app.chosen is not None else None
        window = window_of(host, app.range_s, app.host_cursor(host))
        histories = histories_of(app.feed, host, gpu)
        return (window, histories) if window is not None and histories else None

    def _titled(self, title: str, lines: list[Line]) -> list[Line]:
        length = fmt.short_span(self.moetop.range_s)
        return [[(f"     {title}", "text"), (f"   last {length}", "quiet")], *lines]

    def _draw_percent(self, width: int, height: int) -> list[Line]:
        found, host = self._window(), self.host()
        if found is None or host is None:
            return [[("", "quiet")], [("     no samples yet", "quiet")]]
        window, histories = found
        series = percent_series(histories, window, width)
        return self._titled("percent", time_chart(width, height - 1, series, self._axis(window)))

    def _axis(self, window: Window) -> TimeAxis:
        """The time axis with the log's events on it, the same under every chart."""
        host = self.host()
        events = self.moetop.feed.recent_events(host.name) if host is not None else []
        return window.axis(marks_of(events, window))

    def _draw_watts(self, width: int, height: int) -> list[Line]:
        found = self._window()
        if found is None:
            return []
        window, histories = found
        series, top = value_series(
            histories,
            window,
            width,
            (("limit", "series_limit", "power_limit_w", True), ("power", "series_power", "power_w", False)),
        )
        return self._titled("power, W", time_chart(width, height - 1, series, self._axis(window), top))

    def _token_histories(self) -> list[ServerHistory]:
        """Histories of the host's servers that give numbers."""
        host, feed = self.host(), self.moetop.feed
        found = [feed.server_history(host.name, server.name) for server in host.report.servers] if host else []
        return [history for history in found if history is not None and len(history) > 1]

    def _draw_tokens(self, width: int, height: int) -> list[Line]:
        found = self._window()
        if found is None:
            return []
        specs = (("tok/s", "series_tokens", "generation_tokens_s", False),)
        series, top = value_series(self._token_histories(), found[0], width, specs)
        return self._titled("tokens a second", time_chart(width, height - 1, series, self._axis(found[0]), top))

    def _draw_clocks(self, width: int, height: int) -> list[Line]:
        found = self._window()
        if found is None:
            return []
        window, histories = found
        series, top = value_series(histories, window, width, (("clock", "series_dram", "sm_clock_mhz", False),))
        return self._titled("SM clock, MHz", time_chart(width, height - 1, series, self._axis(window), top))

    # ── deeds ────────────────────────────────────────────────────────────────────────────────────

    def do_why(self) -> None:
        self.query_one(TextPage).top = 0
        self.moetop.do_why()

    def do_copy(self) -> None:
        commands = [command for finding in self.findings() for command in pages.commands_of(finding)]
        if commands:
            self.moetop.copy_text("\n".join(commands), f"{len(commands)} command(s) of the remedy", "commands.txt")
            return
        page = self.query_one(TextPage)
        text = "\n".join("".join(clean(piece, 4000) for piece, _role in line) for line in page.lines)
        self.moetop.copy_text(text, "this page", "detail.txt")
