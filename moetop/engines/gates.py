"""Which releases run the FlashInfer tuner for which MoE backend, as a table. Judges no log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from moetop.engines.versions import is_before_release, version_key

MIN_CC_MAJOR = 9
"""SGLang and vLLM tune on compute capability 9.0 and later only (sglang `should_run_flashinfer_autotune`,
vllm kernel_warmup.py:165-172)."""

_TRTLLM = frozenset({"flashinfer_trtllm", "flashinfer_mxfp4"})
_CUTEDSL = _TRTLLM | {"flashinfer_cutedsl"}
_CUTLASS = _CUTEDSL | {"flashinfer_trtllm_routed", "flashinfer_cutlass"}
_ATTENTION = frozenset({"flashinfer", "trtllm_mla", "trtllm_mha"})


@dataclass(frozen=True, slots=True)
class Gate:
    """A span of SGLang releases: from `since` up to, not including, `until`.

    `backends` are the MoE backends it tunes, None where it asks the attention backend instead;
    `default_on` is whether it tunes without being told to.
    """

    since: str
    until: str | None
    backends: frozenset[str] | None
    default_on: bool
    deterministic_off: bool
    words: str
    source: str


SGLANG_GATES: tuple[Gate, ...] = (
    Gate("0", "0.5.6", frozenset(), False, False, "no tuning code", "sglang up to v0.5.5"),
    Gate("0.5.6", "0.5.7", None, False, False, "only with --enable-flashinfer-autotune", "sglang 848ee5706"),
    Gate(
        "0.5.7",
        "0.5.11",
        _TRTLLM,
        True,
        False,
        "flashinfer_trtllm and flashinfer_mxfp4 only (flashinfer_cutlass stands commented out behind a TODO)",
        "sglang 435d1c83c1, 468931b572",
    ),
    Gate(
        "0.5.11",
        "0.5.13",
        _CUTEDSL,
        True,
        False,
        "flashinfer_trtllm, flashinfer_mxfp4 and flashinfer_cutedsl only (flashinfer_cutlass is left out by a TODO)",
        "sglang v0.5.11, e6f252e9b8",
    ),
    Gate("0.5.13", "0.5.18", _CUTLASS, True, False, "every flashinfer_* MoE backend", "sglang e76d36214b"),
    Gate(
        "0.5.18",
        None,
        _CUTLASS | {"flashinfer_megamoe"},
        True,
        True,
        "every flashinfer_* MoE backend, not under --enable-deterministic-inference",
        "sglang ce84df0fa1",
    ),
)
"""History of `_should_run_flashinfer_autotune`, read from the release tags."""

FIRST_DEFAULT_ON = "0.5.7"
"""First SGLang release that tunes without being told to (sglang 435d1c83c1)."""
FIRST_CACHE = "0.5.12"
"""First SGLang release with a tuning cache; from here on it also silences FlashInfer's own lines."""
ADVISED = "0.5.16"
"""Its FlashInfer (0.6.14) has the fix of tuning that silently did nothing (flashinfer 0037a9c11)."""


def first_release(backend: str) -> str | None:
    """The first SGLang release that tunes this MoE backend."""
    return next((gate.since for gate in SGLANG_GATES if gate.backends and backend in gate.backends), None)


class Outcome(str, Enum):
    """What a release's gate says."""

    PASSES = "passes"
    REFUSES = "refuses"
    OFF = "off"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Answer:
    """A gate's answer in a sentence."""

    outcome: Outcome
    sentence: str


def sglang_gate(
    version: str | None, backend: str | None, args: Mapping[str, Any], compute_capability: str | None
) -> Answer:
    """Whether this SGLang tunes this MoE backend when it starts."""
    major = cc_major(compute_capability)
    if major is not None and major < MIN_CC_MAJOR:
        return Answer(
            Outcome.REFUSES,
            f"SGLang tunes FlashInfer kernels on compute capability 9.0 and later; this GPU has {compute_capability}",
        )
    gates = _gates_of(version)
    if not gates or backend is None:
        return Answer(Outcome.UNKNOWN, "the SGLang version is not known" if backend else "the MoE backend is not known")
    answers = [_ask(gate, str(version), backend, args) for gate in gates]
    if len({answer.outcome for answer in answers}) > 1:
        return Answer(
            Outcome.UNKNOWN,
            f"SGLang {version} is a build between releases that differ on whether {backend} is tuned",
        )
    return answers[-1]


def _gates_of(version: str | None) -> list[Gate]:
    """The gates a build may have: one for a release, a neighbour's too for a build between two releases."""
    key = version_key(version)
    if key is None or version is None:
        return []
    whole = (key[0], max(key[1], 0), key[2], key[3])
    for at, gate in enumerate(SGLANG_GATES):
        first, end = version_key(gate.since), version_key(gate.until)
        if first is None or whole < first or (end is not None and whole >= end):
            continue
        between = is_before_release(version)
        found = [gate]
        if between and at > 0 and key[0] == first[0]:
            found.insert(0, SGLANG_GATES[at - 1])
        if between and end is not None and _next_patch(key[0]) == end[0]:
            found.append(SGLANG_GATES[at + 1])
        return found
    return []


def _next_patch(release: tuple[int, ...]) -> tuple[int, ...]:
    return (*release[:2], release[2] + 1, *release[3:])


def _ask(gate: Gate, version: str, backend: str, args: Mapping[str, Any]) -> Answer:
    if gate.backends is not None and backend not in gate.backends:
        if not gate.backends:
            return Answer(Outcome.REFUSES, f"SGLang {version} has no tuning code (it came with 0.5.6)")
        return Answer(
            Outcome.REFUSES,
            f"SGLang {version} tunes {gate.words}; with moe_runner_backend {backend} tuning never starts",
        )
    if gate.deterministic_off and args.get("enable_deterministic_inference") is True:
        return Answer(Outcome.OFF, f"SGLang {version} does not tune under --enable-deterministic-inference")
    if not gate.default_on and args.get("enable_flashinfer_autotune") is not True:
        if not args:
            return Answer(Outcome.UNKNOWN, f"SGLang {version} tunes {gate.words}; the arguments are not known")
        return Answer(Outcome.OFF, f"SGLang {version} tunes {gate.words}, which is not among the arguments")
    if gate.backends is None:
        attention = args.get("attention_backend")
        if isinstance(attention, str) and attention not in _ATTENTION:
            names = " or ".join(sorted(_ATTENTION))
            return Answer(
                Outcome.REFUSES, f"SGLang {version} tunes only with attention backend {names}, not {attention}"
            )
    return Answer(Outcome.PASSES, f"SGLang {version} tunes {backend} when it starts")


def cc_major(compute_capability: str | None) -> int | None:
    """The major number of `12.0`."""
    head = (compute_capability or "").split(".")[0]
    return int(head) if head.isascii() and head.isdigit() else None
