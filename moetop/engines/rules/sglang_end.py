"""Lines of all-reduce and of failures under SGLang. A table, no code."""

from __future__ import annotations

from moetop.engines import fields as f
from moetop.engines.rule import SGL, SGL_VLLM, Rule
from moetop.model import EventKind as K
from moetop.model import EventSeverity as S

RULES: tuple[Rule, ...] = (
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
        id="ar.platform",
        kind=K.CUSTOM_ALLREDUCE_DISABLED,
        severity=S.PERF,
        engines=SGL_VLLM,
        pattern=r"Disabled the custom all-reduce kernel because",
        literals=("disabled the custom all-reduce kernel",),
        meaning="custom all-reduce off on this platform",
        source="vllm config.py",
        example=(
            "WARNING 08-17 10:00:00 [config.py:900] Disabled the custom all-reduce kernel because it is not "
            "supported on current platform."
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
        meaning="subprocess crashed",
        source="sglang 0.5.18 watchdog.py:219",
        example=(
            "[2026-06-28 14:00:00] Subprocess scheduler_0 (pid=1234) crashed with exit code -9. Triggering "
            "SIGQUIT for cleanup..."
        ),
        versions="SGLang >=0.5.10",
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
