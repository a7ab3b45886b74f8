"""Hosts with several servers: each with its own log, tab goes round."""

from __future__ import annotations

import msgspec

from moetop.model import LogLine, LogPlace
from tests.ui import scenes
from tests.ui.driving import opened


def two_servers() -> scenes.StillFeed:
    """GPUs 0-7 serve one model, 8-15 another; a third server writes its log nowhere."""
    feed = scenes.sixteen()
    report = feed.reports["node-00"]
    first = msgspec.structs.replace(
        scenes.glm5_host().servers[0], name="alpha", gpus=tuple(range(8)), source="/logs/alpha.log"
    )
    second = msgspec.structs.replace(first, name="beta", gpus=tuple(range(8, 16)), source="/logs/beta.log")
    nowhere = LogPlace(kind="pipe", why="its output goes into a pipe", fix="start it with > server.log")
    third = msgspec.structs.replace(first, name="gamma", gpus=(), source=None, log=nowhere)
    feed.put(msgspec.structs.replace(report, servers=(first, second, third)))
    feed.tails["node-00"] = {
        name: [LogLine(n=0, text=f"a line of {name}", t=scenes.NOW)]
        for name in ("kernel", "/logs/beta.log", "/logs/alpha.log")
    }
    return feed


async def test_each_row_shows_the_log_of_the_server_on_its_gpu() -> None:
    async with opened(two_servers()) as screen:
        assert "alpha @ node-00" in screen.text()
        await screen.press("end")
        assert "beta @ node-00" in screen.text()
        await screen.press("l")
        assert "a line of /logs/beta.log" in screen.text() and "log /logs/beta.log (2 of 3)" in screen.text()


async def test_tab_goes_round_the_logs_servers_first_and_the_kernels_last() -> None:
    async with opened(two_servers()) as screen:
        await screen.press("l")
        seen = []
        for _ in range(4):
            seen.append(screen.line_with("a line of").split("a line of ")[1].split()[0])
            await screen.press("tab")
        assert seen == ["/logs/alpha.log", "/logs/beta.log", "kernel", "/logs/alpha.log"]
        await screen.press("v")
        assert "node-00 › beta (2 of 3" in screen.text(), "the server page follows the log"


async def test_tab_goes_round_the_servers_and_the_keys_mean_the_one_shown() -> None:
    async with opened(two_servers()) as screen:
        await screen.press("v")
        assert "alpha (1 of 3, tab: next)" in screen.text()
        await screen.press("tab", "l")
        assert "a line of /logs/beta.log" in screen.text()
        await screen.press("escape", "tab")
        assert "gamma (3 of 3" in screen.text()
        await screen.press("escape")
        assert "no log of gamma: its output goes into a pipe; start it with > server.log" in screen.text()
