"""Lines of TensorRT-LLM (PyTorch backend). A table, no code."""

from __future__ import annotations

from moetop.engines import fields as f
from moetop.engines.rule import TRT, Rule
from moetop.model import EventKind as K
from moetop.model import EventSeverity as S

RULES: tuple[Rule, ...] = (
    Rule(
        id="tl.version",
        kind=K.NOTE,
        severity=S.INFO,
        engines=TRT,
        pattern=r"\[TensorRT-LLM\] TensorRT[- ]LLM version: (?P<version>\S{1,60})",
        literals=("llm version: ",),
        meaning="version banner",
        source="tensorrt_llm __init__.py",
        example="[TensorRT-LLM] TensorRT LLM version: 1.2.0rc5",
    ),
    Rule(
        id="tl.args",
        kind=K.NOTE,
        severity=S.INFO,
        engines=TRT,
        pattern=r"(?:LLM Args|llm_args)[:=] ?(?:TorchLlmArgs)?[({]?(?P<args>.{0,200})",
        literals=(
            "llm args",
            "llm_args",
        ),
        meaning="arguments of the LLM",
        source="tensorrt_llm llm_args.py",
        example="[12/20/2025-04:20:00] [TRT-LLM] [I] LLM Args: model=m tensor_parallel_size=8",
    ),
    Rule(
        id="tl.warm",
        kind=K.WARMUP,
        severity=S.INFO,
        engines=TRT,
        pattern=r"Running autotuner warmup",
        literals=("running autotuner warmup",),
        meaning="autotuner warmup forward begins",
        source="tensorrt_llm model_engine.py",
        example="[12/20/2025-04:21:10] [TRT-LLM] [I] Running autotuner warmup...",
    ),
    Rule(
        id="tl.tune.start",
        kind=K.AUTOTUNE_START,
        severity=S.INFO,
        engines=TRT,
        pattern=r"\[Autotuner\]:? Autotuning process starts",
        literals=("autotuning process starts",),
        meaning="tuning context opened (no colon after [Autotuner], unlike FI; old builds had the colon)",
        source="tensorrt_llm autotuner.py",
        example="[12/20/2025-04:21:10] [TRT-LLM] [I] [Autotuner] Autotuning process starts ...",
    ),
    Rule(
        id="tl.tune.end",
        kind=K.AUTOTUNE_END,
        severity=S.INFO,
        engines=TRT,
        pattern=r"\[Autotuner\]:? Autotuning process ends",
        literals=("autotuning process ends",),
        meaning="tuning context closed",
        source="tensorrt_llm autotuner.py",
        example="[12/20/2025-04:21:37] [TRT-LLM] [I] [Autotuner] Autotuning process ends",
    ),
    Rule(
        id="tl.tune.size0",
        kind=K.AUTOTUNE_CACHE_SIZE,
        severity=S.WARN,
        engines=TRT,
        pattern=r"\[Auto[Tt]uner\]:? Cache size after warmup is (?P<entries>0)\b",
        literals=("autotuner]",),
        meaning="nothing was tuned",
        source="tensorrt_llm model_engine.py",
        example="[12/20/2025-04:21:37] [TRT-LLM] [I] [Autotuner] Cache size after warmup is 0",
    ),
    Rule(
        id="tl.tune.size",
        kind=K.AUTOTUNE_CACHE_SIZE,
        severity=S.GOOD,
        engines=TRT,
        pattern=r"\[Auto[Tt]uner\]:? Cache size after warmup is (?P<entries>\d+)",
        literals=("autotuner]",),
        meaning="0 = nothing tuned",
        source="tensorrt_llm model_engine.py",
        example="[12/20/2025-04:21:37] [TRT-LLM] [I] [Autotuner] Cache size after warmup is 28",
    ),
    Rule(
        id="tl.cache.load",
        kind=K.AUTOTUNE_CACHE_LOADED,
        severity=S.INFO,
        engines=TRT,
        pattern=r"\[Autotuner\]:? Loading cache from (?P<path>\S{1,1000})",
        literals=("autotuner]",),
        meaning="cache file read",
        source="tensorrt_llm autotuner.py",
        example="[12/20/2025-04:21:10] [TRT-LLM] [I] [Autotuner] Loading cache from /tmp/cache.rank0.json",
    ),
    Rule(
        id="tl.cache.ok",
        kind=K.AUTOTUNE_CACHE_LOADED,
        severity=S.INFO,
        engines=TRT,
        pattern=r"\[AutoTuner\]:? Successfully loaded cache from (?P<path>\S{1,1000})",
        literals=("autotuner]",),
        meaning="cache file read",
        source="tensorrt_llm autotuner.py",
        example=(
            "[12/20/2025-04:21:10] [TRT-LLM] [I] [AutoTuner] Successfully loaded cache from /tmp/cache.json "
            "using JSON format"
        ),
    ),
    Rule(
        id="tl.cache.save",
        kind=K.AUTOTUNE_CACHE_SAVED,
        severity=S.INFO,
        engines=TRT,
        pattern=(
            r"\[Autotuner\]:? Saving cache to (?P<path>\S{1,1000})|\[AutoTuner\] Successfully saved cache to "
            r"(?P<path2>\S{1,1000})"
        ),
        literals=("autotuner]",),
        meaning="cache file written",
        source="tensorrt_llm autotuner.py",
        example="[12/20/2025-04:21:10] [TRT-LLM] [I] [Autotuner] Saving cache to /tmp/cache.json",
        parse=f.trt_saved,
    ),
    Rule(
        id="tl.fallback",
        kind=K.AUTOTUNE_UNCOVERED_SHAPE,
        severity=S.WARN,
        engines=TRT,
        pattern=(
            r"\[AutoTunn?er\]:? (?:(?P<op>\S{1,200}) using|Using) the fallback tactic, due to cache miss on input "
            r"shapes"
        ),
        literals=("the fallback tactic, due to cache miss",),
        meaning="untuned shape served (once per op)",
        source="tensorrt_llm autotuner.py",
        example=(
            "[TRT-LLM] [W] [_torch][RANK 3] [AutoTuner] trtllm::fused_moe::gemm1 using the fallback tactic, due "
            "to cache miss on input shapes=(torch.Size([64, 3072]),)"
        ),
    ),
    Rule(
        id="tl.tune.fail",
        kind=K.AUTOTUNE_TACTIC_SKIPPED,
        severity=S.NOTICE,
        engines=TRT,
        pattern=r"\[Autotuner\]:? Failed when profiling runner=",
        literals=("failed when profiling runner=",),
        meaning="tactic failed",
        source="tensorrt_llm autotuner.py",
        example=(
            "[12/20/2025-04:21:20] [TRT-LLM] [W] [Autotuner] Failed when profiling runner=<x>, tactic=3, shapes=[...]"
        ),
    ),
    Rule(
        id="tl.tune.error",
        kind=K.AUTOTUNE_TACTIC_SKIPPED,
        severity=S.NOTICE,
        engines=TRT,
        pattern=r"\[Autotuner\]:? New tuning error occurs",
        literals=("autotuner]",),
        meaning="the tuner met an error",
        source="tensorrt_llm autotuner.py",
        example=(
            "[12/20/2025-04:21:20] [TRT-LLM] [W] [Autotuner] New tuning error occurs: Total failed profiling "
            "tactics occurs: 1 for custom_op=trtllm::fused_moe::gemm1."
        ),
        echo=True,
    ),
    Rule(
        id="tl.cache.bad",
        kind=K.AUTOTUNE_CACHE_REJECTED,
        severity=S.WARN,
        engines=TRT,
        pattern=r"\[AutoTuner\]:? Failed to (?:save|load) cache",
        literals=("autotuner]",),
        meaning="cache file could not be read or written",
        source="tensorrt_llm autotuner.py",
        example="[12/20/2025-04:21:20] [TRT-LLM] [E] [AutoTuner] Failed to load cache with JSON: no such key",
    ),
    Rule(
        id="tl.tune.none",
        kind=K.AUTOTUNE_FAILED,
        severity=S.ERROR,
        engines=TRT,
        pattern=r"\[Autotuner\]:? No valid runner/tactic was found(?: for custom_op=(?P<op>[^\s,]{1,200}))?",
        literals=("no valid runner/tactic was found",),
        meaning="no valid tactic for an op",
        source="tensorrt_llm autotuner.py",
        example=(
            "[12/20/2025-04:21:20] [TRT-LLM] [W] [Autotuner] No valid runner/tactic was found for "
            "custom_op=trtllm::fused_moe::gemm1, input_shapes=..."
        ),
    ),
    Rule(
        id="tl.graphs",
        kind=K.GRAPH_CAPTURE_START,
        severity=S.INFO,
        engines=TRT,
        pattern=r"Creating CUDA graph instances for (?P<batch_sizes>\d+) batch sizes",
        literals=("creating cuda graph instances",),
        meaning="graphs about to be captured",
        source="tensorrt_llm model_engine.py",
        example="[12/20/2025-04:21:53] [TRT-LLM] [I] Creating CUDA graph instances for 11 batch sizes.",
    ),
    Rule(
        id="tl.initfail",
        kind=K.CRASH,
        severity=S.FATAL,
        engines=TRT,
        pattern=r"Failed to initialize executor on rank (?P<failed_rank>\d+): (?P<error>.{0,300})",
        literals=("failed to initialize executor on rank",),
        meaning="the executor of a rank failed to start",
        source="tensorrt_llm worker.py",
        example=(
            "[01/14/2026-09:14:20] [TRT-LLM] [RANK 0] [E] Failed to initialize executor on rank 0: list index "
            "out of range"
        ),
        block=True,
    ),
    Rule(
        id="tl.loopfail",
        kind=K.CRASH,
        severity=S.FATAL,
        engines=TRT,
        pattern=r"(?:Error in event loop|Hang detected on rank)(?::? (?P<error>.{0,300}))?",
        literals=(
            "error in event loop",
            "hang detected on rank",
        ),
        meaning="the executor loop died",
        source="tensorrt_llm py_executor.py",
        example="[01/14/2026-09:14:20] [TRT-LLM] [RANK 0] [E] Error in event loop: CUDA error",
        block=True,
    ),
    Rule(
        id="tl.weights",
        kind=K.WEIGHTS_PROGRESS,
        severity=S.INFO,
        engines=TRT,
        pattern=(
            r"(?:Loading weights(?: concurrently)?|Loading safetensors weights in parallel|Prefetching "
            r".{1,60}?checkpoint files):\s{0,9}(?P<pct>\d+)%\|[^|]{0,300}\|\s{0,9}(?P<n>\d+)/(?P<tot>\d+)"
        ),
        literals=(
            "loading weights:",
            "loading weights concurrently:",
            "loading safetensors weights in parallel:",
            "checkpoint files:",
        ),
        meaning="weights being loaded (bar)",
        source="tensorrt_llm model_loader.py",
        example="Loading weights concurrently:  44%|####4     | 400/900 [00:10<00:12, 40.00it/s]",
        counted=True,
        parse=f.bar,
    ),
    Rule(
        id="tl.kv",
        kind=K.KV_CACHE,
        severity=S.INFO,
        engines=TRT,
        pattern=r"Allocated (?P<GiB>[\d.]+) GiB for max tokens in paged KV cache \((?P<tokens>\d+)\)",
        literals=("in paged kv cache",),
        meaning="KV cache allocated",
        source="tensorrt_llm kvCacheManager.cpp",
        example=(
            "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 61.02 GiB for max tokens in paged KV cache (1290624)."
        ),
    ),
    Rule(
        id="tl.iter",
        kind=K.STEP_TIME,
        severity=S.METRIC,
        engines=TRT,
        pattern=r"\biter = (?P<it>\d+), .{0,400}?host_step_time = [\d.]+ ?ms",
        literals=("iter = ",),
        meaning="per-iteration line when print_iter_log: true",
        source="tensorrt_llm py_executor.py",
        example=(
            "[08/04/2026-19:08:13] [TRT-LLM] [I] [_torch][RANK 0] iter = 7, global_rank = 0, rank = 0, "
            "num_scheduled_requests = 8, kv_cache_util = 0.125, currank_total_requests = 1/8, host_step_time = "
            "7.4ms, prev_device_step_time = 7.1ms, timestamp = 2026-08-04 19:08:13, states = "
            "{'num_ctx_requests': 0, 'num_ctx_tokens': 0, 'num_generation_tokens': 8}"
        ),
        parse=f.trt_iteration,
    ),
)
