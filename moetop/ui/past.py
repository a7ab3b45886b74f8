"""The fleet at an earlier moment: values from the histories, states from what was seen then. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, replace

import msgspec

from moetop.model import Confidence, Gpm, GpuReport, GpuState
from moetop.ui.feed import WatchFeed
from moetop.ui.scene import HostView, Scene

KEPT_CHANGES = 500
"""Changes of state kept of each GPU."""


@dataclass(frozen=True)
class Seen:
    """A GPU's state from a moment on (epoch seconds of this machine)."""

    t: float
    state: GpuState
    confidence: Confidence
    error: str | None


class StateTrail:
    """When each GPU's state changed, as far as it was watched."""

    def __init__(self) -> None:
        self._trails: dict[tuple[str, int], deque[Seen]] = {}

    def note(self, scene: Scene) -> None:
        """Keep what changed."""
        for host in scene.hosts:
            for gpu in host.report.gpus:
                trail = self._trails.setdefault((host.name, gpu.index), deque(maxlen=KEPT_CHANGES))
                seen = Seen(scene.t, gpu.state, gpu.confidence, gpu.error)
                if not trail or (trail[-1].state, trail[-1].confidence, trail[-1].error) != (
                    seen.state,
                    seen.confidence,
                    seen.error,
                ):
                    trail.append(seen)

    def at(self, host: str, gpu: int, t: float) -> Seen | None:
        """State at `t`; None before the GPU was watched."""
        trail = list(self._trails.get((host, gpu), ()))
        found = bisect_right(trail, t, key=lambda seen: seen.t)
        return trail[found - 1] if found else None


def past_scene(scene: Scene, feed: WatchFeed, trail: StateTrail, t: float) -> Scene:
    """`scene` with the GPUs as they were at `t` (epoch seconds of this machine). Findings stay today's."""
    ago_s = scene.t - t
    hosts = []
    for host in scene.hosts:
        now = host.now if host.now is not None else host.last_t
        if now is None:
            hosts.append(host)
            continue
        gpus = tuple(_past_gpu(gpu, host, feed, trail, t, now - ago_s) for gpu in host.report.gpus)
        hosts.append(replace(host, report=msgspec.structs.replace(host.report, gpus=gpus)))
    return replace(scene, hosts=tuple(hosts))


def _past_gpu(gpu: GpuReport, host: HostView, feed: WatchFeed, trail: StateTrail, t: float, host_t: float) -> GpuReport:
    history = feed.history(host.name, gpu.index)
    seen = trail.at(host.name, gpu.index, t)

    def value(name: str) -> float | None:
        return history.at(name, host_t) if history is not None else None

    tensor, dram, active = value("tensor_pct"), value("dram_pct"), value("sm_active_pct")
    gpm = None
    if tensor is not None or dram is not None or active is not None:
        gpm = Gpm(tensor_pct=tensor, dram_pct=dram, sm_active_pct=active)
    return msgspec.structs.replace(
        gpu,
        state=seen.state if seen is not None else GpuState.UNKNOWN,
        confidence=seen.confidence if seen is not None else Confidence.INFERRED,
        error=seen.error if seen is not None else None,
        evidence=(),
        limits=(),
        util_gpu_pct=value("util_gpu_pct"),
        util_mem_pct=value("util_mem_pct"),
        power_w=value("power_w"),
        power_limit_w=value("power_limit_w"),
        power_pct=value("power_pct"),
        temp_c=value("temp_c"),
        memory_used_mib=value("memory_used_mib"),
        sm_clock_mhz=value("sm_clock_mhz"),
        gpm=gpm,
        processes=None,
    )
