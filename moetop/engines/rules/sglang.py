"""Lines of SGLang: arguments, backends, tuning. A table, no code."""

from __future__ import annotations

from moetop.engines import fields as f
from moetop.engines.rule import SGL, SGL_VLLM, Rule
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
        meaning="auto → flashinfer_cutlass on SM120 for modelopt_fp4",
        source="sglang 0.5.18 overrides.py:2513",
        example=(
            "[2026-06-28 13:58:47] Use flashinfer_cutlass as MoE runner backend on SM120 for modelopt_fp4 "
            "(trtllm-gen MoE kernels are SM100-only)"
        ),
        versions="SGLang >=0.5.13",
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
        pattern=r"Running FlashInfer autotune with cache: (?P<path>\S.{0,1000}?)\s{0,20}$",
        literals=("running flashinfer autotune with cache: ",),
        meaning="engine entered FlashInfer tuning with JSON cache path (≥0.5.12)",
        source="sglang 0.5.18 flashinfer_autotune.py:180",
        example=(
            "[2026-06-28 13:36:54 TP0] Running FlashInfer autotune with cache: "
            "/root/.cache/sglang/flashinfer/autotune/0.6.12/sm120/88ed2caa135f6803/rank_tp0_pp0_dp0.json"
        ),
        versions="SGLang >=0.5.12",
        parse=f.cache_path,
    ),
    Rule(
        id="sgl.tune.fresh",
        kind=K.AUTOTUNE_START,
        severity=S.INFO,
        engines=SGL,
        pattern=(
            r"Running FlashInfer autotune \(cache reuse DISABLED .{0,200}writing fresh result to: "
            r"(?P<path>\S.{0,1000}?)\s{0,20}$"
        ),
        literals=("running flashinfer autotune (cache reuse disabled",),
        meaning="retune forced: SGLANG_FLASHINFER_AUTOTUNE_CACHE=0 (≥0.5.13)",
        source="sglang 0.5.18 flashinfer_autotune.py:187",
        example=(
            "[2026-06-28 13:36:54 TP0] Running FlashInfer autotune (cache reuse DISABLED via "
            "SGLANG_FLASHINFER_AUTOTUNE_CACHE=0); writing fresh result to: "
            "/root/.cache/sglang/flashinfer/autotune/0.6.17/sm120/88ed/runs/rank_tp0_pp0_dp0.20260820_101010.json"
        ),
        versions="SGLang >=0.5.13",
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
        versions="SGLang >=0.5.18",
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
        versions="SGLang >=0.5.18",
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
        meaning="no *_down.json; up-proj config reused",
        source="sglang 0.5.18 fused_moe_triton_config.py:157",
        example=(
            "[2026-06-28 13:36:54 TP0] Down MoE config file not found at /a/E=8,N=1_down.json; reusing the tuned "
            "up-projection config without TMA. Performance might be sub-optimal."
        ),
        versions='SGLang >=0.5.18; older text: "Using MoE kernel config with down_moe=False"',
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
)
