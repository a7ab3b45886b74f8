"""What a process and its log say together of a server: engine, versions, arguments, phase, card. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from moetop.diagnose.view import ENDED
from moetop.engines.digest import LogDigest
from moetop.model import Engine, GpuInfo, Phase, Server, ServerMetrics


def engine_of(name: str | None) -> Engine | None:
    """The engine of that name, None where none is called so."""
    try:
        return Engine(name) if name else None
    except ValueError:
        return None


def log_versions(digest: LogDigest) -> dict[str, str]:
    """Versions that the log names, the engine's own by its name."""
    own = {str(digest.engine): digest.version} if digest.engine is not None and digest.version else {}
    return {**digest.versions, **own}


def joined_args(from_log: dict[str, Any], from_process: dict[str, Any]) -> dict[str, Any]:
    """The process's own arguments win, but `auto` does not hide what the log says it became."""
    joined = dict(from_log)
    for key, value in from_process.items():
        if value == "auto" and joined.get(key) not in (None, ""):
            continue
        joined[key] = value
    return joined


def phase_of(phase: Phase, frame: Server | None, metrics: ServerMetrics | None) -> Phase:
    """Where a server stands: what its log says, unless its process ended or is known to answer."""
    if frame is not None and frame.gone:
        return phase if phase in ENDED else (Phase.STOPPED if phase is Phase.DRAINING else Phase.EXITED)
    if phase is not Phase.UNKNOWN or frame is None:
        return phase
    counted = metrics is not None and metrics.running is not None
    return Phase.READY if frame.healthy or counted else Phase.UNKNOWN


def card_of(infos: Iterable[GpuInfo], gpus: Sequence[int]) -> dict[str, str | None]:
    """Name and compute capability of the GPUs a server runs on."""
    mine = [i for i in infos if not gpus or i.index in gpus]
    first = mine[0] if mine else None
    return {
        "gpu_name": first.name if first is not None else None,
        "compute_capability": first.compute_capability if first is not None else None,
    }
