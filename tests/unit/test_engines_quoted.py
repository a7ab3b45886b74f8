"""What users wrote, quoted in a log, is content and never evidence."""

from __future__ import annotations

import pytest

from moetop.engines import LogBook, LogDigest
from moetop.model import EventKind, EventSeverity, Phase

SGL_READY = "[2026-06-28 13:38:10] The server is fired up and ready to roll!"
SGL_REQUEST = (
    "[2026-06-28 13:41:02] Receive: obj=GenerateReqInput(rid='1', text='Traceback (most recent call last): "
    "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB? NVRM: Xid (PCI:0000:06:00): 79, GPU has fallen "
    "off the bus', sampling_params={'max_new_tokens': 100})"
)
SGL_ANSWER = (
    "[2026-06-28 13:41:03] Finish: obj=GenerateReqInput(rid='1'), out={'text': ' CUDA error: an illegal memory access "
    "was encountered. Scheduler hit an exception: Traceback', 'meta_info': {}}"
)
SGL_CHINESE = (
    "[2026-06-28 13:41:00] Receive: obj=GenerateReqInput(rid='1', text='如何解决 torch.OutOfMemoryError: CUDA out of "
    "memory. Tried to allocate 2.00 GiB', sampling_params={})"
)
VL_READY = "(APIServer pid=1) INFO:     Application startup complete."
VL_STATS = (
    "(APIServer pid=1) INFO 08-17 10:05:00 [loggers.py:257] Engine 000: Avg prompt throughput: 120.0 tokens/s, Avg "
    "generation throughput: 512.3 tokens/s, Running: 12 reqs, Waiting: 0 reqs, GPU KV cache usage: 3.4%, Prefix cache "
    "hit rate: 41.0%"
)
VL_REQUEST = (
    "(APIServer pid=1) INFO 08-17 10:05:10 [logger.py:43] Received request chatcmpl-1: prompt: '<|im_start|>user\\n"
    "RuntimeError: Engine core initialization failed. EngineDeadError torch.OutOfMemoryError: CUDA out of memory. "
    "Tried to allocate 2 GiB.', params: SamplingParams(n=1), prompt_token_ids: None, lora_request: None."
)
VL_ADDED = "(APIServer pid=1) INFO 08-17 10:05:11 [async_llm.py:300] Added request chatcmpl-1."
OPENED = "(APIServer pid=1) INFO 08-17 10:05:10 [logger.py:43] Received request chatcmpl-1: prompt: 'help me with this:"
CRASH = ("Traceback (most recent call last):", '  File "x.py", line 1, in <module>', "RuntimeError: CUDA error: an "
         "illegal memory access was encountered")  # fmt: skip


def read(*lines: str) -> LogDigest:
    book = LogBook("x.log")
    for line in lines:
        book.feed(line)
    return book.digest()


def kinds(digest: LogDigest) -> set[EventKind]:
    return {event.kind for event in digest.events if event.severity in (EventSeverity.FATAL, EventSeverity.ERROR)}


@pytest.mark.parametrize(
    "lines",
    [(SGL_READY, SGL_REQUEST, SGL_ANSWER), (SGL_READY, SGL_CHINESE), (VL_READY, VL_STATS, VL_REQUEST, VL_ADDED)],
    ids=["sglang", "sglang, Chinese", "vllm"],
)
def test_a_logged_request_is_no_event_whatever_it_quotes(lines: tuple[str, ...]) -> None:
    digest = read(*lines)
    assert kinds(digest) == set()
    assert digest.cause is None
    assert digest.counts["http_access"] >= 1


def test_a_prompt_over_several_lines_ends_with_its_parameters() -> None:
    digest = read(VL_READY, VL_STATS, OPENED, *CRASH, "', params: SamplingParams(n=1)", VL_STATS)
    assert kinds(digest) == set() and digest.phase is Phase.READY
    digest = read(VL_READY, VL_STATS, OPENED, "', params: SamplingParams(n=1)", *CRASH)
    assert digest.phase is Phase.CRASHED


def test_a_prompt_over_several_lines_ends_at_the_next_record() -> None:
    dead = "(EngineCore_DP0 pid=9) ERROR 08-17 10:06:00 [core.py:1348] EngineCore encountered a fatal error."
    digest = read(VL_READY, OPENED, *CRASH, dead)
    assert digest.cause is not None and digest.cause.rule == "vl.corefatal"


def test_words_of_an_error_cited_in_a_sentence_are_no_error() -> None:
    assert kinds(read('[2026-06-28 13:41:00] 收到请求: 请帮我解释 "CUDA out of memory" 错误')) == set()
    told = '[2026-06-28 13:41:00 TP0] Model forward failed: "CUDA out of memory"'
    assert kinds(read(told)) == {EventKind.OOM}


@pytest.mark.parametrize("head", ["", "kernel: ", "[ 100.000000] ", "Jun 28 13:36:54 host-a kernel: "])
def test_an_xid_is_one_only_as_a_record_of_the_kernel(head: str) -> None:
    record = "NVRM: Xid (PCI:0000:06:00): 79, GPU has fallen off the bus."
    assert kinds(read(head + record)) == {EventKind.XID}
    assert kinds(read("[2026-06-28 13:41:00] the user asks about " + record)) == set()
