"""What to do about a crash, by the words of its cause: a table, first match wins. Reads no log, makes no finding."""

from __future__ import annotations

import re

import msgspec

from moetop.diagnose import words
from moetop.model import EventKind, LogEvent

_KERNEL_LOG = words.COMMAND + "dmesg -T | grep -iE 'out of memory|killed process' | tail"
_STACKS = words.COMMAND + "py-spy dump --pid PID_OF_EACH_RANK"


class CrashRemedy(msgspec.Struct, frozen=True):
    """A cause by the words that name it, what to do, and whose words they are. `kinds` are events that mean it."""

    words: re.Pattern[str]
    remedy: tuple[str, ...]
    source: str
    kinds: frozenset[EventKind] = frozenset()


def _row(words_: str, remedy: tuple[str, ...], source: str, *kinds: EventKind) -> CrashRemedy:
    return CrashRemedy(re.compile(words_, re.IGNORECASE), remedy, source, frozenset(kinds))


CRASH_REMEDIES: tuple[CrashRemedy, ...] = (
    _row(
        r"out of memory: killed process|oom-kill|memory cgroup out of memory",
        (
            "the host's own memory ran out: give the container or unit more, or load with less of it (fewer workers, "
            "no offload to the CPU, smaller swap space)",
            _KERNEL_LOG,
        ),
        "Linux mm/oom_kill.c",
    ),
    _row(
        r"exit code: -9\b|signal 9\b|\bsigkill\b",
        (
            "a process was killed from outside: look for the kernel's memory killer, a manager, or an operator",
            _KERNEL_LOG,
        ),
        "vLLM multiproc_executor.py; Python's exit codes",
    ),
    _row(
        r"increas\w+ [`'-]*(?:mem-fraction-static|gpu[_-]memory[_-]utilization)"
        r"|no available memory for the cache blocks|larger than the (?:maximum number of tokens|available kv cache)",
        (
            "the weights leave no room for the KV cache: raise the engine's share of GPU memory, spread the model over "
            "more GPUs, or allow a shorter context",
        ),
        "SGLang model_runner.py; vLLM v1/core/kv_cache_utils.py",
    ),
    _row(
        r"free memory on device .{0,120}less than desired",
        (
            "the GPU is not free: see who holds its memory (an old process of the same server?), or lower the engine's "
            "share of GPU memory",
            words.COMMAND + "nvidia-smi --query-compute-apps=pid,used_memory,name --format=csv",
        ),
        "vLLM v1/worker/gpu_worker.py",
    ),
    _row(
        r"outofmemoryerror|out of memory|cublas_status_alloc_failed|not enough memory",
        (
            "give the step that failed more memory: lower the engine's share of GPU memory (SGLang "
            "--mem-fraction-static, vLLM --gpu-memory-utilization, TensorRT-LLM free_gpu_memory_fraction), its batch",
        ),
        "torch c10/cuda/CUDACachingAllocator.cpp",
        EventKind.OOM,
    ),
    _row(
        r"address already in use|errno 98\b|eaddrinuse",
        (
            "another process listens on that port: stop it (an old process of this server?), or choose another port",
            words.COMMAND + "ss -ltnp",
        ),
        "Python asyncio, uvicorn",
    ),
    _row(
        r"driver version is insufficient|driver/library version mismatch|system not yet initialized"
        r"|no cuda-capable device|nvidia driver on your system is too old|cuda driver initialization failed"
        r"|cuda unknown error",
        (
            "the driver does not serve this engine's CUDA: update it, or take an engine built for it; on NVSwitch "
            "machines nvidia-fabricmanager of the same version must run",
            words.COMMAND + "nvidia-smi",
        ),
        "CUDA driver API error strings; torch c10/cuda/CUDAFunctions.cpp",
    ),
    _row(
        r"no kernel image is available|not compiled for (?:this|your) (?:gpu|arch)|unsupported gpu architecture"
        r"|is not compatible with the current pytorch",
        (
            "this build has no kernels for this GPU: choose another attention or MoE backend, or upgrade the engine "
            "with the torch and FlashInfer it names",
        ),
        "CUDA runtime error 209; torch/cuda/__init__.py; nvcc",
    ),
    _row(
        r"watchdog caught collective|collective operation timeout"
        r"|nccl (?:communicator|error|watchdog).{0,200}(?:timeout|timed out)",
        (
            "a rank did not take part: look at the other ranks and hosts first, then at the links",
            "the hang began one time-out earlier than the record",
            "if it comes again: see where each rank stands before the time-out, and start once with NCCL_DEBUG=INFO",
            _STACKS,
        ),
        "torch ProcessGroupNCCL.cpp",
        EventKind.NCCL_TIMEOUT,
    ),
    _row(
        r"watchdog timeout|rpc call to \w+ timed out",
        (
            "a step did not come back in time: see where each rank stands when it comes again; a longer time-out only "
            "helps where the step is known to be slow (a first compile, a very long prompt)",
            _STACKS,
        ),
        "SGLang scheduler watchdog; vLLM multiproc_executor.py",
    ),
    _row(
        r"illegal memory access|misaligned address|device-side assert|illegal instruction|unspecified launch failure"
        r"|an illegal \w+ was encountered|cuda error",
        (
            "a kernel faulted: look for an Xid of that moment, and start once with CUDA_LAUNCH_BLOCKING=1 so that the "
            "error names its kernel; another attention or MoE backend, or an upgrade, may avoid it",
            words.COMMAND + "dmesg -T | grep -i xid | tail",
        ),
        "CUDA runtime error strings",
    ),
    _row(
        r"segmentation fault|fatal python error|\bsigsegv\b|\bsigabrt\b|core dumped|signal 11\b",
        (
            "native code crashed: the stack printed with it names the library to upgrade or to leave out",
            words.COMMAND + "coredumpctl list",
        ),
        "CPython faulthandler",
    ),
    _row(
        r"modulenotfounderror|no module named|importerror|cannot open shared object file|undefined symbol",
        ("what it names is missing from the server's environment, or of another version: install what it needs",),
        "Python and ld.so",
    ),
    _row(
        r"unrecognized arguments?|invalid choice|the following arguments are required"
        r"|expected one argument|no such option",
        ("correct the command line: this version does not know that option or value (see its --help)",),
        "Python argparse",
    ),
    _row(
        r"not a valid model identifier|is not a local folder|repositorynotfound|gated repo|401 client error"
        r"|localentrynotfound|safetensors.{0,80}not found",
        ("the model was not found: check its name or path, the token for a gated one, and the way to the hub",),
        "huggingface_hub, transformers",
    ),
)  # fmt: skip
"""Words are matched in the record of the cause; a kind decides where no words do."""

UNKNOWN_REMEDY = ("read the log around the first error (in moetop: `l`, then `e` steps through what went wrong)",)


def crash_remedy(cause: LogEvent, text: str) -> tuple[str, ...]:
    """What to do about the cause of a crash. `text` are its words."""
    said = f"{text}\n{cause.line}"
    row = next((row for row in CRASH_REMEDIES if row.words.search(said)), None)
    row = row or next((row for row in CRASH_REMEDIES if cause.kind in row.kinds), None)
    return row.remedy if row is not None else UNKNOWN_REMEDY
