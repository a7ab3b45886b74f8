"""The plan of a retune before anything happens: every step, its time-out, what undoes it, the confirmation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.widget import Widget

from moetop.ui import fmt, keys, pages
from moetop.ui.feed import RetunePlan
from moetop.ui.paint import clean
from moetop.ui.screens.base import MoeScreen
from moetop.ui.widgets.prompt import PromptLine
from moetop.ui.widgets.text import TextPage


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
        if step.detail:
            page += pages.labelled("", step.detail, width)
        if step.undo:
            page += pages.labelled("     undo", step.undo, width, "quiet")
    page.append(pages.blank())
    for note in plan.notes:
        page += pages.labelled("note", note, width, "notice")
    if plan.confirm is not None:
        page.append([(f"type {plan.confirm} and press enter to start; esc leaves everything as it is", "warning!")])
    else:
        page.append([("type yes and press enter to start; esc leaves everything as it is", "warning!")])
    return page


class PlanScreen(MoeScreen):
    """Pushed with a plan; starts it when its word is typed."""

    where: ClassVar[str] = keys.PLAN

    def __init__(self, plan: RetunePlan) -> None:
        super().__init__()
        self.plan = plan

    def body(self) -> Iterable[Widget]:
        yield TextPage(id="page")
        yield PromptLine("start?", "")

    def on_mount(self) -> None:
        if self.plan.refusal is None:
            self.query_one(PromptLine).open()
        else:
            self.query_one(TextPage).focus()

    def crumbs(self) -> tuple[str, ...]:
        return (self.plan.host, "retune")

    def show_scene(self) -> None:
        self.query_one(TextPage).set_lines(plan_page(self.plan, max(30, self.app.size.width - 3)))

    def on_prompt_line_left(self) -> None:
        self.do_back()

    def on_prompt_line_done(self, message: PromptLine.Done) -> None:
        wanted = self.plan.confirm or "yes"
        if message.text.strip() != wanted:
            self.query_one(PromptLine).hint(f"that is not {wanted}: nothing was started")
            return
        app, plan = self.moetop, self.plan
        self.dismiss(None)
        app.perform(lambda: f"job {app.actions.start_retune(plan)} runs on {plan.host}", "retune started")
        app.open_screen(keys.JOBS)
