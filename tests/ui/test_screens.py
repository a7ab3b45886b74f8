"""Detail, server, log and time: what they show and what their keys do."""

from __future__ import annotations

import threading
from dataclasses import replace

import msgspec

from moetop.errors import MoetopError
from moetop.model import EventKind, EventSeverity, HostReport, LogEvent, LogLine, LogPlace, ServerMetrics
from moetop.ui import keys
from moetop.ui.feed import Playback
from tests.ui import scenes
from tests.ui.driving import opened, where

# ── detail ───────────────────────────────────────────────────────────────────────────────────────


async def test_why_shows_seen_compared_ruled_out_not_known_and_what_to_do() -> None:
    async with opened(scenes.fleet_without_lost(), (120, 60)) as screen:
        await screen.press("w")
        text = screen.text()
        order = [text.index(word) for word in ("Seen  ", "Compared  ", "Ruled out  ", "Log  ", "Not known  ", "Do  ")]
        assert order == sorted(order)
        assert "$ nvidia-smi topo -m" in text
        assert "How sure     inferred" in text


async def test_why_again_goes_to_the_next_host_with_a_finding() -> None:
    async with opened(scenes.big_fleet(8, 2)) as screen:
        await screen.press("w")
        assert screen.app.chosen == ("node-02", None)
        await screen.press("w")
        assert screen.app.chosen == ("node-07", None)
        await screen.press("w")
        assert screen.app.chosen == ("node-02", None)


async def test_detail_of_a_gpu_gives_reasons_for_absent_values_and_its_processes() -> None:
    async with opened(scenes.fleet_without_lost(), (120, 70)) as screen:
        await screen.press("down", "enter")
        text = screen.text()
        assert "FP16/32/64, PCIe rx tx, NVLink rx tx: not supported on this GPU" in " ".join(text.split())
        assert "memory temp: not supported" in " ".join(text.split())
        assert "sglang::scheduler_TP0" in text and "41230" in text
        assert "gen 5 x16 of gen 5 x16" in text
        assert screen.lines()[0].startswith(" moetop › glm5-sm120 › gpu 0")


async def test_detail_of_a_lost_host_names_reason_and_next_try() -> None:
    async with opened(scenes.reference_fleet()) as screen:
        await screen.press("enter")
        assert "lost for 12 s" in screen.text()
        assert "in 4 s" in screen.line_with("next try")


async def test_copy_sends_the_commands_of_the_remedy_and_keeps_a_file() -> None:
    async with opened(scenes.fleet_without_lost()) as screen:
        await screen.press("w", "c")
        assert screen.app.clipboard == "nvidia-smi topo -m"
        assert ("commands.txt", "nvidia-smi topo -m") in screen.deeds.done
        assert any("OSC 52" in toast and "/tmp/commands.txt" in toast for toast in screen.toasts())


async def test_escape_goes_back_and_the_cursor_is_where_it_was() -> None:
    async with opened(scenes.fleet_without_lost()) as screen:
        await screen.press("down", "down", "enter", "l", "escape", "escape")
        assert where(screen.app.screen) == keys.FLEET
        assert screen.app.chosen == ("glm5-sm120", 1)


async def test_detail_pages_scroll_and_say_how_much_is_below() -> None:
    async with opened(scenes.fleet_without_lost(), (80, 24)) as screen:
        await screen.press("w")
        assert "▼" in screen.text()
        await screen.press("end")
        assert "▲" in screen.text()
        assert "driver" in screen.text()


# ── server ───────────────────────────────────────────────────────────────────────────────────────


async def test_server_screen_has_verdict_files_runs_numbers_and_arguments() -> None:
    async with opened(scenes.fleet_without_lost(), (140, 90)) as screen:
        await screen.press("v")
        text = screen.text()
        for words in (
            "▲ never ran",
            "leaves it out",
            "✕ missing",
            "made for triton 3.4.0",
            "812 tok/s",
            "flashinfer_cutlass",
            "crashed",
            "/root/sglang-glm5.log",
            "tokens a second",
        ):
            assert words in text, words


async def test_numbers_that_are_not_given_say_by_whom_and_files_come_from_the_log_until_listed() -> None:
    feed = scenes.fleet_without_lost()
    report = feed.reports["glm5-sm120"]
    read = LogEvent(
        kind=EventKind.MOE_CONFIG_TUNED, rule="x", severity=EventSeverity.GOOD, line="Using", run=3,
        fields={"file": "/configs/E=256,N=256.json"},
    )  # fmt: skip
    server = msgspec.structs.replace(
        report.servers[0],
        version=None,
        files=(),
        events=(read,),
        metrics=ServerMetrics(running=1.0, waiting=0.0, source="/metrics"),
    )
    feed.put(msgspec.structs.replace(report, servers=(server,)))
    async with opened(feed, (140, 90)) as screen:
        await screen.press("v")
        assert "— (not in /metrics)" in screen.line_with("KV used") and "— %" not in screen.text()
        assert "has not come, or names none" in screen.text()
        assert "/configs/E=256,N=256.json" in screen.line_with("read  ")
        assert "sglang (version not known)   ● ready" in screen.text()


async def test_servers_of_a_host_that_is_not_reached_are_not_called_absent() -> None:
    async with opened(scenes.reference_fleet()) as screen:
        await screen.press("enter")
        assert "the host is not reached" in screen.text() and "no serving process" not in screen.text()
        await screen.press("v")
        assert "lost for 12 s" in screen.text() and "no serving process" not in screen.text()


async def test_a_host_without_a_server_says_what_was_looked_for() -> None:
    async with opened(scenes.fleet_without_lost()) as screen:
        await screen.press("end", "v")
        assert "no serving process" in screen.text()
        assert "--log-path" in screen.text()


async def test_tab_goes_to_the_next_server_of_the_host() -> None:
    feed = scenes.fleet_without_lost()
    report = feed.reports["glm5-sm120"]
    second = msgspec.structs.replace(report.servers[0], name="vllm:8001")
    feed.put(msgspec.structs.replace(report, servers=(*report.servers, second)))
    async with opened(feed) as screen:
        await screen.press("v")
        assert "› sglang " in screen.lines()[0]
        await screen.press("tab")
        assert "› vllm:8001" in screen.lines()[0]


# ── log ──────────────────────────────────────────────────────────────────────────────────────────


def long_log(count: int = 500) -> scenes.StillFeed:
    feed = scenes.fleet_without_lost()
    feed.tails["glm5-sm120"]["sglang"] = [
        LogLine(
            n=n,
            text=f"[2027-01-15 08:00:{n % 60:02d}] line number {n}",
            kind=EventKind.READY if n % 100 == 50 else EventKind.HTTP_ACCESS if n % 7 == 0 else None,
            severity=EventSeverity.GOOD if n % 100 == 50 else EventSeverity.NOISE if n % 7 == 0 else None,
        )
        for n in range(count)
    ]
    return feed


def log_of(feed: scenes.StillFeed) -> list[LogLine]:
    return feed.tails["glm5-sm120"]["sglang"]


async def test_the_log_follows_stops_when_scrolled_up_and_counts_what_came() -> None:
    feed = long_log()
    async with opened(feed) as screen:
        await screen.press("l")
        assert "line number 499" in screen.text() and "following" in screen.text()
        await screen.press("pageup")
        log_of(feed).extend(LogLine(n=500 + n, text=f"fresh {n}") for n in range(3))
        await screen.refetch()
        assert "3 new lines" in screen.text() and "fresh 2" not in screen.text()
        await screen.press("G")
        assert "fresh 2" in screen.text() and "new line" not in screen.text()


async def test_search_finds_backwards_and_n_goes_on() -> None:
    async with opened(long_log()) as screen:
        await screen.press("l", "slash", *"number 4[0-9]$", "enter")
        view = screen.app.screen.query_one("LogView")
        assert view.log_lines.selected.n == 48
        await screen.press("N")
        assert view.log_lines.selected.n == 47
        await screen.press("n")
        assert view.log_lines.selected.n == 48


async def test_a_search_without_a_match_says_so_and_escape_ends_it() -> None:
    async with opened(long_log()) as screen:
        await screen.press("l", "slash", *"nowhere(", "enter")
        assert any("is not in the lines shown" in toast for toast in screen.toasts())
        await screen.press("escape")
        assert where(screen.app.screen) == keys.LOG
        await screen.press("escape")
        assert where(screen.app.screen) == keys.FLEET


async def test_lines_left_out_before_a_line_are_counted_at_its_end() -> None:
    feed = scenes.fleet_without_lost()
    feed.tails["glm5-sm120"]["sglang"] = [LogLine(n=0, text="the line itself " + "x" * 300, elided=12431)]
    async with opened(feed) as screen:
        await screen.press("l")
        line = screen.line_with("the line itself")
        assert line.rstrip().endswith("…  12,431 before it left out")


async def test_levels_hide_noise_and_count_it() -> None:
    async with opened(long_log()) as screen:
        await screen.press("l")
        assert "lines: no noise" in screen.text() and "only events" in screen.lines()[-1]
        await screen.press("x")
        assert "line number 450" in screen.text() and "line number 451" not in screen.text()
        await screen.press("x")
        assert "lines: all" in screen.text() and "line number 497" in screen.text()


async def test_events_are_stepped_and_a_kind_can_be_shown_alone() -> None:
    async with opened(long_log()) as screen:
        await screen.press("l", "E")
        view = screen.app.screen.query_one("LogView")
        assert view.log_lines.selected.n == 450
        await screen.press("k")
        assert [line.n for line in view.log_lines.shown] == [50, 150, 250, 350, 450]
        await screen.press("k")
        assert len(view.log_lines.shown) > 5


async def test_marks_stand_between_the_lines_and_survive_a_change_of_level() -> None:
    feed = long_log()
    async with opened(feed) as screen:
        await screen.press("l", "m")
        log_of(feed).append(LogLine(n=500, text="after the mark"))
        await screen.refetch()
        text = screen.text()
        assert text.index("line number 499") < text.index("mark 08:09:33") < text.index("after the mark")
        await screen.press("x", "x")
        assert "mark 08:09:33" in screen.text()


async def test_a_line_is_copied_and_the_lines_are_saved() -> None:
    async with opened(long_log()) as screen:
        await screen.press("l", "c", "W")
        assert screen.app.clipboard.endswith("line number 499")
        saved = dict(screen.deeds.done)["glm5-sm120-sglang.log"]
        assert "line number 499" in str(saved)


async def test_a_log_that_starts_anew_is_followed_anew() -> None:
    feed = long_log()
    async with opened(feed) as screen:
        await screen.press("l")
        feed.tails["glm5-sm120"]["sglang"] = [LogLine(n=0, text="first of the new run")]
        await screen.refetch()
        assert "first of the new run" in screen.text() and "line number" not in screen.text()


async def test_the_same_words_of_all_ranks_are_one_event() -> None:
    feed = scenes.fleet_without_lost()
    feed.tails["glm5-sm120"]["sglang"] = [
        LogLine(
            n=rank,
            text=f"[2027-01-15 08:00:00 TP{rank}] Memory pool end. avail mem=12.91 GB",
            kind=EventKind.KV_CACHE,
            severity=EventSeverity.INFO,
        )
        for rank in range(8)
    ]
    async with opened(feed) as screen:
        assert screen.text().count("Memory pool end") == 1
        assert "×8" in screen.line_with("Memory pool end")


async def test_a_log_that_cannot_be_had_says_why_and_what_helps() -> None:
    feed = scenes.fleet_without_lost()
    report = feed.reports["glm5-sm120"]
    place = LogPlace(kind="pipe", why="its output goes into a pipe (tee)", fix="start it with > file 2>&1")
    server = msgspec.structs.replace(report.servers[0], log=place)
    feed.put(msgspec.structs.replace(report, servers=(server,)))
    feed.tails.clear()
    async with opened(feed) as screen:
        assert "goes into a pipe (tee); start it with > file 2>&1" in screen.text()


# ── time ─────────────────────────────────────────────────────────────────────────────────────────


async def test_going_back_in_time_moves_table_chart_and_log_together() -> None:
    async with opened(scenes.fleet_without_lost()) as screen:
        await screen.press("3")
        await screen.press("left_square_bracket", "left_square_bracket", "left_square_bracket")
        assert "4 m 30 s ago" in screen.lines()[0]
        assert "88 / 600" in screen.line_with("0 RTX PRO 6000") or "89 / 600" in screen.line_with("0 RTX PRO 6000")
        assert "○ idle" in screen.line_with("0 RTX PRO 6000")
        assert "tok/s" not in screen.text(), "the server gave no numbers yet"
        assert "now: kernels never tuned" in screen.lines()[1], "findings are those of now"
        assert "fired up" not in screen.text()
        await screen.press("l")
        assert "fired up" not in screen.text() and "Load weight begin" in screen.text()
        await screen.press("0")
        assert "fired up" in screen.text()


async def test_where_nothing_was_heard_of_a_gpu_its_state_at_that_time_stays_unknown() -> None:
    async with opened(scenes.fleet_without_lost()) as screen:
        await screen.press("1", *["left_square_bracket"] * 10)
        assert "1 m 00 s ago" in screen.lines()[0]
        assert "· unknown" in screen.line_with(" 0 RTX PRO 6000")
        assert "starved?" in screen.line_with(" 1 RTX PRO 6000")
        numbers = screen.feed.server_histories["glm5-sm120", "sglang"].at("generation_tokens_s", scenes.NOW - 60)
        assert f"{numbers:,.0f} tok/s" in screen.text()


async def test_the_cursor_does_not_go_further_back_than_what_is_kept() -> None:
    async with opened(scenes.fleet_without_lost()) as screen:
        await screen.press("4", "left_square_bracket", "left_square_bracket")
        assert "6 m 40 s ago" in screen.lines()[0]


async def test_quick_jumps_add_up_one_seek_at_a_time_and_the_clock_shows_where_it_goes() -> None:
    class Slow(scenes.Deeds):
        gate, at_once, most = threading.Event(), 0, 0

        def seek(self, t: float) -> None:
            self.at_once += 1
            self.most = max(self.most, self.at_once)
            self.gate.wait(20)
            super().seek(t)
            self.play = replace(self.play, t=max(0.0, t - 40))  # what lies before comes first
            self.at_once -= 1

    deeds = Slow()
    deeds.play = Playback(t=600.0, start=0.0, end=900.0, speed=1.0, can_seek=True)
    async with opened(scenes.fleet_without_lost(), actions=deeds) as screen:
        await screen.pilot.press("2", "left_square_bracket", "left_square_bracket", "left_square_bracket")
        assert "00:08:30" in screen.lines()[0], "three times 30 s before 10:00"
        deeds.gate.set()
        await screen.settle()
        assert [value for deed, value in deeds.done if deed == "seek"] == [570.0, 510.0] and deeds.most == 1
        await screen.refetch()
        assert "00:08:30" in screen.lines()[0], "not where the past before it stands"
        await screen.press("right_square_bracket")
        assert deeds.done[-1] == ("seek", 540.0)
        deeds.play = replace(deeds.play, t=541.0)
        await screen.refetch()
        assert "00:09:01" in screen.lines()[0]


async def test_a_jump_that_fails_is_told_and_the_clock_stays() -> None:
    class Failing(scenes.Deeds):
        def seek(self, t: float) -> None:
            raise MoetopError("the recording is gone")

    deeds = Failing()
    deeds.play = Playback(t=600.0, start=0.0, end=900.0, speed=1.0, can_seek=True)
    async with opened(scenes.fleet_without_lost(), actions=deeds) as screen:
        await screen.press("left_square_bracket")
        assert any("the recording is gone" in told for told in screen.toasts())
        assert "00:10:00" in screen.lines()[0]


async def test_a_replay_seeks_and_changes_its_speed() -> None:
    deeds = scenes.Deeds()
    deeds.play = Playback(t=60.0, start=0.0, end=90.0, speed=1.0, can_seek=True)
    async with opened(scenes.sixteen(), actions=deeds) as screen:
        await screen.press("left_square_bracket", "greater_than_sign")
        assert ("seek", 30.0) in deeds.done
        assert ("speed", 2.0) in deeds.done


async def test_lines_are_filtered_by_kind_rank_and_words() -> None:
    feed = scenes.fleet_without_lost()
    feed.tails["glm5-sm120"]["sglang"] = [
        LogLine(
            n=n,
            text=f"[2027-01-15 08:00:00 TP{n % 8}] step {n}",
            kind=EventKind.KV_CACHE if n % 2 else None,
            severity=EventSeverity.INFO if n % 2 else None,
        )
        for n in range(64)
    ]
    async with opened(feed) as screen:
        view = screen.app.get_screen(keys.LOG)
        await screen.press("l", "ampersand", *"rank:tp3 kind:kv !59", "enter")
        shown = [line.n for line in view.query_one("LogView").log_lines.shown]
        assert shown == [3, 11, 19, 27, 35, 43, 51]
        assert "only: rank:tp3 kind:kv !59" in screen.text()
        await screen.press("escape")
        assert len(view.query_one("LogView").log_lines.shown) == 64


async def test_a_click_on_the_chart_goes_to_that_time_and_one_on_the_map_selects_the_gpu() -> None:
    async with opened(scenes.fleet_without_lost()) as screen:
        await screen.pilot.click("#chart", offset=(20, 3))
        await screen.settle()
        assert "ago" in screen.lines()[0]
        await screen.press("0")
        rows = screen.app.screen.query_one("#map").plain_lines()
        y = next(n for n, line in enumerate(rows) if "h200-lab" in line)
        await screen.pilot.click("#map", offset=(rows[y].index("●"), y))
        await screen.settle()
        assert screen.app.chosen == ("h200-lab", 0)


async def test_a_host_that_cannot_be_judged_is_a_row_with_words_and_the_others_go_on() -> None:
    class Failing(scenes.StillFeed):
        def report(self, host: str) -> HostReport:
            if host == "bad":
                raise ValueError("a bug")
            return super().report(host)

    feed = Failing()
    feed.put(HostReport(name="bad", headline="no_finding"))
    feed.put(scenes.sixteen().reports["node-00"])
    async with opened(feed) as screen:
        assert "could not judge this host (ValueError: a bug)" in screen.text()
        assert "15 H200" in screen.text()


async def test_idle_gpus_are_not_drawn_as_starving() -> None:
    async with opened(scenes.big_fleet(4, 2)) as screen:
        await screen.press("M", "p")
        assert "○" not in screen.text()
        assert "2 GPUs are not on the map: idle, or no value" in screen.text()
