"""Lines of Python, CUDA, NCCL and compilers. A table, no code."""

from __future__ import annotations

from moetop.engines import fields as f
from moetop.engines import fields_system as system
from moetop.engines.rule import ANY, SGL_VLLM, Rule
from moetop.model import EventKind as K
from moetop.model import EventSeverity as S

RULES: tuple[Rule, ...] = (
    Rule(
        id="g.logging",
        kind=K.NOTE,
        severity=S.NOTICE,
        engines=ANY,
        pattern=r"^--- Logging error ---",
        literals=("--- logging error ---",),
        meaning="Python's own report of a failing logger; the traceback below it is the logger's",
        source="CPython logging",
        example="--- Logging error ---",
        block=True,
    ),
    Rule(
        id="g.saved",
        kind=K.MOE_CONFIG_SAVED,
        severity=S.GOOD,
        engines=ANY,
        pattern=r"Writing best config to (?P<path>\S.{0,1000}?\.json)",
        literals=("writing best config to ",),
        meaning="a tuning script wrote its result",
        source="sglang and vllm benchmark scripts",
        example="Writing best config to E=256,N=256,device_name=NVIDIA_B200.json...",
        parse=f.used_config,
    ),
    Rule(
        id="g.tune.script",
        kind=K.NOTE,
        severity=S.INFO,
        engines=ANY,
        pattern=(
            r"Start tuning over (?P<configurations>\d+) configurations|Completed tuning for "
            r"batch_size=(?P<batch_size>\d+)|Tuning took (?P<seconds>[\d.]+) seconds"
        ),
        literals=(
            "start tuning over ",
            "completed tuning for batch_size=",
            "tuning took ",
        ),
        meaning="an offline tuning script works",
        source="sglang and vllm benchmark scripts",
        example="Start tuning over 1920 configurations to create E=256,N=256,device_name=NVIDIA_B200.json...",
    ),
    Rule(
        id="g.fallback",
        kind=K.MOE_BACKEND_FALLBACK,
        severity=S.PERF,
        engines=SGL_VLLM,
        pattern=r"[Ff]alling back to (?:the )?(?P<to>\w{2,40})[^.\n]{0,60}\b(?:MoE|moe|experts)\b",
        literals=("falling back to ",),
        meaning="a slower MoE path is taken",
        source="sglang and vllm",
        example=(
            "(EngineCore pid=1) WARNING 08-17 10:00:00 [layer.py:100] FlashInfer CUTLASS is not available. "
            "Falling back to Triton MoE kernels."
        ),
    ),
    Rule(
        id="g.ninja",
        kind=K.JIT_PROGRESS,
        severity=S.INFO,
        engines=ANY,
        pattern=r"^\[(?P<n>\d+)/(?P<tot>\d+)\] .{0,300}?(?:nvcc|c\+\+ )",
        literals=(
            "nvcc",
            "c++ ",
        ),
        meaning="a kernel is being compiled",
        source="ninja, nvcc",
        example="[3/8] /usr/local/cuda/bin/nvcc -c fused_moe.cu -o fused_moe.cuda.o",
        counted=True,
        parse=f.bar,
    ),
    Rule(
        id="g.build",
        kind=K.JIT_START,
        severity=S.INFO,
        engines=ANY,
        pattern=r"Building extension module (?P<what>[\w.]{1,120})|Emitting ninja build file",
        literals=(
            "building extension module ",
            "emitting ninja build file",
        ),
        meaning="a kernel library is being built",
        source="torch cpp_extension",
        example="Building extension module fused_moe_120...",
    ),
    Rule(
        id="g.tb",
        kind=K.TRACEBACK,
        severity=S.ERROR,
        engines=ANY,
        pattern=r"Traceback \(most recent call last\):",
        literals=("traceback (most recent call last)",),
        meaning="python traceback head",
        source="CPython",
        example="Traceback (most recent call last):",
        block=True,
    ),
    Rule(
        id="g.oom.alloc",
        kind=K.OOM,
        severity=S.WARN,
        engines=ANY,
        pattern=(
            r"memory allocation failed with OOM on device (?P<device>\d+) while trying to allocate "
            r"(?P<wanted>\d+) bytes(?: \(free: (?P<free>\d+))?"
        ),
        literals=("memory allocation failed with oom on device",),
        meaning="the allocator could not get memory once; the caller may survive it",
        source="torch CUDACachingAllocator.cpp",
        example=(
            "[rank1]:[W826 11:09:24.887544309 CUDACachingAllocator.cpp:3933] memory allocation failed with OOM "
            "on device 1 while trying to allocate 419430400 bytes (free: 282394624, total: 33687928832)."
        ),
        parse=system.alloc_oom,
    ),
    Rule(
        id="g.oom",
        kind=K.OOM,
        severity=S.FATAL,
        engines=ANY,
        pattern=(
            r"CUDA (?:error: )?out of memory(?:\. Tried to allocate (?P<wanted>[\d.]+ "
            r"[KMG]iB))?|cudaErrorMemoryAllocation"
        ),
        literals=(
            "cuda out of memory",
            "cuda error: out of memory",
            "cudaerrormemoryallocation",
        ),
        meaning="CUDA OOM (torch OutOfMemoryError or MemoryError from TVM-FFI inside cutlass_fused_moe)",
        source="torch / FI",
        example="MemoryError: CUDA out of memory. Tried to allocate 1.64 GiB",
        block=True,
        error_only=True,
    ),
    Rule(
        id="g.nccl.wd",
        kind=K.NCCL_TIMEOUT,
        severity=S.FATAL,
        engines=ANY,
        pattern=r"Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=(?P<seq>\d+), OpType=(?P<op>\w+)",
        literals=("watchdog caught collective operation timeout",),
        meaning="NCCL collective timeout",
        source="torch ProcessGroupNCCL.cpp",
        example=(
            "[rank0]:[E1218 20:27:21.426415540 ProcessGroupNCCL.cpp:629] [Rank 0] Watchdog caught collective "
            "operation timeout: WorkNCCL(SeqNum=1, OpType=BROADCAST, NumelIn=131072000, NumelOut=131072000, "
            "Timeout(ms)=600000) ran for 600081 milliseconds before timing out."
        ),
        parse=system.nccl_watchdog,
        needs="ran_ms",
        error_only=True,
    ),
    Rule(
        id="g.nccl.pg",
        kind=K.NCCL_TIMEOUT,
        severity=S.FATAL,
        engines=ANY,
        pattern=(
            r"\[PG ID (?P<process_group>\d+)[^\]]{0,200}\] Exception \(either an error or timeout\) detected by "
            r"watchdog"
        ),
        literals=("detected by watchdog",),
        meaning="the watchdog names the group of the collective that timed out",
        source="torch ProcessGroupNCCL.cpp",
        example=(
            "[rank4]:[E210 02:06:33.321659390 ProcessGroupNCCL.cpp:1785] [PG ID 2 PG GUID 3 Rank 4] Exception "
            "(either an error or timeout) detected by watchdog at work: 1522789, last enqueued NCCL work: 1522789"
        ),
        echo=True,
        error_only=True,
    ),
    Rule(
        id="g.nccl.failed",
        kind=K.NCCL_TIMEOUT,
        severity=S.FATAL,
        engines=ANY,
        pattern=r"Some NCCL operations have failed or timed out",
        literals=("some nccl operations have failed or timed out",),
        meaning="the process will be aborted after a failed collective",
        source="torch ProcessGroupNCCL.cpp",
        example=(
            "[rank4]:[E210 02:06:33.321682548 ProcessGroupNCCL.cpp:630] [Rank 4] Some NCCL operations have "
            "failed or timed out. Due to the asynchronous nature of CUDA kernels"
        ),
        echo=True,
        error_only=True,
    ),
    Rule(
        id="g.nccl.term",
        kind=K.NCCL_TIMEOUT,
        severity=S.FATAL,
        engines=ANY,
        pattern=(
            r"(?:To avoid data inconsistency, we are taking the entire process down|Process group watchdog thread "
            r"terminated with exception)"
        ),
        literals=(
            "we are taking the entire process down",
            "watchdog thread terminated with exception",
        ),
        meaning="the process is taken down by the watchdog",
        source="torch ProcessGroupNCCL.cpp",
        example=(
            "[rank4]:[E210 02:06:33.400000000 ProcessGroupNCCL.cpp:636] [Rank 4] To avoid data inconsistency, we "
            "are taking the entire process down."
        ),
        echo=True,
        error_only=True,
    ),
    Rule(
        id="g.nccl.via",
        kind=K.NCCL_TRANSPORT,
        severity=S.INFO,
        engines=ANY,
        pattern=r"(?:\d\]|\]) via (?P<via>(?:SHM|P2P|NET)\S{0,40})",
        literals=(
            "] via shm",
            "] via p2p",
            "] via net",
            "] via shm",
        ),
        meaning="the path NCCL took between two ranks",
        source="nccl transport",
        example="host:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via SHM/direct/direct",
    ),
    Rule(
        id="g.nccl.error",
        kind=K.CRASH,
        severity=S.FATAL,
        engines=ANY,
        pattern=(
            r"(?P<error>(?:DistBackendError: )?NCCL error[^\n]{0,300}|nccl(?:UnhandledCuda|System|Remote|Internal)"
            r"Error[^\n]{0,200})"
        ),
        literals=(
            "nccl error",
            "ncclunhandledcudaerror",
            "ncclsystemerror",
            "ncclremoteerror",
            "ncclinternalerror",
        ),
        meaning="a collective failed",
        source="torch ProcessGroupNCCL, NCCL",
        example=(
            "torch.distributed.DistBackendError: NCCL error in: "
            "../torch/csrc/distributed/c10d/NCCLUtils.hpp:268, unhandled cuda error"
        ),
        block=True,
        error_only=True,
    ),
    Rule(
        id="g.nccl.stuck",
        kind=K.NCCL_TIMEOUT,
        severity=S.FATAL,
        engines=ANY,
        pattern=r"ProcessGroupNCCL's watchdog got stuck for (?P<seconds>\d+) seconds|Heartbeat monitor timed out",
        literals=(
            "processgroupnccl's watchdog got stuck",
            "heartbeat monitor timed out",
        ),
        meaning="the watchdog itself got stuck",
        source="torch ProcessGroupNCCL.cpp",
        example=(
            "[rank0]:[F1218 20:27:21.426415540 ProcessGroupNCCL.cpp:1554] [PG ID 0 PG GUID 0 Rank 0] [PG ID 0 PG "
            "GUID 0 Rank 0] ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress"
        ),
        echo=True,
        error_only=True,
    ),
    Rule(
        id="g.nccl.p2p",
        kind=K.NCCL_TRANSPORT,
        severity=S.PERF,
        engines=ANY,
        pattern=r"P2P is disabled between connected GPUs (?P<a>\d+) and (?P<b>\d+)",
        literals=("p2p is disabled between connected gpus",),
        meaning="NCCL P2P off (only with NCCL_DEBUG=INFO)",
        source="nccl graph/paths.cc",
        example=(
            "host:1:1 [0] NCCL INFO P2P is disabled between connected GPUs 1 and 0. You can repress this message "
            "with NCCL_IGNORE_DISABLED_P2P=1."
        ),
    ),
    Rule(
        id="g.ecc",
        kind=K.ECC_ERROR,
        severity=S.FATAL,
        engines=ANY,
        pattern=r"(?:CUDA error: )?uncorrectable ECC error encountered|[Uu]ncorrectable ECC error",
        literals=("uncorrectable ecc error",),
        meaning="uncorrectable memory error on the GPU",
        source="CUDA",
        example="torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered",
        error_only=True,
    ),
    Rule(
        id="g.ima",
        kind=K.CRASH,
        severity=S.FATAL,
        engines=ANY,
        pattern=r"(?P<error>CUDA error: an illegal memory access was encountered)",
        literals=("an illegal memory access was encountered",),
        meaning="illegal memory access",
        source="CUDA",
        example="torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
        block=True,
        error_only=True,
    ),
    Rule(
        id="g.http.debug",
        kind=K.HTTP_ACCESS,
        severity=S.NOISE,
        engines=ANY,
        pattern=r"(?:receive_response|send_request|response_closed|connect_tcp|start_tls)\w{0,12}\.(?:started|complete|failed)\b",
        literals=(
            "receive_response",
            "send_request",
            "response_closed",
            "connect_tcp",
            "start_tls",
        ),
        meaning="httpcore's own trace of a request, at the debug level – hide by default",
        source="httpcore _trace.py",
        example="[2026-02-19 01:05:00] receive_response_headers.complete return_value=(b'HTTP/1.1', 200, b'OK', [])",
    ),
    Rule(
        id="g.http",
        kind=K.HTTP_ACCESS,
        severity=S.NOISE,
        engines=ANY,
        pattern=r'"(?:GET|POST|PUT|DELETE|HEAD|OPTIONS|PATCH) \S{1,4000} HTTP/(?:1\.|2|3)\d?" (?P<status>\d{3})',
        literals=(
            "http/1.",
            "http/2",
            "http/3",
        ),
        meaning="uvicorn access log – hide by default",
        source="uvicorn",
        example='[2026-06-28 14:00:05] INFO:     127.0.0.1:44444 - "GET /health HTTP/1.1" 200 OK',
    ),
    Rule(
        id="g.cuda",
        kind=K.CRASH,
        severity=S.FATAL,
        engines=ANY,
        pattern=(
            r"(?P<error>CUDA (?:driver )?error: (?:unspecified launch failure|device-side assert|misaligned "
            r"address|an illegal instruction|no kernel image|the launch timed out|invalid device|unknown "
            r"error|hardware stack|operation not permitted|invalid program counter|CUDA-capable "
            r"device)[^\n]{0,120})"
        ),
        literals=(
            "cuda error: ",
            "cuda driver error: ",
        ),
        meaning="a CUDA error that ends the process",
        source="CUDA",
        example="RuntimeError: CUDA error: unspecified launch failure",
        block=True,
        error_only=True,
    ),
    Rule(
        id="g.signal",
        kind=K.CRASH,
        severity=S.FATAL,
        engines=ANY,
        pattern=(
            r"(?P<error>Fatal Python error: [^\n]{1,120}|\*\*\* (?:Process received "
            r"signal|SIG[A-Z]+)[^\n]{0,60}|Caught signal \d+ \([^)]{1,60}\)?|Segmentation fault \(core "
            r"dumped\)|terminate called after throwing an instance of [^\n]{1,120})"
        ),
        literals=(
            "fatal python error: ",
            "*** process received signal",
            "*** sig",
            "caught signal ",
            "segmentation fault (core dumped)",
            "terminate called after throwing",
        ),
        meaning="the process caught a fatal signal",
        source="CPython faulthandler, glog, UCX, mpirun",
        example="Fatal Python error: Segmentation fault",
        block=True,
        error_only=True,
    ),
)
