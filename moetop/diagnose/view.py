"""All that the rules of a host read: one frozen value, built by `host.py`. No rule and no cut here."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from moetop.diagnose.window import Figures
from moetop.engines.digest import LogDigest
from moetop.model import (
    EventKind,
    GpuReport,
    GpuSample,
    GpuState,
    Link,
    LogEvent,
    Phase,
    ServerReport,
    Status,
)

STARTING = frozenset((Phase.LOADING, Phase.TUNING, Phase.CAPTURING))
ENDED = frozenset((Phase.STOPPED, Phase.CRASHED, Phase.EXITED))
WORKING = frozenset(
    (
        GpuState.HOST_BOUND,
        GpuState.TRANSFER_BOUND,
        GpuState.SM_UNDERUSED,
        GpuState.TENSOR_STARVED,
        GpuState.VECTOR_BOUND,
        GpuState.MEMORY_BOUND,
        GpuState.BALANCED,
        GpuState.TENSOR_BUSY,
    )
)


class GpuView(msgspec.Struct, frozen=True):
    """A GPU's report with the figures behind it. `best_clock_mhz` is the highest seen at load;
    `steady_s` is how long it has been in its state, `waiting_s` how long it has only waited."""

    report: GpuReport
    figures: Figures
    newest: GpuSample | None = None
    best_clock_mhz: float | None = None
    steady_s: float | None = None
    waiting_s: float | None = None

    @property
    def index(self) -> int:
        return self.report.index


KERNEL_KINDS = frozenset((EventKind.XID, EventKind.ECC_ERROR, EventKind.GPU_LOST, EventKind.DRIVER_MISMATCH))
"""Records of the kernel, which can stand in a server's log too (a pasted file, a shared journal)."""


class RunEvents(msgspec.Struct, frozen=True):
    """Events of a server's newest run, also by kind; `kernel` are the kernel's records of any run."""

    events: tuple[LogEvent, ...] = ()
    by_kind: dict[EventKind, list[LogEvent]] = {}
    kernel: tuple[LogEvent, ...] = ()
    digest: LogDigest | None = None


def index_run(digest: LogDigest) -> RunEvents:
    """The newest run's events, ready to be asked by kind."""
    events = digest.events
    newest = digest.runs[-1].n if digest.runs else None
    mine = events if newest is None else tuple(e for e in events if e.run is None or e.run == newest)
    by_kind: dict[EventKind, list[LogEvent]] = {}
    for event in mine:
        by_kind.setdefault(event.kind, []).append(event)
    return RunEvents(mine, by_kind, tuple(e for e in events if e.kind in KERNEL_KINDS), digest)


RETUNE_JOB = "retune_job"
"""The condition of a host on which a retune job works; its detail names the servers, or their ports."""


def _holds(told: object, value: object) -> bool:
    return value is not None and isinstance(told, list) and value in told


class HostView(msgspec.Struct, frozen=True, kw_only=True):
    """One host at one moment. `answers` is whether GPU values come in now; `live` is False for
    pasted text, which has no clock. `pressed_s` is for how long a server's readings show more work than
    room; `unread` are servers that went unseen, of whose logs the end was not read."""

    name: str
    now: float | None = None
    live: bool = True
    answers: bool = False
    link: Link | None = None
    statuses: tuple[Status, ...] = ()
    gpus: tuple[GpuView, ...] = ()
    servers: tuple[ServerReport, ...] = ()
    kernel_events: tuple[LogEvent, ...] = ()
    runs: dict[str, RunEvents] = {}
    moved_t: dict[str, float] = {}
    unread: frozenset[str] = frozenset()
    pressed_s: dict[str, float] = {}
    window_s: float = 10.0

    def still_s(self, server: ServerReport) -> float | None:
        """Seconds since a server's log last told of anything but waiting; None where it never did."""
        moved = self.moved_t.get(server.name)
        return None if moved is None or self.now is None else self.now - moved

    def is_retuned(self, server: ServerReport) -> bool:
        """Whether a retune job works on the server: it may be down, and the tuner runs on its GPUs."""
        details = [s.detail for s in self.statuses if s.code == RETUNE_JOB]
        if any(_holds(d.get("servers"), server.name) for d in details):
            return True
        if sum(s.port == server.port for s in self.servers) > 1:  # containers each have a port 8000 of their own
            return False
        return any(_holds(d.get("ports"), server.port) for d in details)

    def run(self, server: ServerReport) -> tuple[LogEvent, ...]:
        """Events of a server's newest run, oldest first: what an earlier run did is history."""
        found = self.runs.get(server.name)
        return found.events if found is not None else ()

    def digest(self, server: ServerReport) -> LogDigest:
        """What a server's log says; an empty one where it has none."""
        found = self.runs.get(server.name)
        return found.digest if found is not None and found.digest is not None else LogDigest(name=server.name)

    def events(self, server: ServerReport, *kinds: EventKind) -> Iterator[LogEvent]:
        """Events of the newest run of any of `kinds`, kind by kind."""
        found = self.runs.get(server.name)
        if found is not None:
            for kind in kinds:
                yield from found.by_kind.get(kind, ())

    def has(self, server: ServerReport, *kinds: EventKind) -> bool:
        """Whether the newest run has an event of one of `kinds`."""
        found = self.runs.get(server.name)
        return found is not None and any(kind in found.by_kind for kind in kinds)

    def kernel(self, *kinds: EventKind) -> Iterator[LogEvent]:
        """The kernel's records of `kinds`, wherever they were seen; faults do not respect runs."""
        yield from (e for e in self.kernel_events if e.kind in kinds)
        for server in self.servers:
            found = self.runs.get(server.name)
            if found is not None and found.kernel:
                yield from (e for e in found.kernel if e.kind in kinds)

    def gpus_of(self, server: ServerReport) -> tuple[GpuView, ...]:
        """The GPUs a server runs on: as found, else all of them where it is the only one."""
        if server.gpus:
            wanted = set(server.gpus)
            return tuple(g for g in self.gpus if g.index in wanted)
        others = [s for s in self.servers if s is not server and s.phase not in ENDED and not s.gone]
        return () if others else self.gpus

    def server_of(self, index: int) -> ServerReport | None:
        """The server on a GPU, where one is known."""
        for server in self.servers:
            if not server.gone and any(g.index == index for g in self.gpus_of(server)):
                return server
        return None
