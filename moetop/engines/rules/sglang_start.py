"""Lines of SGLang: loading, graphs, serving. A table, no code."""

from __future__ import annotations

from moetop.engines import fields as f
from moetop.engines.rule import ANY, SGL, Rule
from moetop.model import EventKind as K
from moetop.model import EventSeverity as S

RULES: tuple[Rule, ...] = (
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
            "checkpoint shards:",
            "multi-thread loading shards:",
            "loading weights:",
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
        meaning="graph capture start",
        source="sglang 0.5.18 cuda_graph_setup.py:458",
        example=(
            "[2026-06-28 13:36:54 TP0] Capture target decode CUDA graph begin. backend=full, "
            "num_tokens_per_req=1, bs=[1, 2, 4, 8], avail mem=12.10 GB"
        ),
        versions='SGLang <=0.5.13 "Capture cuda graph begin."; >=0.5.14 "Capture target decode CUDA graph begin."',
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
        own_only=True,
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
        meaning="one per prefill batch; the order of its fields varies",
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
)
