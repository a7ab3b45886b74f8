"""Which tuner belongs to which MoE backend of which engine, as a table. Judges no log."""

from __future__ import annotations

from enum import Enum

from moetop.model import Engine


class Tuner(str, Enum):
    """What can make a backend's kernels faster."""

    FLASHINFER = "flashinfer"
    TRITON = "triton"
    TRTLLM = "trtllm"
    NONE = "none"
    UNKNOWN = "unknown"


TRITON_BACKENDS = frozenset({"triton", "batched_triton"})
"""Read a JSON file that an offline script makes (sglang tuning_fused_moe_triton.py, vllm benchmark_moe.py)."""

UNTUNED_BACKENDS: dict[str, str] = {
    "marlin": "Marlin has one fixed kernel",
    "experimental_sgl_marlin": "Marlin has one fixed kernel",
    "cutlass": "this CUTLASS path picks its kernel by a fixed rule",
    "vllm_cutlass": "this CUTLASS path picks its kernel by a fixed rule",
    "deep_gemm": "DeepGEMM compiles its kernels at start and has no tuner",
    "deepgemm": "DeepGEMM compiles its kernels at start and has no tuner",
    "deep_gemm_mega_moe": "DeepGEMM compiles its kernels at start and has no tuner",
    "humming": "Humming has no tuner",
    "emulation": "emulated arithmetic has no tuner",
    "triton_kernel": "the Triton kernels of this backend read no configuration file",
    "triton_unfused": "the Triton kernels of this backend read no configuration file",
    "aiter": "AITER is not tuned by the engine",
    "hpc": "this backend has no tuner",
    "hpc_ops": "this backend has no tuner",
    "flydsl": "this backend has no tuner",
    "megamoe": "this backend has no tuner",
}
"""Choices of `--moe-runner-backend` (sglang server_args.py) and `--moe-backend` (vllm) without a tuner."""


def tuner_of(engine: Engine | None, backend: str | None) -> Tuner:
    """The tuner of a resolved backend; `auto` and nothing are unknown."""
    if engine is Engine.TENSORRT_LLM:
        return Tuner.TRTLLM
    name = (backend or "").lower()
    if name.startswith("flashinfer"):
        return Tuner.FLASHINFER
    if name in TRITON_BACKENDS:
        return Tuner.TRITON
    return Tuner.NONE if name in UNTUNED_BACKENDS else Tuner.UNKNOWN
