"""Lines of vLLM: loading, graphs, serving. A table, no code."""

from __future__ import annotations

from moetop.engines import fields as f
from moetop.engines.rule import VLLM, VLLM_TRT, Rule
from moetop.model import EventKind as K
from moetop.model import EventSeverity as S

RULES: tuple[Rule, ...] = (
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
        meaning="attention backend",
        source="vllm cuda.py:487 @ 017e9f4",
        example=(
            "(EngineCore_DP0 pid=214) INFO 08-17 10:00:00 [cuda.py:486] Using FLASHINFER attention backend out "
            "of potential backends: ['FLASHINFER', 'FLASH_ATTN']."
        ),
        versions="vLLM >=2025-11-25",
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
        meaning="AR backends in dispatch order",
        source="vllm cuda_communicator.py:267 @ 017e9f4",
        example=(
            "(EngineCore_DP0 pid=214) INFO 08-17 10:00:00 [cuda_communicator.py:266] Using ['PYNCCL'] all-reduce "
            "backends (in dispatch order) for group 'tp:0' out of potential backends: ['CUSTOM', 'PYNCCL']."
        ),
        versions="vLLM >=2026-05-20",
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
        id="vl.load.old",
        kind=K.WEIGHTS_LOADED,
        severity=S.INFO,
        engines=VLLM,
        pattern=r"Loading model weights took (?P<GB>[\d.]+) G[Bi]+",
        literals=("loading model weights took ",),
        meaning="model loaded (up to 0.8)",
        source="vllm 0.8 gpu_model_runner.py",
        example="INFO 05-03 17:41:23 [model_runner.py:1140] Loading model weights took 14.24 GB",
    ),
    Rule(
        id="vl.compile",
        kind=K.WARMUP,
        severity=S.INFO,
        engines=VLLM,
        pattern=(
            r"Dynamo bytecode transform time: (?P<seconds>[\d.]+) s|Compiling a graph for |Directly load the "
            r"compiled graph"
        ),
        literals=(
            "dynamo bytecode transform time",
            "compiling a graph for ",
            "directly load the compiled graph",
        ),
        meaning="torch.compile at work",
        source="vllm backends.py",
        example=(
            "(EngineCore_DP0 pid=214) INFO 08-17 10:00:00 [backends.py:530] Dynamo bytecode transform time: 5.21 s"
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
        id="vl.blocks",
        kind=K.KV_CACHE,
        severity=S.INFO,
        engines=VLLM,
        pattern=r"# (?:GPU|cuda) blocks: (?P<blocks>\d+)",
        literals=(
            "# gpu blocks: ",
            "# cuda blocks: ",
        ),
        meaning="KV capacity in blocks",
        source="vllm executor_base.py",
        example="INFO 05-03 17:42:23 [executor_base.py:112] # cuda blocks: 27512, # CPU blocks: 2048",
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
        id="vl.graph.begin",
        kind=K.GRAPH_CAPTURE_START,
        severity=S.INFO,
        engines=VLLM,
        pattern=r"Capturing cudagraphs for decoding|Capturing the model for CUDA graphs",
        literals=(
            "capturing cudagraphs for decoding",
            "capturing the model for cuda graphs",
        ),
        meaning="graph capture begins",
        source="vllm model_runner.py",
        example=(
            "INFO 05-03 17:42:23 [model_runner.py:1450] Capturing cudagraphs for decoding. This may lead to "
            "unexpected consequences"
        ),
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
        meaning="HTTP bind",
        source="vllm api_server.py:548 @ 017e9f4",
        example=(
            "(APIServer pid=1) INFO 08-17 10:02:00 [api_server.py:548] Starting vLLM server on http://0.0.0.0:8000"
        ),
        versions='vLLM >=2026-03; <=0.10 "Starting vLLM API server N on URL"',
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
        own_only=True,
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
)
