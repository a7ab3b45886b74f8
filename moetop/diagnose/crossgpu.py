"""Patterns over several GPUs: spinning ranks, a hang, a straggler, a full link. Figures only, no log."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

import msgspec

from moetop.diagnose import thresholds as th
from moetop.diagnose.view import GpuView, HostView
from moetop.diagnose.window import Figures, greatest


def is_spinning(gpu: GpuView) -> bool:
    """Whether a GPU is busy with a kernel that only waits."""
    return not gpu.report.error and is_waiting(gpu.figures, gpu.report.name)


def is_waiting(f: Figures, name: str | None) -> bool:
    """Busy at near-idle power with memory untouched. A dead counter, an unknown limit or GPM that shows
    work prove nothing."""
    if f.util_gpu_pct is None or f.util_mem_pct is None or f.power_pct is None or is_counter_dead(name):
        return False
    if f.util_gpu_pct < th.SPIN_UTIL_PCT or f.util_mem_pct > th.SPIN_MEMORY_UTIL_PCT or f.power_pct > th.SPIN_POWER_PCT:
        return False
    if max(f.tensor_pct or 0.0, f.vector_pct or 0.0) >= th.WAITING_PIPE_PCT:
        return False
    if f.dram_pct is not None and f.dram_pct >= th.WAITING_DRAM_PCT:
        return False
    return not is_moving(f)


def is_moving(f: Figures) -> bool:
    """Whether data moves over a link: a kernel that sends does not only wait. Reads over PCIe can be a rank
    polling host memory, and prove nothing below what copies reach."""
    if f.pcie_mib_s is not None and f.pcie_mib_s > th.TRANSFER_PCIE_MIB_S:
        return True
    nvlink = greatest(f.gpm.nvlink_rx_mib_s, f.gpm.nvlink_tx_mib_s) if f.gpm is not None else None
    sent = greatest(nvlink, f.pcie_tx_mib_s)
    return sent is not None and sent >= th.MOVING_MIB_S


DEAD_MEMORY_COUNTERS = ("GB10",)
"""Parts of GPU names whose memory-utilization counter always reads 0 (public reports)."""


def is_counter_dead(name: str | None) -> bool:
    """Whether this part's memory utilization says nothing."""
    return any(part in (name or "") for part in DEAD_MEMORY_COUNTERS)


def holds_memory(gpu: GpuView) -> bool:
    """Whether a model may lie on the GPU; unknown counts as yes."""
    used = gpu.figures.memory_used_mib
    return used is None or used >= th.GHOST_MEMORY_MIB


def is_seen_without_process(gpu: GpuView) -> bool:
    """Whether a spinning GPU has nobody on it: an empty list, or without a list next to no memory."""
    processes = gpu.report.processes
    if processes is not None:
        return not processes
    used = gpu.figures.memory_used_mib
    return used is not None and used < th.GHOST_MEMORY_MIB


def is_really_working(gpu: GpuView) -> bool:
    """Busy at a power or memory use that spinning never shows."""
    f = gpu.figures
    if f.util_gpu_pct is None or f.util_gpu_pct < th.HOST_BOUND_UTIL_PCT:
        return False
    strong = f.power_pct is not None and f.power_pct >= th.WORKING_POWER_PCT
    return strong or (f.sm_pct is not None and f.sm_pct >= th.SM_UNDERUSED_PCT)


class Equal(msgspec.Struct, frozen=True):
    """One of several that should do the same: a GPU, or a host's GPUs together."""

    key: int
    name: str | None
    util_pct: float | None
    power_w: float | None
    clock_mhz: float | None
    memory_mib: float | None = None


class Straggler(msgspec.Struct, frozen=True):
    """The one that differs, with the figures of the comparison."""

    key: int
    power_w: float
    peers_w: float
    clock_mhz: float | None
    peers_mhz: float | None

    @property
    def less_pct(self) -> float:
        return (1 - self.power_w / self.peers_w) * 100


def find_straggler(equals: Sequence[Equal]) -> Straggler | None:
    """The one of at least three busy equals that draws clearly less at the same clock, if the others agree."""
    if len(equals) < th.STRAGGLER_MIN_GPUS or len({e.name for e in equals}) != 1:
        return None
    powers = [e.power_w for e in equals]
    if any(p is None or p <= 0 for p in powers):
        return None
    if any(e.util_pct is None or e.util_pct < th.STRAGGLER_UTIL_PCT for e in equals):
        return None
    slow = min(equals, key=lambda e: e.power_w or 0.0)
    others = [e for e in equals if e is not slow]
    others_w = [e.power_w for e in others if e.power_w is not None]
    peers_w = statistics.median(others_w)
    if slow.power_w is None or (max(others_w) - min(others_w)) > peers_w * th.STRAGGLER_SPREAD_PCT / 100:
        return None
    if slow.power_w > peers_w * (1 - th.STRAGGLER_POWER_PCT / 100):
        return None
    if not _agree([e.memory_mib for e in equals], th.EQUAL_MEMORY_PCT):
        return None
    if not _agree([e.clock_mhz for e in equals], th.STRAGGLER_CLOCK_PCT):
        return None
    clocks = [e.clock_mhz for e in others if e.clock_mhz is not None]
    return Straggler(
        key=slow.key,
        power_w=slow.power_w,
        peers_w=peers_w,
        clock_mhz=slow.clock_mhz,
        peers_mhz=statistics.median(clocks) if clocks else None,
    )


def _agree(values: Iterable[float | None], within_pct: float) -> bool:
    there = [v for v in values if v is not None]
    if not there:
        return True
    middle = statistics.median(there)
    return all(abs(v - middle) <= middle * within_pct / 100 for v in there)


def equal_of(gpu: GpuView) -> Equal:
    return Equal(
        key=gpu.index,
        name=gpu.report.name,
        util_pct=gpu.figures.util_gpu_pct,
        power_w=gpu.figures.power_w,
        clock_mhz=gpu.figures.sm_clock_mhz,
        memory_mib=gpu.figures.memory_used_mib,
    )


def groups_of_equals(view: HostView) -> list[tuple[GpuView, ...]]:
    """GPUs that should do the same: those of one server; without servers, all of the host."""
    groups: list[tuple[GpuView, ...]] = []
    for server in view.servers:
        mine = view.gpus_of(server)
        if mine and mine not in groups and not server.gone:
            groups.append(mine)
    return groups or [view.gpus]


def working_alone(group: Sequence[GpuView]) -> GpuView | None:
    """The one GPU of a group that works while every other spins."""
    spinning = [g for g in group if is_spinning(g)]
    rest = [g for g in group if not is_spinning(g)]
    if len(rest) == 1 and len(spinning) >= th.STRAGGLER_MIN_GPUS - 1 and is_really_working(rest[0]):
        return rest[0]
    return None


def link_capacity_mib_s(gen: int | None, width: int | None) -> float | None:
    """What a PCIe link of that generation and width carries in one direction, MiB/s."""
    if gen is None or width is None or width <= 0:
        return None
    lane = th.PCIE_LANE_MIB_S.get(gen)
    return None if lane is None else lane * width * th.PCIE_EFFICIENCY


def link_share_pct(gpu: GpuView) -> float | None:
    """Load of the PCIe link in its emptier direction, percent of what it carries: an all-reduce loads
    both, an upload one. Where the present width is not told (virtual machines) the greatest stands in."""
    f, sample = gpu.figures, gpu.newest
    if sample is None or f.pcie_rx_mib_s is None or f.pcie_tx_mib_s is None:
        return None
    gen = sample.pcie_gen if sample.pcie_gen is not None else gpu.report.pcie_gen_max
    width = sample.pcie_width if sample.pcie_width is not None else gpu.report.pcie_width_max
    capacity = link_capacity_mib_s(gen, width)
    return None if capacity is None else min(f.pcie_rx_mib_s, f.pcie_tx_mib_s) / capacity * 100


def nvlink_share_pct(gpu: GpuView) -> float | None:
    """Load of all NVLinks in their emptier direction, percent; None where the card's links are not known."""
    gpm = gpu.figures.gpm
    if gpm is None or gpm.nvlink_rx_mib_s is None or gpm.nvlink_tx_mib_s is None:
        return None
    capacity = next((most for word, most in th.NVLINK_MIB_S.items() if word in (gpu.report.name or "")), None)
    return None if capacity is None else min(gpm.nvlink_rx_mib_s, gpm.nvlink_tx_mib_s) / capacity * 100


def is_comms_bound(gpu: GpuView) -> bool:
    """Both directions of a link near their limit while SMs or memory idle."""
    f = gpu.figures
    if f.util_gpu_pct is None or f.util_gpu_pct < th.HOST_BOUND_UTIL_PCT:
        return False
    full = (link_share_pct(gpu) or 0.0) >= th.COMMS_LINK_PCT or (nvlink_share_pct(gpu) or 0.0) >= th.COMMS_NVLINK_PCT
    if not full:
        return False
    if f.sm_pct is not None and f.sm_pct < th.SM_UNDERUSED_PCT:
        return True
    if f.dram_pct is not None:
        return f.dram_pct < th.COMMS_DRAM_PCT
    return f.util_mem_pct is not None and f.util_mem_pct < th.COMMS_MEMORY_UTIL_PCT


Traffic = tuple[float, float]


def traffic_mib_s(gpu: GpuView) -> Traffic | None:
    """What a GPU receives and sends over NVLink, or over PCIe where NVLink is quiet, MiB/s; None where it is
    too little to tell ranks of one job, or not measured."""
    gpm = gpu.figures.gpm
    if gpm is None:
        return None
    for rx, tx in ((gpm.nvlink_rx_mib_s, gpm.nvlink_tx_mib_s), (gpm.pcie_rx_mib_s, gpm.pcie_tx_mib_s)):
        if rx is not None and tx is not None and min(rx, tx) >= th.RANK_TRAFFIC_MIB_S:
            return rx, tx
    return None


def ranks_of_one_job(group: Sequence[GpuView]) -> list[tuple[GpuView, ...]]:
    """GPUs of `group` that exchange so much, and so equally in both directions, that they must be ranks of one
    job; several where several jobs run. GPUs without such traffic are in none."""
    loads = sorted((load, g.index, g) for g in group if (load := traffic_mib_s(g)) is not None)
    jobs: list[list[tuple[Traffic, GpuView]]] = []
    for load, _, gpu in loads:
        if jobs and _alike(jobs[-1][0][0], load) and may_be_ranks(jobs[-1][0][1], gpu):
            jobs[-1].append((load, gpu))
        else:
            jobs.append([(load, gpu)])
    return [tuple(gpu for _, gpu in job) for job in jobs if len(job) >= 2]


def _alike(one: Traffic, other: Traffic) -> bool:
    most = 1 + th.RANK_TRAFFIC_SPREAD_PCT / 100
    return all(max(a, b) <= min(a, b) * most for a, b in zip(one, other, strict=True))


def may_be_ranks(one: GpuView, other: GpuView) -> bool:
    """Whether two GPUs may belong to one job: the same card, about the same memory, and not run by programs
    or users that differ. What is not known speaks against nothing."""
    if one.report.name != other.report.name:
        return False
    if not _agree([one.figures.memory_used_mib, other.figures.memory_used_mib], th.EQUAL_MEMORY_PCT):
        return False
    mine, theirs = one.report.processes or (), other.report.processes or ()
    for field in ("name", "user"):
        a, b = ({v for p in who if (v := getattr(p, field)) is not None} for who in (mine, theirs))
        if a and b and not a & b:
            return False
    return True


def late_rank(ranks: Sequence[GpuView]) -> GpuView | None:
    """The rank for which all others wait: it works more, or waits for its own host, while they are busy with
    next to nothing. GPM only: utilization and power alone cannot tell a rank that waits from one that works."""
    for gpu in ranks:
        f, peers = gpu.figures, [g.figures for g in ranks if g is not gpu]
        waiting = all(
            p.util_gpu_pct is not None
            and p.util_gpu_pct >= th.SPIN_UTIL_PCT
            and p.sm_pct is not None
            and p.sm_pct < th.SM_UNDERUSED_PCT
            for p in peers
        )
        if not waiting or f.sm_pct is None or f.util_gpu_pct is None:
            continue
        ahead = f.sm_pct - max(p.sm_pct or 0.0 for p in peers)
        if ahead >= th.RANK_SM_GAP or f.util_gpu_pct < th.RANK_HOST_UTIL_PCT:
            return gpu
    return None


def is_link_narrow(gpu: GpuView) -> bool:
    """Fewer lanes than card and slot could use, seen under load (idle links save lanes on some parts)."""
    width, most, util = gpu.report.pcie_width, gpu.report.pcie_width_max, gpu.figures.util_gpu_pct
    if width is None or most is None or width <= 0 or util is None:
        return False
    return width < most and util >= th.HOST_BOUND_UTIL_PCT


def is_link_slow(gpu: GpuView) -> bool:
    """A lower PCIe generation than possible, seen under load (an idle link always falls back)."""
    gen, most, util = gpu.report.pcie_gen, gpu.report.pcie_gen_max, gpu.figures.util_gpu_pct
    if gen is None or most is None or util is None:
        return False
    return gen < most and util >= th.HOST_BOUND_UTIL_PCT
