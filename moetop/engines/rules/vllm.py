"""Lines of vLLM. A table, no code."""

from __future__ import annotations

from moetop.engines import fields as f
from moetop.engines.rule import SGL_VLLM, VLLM, VLLM_TRT, Rule
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
        meaning=(
            'version banner (≥2026-01: "vLLM server version X, serving model Y" or ASCII logo; ≤0.10: "vLLM API '
            'server version X")'
        ),
        source="vllm 0.10 api_server.py:1755",
        example="(APIServer pid=1) INFO 07-24 10:00:00 [api_server.py:1755] vLLM API server version 0.10.0",
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
        engines=VLLM,
        pattern=r"FlashInfer autotun(?:e|ing) (?:failed|error)(?:[:;] ?(?P<error>.{0,300}))?",
        literals=(
            "flashinfer autotune failed",
            "flashinfer autotune error",
            "flashinfer autotuning failed",
            "flashinfer autotuning error",
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
        pattern=r"Using FlashInfer autotune cache file: (?P<path>\S.{0,1000}?)\s*$",
        literals=("using flashinfer autotune cache file: ",),
        meaning="cache path (≥2026-05-18)",
        source="vllm kernel_warmup.py:260 @ 017e9f4",
        example=(
            "(EngineCore_DP0 pid=214) INFO 08-17 10:00:00 [kernel_warmup.py:259] Using FlashInfer autotune cache "
            "file: /root/.cache/vllm/flashinfer_autotune_cache/0.6.16.post3/120f/ab/autotune_configs.json"
        ),
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
    Rule(
        id="vl.attn.v1",
        kind=K.ATTENTION_BACKEND_SELECTED,
        severity=S.INFO,
        engines=VLLM,
        pattern=r"Using (?P<backend>[\w ]{3,40}?) backend on V\d engine",
        literals=("backend on v",),
        meaning="attention backend (up to 0.10)",
        source="vllm 0.8-0.10 platforms/cuda.py",
        example=(
            "(VllmWorker rank=0 pid=236) INFO 05-03 17:40:23 [cuda.py:211] Using Flash Attention backend on V1 engine."
        ),
    ),
    Rule(
        id="vl.attn",
        kind=K.ATTENTION_BACKEND_SELECTED,
        severity=S.INFO,
        engines=VLLM,
        pattern=r"Using (?P<backend>\w{1,80}) attention backend out of potential backends",
        literals=("attention backend out of potential backends",),
        meaning="attention backend (≥2025-11-25)",
        source="vllm cuda.py:487 @ 017e9f4",
        example=(
            "(EngineCore_DP0 pid=214) INFO 08-17 10:00:00 [cuda.py:486] Using FLASHINFER attention backend out "
            "of potential backends: ['FLASHINFER', 'FLASH_ATTN']."
        ),
    ),
    Rule(
        id="vl.eager",
        kind=K.CUDAGRAPHS_DISABLED,
        severity=S.PERF,
        engines=VLLM,
        pattern=r"Enforce eager set, disabling torch\.compile and CUDAGraphs|Cudagraph is disabled under eager mode",
        literals=(
            "enforce eager set, disabling torch.compile and cudagraphs",
            "cudagraph is disabled under eager mode",
        ),
        meaning="--enforce-eager: no compile, no graphs",
        source="vllm vllm.py:1269 @ 017e9f4",
        example=(
            "WARNING 08-17 10:00:00 [vllm.py:1268] Enforce eager set, disabling torch.compile and CUDAGraphs. "
            "This is equivalent to setting -cc.mode=none -cc.cudagraph_mode=none"
        ),
    ),
    Rule(
        id="vl.ar.list",
        kind=K.NOTE,
        severity=S.INFO,
        engines=VLLM,
        pattern=(
            r"Using (?P<backends>\[[^\]]{0,400}\]) all-reduce backends \(in dispatch order\) for group "
            r"'(?P<group>[^']{1,80})'"
        ),
        literals=("all-reduce backends (in dispatch order)",),
        meaning="AR backends in dispatch order (≥2026-05-20)",
        source="vllm cuda_communicator.py:267 @ 017e9f4",
        example=(
            "(EngineCore_DP0 pid=214) INFO 08-17 10:00:00 [cuda_communicator.py:266] Using ['PYNCCL'] all-reduce "
            "backends (in dispatch order) for group 'tp:0' out of potential backends: ['CUSTOM', 'PYNCCL']."
        ),
    ),
    Rule(
        id="vl.fiar",
        kind=K.NOTE,
        severity=S.PERF,
        engines=VLLM,
        pattern=r"Failed to initialize FlashInfer All Reduce workspace|FlashInfer MNNVL multicast is unavailable",
        literals=(
            "failed to initialize flashinfer all reduce workspace",
            "flashinfer mnnvl multicast is unavailable",
        ),
        meaning="FlashInfer AR fusion unavailable (no NVSwitch)",
        source="vllm flashinfer_all_reduce.py:79 @ 017e9f4",
        example=(
            "WARNING 08-17 10:00:00 [flashinfer_all_reduce.py:78] Failed to initialize FlashInfer All Reduce "
            "workspace: x. This is expected on GPUs without NVSwitch (e.g., NVLink bridge-only or PCIe "
            "topologies)."
        ),
    ),
    Rule(
        id="vl.weights.begin",
        kind=K.WEIGHTS_LOADING,
        severity=S.INFO,
        engines=VLLM,
        pattern=r"Starting to load model (?P<model>\S{1,300}?)\.\.\.",
        literals=("starting to load model ",),
        meaning="weights being loaded",
        source="vllm gpu_model_runner.py",
        example=(
            "(EngineCore pid=51) INFO 09-01 08:00:01 [gpu_model_runner.py:5512] Starting to load model /models/moe-a..."
        ),
    ),
    Rule(
        id="vl.weights.end",
        kind=K.WEIGHTS_LOADED,
        severity=S.INFO,
        engines=VLLM,
        pattern=r"Loading weights took (?P<seconds>[\d.]+) seconds",
        literals=("loading weights took ",),
        meaning="weights read",
        source="vllm default_loader.py",
        example="(EngineCore pid=51) INFO 09-01 08:02:01 [default_loader.py:268] Loading weights took 120.50 seconds",
    ),
    Rule(
        id="vl.aot",
        kind=K.COMPILE_CACHE_SAVED,
        severity=S.INFO,
        engines=VLLM,
        pattern=r"saved AOT compiled function to (?P<path>\S{1,400})",
        literals=("saved aot compiled function to ",),
        meaning="compiled function saved",
        source="vllm decorators.py",
        example=(
            "(Worker_TP0 pid=27840) INFO 06-10 11:10:34 [decorators.py:708] saved AOT compiled function to "
            "/c/torch_aot_compile/aaaa/rank_0_1/model"
        ),
    ),
    Rule(
        id="vl.compile.cache",
        kind=K.COMPILE_CACHE_SAVED,
        severity=S.INFO,
        engines=VLLM,
        pattern=r"Cache the graph of (?:compile range|shape) (?P<range>\([^)]{1,80}\)|\S{1,40}) for later use",
        literals=("cache the graph of ",),
        meaning="compiled graph cached",
        source="vllm backends.py",
        example=(
            "(Worker_TP0 pid=2101) INFO 01-14 18:56:20 [backends.py:261] Cache the graph of compile range (1, "
            "2048) for later use"
        ),
    ),
    Rule(
        id="vl.compile.took",
        kind=K.WARMUP,
        severity=S.INFO,
        engines=VLLM,
        pattern=r"torch\.compile (?:takes|took|and initial profiling/warmup run together took) (?P<seconds>[\d.]+) s",
        literals=(
            "torch.compile take",
            "torch.compile took",
            "torch.compile and initial profiling",
        ),
        meaning="torch.compile finished",
        source="vllm monitor.py, backends.py",
        example="(EngineCore_DP0 pid=214) INFO 08-17 10:00:00 [monitor.py:34] torch.compile takes 40.10 s in total",
    ),
    Rule(
        id="vl.warmup",
        kind=K.WARMUP,
        severity=S.INFO,
        engines=VLLM,
        pattern=r"Initial profiling/warmup run took (?P<seconds>[\d.]+) s",
        literals=("initial profiling/warmup run took ",),
        meaning="profiling or warm-up run finished",
        source="vllm monitor.py",
        example=(
            "(Worker_DP1_TP0_EP2 pid=27840) INFO 06-10 11:10:38 [monitor.py:81] Initial profiling/warmup run "
            "took 3.89 s"
        ),
    ),
    Rule(
        id="vl.graph.mem",
        kind=K.GRAPH_PROFILING,
        severity=S.INFO,
        engines=VLLM,
        pattern=r"Profiling CUDA graph memory: (?P<what>.{0,200})",
        literals=("profiling cuda graph memory",),
        meaning="memory of CUDA graphs being measured",
        source="vllm gpu_model_runner.py",
        example=(
            "(Worker_DP2_TP0_EP4 pid=22523) INFO 06-10 11:10:46 [gpu_model_runner.py:6412] Profiling CUDA graph "
            "memory: PIECEWISE=51 (largest=512), FULL=35 (largest=256)"
        ),
    ),
    Rule(
        id="vl.load",
        kind=K.WEIGHTS_LOADED,
        severity=S.INFO,
        engines=VLLM,
        pattern=r"Model loading took (?P<GiB>[\d.]+) (?:GiB|GB)(?: memory)? and (?P<seconds>[\d.]+) seconds",
        literals=("model loading took ",),
        meaning="model loaded",
        source="vllm gpu_model_runner.py:5516 @ 017e9f4",
        example=(
            "(EngineCore_DP0 pid=214) INFO 08-17 10:00:00 [gpu_model_runner.py:5132] Model loading took 16.52 "
            "GiB memory and 11.250000 seconds"
        ),
    ),
    Rule(
        id="vl.kv.avail",
        kind=K.KV_CACHE,
        severity=S.INFO,
        engines=VLLM,
        pattern=r"Available KV cache memory: (?P<GiB>-?[\d.]+) GiB",
        literals=("available kv cache memory: ",),
        meaning="memory left for the KV cache",
        source="vllm gpu_worker.py",
        example="(EngineCore pid=77) INFO 04-25 09:12:01 [gpu_worker.py:298] Available KV cache memory: 71.20 GiB",
    ),
    Rule(
        id="vl.kv",
        kind=K.KV_CACHE,
        severity=S.INFO,
        engines=VLLM,
        pattern=r"GPU KV cache size: (?P<tokens>[\d,]+) tokens",
        literals=("gpu kv cache size: ",),
        meaning="KV capacity (one line at HEAD, two lines in older builds)",
        source="vllm kv_cache_utils.py:1876 @ 017e9f4",
        example=(
            "(EngineCore_DP0 pid=214) INFO 08-17 10:00:00 [kv_cache_utils.py:1291] GPU KV cache size: 183,744 tokens"
        ),
        parse=f.kv_tokens,
    ),
    Rule(
        id="vl.graph",
        kind=K.GRAPH_CAPTURE,
        severity=S.INFO,
        engines=VLLM,
        pattern=r"Graph capturing finished in (?P<seconds>[\d.]+) secs?(?:, took (?P<GiB>-?[\d.]+) GiB)?",
        literals=("graph capturing finished in ",),
        meaning="graphs captured",
        source="vllm gpu_model_runner.py:7049 @ 017e9f4",
        example=(
            "(EngineCore_DP0 pid=214) INFO 08-17 10:00:00 [gpu_model_runner.py:7048] Graph capturing finished in "
            "12 secs, took 1.20 GiB"
        ),
    ),
    Rule(
        id="vl.init",
        kind=K.NOTE,
        severity=S.INFO,
        engines=VLLM,
        pattern=r"init engine \(profile, create kv cache, warmup model\) took (?P<seconds>[\d.]+) s",
        literals=("init engine (profile, create kv cache",),
        meaning="engine init done",
        source="vllm core.py:338 @ 017e9f4",
        example=(
            "(EngineCore_DP0 pid=214) INFO 08-17 10:00:00 [core.py:338] init engine (profile, create kv cache, "
            "warmup model) took 143.20 s (compilation: 40.10 s)"
        ),
    ),
    Rule(
        id="vl.listen",
        kind=K.NOTE,
        severity=S.INFO,
        engines=VLLM,
        pattern=r"Starting vLLM (?:API )?server (?:\d+ )?on (?P<url>\S{1,200})",
        literals=(
            "starting vllm server",
            "starting vllm api server",
        ),
        meaning='HTTP bind (≥2026-03; ≤0.10 "Starting vLLM API server N on URL")',
        source="vllm api_server.py:548 @ 017e9f4",
        example=(
            "(APIServer pid=1) INFO 08-17 10:02:00 [api_server.py:548] Starting vLLM server on http://0.0.0.0:8000"
        ),
    ),
    Rule(
        id="vl.ready",
        kind=K.READY,
        severity=S.GOOD,
        engines=VLLM_TRT,
        pattern=r"Application startup complete\.",
        literals=("application startup complete",),
        meaning="uvicorn ready (text comes from uvicorn)",
        source="uvicorn",
        example="(APIServer pid=1) INFO:     Application startup complete.",
    ),
    Rule(
        id="vl.stats",
        kind=K.THROUGHPUT,
        severity=S.METRIC,
        engines=VLLM,
        pattern=(
            r"(?:Engine (?P<e>\d+)|\d+ Engines Aggregated): Avg prompt throughput: (?P<pp>[\d.]+) tokens/s, Avg "
            r"generation throughput: (?P<tg>[\d.]+) tokens/s, Running: (?P<run>\d+) reqs, Waiting: (?P<wait>\d+) "
            r"reqs(?:,.{0,120}? (?:GPU )?KV cache usage: (?P<kv>[\d.]+)%)?"
        ),
        literals=("avg prompt throughput: ",),
        meaning="every VLLM_LOG_STATS_INTERVAL (10 s); DEBUG when idle",
        source="vllm loggers.py:263 @ 017e9f4",
        example=(
            "(APIServer pid=1) INFO 08-17 10:05:00 [loggers.py:257] Engine 000: Avg prompt throughput: 120.0 "
            "tokens/s, Avg generation throughput: 512.3 tokens/s, Running: 12 reqs, Waiting: 0 reqs, GPU KV "
            "cache usage: 3.4%, Prefix cache hit rate: 41.0%"
        ),
        parse=f.vllm_stats,
    ),
    Rule(
        id="vl.dead",
        kind=K.ENGINE_DEAD,
        severity=S.FATAL,
        engines=VLLM,
        pattern=r"EngineDeadError|EngineCore encountered an issue",
        literals=(
            "enginedeaderror",
            "enginecore encountered an issue",
        ),
        meaning="the engine core is dead; the cause is an earlier record of another process",
        source="vllm v1/engine/exceptions.py",
        example=(
            "(APIServer pid=92) ERROR 08-15 11:20:19 [serving.py:825] vllm.v1.engine.exceptions.EngineDeadError: "
            "EngineCore encountered an issue. See stack trace (above) for the root cause."
        ),
    ),
    Rule(
        id="vl.initfail",
        kind=K.ENGINE_START_FAILED,
        severity=S.FATAL,
        engines=VLLM,
        pattern=r"Engine core initialization failed|EngineCore failed to start",
        literals=(
            "engine core initialization failed",
            "enginecore failed to start",
        ),
        meaning="core failed to start",
        source="vllm utils.py:1287 @ 017e9f4",
        example=(
            "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): "
            "{'EngineCore_DP0': 1}"
        ),
        block=True,
    ),
    Rule(
        id="vl.corefatal",
        kind=K.CRASH,
        severity=S.FATAL,
        engines=VLLM,
        pattern=r"EngineCore encountered a fatal error",
        literals=("enginecore encountered a fatal error",),
        meaning="core died",
        source="vllm core.py:1348 @ 017e9f4",
        example="(EngineCore_DP0 pid=9) ERROR 08-17 10:00:00 [core.py:1348] EngineCore encountered a fatal error.",
        block=True,
    ),
    Rule(
        id="vl.workerdied",
        kind=K.CRASH,
        severity=S.FATAL,
        engines=VLLM,
        pattern=(
            r"Worker proc (?P<worker_proc>\S{1,80}) died unexpectedly(?: \(exit code: "
            r"(?P<exit_code>[^)]{1,40})\))?"
        ),
        literals=("died unexpectedly",),
        meaning="worker died",
        source="vllm multiproc_executor.py:312 @ 017e9f4",
        example=(
            "(EngineCore_DP0 pid=9) ERROR 08-17 10:00:00 [multiproc_executor.py:312] Worker proc VllmWorker-3 "
            "died unexpectedly (exit code: -9), shutting down executor."
        ),
    ),
    Rule(
        id="vl.workerexc",
        kind=K.CRASH,
        severity=S.FATAL,
        engines=VLLM,
        pattern=r"WorkerProc (?:hit an exception|failed to start|failed)\.",
        literals=(
            "workerproc hit an exception",
            "workerproc failed",
        ),
        meaning="worker exception (traceback follows, each line re-prefixed)",
        source="vllm multiproc_executor.py:1047 @ 017e9f4",
        example=(
            "(Worker_DP0_EP0 pid=4178717) ERROR 03-13 12:01:42 [multiproc_executor.py:932] WorkerProc hit an exception."
        ),
        block=True,
    ),
    Rule(
        id="vl.freemem",
        kind=K.ENGINE_START_FAILED,
        severity=S.FATAL,
        engines=VLLM,
        pattern=(
            r"Free memory on device (?:\S{1,40} )?\((?P<free_gib>[\d.]+)/(?P<total_gib>[\d.]+) GiB\) on startup "
            r"is less than desired"
        ),
        literals=("on startup is less than desired",),
        meaning="GPU not free at start (old server still holding memory!)",
        source="vllm utils.py:455 @ 017e9f4",
        example=(
            "ValueError: Free memory on device cuda:0 (3.1/95.0 GiB) on startup is less than desired GPU memory "
            "utilization (0.9, 85.5 GiB)."
        ),
    ),
    Rule(
        id="vl.nokv",
        kind=K.ENGINE_START_FAILED,
        severity=S.FATAL,
        engines=VLLM,
        pattern=r"No available memory for the cache blocks",
        literals=("no available memory for the cache blocks",),
        meaning="no KV room",
        source="vllm kv_cache_utils.py:739 @ 017e9f4",
        example=(
            "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when "
            "initializing the engine."
        ),
    ),
    Rule(
        id="vl.shmwait",
        kind=K.ENGINE_WAIT,
        severity=S.NOTICE,
        engines=VLLM,
        pattern=r"No available shared memory broadcast block found in (?P<seconds>\d+) seconds?",
        literals=("no available shared memory broadcast block found",),
        meaning="ranks waiting (compile/tune/hang)",
        source="vllm shm_broadcast.py:104 @ 017e9f4",
        example=(
            "(EngineCore_DP0 pid=9) INFO 08-17 10:00:00 [shm_broadcast.py:500] No available shared memory "
            "broadcast block found in 60 seconds. This typically happens when some processes are hanging or "
            "doing some time-consuming work (e.g. compilation, weight/kv cache quantization)."
        ),
    ),
    Rule(
        id="vl.shutdown",
        kind=K.SHUTDOWN,
        severity=S.INFO,
        engines=VLLM,
        pattern=(
            r"\[shutdown\] (?P<who>API server|EngineCore|Executor|MPClient|WorkerProc|Process manager): "
            r"(?P<what>.{0,200})"
        ),
        literals=("[shutdown] ",),
        meaning="SIGTERM/SIGINT accepted (≥2026-06-04 wording)",
        source="vllm launcher.py:114 @ 017e9f4",
        example="(APIServer pid=1) INFO 08-17 10:00:00 [launcher.py:114] [shutdown] API server: shutdown triggered",
    ),
)
