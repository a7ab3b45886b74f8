"""A feed and actions for the tests of the screens that do what the test says: no probe, no diagnosis, no clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from moetop.errors import MoetopError
from moetop.history import GpuHistory, ServerHistory
from moetop.model import HostReport, Link, LinkPhase, LogEvent, LogLine, Status
from moetop.trail import StateTrail
from moetop.ui.feed import JobStep, JobView, NoActions, Playback, RetunePlan

NOW = 1_800_000_573.0
"""The frozen clock: 2027-01-15 08:09:33 UTC."""


class StillFeed:
    """A feed whose hosts are put in by the test; `change` counts its generation up."""

    window_s = 10.0

    def __init__(self) -> None:
        self.generation = 1
        self.reports: dict[str, HostReport] = {}
        self.links: dict[str, Link] = {}
        self.histories: dict[tuple[str, int], GpuHistory] = {}
        self.trails: dict[tuple[str, int], StateTrail] = {}
        self.server_histories: dict[tuple[str, str], ServerHistory] = {}
        self.events: dict[str, list[LogEvent]] = {}
        self.tails: dict[str, dict[str, list[LogLine]]] = {}
        self.status: dict[str, dict[str, Status]] = {}
        self.now = NOW

    def put(self, report: HostReport, link: Link | None = None) -> None:
        """Add or replace a host."""
        self.reports[report.name] = report
        self.links[report.name] = link or Link(phase=LinkPhase.WATCHING, since_t=self.now - 600)
        self.generation += 1

    def names(self) -> list[str]:
        return list(self.reports)

    def report(self, host: str) -> HostReport:
        return self.reports[host]

    def link_of(self, host: str) -> Link:
        return self.links[host]

    def last_t(self, host: str) -> float | None:
        return self.now if self.reports[host].gpus else None

    def host_now(self, host: str) -> float | None:
        return self.last_t(host)

    def history(self, host: str, gpu: int) -> GpuHistory | None:
        return self.histories.get((host, gpu))

    def states(self, host: str, gpu: int) -> StateTrail | None:
        return self.trails.get((host, gpu))

    def server_history(self, host: str, server: str) -> ServerHistory | None:
        return self.server_histories.get((host, server))

    def recent_events(self, host: str) -> list[LogEvent]:
        return self.events.get(host, [])

    def sources(self, host: str) -> list[str]:
        return list(self.tails.get(host, {}))

    def tail(self, host: str, source: str) -> Sequence[LogLine]:
        return self.tails.get(host, {}).get(source, [])

    def statuses(self, host: str) -> Mapping[str, Status]:
        return self.status.get(host, {})


class Deeds(NoActions):
    """Actions that note what was asked."""

    def __init__(self) -> None:
        self.done: list[tuple[str, object]] = []
        self.refusals: dict[str, str] = {}
        self.job_list: list[JobView] = []
        self.hosts_fixed: str | None = None
        self.notices: list[str] = []
        self.play: Playback | None = None
        self.snapshot_error: MoetopError | None = None

    def write_snapshot(self) -> str:
        if self.snapshot_error is not None:
            raise self.snapshot_error
        self.done.append(("snapshot", None))
        return "/tmp/moetop-1.json"

    def write_picture(self, svg: str) -> str:
        self.done.append(("picture", svg))
        return "/tmp/moetop-1.svg"

    def write_text(self, name: str, text: str) -> str:
        self.done.append((name, text))
        return f"/tmp/{name}"

    def hosts_refusal(self) -> str | None:
        return self.hosts_fixed

    def add_host(self, text: str) -> str:
        if text == "bad":
            raise MoetopError("no host is called bad")
        self.done.append(("add_host", text))
        return text

    def remove_host(self, name: str) -> None:
        self.done.append(("remove_host", name))

    def reconnect(self, host: str) -> str:
        self.done.append(("reconnect", host))
        return f"{host}: trying again now"

    def take_notices(self) -> list[str]:
        taken, self.notices = self.notices, []
        return taken

    def retune_refusal(self, host: str, server: str | None) -> str | None:
        return self.refusals.get(host)

    def plan_retune(self, host: str, server: str | None) -> RetunePlan:
        self.done.append(("plan", host))
        return RetunePlan(
            host,
            server or "server",
            (
                JobStep("stop the server", undo="start it again with the old command", timeout_s=120),
                JobStep("move caches aside", detail="mv ~/.cache/flashinfer ~/.cache/flashinfer.moetop-1"),
                JobStep("start and tune", timeout_s=3600, undo="caches back, old command"),
                JobStep("wait until ready", timeout_s=1800),
            ),
            confirm=host,
            notes=("16 requests are running: they are drained for up to 120 s",),
        )

    def start_retune(self, plan: RetunePlan) -> str:
        self.done.append(("start", plan.host))
        return "job-1"

    def cancel_job(self, job: str) -> None:
        self.done.append(("cancel", job))

    def jobs(self) -> Sequence[JobView]:
        return self.job_list

    def playback(self) -> Playback | None:
        return self.play

    def seek(self, t: float) -> None:
        self.done.append(("seek", t))

    def set_speed(self, speed: float) -> None:
        self.done.append(("speed", speed))
