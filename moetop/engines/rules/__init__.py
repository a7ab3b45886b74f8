"""The table of log line kinds: every engine's rows in the order in which they are tried."""

from __future__ import annotations

from dataclasses import replace

from moetop.engines.rule import COUNTED, Fields, Rule
from moetop.engines.rules import (
    content,
    flashinfer,
    generic,
    kernel,
    processes,
    sglang,
    sglang_end,
    sglang_start,
    trtllm,
    vllm,
    vllm_end,
    vllm_start,
)
from moetop.model import EventKind as K
from moetop.model import EventSeverity as S

RULES: tuple[Rule, ...] = (
    *content.RULES,
    *flashinfer.RULES,
    *sglang.RULES,
    *sglang_start.RULES,
    *sglang_end.RULES,
    *vllm.RULES,
    *vllm_start.RULES,
    *vllm_end.RULES,
    *trtllm.RULES,
    *kernel.RULES,
    *generic.RULES,
    *processes.RULES,
)
"""First match wins. What users wrote stands before all else: it may quote any other line.
The kernel's rows stand before the general ones: an Xid may name a CUDA error."""

BY_ID: dict[str, Rule] = {rule.id: rule for rule in RULES}

UNCAUGHT_STARTING = replace(BY_ID["g.tb"], id="g.uncaught.start", kind=K.ENGINE_START_FAILED, severity=S.FATAL)
UNCAUGHT_SERVING = replace(BY_ID["g.tb"], id="g.uncaught", kind=K.CRASH, severity=S.FATAL)
"""What a traceback is once its frames show that nothing caught it: no line of its own tells, so no row can."""

__all__ = ["BY_ID", "COUNTED", "Fields", "RULES", "Rule", "UNCAUGHT_SERVING", "UNCAUGHT_STARTING"]
