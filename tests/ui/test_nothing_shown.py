"""What is said where there is nothing to show: an empty map, a log of which nothing passes, a lost host."""

from __future__ import annotations

import msgspec
import pytest

from moetop.model import EventKind, EventSeverity, HostReport, LogEvent, LogLine
from moetop.ui.loglines import event_clock, line_clock
from moetop.ui.screens.map import MapScreen
from tests.ui import scenes
from tests.ui.driving import Screen, opened
from tests.ui.test_screens import long_log


def all_lost() -> scenes.StillFeed:
    feed = scenes.StillFeed()
    feed.put(scenes.lost_host("node-07"), scenes.lost_link())
    feed.put(msgspec.structs.replace(scenes.glm5_host("node-08"), servers=()), scenes.lost_link())
    return feed


def without_limits() -> scenes.StillFeed:
    """A busy GPU with counters, of which no limit of its power is known."""
    feed = scenes.StillFeed()
    feed.put(HostReport(name="lab", headline="healthy", gpus=(scenes.h200(0, power_limit_w=None, power_pct=None),)))
    return feed


@pytest.mark.parametrize(
    ("feed", "power", "activity"),
    [
        (scenes.no_values, "no GPU here gives utilization, power", "no GPU here gives tensor and DRAM activity"),
        (without_limits, "no GPU here gives utilization, power", ""),
        (all_lost, "all 2 hosts are lost", "all 2 hosts are lost"),
        (scenes.connecting, "no GPU yet", "no GPU yet"),
    ],
)
async def test_an_empty_map_speaks_of_itself(feed: object, power: str, activity: str) -> None:
    assert callable(feed)
    async with opened(feed(), (120, 40)) as screen:
        for words in (power, activity):
            assert words in _joined(screen, "#map")
            await screen.press("M")
            assert isinstance(screen.app.screen, MapScreen) and words in _joined(screen, "#map")
            others = {power, activity} - {words, ""}
            assert not any(other in screen.text() for other in others)
            await screen.press("escape", "p")


def _joined(screen: Screen, name: str) -> str:
    """What a plot shows, without its breaks of lines."""
    return " ".join(" ".join(screen.app.screen.query_one(name).plain_lines()).split())  # type: ignore[attr-defined]


async def test_a_log_of_which_nothing_passes_says_what_keeps_it_away() -> None:
    async with opened(long_log()) as screen:
        await screen.press("l", "x", "ampersand", *"severity:fatal", "enter")
        assert "no line passes 'severity:fatal'; esc clears the filter, x shows other lines" in screen.text()
        assert "no event in this log" not in screen.text()
        await screen.press("escape")
        assert "no line passes" not in screen.text()


async def test_a_log_of_noise_alone_says_so_and_the_footer_reads_as_words() -> None:
    feed = long_log()
    feed.tails["glm5-sm120"]["sglang"] = [
        LogLine(n=n, text=f"GET /health {n}", kind=EventKind.HTTP_ACCESS, severity=EventSeverity.NOISE)
        for n in range(5)
    ]
    async with opened(feed) as screen:
        await screen.press("l")
        assert "only noise in this log so far; x x shows it" in screen.text()
        await screen.press("x")
        assert "no event in this log yet; x shows all its lines" in screen.text()
        assert "x show all" in screen.lines()[-1]
        await screen.press("x")
        assert "x hide noise" in screen.lines()[-1] and "GET /health 4" in screen.text()


@pytest.mark.parametrize("known", [False, True])
async def test_the_server_of_a_lost_host_says_that_it_is_lost_and_since_when_and_r_tries_it(known: bool) -> None:
    feed = scenes.reference_fleet()
    if known:
        feed.put(msgspec.structs.replace(scenes.lost_host(), servers=scenes.glm5_host().servers), scenes.lost_link())
    async with opened(feed) as screen:
        await screen.press("end", "v")
        text = screen.text()
        assert "lost for 12 s" in text and "no frames" in text and "in 4 s; R tries now" in text
        assert ("sglang 0.5.9" in text) == known
        assert not any(words in text for words in ("--log-path", "looked for", "no serving process"))
        assert "R reconnect" in screen.lines()[-1]


def test_a_line_has_one_time_wherever_it_is_shown() -> None:
    text = "[2026-02-19 01:06:58] The server is fired up and ready to roll!"
    event = LogEvent(kind=EventKind.READY, rule="x", severity=EventSeverity.GOOD, line=text, t=scenes.NOW)
    assert event_clock(event) == line_clock(LogLine(n=0, text=text, t=scenes.NOW)) == "01:06:58"
    bare = msgspec.structs.replace(event, line="no time")
    assert event_clock(bare) == line_clock(LogLine(n=0, text="no time", t=scenes.NOW)) == "08:09:33"
    assert event_clock(msgspec.structs.replace(bare, t=None)) == "--:--:--"


@pytest.mark.parametrize(
    ("size", "key", "said"),
    [
        ((80, 24), "2", "charts: last 5 min; they need 32 lines; this terminal has 24"),
        ((80, 24), "p", "map: tensor → DRAM ↑; the map needs 32 lines; this terminal has 24"),
        ((90, 40), "p", "the map needs 100 columns; this terminal has 90"),
        ((120, 40), "p", ""),
        ((120, 40), "2", ""),
    ],
)
async def test_a_key_of_a_chart_that_is_not_shown_says_what_the_chart_needs(
    size: tuple[int, int], key: str, said: str
) -> None:
    async with opened(scenes.reference_fleet(), size) as screen:
        await screen.press("1")
        screen.app.told.clear()
        await screen.press(key)
        told = screen.toasts()
        assert any(said in line for line in told) if said else not told
        await screen.pilot.resize_terminal(120, 32)
        await screen.settle()
        assert screen.app.screen.query_one("#charts").display, "as many lines as were named are enough"
