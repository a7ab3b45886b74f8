"""The table of log line kinds holds what it promises."""

from __future__ import annotations

import re
import time
from collections import Counter
from typing import Any

import pytest

from moetop.engines import scan_literals
from moetop.engines.fields_system import XID_MEANING
from moetop.engines.literals import candidates
from moetop.engines.match import classify, engine_of
from moetop.engines.reader import read_line
from moetop.engines.rule import Rule
from moetop.engines.rules import BY_ID, RULES
from moetop.model import EventKind, EventSeverity

try:
    from re import _parser as sre  # type: ignore[attr-defined]
except ImportError:
    import sre_parse as sre

ORDINARY = (
    "[2026-06-28 13:36:54 TP0] Decode batch, #running-req: 12, #token: 21504, token usage: 0.10, accept len: 2.1, "
    "cuda graph: True, gen throughput (token/s): 245.11, #queue-req: 0, est. decode TFLOPS/s (per GPU): 3.1",
    "[2025-10-07 11:00:00 TP0] Decode batch. #running-req: 12, #token: 21504, token usage: 0.10, gen throughput "
    "(token/s): 245.11, #queue-req: 0, ",
    "[2026-06-28 13:36:54 TP0] Prefill batch, #new-seq: 1, #new-token: 512, #cached-token: 0, token usage: 0.00, "
    "#running-req: 0, #queue-req: 0, #pending-token: 0, cuda graph: False, input throughput (token/s): 83.20",
    '[2026-06-28 14:00:05] INFO:     127.0.0.1:44444 - "GET /health HTTP/1.1" 200 OK',
    '(APIServer pid=1) INFO:     10.0.0.81:16983 - "POST /v1/messages?beta=true HTTP/1.1" 500 Internal Server Error',
    '(APIServer pid=1) INFO:     10.0.0.81:16983 - "GET /metrics HTTP/1.1" 200 OK',
    "(APIServer pid=1) INFO 05-12 01:46:22 [loggers.py:271] Engine 000: Avg prompt throughput: 75.3 tokens/s, Avg "
    "generation throughput: 34.4 tokens/s, Running: 0 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.0%, Prefix cache "
    "hit rate: 96.3%, MM cache hit rate: 98.2%",
    "[08/04/2026-19:08:13] [TRT-LLM] [I] [_torch][RANK 0] iter = 7, global_rank = 0, rank = 0, num_scheduled_requests "
    "= 8, kv_cache_util = 0.125, host_step_time = 7.4ms, prev_device_step_time = 7.1ms, timestamp = 2026-08-04 "
    "19:08:13, states = {'num_ctx_requests': 0}",
    "Loading safetensors checkpoint shards:  50% Completed | 8/16 [00:10<00:10,  1.29s/it]",
    "DeepGEMM warmup:  45%|####5     | 912/2048 [00:30<00:38, 29.7it/s]",
    "[2026-06-28 13:36:54] receive_response_headers.complete return_value=(b'HTTP/1.1', 200, b'OK', [(b'server', "
    "b'uvicorn'), (b'content-type', b'application/json')])",
    "[2026-06-28 13:36:54] Receive: obj=GenerateReqInput(rid='af', text='hello world', sampling_params={'n': 1})",
)


def won_by(rule: Rule) -> Rule | None:
    """The row that wins the rule's own example, read as a log line."""
    record = read_line(rule.example)[-1]
    engine = engine_of(record) or (rule.engines[0] if rule.engines else None)
    found = classify(record.text, engine, record.head)
    return found[0] if found else None


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_each_example_is_won_by_its_own_row(rule: Rule) -> None:
    assert won_by(rule) is rule


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_each_row_says_what_it_means_and_where_that_stands(rule: Rule) -> None:
    assert len(rule.meaning) > 5
    assert len(rule.source) > 2
    assert isinstance(rule.kind, EventKind)
    assert rule.literals == tuple(text.lower() for text in rule.literals)
    assert all(len(text) >= 4 for text in rule.literals)


def test_ids_are_unique() -> None:
    assert [name for name, times in Counter(rule.id for rule in RULES).items() if times > 1] == []
    assert len(BY_ID) == len(RULES)


def test_every_kind_of_the_vocabulary_has_a_row() -> None:
    assert {rule.kind for rule in RULES} == set(EventKind)


def test_what_a_row_needs_is_a_field_it_can_have() -> None:
    for rule in RULES:
        if rule.needs:
            assert rule.needs in (rule.regex.groupindex.keys() | {"path", "ran_ms", "kernel_module"})


# ── literals ─────────────────────────────────────────────────────────────────────────────────────


Way = tuple[str, frozenset[str]]
"""One way through a pattern: the text that runs up to here, and the finished texts before it."""


def ways_through(parsed: Any, start: str = "") -> list[Way]:
    """Every way through a parsed pattern, with the strings (lower case) that a match of it must hold."""
    ways: list[Way] = [(start, frozenset())]
    for op, value in parsed:
        name = str(op)
        if name == "LITERAL":
            ways = [(text + chr(value).lower(), done) for text, done in ways]
        elif name == "IN" and all(str(kind) == "LITERAL" for kind, _ in value):
            letters = {chr(code).lower() for _, code in value}
            ways = [(text + letter, done) for text, done in ways for letter in letters]
        elif name == "SUBPATTERN":
            ways = continued(ways, value[3])
        elif name == "BRANCH":
            ways = [each for branch in value[1] for each in continued(ways, branch)]
        elif name in ("MAX_REPEAT", "MIN_REPEAT") and value[0] == 0 and value[1] == 1:
            ways = [*ways, *continued(ways, value[2])]
        elif name in ("MAX_REPEAT", "MIN_REPEAT") and value[0] > 0:
            ways = [("", done | {text}) for text, done in continued(ways, value[2])]
        elif name != "AT":
            ways = [("", done | {text}) for text, done in ways]
        assert len(ways) <= 20_000
    return ways


def continued(ways: list[Way], parsed: Any) -> list[Way]:
    """Every way, continued through a sub-pattern."""
    return [(text, done | more) for before, done in ways for text, more in ways_through(parsed, before)]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_whatever_a_row_matches_holds_one_of_its_literals(rule: Rule) -> None:
    """Proved from the pattern itself, for every way through it, not only from the example."""
    for last, done in ways_through(sre.parse(rule.pattern)):
        held = done | {last}
        assert any(literal in text for literal in rule.literals for text in held), (rule.literals, held)


@pytest.mark.parametrize("rule", [rule for rule in RULES if not rule.is_counted], ids=lambda rule: rule.id)
def test_a_line_of_every_row_that_is_no_noise_travels_from_the_host(rule: Rule) -> None:
    literals, _ = scan_literals()
    assert any(literal in rule.example.lower() for literal in literals)
    assert all(any(literal in own for literal in literals) for own in rule.literals)


@pytest.mark.parametrize("line", ORDINARY)
def test_ordinary_lines_do_not_travel_as_events(line: str) -> None:
    literals, _ = scan_literals()
    assert [literal for literal in literals if literal in line.lower()] == []


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.is_counted], ids=lambda rule: rule.id)
def test_a_counted_line_is_counted_on_the_host_under_its_kind(rule: Rule) -> None:
    literals, noise = scan_literals()
    lowered = rule.example.lower()
    assert not any(literal in lowered for literal in literals)
    assert any(text in lowered for text in noise[rule.kind.value])


def test_metric_and_noise_rows_are_counted() -> None:
    for rule in RULES:
        if rule.severity in (EventSeverity.METRIC, EventSeverity.NOISE):
            assert rule.is_counted


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_the_index_of_literals_finds_the_row_of_every_example(rule: Rule) -> None:
    assert rule in candidates(rule.example.lower())


# ── cost ─────────────────────────────────────────────────────────────────────────────────────────


def seconds(pattern: re.Pattern[str], text: str) -> float:
    """CPU time of the fastest of three searches, so that a busy machine does not count."""
    best = float("inf")
    for _ in range(3):
        began = time.process_time()
        for _ in pattern.finditer(text):
            pass
        best = min(best, time.process_time() - began)
    return best


def hostile(rule: Rule, size: int) -> list[str]:
    """Texts made to hurt: the example's beginning again and again, and its parts with filling between."""
    text = read_line(rule.example)[-1].text
    match = rule.regex.search(text)
    assert match is not None
    hit = text[match.start() : match.end()] or text
    return [
        (hit[: max(8, len(hit) - 3)] * (size // max(8, len(hit) - 3) + 1))[:size],
        (hit[: len(hit) // 2 + 4] * (size // (len(hit) // 2 + 4) + 1))[:size],
        hit[:-1] + " " * (size // 3) + "a1,." * (size // 12),
    ]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_no_row_is_slow_on_a_long_line(rule: Rule) -> None:
    """Time grows no faster than about linearly with the line: quadratic growth would show as 16 for 4."""
    for small, large in zip(hostile(rule, 8192), hostile(rule, 32768), strict=True):
        short = max(seconds(rule.regex, small), 2e-4)
        assert seconds(rule.regex, large) < 9 * short


def test_the_xid_words_name_clean_up_as_no_cause() -> None:
    assert "not a cause" in XID_MEANING[45]
