"""Puts a log's digest together from its ledger. Draws no conclusion."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moetop.engines.case import ENGINE_NAMES
from moetop.engines.digest import LogDigest
from moetop.engines.ledger import Ledger
from moetop.engines.runs import OVER, Run
from moetop.model import Phase
from moetop.text import plain


def make_digest(
    name: str, ledger: Ledger, lines: int, skipped: int, last_t: float | None, last_t_text: str | None
) -> LogDigest:
    """All that is known from the log, as frozen values."""
    run = ledger.run
    cause = run.fatal_cause()
    versions = {key: value for key, value in run.versions.items() if key != "engine"}
    version = run.versions.get("engine")
    if version is not None and run.engine is not None:
        versions[run.engine.value] = version
    return LogDigest(
        name=name,
        engine=run.engine,
        version=version,
        versions=versions,
        args=dict(run.args),
        model=_first(run, ("model_path", "model", "served_model_name"), str),
        port=run.port,
        tp_size=_first(run, ("tp_size", "tensor_parallel_size"), int),
        device_name=run.device_name,
        moe_backend=_moe_backend(run),
        moe_backend_resolved=run.moe_backend is not None,
        attention_backend=run.attention_backend or _first(run, ("attention_backend",), str),
        quantization=_first(run, ("quantization",), str),
        runs=tuple(each.freeze(followed=ledger.is_followed(each)) for each in ledger.runs),
        phase=run.phase,
        phase_since=run.phase_since,
        ready=run.ready and not _ended(run),
        clean=run.clean,
        waits=run.waits,
        cause=cause.freeze() if cause is not None else None,
        metrics=run.metrics.read(),
        tuning=run.tally.facts(),
        events=ledger.events(),
        counts=dict(ledger.counts),
        run_counts=dict(run.counts),
        last_t=last_t,
        last_t_text=last_t_text,
        lines=lines,
        noise=ledger.noise,
        skipped=skipped,
        notes=tuple(_notes(ledger)),
    )


def _notes(ledger: Ledger) -> Iterator[str]:
    """What services of other engines in the same log do, which nothing else here tells."""
    others = {id(run): (unit, run) for unit, run in ledger.services.items() if ledger.is_beside(run)}
    for unit, run in others.values():
        engine = ENGINE_NAMES.get(run.engine, "another engine") if run.engine is not None else "another engine"
        state = run.phase.value if run.phase is not Phase.UNKNOWN else "in no known phase"
        cause = run.fatal_cause()
        why = plain(str(cause.fields.get("error") or cause.line), 300) if cause is not None else None
        yield f"this log also holds {unit} ({engine}), which is {state}" + (f": {why}" if why else "")


def _ended(run: Run) -> bool:
    return run.phase in OVER


def _first(run: Run, names: tuple[str, ...], kind: type) -> Any:
    for name in names:
        value = run.args.get(name)
        if isinstance(value, kind) and not isinstance(value, bool):
            return value
    return None


def _moe_backend(run: Run) -> str | None:
    """The backend a line named, else the one the arguments name unless that is `auto`."""
    if run.moe_backend is not None:
        return run.moe_backend
    named = _first(run, ("moe_runner_backend", "moe_backend"), str)
    kernel = run.args.get("kernel_config")
    if named is None and isinstance(kernel, dict) and isinstance(kernel.get("moe_backend"), str):
        named = kernel["moe_backend"]
    return None if named in (None, "auto") else str(named)
