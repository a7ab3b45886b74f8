"""Lines of vLLM: arguments, backends, tuning. A table, no code."""

from __future__ import annotations

from moetop.engines import fields as f
from moetop.engines.rule import ANY, SGL_VLLM, VLLM, Rule
from moetop.model import EventKind as K
from moetop.model import EventSeverity as S

RULES: tuple[Rule, ...] = (
    Rule(
        id="vl.version",
        kind=K.NOTE,
        severity=S.INFO,
        engines=VLLM,
        pattern=r"vLLM (?:API )?server version (?P<version>[^\s,]+)",
        literals=(
            "vllm server version",
            "vllm api server version",
        ),
        meaning="version banner",
        source="vllm 0.10 api_server.py:1755",
        example="(APIServer pid=1) INFO 07-24 10:00:00 [api_server.py:1755] vLLM API server version 0.10.0",
        versions='vLLM >=2026-01 "vLLM server version X, serving model Y"; <=0.10 "vLLM API server version X"',
    ),
    Rule(
        id="vl.engine",
        kind=K.NOTE,
        severity=S.INFO,
        engines=VLLM,
        pattern=r"Initializing a V\d LLM engine \(v(?P<version>[^)\s]{1,60})\)",
        literals=("llm engine (v",),
        meaning="version of the engine",
        source="vllm core.py",
        example=(
            "(EngineCore_DP0 pid=214) INFO 08-17 10:00:00 [core.py:77] Initializing a V1 LLM engine (v0.11.0) "
            "with config: model=m"
        ),
        parse=f.vllm_engine,
    ),
    Rule(
        id="vl.args.ns",
        kind=K.SERVER_ARGS,
        severity=S.INFO,
        engines=VLLM,
        pattern=r"\bargs: Namespace\(",
        literals=("args: namespace(",),
        meaning="arguments of the API server (up to 0.9)",
        source="vllm 0.8 api_server.py",
        example=(
            "INFO 05-03 17:40:23 [api_server.py:1043] args: Namespace(subparser='serve', model='m', port=8000, "
            "tensor_parallel_size=8)"
        ),
        parse=f.sglang_args,
    ),
    Rule(
        id="vl.args",
        kind=K.SERVER_ARGS,
        severity=S.INFO,
        engines=VLLM,
        pattern=r"non-default args: \{",
        literals=("non-default args: {",),
        meaning="CLI args that differ from defaults (python dict repr)",
        source="vllm api_utils.py:272 @ 017e9f4",
        example=(
            "(APIServer pid=1) INFO 08-17 10:00:00 [api_utils.py:272] non-default args: {'model': 'm', "
            "'tensor_parallel_size': 8}"
        ),
        parse=f.vllm_args,
    ),
    Rule(
        id="vl.moe.backend",
        kind=K.MOE_BACKEND_SELECTED,
        severity=S.INFO,
        engines=VLLM,
        pattern=r"Using '?(?P<backend>[A-Z0-9_]+)'? (?P<quant>\w{2,20}) MoE backend",
        literals=(" moe backend",),
        meaning="MoE kernel chosen",
        source="vllm nvfp4.py:216 @ 017e9f4",
        example=(
            "(EngineCore_DP0 pid=214) INFO 08-17 10:00:00 [nvfp4.py:244] Using 'FLASHINFER_CUTLASS' NvFp4 MoE "
            "backend out of potential backends: ['FLASHINFER_TRTLLM', 'FLASHINFER_CUTLASS', 'MARLIN']."
        ),
    ),
    Rule(
        id="vl.marlin.backend",
        kind=K.MOE_BACKEND_SELECTED,
        severity=S.INFO,
        engines=VLLM,
        pattern=r"Using (?P<backend>Marlin|Triton|FlashInfer MXFP4[\w ]{1,60}?) backend(?! on V\d)",
        literals=(
            "using marlin backend",
            "using triton backend",
            "using flashinfer mxfp4",
        ),
        meaning="MXFP4 experts on Marlin (weight-only)",
        source="vllm mxfp4.py",
        example="(VllmWorker pid=51014) INFO 08-15 12:12:03 [mxfp4.py:93] Using Marlin backend",
        parse=f.named_backend,
    ),
    Rule(
        id="vl.triton.tuned",
        kind=K.MOE_CONFIG_TUNED,
        severity=S.GOOD,
        engines=SGL_VLLM,
        pattern=r"Using configuration from (?P<path>\S.{0,1500}?\.json) for MoE layer",
        literals=("using configuration from ",),
        meaning="Triton MoE JSON found",
        source="vllm fused_moe.py:1149 @ 017e9f4",
        example=(
            "(EngineCore_DP0 pid=214) INFO 08-17 10:00:00 [fused_moe.py:1148] Using configuration from "
            "/cfg/E=8,N=1.json for MoE layer."
        ),
        parse=f.used_config,
    ),
    Rule(
        id="vl.triton.default",
        kind=K.MOE_CONFIG_DEFAULT,
        severity=S.WARN,
        engines=SGL_VLLM,
        pattern=r"Using default MoE config\. Performance might be sub-optimal!",
        literals=("using default moe config",),
        meaning=(
            "Triton MoE untuned; last path(s) = file(s) searched, comma separated (file names contain commas: "
            'split on "\\.json")'
        ),
        source="vllm fused_moe.py:1162 @ 017e9f4",
        example=(
            "(Worker_TP0 pid=3) WARNING 08-17 10:00:00 [fused_moe.py:1161] Using default MoE config. Performance "
            "might be sub-optimal! Config file not found at /p/configs/E=256,N=256,device_name=NVIDIA_B200.json"
        ),
        parse=f.missing_config,
        needs="path",
    ),
    Rule(
        id="vl.fp8.default",
        kind=K.GEMM_CONFIG_DEFAULT,
        severity=S.WARN,
        engines=VLLM,
        pattern=r"Using default W8A8 Block FP8 kernel config",
        literals=("using default w8a8 block fp8 kernel config",),
        meaning="W8A8 block-FP8 dense untuned",
        source="vllm fp8_utils.py:853 @ 017e9f4",
        example=(
            "(Worker_TP0 pid=3) WARNING 08-17 10:00:00 [fp8_utils.py:852] Using default W8A8 Block FP8 kernel "
            "config. Performance might be sub-optimal! Config file not found at /p/N=1.json"
        ),
        parse=f.missing_config,
        needs="path",
    ),
    Rule(
        id="vl.tune.tokens",
        kind=K.AUTOTUNE_START,
        severity=S.INFO,
        engines=VLLM,
        pattern=r"Running FlashInfer autotune with (?P<tokens>\d+) tokens",
        literals=("running flashinfer autotune with ",),
        meaning="engine entered FlashInfer tuning with a number of tokens",
        source="vllm 0.29 kernel_warmup.py",
        example=(
            "(Worker_TP0 pid=310) INFO 08-20 10:02:11 [kernel_warmup.py:358] Running FlashInfer autotune with "
            "2048 tokens and token buckets (1, 2, 4, 8)"
        ),
    ),
    Rule(
        id="vl.tune.failed",
        kind=K.AUTOTUNE_FAILED,
        severity=S.ERROR,
        engines=ANY,
        pattern=(
            r"\b[Aa]utotun(?:e|ing) (?:failed|error|timed out)(?:[:;] ?(?P<error>.{0,300}))?|[Ff]ailed (?:to "
            r"run|during) FlashInfer autotun"
        ),
        literals=(
            "autotune failed",
            "autotuning failed",
            "autotune error",
            "autotuning error",
            "autotune timed out",
            "autotuning timed out",
            "run flashinfer autotun",
            "during flashinfer autotun",
        ),
        meaning="the tuner itself failed and the engine went on",
        source="vllm kernel_warmup.py",
        example=(
            "(EngineCore_DP0 pid=214) WARNING 08-17 10:00:00 [kernel_warmup.py:170] FlashInfer autotune failed: "
            "CUDA error"
        ),
    ),
    Rule(
        id="vl.tune.off",
        kind=K.AUTOTUNE_DISABLED,
        severity=S.WARN,
        engines=VLLM,
        pattern=r"Skipping FlashInfer autotune because it is disabled",
        literals=("skipping flashinfer autotune because it is disabled",),
        meaning=(
            "autotune disabled (-O0 or --no-enable-flashinfer-autotune; default between 2026-05-03 and 2026-05-18)"
        ),
        source="vllm kernel_warmup.py:170 @ 017e9f4",
        example=(
            "(EngineCore_DP0 pid=214) INFO 08-17 10:00:00 [kernel_warmup.py:170] Skipping FlashInfer autotune "
            "because it is disabled."
        ),
    ),
    Rule(
        id="vl.tune.cache",
        kind=K.NOTE,
        severity=S.INFO,
        engines=VLLM,
        pattern=r"Using FlashInfer autotune cache file: (?P<path>\S.{0,1000}?)\s{0,20}$",
        literals=("using flashinfer autotune cache file: ",),
        meaning="cache path",
        source="vllm kernel_warmup.py:260 @ 017e9f4",
        example=(
            "(EngineCore_DP0 pid=214) INFO 08-17 10:00:00 [kernel_warmup.py:259] Using FlashInfer autotune cache "
            "file: /root/.cache/vllm/flashinfer_autotune_cache/0.6.16.post3/120f/ab/autotune_configs.json"
        ),
        versions="vLLM >=2026-05-18",
        parse=f.cache_path,
    ),
    Rule(
        id="vl.tune.skipops",
        kind=K.NOTE,
        severity=S.INFO,
        engines=VLLM,
        pattern=r"Skipping FlashInfer autotuning for ops (?P<ops>\([^)]{0,500}\))",
        literals=("skipping flashinfer autotuning for ops",),
        meaning="ops skipped (default fp4_gemm when CuteDSL)",
        source="vllm kernel_warmup.py:253 @ 017e9f4",
        example=(
            "(EngineCore_DP0 pid=214) INFO 08-17 10:00:00 [kernel_warmup.py:251] Skipping FlashInfer autotuning "
            "for ops ('fp4_gemm',)"
        ),
    ),
    Rule(
        id="vl.tune.loaded",
        kind=K.AUTOTUNE_CACHE_LOADED,
        severity=S.GOOD,
        engines=VLLM,
        pattern=r"FlashInfer autotune cache loaded on rank (?P<rank>\d+) from (?P<path>\S+)",
        literals=("flashinfer autotune cache loaded on rank",),
        meaning="rank loaded cache (2026-05-18…2026-08-09 builds)",
        source="vllm 2026-05 kernel_warmup.py:172",
        example=(
            "(EngineCore_DP0 pid=214) INFO 08-17 10:00:00 [kernel_warmup.py:180] FlashInfer autotune cache "
            "loaded on rank 3 from /root/.cache/vllm/x/autotune_configs.json."
        ),
    ),
    Rule(
        id="vl.tune.empty",
        kind=K.AUTOTUNE_NO_ENTRIES,
        severity=S.WARN,
        engines=VLLM,
        pattern=r"No FlashInfer autotune cache entries found",
        literals=("no flashinfer autotune cache entries found",),
        meaning="tuning produced nothing (2026-05-18…2026-08-09 builds)",
        source="vllm 2026-05 kernel_warmup.py:160",
        example=(
            "(Worker_TP0 pid=3) WARNING 06-17 10:00:00 [kernel_warmup.py:170] No FlashInfer autotune cache "
            "entries found; falling back to default tactics."
        ),
    ),
    Rule(
        id="vl.tune.sm120mla",
        kind=K.AUTOTUNE_START,
        severity=S.INFO,
        engines=VLLM,
        pattern=r"Autotuning FlashInfer SM120 sparse MLA (?P<layer>.{0,80}?) ?decode with cache: (?P<path>\S+)",
        literals=("autotuning flashinfer sm120 sparse mla",),
        meaning="SM120 sparse-MLA decode tuning",
        source="vllm flashinfer_sparse_mla_warmup.py:125 @ 017e9f4",
        example=(
            "(EngineCore_DP0 pid=214) INFO 08-17 10:00:00 [flashinfer_sparse_mla_warmup.py:124] Autotuning "
            "FlashInfer SM120 sparse MLA DSV4 decode with cache: /root/.cache/vllm/x.json"
        ),
    ),
    Rule(
        id="vl.tune.sm120none",
        kind=K.AUTOTUNE_NO_ENTRIES,
        severity=S.WARN,
        engines=VLLM,
        pattern=r"No FlashInfer SM120 sparse MLA .{0,80}?decode autotune cache entries found",
        literals=("decode autotune cache entries found",),
        meaning="SM120 sparse-MLA: default heuristic kept",
        source="vllm flashinfer_sparse_mla_warmup.py:170 @ 017e9f4",
        example=(
            "WARNING 08-17 10:00:00 [flashinfer_sparse_mla_warmup.py:169] No FlashInfer SM120 sparse MLA DSV4 "
            "decode autotune cache entries found. Falling back to FlashInfer's default tactic heuristic."
        ),
    ),
    Rule(
        id="vl.dg.warmup",
        kind=K.JIT_PROGRESS,
        severity=S.INFO,
        engines=SGL_VLLM,
        pattern=r"(?P<what>DeepGEMM) warmup:\s{0,9}(?P<pct>\d+)%\|[^|]{0,300}\|\s{0,9}(?P<n>\d+)/(?P<tot>\d+)",
        literals=("deepgemm warmup",),
        meaning="DeepGEMM warmup tqdm (stderr)",
        source="vllm deep_gemm_warmup.py:423 @ 017e9f4",
        example="DeepGEMM warmup:  45%|####5     | 912/2048 [00:30<00:38, 29.7it/s]",
        parse=f.bar,
        counted=True,
    ),
    Rule(
        id="vl.dg.missing",
        kind=K.NOTE,
        severity=S.PERF,
        engines=VLLM,
        pattern=r"Vendored deep_gemm not found either|Failed to import vendored deep_gemm",
        literals=(
            "vendored deep_gemm not found either",
            "failed to import vendored deep_gemm",
        ),
        meaning="DeepGEMM not importable",
        source="vllm deep_gemm.py:197 @ 017e9f4",
        example="(EngineCore_DP0 pid=214) INFO 08-17 10:00:00 [deep_gemm.py:197] Vendored deep_gemm not found either",
    ),
    Rule(
        id="vl.marlin",
        kind=K.MOE_BACKEND_FALLBACK,
        severity=S.PERF,
        engines=SGL_VLLM,
        pattern=(
            r"(?:Your GPU does not have native support for FP(?P<bits>[48])|Weight-only FP(?P<bits2>[48]) "
            r"compression will be used leveraging the Marlin)"
        ),
        literals=(
            "weight-only fp4 compression will be used leveraging the marlin",
            "weight-only fp8 compression will be used leveraging the marlin",
            "your gpu does not have native support for fp",
        ),
        meaning="weight-only Marlin fallback (no FP4/FP8 tensor-core math)",
        source="vllm marlin.py:35 @ 017e9f4",
        example=(
            "WARNING 08-17 10:00:00 [marlin.py:34] Your GPU does not have native support for FP4 computation but "
            "FP4 quantization is being used. Weight-only FP4 compression will be used leveraging the Marlin "
            "kernel. This may degrade performance for compute-heavy workloads."
        ),
        parse=f.marlin,
    ),
    Rule(
        id="vl.emul",
        kind=K.MOE_BACKEND_FALLBACK,
        severity=S.PERF,
        engines=VLLM,
        pattern=r"NVFP4 linear falling back to the slow and unoptimized (?P<to>emulation) backend",
        literals=("nvfp4 linear falling back to the slow and unoptimized emulation",),
        meaning="NVFP4 linear emulated",
        source="vllm __init__.py:1092 @ 017e9f4",
        example=(
            "WARNING 08-17 10:00:00 [__init__.py:1091] NVFP4 linear falling back to the slow and unoptimized "
            "emulation backend as no optimized backend is available (unavailable reasons:"
        ),
    ),
    Rule(
        id="vl.nvfp4",
        kind=K.NOTE,
        severity=S.INFO,
        engines=VLLM,
        pattern=r"Using (?P<kernel>\w{1,120}) for NVFP4 GEMM",
        literals=(" for nvfp4 gemm",),
        meaning="dense NVFP4 kernel class",
        source="vllm __init__.py:1060 @ 017e9f4",
        example=(
            "(EngineCore_DP0 pid=214) INFO 08-17 10:00:00 [__init__.py:1100] Using "
            "FlashInferCutlassNvFp4LinearKernel for NVFP4 GEMM"
        ),
    ),
)
