"""The fleet at an earlier moment: values and numbers from the histories, states from what was judged then. Pure."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from moetop.history import SERVER_FIELDS
from moetop.model import Confidence, Gpm, GpuReport, GpuState, ServerMetrics, ServerReport
from moetop.ui.feed import WatchFeed
from moetop.ui.scene import HostView, Scene


def past_scene(scene: Scene, feed: WatchFeed, t: float) -> Scene:
    """`scene` with the GPUs and the servers' numbers as they were at `t` (epoch seconds of this machine). Findings and
    phases stay today's."""
    ago_s = scene.t - t
    hosts = []
    for host in scene.hosts:
        now = host.now if host.now is not None else host.last_t
        if now is None:
            hosts.append(host)
            continue
        gpus = tuple(_past_gpu(gpu, host, feed, now - ago_s) for gpu in host.report.gpus)
        servers = tuple(_past_server(server, host, feed, now - ago_s) for server in host.report.servers)
        hosts.append(replace(host, report=msgspec.structs.replace(host.report, gpus=gpus, servers=servers)))
    return replace(scene, hosts=tuple(hosts))


def _past_server(server: ServerReport, host: HostView, feed: WatchFeed, host_t: float) -> ServerReport:
    """A server with its numbers at `host_t` of its host's clock; none where it told none then."""
    history = feed.server_history(host.name, server.name)
    values = {name: history.at(name, host_t) for name in SERVER_FIELDS} if history is not None else {}
    known = any(value is not None for value in values.values())
    metrics = msgspec.structs.replace(ServerMetrics(t=host_t), **values) if known else None
    return msgspec.structs.replace(server, metrics=metrics)


def _past_gpu(gpu: GpuReport, host: HostView, feed: WatchFeed, host_t: float) -> GpuReport:
    """A GPU at `host_t` of its host's clock; unknown where nothing was heard of it then."""
    history, trail = feed.history(host.name, gpu.index), feed.states(host.name, gpu.index)
    seen = trail.at(host_t) if trail is not None else None

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
