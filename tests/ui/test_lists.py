"""Findings, jobs, plan, map, help and palette: what they show and what their keys do."""

from __future__ import annotations

import threading
from dataclasses import replace

import msgspec
import pytest

from moetop.model import Severity
from moetop.ui import keys
from moetop.ui.feed import JobStep, JobView, RetunePlan
from tests.ui import scenes
from tests.ui.driving import opened, where


async def test_findings_list_keeps_what_cleared_with_its_times() -> None:
    feed, now = scenes.sixteen(), [scenes.NOW]
    async with opened(feed, clock=lambda: now[0]) as screen:
        now[0] += 60
        report = feed.reports["node-00"]
        feed.put(msgspec.structs.replace(report, findings=(scenes.UNTUNED,)))
        await screen.refetch()
        await screen.press("f")
        assert "kernels not tuned" in screen.text() and "08:10:33  0 s ago" in screen.line_with("▌")
        feed.put(report)
        await screen.refetch()
        assert "✓" in screen.line_with("cleared 08:10:33")
        await screen.press("enter")
        assert where(screen.app.screen) == keys.DETAIL


async def test_no_findings_is_said() -> None:
    async with opened(scenes.sixteen()) as screen:
        await screen.press("f")
        assert "no finding stands" in screen.text() and "▌" not in screen.text()


def two_hosts(*found: tuple[str, Severity]) -> scenes.StillFeed:
    """Two hosts with servers; `found` are the findings of each."""
    feed = scenes.big_fleet(2, 2)
    server = scenes.glm5_host().servers[0]
    for name, report in tuple(feed.reports.items()):
        mine = [msgspec.structs.replace(scenes.UNTUNED, severity=severity) for host, severity in found if host == name]
        feed.put(msgspec.structs.replace(report, findings=tuple(mine), servers=(server,)))
    return feed


async def test_keys_on_the_findings_mean_the_selected_finding_and_not_the_fleets_cursor() -> None:
    feed = two_hosts(("node-00", Severity.CRITICAL), ("node-01", Severity.WARNING))
    async with opened(feed) as screen:
        assert screen.app.chosen is not None and screen.app.chosen[0] == "node-00"
        await screen.press("f", "down")
        assert "node-01" in screen.line_with("▌")
        await screen.press("r")
        assert screen.deeds.done[-1] == ("plan", "node-01")
        await screen.press("escape", "v")
        assert "› node-01 ›" in screen.lines()[0]
        screen.app.chosen = ("node-00", None)
        await screen.press("f", "l")
        assert "› node-01 ›" in screen.lines()[0]


async def test_a_finding_of_a_server_that_is_gone_leads_to_no_other_server() -> None:
    feed = two_hosts(("node-00", Severity.WARNING))
    report = feed.reports["node-00"]
    (finding,), (server,) = report.findings, report.servers
    about = msgspec.structs.replace(finding, server="sglang:8000")
    other = msgspec.structs.replace(server, name="sglang:9000")
    feed.put(msgspec.structs.replace(report, findings=(about,), servers=(other,)))
    async with opened(feed) as screen:
        await screen.press("f", "r", "v", "l")
        assert where(screen.app.screen) == keys.FINDINGS and not screen.deeds.done
        assert "sglang:8000, which the finding is about, is no longer there" in " ".join(screen.toasts())


async def test_a_plan_that_comes_late_takes_over_nothing_that_is_typed_meanwhile() -> None:
    gate = threading.Event()

    class Slow(scenes.Deeds):
        def plan_retune(self, host: str, server: str | None) -> RetunePlan:
            gate.wait(10)
            return super().plan_retune(host, server)

    async with opened(two_hosts(), actions=Slow()) as screen:
        await screen.pilot.press("r", "r", "slash", *"node-0")
        gate.set()
        await screen.settle()
        assert where(screen.app.screen) == keys.FLEET and screen.deeds.done == [("plan", "node-00")]
        assert "the plan for node-00 is made: r on its host shows it" in " ".join(screen.toasts())
        await screen.press("1", "enter", "r")
        assert where(screen.app.screen) == keys.PLAN


async def test_a_plan_that_fails_in_the_system_is_told_and_another_can_be_made() -> None:
    class Failing(scenes.Deeds):
        failing = True

        def plan_retune(self, host: str, server: str | None) -> RetunePlan:
            if self.failing:
                raise OSError("no route to host")
            return super().plan_retune(host, server)

    deeds = Failing()
    async with opened(two_hosts(), actions=deeds) as screen:
        await screen.press("r")
        assert "no plan: no route to host" in " ".join(screen.toasts())
        deeds.failing = False
        await screen.press("r")
        assert where(screen.app.screen) == keys.PLAN


async def test_when_the_selected_job_is_gone_no_other_is_cancelled_in_its_place() -> None:
    deeds = scenes.Deeds()
    deeds.job_list = [running_job(), replace(running_job(), id="job-2")]
    async with opened(scenes.sixteen(), actions=deeds) as screen:
        await screen.press("j")
        del deeds.job_list[0]
        await screen.refetch()
        await screen.press("X")
        assert not deeds.done and "▌" not in screen.lines()[1]
        await screen.press("down", "X")
        assert deeds.done == [("cancel", "job-2")]


@pytest.mark.parametrize(("state", "severity", "told"), [
    ("running", Severity.WARNING, False), ("running", Severity.CRITICAL, True), ("retuned", Severity.WARNING, True),
])  # fmt: skip
async def test_what_a_job_at_work_brings_about_is_listed_without_a_noise(
    state: str, severity: Severity, told: bool
) -> None:
    feed, deeds, now = two_hosts(), scenes.Deeds(), [scenes.NOW]
    deeds.job_list = [replace(running_job(), host="node-00", state=state)]
    async with opened(feed, actions=deeds, clock=lambda: now[0]) as screen:
        now[0] += 60
        feed.put(two_hosts(("node-00", severity)).reports["node-00"])
        await screen.refetch()
        assert any("node-00: kernels not tuned" in text for text in screen.toasts()) is told
        await screen.press("f")
        assert "kernels not tuned" in screen.line_with("▌")


async def test_the_selected_finding_stays_selected_when_a_graver_one_appears_above_it() -> None:
    feed = two_hosts(("node-01", Severity.WARNING))
    async with opened(feed) as screen:
        await screen.press("f")
        assert "node-01" in screen.line_with("▌")
        feed.put(two_hosts(("node-00", Severity.CRITICAL)).reports["node-00"])
        await screen.refetch()
        assert "node-00" in screen.lines()[1] and "node-01" in screen.line_with("▌")


async def test_the_selected_job_stays_selected_when_another_is_listed_above_it() -> None:
    deeds = scenes.Deeds()
    deeds.job_list = [running_job()]
    async with opened(scenes.sixteen(), actions=deeds) as screen:
        await screen.press("j")
        deeds.job_list = [replace(running_job(), id="job-2", host="node-00"), *deeds.job_list]
        await screen.refetch()
        assert "glm5-sm120" in screen.line_with("▌") and "node-00" in screen.lines()[1]
        await screen.press("X")
        assert ("cancel", "job-1") in deeds.done and ("cancel", "job-2") not in deeds.done


def running_job() -> JobView:
    return JobView(
        id="job-1",
        host="glm5-sm120",
        server="sglang",
        state="running",
        started=scenes.NOW - 75,
        steps=(
            JobStep("stop the server", "done", started=scenes.NOW - 75, ended=scenes.NOW - 60),
            JobStep("start and tune", "running", "step 3 of 17", timeout_s=3600, started=scenes.NOW - 60),
            JobStep("wait until ready"),
        ),
        log=("Running FlashInfer autotune",),
        cancel_note="stops here, caches back, old command started",
    )


async def test_jobs_show_steps_with_a_clock_and_what_cancel_puts_back() -> None:
    deeds = scenes.Deeds()
    deeds.job_list = [running_job()]
    async with opened(scenes.fleet_without_lost(), actions=deeds) as screen:
        await screen.press("j")
        assert "● done" in screen.line_with("stop the server")
        assert "1 m 00 s of 1 h 00 m" in screen.line_with("start and tune")
        assert "caches back, old command started" in screen.text()
        assert "Running FlashInfer autotune" in screen.text()
        await screen.press("X")
        assert ("cancel", "job-1") in deeds.done


async def test_times_of_a_jobs_steps_stand_in_a_column_however_long_their_names() -> None:
    deeds = scenes.Deeds()
    steps = (
        JobStep("a step whose name is much longer than the others are", "done", started=0, ended=15),
        JobStep("short", "done", started=0, ended=75),
    )
    deeds.job_list = [replace(running_job(), steps=steps)]
    async with opened(scenes.fleet_without_lost(), actions=deeds) as screen:
        await screen.press("j")
        assert screen.line_with("much longer").index("15 s") == screen.line_with("short").index("1 m 15 s")


async def test_jobs_that_are_being_asked_for_are_not_called_none() -> None:
    class Asking(scenes.Deeds):
        asking = True

        def asking_jobs(self) -> bool:
            return self.asking

    deeds = Asking()
    async with opened(scenes.fleet_without_lost(), actions=deeds) as screen:
        await screen.press("j")
        assert "asking the hosts for their jobs" in screen.text() and "no retune job" not in screen.text()
        assert "X cancel" not in screen.lines()[-1], "nothing to cancel"
        deeds.asking = False
        await screen.refetch()
        assert "no retune job is known" in screen.text()
        deeds.job_list = [running_job()]
        await screen.refetch()
        assert "X cancel" in screen.lines()[-1]


async def test_end_states_of_jobs_are_words() -> None:
    deeds = scenes.Deeds()
    deeds.job_list = [
        replace(running_job(), state="down", next_thing="start it by hand: ./run.sh"),
        replace(running_job(), state="rolled_back"),
    ]
    async with opened(scenes.fleet_without_lost(), actions=deeds) as screen:
        await screen.press("j")
        assert "SERVER DOWN" in screen.text() and "rolled back" in screen.text()
        assert "start it by hand: ./run.sh" in screen.text()
        await screen.press("X")
        assert ("cancel", "job-1") not in deeds.done


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_what_starts_a_plan_stands_above_its_prompt_and_the_page_scrolls(size: tuple[int, int]) -> None:
    class Long(scenes.Deeds):
        def plan_retune(self, host: str, server: str | None) -> RetunePlan:
            plan = super().plan_retune(host, server)
            detail = "move /a/cache aside\nmove /b/cache aside"
            return replace(plan, steps=(*plan.steps, *(JobStep(f"step {n}", detail=detail) for n in range(12))))

    async with opened(scenes.fleet_without_lost(), size, actions=Long()) as screen:
        await screen.press("r")
        assert "type glm5-sm120 and press enter to start; esc leaves everything as it is" in screen.text()
        assert "type glm5-sm120:" in screen.lines()[-2]
        assert "▼" in screen.text() and "are drained" not in screen.text()
        await screen.press("end")
        assert "are drained for up to 120 s" in screen.text() and "▼" not in screen.text()
        line = screen.line_with("move /b/cache aside")
        assert "/a/cache" not in line, "a line each"
        await screen.press("home")
        assert "nothing has been touched yet" in screen.text()


async def test_a_plan_starts_only_when_its_word_is_typed() -> None:
    async with opened(scenes.fleet_without_lost()) as screen:
        await screen.press("r")
        assert "nothing has been touched yet" in screen.text()
        assert "start it again with the old command" in screen.text()
        await screen.press(*"yes", "enter")
        assert "nothing was started" in screen.text()
        assert ("start", "glm5-sm120") not in screen.deeds.done
        await screen.press(*["backspace"] * 3, *"glm5-sm120", "enter")
        assert ("start", "glm5-sm120") in screen.deeds.done
        assert where(screen.app.screen) == keys.JOBS


async def test_leaving_a_plan_starts_nothing() -> None:
    async with opened(scenes.fleet_without_lost()) as screen:
        await screen.press("r", "escape")
        assert where(screen.app.screen) == keys.FLEET
        assert ("start", "glm5-sm120") not in screen.deeds.done


async def test_a_refused_plan_cannot_be_started() -> None:
    class Refusing(scenes.Deeds):
        def plan_retune(self, host: str, server: str | None) -> RetunePlan:
            return RetunePlan(host, "sglang", (), refusal="output goes into a pipe: it could not be restored")

    async with opened(scenes.fleet_without_lost(), actions=Refusing()) as screen:
        await screen.press("r")
        assert "could not be restored" in screen.text()
        await screen.press("enter")
        assert not [deed for deed in screen.deeds.done if deed[0] == "start"]


async def test_the_map_names_the_zone_and_places_every_gpu() -> None:
    async with opened(scenes.fleet_without_lost()) as screen:
        await screen.press("M")
        assert "starved?" in screen.text() and "×8" in screen.text() and "h200-lab" in screen.text()
        await screen.press("p")
        assert "tensor → DRAM" in screen.text() and "memory-bound" in screen.text()
        assert "8 GPUs are not on the map" in screen.text()


async def test_help_lists_the_keys_of_the_screen_it_was_asked_on() -> None:
    async with opened(scenes.sixteen(), (120, 80)) as screen:
        await screen.press("l", "question_mark")
        assert "next match of the search" in screen.text()
        assert "fold the host" not in screen.text()
        await screen.press("question_mark")
        assert where(screen.app.screen) == keys.LOG


async def test_the_palette_offers_area_and_action_of_what_applies() -> None:
    async with opened(scenes.sixteen()) as screen:
        await screen.press("ctrl+p")
        await screen.press(*"order")
        await screen.until(lambda: "table: Next order" in screen.text() and "app: Quit" not in screen.text())
        await screen.press("enter")
        await screen.settle()
        assert "by worst" in screen.lines()[0]


async def test_the_selected_entry_of_the_palette_stands_out_without_colours() -> None:
    async with opened(scenes.sixteen(), (100, 30), no_color=True) as screen:
        await screen.press("ctrl+p")
        strips = screen.app.screen._compositor.render_strips()
        marked = "".join(part.text for strip in strips for part in strip if part.style and part.style.reverse)
        assert "app: Quit" in marked and "app: Keys" not in marked


async def test_no_two_deeds_of_a_screen_share_a_key() -> None:
    for name in keys.SCREEN_TITLES:
        taken = [key for deed in keys.deeds_of(name) for key in deed.keys]
        assert len(taken) == len(set(taken)), name


async def test_ctrl_c_leaves_with_130() -> None:
    async with opened(scenes.sixteen()) as screen:
        await screen.pilot.press("ctrl+c")
        assert screen.app.return_value == 130
