"""The state of one GPU over a window, from figures alone: decided by the tables of chain.py, kept steady,
and reported with its evidence."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from moetop.diagnose import thresholds as th
from moetop.diagnose import words
from moetop.diagnose.chain import INFERRED, MEASURED, holds, possible_states, steps_until
from moetop.diagnose.limits import WORDS, limits_of
from moetop.diagnose.window import Figures, figures_of
from moetop.model import Confidence, GpuInfo, GpuReport, GpuSample, GpuState


class GpuContext(msgspec.Struct, frozen=True, kw_only=True):
    """What besides its own samples bears on a GPU's state.

    `running` is the number of running requests of the server on it, where known; `previous` is what
    was decided from the samples before, for steadiness; `silent_s` is how long nothing was heard;
    `gpm_due` is whether GPM values, which need a second sample, are about to come.
    """

    running: float | None = None
    previous: Decision | None = None
    silent_s: float | None = None
    gpm_due: bool = False


class Decision(msgspec.Struct, frozen=True):
    """A state with how it is known. `open_states` are those the absent figures leave possible, `why` is
    what is not known, `note` what was seen besides the figures."""

    state: GpuState
    confidence: Confidence
    open_states: tuple[GpuState, ...] = ()
    why: str = ""
    note: str = ""


def decide(figures: Figures, context: GpuContext, singles: Sequence[Decision] = ()) -> Decision:
    """The state for these medians, kept from before while a figure lies only just beyond its cut, and
    only if enough of the window's samples say it on their own (`singles`, oldest first)."""
    return _backed(_steady(figures, context), singles)


def decide_one(info: GpuInfo, sample: GpuSample, running: float | None) -> Decision:
    """What a sample says on its own."""
    return _decide(figures_of(info, (sample,)), GpuContext(running=running))


def _backed(decision: Decision, singles: Sequence[Decision]) -> Decision:
    said = [s.state for s in singles if s.confidence is decision.confidence]
    if decision.state is GpuState.UNKNOWN or len(said) < 2:
        return decision
    if said.count(decision.state) >= th.BACKING_SHARE * len(said):
        return decision
    said.reverse()  # of two equally frequent the newer one
    most = max(said, key=said.count)
    if said.count(most) >= th.MAJORITY_SHARE * len(said):
        return Decision(most, decision.confidence, note="the window holds a change of work; most samples say this")
    return Decision(GpuState.UNKNOWN, Confidence.INFERRED, why="the window holds several kinds of work")


def _steady(figures: Figures, context: GpuContext) -> Decision:
    decision = _decide(figures, context)
    previous = context.previous
    if previous is None or previous.state is decision.state or GpuState.UNKNOWN in (previous.state, decision.state):
        return decision
    if previous.confidence is not decision.confidence:
        return decision
    for figure, most in th.HYSTERESIS.items():
        value = getattr(figures, figure)
        if value is None:
            continue
        margin = min(most, th.HYSTERESIS_SHARE * value)
        for shifted in (value - margin, value + margin):
            near = msgspec.structs.replace(figures, **{figure: shifted})
            if _decide(near, context).state is previous.state:
                return previous
    return decision


def _decide(figures: Figures, context: GpuContext) -> Decision:
    if figures.n == 0:
        return Decision(GpuState.UNKNOWN, Confidence.INFERRED, why=_silence(context))
    measured = has_gpm(figures)
    if measured:
        figures = _bound_util(figures)
        if _contradicts(figures):
            why = "utilization and SM activity contradict each other"
            return Decision(GpuState.UNKNOWN, Confidence.INFERRED, why=why)
        possible = possible_states(MEASURED, figures)
        if len(possible) == 1:
            return Decision(possible[0], Confidence.MEASURED)
    else:
        possible = ()
    guess = _infer(figures, context)
    if measured and guess.state is not GpuState.UNKNOWN and guess.state not in possible:
        guess = Decision(GpuState.UNKNOWN, Confidence.INFERRED)
    if guess.state is GpuState.UNKNOWN and measured:
        return msgspec.structs.replace(guess, open_states=possible)
    return guess


def _infer(figures: Figures, context: GpuContext) -> Decision:
    possible = possible_states(INFERRED, figures)
    if len(possible) != 1 or possible[0] is GpuState.UNKNOWN:
        why = "utilization is not available" if figures.util_gpu_pct is None else ""
        return Decision(GpuState.UNKNOWN, Confidence.INFERRED, why=why)
    state = possible[0]
    if state is GpuState.TENSOR_STARVED:
        if context.gpm_due:
            return Decision(
                GpuState.UNKNOWN, Confidence.INFERRED, why="the first activity values come with the next sample"
            )
        void = signature_void(figures, context.running)
        if void:
            return Decision(GpuState.UNKNOWN, Confidence.INFERRED, why=void)
    return Decision(state, Confidence.INFERRED)


def signature_void(figures: Figures, running: float | None) -> str:
    """Why figures that look like starvation must not be called so; empty when nothing speaks against."""
    if figures.reasons is None and figures.clock_pct is None:
        return "neither clock-event reasons nor the maximum clock are known, so a cap cannot be ruled out"
    if figures.reasons:
        return f"a limit is in force ({', '.join(WORDS[r] for r in figures.reasons)})"
    if running is not None and running <= th.SIGNATURE_RUNNING_MAX_IDLE:
        return f"{words.plural(round(running), 'request')} running: low power is expected"
    return ""


def has_gpm(figures: Figures) -> bool:
    """Whether enough GPM pairs, with at least one deciding value, lie in the window."""
    if figures.n_gpm == 0 or figures.n_gpm < th.GPM_SHARE_MIN * figures.n:
        return False
    return not (figures.sm_pct is None and figures.tensor_pct is None and figures.dram_pct is None)


def _bound_util(figures: Figures) -> Figures:
    """Where utilization is absent (MIG), SM activity bounds it: an SM is active only in a busy GPU."""
    if figures.util_gpu_pct is not None or figures.sm_pct is None:
        return figures
    if figures.sm_pct >= th.HOST_BOUND_UTIL_PCT:
        return msgspec.structs.replace(figures, util_gpu_pct=figures.sm_pct)
    quiet = figures.pcie_mib_s is not None and figures.pcie_mib_s <= th.TRANSFER_PCIE_MIB_S
    if figures.sm_pct < th.IDLE_SM_PCT and quiet:
        return msgspec.structs.replace(figures, util_gpu_pct=0.0)
    return figures


def _contradicts(figures: Figures) -> bool:
    util, sm = figures.util_gpu_pct, figures.sm_pct
    return util is not None and sm is not None and util < th.IDLE_UTIL_PCT and sm >= th.CONTRADICTION_SM_PCT


# ── the report of one GPU ────────────────────────────────────────────────────────────────────────


def judge_gpu(info: GpuInfo, samples: Sequence[GpuSample], context: GpuContext) -> GpuReport:
    """Medians, state, limits and evidence of one GPU over `samples` (oldest first)."""
    figures = figures_of(info, samples)
    newest = samples[-1] if samples else None
    if newest is not None and newest.error is not None:
        decision = Decision(GpuState.UNKNOWN, Confidence.INFERRED, why=f"the GPU cannot be read: {newest.error}")
    else:
        singles = [decide_one(info, sample, context.running) for sample in samples]
        decision = decide(figures, context, singles)
    return report_gpu(info, newest, figures, decision, context)


def report_gpu(
    info: GpuInfo, newest: GpuSample | None, figures: Figures, decision: Decision, context: GpuContext
) -> GpuReport:
    """Put what is known of one GPU together. `newest` is the last sample that counts."""
    sample = newest or GpuSample(index=info.index)
    total = figures.memory_total_mib if figures.memory_total_mib is not None else info.memory_total_mib
    absent = {**info.absent, **sample.absent}
    if sample.processes is None and sample.processes_why:
        absent["processes"] = sample.processes_why
    return GpuReport(
        index=info.index,
        uuid=info.uuid,
        pci_bus_id=info.pci_bus_id,
        name=words.neutral(info.name) if info.name is not None else None,
        state=decision.state,
        confidence=decision.confidence,
        evidence=evidence_of(info, figures, decision, context),
        limits=() if sample.error else limits_of(info, figures),
        util_gpu_pct=figures.util_gpu_pct,
        util_mem_pct=figures.util_mem_pct,
        power_w=figures.power_w,
        power_limit_w=figures.power_limit_w,
        power_limit_default_w=info.power_limit_default_w,
        power_pct=figures.power_pct,
        temp_c=figures.temp_c,
        memory_temp_c=figures.memory_temp_c,
        memory_used_mib=figures.memory_used_mib,
        memory_total_mib=total,
        sm_clock_mhz=figures.sm_clock_mhz,
        sm_clock_max_mhz=info.sm_clock_max_mhz,
        mem_clock_mhz=figures.mem_clock_mhz,
        gpm=figures.gpm,
        pcie_gen=sample.pcie_gen,
        pcie_width=sample.pcie_width,
        pcie_gen_max=info.pcie_gen_max,
        pcie_width_max=info.pcie_width_max,
        ecc_uncorrected=sample.ecc_uncorrected,
        mig=info.mig,
        processes=sample.processes,
        absent=absent,
        error=sample.error or info.error,
    )


_FIGURE_WORDS: tuple[tuple[str, str, str], ...] = (
    ("util_gpu_pct", "{} busy", "%"),
    ("sm_pct", "SMs {} active", "%"),
    ("tensor_pct", "tensor pipe {}", "%"),
    ("dram_pct", "DRAM {}", "%"),
    ("vector_pct", "fp pipes {}", "%"),
    ("util_mem_pct", "memory utilization {}", "%"),
    ("power_pct", "{} of the power limit", "%"),
    ("clock_pct", "SM clock {} of its maximum", "%"),
    ("pcie_mib_s", "PCIe {}", "MiB/s"),
)
_NAMES = {
    "util_gpu_pct": "utilization",
    "sm_pct": "SM activity",
    "tensor_pct": "tensor activity",
    "dram_pct": "DRAM activity",
    "vector_pct": "fp activity",
    "util_mem_pct": "memory utilization",
    "power_pct": "power",
    "clock_pct": "clock",
    "pcie_mib_s": "PCIe MiB/s",
}

STATE_WORDS: dict[GpuState, str] = {
    GpuState.IDLE: "nothing runs",
    GpuState.HOST_BOUND: "the GPU waits for the host between kernels",
    GpuState.TRANSFER_BOUND: "busy with copies over the link, not with kernels",
    GpuState.SM_UNDERUSED: "a kernel is resident but the SMs do next to nothing: waiting on a peer, or too few blocks",
    GpuState.TENSOR_STARVED: "SMs busy while tensor pipe and memory are both far from busy",
    GpuState.VECTOR_BOUND: "SMs busy in arithmetic that does not use tensor cores",
    GpuState.MEMORY_BOUND: "memory is near its limit: normal for decode at small batch",
    GpuState.BALANCED: "SMs busy, tensor pipe and memory share the work, neither near its limit",
    GpuState.TENSOR_BUSY: "the tensor pipe does the work",
    GpuState.UNKNOWN: "the figures do not decide",
}


def evidence_of(info: GpuInfo, figures: Figures, decision: Decision, context: GpuContext) -> tuple[str, ...]:
    """The chain for one GPU: seen, compared, ruled out, not known."""
    if figures.n == 0:
        return (words.NOT_KNOWN + (decision.why or _silence(context)),)
    seen = [
        text.format(f"{words.number(value)} {unit}")
        for name, text, unit in _FIGURE_WORDS
        if (value := getattr(figures, name)) is not None
    ]
    if figures.power_pct is None and figures.power_w is not None:
        seen.append(f"{words.number(figures.power_w)} W (power limit not known)")
    over = f" (median of {words.plural(figures.n, 'sample')})" if figures.n > 1 else " (one sample)"
    lines = [words.SEEN + (", ".join(seen) or "no figure could be read") + over]
    if decision.note:
        lines.append(words.SEEN + decision.note)
    chain = MEASURED if decision.confidence is Confidence.MEASURED else INFERRED
    ruled: list[str] = []
    for state, tests in steps_until(chain, decision.state, figures):
        if state is decision.state:
            told = [t for t in tests if getattr(figures, t.figure) is not None]
            if told:
                cuts = ", ".join(f"{_NAMES[t.figure]} {t.op} {words.number(t.cut)}" for t in told)
                lines.append(f"{words.COMPARED}{state}: {cuts} ({STATE_WORDS[state]})")
            continue
        failed = next((t for t in tests if holds((t,), figures) is False), None)
        if failed is not None:
            value = words.number(getattr(figures, failed.figure))
            ruled.append(f"{state} ({_NAMES[failed.figure]} {value}, not {failed.op} {words.number(failed.cut)})")
    if ruled:
        lines.append(words.RULED_OUT + "; ".join(ruled))
    lines.extend(_not_known(info, figures, decision))
    return tuple(lines)


def _not_known(info: GpuInfo, figures: Figures, decision: Decision) -> list[str]:
    lines: list[str] = []
    if decision.why:
        lines.append(words.NOT_KNOWN + decision.why)
    elif decision.open_states:
        lines.append(f"{words.NOT_KNOWN}absent figures leave open: {', '.join(decision.open_states)}")
    if decision.confidence is not Confidence.MEASURED:
        reason = "GPM is not supported here" if info.gpm is False else "no GPM values in the window"
        if figures.gpm_wrong:
            reason = "the power drawn contradicts GPM, whose values are left out"
        lines.append(f"{words.NOT_KNOWN}tensor, SM and DRAM activity ({reason})")
    return lines


def _silence(context: GpuContext) -> str:
    if context.silent_s is None:
        return "no sample yet"
    return f"no sample for {words.number(context.silent_s)} s"
