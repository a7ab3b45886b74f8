"""Lines of failures, waiting and shutdown under vLLM. A table, no code."""

from __future__ import annotations

from moetop.engines.rule import VLLM, Rule
from moetop.model import EventKind as K
from moetop.model import EventSeverity as S

RULES: tuple[Rule, ...] = (
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
        id="vl.coredied",
        kind=K.CRASH,
        severity=S.FATAL,
        engines=VLLM,
        pattern=r"Engine core proc (?P<core_proc>\S{1,80}) died unexpectedly",
        literals=("died unexpectedly",),
        meaning="the engine core's process ended without a word of its own: look for a kill",
        source="vllm core_client.py",
        example=(
            "(APIServer pid=1) ERROR 08-17 11:00:06 [core_client.py:600] Engine core proc EngineCore_DP0 died "
            "unexpectedly, shutting down client."
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
        id="vl.wait.core",
        kind=K.ENGINE_WAIT,
        severity=S.NOTICE,
        engines=VLLM,
        pattern=r"Waiting for (?P<local>\d+) local, (?P<remote>\d+) remote core engine proc",
        literals=("remote core engine proc",),
        meaning="the front end waits for engine processes",
        source="vllm core_client.py",
        example=(
            "(APIServer pid=1) DEBUG 08-17 10:00:00 [utils.py:776] Waiting for 1 local, 0 remote core engine "
            "proc(s) to start."
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
        meaning="SIGTERM/SIGINT accepted",
        source="vllm launcher.py:114 @ 017e9f4",
        example="(APIServer pid=1) INFO 08-17 10:00:00 [launcher.py:114] [shutdown] API server: shutdown triggered",
        versions="vLLM >=2026-06-04 wording",
    ),
)
