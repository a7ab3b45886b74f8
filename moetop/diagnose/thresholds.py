"""Every cut-off of the diagnosis with its unit and its source; no logic here.

Sources: H200 = measured on one H200 (driver 580.159.04) with the recording named, kept under
tests/data/recordings; NVML = NVIDIA's documentation; report = a public report; judgement = ours.
"""

from __future__ import annotations

# ── states: measured (GPM) ───────────────────────────────────────────────────────────────────────

IDLE_UTIL_PCT = 5.0
"""Below: idle. H200 idle_ctx reads 0; judgement leaves room for a display or a monitor."""

IDLE_SM_PCT = 0.1
"""Where utilization is absent (MIG), SM activity below this is idle. H200: idle_ctx 0.0, spin_1block 0.76."""

TRANSFER_SM_PCT = 5.0
"""Below, with the link busy: copies, no kernels. H200: pcie_upload 0.0, launch_bound 2.2 (link quiet)."""

TRANSFER_PCIE_MIB_S = 8000.0
"""Above, with idle SMs: transfer bound. H200: pcie_upload 56,530; launch_bound 235. About a gen3 x16 link."""

TRANSFER_UTIL_PCT = 80.0
"""... and at least so busy: a copy counts as busy, so a GPU that is not waits for whoever feeds the link. H200:
pcie_upload, download 100; ranks reduce_small_shm 26-77 with 4,000-12,500 MiB/s in bursts."""

HOST_BOUND_UTIL_PCT = 80.0
"""Below: gaps between kernels. H200: host_bound 39, launch_bound 30; every busy recording reads 93-100."""

MEMORY_DRAM_PCT = 75.0
"""At or above: memory bound. H200: decode_gemv 83, copy 88, moe_decode_tuned 92; moe_tuned only 69.
Whatever the tensor pipe does. The cut holds between 69 and 81."""

MEMORY_ALONE_DRAM_PCT = 70.0
"""At or above, where the tensor pipe starves (below STARVED_TENSOR_PCT): memory bound too, since nothing else is
busy. H200: decode_graph 76, dp_decode 80, layer_norm 71-73; moe_untuned 29. That moe_tuned reads 69 does not
matter here: its tensor pipe is at 57."""

TENSOR_BUSY_PCT = 50.0
"""At or above: the tensor pipe does the work. H200: moe_tuned 57, dense_gemm 93; comm_mix 34."""

SM_UNDERUSED_PCT = 60.0
"""Below: most SMs wait. H200: spin 0.8, few_ctas 12, comm_mix 44; decode_gemv 84, dense_gemm 96."""

WAITING_PIPE_PCT = 1.0
"""Tensor and fp pipes below this, with DRAM below WAITING_DRAM_PCT: resident warps that only wait, however
many SMs they hold. H200: a polling block on every SM (calibration spin_132) reads SM 80, pipes 0; NCCL waiting
for an absent rank (ranks hang) SM 18, pipes 0; moe_few_ctas tensor 7; moe_tiny_tiles tensor 6."""

WAITING_DRAM_PCT = 2.0
"""H200: spin_1block, spin_132, hang 0.0; moe_few_ctas 12; moe_untuned 8-29."""

VECTOR_TENSOR_PCT = 2.0
"""Below, with the fp pipes busy: vector work. H200: fp32_alu 0.5; moe_untuned 9."""

VECTOR_FP_PCT = 20.0
"""Above: an fp pipe is busy. H200: fp32_alu 36-38; MoE kernels 0."""

STARVED_TENSOR_PCT = 20.0
"""Below: the tensor pipe starves. H200: moe_untuned 9; moe_tuned 57."""

STARVED_DRAM_PCT = 60.0
"""Below: DRAM is no excuse for a starved tensor pipe. H200: moe_untuned 29; memory-bound work 81-92."""

CONTRADICTION_SM_PCT = 20.0
"""SM activity at or above this beside utilization under IDLE_UTIL_PCT is a contradiction (judgement;
WSL drivers are reported to leave utilization at 0)."""

CONTRADICTION_NO_SM_PCT = 2.0
"""SM activity under this at CONTRADICTION_POWER_PCT: GPM is wrong. H200: a process whose GPM values were all wrong read
0.2 % and less at 82 %; true values under 2 % come with 20 % of the limit at most (measured)."""

CONTRADICTION_POWER_PCT = 50.0
"""From this share of the card's own limit on SMs must be active. H200: 43 % at 17 % SM activity (reduce_large)."""

GPM_SHARE_MIN = 0.25
"""Least share of the window's samples that must carry GPM for it to decide (judgement)."""

# ── states: inferred (no GPM) ────────────────────────────────────────────────────────────────────

IDLE_POWER_MAX_PCT = 60.0
"""Utilization 0 beside at least this share of the power limit is not called idle (judgement;
H200 idle_ctx draws 18 %)."""

INFERRED_MEMORY_UTIL_PCT = 95.0
"""At or above: memory bound. H200: copy, decode_gemv, moe_decode_tuned read 100; moe_tuned 86-89."""

SIGNATURE_UTIL_PCT = 95.0
"""Signature: at least so busy. H200: moe_untuned 100; public reports of untuned MoE servers 100."""

SIGNATURE_POWER_MIN_PCT = 25.0
"""Signature: at least this share of the enforced limit. H200: spinning draws 19; reports of starving servers 45-56."""

SIGNATURE_POWER_MAX_PCT = 75.0
"""Signature: at most this share. H200: decode_gemv 79-81 %, fp32_alu 92 %."""

SIGNATURE_MEMORY_UTIL_MIN_PCT = 20.0
"""Signature: memory utilization at least this. H200: comm_mix 12, few_ctas 17; reports of starving servers 22-31."""

SIGNATURE_MEMORY_UTIL_MAX_PCT = 65.0
"""Signature: memory utilization at most this. H200: moe_tuned 86-89; RTX 3090 decode 88 (report)."""

SIGNATURE_CLOCK_PCT = 75.0
"""Signature: SM clock at least this share of the maximum. Judgement: an RTX PRO 6000 runs full load at
2,430 of the 3,090 MHz that NVML names."""

SIGNATURE_RUNNING_MAX_IDLE = 1.0
"""Signature: void at so few running requests: low power is then expected (report: 34 tok/s at one request)."""

# ── steadiness ───────────────────────────────────────────────────────────────────────────────────

HYSTERESIS: dict[str, float] = {
    "util_gpu_pct": 3.0,
    "util_mem_pct": 3.0,
    "power_pct": 3.0,
    "clock_pct": 3.0,
    "sm_pct": 3.0,
    "tensor_pct": 2.0,
    "dram_pct": 3.0,
    "vector_pct": 3.0,
    "pcie_mib_s": 800.0,
}
"""A state is kept while one figure lies no further than this beyond its cut, and no further than
HYSTERESIS_SHARE of itself (judgement: medians of the recordings move by less than 2 points)."""

HYSTERESIS_SHARE = 0.1
"""Small figures have small margins: a tensor activity of 0.5 must not be kept for one above 2."""

BACKING_SHARE = 1 / 3
"""Least share of the window's samples that, each on its own, say what their medians say. Below it the
window holds a change of work, and medians of two kinds of work look like a third (judgement)."""

MAJORITY_SHARE = 0.5
"""Share of the samples that then decides in the medians' place."""

STALE_INTERVALS = 3.0
"""A GPU's newest sample counts for so many sampling intervals, then its state is unknown (judgement)."""

STALE_MIN_S = 5.0
"""... but at least so long (judgement: a slow link may hold a frame back)."""

STALE_FIRST_S = 10.0
"""How long the first sample counts while the interval is not known (the slowest rate is one in 5 s)."""

LOG_HELD_S = 60.0
"""A log whose past takes longer to come in is judged by what is there (judgement: 32 MiB over a slow line)."""

UNSEEN_START_S = 15.0
"""A log that tells of a start while its process is gone: so long the new process may not be found yet (judgement; after
an end the probe looks every second, at other times every five)."""

METRICS_STALE_S = 120.0
"""A request counter older than this says nothing about now (judgement; engines print every 10 s)."""

# ── limits ───────────────────────────────────────────────────────────────────────────────────────

REASON_SHARE = 0.5
"""A clock-event reason counts when set in at least this share of the samples (judgement)."""

LIMIT_UNDER_DEFAULT_PCT = 99.0
"""Enforced limit below this share of the default is set low (rounding; report: 315 of 350 W)."""

CLOCK_LOW_PCT = 50.0
"""SM clock below this share of its maximum at load, without a reason: unexplained. Report: GB10 at 21 %
while wedged, 80 % when well; H200 dense_gemm runs 74 % under its power cap (a reason)."""

CAP_ELSEWHERE_PCT = 80.0
"""Power-cap reason while the draw is under this share of the limit: another budget binds (report: A100 at 60 %)."""

LIMIT_SAMPLES = 3
"""So many samples of a live GPU, or all of a window of two, must show such a cap, or a low clock at load: draw and
utilization are means over the last second, reasons and clocks are not. H200 in the second in which work begins:
power-cap reason on, 444 of 700 W; a second later 688 W (measured).
"""

# ── patterns over GPUs ───────────────────────────────────────────────────────────────────────────

SPIN_UTIL_PCT = 95.0
"""At least so busy to be called spinning. H200 spin_1block: 100."""

SPIN_MEMORY_UTIL_PCT = 0.5
"""At most this memory utilization. H200 spin_1block: 0; pcie_upload 2."""

SPIN_POWER_PCT = 25.0
"""At most this share of the limit is near idle. H200: idle 18, spin 19; reports 15-20."""

MOVING_MIB_S = 1000.0
"""NVLink in either direction, or sent over PCIe, at or above this: data moves, the kernel does not only wait. H200
pairs: hang, both_wait 0 and 0.5; 64 KiB all-reduces 1,400-2,400 (reduce_small), 2,100-3,400 (reduce_small_shm)."""

GHOST_MEMORY_MIB = 1024.0
"""Used memory below this holds no model (report: 4 MiB on a GPU with a stuck counter; a context takes 500)."""

WORKING_POWER_PCT = 40.0
"""A peer at or above this share of its limit is really working (judgement; spinning draws 19)."""

EQUAL_MEMORY_PCT = 15.0
"""Ranks of one server use memory within this of each other (judgement; reports show under 2 %)."""

STRAGGLER_MIN_GPUS = 3
"""Fewer equals cannot show which one differs."""

STRAGGLER_POWER_PCT = 20.0
"""One rank draws at least this much less than the median of its equals (report: 30 % on one of four GB10)."""

STRAGGLER_SPREAD_PCT = 10.0
"""... while the others lie within this of each other (report: 3 %)."""

STRAGGLER_CLOCK_PCT = 5.0
"""... and its clock is within this of theirs: a lower clock has its own findings (report: 1 %)."""

STRAGGLER_UTIL_PCT = 80.0
"""... and all of them are at least so busy."""

COMMS_LINK_PCT = 40.0
"""Both directions at or above this share of what the PCIe link carries: near its limit. H200 pairs through host
memory: tp_bad 48, reduce_large_shm 60 (ranks); report: 72 % on a gen4 x8 link. An upload loads one direction."""

COMMS_NVLINK_PCT = 50.0
"""The same for NVLink. H200 pairs: reduce_large 70; slow_grid 8, tp_good 5, reduce_medium 13 (ranks)."""

NVLINK_MIB_S: dict[str, float] = {
    "A100": 286102.0,
    "H100": 429153.0,
    "H200": 429153.0,
    "B200": 858307.0,
    "B300": 858307.0,
}
"""NVLink of a whole card in one direction, MiB/s, by a word of its name: 300, 450 and 900 GB/s (vendor). PCIe and
reduced variants carry less, so their share reads too low and nothing is said."""

RANK_TRAFFIC_MIB_S = 1000.0
"""Link traffic, in each direction, from which GPUs may be ranks of one job. H200 pairs: slow_host 6,880;
dp_gemm 0 over NVLink, under 150 over PCIe; an upload or download next to nothing in one direction."""

RANK_TRAFFIC_SPREAD_PCT = 10.0
"""Ranks of one collective send and receive alike: within this of each other (H200 pairs: within 1)."""

RANK_SM_GAP = 25.0
"""A rank whose SMs are busier than every waiting peer's by this many points does more work. H200 pairs:
slow_grid 33, slow_kernel 47; tp_good 3, reduce_large 0."""

RANK_HOST_UTIL_PCT = 50.0
"""A rank under this utilization while its peers wait at SPIN_UTIL_PCT or more waits for its own host (H200 pairs:
slow_host 11)."""

COMMS_MEMORY_UTIL_PCT = 20.0
"""Memory utilization below this beside a full link: memory idles (report: 8)."""

COMMS_DRAM_PCT = 40.0
"""GPM: DRAM activity below this beside a full link: memory idles (judgement)."""

PCIE_LANE_MIB_S: dict[int, float] = {1: 238.0, 2: 477.0, 3: 939.0, 4: 1878.0, 5: 3756.0, 6: 7211.0}
"""Raw data rate of a lane and direction by PCIe generation, MiB/s (PCI-SIG)."""

PCIE_EFFICIENCY = 0.85
"""Share of the raw rate that payload reaches (report: 13.4 of 15.75 GB/s on gen4 x8)."""

# ── servers ──────────────────────────────────────────────────────────────────────────────────────

KV_FULL_PCT = 90.0
"""KV-cache use at or above this: full (engines start to preempt; judgement)."""

OVERLOADED_S = 3.0
"""Readings must show more work than room for so long: a burst of arrivals is taken up sooner. H200, the first reading
of a server that just became ready under load: 20 wait, 8 run; the next, a second later: none waits (judgement)."""

OVERLOADED_SHARE = 0.4
"""... or for this share of a shorter window (judgement: a snapshot of 2 s has two readings a second apart)."""

KV_CALM_PCT = 85.0
"""A cache that was full stays so down to here: blocks of preempted requests are freed and taken again (judgement)."""

HANG_WAIT_LINES = 3
"""So many repeated wait lines without progress between them suggest a hang (judgement; one 60-second
line during a start is normal)."""

HANG_START_S = 30.0
"""A server that loads or tunes must wait so long, with nothing new in its log, to be called hanging:
ranks wait for the slowest at every barrier of a normal start (judgement)."""

XID_FRESH_S = 86400.0
"""A GPU fault older than this on a host that answers is history, not news (judgement)."""

ZONE_S = 50400.0
"""A printed time without a zone is right to within this (zones reach 14 hours)."""

XID_APP_FRESH_S = 3600.0
"""... and one that a program caused (Xid 13, 31, 43, 45) after this long (judgement)."""
