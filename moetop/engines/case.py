"""All that is known of one run's tuning, from log, process and files, put side by side. Judges nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from moetop.engines.backends import Tuner, tuner_of
from moetop.engines.digest import LogDigest, ServerFacts, TuningFacts
from moetop.engines.versions import version_key
from moetop.model import Engine, Phase, TuningFile

ENGINE_NAMES = {
    Engine.SGLANG: "SGLang",
    Engine.VLLM: "vLLM",
    Engine.TENSORRT_LLM: "TensorRT-LLM",
    Engine.FLASHINFER: "FlashInfer",
}


@dataclass(frozen=True, slots=True)
class Case:
    """What a verdict is made from; the process outranks the log."""

    engine: Engine | None
    version: str | None
    versions: dict[str, str]
    args: dict[str, Any]
    env: dict[str, str]
    backend: str | None
    tuner: Tuner
    compute_capability: str | None
    model: str | None
    tp: int | None
    phase: Phase
    ready: bool
    clean: bool
    counts: dict[str, int]
    since_text: str | None
    tuning: TuningFacts
    files: tuple[TuningFile, ...]

    @property
    def name(self) -> str:
        """The engine in words, with its version where known."""
        engine = ENGINE_NAMES.get(self.engine, "the engine") if self.engine is not None else "the engine"
        return f"{engine} {self.version}" if self.version else engine

    def files_of(self, role: str) -> tuple[TuningFile, ...]:
        """Files of one role."""
        return tuple(file for file in self.files if file.role == role)

    def at_least(self, version: str) -> bool:
        """Whether the engine is known to be this version or later."""
        mine, other = version_key(self.version), version_key(version)
        return mine is not None and other is not None and mine >= other


def make_case(digest: LogDigest, facts: ServerFacts, files: Sequence[TuningFile]) -> Case:
    """Join what log, process and files say."""
    engine = facts.engine or digest.engine
    versions = {**digest.versions, **facts.versions}
    version = facts.versions.get(engine.value) if engine is not None else None
    if version is None and engine is digest.engine:
        version = digest.version
    args = {**digest.args, **{key: value for key, value in facts.args.items() if value is not None}}
    backend = _backend(digest, args)
    return Case(
        engine=engine,
        version=version,
        versions=versions,
        args=args,
        env=dict(facts.env),
        backend=backend,
        tuner=tuner_of(engine, backend),
        compute_capability=facts.compute_capability,
        model=_first_text(args, ("model_path", "model")) or digest.model,
        tp=_first_int(args, ("tp_size", "tensor_parallel_size")) or digest.tp_size,
        phase=digest.phase,
        ready=digest.ready,
        clean=digest.clean,
        counts=digest.run_counts,
        since_text=digest.tuning.since_text,
        tuning=digest.tuning,
        files=tuple(files),
    )


def _backend(digest: LogDigest, args: dict[str, Any]) -> str | None:
    """The resolved MoE backend: the choice a line names first, since arguments may say `auto`."""
    if digest.moe_backend is not None and digest.moe_backend_resolved:
        return digest.moe_backend.lower()
    named = _first_text(args, ("moe_runner_backend", "moe_backend"))
    kernel = args.get("kernel_config")
    if named is None and isinstance(kernel, dict) and isinstance(kernel.get("moe_backend"), str):
        named = kernel["moe_backend"]
    named = named or _first_text(args, ("kernel_config.moe_backend",))
    if named is None or named.lower() == "auto":
        named = digest.moe_backend
    return None if named is None else named.lower()


def _first_text(args: dict[str, Any], names: tuple[str, ...]) -> str | None:
    return next((args[name] for name in names if isinstance(args.get(name), str) and args[name]), None)


def _first_int(args: dict[str, Any], names: tuple[str, ...]) -> int | None:
    for name in names:
        value = args.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if isinstance(value, str) and value.isascii() and value.isdigit():
            return int(value)
    return None


def is_true(value: Any) -> bool:
    """Whether an argument's value means yes, however it was written."""
    return value is True or (isinstance(value, str) and value.lower() in ("true", "1", "yes", "on"))


def is_false(value: Any) -> bool:
    """Whether an argument's value means no, however it was written."""
    return value is False or (isinstance(value, str) and value.lower() in ("false", "0", "no", "off"))
