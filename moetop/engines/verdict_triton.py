"""The verdict where a JSON file decides (Triton MoE kernels) and where TensorRT-LLM's own tuner does. Pure."""

from __future__ import annotations

from moetop.engines import remedies
from moetop.engines.case import Case
from moetop.engines.tally import NO_RANK
from moetop.model import Engine, Tuning, TuningFile, Verdict

MAX_NAMED = 4


def _list(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more


def judge_triton(case: Case) -> Tuning:
    """Lines first: they say which file was read; files on disk only where no line speaks."""
    tuning = case.tuning
    evidence: list[str] = []
    if tuning.tuned_files:
        evidence.append(f"a tuned MoE configuration is read: {_list(tuning.tuned_files)}")
    if tuning.fallback_files:
        evidence.append(f"a configuration tuned for another Triton version is read: {_list(tuning.fallback_files)}")
    if tuning.default_files:
        evidence.append(f"no tuned MoE configuration, built-in defaults are used: {_list(tuning.default_files)}")
    if tuning.gemm_default_paths:
        names = tuple(path.rsplit("/", 1)[-1] for path in tuning.gemm_default_paths)
        evidence.append(f"the dense block-FP8 GEMM has no tuned configuration: {_list(names)}")
    if tuning.no_down_files:
        evidence.append("no separate configuration for the down projection: the other one is used for it")
    missing = tuning.default_paths or tuning.gemm_default_paths
    default = bool(tuning.default_files or tuning.gemm_default_paths)
    remedy = remedies.triton_remedy(case.engine, missing, case.model, case.tp, _dtype(missing))
    if default:
        partly = bool(tuning.tuned_files or tuning.fallback_files)
        return _said(Verdict.PARTLY_TUNED if partly else Verdict.UNTUNED, evidence, remedy)
    if tuning.fallback_files:
        return _said(Verdict.PARTLY_TUNED, evidence, remedy)
    if tuning.tuned_files:
        return _said(Verdict.TUNED, evidence, ())
    if tuning.deterministic:
        evidence.append("deterministic inference makes the engine use its default MoE configuration")
        return _said(Verdict.OFF, evidence, ())
    return _judge_tables(case, evidence)


def _judge_tables(case: Case, evidence: list[str]) -> Tuning:
    tables = case.files_of("triton_config")
    there = [file for file in tables if file.exists and file.stale is None]
    missing = [file for file in tables if not file.exists]
    if missing and not there:
        evidence.append(
            f"no line says which configuration is read, and the one for this GPU is not there: {missing[0].path}"
        )
        paths = tuple(file.path for file in missing)
        remedy = remedies.triton_remedy(case.engine, paths, case.model, case.tp, _dtype(paths))
        return _said(Verdict.UNTUNED, evidence, remedy)
    if there:
        evidence.append(f"tables for this GPU are there ({_names(there)}), but no line says that one was read")
    else:
        evidence.append(
            "no line says whether a tuned MoE configuration was read; it appears when a shape is first used"
        )
    return _said(Verdict.UNKNOWN, evidence, ())


def _names(files: list[TuningFile]) -> str:
    return _list(tuple(file.path.rsplit("/", 1)[-1] for file in files))


def _dtype(paths: tuple[str, ...]) -> str | None:
    for path in paths:
        if ",dtype=" in path:
            return path.split(",dtype=", 1)[1].split(",", 1)[0].removesuffix(".json").removesuffix("_down")
    return None


def judge_trtllm(case: Case) -> Tuning:
    """TensorRT-LLM: the size of its cache after warm-up decides; start and end lines prove nothing."""
    tuning = case.tuning
    evidence: list[str] = []
    if tuning.cache_entries is not None:
        evidence.append(f"the tuner's cache held {tuning.cache_entries} entries after warm-up")
    if tuning.uncovered:
        evidence.append(f"the fallback tactic was used for shapes without an entry: {_list(tuple(tuning.uncovered))}")
    remedy = (remedies.RETUNE_TRTLLM,)
    if tuning.cache_entries == 0:
        return _said(Verdict.UNTUNED, evidence, remedy)
    empty = tuple(rank for rank in tuning.cache_empty_ranks if rank != NO_RANK)
    if empty and tuning.cache_entries:
        evidence.append(f"it was empty on {_list(empty)}: the ranks wait for the slowest among them")
        return _said(Verdict.PARTLY_TUNED, evidence, remedy)
    if tuning.uncovered:
        proven = bool(tuning.cache_entries or tuning.ends or tuning.configs_loaded)
        return _said(Verdict.PARTLY_TUNED if proven else Verdict.UNTUNED, evidence, remedy)
    if tuning.cache_entries:
        return _said(Verdict.TUNED, evidence, ())
    caches = [file for file in case.files_of("trtllm_cache") if file.exists]
    stale = next((file for file in caches if file.stale), None)
    if stale is not None:
        evidence.append(f"{stale.path}: {stale.stale}")
        return _said(Verdict.UNKNOWN, evidence, remedy)
    if tuning.starts or tuning.ends:
        evidence.append("the tuner began and ended, which alone does not prove that anything was tuned")
    else:
        evidence.append("no line of the tuner was seen")
    return _said(Verdict.UNKNOWN, evidence, ())


def _said(verdict: Verdict, evidence: list[str], remedy: tuple[str, ...]) -> Tuning:
    return Tuning(verdict=verdict, evidence=tuple(evidence), remedy=remedy)


def is_triton_like(case: Case) -> bool:
    """Whether lines of the Triton path were seen, for a backend that nobody named."""
    tuning = case.tuning
    return bool(tuning.tuned_files or tuning.default_files or tuning.fallback_files or tuning.gemm_default_paths)


def config_hint(case: Case) -> str | None:
    """A sentence for a default-configuration warning under a backend that does not read that file."""
    if not case.tuning.default_files:
        return None
    engine = "vLLM" if case.engine is Engine.VLLM else "the engine"
    return (
        f"{engine} warned that no tuned MoE configuration was found ({_list(case.tuning.default_files)}), "
        "but this backend does not read that file"
    )
