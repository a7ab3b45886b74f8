"""The fleet screen: what a person sees at a glance, at every size and in every condition."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from rich.cells import cell_len

from moetop.model import Finding, GpuState, HostReport, Link, LinkPhase, LogLine, Status
from moetop.ui.attention import START_S
from moetop.ui.feed import Playback
from moetop.ui.widgets.bars import FooterBar
from tests.ui import scenes
from tests.ui.driving import SIZES, opened

ALWAYS = ("STATE", "PWR%", "starved?")


@pytest.mark.parametrize("size", SIZES)
async def test_answer_state_power_and_event_are_there_at_every_size(size: tuple[int, int]) -> None:
    feed = scenes.reference_fleet()
    del feed.reports["node-07"]
    async with opened(feed, size) as screen:
        assert "kernels never tuned" in screen.lines()[1]
        assert "inferred" in screen.lines()[1]
        assert "w why" in screen.lines()[1]
        for words in ALWAYS:
            assert words in screen.text()
        assert "fired up and ready" in screen.text()
        assert all(cell_len(line) == size[0] for line in screen.lines())


async def test_columns_give_way_in_the_documented_order() -> None:
    from moetop.ui.columns import COLUMNS, fit_columns

    order = [column.title or column.key for column in sorted(COLUMNS, key=lambda c: c.drop or 99) if column.drop]
    dropped: tuple[str, ...] = ()
    for width in range(160, 39, -1):
        layout = fit_columns(width)
        assert layout.dropped == tuple(order[: len(layout.dropped)])
        assert len(layout.dropped) >= len(dropped)
        dropped = layout.dropped
        assert "power_pct" in [column.key for column in layout.columns]
    assert not fit_columns(150).dropped
    assert fit_columns(120).dropped == ("MEM UTIL", "SM ACT")


async def test_sixteen_gpus_have_a_row_each_at_80x24() -> None:
    async with opened(scenes.sixteen(), (80, 24)) as screen:
        for index in range(16):
            assert f" {index} H200" in screen.text()
        assert "more" not in screen.lines()[2]


async def test_hidden_rows_are_counted_in_a_scroll_mark() -> None:
    async with opened(scenes.big_fleet(), (80, 24)) as screen:
        assert "▼" in screen.lines()[2] and "more" in screen.lines()[2]
        await screen.press("end")
        assert "▲" in screen.lines()[2]
        assert "▼" not in screen.lines()[2]
        assert "7 H200" in screen.text()


async def test_a_lost_host_is_a_row_with_reason_and_next_try() -> None:
    async with opened(scenes.reference_fleet()) as screen:
        assert "lost 12 s: no frames; next try in 4 s" in screen.line_with("lost 12 s")
        assert "1 lost" in screen.lines()[0]


async def test_a_lost_gpu_keeps_its_row_and_the_others_their_values() -> None:
    async with opened(scenes.lost_gpu()) as screen:
        row = screen.line_with("2 H200")
        assert "✕ lost" in row and "694" not in row
        assert "lost 1/4" in screen.line_with("▾ node-03")
        assert "694 / 700" in screen.line_with("3 H200")


async def test_absent_values_are_dashes_never_zeros() -> None:
    async with opened(scenes.no_values()) as screen:
        row = screen.line_with("0 GB10")
        assert "—" in row
        assert " 0 " not in row.replace("0 GB10", "")


async def test_an_empty_fleet_says_what_to_do() -> None:
    async with opened(scenes.empty()) as screen:
        assert "--host" in screen.text() and "--demo" in screen.text()


async def test_connecting_hosts_say_since_when() -> None:
    async with opened(scenes.connecting()) as screen:
        assert "connecting to node-01, node-02 for 3 s" in screen.lines()[1]
        assert "connecting 3 s" in screen.line_with("  node-02 ")


@pytest.mark.parametrize(
    ("code", "message"),
    [("no_driver", "no NVIDIA driver is loaded"), ("no_gpu", "the driver lists no GPU")],
)
async def test_hosts_without_gpus_say_why(code: str, message: str) -> None:
    feed = scenes.StillFeed()
    feed.put(HostReport(name="web-1", headline="no_data"))
    feed.status["web-1"] = {code: Status(t=scenes.NOW, code=code, message=message, level="error")}
    async with opened(feed) as screen:
        assert message in screen.line_with("  web-1")


async def test_a_healthy_fleet_is_quiet() -> None:
    async with opened(scenes.sixteen()) as screen:
        assert "nothing needs you" in screen.lines()[1]
        assert "warning" not in screen.lines()[0]


async def test_arrows_move_and_the_cursor_stays_on_its_gpu_when_rows_move() -> None:
    feed = scenes.reference_fleet()
    async with opened(feed) as screen:
        for _ in range(20):
            await screen.press("up")
        await screen.press("down", "down", "down")
        assert screen.app.chosen == ("glm5-sm120", 2)
        first = scenes.big_fleet(1, 4)
        reports = dict(feed.reports)
        feed.reports = {**first.reports, **reports}
        feed.links.update(first.links)
        await screen.refetch()
        assert screen.app.chosen == ("glm5-sm120", 2)


async def test_until_the_cursor_is_moved_it_stands_on_the_host_of_the_first_answer() -> None:
    feed = scenes.big_fleet(3, 2)
    async with opened(feed) as screen:
        assert screen.app.chosen == ("node-02", None)
        assert "node-02" in screen.lines()[1]
        await screen.press("up")
        await screen.refetch()
        assert screen.app.chosen == ("node-01", 1)


async def test_retune_stands_beside_an_answer_only_where_the_key_would_act() -> None:
    feed = scenes.reference_fleet()
    del feed.reports["node-07"]
    async with opened(feed) as screen:
        assert "r retune" in screen.lines()[1]
        await screen.press("end")
        await screen.refetch()
        assert screen.app.chosen == ("h200-lab", 0)
        assert "r retune" not in screen.lines()[1]


async def test_filter_keeps_matching_rows_and_escape_clears_it() -> None:
    async with opened(scenes.reference_fleet()) as screen:
        await screen.press("slash", *"state:tensor")
        assert "glm5-sm120" not in screen.text().split("─")[-1]
        assert "0 H200" in screen.text()
        await screen.press("enter")
        assert "clear filter" in screen.lines()[-1]
        await screen.press("escape")
        assert "0 RTX PRO 6000" in screen.text()


async def test_a_filter_that_nothing_passes_says_so() -> None:
    async with opened(scenes.reference_fleet()) as screen:
        await screen.press("slash", *"host:nowhere", "enter")
        assert "nothing passes the filter" in screen.text()


async def test_an_unknown_filter_key_is_named_and_enter_stays_in_the_prompt() -> None:
    async with opened(scenes.reference_fleet()) as screen:
        await screen.press("slash", *"lab:red")
        assert "unknown filter key 'lab'" in screen.text()
        assert "0 RTX PRO 6000" in screen.text(), "half of a word filters nothing"
        await screen.press("enter")
        assert "unknown filter key 'lab'" in screen.text() and "clear filter" not in screen.text()
        await screen.press(*["backspace"] * 4, "enter")
        assert "filter lab" in screen.lines()[0] and "0 RTX PRO 6000" not in screen.text()
        await screen.press("escape")
        assert "0 RTX PRO 6000" in screen.text()


async def test_the_maps_show_only_what_the_filter_lets_through() -> None:
    async with opened(scenes.reference_fleet()) as screen:
        await screen.press("slash", *"host:h2*", "enter")
        assert "×8" not in screen.text() and "h200-lab●" in screen.text()
        await screen.press("M")
        assert "×8" not in screen.text() and "only rows that the fleet's filter lets through" in screen.text()


async def test_the_footer_says_what_enter_does_where_the_keys_go() -> None:
    feed = scenes.reference_fleet()
    del feed.reports["node-07"]
    async with opened(feed) as screen:
        assert "⏎ detail" in screen.lines()[-1] and screen.text().count("▌") == 1
        await screen.press("E")
        assert "⏎ whole log" in screen.lines()[-1] and "esc to the table" in screen.lines()[-1]
        assert screen.text().count("▌") == 1, "one place has the keys"
        await screen.press("escape")
        assert "⏎ detail" in screen.lines()[-1] and screen.text().count("▌") == 1
        await screen.press("E", "enter")
        assert "› log" in screen.lines()[0]


# ── nothing is called good before it is judged ───────────────────────────────────────────────────


def young(seconds: int, **values: object) -> scenes.StillFeed:
    """Three GPUs watched for some seconds."""
    feed = scenes.StillFeed()
    gpus = tuple(scenes.h200(index, **values) for index in range(3))  # type: ignore[arg-type]
    feed.put(HostReport(name="lab", headline="mixed", gpus=gpus))
    for each in gpus:
        scenes.add_history(feed, "lab", each, seconds=seconds)
    return feed


@pytest.mark.parametrize(
    ("seconds", "state", "words"),
    [
        (2, GpuState.UNKNOWN, "no finding so far; too little has been seen to judge"),
        (2, GpuState.TENSOR_BUSY, "no finding so far; too little has been seen to judge"),
        (60, GpuState.TENSOR_BUSY, "● nothing needs you"),
    ],
)
async def test_nothing_needs_you_is_said_only_of_whole_windows_with_a_state(
    seconds: int, state: GpuState, words: str
) -> None:
    async with opened(young(seconds, state=state)) as screen:
        assert words in screen.lines()[1]


async def test_gpus_that_stay_unknown_are_counted_with_the_reason() -> None:
    why = ("Seen: 70 % busy", "Not known: power is not available")
    async with opened(young(60, state=GpuState.UNKNOWN, evidence=why)) as screen:
        assert "no finding so far; 3 of 3 GPUs not judged: power is not available" in screen.lines()[1]


async def test_one_host_that_is_not_judged_takes_the_green_light_of_all() -> None:
    feed = young(60)
    feed.put(HostReport(name="new", headline="no_finding", gpus=(scenes.h200(0, GpuState.UNKNOWN),)))
    async with opened(feed) as screen:
        assert "too little has been seen to judge new" in screen.lines()[1] and "●" not in screen.lines()[1]


# ── messages ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("size", SIZES)
async def test_messages_have_lines_of_their_own_and_go_again(size: tuple[int, int]) -> None:
    feed = scenes.reference_fleet()
    del feed.reports["node-07"]
    async with opened(feed, size) as screen:
        before = screen.lines()
        screen.app.say("written to /a/very/long/path/" + "x" * 60 + ".json", title="snapshot written")
        await screen.settle()
        text = "".join(line.strip() for line in screen.lines()[-3:-1])
        assert "/a/very/long/path/" in text and ".json" in text, "the whole path"
        assert screen.lines()[-1] == before[-1] and screen.lines()[1] == before[1]
        assert "fired up" in screen.text(), "the newest event stays"
        screen.app._forget(screen.app.told[0])
        await screen.settle()
        assert screen.lines() == before


async def test_folding_hides_the_gpus_of_a_host() -> None:
    async with opened(scenes.big_fleet(2, 4)) as screen:
        await screen.press("home", "minus")
        assert "▸ node-00" in screen.text()
        await screen.press("plus")
        assert "▾ node-00" in screen.text()
        await screen.press("underscore")
        assert "H200" not in screen.text().split("POWER")[1].split("─")[0]


async def test_the_order_key_puts_the_worst_first() -> None:
    async with opened(scenes.big_fleet(4, 2), (120, 24)) as screen:
        await screen.press("o")
        rows = [line for line in screen.lines() if "node-" in line and "▾" in line]
        assert "node-02" in rows[0]
        assert "by worst" in screen.lines()[0]


async def test_clicks_select_fold_sort_and_press_footer_keys() -> None:
    async with opened(scenes.big_fleet(2, 4)) as screen:
        table = screen.app.screen.query_one("#table")
        await screen.pilot.click(table, offset=(20, 3))
        assert screen.app.chosen == ("node-00", 1)
        await screen.pilot.click(table, offset=(1, 1))
        assert "▸ node-00" in screen.text()
        await screen.pilot.click(table, offset=(25, 0))
        await screen.settle()
        assert "by worst" in screen.lines()[0]
        await screen.pilot.click("FooterBar", offset=(screen.lines()[-1].index("pause"), 0))
        assert screen.app.paused


async def test_the_wheel_scrolls_the_table() -> None:
    async with opened(scenes.big_fleet(), (80, 24)) as screen:
        table = screen.app.screen.query_one("#table")
        before = screen.app.chosen
        await screen.pilot._post_mouse_events([_scroll_down()], table, offset=(5, 5), button=0)
        await screen.pilot.pause()
        assert screen.app.chosen != before


def _scroll_down() -> type:
    from textual.events import MouseScrollDown

    return MouseScrollDown


async def test_pause_freezes_the_numbers_and_the_footer_offers_to_resume() -> None:
    feed = scenes.reference_fleet()
    async with opened(feed) as screen:
        await screen.press("space")
        feed.put(msgspec.structs.replace(feed.reports["h200-lab"], gpus=(scenes.h200(0, util_gpu_pct=7.0),)))
        await screen.refetch()
        assert "paused" in screen.lines()[0]
        assert " 99 " in screen.line_with("0 H200")
        assert "resume" in screen.lines()[-1]
        await screen.press("space")
        assert " 7 " in screen.line_with("0 H200")


async def test_a_value_that_changes_its_width_moves_nothing() -> None:
    feed = scenes.sixteen()
    async with opened(feed) as screen:
        before = screen.line_with("3 H200")
        report = feed.reports["node-00"]
        gpus = list(report.gpus)
        gpus[3] = scenes.h200(3, util_gpu_pct=5.0, power_w=80.0, temp_c=9.0, memory_used_mib=1024.0, limits=())
        feed.put(msgspec.structs.replace(report, gpus=tuple(gpus)))
        await screen.refetch()
        after = screen.line_with("3 H200")
        assert len(before) == len(after)
        assert before.index(" / 700") == after.index(" / 700")
        assert before.rindex(" / 140") == after.rindex(" / 140")


async def test_replay_says_where_it_stands_and_when_it_is_over() -> None:
    deeds = scenes.Deeds()
    deeds.play = Playback(t=65.0, start=0.0, end=90.0, speed=2.0)
    async with opened(scenes.sixteen(), actions=deeds) as screen:
        assert "00:01:05" in screen.lines()[0] and "replay ×2" in screen.lines()[0]
        deeds.play = replace(deeds.play, finished=True)
        await screen.refetch()
        assert "replay finished" in screen.lines()[0]


async def test_demo_says_that_it_is_one() -> None:
    async with opened(scenes.sixteen(), demo_note="recorded H200, scripted server") as screen:
        assert "demo" in screen.lines()[0]
        assert "recorded H200, scripted server" in screen.text()


async def test_too_small_a_terminal_says_how_much_it_needs_and_comes_back() -> None:
    async with opened(scenes.reference_fleet(), (80, 24)) as screen:
        await screen.pilot.resize_terminal(30, 8)
        await screen.pilot.pause()
        assert "40x10" in screen.text() and "30x8" in screen.text()
        await screen.pilot.resize_terminal(200, 60)
        await screen.pilot.pause()
        assert "0 RTX PRO 6000" in screen.text()
        assert "util %" in screen.text()


async def test_resizing_through_every_width_never_breaks_a_line() -> None:
    async with opened(scenes.reference_fleet(), (120, 40)) as screen:
        for width, height in ((41, 11), (60, 20), (79, 24), (99, 31), (101, 33), (160, 50)):
            await screen.pilot.resize_terminal(width, height)
            await screen.pilot.pause()
            assert [cell_len(line) for line in screen.lines()] == [width] * height


async def test_new_findings_toast_and_cleared_ones_too_but_not_those_at_start() -> None:
    feed, now = scenes.sixteen(), [scenes.NOW]
    async with opened(feed, clock=lambda: now[0]) as screen:
        assert not screen.toasts()
        report = feed.reports["node-00"]
        finding: Finding = scenes.UNTUNED
        feed.put(msgspec.structs.replace(report, findings=(finding,)))
        await screen.refetch()
        assert not screen.toasts(), "the first window only shows what stood before"
        feed.put(report)
        await screen.refetch()
        now[0] += START_S
        feed.put(msgspec.structs.replace(report, findings=(finding,)))
        await screen.refetch()
        assert screen.toasts() == [f"node-00: kernels not tuned: {finding.summary}"]
        feed.put(report)
        await screen.refetch()
        assert any("cleared after" in toast for toast in screen.toasts())


async def test_many_findings_at_once_are_one_toast_and_on_a_low_terminal_one_line() -> None:
    feed, now = scenes.sixteen(), [scenes.NOW]
    async with opened(feed, (80, 24), clock=lambda: now[0], show_toasts=True) as screen:
        now[0] += START_S
        report = feed.reports["node-00"]
        servers = [msgspec.structs.replace(scenes.UNTUNED, server=f"server-{at}") for at in range(4)]
        feed.put(msgspec.structs.replace(report, findings=tuple(servers)))
        await screen.refetch()
        assert len(screen.toasts()) == 1 and "4 findings appeared" in screen.toasts()[0]
        lines = screen.lines()
        assert "kernels never tuned" in lines[1], "the answer line is never covered"
        assert "4 findings appeared: node-00: kernels not tuned and others; f lists them" in lines[-2]
        assert "q quit" in lines[-1], "the footer is never covered"


async def test_hosts_are_added_and_removed_by_hand() -> None:
    async with opened(scenes.big_fleet(3, 2)) as screen:
        await screen.press("a", *"gpu09:2222", "enter")
        assert ("add_host", "gpu09:2222") in screen.deeds.done
        assert any("gpu09:2222: connecting" in toast for toast in screen.toasts())
        await screen.press("end", "d")
        name = screen.app.chosen[0]
        assert f"stop watching {name}?" in screen.text()
        await screen.press("q", "slash", "enter")
        assert f"stop watching {name}?" in screen.text(), "only y, n and esc are answers"
        await screen.press("n")
        assert "stop watching" not in screen.text()
        assert not any(deed == "remove_host" for deed, _ in screen.deeds.done)
        await screen.press("d", "escape", "d", "y")
        assert ("remove_host", name) in screen.deeds.done


async def test_where_hosts_are_fixed_the_keys_are_greyed_and_say_why() -> None:
    deeds = scenes.Deeds()
    deeds.hosts_fixed = "the hosts of a recording or of the demo are fixed"
    async with opened(scenes.sixteen(), (200, 60), actions=deeds) as screen:
        assert not next(key for key in screen.app.screen.query_one(FooterBar).keys if key.action == "add_host").enabled
        await screen.press("a")
        assert any("are fixed" in toast for toast in screen.toasts())
        assert "watch HOST" not in screen.text()


async def test_a_host_that_cannot_be_added_is_said_with_the_reason() -> None:
    async with opened(scenes.sixteen()) as screen:
        await screen.press("a", *"bad", "enter")
        assert any("not done: no host is called bad" in toast for toast in screen.toasts())


async def test_readonly_greys_the_key_and_says_why_when_it_is_pressed() -> None:
    feed = scenes.reference_fleet()
    del feed.reports["node-07"]
    async with opened(feed, readonly=True) as screen:
        await screen.press("r")
        assert any("--readonly" in toast for toast in screen.toasts())
        assert ("plan", "glm5-sm120") not in screen.deeds.done


async def test_retune_is_refused_in_words_where_it_cannot_be_done() -> None:
    async with opened(scenes.sixteen()) as screen:
        await screen.press("r")
        assert any("no serving process" in toast for toast in screen.toasts())


async def test_snapshot_key_writes_and_names_the_file() -> None:
    async with opened(scenes.sixteen()) as screen:
        await screen.press("s")
        assert ("snapshot", None) in screen.deeds.done
        assert any("/tmp/moetop-1.json" in toast for toast in screen.toasts())


async def test_picture_key_writes_an_svg() -> None:
    async with opened(scenes.sixteen()) as screen:
        await screen.press("S")
        name, svg = screen.deeds.done[-1]
        assert name == "picture" and str(svg).startswith("<svg")


async def test_a_log_without_lines_says_why() -> None:
    async with opened(scenes.reference_fleet(), (120, 40)) as screen:
        await screen.press("down", "end", "up")
        assert "no serving process was found on this host" in screen.text()


async def test_events_in_the_fleet_log_are_stepped_with_e() -> None:
    feed = scenes.reference_fleet()
    del feed.reports["node-07"]
    async with opened(feed) as screen:
        await screen.press("E")
        view = screen.app.screen.query_one("#log")
        assert view.has_focus
        assert view.log_lines.selected.text.startswith("Load weight end")
        await screen.press("e")
        assert view.log_lines.selected.text.startswith("The server is fired up")


async def test_hostile_text_is_shown_harmless() -> None:
    feed = scenes.hostile()
    for size in SIZES:
        async with opened(feed, size) as screen:
            for keys in (
                (),
                ("enter",),
                ("escape", "v"),
                ("escape", "l"),
                ("escape", "f"),
                ("escape", "question_mark"),
            ):
                await screen.press(*keys)
                text = screen.text()
                assert "\x1b" not in text and "\u202e" not in text and "\u200b" not in text
                assert [cell_len(line) for line in screen.lines()] == [size[0]] * size[1]


async def test_markup_in_foreign_text_is_shown_as_it_is() -> None:
    async with opened(scenes.hostile(), (200, 60)) as screen:
        assert "[bold red]x[/]" in screen.text()


async def test_ten_thousand_lines_a_second_do_not_pile_up_in_the_pane() -> None:
    feed = scenes.reference_fleet()
    del feed.reports["node-07"]
    async with opened(feed) as screen:
        lines = [LogLine(n=n, text=f"line {n}", t=scenes.NOW) for n in range(100, 100_100)]
        feed.tails["glm5-sm120"]["sglang"] = lines
        await screen.refetch()
        assert "hidden" in screen.text()


async def test_a_finished_feed_is_called_finished() -> None:
    feed = scenes.sixteen()
    feed.put(feed.reports["node-00"], Link(phase=LinkPhase.FINISHED))
    async with opened(feed, kind="recording") as screen:
        assert "finished" in screen.lines()[0]
        assert "at its end" in screen.lines()[1]


async def test_pasted_text_is_no_recording() -> None:
    feed = scenes.sixteen()
    feed.put(feed.reports["node-00"], Link(phase=LinkPhase.FINISHED))
    async with opened(feed, kind="pasted") as screen:
        assert "pasted text" in screen.lines()[0]
        assert "the whole text is read" in screen.lines()[1] and "recording" not in screen.text()
