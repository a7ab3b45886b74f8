"""What is known of SGLang, vLLM, TensorRT-LLM and FlashInfer: line kinds, gates, files, verdict. Pure.

Its names load their tables when first used: a snapshot that meets no server and no log needs none.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moetop.engines.digest import LogDigest, ServerFacts, TuningFacts
    from moetop.engines.literals import scan_literals
    from moetop.engines.logbook import LogBook
    from moetop.engines.verdict import judge_tuning

__all__ = ["LogBook", "LogDigest", "ServerFacts", "TuningFacts", "judge_tuning", "scan_literals"]

_PLACES = {
    "LogBook": "logbook",
    "LogDigest": "digest",
    "ServerFacts": "digest",
    "TuningFacts": "digest",
    "judge_tuning": "verdict",
    "scan_literals": "literals",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
