"""The verdict where FlashInfer's tuner decides: its results first, then its silence, then the gate. Pure."""

from __future__ import annotations

from moetop.engines import remedies
from moetop.engines.case import Case
from moetop.engines.gates import (
    FIRST_CACHE,
    FIRST_DEFAULT_ON,
    MIN_CC_MAJOR,
    Answer,
    Outcome,
    cc_major,
    first_release,
    sglang_gate,
)
from moetop.model import Engine, Tuning, TuningFile, Verdict

VACUOUS_S = 1.0
"""Start and end closer than this without a bar: nothing was profiled (logs show 5 ms and 20 ms pairs)."""
MAX_NAMED = 4


def judge_flashinfer(case: Case) -> Tuning:
    """Results outrank everything; where there are none, the cache files, then the gate."""
    good = _results(case)
    bad = _defects(case)
    if good and bad:
        return Tuning(verdict=Verdict.PARTLY_TUNED, evidence=(*good, *bad), remedy=_retry(case))
    if good:
        return Tuning(verdict=Verdict.TUNED, evidence=tuple(good))
    if bad:
        proven = bool(case.tuning.uncovered) and case.tuning.entered > 0 and not _tuned_nothing(case)
        verdict = Verdict.PARTLY_TUNED if proven else Verdict.UNTUNED
        return Tuning(verdict=verdict, evidence=tuple(bad), remedy=_retry(case))
    on_disk = _judge_files(case)
    if on_disk is not None and (case.tuning.entered or not _refuses(case)):
        return on_disk
    if case.tuning.entered:
        return _entered_without_result(case)
    return _never_entered(case)


def _is_moe(op: str) -> bool:
    return "moe" in op.lower()


def _results(case: Case) -> list[str]:
    """Lines that prove tuned MoE kernels."""
    tuning = case.tuning
    found: list[str] = []
    finished = [op for op, (done, total, ended) in tuning.ops.items() if ended or (done >= total > 0)]
    moe = [op for op in finished if _is_moe(op)]
    if moe:
        found.append(f"the tuner profiled {_list(moe)} to the end")
    hits = [op for op in tuning.cache_hits if _is_moe(op)]
    if hits:
        found.append(f"tactics came from the tuning cache for {_list(hits)}")
    if tuning.configs_loaded:
        found.append(f"{tuning.configs_loaded} tuned configurations were loaded from the cache")
    if tuning.configs_saved:
        found.append(f"the tuner saved {tuning.configs_saved} configurations")
    return found


def _tuned_nothing(case: Case) -> bool:
    tuning = case.tuning
    return bool(tuning.oom_fallbacks or tuning.no_entries or (tuning.zero_saves and not tuning.configs_saved))


def _defects(case: Case) -> list[str]:
    """Lines that prove kernels on the default tactic."""
    tuning = case.tuning
    found: list[str] = []
    if tuning.oom_fallbacks:
        found.append(f"the tuner ran out of memory {_times(tuning.oom_fallbacks)} and kept the default tactic there")
    if tuning.zero_saves and not tuning.configs_saved and not tuning.configs_loaded and not tuning.cache_hits:
        memory = case.counts.get("oom", 0)
        if memory:
            found.append(f"the tuner ended but saved 0 configurations, and an allocation failed {_times(memory)}")
        elif (case.backend or "").startswith("flashinfer"):
            found.append("the tuner ended but saved 0 configurations")
    if tuning.no_entries:
        found.append("the tuner left no cache entries: the engine fell back to default tactics")
    if tuning.extend_oom:
        found.append("tuning of prefill sizes was skipped for lack of memory")
    if tuning.uncovered and (tuning.entered or case.ready):
        ops = [op for op in tuning.uncovered if op != "?"]
        found.append("the default tactic served shapes outside the tuned sizes" + (f": {_list(ops)}" if ops else ""))
    return found


def _retry(case: Case) -> tuple[str, ...]:
    tuning = case.tuning
    steps: list[str] = []
    if tuning.oom_fallbacks or tuning.extend_oom or (tuning.zero_saves and case.counts.get("oom")):
        steps.append(remedies.LESS_MEMORY.get(case.engine or Engine.FLASHINFER, remedies.LESS_MEMORY_ANY))
    if tuning.mismatch:
        steps.append(remedies.OTHER_CACHE)
    if not steps or tuning.configs_loaded or tuning.cache_hits:
        steps.append(remedies.RETUNE_FLASHINFER.get(case.engine or Engine.FLASHINFER, remedies.RETUNE_ANY))
    if tuning.uncovered and case.engine is Engine.SGLANG:
        steps.append(remedies.EXTEND_SGLANG)
    return tuple(steps)


def _judge_files(case: Case) -> Tuning | None:
    """The caches on disk, where no line of this run told a result. They prove what a start would read."""
    caches = case.files_of("flashinfer_cache")
    caches = _of_this_run(case, caches)
    fresh = [file for file in caches if file.exists and file.stale is None and _moe_entries(file)]
    if not fresh:
        return None
    missing = [file for file in caches if not file.exists]
    stale = [file for file in caches if file.exists and file.stale]
    evidence = [f"{file.path}: {_moe_entries(file)} tuned MoE entries" for file in fresh[:MAX_NAMED]]
    groups = {file.facts.get("group") for file in fresh}
    if len(groups) > 1 and not case.tuning.cache_paths:
        evidence.append("several configurations have caches there, and which one this server reads is not known")
        return Tuning(verdict=Verdict.UNKNOWN, evidence=tuple(evidence))
    fallback = [file for file in fresh if file.facts.get("fallback_only")]
    short = _short_of_prefill(case, fresh)
    if missing or stale or fallback or short:
        evidence += [f"{file.path} is missing: that rank tunes anew" for file in missing[:MAX_NAMED]]
        evidence += [f"{file.path} is ignored: {file.stale}" for file in stale[:MAX_NAMED]]
        evidence += [
            f"{file.path}: {file.facts['fallback_only']} entries hold only the default tactic" for file in fallback[:1]
        ]
        remedy = _retry(case) if missing or stale or fallback else ()
        extend = (remedies.EXTEND_SGLANG,) if short and case.engine is Engine.SGLANG else ()
        return Tuning(verdict=Verdict.PARTLY_TUNED, evidence=(*evidence, *short), remedy=(*remedy, *extend))
    if case.tuning.entered or case.ready:
        return Tuning(verdict=Verdict.TUNED, evidence=tuple(evidence))
    return None


def _short_of_prefill(case: Case, files: list[TuningFile]) -> tuple[str, ...]:
    """Prefill chunks above the largest tuned size run on the default tactic."""
    sizes = [case.args.get(name) for name in ("chunked_prefill_size", "max_num_batched_tokens")]
    chunk = next((size for size in sizes if isinstance(size, int) and not isinstance(size, bool) and size > 0), None)
    tuned = 0
    for file in files:
        ops = file.facts.get("ops")
        for op, held in ops.items() if isinstance(ops, dict) else ():
            buckets = held.get("buckets") if isinstance(held, dict) and _is_moe(str(op)) else None
            tuned = max([tuned, *(size for size in buckets or () if isinstance(size, int))])
    if chunk is None or not 0 < tuned < chunk:
        return ()
    return (f"tuned sizes end at {tuned} tokens; prefill chunks of up to {chunk} use the default tactic above that",)


def _of_this_run(case: Case, caches: tuple[TuningFile, ...]) -> tuple[TuningFile, ...]:
    """Where the log named its cache, only files of that folder count."""
    folders = {path.rsplit("/", 1)[0] for path in case.tuning.cache_paths}
    mine = tuple(file for file in caches if file.path.rsplit("/", 1)[0] in folders)
    return mine or caches


def _moe_entries(file: TuningFile) -> int:
    """Entries of MoE operators; a file whose operators are not known counts all it has."""
    ops = file.facts.get("ops")
    untuned = file.facts.get("fallback_only")
    less = untuned if isinstance(untuned, int) else 0
    if isinstance(ops, dict):
        total = 0
        for op, held in ops.items():
            entries = held.get("entries") if isinstance(held, dict) else held
            total += entries if isinstance(entries, int) and _is_moe(str(op)) else 0
        return max(0, total - less)
    entries = file.facts.get("entries")
    return max(0, entries - less) if isinstance(entries, int) else 0


def _entered_without_result(case: Case) -> Tuning:
    """It ran; whether it found anything is not said."""
    tuning = case.tuning
    evidence: list[str] = []
    if tuning.rejected:
        parts = ", ".join(f"{key} {old} there, {new} here" for key, (old, new) in _pairs(tuning.mismatch))
        evidence.append(
            "the tuning cache was rejected as made in a different environment" + (f" ({parts})" if parts else "")
        )
    if tuning.ops:
        others = [op for op in tuning.ops if not _is_moe(op)]
        if others:
            evidence.append(f"the tuner profiled {_list(others)}, which are not the MoE kernels")
    if tuning.ends and tuning.seconds is not None and tuning.seconds < VACUOUS_S and not tuning.ops:
        evidence.append(
            f"the tuning pass took {tuning.seconds:g} s: everything came from a warm cache, or nothing was profiled"
        )
    evidence.append(
        "tuning began" + (" and ended" if tuning.ends else "") + ", which alone does not prove that kernels were tuned"
    )
    remedy = (remedies.OTHER_CACHE,) if tuning.rejected else (_tell(case),)
    return Tuning(verdict=Verdict.UNKNOWN, evidence=tuple(evidence), remedy=remedy)


def _pairs(mismatch: dict[str, object]) -> list[tuple[str, tuple[object, object]]]:
    return [
        (key, (value[0], value[1])) for key, value in mismatch.items() if isinstance(value, list) and len(value) == 2
    ]


def ask_gate(case: Case) -> Answer:
    """What the engine's gate says of this backend."""
    if case.engine is Engine.SGLANG:
        return sglang_gate(case.version, case.backend, case.args, case.compute_capability)
    major = cc_major(case.compute_capability)
    if case.engine is Engine.VLLM and major is not None and major < MIN_CC_MAJOR:
        return Answer(
            Outcome.REFUSES,
            f"vLLM tunes FlashInfer kernels from compute capability 9.0 on; this GPU has {case.compute_capability}",
        )
    return Answer(Outcome.UNKNOWN, "whether this build tunes this backend is not known")


def _refuses(case: Case) -> bool:
    return ask_gate(case).outcome in (Outcome.REFUSES, Outcome.OFF)


def _never_entered(case: Case) -> Tuning:
    answer = ask_gate(case)
    if answer.outcome is Outcome.REFUSES:
        evidence = [
            answer.sentence,
            "the verdict rests on version and backend; that the log has no tuner lines proves nothing",
        ]
        return Tuning(verdict=Verdict.NEVER_RAN, evidence=tuple(evidence), remedy=_after_refusal(case))
    if answer.outcome is Outcome.OFF:
        return Tuning(verdict=Verdict.OFF, evidence=(answer.sentence,), remedy=_switch_on(case))
    evidence = [answer.sentence, *_silence(case)]
    return Tuning(verdict=Verdict.UNKNOWN, evidence=tuple(evidence), remedy=(_tell(case),))


def _after_refusal(case: Case) -> tuple[str, ...]:
    major = cc_major(case.compute_capability)
    if major is not None and major < MIN_CC_MAJOR:
        return (remedies.OTHER_BACKEND,)
    steps = [*_upgrade(case), remedies.NO_BUNDLED_FILE]
    if (case.tp or 0) > 2:
        steps.append(remedies.CHECK_ALLREDUCE)
    return tuple(steps)


def _upgrade(case: Case) -> tuple[str, ...]:
    backend = case.backend or ""
    first = first_release(backend)
    return (remedies.upgrade_sglang(backend, first),) if first else (remedies.OTHER_BACKEND,)


def _switch_on(case: Case) -> tuple[str, ...]:
    words = remedies.SWITCH_ON.get(case.engine or Engine.FLASHINFER)
    if case.engine is Engine.SGLANG and not case.at_least(FIRST_DEFAULT_ON):
        return ("restart with --enable-flashinfer-autotune", *_upgrade(case))
    return (words,) if words else ()


def _silence(case: Case) -> list[str]:
    """What the absence of lines means here: mostly nothing."""
    level = case.env.get("FLASHINFER_LOGGING_LEVEL", "").upper()
    if level and level not in ("INFO", "DEBUG"):
        return [f"FLASHINFER_LOGGING_LEVEL={level.lower()} hides the tuner's lines, so their absence proves nothing"]
    if case.engine is Engine.SGLANG and (case.version is None or case.at_least(FIRST_CACHE)):
        own = case.clean and case.ready and str(case.args.get("log_level", "info")) in ("info", "debug")
        return [
            *(("SGLang's own line on entering the tuner is missing though the start is in the log",) if own else ()),
            "no tuner line was seen; SGLang 0.5.12 and later silences FlashInfer and a warm cache needs no tuning, "
            "so that it never ran, ran silently, or found nothing to do cannot be told apart from this log",
        ]
    if not case.clean:
        return ["no tuner line was seen, but the log does not show this run from its start"]
    return ["no tuner line was seen; that it never ran or was not shown cannot be told apart from this log"]


def _tell(case: Case) -> str:
    return remedies.SEE_TUNER.get(case.engine or Engine.FLASHINFER, "to tell: keep the start-up lines at info level")


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _list(names: list[str]) -> str:
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more
