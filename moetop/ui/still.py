"""A feed made of one snapshot, for pictures of it. Nothing moves in it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from moetop.history import GpuHistory, ServerHistory
from moetop.model import HostReport, HostStatus, Link, LinkPhase, LogEvent, LogLine, Snapshot, Status
from moetop.trail import StateTrail
from moetop.ui.app import MoetopApp
from moetop.ui.svg import steady


class SnapshotFeed:
    """A snapshot as a WatchFeed: reports as they are, events as the log."""

    generation = 1
    window_s = 0.0

    def __init__(self, snapshot: Snapshot) -> None:
        self._hosts = {host.name: host for host in snapshot.hosts}

    def names(self) -> list[str]:
        return list(self._hosts)

    def report(self, host: str) -> HostReport:
        return self._hosts[host]

    def link_of(self, host: str) -> Link:
        report = self._hosts[host]
        if report.status is HostStatus.UNREACHABLE:
            return Link(phase=LinkPhase.LOST, reason=report.error)
        return Link(phase=LinkPhase.WATCHING)

    def last_t(self, host: str) -> float | None:
        return None

    def host_now(self, host: str) -> float | None:
        return None

    def history(self, host: str, gpu: int) -> GpuHistory | None:
        return None

    def states(self, host: str, gpu: int) -> StateTrail | None:
        return None

    def server_history(self, host: str, server: str) -> ServerHistory | None:
        return None

    def recent_events(self, host: str) -> list[LogEvent]:
        return []

    def sources(self, host: str) -> list[str]:
        return [server.name for server in self._hosts[host].servers]

    def tail(self, host: str, source: str) -> Sequence[LogLine]:
        server = next((server for server in self._hosts[host].servers if server.name == source), None)
        if server is None:
            return ()
        return [
            LogLine(n=n, text=event.line, t=event.t, kind=event.kind, severity=event.severity)
            for n, event in enumerate(server.events)
        ]

    def statuses(self, host: str) -> Mapping[str, Status]:
        return {}


def render_svg(snapshot: Snapshot, *, columns: int = 120, lines: int = 40, theme: str | None = None) -> str:
    """An SVG of the fleet screen with this snapshot on it. Raises UsageError for an unknown theme."""
    return asyncio.run(_picture(snapshot, columns, lines, theme))


async def _picture(snapshot: Snapshot, columns: int, lines: int, theme: str | None) -> str:
    taken_at = snapshot.taken_at or 0.0
    app = MoetopApp(
        SnapshotFeed(snapshot),
        theme=theme,
        clock=lambda: taken_at,
        ticking=False,
        mode="snapshot",
        kind="live" if snapshot.taken_at is not None else "pasted",  # then its time is in its texts or not known
        no_color=False,
        ascii_only=False,
        few_colors=False,
    )
    async with app.run_test(size=(columns, lines)) as pilot:
        app.gather_now()
        await pilot.pause()
        app.show_top()  # once more now that every widget has its size
        await pilot.pause()
        return steady(app.export_screenshot(title="moetop"))
