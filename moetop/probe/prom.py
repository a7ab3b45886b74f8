"""Reads Prometheus text and engines' own metrics into numbers; pure, also used on pasted files.

Absent is `None`: a blank value, NaN and infinity are absences, never 0.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Tuple

MAX_SAMPLES = 50000
"""A page with more samples is cut: no engine writes that many, a broken one could."""


class PromSample(NamedTuple):
    """One line of the page."""

    name: str
    labels: Dict[str, str]
    value: Optional[float]


_LINE = re.compile(r"\s*([A-Za-z_:][A-Za-z0-9_:]*)\s*(\{.*\})?(?:\s+(\S+))?(?:\s+-?\d+)?\s*(?:#.*)?$")
_LABEL = re.compile(r'\s*([A-Za-z_][A-Za-z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*,?')
_ESCAPE = re.compile(r"\\(.)")


def _number(text: Optional[str]) -> Optional[float]:
    try:
        value = float(text) if text else None
    except ValueError:
        return None
    return value if value is not None and math.isfinite(value) else None


def parse_prometheus(text: str) -> List[PromSample]:
    """Samples of a page in the Prometheus or OpenMetrics text format; other lines are passed over."""
    samples: List[PromSample] = []
    for line in text.splitlines():
        if not line or line.lstrip()[:1] in ("", "#"):
            continue
        match = _LINE.match(line)
        if match is None:
            continue
        name, labels, value = match.groups()
        pairs = {key: _ESCAPE.sub(r"\1", raw) for key, raw in _LABEL.findall(labels[1:-1])} if labels else {}
        samples.append(PromSample(name, pairs, _number(value)))
        if len(samples) >= MAX_SAMPLES:
            break
    return samples


class _Row(NamedTuple):
    """Which figure a series is.

    `where` are labels that must hold; `rate` marks counters; `sticks` marks a gauge that keeps its
    last value when nothing runs any more.
    """

    engine: str
    key: str
    series: str
    scale: float = 1.0
    combine: str = "sum"
    rate: bool = False
    where: Tuple[Tuple[str, str], ...] = ()
    sticks: bool = False


# Sources: SGLang observability/metrics_collector.py (0.5.x); vLLM v1/metrics/loggers.py (`gpu_cache_usage_perc`
# up to 0.8.5, an alias in 0.10); TensorRT-LLM tensorrt_llm/metrics/collector.py (its prefix is added by the
# server or by Dynamo); Triton's TensorRT-LLM backend custom metrics (`nv_trt_llm_*`).
# For one key the first row with a value wins. Names are compared with `:` read as `_`.
_ROWS: Tuple[_Row, ...] = (
    _Row("sglang", "running", "sglang:num_running_reqs"),
    _Row("sglang", "waiting", "sglang:num_queue_reqs"),
    _Row("sglang", "generation_tokens_s", "sglang:gen_throughput", sticks=True),
    _Row("sglang", "generation_tokens_s", "sglang:generation_tokens_total", rate=True),
    _Row("sglang", "prompt_tokens_s", "sglang:prompt_tokens_total", rate=True),
    _Row("sglang", "kv_usage_pct", "sglang:token_usage", 100.0, "max"),
    _Row("vllm", "running", "vllm:num_requests_running"),
    _Row("vllm", "waiting", "vllm:num_requests_waiting"),
    _Row("vllm", "generation_tokens_s", "vllm:generation_tokens_total", rate=True),
    _Row("vllm", "generation_tokens_s", "vllm:avg_generation_throughput_toks_per_s"),
    _Row("vllm", "prompt_tokens_s", "vllm:prompt_tokens_total", rate=True),
    _Row("vllm", "prompt_tokens_s", "vllm:avg_prompt_throughput_toks_per_s"),
    _Row("vllm", "kv_usage_pct", "vllm:kv_cache_usage_perc", 100.0, "max"),
    _Row("vllm", "kv_usage_pct", "vllm:gpu_cache_usage_perc", 100.0, "max"),
    _Row("tensorrt_llm", "running", "trtllm:num_requests_running"),
    _Row("tensorrt_llm", "waiting", "trtllm:num_requests_waiting"),
    _Row("tensorrt_llm", "kv_usage_pct", "trtllm:kv_cache_utilization", 100.0, "max"),
    _Row("tensorrt_llm", "running", "nv_trt_llm_request_metrics", where=(("request_type", "scheduled"),)),
    _Row("tensorrt_llm", "waiting", "nv_trt_llm_request_metrics", where=(("request_type", "waiting"),)),
    _Row(
        "tensorrt_llm",
        "kv_usage_pct",
        "nv_trt_llm_kv_cache_block_metrics",
        100.0,
        "max",
        where=(("kv_cache_block_type", "fraction"),),
    ),
)
# Ranks that report the same scheduler's numbers: only data-parallel engines add up.
_SAME_SCHEDULER = ("tp_rank", "pp_rank", "moe_ep_rank", "pid")


def _plain_name(name: str) -> str:
    return name.replace(":", "_")


def _gather(row: _Row, samples: Iterable[PromSample]) -> Optional[float]:
    """The row's figure over all label sets, or None where no sample has a value."""
    wanted = _plain_name(row.series)
    best: Dict[Tuple[Tuple[str, str], ...], float] = {}
    for sample in samples:
        if sample.value is None or _plain_name(sample.name) != wanted:
            continue
        if any(sample.labels.get(label) != value for label, value in row.where):
            continue
        who = tuple(sorted(item for item in sample.labels.items() if item[0] not in _SAME_SCHEDULER))
        best[who] = max(best.get(who, sample.value), sample.value)
    if not best:
        return None
    return (max(best.values()) if row.combine == "max" else sum(best.values())) * row.scale


def engine_of(samples: Iterable[PromSample]) -> Optional[str]:
    """Which engine wrote the page: `sglang`, `vllm`, `tensorrt_llm` or None."""
    names = {_plain_name(sample.name) for sample in samples}
    for row in _ROWS:
        if _plain_name(row.series) in names:
            return row.engine
    return None


def engine_metrics(
    samples: List[PromSample],
    earlier: Optional[List[PromSample]] = None,
    elapsed_s: Optional[float] = None,
) -> Dict[str, float]:
    """ServerMetrics keys found in `samples`; keys without a value are left out.

    Counters become rates only with an `earlier` page of `elapsed_s` seconds before; a counter that
    went back (the server restarted) gives no rate.
    """
    out: Dict[str, float] = {}
    for row in _ROWS:
        if row.key in out:
            continue
        value = _gather(row, samples)
        if value is not None and row.rate:
            before = _gather(row, earlier) if earlier is not None else None
            if before is None or not elapsed_s or elapsed_s <= 0 or value < before:
                value = None
            else:
                value = (value - before) / elapsed_s
        if value is not None and row.sticks and out.get("running") == 0:
            value = 0.0
        if value is not None:
            out[row.key] = round(value, 3)
    return out


def trtllm_iteration_metrics(text: str) -> Dict[str, float]:
    """ServerMetrics keys of TensorRT-LLM's `/metrics`, a JSON list of iteration statistics.

    Only the newest record counts; an empty list (nothing ran since the last read) gives nothing.
    """
    try:
        records: Any = json.loads(text)
    except ValueError:
        return {}
    if isinstance(records, dict):
        records = [records]
    if not isinstance(records, list) or not records or not isinstance(records[-1], dict):
        return {}
    record = records[-1]
    batching = record.get("inflightBatchingStats")
    batching = batching if isinstance(batching, dict) else {}
    blocks = record.get("kvCacheStats")
    blocks = blocks if isinstance(blocks, dict) else {}
    used, most = _real(blocks.get("usedNumBlocks")), _real(blocks.get("maxNumBlocks"))
    found = {
        "running": _first(_real(batching.get("numScheduledRequests")), _real(record.get("numActiveRequests"))),
        "waiting": _real(record.get("numQueuedRequests")),
        "kv_usage_pct": 100.0 * used / most if used is not None and most else None,
    }
    return {key: round(value, 3) for key, value in found.items() if value is not None}


def _real(value: Any) -> Optional[float]:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)


def _first(*values: Optional[float]) -> Optional[float]:
    return next((value for value in values if value is not None), None)
