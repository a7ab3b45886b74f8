"""The tuning verdict of a server's newest run, from its log, its process and its tuning files. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from moetop.engines import remedies
from moetop.engines.backends import UNTUNED_BACKENDS, Tuner
from moetop.engines.case import Case, is_false, is_true, make_case
from moetop.engines.digest import LogDigest, ServerFacts
from moetop.engines.literals import scan_literals
from moetop.engines.verdict_flashinfer import judge_flashinfer
from moetop.engines.verdict_triton import config_hint, is_triton_like, judge_triton, judge_trtllm
from moetop.model import Engine, Phase, Tuning, TuningFile, Verdict

__all__ = ["judge_tuning", "scan_literals"]


def judge_tuning(digest: LogDigest, facts: ServerFacts, files: Sequence[TuningFile]) -> Tuning:
    """What is known of the tuning of the newest run, in sentences that claim no more than that."""
    case = make_case(digest, facts, files)
    return _running(case) or _failed(case) or _not_tunable(case) or _off(case) or _by_tuner(case)


def _running(case: Case) -> Tuning | None:
    tuning = case.tuning
    if case.phase is not Phase.TUNING:
        return None
    began = f" at {case.since_text}" if case.since_text else ""
    evidence = [f"tuning began{began} and its end was not seen{_on(tuning.open_ranks)}"]
    if tuning.ended_ranks and tuning.open_ranks and tuning.ended_ranks != ("?",):
        evidence.append(
            f"it has ended{_on(tuning.ended_ranks)}: ranks differ, and one that waits for another may time out"
        )
    for op, (done, total, _) in list(tuning.ops.items())[-2:]:
        evidence.append(f"{op}: {done} of {total} profiled")
    return Tuning(verdict=Verdict.RUNNING, evidence=tuple(evidence))


def _on(ranks: tuple[str, ...]) -> str:
    named = [rank for rank in ranks if rank != "?"]
    if not named:
        return ""
    return " on " + ", ".join(named[:8]) + (f" and {len(named) - 8} more" if len(named) > 8 else "")


def _failed(case: Case) -> Tuning | None:
    tuning = case.tuning
    if case.phase is Phase.CRASHED:
        if tuning.crashed_inside:
            return Tuning(
                verdict=Verdict.FAILED,
                evidence=("the run ended in an error raised inside the tuner",),
                remedy=_without_tuner(case),
            )
        if tuning.open_ranks:
            return Tuning(
                verdict=Verdict.UNKNOWN,
                evidence=(
                    "the run crashed while tuning was open; the last line before a crash is no proof of its cause",
                ),
            )
        return None
    if tuning.failures:
        ops = "the tuner found no valid tactic or met an error"
        return Tuning(verdict=Verdict.FAILED, evidence=(ops,), remedy=_without_tuner(case))
    return None


def _without_tuner(case: Case) -> tuple[str, ...]:
    if case.engine is Engine.SGLANG:
        return ("to serve without tuning until it is fixed: --disable-flashinfer-autotune", remedies.OTHER_BACKEND_MAY)
    if case.engine is Engine.VLLM:
        return (
            "to serve without tuning until it is fixed: --no-enable-flashinfer-autotune",
            remedies.OTHER_BACKEND_MAY,
        )
    return ("to serve without tuning until it is fixed: enable_autotuner: false", remedies.OTHER_BACKEND_MAY)


def _not_tunable(case: Case) -> Tuning | None:
    if case.tuner is not Tuner.NONE:
        return None
    name = case.backend or ""
    evidence = [f"the MoE backend is {name}: {UNTUNED_BACKENDS.get(name, 'it has no tuner')}"]
    hint = config_hint(case)
    if hint:
        evidence.append(hint)
    return Tuning(verdict=Verdict.NOT_TUNABLE, evidence=tuple(evidence), remedy=(remedies.OTHER_BACKEND,))


def _off(case: Case) -> Tuning | None:
    """Switched off by an option, as the log or the arguments say."""
    if case.tuner is Tuner.TRITON:
        return None
    why = _why_off(case)
    if why is None:
        return None
    words = remedies.SWITCH_ON.get(case.engine or Engine.FLASHINFER)
    return Tuning(verdict=Verdict.OFF, evidence=(why,), remedy=(words,) if words else ())


def _why_off(case: Case) -> str | None:
    args = case.args
    if case.tuning.disabled:
        return "the engine said that it skips tuning because it is disabled"
    if case.engine is Engine.TENSORRT_LLM:
        return "enable_autotuner is false" if is_false(args.get("enable_autotuner")) else None
    if case.tuner is not Tuner.FLASHINFER or case.tuning.ops or case.tuning.configs_saved:
        return None
    if case.engine is Engine.SGLANG and is_true(args.get("disable_flashinfer_autotune")):
        return "--disable-flashinfer-autotune is among the arguments"
    if case.engine is not Engine.VLLM:
        return None
    kernel = args.get("kernel_config")
    nested = kernel.get("enable_flashinfer_autotune") if isinstance(kernel, dict) else None
    named = args.get("kernel_config.enable_flashinfer_autotune")
    if any(is_false(value) for value in (args.get("enable_flashinfer_autotune"), nested, named)):
        return "enable_flashinfer_autotune is false among the arguments"
    if is_true(args.get("no_enable_flashinfer_autotune")):
        return "--no-enable-flashinfer-autotune is among the arguments"
    if str(args.get("optimization_level", "")) == "0":
        return "optimization level 0 switches tuning off"
    return None


def _by_tuner(case: Case) -> Tuning:
    if case.tuner is Tuner.FLASHINFER:
        return judge_flashinfer(case)
    if case.tuner is Tuner.TRITON:
        return judge_triton(case)
    if case.tuner is Tuner.TRTLLM:
        return judge_trtllm(case)
    return _unnamed_backend(case)


def _unnamed_backend(case: Case) -> Tuning:
    """The backend is not known: lines decide, silence does not."""
    tuning = case.tuning
    if is_triton_like(case):
        return judge_triton(case)
    if tuning.entered or tuning.no_entries or tuning.oom_fallbacks or tuning.uncovered or tuning.configs_loaded:
        return judge_flashinfer(case)
    if tuning.rejected or tuning.cache_hits or tuning.zero_saves or tuning.configs_saved:
        return judge_flashinfer(case)
    evidence = ["the MoE backend is not known and no line speaks of tuning"]
    if tuning.marlin:
        evidence = ["some layers run on weight-only Marlin kernels, which have no tuner; the MoE backend is not known"]
    return Tuning(verdict=Verdict.UNKNOWN, evidence=tuple(evidence))
