"""Retune jobs: steps with a running clock, the log under them, and what to do next."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from textwrap import wrap
from typing import ClassVar

from rich.cells import cell_len
from textual.widget import Widget

from moetop.ui import fmt, keys, pages
from moetop.ui.feed import AT_WORK, JobStep, JobView
from moetop.ui.paint import clean, columns, fit
from moetop.ui.screens.base import MoeScreen
from moetop.ui.screens.question import QuestionScreen
from moetop.ui.widgets.bars import Rule
from moetop.ui.widgets.text import TextPage

JOB_SIGNS: dict[str, tuple[str, str, str]] = {
    "planned": ("○", "planned", "notice"),
    "running": ("◔", "running", "notice"),
    "attached": ("◔", "running, attached", "notice"),
    "unclear": ("?", "not known", "warning"),
    "interrupted": ("▲", "interrupted", "warning"),
    "retuned": ("●", "retuned", "good"),
    "rolled_back": ("▲", "rolled back", "warning"),
    "down": ("✕", "SERVER DOWN", "critical"),
    "refused": ("·", "refused", "quiet"),
    "cancelled": ("○", "cancelled", "quiet"),
}
STEP_SIGNS: dict[str, tuple[str, str, str]] = {
    "waiting": ("·", "waiting", "quiet"),
    "running": ("◔", "running", "notice"),
    "done": ("●", "done", "good"),
    "failed": ("✕", "failed", "critical"),
    "undone": ("○", "undone", "warning"),
    "skipped": ("·", "skipped", "quiet"),
}


NAME_CELLS = 24
"""A longer host or server name is cut in the list; the job itself names it whole."""

TITLE_CELLS = 60
"""Most room for a step's title; all steps of a job get the same, so that the times stand in a column."""

SIGN_CELLS = 13
"""A step's glyph and word, with the blanks around them."""


def step_clock(step: JobStep, now: float) -> str:
    """How long a step has run or took, and how long it may."""
    clock = ""
    if step.started is not None:
        clock = fmt.span((step.ended if step.ended is not None else now) - step.started)
    if step.timeout_s is not None and step.state in ("running", "waiting"):
        return f"{clock} of {fmt.span(step.timeout_s)}" if clock else f"at most {fmt.span(step.timeout_s)}"
    return clock


def step_lines(steps: Sequence[JobStep], now: float, width: int) -> pages.Page:
    """Steps with sign, title and clock in columns; a detail that does not fit beside them stands below its step."""
    titles = [clean(step.title, 200) for step in steps]
    clocks = [step_clock(step, now) for step in steps]
    clock_room = max(map(cell_len, clocks), default=0)
    longest = max(map(cell_len, titles), default=0)
    room = max(10, min(TITLE_CELLS, longest, width - SIGN_CELLS - clock_room - 2))
    left = width - SIGN_CELLS - room - clock_room - 4
    page: pages.Page = []
    for step, title, clock in zip(steps, titles, clocks, strict=True):
        glyph, word, role = STEP_SIGNS.get(step.state, ("·", step.state, "text"))
        parts, detail = wrap(title, room) or [""], clean(step.detail, 300)
        beside = len(parts) == 1 and cell_len(detail) <= left
        shown = "text!" if step.state == "running" else "text"
        page.append(
            [
                (f"  {glyph} {word:<8} ", role),
                (f"{fit(parts[0], room)}  ", shown),
                (f"{fit(clock, clock_room)}  ", "quiet"),
                (detail if beside else "", "quiet"),
            ]
        )
        page += [[(" " * SIGN_CELLS + part, shown)] for part in parts[1:]]
        if not beside:
            page += [[(" " * SIGN_CELLS + part, "quiet")] for part in wrap(detail, width - SIGN_CELLS)]
    return page


_COLUMNS = re.compile(r" {2,}")


def report_lines(lines: Sequence[str], width: int) -> pages.Page:
    """What was measured before and after. Where its columns are wider than the page, each row is a sentence."""
    texts = [clean(line, 400) for line in lines]
    if all(cell_len(text) <= width for text in texts):
        return [[(text, "text")] for text in texts]
    rows = [_COLUMNS.split(text.strip(), maxsplit=3) if text.startswith("  ") else [text] for text in texts]
    names = max((cell_len(row[0]) for row in rows if len(row) > 2), default=0)
    page: pages.Page = []
    for row in rows:
        if len(row) < 3:
            page += [[(part, "text")] for part in wrap(row[0], width)]
            continue
        change = f"   {row[3]}" if len(row) > 3 else ""
        for at, part in enumerate(wrap(f"{row[1]} → {row[2]}{change}", max(20, width - names - 4))):
            page.append([(f"  {fit('' if at else row[0], names)}  ", "quiet"), (part, "text")])
    return page


def job_sign(job: JobView) -> tuple[str, str, str]:
    """Glyph, word and role of a job's state."""
    glyph, word, role = JOB_SIGNS.get(job.state, ("·", job.state, "text"))
    if not job.question:
        return glyph, word, role
    return "?" if job.state in AT_WORK else glyph, f"{word}, asks", "warning"


def job_page(job: JobView, now: float, width: int) -> pages.Page:
    """A whole job."""
    glyph, word, role = job_sign(job)
    took = (
        f"   {fmt.span((job.ended if job.ended is not None else now) - job.started)}" if job.started is not None else ""
    )
    page: pages.Page = [
        [
            (f"{glyph} {word}", f"{role}!"),
            (f"   {clean(job.server, 60)} @ {clean(job.host, 60)}", "text!"),
            (took, "quiet"),
        ]
    ]
    if job.next_thing:
        page += pages.labelled("Next", job.next_thing, width, "accent")
    if job.question:
        options = "; ".join(f"{option}: {meaning}" if meaning else option for option, meaning in job.options)
        page += pages.labelled("a answers", f"{job.question} ({options})", width, "warning")
    page += step_lines(job.steps, now, width)
    if job.state in AT_WORK and job.cancel_note:
        page += pages.labelled("X cancels", job.cancel_note, width, "accent")
    if job.report:
        page += [pages.blank(), pages.head("Before and after"), *report_lines(job.report, width)]
    if job.log:
        page += [
            pages.blank(),
            pages.head("Log of the job"),
            *([(clean(line, 1000), "quiet")] for line in job.log[-200:]),
        ]
    return page


class JobsScreen(MoeScreen):
    """A list of jobs and the selected one."""

    where: ClassVar[str] = keys.JOBS

    def body(self) -> Iterable[Widget]:
        yield TextPage(id="list", selectable=True)
        yield Rule()
        yield TextPage(id="job")

    def on_mount(self) -> None:
        self.query_one("#list").focus()

    def crumbs(self) -> tuple[str, ...]:
        return ("jobs",)

    def chosen_job(self) -> JobView | None:
        """The selected job."""
        mark = self.query_one("#list", TextPage).chosen
        return next((job for job in self.moetop.actions.jobs() if job.id == mark), None)

    def show_scene(self) -> None:
        jobs = self.moetop.actions.jobs()
        page = self.query_one("#list", TextPage)
        page.styles.height = max(2, min(len(jobs) or 2, self.app.size.height // 4))
        if jobs:
            rows = columns([self._cells(job) for job in jobs])
            page.set_lines([self._line(*row) for row in zip(jobs, rows, strict=True)], [job.id for job in jobs])
        else:
            asking = self.moetop.actions.asking_jobs()
            words = "asking the hosts for their jobs" if asking else "no retune job is known; r on a host plans one"
            page.set_lines([[(words, "notice" if asking else "quiet")]])
        self.query_one(Rule).redraw()
        self._show_job()

    def _cells(self, job: JobView) -> tuple[str, str, str]:
        """State, host and server of a job, as wide as they are."""
        return job_sign(job)[1], clean(job.host, NAME_CELLS), clean(job.server, NAME_CELLS)

    def _line(self, job: JobView, cells: Sequence[str]) -> list[tuple[str, str]]:
        """A job, its cells as wide as their columns."""
        glyph, _word, role = job_sign(job)
        word, host, server = cells
        done = sum(step.state in ("done", "skipped") for step in job.steps)
        at = next((n for n, step in enumerate(job.steps, 1) if step.state == "running"), done)
        return [
            (f"{glyph} {word}  ", role),
            (f"{host}  {server}  ", "text"),
            (f"step {at}/{len(job.steps)}   {fmt.clock_time(job.started)}", "quiet"),
        ]

    def _show_job(self) -> None:
        job = self.chosen_job()
        width = max(30, self.app.size.width - 3)
        page = job_page(job, self.moetop.clock(), width) if job is not None else []
        self.query_one("#job", TextPage).set_lines(page, subject=job.id if job is not None else None)

    def on_text_page_moved(self) -> None:
        self._show_job()

    def refusal(self, name: str) -> str | None:
        if name == "cancel_job":
            job = self.chosen_job()
            if job is None or job.state not in AT_WORK:
                return "no job is running"
            if job.readonly:
                return "this job was started elsewhere; it is shown read-only"
        if name == "answer_job":
            job = self.chosen_job()
            if job is None or not job.question:
                return "no job asks anything"
            if job.readonly:
                return "this job was started elsewhere; it is shown read-only"
        return super().refusal(name)

    def applies(self, name: str) -> bool:
        if name == "answer_job":
            job = self.chosen_job()
            return job is not None and bool(job.question)
        if name == "cancel_job":
            job = self.chosen_job()
            return job is not None and job.state in AT_WORK
        return super().applies(name)

    def do_answer_job(self) -> None:
        job = self.chosen_job()
        if job is None:
            return
        app, names = self.moetop, [option for option, _ in job.options]

        def answered(option: str | None) -> None:
            if option is not None:
                app.perform(lambda: self._answer(job, option), "answered", here=True)

        hint = "; ".join(f"{option}: {meaning}" if meaning else option for option, meaning in job.options)
        app.push_screen(QuestionScreen(job.question, options=names, hint=hint), answered)

    def _answer(self, job: JobView, option: str) -> str:
        self.moetop.actions.answer_job(job.id, option)
        return f"{option}: the job on {job.host} was told"

    def do_cancel_job(self) -> None:
        job = self.chosen_job()
        if job is not None:
            self.moetop.perform(lambda: self._cancel(job), "cancelling", here=True)

    def _cancel(self, job: JobView) -> str:
        self.moetop.actions.cancel_job(job.id)
        return job.cancel_note or "the job was asked to stop"

    def do_copy(self) -> None:
        page = self.query_one("#job", TextPage)
        text = "\n".join("".join(piece for piece, _role in line) for line in page.lines)
        self.moetop.copy_text(text, "the job", "job.txt")
