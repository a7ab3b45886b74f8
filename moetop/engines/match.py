"""Finds the row of the rules table that a record matches: first match wins. Keeps no state."""

from __future__ import annotations

import re

from moetop.engines.literals import candidates
from moetop.engines.reader import Record
from moetop.engines.rules import Rule
from moetop.model import Engine

HEAD_ENGINE: dict[str, Engine] = {
    "sglang": Engine.SGLANG,
    "vllm": Engine.VLLM,
    "trt": Engine.TENSORRT_LLM,
}
"""Engines whose record head is their own; a FlashInfer head says nothing of the engine around it."""

_QUOTES = "\"'`\u201c\u201d\u2018\u300c\u300e"
_TROUBLE = re.compile(r"error|exception|fail|traceback", re.IGNORECASE)
_VLLM_PROCESS = re.compile(r"(?:Worker|VllmWorker|EngineCore|APIServer|RayWorkerProc|DPMoEEngineCoreActor)")


def engine_of(record: Record) -> Engine | None:
    """The engine a record's head or process prefix shows, if any."""
    found = HEAD_ENGINE.get(record.head)
    if found is None and record.process is not None and _VLLM_PROCESS.match(record.process):
        return Engine.VLLM
    return found


def classify(
    text: str, engine: Engine | None, head: str, level: str | None = None
) -> tuple[Rule, re.Match[str]] | None:
    """The first row that fits, with its match."""
    for rule in candidates(text.lower()):
        if rule.fits(engine, head, level):
            match = rule.regex.search(text)
            if match is not None and not (rule.error_only and _is_quoted(text, match.start())):
                return rule, match
    return None


def _is_quoted(text: str, at: int) -> bool:
    """Whether the words at `at` are cited within a sentence that tells of no error itself.

    An exception's own `repr` has its quote behind a bracket, not behind a blank.
    """
    return at > 1 and text[at - 1] in _QUOTES and text[at - 2] == " " and _TROUBLE.search(text[:at][-400:]) is None
