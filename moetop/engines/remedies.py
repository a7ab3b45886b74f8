"""What to do about a tuning verdict, for each engine and tuner, as sentences with their commands. No logic
beyond filling in names."""

from __future__ import annotations

import shlex

from moetop.engines.gates import ADVISED
from moetop.model import Engine

NO_BUNDLED_FILE = (
    "do not write a file under flashinfer/tuning_configs: those are read only with "
    "FLASHINFER_AUTOTUNER_LOAD_FROM_FILE=1, and a missing one is not the cause"
)
CHECK_ALLREDUCE = (
    "also rule out communication: without NVLink, look in the log for \"custom all-reduce is disabled because it's not "
    'supported on more than two PCIe-only GPUs"; ranks that wait for each other draw little power at 100 % utilization'
)
LESS_MEMORY = {
    Engine.SGLANG: "leave the tuner memory: lower --mem-fraction-static, then restart",
    Engine.VLLM: "leave the tuner memory: lower --gpu-memory-utilization, then restart",
}
LESS_MEMORY_ANY = "leave the tuner memory: lower the share of GPU memory the server takes, then restart"
RETUNE_FLASHINFER = {
    Engine.SGLANG: "move away every rank_tp*_pp*_dp*.json of this server's cache folder, then restart with the same "
    "arguments",
    Engine.VLLM: "move away autotune_configs.json of this server's cache folder and restart with the same arguments",
}
RETUNE_ANY = "move the tuning cache away and restart with the same arguments"
EXTEND_SGLANG = (
    "SGLang 0.5.18 and later can tune prefill sizes too: SGLANG_FLASHINFER_AUTOTUNE_EXTEND=1 (needs free memory)"
)
RETUNE_TRTLLM = "delete the file at TLLM_AUTOTUNER_CACHE_PATH and restart; expect `Cache size after warmup is` above 0"
OTHER_CACHE = "use another cache path for this environment, or move the old cache away, and restart"
SWITCH_ON = {
    Engine.SGLANG: "if it was not switched off on purpose: restart without --disable-flashinfer-autotune",
    Engine.VLLM: "if it was not switched off on purpose (many recipes do it to avoid crashes): restart with "
    "--enable-flashinfer-autotune",
    Engine.TENSORRT_LLM: "if it was not switched off on purpose: restart with enable_autotuner: true",
}
OTHER_BACKEND = "another MoE backend may be faster on this GPU; this one cannot be tuned"
OTHER_BACKEND_MAY = "another MoE backend may serve where this one cannot be tuned"
SEE_TUNER = {
    Engine.SGLANG: "to tell: read the server's tuning cache folder (moetop does on a watched host), or its start-up "
    "lines at info level",
    Engine.VLLM: "to tell: start with FLASHINFER_LOGGING_LEVEL=INFO (the default) and keep the start-up lines",
}


def upgrade_sglang(backend: str, first: str) -> str:
    """Upgrade, with the release from which on the backend is tuned."""
    return (
        f"upgrade to SGLang {ADVISED} or later and keep the same backend ({first} is the first release that tunes "
        f"{backend}), then retune and restart"
    )


def triton_script(engine: Engine | None, model: str | None, tp: int | None, dtype: str | None) -> str:
    """The command line of the engine's own tuning script; it needs the GPUs free."""
    name = shlex.quote(model) if model else "MODEL"
    kind = shlex.quote(dtype) if dtype else "auto"
    size = str(tp) if tp else "TP"
    if engine is Engine.SGLANG:
        return (
            "python benchmark/kernels/fused_moe_triton/tuning_fused_moe_triton.py "
            f"--model {name} --tp-size {size} --dtype {kind} --tune"
        )
    return f"python benchmarks/kernels/benchmark_moe.py --model {name} -tp {size} --dtype {kind} --tune --save-dir DIR"


def triton_remedy(
    engine: Engine | None, paths: tuple[str, ...], model: str | None, tp: int | None, dtype: str | None
) -> tuple[str, ...]:
    """Make the missing Triton files: script, place, restart."""
    script = triton_script(engine, model, tp, dtype)
    where = f"; the file to create: {paths[0]}" if paths else ""
    more = f" (and {len(paths) - 1} more)" if len(paths) > 1 else ""
    last = (
        "put the JSON there and restart; expect `Using MoE kernel config from`"
        if engine is Engine.SGLANG
        else "restart with VLLM_TUNED_CONFIG_FOLDER=DIR; expect `Using configuration from`"
    )
    return (f"try tuning: stop the server, then {script}{where}{more}", last)
