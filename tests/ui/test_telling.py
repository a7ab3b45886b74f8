"""What is told goes with what it speaks of, and the header shows no time that nobody told."""

from __future__ import annotations

import re

import msgspec
import pytest

from moetop.errors import MoetopError
from moetop.model import GpuReport, HostReport, Link, LinkPhase, ServerReport, Snapshot
from moetop.triage.offline import OFFLINE, offline_frames
from moetop.ui.feed import RetunePlan
from moetop.ui.still import render_svg
from moetop.watch import Watch
from tests.ui import scenes
from tests.ui.driving import opened

CSV = """timestamp, index, utilization.gpu [%], power.draw [W], power.limit [W]
2026/03/05 14:02:11.123, 0, 98 %, 331.00 W, 600.00 W
2026/03/05 14:02:12.123, 0, 99 %, 332.00 W, 600.00 W
"""
UNTIMED = "index, utilization.gpu [%], power.draw [W], power.limit [W]\n0, 98 %, 331.00 W, 600.00 W\n"
LOG = ("[2026-02-19 01:04:33] server_args=ServerArgs(model_path='/m')", "[2026-02-19 01:06:58] Load weight begin.")
CLOCK = re.compile(r"\d\d:\d\d:\d\d")


def two_hosts() -> scenes.StillFeed:
    feed = scenes.reference_fleet()
    del feed.reports["node-07"]
    lab = feed.reports["h200-lab"]
    feed.reports["h200-lab"] = msgspec.structs.replace(lab, servers=(ServerReport(name="vllm:8000"),))
    return feed


class Refusing(scenes.Deeds):
    """Plans nothing on one host and has words for it; starts nothing on the other."""

    def plan_retune(self, host: str, server: str | None) -> RetunePlan:
        if host == "h200-lab":
            raise MoetopError("h200-lab: refused, a pipe could not be restored")
        return super().plan_retune(host, server)

    def start_retune(self, plan: RetunePlan) -> str:
        raise MoetopError(f"{plan.host}: somebody else holds the lock")


async def test_a_refusal_on_one_host_does_not_stand_over_the_plan_of_the_next() -> None:
    async with opened(two_hosts(), actions=Refusing()) as screen:
        await screen.press("end", "r")
        assert "could not be restored" in screen.text()
        await screen.refetch()
        assert "could not be restored" in screen.text(), "it stays while its host does"
        await screen.press("home")
        assert "could not be restored" not in screen.text()
        await screen.press("end", "r", "home", "r")
        assert "nothing has been touched yet" in screen.text()
        assert "could not be restored" not in screen.text()


async def test_why_a_key_does_nothing_now_goes_when_another_screen_opens_and_a_finding_stays() -> None:
    deeds = scenes.Deeds()
    deeds.refusals["glm5-sm120"] = "a retune job holds sglang"
    async with opened(two_hosts(), actions=deeds) as screen:
        screen.app.say("kernels never tuned", "warning", "glm5-sm120")
        await screen.press("r")
        assert [words for words in screen.toasts() if "holds sglang" in words]
        await screen.press("enter")
        assert screen.toasts() == ["glm5-sm120: kernels never tuned"]


async def test_what_came_of_a_start_is_told_on_the_screen_that_opens_then() -> None:
    async with opened(two_hosts(), actions=Refusing()) as screen:
        await screen.press("home", "r", *"glm5-sm120", "enter")
        assert "somebody else holds the lock" in screen.text()
        await screen.press("escape", "end")
        assert "somebody else holds the lock" not in screen.text()


def pasted(**texts: object) -> Watch:
    watch = Watch(10.0, live=False)
    for frame in offline_frames(**texts):  # type: ignore[arg-type]
        watch.frame(OFFLINE, frame, b"")
    watch.link(OFFLINE, Link(phase=LinkPhase.FINISHED))
    return watch


@pytest.mark.parametrize(
    ("texts", "shown"),
    [
        ({"smi_log": CSV}, ["14:02:12"]),
        ({"smi_log": UNTIMED}, []),
        ({"log": ("server.log", LOG)}, ["01:06:58"]),
        ({"log": ("server.log", LOG), "smi_log": CSV}, ["14:02:12"]),
    ],
)
async def test_pasted_text_shows_its_own_time_as_printed_or_none(
    texts: dict[str, object], shown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Pacific/Auckland")
    async with opened(pasted(**texts), kind="pasted") as screen:  # type: ignore[arg-type]
        assert "■ pasted text" in screen.lines()[0]
        assert CLOCK.findall(screen.lines()[0]) == shown


def test_a_picture_of_a_snapshot_without_a_time_shows_none() -> None:
    host = HostReport(name="a", headline="idle", source="recording", gpus=(GpuReport(index=0, util_gpu_pct=0.0),))
    assert not CLOCK.search(render_svg(Snapshot(hosts=(host,), taken_at=None)))
    assert CLOCK.search(render_svg(Snapshot(hosts=(host,), taken_at=1_800_000_000.0)))
