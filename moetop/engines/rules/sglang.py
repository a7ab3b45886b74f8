"""Lines of SGLang, and those that SGLang and vLLM share. A table, no code."""

from __future__ import annotations

from moetop.engines import fields as f
from moetop.engines.rule import ANY, SGL, SGL_VLLM, Rule
from moetop.model import EventKind as K
from moetop.model import EventSeverity as S

RULES: tuple[Rule, ...] = (
    Rule(
        id="sgl.version",
        kind=K.NOTE,
        severity=S.INFO,
        engines=SGL,
        pattern=r"\bsglang(?:==|[ _]version[:=] ?)(?P<version>\d+\.\d+[\w.+]*)",
        literals=(
            "sglang==",
            "sglang version",
            "sglang_version",
        ),
        meaning="version of SGLang in the log",
        source="sglang env report",
        example="[2026-06-28 13:36:00] sglang version: 0.5.13",
    ),
    Rule(
        id="sgl.args",
        kind=K.SERVER_ARGS,
        severity=S.INFO,
        engines=SGL,
        pattern=r"server_args=ServerArgs\(",
        literals=("server_args=serverargs(",),
        meaning=(
            "effective ServerArgs dump (parse moe_runner_backend, disable_flashinfer_autotune, quantization, "
            "tp_size, port, enable_metrics)"
        ),
        source="sglang 0.5.18 engine.py:253",
        example=(
            "[2026-02-19 01:00:41] server_args=ServerArgs(model_path='lukealonso/GLM-5-NVFP4', tp_size=8, "
            "moe_runner_backend='flashinfer_cutlass')"
        ),
        parse=f.sglang_args,
    ),
    Rule(
        id="sgl.moe.sm120",
        kind=K.MOE_BACKEND_SELECTED,
        severity=S.INFO,
        engines=SGL,
        pattern=r"Use (?P<backend>flashinfer_cutlass) as MoE runner backend on SM120 for modelopt_fp4",
        literals=("use flashinfer_cutlass as moe runner backend on sm120",),
        meaning="auto → flashinfer_cutlass on SM120 for modelopt_fp4 (≥0.5.13)",
        source="sglang 0.5.18 overrides.py:2513",
        example=(
            "[2026-06-28 13:58:47] Use flashinfer_cutlass as MoE runner backend on SM120 for modelopt_fp4 "
            "(trtllm-gen MoE kernels are SM100-only)"
        ),
    ),
    Rule(
        id="sgl.moe.backend",
        kind=K.MOE_BACKEND_SELECTED,
        severity=S.INFO,
        engines=SGL,
        pattern=r"Use (?P<backend>\w+) as MoE runner backend",
        literals=("as moe runner backend",),
        meaning="auto resolved to a MoE backend",
        source="sglang 0.5.18 overrides.py:1932",
        example="[2026-06-28 13:58:47] Use flashinfer_mxfp4 as MoE runner backend on SM120 for DeepseekV4",
    ),
    Rule(
        id="sgl.tune.start",
        kind=K.AUTOTUNE_START,
        severity=S.INFO,
        engines=SGL_VLLM,
        pattern=r"Running FlashInfer autotune\.\.\.",
        literals=("running flashinfer autotune...",),
        meaning="engine entered FlashInfer tuning (0.5.6–0.5.11)",
        source="sglang 0.5.9 model_runner.py:1863",
        example="[2026-06-28 13:36:54 TP0] Running FlashInfer autotune...",
        versions="0.5.6-0.5.11",
    ),
    Rule(
        id="sgl.tune.cache",
        kind=K.AUTOTUNE_START,
        severity=S.INFO,
        engines=SGL,
        pattern=r"Running FlashInfer autotune with cache: (?P<path>\S.{0,1000}?)\s*$",
        literals=("running flashinfer autotune with cache: ",),
        meaning="engine entered FlashInfer tuning with JSON cache path (≥0.5.12)",
        source="sglang 0.5.18 flashinfer_autotune.py:180",
        example=(
            "[2026-06-28 13:36:54 TP0] Running FlashInfer autotune with cache: "
            "/root/.cache/sglang/flashinfer/autotune/0.6.12/sm120/88ed2caa135f6803/rank_tp0_pp0_dp0.json"
        ),
        versions=">=0.5.12",
        parse=f.cache_path,
    ),
    Rule(
        id="sgl.tune.fresh",
        kind=K.AUTOTUNE_START,
        severity=S.INFO,
        engines=SGL,
        pattern=(
            r"Running FlashInfer autotune \(cache reuse DISABLED .{0,200}writing fresh result to: "
            r"(?P<path>\S.{0,1000}?)\s*$"
        ),
        literals=("running flashinfer autotune (cache reuse disabled",),
        meaning="retune forced: SGLANG_FLASHINFER_AUTOTUNE_CACHE=0 (≥0.5.13)",
        source="sglang 0.5.18 flashinfer_autotune.py:187",
        example=(
            "[2026-06-28 13:36:54 TP0] Running FlashInfer autotune (cache reuse DISABLED via "
            "SGLANG_FLASHINFER_AUTOTUNE_CACHE=0); writing fresh result to: "
            "/root/.cache/sglang/flashinfer/autotune/0.6.17/sm120/88ed/runs/rank_tp0_pp0_dp0.20260820_101010.json"
        ),
        versions=">=0.5.13",
        parse=f.cache_path,
    ),
    Rule(
        id="sgl.tune.done",
        kind=K.AUTOTUNE_END,
        severity=S.GOOD,
        engines=SGL,
        pattern=r"FlashInfer autotune completed\.",
        literals=("flashinfer autotune completed",),
        meaning="tuning pass finished on this rank",
        source="sglang 0.5.18 flashinfer_autotune.py:206",
        example="[2026-06-28 13:36:54 TP0] FlashInfer autotune completed.",
    ),
    Rule(
        id="sgl.tune.extend",
        kind=K.NOTE,
        severity=S.INFO,
        engines=SGL,
        pattern=r"FlashInfer autotune: extra EXTEND pass at (?P<tokens>\d+) tokens",
        literals=("flashinfer autotune: extra extend pass",),
        meaning="prefill-size pass (≥0.5.18 with SGLANG_FLASHINFER_AUTOTUNE_EXTEND=1)",
        source="sglang 0.5.18 flashinfer_autotune.py:312",
        example=(
            "[2026-06-28 13:36:54 TP0] FlashInfer autotune: extra EXTEND pass at 16384 tokens (16384 seqs x 1 tokens)."
        ),
        versions=">=0.5.18",
    ),
    Rule(
        id="sgl.tune.extend.oom",
        kind=K.AUTOTUNE_OOM_FALLBACK,
        severity=S.WARN,
        engines=SGL,
        pattern=r"FlashInfer extend autotune skipped: not enough free memory(?: for a (?P<tokens>\d+)-token)?",
        literals=("flashinfer extend autotune skipped",),
        meaning="prefill buckets left untuned",
        source="sglang 0.5.18 flashinfer_autotune.py:322",
        example=(
            "[2026-06-28 13:36:54 TP0] FlashInfer extend autotune skipped: not enough free memory for a "
            "16384-token dummy forward."
        ),
        versions=">=0.5.18",
    ),
    Rule(
        id="sgl.tune.diverge",
        kind=K.AUTOTUNE_CACHE_REJECTED,
        severity=S.NOTICE,
        engines=SGL,
        pattern=r"FlashInfer autotune: per-rank (?:caches|managed stores) disagree",
        literals=("flashinfer autotune: per-rank ",),
        meaning="per-rank caches disagreed → deleted → full retune (post-0.5.18)",
        source="sgl-project/sglang@028ae083 runner/flashinfer_autotune.py",
        example=(
            "[2026-06-28 13:36:54 TP0] FlashInfer autotune: per-rank caches disagree, discarding them and tuning "
            "from scratch so all ranks agree on the tactics."
        ),
    ),
    Rule(
        id="sgl.triton.tuned",
        kind=K.MOE_CONFIG_TUNED,
        severity=S.GOOD,
        engines=SGL,
        pattern=r"(?:^|[^d] )Using MoE kernel config from (?P<path>\S.{0,1500}?\.json)",
        literals=("using moe kernel config from ",),
        meaning="Triton MoE JSON found",
        source="sglang 0.5.18 fused_moe_triton_config.py:110",
        example=(
            "[2026-06-28 13:36:54 TP0] Using MoE kernel config from "
            "/sgl/configs/triton_3_5_1/E=161,N=192,device_name=NVIDIA_B200,dtype=fp8_w8a8.json."
        ),
        parse=f.used_config,
    ),
    Rule(
        id="sgl.triton.default",
        kind=K.MOE_CONFIG_DEFAULT,
        severity=S.WARN,
        engines=SGL,
        pattern=r"Using default MoE kernel config\. Performance might be sub-optimal!",
        literals=("using default moe kernel config",),
        meaning="Triton MoE untuned (path in the line = file to create)",
        source="sglang 0.5.18 fused_moe_triton_config.py:164",
        example=(
            "[2026-06-28 13:36:54 TP0] Using default MoE kernel config. Performance might be sub-optimal! Config "
            "file not found at /sgl/configs/triton_3_5_1/E=256,N=256,device_name=NVIDIA_RTX_PRO_6000_Blackwell_Se"
            "rver_Edition,dtype=fp8_w8a8.json, you can create them with "
            "https://github.com/sgl-project/sglang/tree/main/benchmark/kernels/fused_moe_triton"
        ),
        parse=f.missing_config,
        needs="path",
    ),
    Rule(
        id="sgl.triton.oldver",
        kind=K.MOE_CONFIG_FALLBACK,
        severity=S.NOTICE,
        engines=SGL,
        pattern=(
            r"Config file not found at (?P<want>\S.{0,1500}?\.json)\. Fallback to triton version (?P<ver>[\d.]+) "
            r"and use MoE kernel config from (?P<got>\S.{0,1500}?\.json)"
        ),
        literals=("fallback to triton version ",),
        meaning="config of another Triton version used",
        source="sglang 0.5.18 fused_moe_triton_config.py:137",
        example=(
            "[2026-06-28 13:36:54 TP0] Config file not found at /a/E=8,N=1.json. Fallback to triton version "
            "3.2.0 and use MoE kernel config from /b/E=8,N=1.json. Performance might be sub-optimal!"
        ),
        parse=f.fallback_config,
    ),
    Rule(
        id="sgl.triton.down",
        kind=K.MOE_CONFIG_NO_DOWN_VARIANT,
        severity=S.NOTICE,
        engines=SGL,
        pattern=r"Down MoE config file not found at|Using MoE kernel config with down_moe=False",
        literals=(
            "down moe config file not found at",
            "using moe kernel config with down_moe=false",
        ),
        meaning=(
            'no *_down.json; up-proj config reused (≥0.5.18; older text: "Using MoE kernel config with down_moe=False")'
        ),
        source="sglang 0.5.18 fused_moe_triton_config.py:157",
        example=(
            "[2026-06-28 13:36:54 TP0] Down MoE config file not found at /a/E=8,N=1_down.json; reusing the tuned "
            "up-projection config without TMA. Performance might be sub-optimal."
        ),
        parse=f.missing_config,
        needs="path",
    ),
    Rule(
        id="sgl.triton.determ",
        kind=K.NOTE,
        severity=S.NOTICE,
        engines=SGL,
        pattern=r"Deterministic inference is enabled, using default MoE kernel config",
        literals=("deterministic inference is enabled, using default moe kernel config",),
        meaning="deterministic mode forces default MoE config",
        source="sglang 0.5.18 fused_moe_triton_config.py:74",
        example="[2026-06-28 13:36:54 TP0] Deterministic inference is enabled, using default MoE kernel config.",
    ),
    Rule(
        id="sgl.fp8.default",
        kind=K.GEMM_CONFIG_DEFAULT,
        severity=S.WARN,
        engines=SGL,
        pattern=r"Using default W8A8 Block FP8 kernel config",
        literals=("using default w8a8 block fp8 kernel config",),
        meaning="W8A8 block-FP8 dense GEMM untuned",
        source="sglang 0.5.18 fp8_kernel.py:1261",
        example=(
            "[2026-06-28 13:36:54 TP0] Using default W8A8 Block FP8 kernel config. Performance might be "
            "sub-optimal! Config file not found at /a/N=1,K=2.json"
        ),
        parse=f.missing_config,
        needs="path",
    ),
    Rule(
        id="sgl.dg.session",
        kind=K.JIT_START,
        severity=S.NOTICE,
        engines=SGL,
        pattern=r"Entering (?P<what>DeepGEMM) JIT Pre-Comp(?:ile|lie) session",
        literals=(
            "deepgemm jit pre-compile session",
            "deepgemm jit pre-complie session",
        ),
        meaning="DeepGEMM JIT pre-compile (10–20 min)",
        source="sglang 0.5.18 compile_utils.py:135",
        example=(
            "[2026-06-28 13:36:54 TP0] Entering DeepGEMM JIT Pre-Compile session. It may take a long time "
            "(typically 10-20 mins)"
        ),
    ),
    Rule(
        id="sgl.dg.compile",
        kind=K.JIT_KERNEL,
        severity=S.INFO,
        engines=SGL,
        pattern=(
            r"DeepGEMM JIT Compiling for <(?P<gemm>\w+)> N=(?P<N>\d+), K=(?P<K>\d+)(?:, "
            r"num_groups=(?P<num_groups>\d+))?"
        ),
        literals=("deepgemm jit compiling for <",),
        meaning="DeepGEMM kernel compile",
        source="sglang 0.5.18 compile_utils.py:145",
        example=(
            "[2026-06-28 13:36:54 TP0] Try DeepGEMM JIT Compiling for <GEMM_NT_F8F8BF16> N=7168, K=2048, "
            "num_groups=1 with all Ms."
        ),
    ),
    Rule(
        id="sgl.dist",
        kind=K.NOTE,
        severity=S.INFO,
        engines=SGL,
        pattern=r"Init torch distributed begin\.",
        literals=("init torch distributed begin.",),
        meaning="process groups being made",
        source="sglang model_runner.py",
        example="[2026-02-19 01:01:00 TP0] Init torch distributed begin.",
    ),
    Rule(
        id="sgl.load.begin",
        kind=K.WEIGHTS_LOADING,
        severity=S.INFO,
        engines=SGL,
        pattern=r"Load weight begin\.(?: avail mem=(?P<avail_gb>[\d.]+) GB)?",
        literals=("load weight begin",),
        meaning="weights",
        source="sglang 0.5.18 model_runner.py:1053",
        example="[2026-06-28 13:36:54 TP0] Load weight begin. avail mem=93.80 GB",
    ),
    Rule(
        id="sgl.weights.shards",
        kind=K.WEIGHTS_PROGRESS,
        severity=S.INFO,
        engines=ANY,
        pattern=(
            r"(?:Loading safetensors(?: using \S{1,60})? checkpoint shards|Multi-thread loading shards|Loading pt "
            r"checkpoint shards|Loading weights):\s{0,9}(?P<pct>\d+)% Completed \| (?P<n>\d+)/(?P<tot>\d+)"
        ),
        literals=(
            "checkpoint shards: ",
            "multi-thread loading shards: ",
            "loading weights: ",
        ),
        meaning="safetensors shards being loaded (bar)",
        source="sglang and vllm weight_utils.py",
        example="Loading safetensors checkpoint shards:  50% Completed | 8/16 [00:10<00:10,  1.29s/it]",
        counted=True,
        parse=f.bar,
    ),
    Rule(
        id="sgl.load.end",
        kind=K.WEIGHTS_LOADED,
        severity=S.INFO,
        engines=SGL,
        pattern=(
            r"Load weight end\.(?: elapsed=(?P<seconds>[\d.]+) s,)?(?: "
            r"type=(?P<type>\w+))?(?:.{0,200}?quant=(?P<quant>\w+))?(?:.{0,200}?mem usage=(?P<GB>[\d.]+) GB)?"
        ),
        literals=("load weight end",),
        meaning="weights done",
        source="sglang 0.5.18 model_runner.py:1156",
        example=(
            "[2026-06-28 13:36:54 TP0] Load weight end. elapsed=181.22 s, type=Glm4MoeForCausalLM, avail "
            "mem=33.10 GB, mem usage=60.70 GB."
        ),
    ),
    Rule(
        id="sgl.graph.bar",
        kind=K.GRAPH_CAPTURE,
        severity=S.INFO,
        engines=ANY,
        pattern=(
            r"(?:Capturing CUDA graphs?(?: \((?P<mode>[^)]{1,80})\))?|Capturing batches(?: "
            r"\([^)]{1,80}\))?|Capturing num tokens(?: \([^)]{1,80}\))?|Capturing model for decode|Capturing CUDA "
            r"graph shapes):\s{0,9}(?P<pct>\d+)%\|[^|]{0,300}\|\s{0,9}(?P<n>\d+)/(?P<tot>\d+)"
        ),
        literals=(
            "capturing cuda graph",
            "capturing batches",
            "capturing num tokens",
            "capturing model for decode",
        ),
        meaning="graphs being captured (bar)",
        source="sglang cuda_graph_runner.py, vllm gpu_model_runner.py",
        example="Capturing CUDA graphs (PIECEWISE): 100%|##########| 5/5 [00:02<00:00,  2.11it/s]",
        parse=f.bar,
    ),
    Rule(
        id="sgl.graph.begin",
        kind=K.GRAPH_CAPTURE_START,
        severity=S.INFO,
        engines=SGL,
        pattern=r"Capture (?P<what>[\w \-]{0,60}?)(?:cuda|CUDA) graph begin\.",
        literals=("cuda graph begin.",),
        meaning=(
            'graph capture start (≤0.5.13 "Capture cuda graph begin. This can take up to several minutes."; '
            '≥0.5.14 "Capture target decode CUDA graph begin.")'
        ),
        source="sglang 0.5.18 cuda_graph_setup.py:458",
        example=(
            "[2026-06-28 13:36:54 TP0] Capture target decode CUDA graph begin. backend=full, "
            "num_tokens_per_req=1, bs=[1, 2, 4, 8], avail mem=12.10 GB"
        ),
    ),
    Rule(
        id="sgl.graph.end",
        kind=K.GRAPH_CAPTURE,
        severity=S.INFO,
        engines=SGL,
        pattern=r"Capture (?P<what>[\w \-]{0,60}?)(?:cuda|CUDA) graph end\.(?:.{0,40}?elapsed: (?P<seconds>[\d.]+) s)?",
        literals=("cuda graph end.",),
        meaning="graph capture end",
        source="sglang 0.5.9 model_runner.py:2161",
        example=(
            "[2026-02-19 01:05:00 TP0] Capture cuda graph end. Time elapsed: 31.20 s. mem usage=1.21 GB. avail "
            "mem=11.30 GB."
        ),
    ),
    Rule(
        id="sgl.graph.fail",
        kind=K.CRASH,
        severity=S.FATAL,
        engines=SGL,
        pattern=r"Capture cuda graph failed: (?P<error>.{0,500})",
        literals=("cuda graph failed",),
        meaning="capture failed",
        source="sglang 0.5.18 decode_cuda_graph_runner.py:464",
        example="[2026-06-28 13:36:54 TP0] Capture cuda graph failed: CUDA error",
        block=True,
    ),
    Rule(
        id="sgl.graph.off",
        kind=K.CUDAGRAPHS_DISABLED,
        severity=S.NOTICE,
        engines=SGL,
        pattern=(
            r"(?i)cuda graph (?:is|are|and server warmup are) disabled|Disabl(?:e|ing) (?:prefill|piecewise) CUDA "
            r"graph"
        ),
        literals=(
            "cuda graph is disabled",
            "cuda graph are disabled",
            "cuda graph and server warmup are disabled",
            "disable prefill cuda graph",
            "disable piecewise cuda graph",
            "disabling prefill cuda graph",
            "disabling piecewise cuda graph",
        ),
        meaning="graphs disabled by config",
        source="sglang 0.5.18 server_args.py:5968",
        example="[2026-02-19 01:00:41] Cuda graph is disabled because of using torch native attention backend",
    ),
    Rule(
        id="sgl.kv.alloc",
        kind=K.KV_CACHE,
        severity=S.INFO,
        engines=SGL,
        pattern=r"KV Cache is allocated\.(?: dtype: (?P<dtype>[\w.]{1,60}),)? #tokens: (?P<tokens>\d+)",
        literals=("kv cache is allocated",),
        meaning="KV cache allocated",
        source="sglang memory_pool.py",
        example=(
            "[2026-06-24 11:50:38] KV Cache is allocated. dtype: torch.float8_e4m3fn, #tokens: 879872, K size: "
            "13.43 GB, V size: 13.43 GB"
        ),
    ),
    Rule(
        id="sgl.mempool",
        kind=K.KV_CACHE,
        severity=S.INFO,
        engines=SGL,
        pattern=r"Memory pool end\.",
        literals=("memory pool end.",),
        meaning="memory pools made",
        source="sglang model_runner.py",
        example="[2026-02-19 01:04:00 TP0] Memory pool end. avail mem=18.80 GB",
    ),
    Rule(
        id="sgl.capacity",
        kind=K.KV_CACHE,
        severity=S.INFO,
        engines=SGL,
        pattern=(
            r"max_total_num_tokens=(?P<tokens>\d+), chunked_prefill_size=(?P<chunked_prefill>-?\d+), "
            r"max_prefill_tokens=(?P<max_prefill>\d+), max_running_requests=(?P<max_running>\d+), "
            r"context_len=(?P<context>\d+)"
        ),
        literals=("max_total_num_tokens=",),
        meaning="KV capacity",
        source="sglang 0.5.18 scheduler.py:1093",
        example=(
            "[2026-06-28 13:36:54 TP0] max_total_num_tokens=212345, chunked_prefill_size=8192, "
            "max_prefill_tokens=16384, max_running_requests=2048, context_len=131072, available_gpu_mem=9.80 GB"
        ),
    ),
    Rule(
        id="sgl.warmup",
        kind=K.WARMUP,
        severity=S.INFO,
        engines=SGL,
        pattern=r"(?:Start of (?:co-locate )?warmup|Warmup request|Warming up server|End of (?:prefill )?warmup)",
        literals=(
            "start of warmup",
            "start of co-locate warmup",
            "warmup request",
            "warming up server",
            "end of warmup",
            "end of prefill warmup",
        ),
        meaning="warm-up request sent",
        source="sglang http_server.py",
        example="[2026-06-28 13:39:59] Start of co-locate warmup ...",
    ),
    Rule(
        id="sgl.ready",
        kind=K.READY,
        severity=S.GOOD,
        engines=SGL,
        pattern=r"The server is fired up and ready to roll!",
        literals=("the server is fired up and ready to roll",),
        meaning="serving",
        source="sglang 0.5.18 http_server.py:2402",
        example="[2026-06-28 13:40:00] The server is fired up and ready to roll!",
    ),
    Rule(
        id="sgl.http.up",
        kind=K.NOTE,
        severity=S.INFO,
        engines=SGL,
        pattern=r"Application startup complete\.|Uvicorn running on",
        literals=(
            "application startup complete",
            "uvicorn running on",
        ),
        meaning="the HTTP side is up; SGLang still warms up before it serves",
        source="uvicorn under sglang",
        example="[2026-06-28 13:39:58] INFO:     Application startup complete.",
    ),
    Rule(
        id="sgl.decode",
        kind=K.THROUGHPUT,
        severity=S.METRIC,
        engines=SGL,
        pattern=r"Decode batch(?:\.| ?(?:\[\d+\])?,) (?=#running-req: \d.{0,800}?(?:cuda|cpu|npu|musa) graph: )",
        literals=("decode batch",),
        meaning="every decode_log_interval(40) decode steps; attn_tp_rank 0 only",
        source="sglang 0.5.18 metrics_reporter.py:780",
        example=(
            "[2026-06-28 13:36:54 TP0] Decode batch, #running-req: 12, #token: 21504, token usage: 0.10, cuda "
            "graph: True, gen throughput (token/s): 245.11, #queue-req: 0"
        ),
        parse=f.decode_batch,
    ),
    Rule(
        id="sgl.decode.old",
        kind=K.THROUGHPUT,
        severity=S.METRIC,
        engines=SGL,
        pattern=r"Decode batch(?:\.| ?(?:\[\d+\])?,) (?=#running-req: \d)",
        literals=("decode batch",),
        meaning="the same line without a graph field (older releases)",
        source="sglang 0.5.3 scheduler_metrics_mixin.py:215",
        example=(
            "[2025-10-07 11:00:00 TP0] Decode batch. #running-req: 12, #token: 21504, token usage: 0.10, gen "
            "throughput (token/s): 245.11, #queue-req: 0, "
        ),
        parse=f.decode_batch,
    ),
    Rule(
        id="sgl.prefill",
        kind=K.THROUGHPUT,
        severity=S.METRIC,
        engines=SGL,
        pattern=r"Prefill batch(?:\.|(?: \[\d+\])?,) (?=#new-seq: \d)",
        literals=("prefill batch",),
        meaning="one per prefill batch; field order varies (§2.6)",
        source="sglang 0.5.18 metrics_reporter.py:579",
        example=(
            "[2026-06-28 13:36:54 TP0] Prefill batch, #new-seq: 1, #new-token: 512, #cached-token: 0, token "
            "usage: 0.00, #running-req: 0, #queue-req: 0, #pending-token: 0, cuda graph: False, input throughput "
            "(token/s): 83.20"
        ),
        parse=f.prefill_batch,
    ),
    Rule(
        id="sgl.kvfull",
        kind=K.NOTE,
        severity=S.WARN,
        engines=SGL,
        pattern=r"KV cache pool is full\. Retract requests\. #retracted_reqs: (?P<retracted>\d+)",
        literals=("kv cache pool is full. retract requests",),
        meaning="KV pool full, requests retracted",
        source="sglang 0.5.18 scheduler.py:3538",
        example=(
            "[2026-06-28 13:36:54 TP0] KV cache pool is full. Retract requests. #retracted_reqs: 3, "
            "#new_tokens_gained: 812, #new_token_ratio: 0.4310 -> 0.6120"
        ),
    ),
    Rule(
        id="ar.pcie",
        kind=K.CUSTOM_ALLREDUCE_DISABLED,
        severity=S.PERF,
        engines=SGL_VLLM,
        pattern=r"is disabled because it's not supported on more than two PCIe-only GPUs",
        literals=("not supported on more than two pcie-only gpus",),
        meaning=">2 PCIe-only GPUs: custom all-reduce off → NCCL on every layer (main low-power suspect on 8×PCIe)",
        source="sglang 0.5.18 custom_all_reduce_utils.py:495",
        example=(
            "[2026-02-19 01:01:02 TP3] Custom allreduce is disabled because it's not supported on more than two "
            "PCIe-only GPUs. To silence this warning, specify disable_custom_all_reduce=True explicitly."
        ),
    ),
    Rule(
        id="ar.p2p",
        kind=K.CUSTOM_ALLREDUCE_DISABLED,
        severity=S.PERF,
        engines=SGL_VLLM,
        pattern=r"is disabled because your platform lacks GPU P2P capability or P2P test failed",
        literals=("lacks gpu p2p capability",),
        meaning="no GPU P2P",
        source="vllm custom_all_reduce.py:196 @ 017e9f4",
        example=(
            "[2026-02-19 01:01:02 TP1] Custom allreduce is disabled because your platform lacks GPU P2P "
            "capability or P2P test failed. To silence this warning, specify disable_custom_all_reduce=True "
            "explicitly."
        ),
    ),
    Rule(
        id="ar.world",
        kind=K.CUSTOM_ALLREDUCE_DISABLED,
        severity=S.PERF,
        engines=SGL_VLLM,
        pattern=r"is disabled due to an unsupported world size: (?P<world_size>\d+)",
        literals=("disabled due to an unsupported world size",),
        meaning="unsupported world size",
        source="vllm custom_all_reduce.py:134 @ 017e9f4",
        example=(
            "[2026-02-19 01:01:02 TP1] Custom allreduce is disabled due to an unsupported world size: 3. "
            "Supported world sizes: [2, 4, 6, 8]."
        ),
    ),
    Rule(
        id="ar.multinode",
        kind=K.CUSTOM_ALLREDUCE_DISABLED,
        severity=S.PERF,
        engines=SGL,
        pattern=r"is disabled because this process group spans across nodes",
        literals=("this process group spans across nodes",),
        meaning="group spans nodes",
        source="sglang 0.5.9 custom_all_reduce.py:97",
        example=(
            "[2026-02-19 01:01:02 TP1] Custom allreduce is disabled because this process group spans across nodes."
        ),
    ),
    Rule(
        id="ar.setup",
        kind=K.CUSTOM_ALLREDUCE_DISABLED,
        severity=S.PERF,
        engines=SGL,
        pattern=r"Setup Custom allreduce failed with (?P<error>.{0,300}?)\. To silence",
        literals=("setup custom allreduce failed",),
        meaning="custom all-reduce init raised",
        source="sglang 0.5.18 parallel_state.py:483",
        example=(
            "[2026-02-19 01:01:02 TP1] Setup Custom allreduce failed with CUDA error. To silence this warning, "
            "specify --disable-custom-all-reduce explicitly."
        ),
    ),
    Rule(
        id="symm.cap",
        kind=K.NOTE,
        severity=S.PERF,
        engines=SGL_VLLM,
        pattern=r"(?:TorchSymmMem|SymmMem)Communicator: Device capability (?P<compute_capability>[\d.]+) not supported",
        literals=("symmmemcommunicator: device capability ",),
        meaning='torch symmetric-memory AR not for this SM (SM120 → "12"/"12.0")',
        source="vllm symm_mem.py:68 @ 017e9f4",
        example=(
            "(Worker_TP0 pid=9) WARNING 08-20 10:00:00 [symm_mem.py:67] SymmMemCommunicator: Device capability "
            "12.0 not supported, communicator is not available."
        ),
    ),
    Rule(
        id="symm.multicast",
        kind=K.NOTE,
        severity=S.PERF,
        engines=SGL_VLLM,
        pattern=r"multicast operations are not supported",
        literals=("multicast operations are not supported",),
        meaning="no NVLS multicast",
        source="sglang 0.5.18 torch_symm_mem.py:119",
        example=(
            "[2026-06-28 13:36:54 TP0] TorchSymmMemCommunicator: torch symmetric memory multicast operations are "
            "not supported."
        ),
    ),
    Rule(
        id="sgl.fiar.off",
        kind=K.NOTE,
        severity=S.PERF,
        engines=SGL,
        pattern=(
            r"FlashInfer allreduce fusion disabled globally|allreduce_fusion API is not available|Disabling "
            r"flashinfer allreduce fusion permanently"
        ),
        literals=(
            "flashinfer allreduce fusion disabled globally",
            "allreduce_fusion api is not available",
            "disabling flashinfer allreduce fusion permanently",
        ),
        meaning="FlashInfer AR+RMSNorm fusion off",
        source="sglang 0.5.18 flashinfer_comm_fusion.py:668",
        example=(
            "[2026-06-28 13:36:54 TP0] FlashInfer allreduce fusion disabled globally because workspace "
            "initialization failed on at least one rank."
        ),
    ),
    Rule(
        id="sgl.attn",
        kind=K.ATTENTION_BACKEND_SELECTED,
        severity=S.INFO,
        engines=SGL,
        pattern=r"""Attention backend not (?:specified|set)\. (?:Use|Falling back to) ['\"]?(?P<backend>\w+)""",
        literals=(
            "attention backend not specified",
            "attention backend not set",
        ),
        meaning="auto attention backend",
        source="sglang 0.5.9 server_args.py:1836",
        example="[2026-02-19 01:00:41] Attention backend not specified. Use flashinfer backend by default.",
    ),
    Rule(
        id="sgl.deepep",
        kind=K.NOTE,
        severity=S.PERF,
        engines=SGL,
        pattern=r"Only use (?P<sms>\d+) SMs for DeepEP communication",
        literals=("sms for deepep communication",),
        meaning="few SMs for DeepEP",
        source="sglang 0.5.18 deepep.py:259",
        example=(
            "[2026-06-28 13:36:54 TP0] Only use 20 SMs for DeepEP communication. This may result in highly "
            "suboptimal performance."
        ),
    ),
    Rule(
        id="sgl.exc",
        kind=K.CRASH,
        severity=S.FATAL,
        engines=SGL,
        pattern=r"(?:Scheduler hit an exception|(?:\w{1,60} )?hit an exception: Traceback)",
        literals=(
            "hit an exception: traceback",
            "scheduler hit an exception",
        ),
        meaning="scheduler crashed (multi-line traceback follows)",
        source="sglang 0.5.18 scheduler.py:5068",
        example="[2026-06-28 13:36:54 TP0] Scheduler hit an exception: Traceback (most recent call last):",
        block=True,
    ),
    Rule(
        id="sgl.sigquit.launch",
        kind=K.SHUTDOWN,
        severity=S.FATAL,
        engines=SGL,
        pattern=r"Received sigquit from a child proces",
        literals=("received sigquit from a child proces",),
        meaning="child died during launch",
        source="sglang 0.5.18 engine.py:1728",
        example="[2026-02-19 01:02:00] Received sigquit from a child process. It usually means the child failed.",
        parse=f.child_failed,
    ),
    Rule(
        id="sgl.sigquit.run",
        kind=K.SHUTDOWN,
        severity=S.FATAL,
        engines=SGL,
        pattern=r"SIGQUIT received\. signum=.{0,200}?It usually means one child failed",
        literals=("sigquit received. signum=",),
        meaning="child died while serving",
        source="sglang 0.5.18 tokenizer_manager.py:3632",
        example="[2026-02-19 01:02:00] SIGQUIT received. signum=None, frame=None. It usually means one child failed.",
        parse=f.child_failed,
    ),
    Rule(
        id="sgl.watchdog",
        kind=K.CRASH,
        severity=S.FATAL,
        engines=SGL,
        pattern=r"(?P<who>\w{0,60}) ?[Ww]atchdog timeout \(self\.watchdog_timeout=(?P<seconds>[\d.]+)",
        literals=("watchdog timeout (self.watchdog_timeout=",),
        meaning=(
            "forward stuck > watchdog_timeout (default 300 s); armed after model init, so it does not cover "
            "start-up tuning"
        ),
        source="sglang 0.5.18 watchdog.py:154",
        example="[2026-06-28 13:36:54 TP0] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)",
        block=True,
    ),
    Rule(
        id="sgl.subproc",
        kind=K.CRASH,
        severity=S.FATAL,
        engines=SGL,
        pattern=(
            r"Subprocess (?P<subprocess>\S{1,200}) \(pid=(?P<subpid>\d+)\) crashed with exit code "
            r"(?P<exit_code>-?\d+)"
        ),
        literals=("crashed with exit code",),
        meaning="subprocess crashed (≥0.5.10)",
        source="sglang 0.5.18 watchdog.py:219",
        example=(
            "[2026-06-28 14:00:00] Subprocess scheduler_0 (pid=1234) crashed with exit code -9. Triggering "
            "SIGQUIT for cleanup..."
        ),
    ),
    Rule(
        id="sgl.dead",
        kind=K.CRASH,
        severity=S.FATAL,
        engines=SGL,
        pattern=(
            r"Rank (?P<dead_rank>\d+) scheduler (?:is dead|died during initialization)(?: \(exit code: "
            r"(?P<exit_code>-?\d+)\))?"
        ),
        literals=(
            "scheduler is dead",
            "scheduler died during initialization",
        ),
        meaning="rank died in init",
        source="sglang 0.5.18 engine.py:1786",
        example="[2026-06-28 14:00:00] Rank 3 scheduler died during initialization (exit code: -9)",
    ),
    Rule(
        id="sgl.health",
        kind=K.HEALTH_FAILED,
        severity=S.ERROR,
        engines=SGL,
        pattern=r"Health check failed\. Server couldn't get a response from detokenizer",
        literals=("health check failed. server couldn't get a response",),
        meaning="health generate got no answer in HEALTH_CHECK_TIMEOUT",
        source="sglang 0.5.18 http_server.py:719",
        example=(
            "[2026-06-28 14:00:00] Health check failed. Server couldn't get a response from detokenizer for last "
            "20 seconds. tic start time: 13:59:40. last_heartbeat time: 13:59:01"
        ),
    ),
    Rule(
        id="sgl.mem",
        kind=K.ENGINE_START_FAILED,
        severity=S.FATAL,
        engines=SGL,
        pattern=r"Not enough memory\. Please try to increase --mem-fraction-static",
        literals=("not enough memory. please try to increase --mem-fraction-static",),
        meaning="KV pool ≤0",
        source="sglang 0.5.18 pool_configurator.py:74",
        example=(
            "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: "
            "mem_fraction_static=0.8"
        ),
    ),
    Rule(
        id="sgl.allocoom",
        kind=K.OOM,
        severity=S.ERROR,
        engines=SGL,
        pattern=r"(?:Prefill|Decode) out of memory\. Try to lower your batch size",
        literals=("out of memory. try to lower your batch size",),
        meaning="KV allocator exhausted",
        source="sglang 0.5.18 allocation.py:500",
        example="[2026-06-28 13:36:54 TP0] Decode out of memory. Try to lower your batch size.",
    ),
    Rule(
        id="sgl.term",
        kind=K.SHUTDOWN,
        severity=S.INFO,
        engines=SGL,
        pattern=r"SIGTERM received\. signum=.{0,200}?Draining requests and shutting down",
        literals=("sigterm received. signum=",),
        meaning="SIGTERM accepted, drain begins",
        source="sglang 0.5.18 tokenizer_manager.py:3626",
        example=(
            "[2026-06-28 14:00:00] SIGTERM received. signum=None frame=None. Draining requests and shutting down..."
        ),
    ),
    Rule(
        id="sgl.drain",
        kind=K.SHUTDOWN,
        severity=S.INFO,
        engines=SGL,
        pattern=r"Gracefully exiting\.\.\. Remaining number of requests (?P<remaining>\d+)",
        literals=("gracefully exiting... remaining number of requests",),
        meaning="drain progress, every 5 s, no upper bound",
        source="sglang 0.5.18 tokenizer_manager.py:3141",
        example=(
            "[2026-06-28 14:00:05] Gracefully exiting... Remaining number of requests 4. Remaining requests "
            "remaining_rids=['a']."
        ),
    ),
)
