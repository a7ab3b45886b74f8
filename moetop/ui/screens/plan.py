"""The plan of a retune before anything happens: every step, its time-out, what undoes it, the confirmation."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widget import Widget

from moetop.ui import fmt, keys, pages
from moetop.ui.feed import RetunePlan
from moetop.ui.paint import clean
from moetop.ui.screens.base import MoeScreen
from moetop.ui.widgets.prompt import PromptLine
from moetop.ui.widgets.text import TextPage

LABEL_CELLS = 30
"""A longer word stands only in the line above the prompt."""


def plan_page(plan: RetunePlan, width: int) -> pages.Page:
    """Everything that would be done, and how it is taken back."""
    page: pages.Page = [
        [("Retune and restart ", "text!"), (f"{clean(plan.server, 60)} @ {clean(plan.host, 60)}", "accent!")],
        [("nothing has been touched yet", "quiet")],
        pages.blank(),
    ]
    if plan.refusal is not None:
        return page + pages.labelled("refused", plan.refusal, width, "warning")
    for number, step in enumerate(plan.steps, 1):
        limit = f"   at most {fmt.span(step.timeout_s)}" if step.timeout_s is not None else ""
        page.append([(f"{number:>3}  ", "quiet"), (clean(step.title, 200), "text!"), (limit, "quiet")])
        for line in filter(None, step.detail.split("\n")):
            page += pages.labelled("", line, width)
        if step.undo:
            page += pages.labelled("     undo", step.undo, width, "quiet")
    page.append(pages.blank())
    for note in plan.notes:
        page += pages.labelled("note", note, width, "notice")
    return page


class PlanScreen(MoeScreen):
    """Pushed with a plan; starts it when its word is typed. The page scrolls while the prompt has the focus."""

    where: ClassVar[str] = keys.PLAN
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "scroll(-1)", show=False, priority=True),
        Binding("down", "scroll(1)", show=False, priority=True),
        Binding("pageup", "scroll_page(-1)", show=False, priority=True),
        Binding("pagedown", "scroll_page(1)", show=False, priority=True),
        Binding("home", "scroll(-100000)", show=False, priority=True),
        Binding("end", "scroll(100000)", show=False, priority=True),
    ]

    def __init__(self, plan: RetunePlan) -> None:
        super().__init__()
        self.plan = plan

    def body(self) -> Iterable[Widget]:
        yield TextPage(id="page")
        yield TextPage(id="how")
        yield PromptLine("start?", "")

    def on_mount(self) -> None:
        if self.plan.refusal is None:
            self.query_one(PromptLine).open(label=f"type {self.wanted}:" if len(self.wanted) <= LABEL_CELLS else None)
        else:
            self.query_one("#page", TextPage).focus()

    @property
    def wanted(self) -> str:
        """The word that starts it."""
        return self.plan.confirm or "yes"

    def crumbs(self) -> tuple[str, ...]:
        return (self.plan.host, "retune")

    def show_scene(self) -> None:
        width = max(30, self.app.size.width - 3)
        self.query_one("#page", TextPage).set_lines(plan_page(self.plan, width))
        how = self.query_one("#how", TextPage)
        words = f"type {clean(self.wanted, 300)} and press enter to start; esc leaves everything as it is"
        lines = textwrap.wrap(words, width) if self.plan.refusal is None else []
        how.styles.height, how.display = max(1, len(lines)), bool(lines)
        how.set_lines([[(line, "warning!")] for line in lines])

    def action_scroll(self, step: int) -> None:
        self.query_one("#page", TextPage).action_move(step)

    def action_scroll_page(self, step: int) -> None:
        self.query_one("#page", TextPage).action_page(step)

    def on_prompt_line_left(self) -> None:
        self.do_back()

    def on_prompt_line_done(self, message: PromptLine.Done) -> None:
        if message.text.strip() != self.wanted:
            self.query_one(PromptLine).hint(f"that is not {clean(self.wanted, 40)}: nothing was started")
            return
        app, plan = self.moetop, self.plan
        self.dismiss(None)
        app.perform(lambda: f"job {app.actions.start_retune(plan)} runs on {plan.host}", "retune started", here=True)
        app.open_screen(keys.JOBS)
