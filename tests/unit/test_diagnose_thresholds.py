"""Every cut-off moves something: just on one side of it one answer, just on the other another."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from moetop.diagnose import crossgpu
from moetop.diagnose import thresholds as th
from moetop.diagnose.faults import is_old
from moetop.diagnose.limits import CONTRADICTED
from moetop.diagnose.servers import ServerEvidence
from moetop.diagnose.states import GpuContext, judge_gpu
from moetop.diagnose.view import HostView
from moetop.diagnose.window import GpuWindow
from moetop.model import EventKind, EventSeverity, Gpus, GpuState, Log, LogEvent, Server
from moetop.probe import gpm as gpm_pairs
from moetop.probe import gpus
from moetop.triage.dmon import parse_dmon
from tests.unit.diagnose_kit import SIGNATURE, SPIN, gpm, host, info, make_server, sample, standing

Outcome = object
Probe = Callable[[float], Outcome]
"""The answer when the figure in question has this value."""


def state(**values: Any) -> GpuState:
    known = values.pop("info", info())
    running = values.pop("running", None)
    return judge_gpu(known, [sample(**values)], GpuContext(running=running)).state


def idle_sms(sm: float, pcie: float = 9000.0) -> GpuState:
    return state(power_w=140.0, gpm=gpm(sm_active_pct=sm, tensor_pct=0.0, dram_pct=1.0, pcie_rx_mib_s=pcie))


def drawn_without_sms(power_pct: float, sm: float = 0.2) -> GpuState:
    return state(power_w=7 * power_pct, gpm=gpm(sm_active_pct=sm, tensor_pct=0.0, dram_pct=21.0))


def held_log(held_s: float) -> str:
    """What a log whose past has been coming in for so long says."""
    evidence = ServerEvidence(live=True)
    evidence.hold("/log", 0.0)
    evidence.on_log(Log(t=0.0, source="/log", line="The server is fired up and ready to roll!", history=True))
    ((report,), _runs) = evidence.reports(held_s, ())
    return report.phase


def bare(sm: float) -> GpuState:
    return state(util_gpu_pct=None, util_mem_pct=None, gpm=gpm(sm_active_pct=sm, tensor_pct=0.0, dram_pct=0.0))


def dark(**values: Any) -> GpuState:
    """Starved but for one figure."""
    return state(gpm=gpm(**{"tensor_pct": 9.0, "dram_pct": 29.0, "sm_active_pct": 99.0, **values}))


def signature(**values: Any) -> GpuState:
    return state(**{**SIGNATURE, **values})


def gpm_share(share: float) -> GpuState:
    samples = [sample(gpm=gpm(tensor_pct=80.0) if k < round(share * 100) else None) for k in range(100)]
    return judge_gpu(info(), samples, GpuContext()).state


def stale(gap_s: float, age_s: float, window_s: float = 1.0) -> bool:
    window = GpuWindow(window_s)
    for k in range(5):
        window.add(k * gap_s, sample())
    return not window.at(4 * gap_s + age_s)


def first_is_stale(age_s: float) -> bool:
    window = GpuWindow(1.0)
    window.add(0.0, sample())
    return not window.at(age_s)


def limits(**values: Any) -> tuple[str, ...]:
    known = values.pop("info", info())
    return tuple(str(limit) for limit in judge_gpu(known, [sample(**values)], GpuContext()).limits)


def reasons(share: float) -> tuple[str, ...]:
    samples = [sample(clock_event_reasons=0x4 if k < round(share * 100) else 0) for k in range(100)]
    return tuple(str(limit) for limit in judge_gpu(info(), samples, GpuContext()).limits)


def pair(**values: Any) -> bool:
    """Whether two GPUs that spin but for one figure are called hanging."""
    gpu = {**SPIN, **values}
    return "collective_hang" in standing(host(gpu, gpu).report())


def ghost(used_mib: float) -> list[str]:
    return standing(host({**SPIN, "memory_used_mib": used_mib}).report())


def equals(**slow: Any) -> bool:
    """Whether the last of four equal GPUs is called a straggler."""
    good = {"power_w": 300.0, "util_mem_pct": 40.0, "util_gpu_pct": 99.0}
    return "straggler" in standing(host(good, good, good, {**good, "power_w": 210.0, **slow}).report())


def spread(spread_pct: float) -> bool:
    low = 300.0 - 300.0 * spread_pct / 100
    good = {"power_w": 300.0, "util_mem_pct": 40.0}
    others = ({**good, "power_w": low}, good, good)
    return "straggler" in standing(host(*others, {**good, "power_w": 150.0}).report())


def works_while_peers_wait(power_pct: float) -> list[str]:
    return standing(host({"power_w": 7 * power_pct, "util_mem_pct": 10.0}, SPIN, SPIN).report())


def link(load_pct: float, **values: Any) -> bool:
    speed = (crossgpu.link_capacity_mib_s(4, 8) or 0) * load_pct / 100
    figures = {"util_mem_pct": 8.0, "pcie_gen": 4, "pcie_width": 8, "pcie_rx_mib_s": speed, "pcie_tx_mib_s": speed}
    return "comms_bound" in standing(host({**figures, **values}).report())


def measured_link(dram: float) -> bool:
    speed = (crossgpu.link_capacity_mib_s(4, 8) or 0) * 0.8
    activity = gpm(sm_active_pct=90.0, tensor_pct=5.0, dram_pct=dram, pcie_rx_mib_s=speed, pcie_tx_mib_s=speed)
    return link(0.0, gpm=activity)


def nvlink(load_pct: float) -> bool:
    speed = th.NVLINK_MIB_S["H200"] * load_pct / 100
    activity = gpm(sm_active_pct=17.0, tensor_pct=0.0, dram_pct=25.0, nvlink_rx_mib_s=speed, nvlink_tx_mib_s=speed)
    return "comms_bound" in standing(host({"gpm": activity}, {"gpm": activity}).report())


def ranks(*, traffic: float = 30000.0, spread_pct: float = 0.0, sm: float = 84.0, util: float = 98.0) -> bool:
    """Whether the second of two ranks is called late while the first waits at 30 % SM activity."""
    more = traffic * (1 + spread_pct / 100)
    waits_ = gpm(sm_active_pct=30.0, tensor_pct=20.0, dram_pct=9.0, nvlink_rx_mib_s=traffic, nvlink_tx_mib_s=traffic)
    works = gpm(sm_active_pct=sm, tensor_pct=20.0, dram_pct=17.0, nvlink_rx_mib_s=more, nvlink_tx_mib_s=more)
    first = {"gpm": waits_, "util_mem_pct": 12.0, "power_w": 400.0}
    second = {"gpm": works, "util_mem_pct": 23.0, "util_gpu_pct": util}
    return "straggler" in standing(host(first, second).report())


def kv(kv_usage_pct: float) -> bool:
    return pressed(10.0, {"running": 4.0, "waiting": 0.0, "kv_usage_pct": kv_usage_pct})


def pressed(seconds: float, metrics: dict[str, float] | None = None, window_s: float = 10.0) -> bool:
    """Whether a server is overloaded of which readings so far apart tell of a long queue."""
    metrics = metrics or {"running": 4.0, "waiting": 9.0}
    evidence = host({}, server={"metrics": metrics}, window_s=window_s)
    evidence.apply(make_server(t=seconds, metrics=metrics))
    return "overloaded" in standing(evidence.report())


def capped_for(samples: float) -> bool:
    """Whether of four samples so many under a power cap that is not the GPU's own tell of one."""
    evidence = host({"power_w": 300.0, "clock_event_reasons": 4}, seconds=0)
    for t in range(4):
        reasons = 4 if t < samples else 0
        evidence.apply(Gpus(t=float(t), gpus=(sample(0, power_w=300.0, clock_event_reasons=reasons),)))
    return "power_capped" in standing(evidence.report())


def calm(kv_usage_pct: float) -> bool:
    """Whether a cache that was full stays so over a reading of this."""
    full = {"running": 4.0, "waiting": 0.0, "kv_usage_pct": 99.0}
    evidence = host({}, server={"metrics": full})
    evidence.apply(make_server(t=5.0, metrics={**full, "kv_usage_pct": kv_usage_pct}))
    evidence.apply(make_server(t=7.0, metrics=full))
    return "overloaded" in standing(evidence.report())


def unseen_start(seconds: float) -> str:
    """What stands so long after a log told of a start whose process was not found, the one before being gone."""
    args = "[2026-02-19 01:04:33] server_args=ServerArgs(model_path='/m', tp_size=1)"
    ready = "[2026-02-19 01:06:58] The server is fired up and ready to roll!"
    evidence = host({}, server={}, log=(args, ready), seconds=1)
    evidence.apply(Server(t=3.0, name="sglang", pid=100, gone=True))
    evidence.apply(Log(t=10.0, source="serve.log", line=args))
    return str(evidence.report(10.0 + seconds).headline)


def counters(age_s: float) -> GpuState:
    """The signature beside a counter of one running request, said so many seconds ago."""
    evidence = host(SIGNATURE, server={"metrics": {"running": 1.0}}, seconds=1)
    evidence.apply(Gpus(t=age_s, gpus=(sample(0, **SIGNATURE),)))
    return evidence.report().gpus[0].state


def waits_in_tuning(seconds: float) -> bool:
    """Whether two ranks that have waited so long since the tuner's line are called hanging."""
    line = "[2026-02-19 01:05:00 TP0] Running FlashInfer autotune with cache: /c/rank_tp0_pp0_dp0.json"
    evidence = host(SPIN, SPIN, server={}, log=(line,), seconds=1)
    for t in range(1, round(seconds) + 1):
        evidence.apply(Gpus(t=float(t), gpus=(sample(0, **SPIN), sample(1, **SPIN))))
    return "collective_hang" in standing(evidence.report())


def xid(code: int, age_s: float, *, dated: bool = True) -> bool:
    """Whether an Xid of that age still stands on a host that answers. Undated: a printed time only."""
    now = 1782000000.0
    written = datetime.fromtimestamp(now - age_s, tz=timezone.utc).strftime("%a %b %d %H:%M:%S %Y")
    event = LogEvent(
        kind=EventKind.XID,
        rule="k.xid",
        severity=EventSeverity.ERROR,
        line="x",
        t=now - age_s if dated else None,
        t_text=written,
        fields={"code": code},
    )
    return not is_old(HostView(name="h", now=now, answers=True), event)


def waits(lines: int) -> bool:
    log = [
        "(Worker_TP0 pid=1) 2026-08-20 10:00:00,001 - INFO - autotuner.py:9 - flashinfer.jit: " + TUNE.format("starts")
    ]
    log += [
        "(Worker_TP1 pid=2) 2026-08-20 10:00:00,001 - INFO - autotuner.py:9 - flashinfer.jit: " + TUNE.format("starts")
    ]
    log += [
        "(Worker_TP0 pid=1) 2026-08-20 10:00:02,001 - INFO - autotuner.py:9 - flashinfer.jit: " + TUNE.format("ends")
    ]
    log += [WAIT.format(minute=k) for k in range(lines)]
    return "collective_hang" in standing(host({}, server={"engine": "vllm"}, log=tuple(log)).report())


TUNE = "[Autotuner]: Autotuning process {} ..."
WAIT = (
    "(EngineCore_DP0 pid=9) INFO 08-20 10:{minute:02d}:00 [shm_broadcast.py:500] No available shared memory broadcast "
    "block found in 60 seconds. This typically happens when some processes are hanging or doing some time-consuming "
    "work (e.g. compilation, weight/kv cache quantization)."
)


def window_of(share_of_starved: float) -> GpuState:
    """100 samples: some starved on their own, the others sm_underused and memory bound; medians starved."""
    starved = gpm(sm_active_pct=99.0, tensor_pct=9.0, dram_pct=29.0)
    spinning = gpm(sm_active_pct=1.0, tensor_pct=0.0, dram_pct=0.0)
    streaming = gpm(sm_active_pct=99.0, tensor_pct=9.0, dram_pct=90.0)
    many = round(share_of_starved * 100)
    half = (100 - many) // 2
    samples = [sample(gpm=g) for g in [starved] * many + [spinning] * half + [streaming] * (100 - many - half)]
    return judge_gpu(info(), samples, GpuContext()).state


# name -> (answer by value, a little under the cut, a little over it)
CROSSINGS: dict[str, tuple[Probe, float, float]] = {
    "IDLE_UTIL_PCT": (lambda v: state(util_gpu_pct=v, power_w=130.0), 4.9, 5.1),
    "IDLE_SM_PCT": (bare, 0.05, 0.15),
    "TRANSFER_SM_PCT": (idle_sms, 4.9, 5.1),
    "TRANSFER_PCIE_MIB_S": (lambda v: idle_sms(1.0, v), 7990.0, 8010.0),
    "TRANSFER_UTIL_PCT": (
        lambda v: state(util_gpu_pct=v, gpm=gpm(sm_active_pct=1.0, tensor_pct=0.0, dram_pct=1.0, pcie_rx_mib_s=9e3)),
        79.9,
        80.1,
    ),
    "HOST_BOUND_UTIL_PCT": (lambda v: state(util_gpu_pct=v, gpm=gpm()), 79.9, 80.1),
    "MEMORY_DRAM_PCT": (lambda v: state(gpm=gpm(dram_pct=v)), 74.9, 75.1),
    "MEMORY_ALONE_DRAM_PCT": (lambda v: dark(dram_pct=v), 69.9, 70.1),
    "TENSOR_BUSY_PCT": (lambda v: state(gpm=gpm(tensor_pct=v)), 49.9, 50.1),
    "SM_UNDERUSED_PCT": (lambda v: state(gpm=gpm(sm_active_pct=v)), 59.9, 60.1),
    "VECTOR_TENSOR_PCT": (lambda v: dark(tensor_pct=v, fp32_pct=38.0), 1.9, 2.1),
    "VECTOR_FP_PCT": (lambda v: dark(tensor_pct=0.5, fp32_pct=v), 19.9, 20.1),
    "STARVED_TENSOR_PCT": (lambda v: dark(tensor_pct=v), 19.9, 20.1),
    "STARVED_DRAM_PCT": (lambda v: dark(dram_pct=v), 59.9, 60.1),
    "CONTRADICTION_SM_PCT": (lambda v: state(util_gpu_pct=0.0, gpm=gpm(sm_active_pct=v)), 19.9, 20.1),
    "CONTRADICTION_NO_SM_PCT": (lambda v: drawn_without_sms(90.0, v), 1.9, 2.1),
    "CONTRADICTION_POWER_PCT": (drawn_without_sms, 49.9, 50.1),
    "GPM_SHARE_MIN": (gpm_share, 0.24, 0.26),
    "IDLE_POWER_MAX_PCT": (lambda v: state(util_gpu_pct=0.0, power_w=7 * v), 59.9, 60.1),
    "INFERRED_MEMORY_UTIL_PCT": (lambda v: state(util_mem_pct=v), 94.9, 95.1),
    "SIGNATURE_UTIL_PCT": (lambda v: signature(util_gpu_pct=v), 94.9, 95.1),
    "SIGNATURE_POWER_MIN_PCT": (lambda v: signature(power_w=7 * v), 24.9, 25.1),
    "SIGNATURE_POWER_MAX_PCT": (lambda v: signature(power_w=7 * v), 74.9, 75.1),
    "SIGNATURE_MEMORY_UTIL_MIN_PCT": (lambda v: signature(util_mem_pct=v), 19.9, 20.1),
    "SIGNATURE_MEMORY_UTIL_MAX_PCT": (lambda v: signature(util_mem_pct=v), 64.9, 65.1),
    "SIGNATURE_CLOCK_PCT": (lambda v: signature(sm_clock_mhz=19.8 * v), 74.9, 75.1),
    "SIGNATURE_RUNNING_MAX_IDLE": (lambda v: signature(running=v), 1.0, 2.0),
    "BACKING_SHARE": (window_of, 0.32, 0.35),
    "STALE_INTERVALS": (lambda v: stale(10.0, 10.0 * v), 2.9, 3.1),
    "STALE_MIN_S": (lambda v: stale(0.1, v), 4.9, 5.1),
    "STALE_FIRST_S": (first_is_stale, 9.9, 10.1),
    "LOG_HELD_S": (held_log, 59.9, 60.1),
    "METRICS_STALE_S": (counters, 119.0, 121.0),
    "REASON_SHARE": (reasons, 0.49, 0.51),
    "LIMIT_UNDER_DEFAULT_PCT": (lambda v: limits(power_limit_w=7 * v), 98.9, 99.1),
    "LIMIT_SAMPLES": (capped_for, 2, 3),
    "OVERLOADED_S": (pressed, 2.9, 3.1),
    "OVERLOADED_SHARE": (lambda v: pressed(2 * v, window_s=2.0), 0.39, 0.41),
    "KV_CALM_PCT": (calm, 84.9, 85.1),
    "UNSEEN_START_S": (unseen_start, 14.9, 15.1),
    "CLOCK_LOW_PCT": (lambda v: limits(sm_clock_mhz=19.8 * v), 49.9, 50.1),
    "CAP_ELSEWHERE_PCT": (
        lambda v: standing(host({"power_w": 7 * v, "clock_event_reasons": 4}).report()),
        79.9,
        80.1,
    ),
    "SPIN_UTIL_PCT": (lambda v: pair(util_gpu_pct=v), 94.9, 95.1),
    "SPIN_MEMORY_UTIL_PCT": (lambda v: pair(util_mem_pct=v), 0.4, 0.6),
    "SPIN_POWER_PCT": (lambda v: pair(power_w=7 * v), 24.9, 25.1),
    "WAITING_PIPE_PCT": (lambda v: dark(sm_active_pct=80.0, tensor_pct=v, dram_pct=0.1), 0.9, 1.1),
    "WAITING_DRAM_PCT": (lambda v: dark(sm_active_pct=80.0, tensor_pct=0.0, dram_pct=v), 1.9, 2.1),
    "MOVING_MIB_S": (
        lambda v: pair(gpm=gpm(sm_active_pct=18.0, tensor_pct=0.0, dram_pct=0.0, nvlink_tx_mib_s=v)),
        999.0,
        1001.0,
    ),
    "GHOST_MEMORY_MIB": (ghost, 1023.0, 1025.0),
    "WORKING_POWER_PCT": (works_while_peers_wait, 39.9, 40.1),
    "EQUAL_MEMORY_PCT": (lambda v: equals(memory_used_mib=80000.0 * (1 + v / 100)), 14.9, 15.1),
    "STRAGGLER_POWER_PCT": (lambda v: equals(power_w=300.0 * (1 - v / 100)), 19.9, 20.1),
    "STRAGGLER_SPREAD_PCT": (spread, 9.9, 10.1),
    "STRAGGLER_CLOCK_PCT": (lambda v: equals(sm_clock_mhz=1900.0 * (1 - v / 100)), 4.9, 5.1),
    "STRAGGLER_UTIL_PCT": (lambda v: equals(util_gpu_pct=v), 79.9, 80.1),
    "COMMS_LINK_PCT": (link, 39.9, 40.1),
    "COMMS_NVLINK_PCT": (nvlink, 49.9, 50.1),
    "RANK_TRAFFIC_MIB_S": (lambda v: ranks(traffic=v), 999.0, 1001.0),
    "RANK_TRAFFIC_SPREAD_PCT": (lambda v: ranks(spread_pct=v), 9.9, 10.1),
    "RANK_SM_GAP": (lambda v: ranks(sm=30.0 + v), 24.9, 25.1),
    "RANK_HOST_UTIL_PCT": (lambda v: ranks(sm=6.0, util=v), 49.9, 50.1),
    "COMMS_MEMORY_UTIL_PCT": (lambda v: link(80.0, util_mem_pct=v), 19.9, 20.1),
    "COMMS_DRAM_PCT": (measured_link, 39.9, 40.1),
    "KV_FULL_PCT": (kv, 89.9, 90.1),
    "HANG_WAIT_LINES": (lambda v: waits(int(v)), 2, 3),
    "HANG_START_S": (waits_in_tuning, 29.0, 31.0),
    "XID_FRESH_S": (lambda v: xid(62, v), 86399.0, 86401.0),
    "ZONE_S": (lambda v: xid(31, 3600.0 + v, dated=False), 50399.0, 50401.0),
    "XID_APP_FRESH_S": (lambda v: xid(31, v), 3599.0, 3601.0),
}

WORDED_OR_STRUCTURAL = {
    "HYSTERESIS": "test_states.py moves across it",
    "HYSTERESIS_SHARE": "test_states.py: no recording is kept in the state of the one before",
    "MAJORITY_SHARE": "test_states.py: two kinds of work in a window, and four",
    "STRAGGLER_MIN_GPUS": "test_diagnose_patterns.py: two GPUs cannot show which differs",
    "PCIE_LANE_MIB_S": "a table of PCI-SIG",
    "NVLINK_MIB_S": "a table of the vendor",
    "PCIE_EFFICIENCY": "scales the link's capacity",
}


def constants() -> list[str]:
    return [name for name in vars(th) if name.isupper()]


@pytest.mark.parametrize("name", sorted(CROSSINGS))
def test_moving_across_a_threshold_changes_the_answer(name: str) -> None:
    answer, below, above = CROSSINGS[name]
    cut = getattr(th, name)
    assert below <= cut <= above, f"{name} is {cut}: the test's values no longer lie about it"
    assert answer(below) != answer(above)


def test_every_threshold_is_crossed_by_a_test() -> None:
    assert set(constants()) == set(CROSSINGS) | set(WORDED_OR_STRUCTURAL)


def test_the_probe_which_travels_alone_leaves_out_what_is_left_out_here() -> None:
    here = (th.HOST_BOUND_UTIL_PCT, th.CONTRADICTION_POWER_PCT, th.CONTRADICTION_NO_SM_PCT)
    assert here == (gpm_pairs.BUSY_UTIL_PCT, gpm_pairs.LOADED_POWER_PCT, gpm_pairs.NO_SM_PCT)
    assert f'"{CONTRADICTED}"' in Path(gpus.__file__).read_text()


def test_every_threshold_names_its_source() -> None:
    lines = Path(th.__file__).read_text().splitlines()
    for name in constants():
        place = next(k for k, line in enumerate(lines) if line.startswith((f"{name}:", f"{name} =")))
        following = "\n".join(lines[place + 1 : place + 16])
        assert '"""' in following, name


def test_a_power_violation_counter_of_dmon_stands_for_the_reason() -> None:
    names = ["gpu", "pviol"]
    low, high = (parse_dmon(names, [f"0 {v}"]).rows[0].values.get("clock_event_reasons") for v in (49, 51))
    assert (low, high) == (None, 0x4)
