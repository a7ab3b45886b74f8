"""How each engine and backend is tuned, stopped, started and judged: tables with a source in every row.

Nothing here acts; a new engine, backend or version is a row.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from moetop.model import Engine, Verdict
from moetop.retune.types import Tuner


@dataclass(frozen=True)
class Line:
    """A pattern of the server's log (Python `re`, searched in a line) and where its text comes from.

    `tuner` is set where the line speaks of that kind of tuning only: a server whose experts are FlashInfer's may
    well say that some Triton table is missing.
    """

    pattern: str
    source: str
    tuner: Tuner | None = None


@dataclass(frozen=True)
class EngineRecipe:
    """What all backends of an engine share."""

    engine: Engine
    health_path: str
    ready: tuple[Line, ...]
    failed: tuple[Line, ...]
    tuned: tuple[Line, ...]
    untuned: tuple[Line, ...]
    metrics: dict[str, tuple[str, ...]]
    drain: str
    never: tuple[str, ...]
    timeouts: dict[str, float]
    source: str


@dataclass(frozen=True)
class TunerRecipe:
    """How one group of backends is tuned.

    `versions` is [from, before) as printed, None open. `moves` are file names (globs) of the cache's folder
    to move aside. `scripts` are looked for under `bases` and around the installed engine; `argv` is the
    command with {python} {script} {model} {tp} {dtype} {out} filled in; `needs` are packages it imports.
    """

    id: str
    engine: Engine
    backends: frozenset[str]
    tuner: Tuner
    source: str
    versions: tuple[str | None, str | None] = (None, None)
    roles: tuple[str, ...] = ()
    moves: tuple[str, ...] = ()
    cache_env: str | None = None
    scripts: tuple[str, ...] = ()
    bases: tuple[str, ...] = ()
    argv: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    argv_word: str | None = None
    timeouts: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Advice:
    """Why a restart would be for nothing, and what helps instead."""

    code: str
    text: str
    advice: str
    source: str
    verdicts: frozenset[Verdict]


DEFAULT_TIMEOUTS: dict[str, float] = {
    "baseline_s": 10.0,
    "drain_s": 300.0,
    "ask_s": 60.0,
    "stop_s": 60.0,
    "tune_s": 14400.0,
    "start_s": 2700.0,
    "verify_s": 15.0,
    "settle_s": 60.0,
}
"""Seconds. 45 min for a start: public logs show 3-11 min of tuning an operator after loading and compiling;
a draining SGLang waits without limit; the rest is judgement. `health_s` in a configuration means verify_s."""

_CUDA_FAILED = (
    Line(r"(?:OutOfMemoryError|MemoryError)?:? ?CUDA (?:error: )?out of memory", "torch; TVM-FFI in cutlass_fused_moe"),
    Line(r"CUDA error: an illegal memory access was encountered", "CUDA"),
    Line(r"Watchdog caught collective operation timeout: WorkNCCL", "torch ProcessGroupNCCL.cpp"),
)
_FLASHINFER_UNTUNED = (
    Line(
        r"\[Autotuner\]: OOM detected, falling back to default tactic", "flashinfer autotuner.py:1897", Tuner.AT_START
    ),
)

ENGINES: dict[Engine, EngineRecipe] = {
    Engine.SGLANG: EngineRecipe(
        engine=Engine.SGLANG,
        health_path="/health",
        ready=(Line(r"The server is fired up and ready to roll!", "sglang 0.5.18 http_server.py:2402"),),
        failed=(
            Line(r"Scheduler hit an exception: Traceback", "sglang 0.5.18 scheduler.py:5068"),
            Line(r"Received sigquit from a child process", "sglang 0.5.18 engine.py:1728"),
            Line(
                r"SIGQUIT received\. signum=.* It usually means one child failed",
                "sglang 0.5.18 tokenizer_manager.py:3632",
            ),
            Line(r"Rank \d+ scheduler (?:is dead|died during initialization)", "sglang 0.5.18 engine.py:1786"),
            Line(r"Subprocess \S+ \(pid=\d+\) crashed with exit code -?\d+", "sglang 0.5.18 watchdog.py:219"),
            Line(r"Capture cuda graph failed: ", "sglang 0.5.18 decode_cuda_graph_runner.py:464"),
            Line(
                r"Not enough memory\. Please try to increase --mem-fraction-static",
                "sglang 0.5.18 pool_configurator.py:74",
            ),
            *_CUDA_FAILED,
        ),
        tuned=(
            Line(
                r"Using MoE kernel config from .+\.json", "sglang 0.5.18 fused_moe_triton_config.py:110", Tuner.OFFLINE
            ),
            Line(r"FlashInfer autotune completed\.", "sglang 0.5.18 flashinfer_autotune.py:206", Tuner.AT_START),
        ),
        untuned=(
            Line(
                r"Using default MoE kernel config\. Performance might be sub-optimal!",
                "sglang 0.5.18 fused_moe_triton_config.py:164",
                Tuner.OFFLINE,
            ),
            *_FLASHINFER_UNTUNED,
        ),
        metrics={
            "running": ("sglang:num_running_reqs",),
            "waiting": ("sglang:num_queue_reqs",),
            "generated": ("sglang:generation_tokens_total",),
        },
        drain="the parent answers 503 from then on and lets running requests end, without a limit of its own",
        never=(
            "never SIGQUIT: SGLang takes it for a dead child and kills itself at once",
            "never start while a process of the old server holds a GPU",
        ),
        timeouts={},
        source="sglang 0.5.18 tokenizer_manager.py:3114-3153, common.py:3121",
    ),
    Engine.VLLM: EngineRecipe(
        engine=Engine.VLLM,
        health_path="/health",
        ready=(Line(r"Application startup complete\.", "uvicorn"),),
        failed=(
            Line(r"Engine core initialization failed|EngineCore failed to start", "vllm utils.py:1287 @ 017e9f4"),
            Line(r"EngineCore encountered a(?: fatal error|n issue)", "vllm core.py:1348 @ 017e9f4"),
            Line(r"Worker proc \S+ died unexpectedly", "vllm multiproc_executor.py:312 @ 017e9f4"),
            Line(
                r"WorkerProc (?:hit an exception|failed to start|failed)\.", "vllm multiproc_executor.py:1047 @ 017e9f4"
            ),
            Line(r"Free memory on device \S+ .* on startup is less than desired", "vllm utils.py:455 @ 017e9f4"),
            Line(r"No available memory for the cache blocks", "vllm kv_cache_utils.py:739 @ 017e9f4"),
            *_CUDA_FAILED,
        ),
        tuned=(
            Line(r"Using configuration from .+\.json for MoE layer", "vllm fused_moe.py:1149 @ 017e9f4", Tuner.OFFLINE),
            Line(r"\[Autotuner\]: Saved \d+ configs to ", "flashinfer autotuner.py:2653", Tuner.AT_START),
            Line(r"\[AutoTuner\]: Tuning \S+:\s*100%", "flashinfer autotuner.py:1767", Tuner.AT_START),
        ),
        untuned=(
            Line(
                r"Using default MoE config\. Performance might be sub-optimal!",
                "vllm fused_moe.py:1162 @ 017e9f4",
                Tuner.OFFLINE,
            ),
            Line(
                r"Skipping FlashInfer autotune because it is disabled",
                "vllm kernel_warmup.py:170 @ 017e9f4",
                Tuner.AT_START,
            ),
            Line(
                r"No FlashInfer autotune cache entries found",
                "vllm kernel_warmup.py:160 (2026-05..08)",
                Tuner.AT_START,
            ),
            *_FLASHINFER_UNTUNED,
        ),
        metrics={
            "running": ("vllm:num_requests_running",),
            "waiting": ("vllm:num_requests_waiting",),
            "generated": ("vllm:generation_tokens_total", "vllm:generation_tokens"),
        },
        drain="the parent waits --shutdown-timeout seconds (by default 0: requests are cut)",
        never=("never start while VLLM::EngineCore or VLLM::Worker of the old server hold a GPU",),
        timeouts={},
        source="vllm 27066d1b2b (2026-03-05), utils.py:455",
    ),
    Engine.TENSORRT_LLM: EngineRecipe(
        engine=Engine.TENSORRT_LLM,
        health_path="/health",
        ready=(Line(r"Application startup complete\.", "uvicorn"),),
        failed=_CUDA_FAILED,
        tuned=(Line(r"\[Autotuner\] Cache size after warmup is [1-9]\d*", "tensorrt_llm model_engine.py"),),
        untuned=(
            Line(r"\[Autotuner\] Cache size after warmup is 0\b", "tensorrt_llm model_engine.py"),
            Line(r"\[Autotuner\] No valid runner/tactic was found for custom_op=", "tensorrt_llm autotuner.py"),
        ),
        metrics={},
        drain="trtllm-serve ends its child, waits 10 s, then kills it (running requests are cut)",
        never=("never share one cache path between models or over a network file system",),
        timeouts={},
        source="tensorrt_llm serve.py _signal_handler_cleanup_child @ 4c05a74",
    ),
}

_FLASHINFER = frozenset({
    "flashinfer_trtllm", "flashinfer_trtllm_routed", "flashinfer_mxfp4", "flashinfer_cutedsl", "flashinfer_cutlass",
    "flashinfer_megamoe",
})  # fmt: skip
_TRITON = frozenset({"triton", "triton_kernel", "triton_unfused", "batched_triton"})

TUNERS: tuple[TunerRecipe, ...] = (
    TunerRecipe(
        id="minimoe",
        engine=Engine.SGLANG,
        backends=_TRITON,
        tuner=Tuner.OFFLINE,
        argv_word="minimoe",
        roles=("triton_config",),
        scripts=("tune.py", "../tune.py"),
        argv=("{python}", "{script}", "--model", "{model}", "--tp-size", "{tp}", "--dtype", "{dtype}", "--tune"),
        timeouts={"tune_s": 1800.0, "start_s": 300.0, "drain_s": 60.0},
        source="examples/minimoe/tune.py",
    ),
    TunerRecipe(
        id="sglang-flashinfer",
        engine=Engine.SGLANG,
        backends=_FLASHINFER,
        tuner=Tuner.AT_START,
        roles=("flashinfer_cache",),
        moves=("rank_tp*_pp*_dp*.json",),
        versions=("0.5.6", None),
        timeouts={"start_s": 5400.0},
        source="sglang 0.5.18 flashinfer_autotune.py:131-170: one file a rank; a part of them misleads the ranks",
    ),
    TunerRecipe(
        id="vllm-flashinfer",
        engine=Engine.VLLM,
        backends=_FLASHINFER | {"flashinfer_b12x"},
        tuner=Tuner.AT_START,
        roles=("flashinfer_cache",),
        moves=("autotune_configs.json",),
        timeouts={"start_s": 5400.0},
        source="vllm warmup/flashinfer_autotune_cache.py @ 017e9f4",
    ),
    TunerRecipe(
        id="sglang-triton",
        engine=Engine.SGLANG,
        backends=_TRITON,
        tuner=Tuner.OFFLINE,
        roles=("triton_config",),
        scripts=("benchmark/kernels/fused_moe_triton/tuning_fused_moe_triton.py",),
        bases=("/sgl-workspace/sglang", "~/sglang", "/workspace/sglang"),
        argv=("{python}", "{script}", "--model", "{model}", "--tp-size", "{tp}", "--dtype", "{dtype}", "--tune"),
        needs=("ray",),
        source="sglang 0.5.18 tuning_fused_moe_triton.py, fused_moe_triton_config.py:84-106",
    ),
    TunerRecipe(
        id="vllm-triton",
        engine=Engine.VLLM,
        backends=_TRITON,
        tuner=Tuner.OFFLINE,
        roles=("triton_config",),
        scripts=("benchmarks/kernels/benchmark_moe.py",),
        bases=("/vllm-workspace", "~/vllm", "/workspace/vllm"),
        argv=("{python}", "{script}", "--model", "{model}", "--tp-size", "{tp}", "--dtype", "{dtype}", "--tune",
              "--save-dir", "{out}"),
        needs=("ray",),
        source="vllm benchmarks/kernels/benchmark_moe.py, fused_moe.py:1089-1166 @ 017e9f4",
    ),
    TunerRecipe(
        id="trtllm-cache",
        engine=Engine.TENSORRT_LLM,
        backends=frozenset({"trtllm", "cutlass", "trtllmgen", "cutedsl", "auto"}),
        tuner=Tuner.AT_START,
        roles=("trtllm_cache",),
        cache_env="TLLM_AUTOTUNER_CACHE_PATH",
        timeouts={"start_s": 5400.0},
        source="tensorrt_llm _torch/autotuner.py @ b35ac1b: a stale cache is used without a check, so it must go",
    ),
)  # fmt: skip

REFUSALS: tuple[Advice, ...] = (
    Advice(
        code="not_tunable",
        text="backend {backend} has no tuner: a restart would change nothing",
        advice="another MoE backend may suit this GPU better; see the finding's remedy",
        verdicts=frozenset({Verdict.NOT_TUNABLE}),
        source="sglang and vllm: cutlass, marlin, deep_gemm and emulation read no tuned table",
    ),
    Advice(
        code="never_ran",
        text="this release's gate keeps the tuner from running for {backend}: a restart alone would change nothing",
        advice="upgrade (SGLang 0.5.16 or later tunes flashinfer_cutlass), keep the backend, then retune",
        verdicts=frozenset({Verdict.NEVER_RAN}),
        source="sglang 0.5.7-0.5.12 _should_run_flashinfer_autotune; first release that includes it: 0.5.13",
    ),
    Advice(
        code="tuning_off",
        text="tuning is switched off by an option of this server: a restart with the same command would change nothing",
        advice="give `start:` in the configuration without --disable-flashinfer-autotune or its like",
        verdicts=frozenset({Verdict.OFF}),
        source="sglang --disable-flashinfer-autotune, vllm --no-enable-flashinfer-autotune",
    ),
    Advice(
        code="tuning_now",
        text="the server is tuning right now",
        advice="wait for its end; moetop shows the progress",
        verdicts=frozenset({Verdict.RUNNING}),
        source="a restart would throw the work away",
    ),
)


def version_key(text: str) -> tuple[int, ...]:
    """The numbers of a version before any suffix, for comparison: 0.5.12.post1 -> (0, 5, 12)."""
    match = re.match(r"v?(\d+(?:\.\d+)*)", text)
    return tuple(int(part) for part in match[1].split(".")) if match else ()


def _in_range(version: str | None, bounds: tuple[str | None, str | None]) -> bool:
    """An unknown version is inside: the row says how this engine is tuned at all."""
    if version is None:
        return True
    key = version_key(version)
    low, high = bounds
    return (low is None or key >= version_key(low)) and (high is None or key < version_key(high))


def find_tuner(
    engine: Engine | None, backend: str | None, version: str | None, words: tuple[str, ...]
) -> TunerRecipe | None:
    """The first row that fits; None if there is none. `words` are the command's first ones and the model."""
    for row in TUNERS:
        if row.argv_word is not None and not any(row.argv_word in part for part in words):
            continue
        if row.engine == engine and backend in row.backends and _in_range(version, row.versions):
            return row
    return None


def timeouts_for(engine: EngineRecipe, row: TunerRecipe | None, given: dict[str, float]) -> dict[str, float]:
    """Seconds of every step: defaults, the engine's, the row's, then the configuration's."""
    merged = {**DEFAULT_TIMEOUTS, **engine.timeouts, **(row.timeouts if row else {})}
    for key, value in given.items():
        merged["verify_s" if key == "health_s" else key] = float(value)
    return merged
