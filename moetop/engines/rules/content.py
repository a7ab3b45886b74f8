"""Lines that quote what users sent and got: never evidence, so these rows are tried first. A table, no code."""

from __future__ import annotations

from moetop.engines.rule import SGL, VLLM, Rule
from moetop.model import EventKind as K
from moetop.model import EventSeverity as S

RULES: tuple[Rule, ...] = (
    Rule(
        id="sgl.request",
        kind=K.HTTP_ACCESS,
        severity=S.NOISE,
        engines=SGL,
        pattern=r"(?:Receive|Finish): obj=\w",
        literals=("receive: obj=", "finish: obj="),
        meaning="a user's request or answer in full (--log-requests): whatever it says is content, no event",
        source="sglang 0.5.18 request_logger.py",
        example=(
            "[2026-06-28 13:41:02] Receive: obj=GenerateReqInput(rid='1', text='Why does my script fail?', "
            "sampling_params={'max_new_tokens': 100})"
        ),
    ),
    Rule(
        id="vl.request",
        kind=K.HTTP_ACCESS,
        severity=S.NOISE,
        engines=VLLM,
        pattern=(
            r"Received request \S{1,200}: (?:prompt|params): |Added request \S{1,200}\.|"
            r"Request \S{1,200} details: prompt: |Generated response \S{1,200}: output: |"
            r"Generated response \S{1,200} \("
        ),
        literals=("received request ", "added request ", " details: prompt: ", "generated response "),
        meaning="a user's request or answer (--enable-log-requests): whatever it says is content, no event",
        source="vllm request_logger.py, async_llm.py",
        example=(
            "(APIServer pid=1) INFO 08-17 10:05:10 [logger.py:43] Received request chatcmpl-1: prompt: 'Hello', "
            "params: SamplingParams(n=1), lora_request: None."
        ),
    ),
)

CONTENT_IDS = frozenset(rule.id for rule in RULES)
