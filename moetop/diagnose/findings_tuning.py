"""The tuning verdict of a server as a finding, joined with what its GPUs show."""

from __future__ import annotations

from collections.abc import Iterator

from moetop.diagnose import words
from moetop.diagnose.starvation import Starved, starvation_of, starvation_remedy
from moetop.diagnose.view import ENDED, STARTING, HostView
from moetop.model import Confidence, EventKind, Finding, FindingKind, ServerReport, Severity, Verdict

VERDICT_FINDINGS: dict[Verdict, FindingKind] = {
    Verdict.UNTUNED: FindingKind.UNTUNED_KERNELS,
    Verdict.NEVER_RAN: FindingKind.UNTUNED_KERNELS,
    Verdict.OFF: FindingKind.TUNING_OFF,
    Verdict.PARTLY_TUNED: FindingKind.PARTLY_TUNED,
    Verdict.FAILED: FindingKind.TUNING_FAILED,
}

FIRM_KINDS = (
    EventKind.AUTOTUNE_OOM_FALLBACK,
    EventKind.AUTOTUNE_NO_ENTRIES,
    EventKind.AUTOTUNE_FAILED,
    EventKind.AUTOTUNE_UNCOVERED_SHAPE,
)
"""Failures of the tuner itself; a missing configuration file alone is a hint."""

DEFAULT_KINDS = (EventKind.MOE_CONFIG_DEFAULT, EventKind.GEMM_CONFIG_DEFAULT, EventKind.MOE_CONFIG_FALLBACK)


def is_firm(view: HostView, server: ServerReport) -> bool:
    """Whether the newest run shows a failure of the tuner, not only a missing file."""
    facts = view.digest(server).tuning
    if view.has(server, *FIRM_KINDS) or facts.cache_entries == 0:
        return True
    return facts.zero_saves > 0 and view.has(server, EventKind.OOM)


def reads_no_config(server: ServerReport) -> bool:
    """SGLang with KTransformers experts (`kt_*`): they do not read the Triton file."""
    return any(
        key.startswith("kt_") and value not in (None, "", False, "None")
        for key, value in server.args.items()
        if isinstance(key, str)
    )


def find_tuning(view: HostView, server: ServerReport, starved: Starved | None) -> Iterator[Finding]:
    """The tuning verdict as a finding, joined with starved GPUs."""
    verdict = server.tuning.verdict
    kind = VERDICT_FINDINGS.get(verdict)
    hint = next(view.events(server, *DEFAULT_KINDS), None)
    if kind is None:
        if verdict is Verdict.NOT_TUNABLE and hint is not None:
            yield _tuning(view, server, FindingKind.UNTUNED_KERNELS, Severity.INFO, None)
        return
    if verdict is Verdict.FAILED and server.phase in ENDED:
        return
    yield _tuning(view, server, kind, Severity.INFO if _is_hint(view, server, starved) else Severity.WARNING, starved)


def _is_hint(view: HostView, server: ServerReport, starved: Starved | None) -> bool:
    """Whether the verdict is worth a note only: the run is over or not yet serving, the gate's refusal
    shows no cost, or what is missing is a file that these experts do not read."""
    verdict = server.tuning.verdict
    if server.phase in ENDED:
        return True
    if verdict is Verdict.NEVER_RAN:
        return starved is None
    if verdict not in (Verdict.UNTUNED, Verdict.PARTLY_TUNED) or is_firm(view, server):
        return False
    return server.phase in STARTING or (verdict is Verdict.UNTUNED and reads_no_config(server))


def _tuning(
    view: HostView, server: ServerReport, kind: FindingKind, severity: Severity, starved: Starved | None
) -> Finding:
    tuning = server.tuning
    label = words.SERVER if tuning.verdict in (Verdict.NEVER_RAN, Verdict.NOT_TUNABLE) else words.LOG
    evidence = [_labelled(line, label) for line in tuning.evidence]
    remedy = list(tuning.remedy)
    summary = tuning_summary(view, server)
    confidence = Confidence.INFERRED if tuning.verdict is Verdict.NEVER_RAN else Confidence.REPORTED
    gpus = server.gpus
    if starved is not None:
        summary = f"{summary}; {starved.summary}"
        evidence = [*starved.evidence, *evidence, *starved.not_known]
        remedy.extend(line for line in starvation_remedy(starved, cause_open=False) if line not in remedy)
        gpus = starved.indices
        if starved.measured:
            confidence = Confidence.MEASURED
    elif severity is not Severity.INFO and not server.gpus:
        evidence.append(words.NOT_KNOWN + "what it costs: no tensor activity was seen beside this log")
    return Finding(
        kind=kind,
        severity=severity,
        confidence=confidence,
        summary=summary,
        server=server.name,
        gpus=gpus,
        evidence=tuple(evidence),
        remedy=tuple(remedy),
    )


_LABELS = (words.SEEN, words.COMPARED, words.RULED_OUT, words.LOG, words.SERVER, words.FILES, words.NOT_KNOWN)


def _labelled(line: str, label: str) -> str:
    return line if line.startswith(_LABELS) else label + line


ENGINE_NAMES = {"sglang": "SGLang", "vllm": "vLLM", "tensorrt_llm": "TensorRT-LLM", "flashinfer": "FlashInfer"}


def engine_words(server: ServerReport) -> str:
    """`SGLang 0.5.9`, as far as known."""
    name = ENGINE_NAMES.get(str(server.engine or ""), "this engine")
    return f"{name} {server.version}" if server.version else name


def backend_of(view: HostView, server: ServerReport) -> str | None:
    """The MoE backend in use, by arguments or by the log's choice."""
    for key in ("moe_runner_backend", "moe_backend"):
        value = server.args.get(key)
        if isinstance(value, str) and value not in ("", "auto"):
            return value
    chosen = [e.fields.get("backend") for e in view.events(server, EventKind.MOE_BACKEND_SELECTED)]
    return next((b for b in reversed(chosen) if isinstance(b, str)), None)


def tuning_summary(view: HostView, server: ServerReport) -> str:
    """One sentence that claims no more than the verdict's evidence."""
    backend = backend_of(view, server)
    verdict = server.tuning.verdict
    if verdict is Verdict.NEVER_RAN:
        return f"kernels never tuned: {engine_words(server)} does not autotune {backend or 'this backend'}"
    if verdict is Verdict.OFF:
        return "kernel tuning is switched off: default tactics are in use"
    if verdict is Verdict.FAILED:
        return "the kernel tuner ended in an error; the server goes on with default tactics"
    if verdict is Verdict.PARTLY_TUNED:
        return "kernels only partly tuned" + _first(server)
    if verdict is Verdict.NOT_TUNABLE:
        return f"a tuned MoE configuration is missing, but {backend or 'this backend'} does not read it"
    if is_firm(view, server):
        return "the kernel tuner ran and tuned nothing" + _first(server)
    missing = view.has(server, EventKind.MOE_CONFIG_DEFAULT, EventKind.GEMM_CONFIG_DEFAULT)
    if missing and reads_no_config(server):
        return "a tuned MoE configuration is missing, but the experts run elsewhere (kt_*) and do not read it"
    if missing:
        return "no tuned MoE configuration for this GPU: kernels run on defaults, tuning is worth trying"
    return "kernels are untuned" + _first(server)


def _first(server: ServerReport) -> str:
    return f": {server.tuning.evidence[0]}" if server.tuning.evidence else ""


def find_open_starvation(view: HostView, claimed: set[int]) -> Iterator[Finding]:
    """`tensor_starved` (measured) and `starvation_signature` (inferred) whose cause is open."""
    for measured in (True, False):
        starved = starvation_of(view, None, measured=measured, without=claimed)
        if starved is None:
            continue
        server = view.server_of(starved.indices[0])
        tuned = server is not None and server.tuning.verdict is Verdict.TUNED
        yield Finding(
            kind=FindingKind.TENSOR_STARVED if measured else FindingKind.STARVATION_SIGNATURE,
            severity=Severity.WARNING,
            confidence=Confidence.MEASURED if measured else Confidence.INFERRED,
            summary=starved.summary
            + ("; its kernels are tuned, and the cause is open" if tuned else "; the cause is open"),
            gpus=starved.indices,
            server=server.name if server is not None else None,
            evidence=(*starved.evidence, *_verdict_known(server), *starved.not_known),
            remedy=starvation_remedy(starved, cause_open=True, tuned=tuned),
        )


def _verdict_known(server: ServerReport | None) -> tuple[str, ...]:
    if server is None:
        return (words.NOT_KNOWN + "tuning: no server log or process was seen",)
    first = f" ({server.tuning.evidence[0]})" if server.tuning.evidence else ""
    label = words.NOT_KNOWN if server.tuning.verdict is Verdict.UNKNOWN else words.SERVER
    return (f"{label}tuning {server.tuning.verdict}{first}",)
