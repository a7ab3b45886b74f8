"""Engines' own numbers, from Prometheus text and TensorRT-LLM's JSON."""

from __future__ import annotations

import json

import msgspec
import pytest

from moetop.model import ServerMetrics
from moetop.probe.prom import MAX_SAMPLES, engine_metrics, engine_of, parse_prometheus, trtllm_iteration_metrics

SGLANG = """\
# HELP sglang:num_running_reqs The number of running requests
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 5.0
sglang:num_running_reqs{engine_type="unified",model_name="m",pp_rank="0",tp_rank="1"} 5.0
sglang:num_queue_reqs{model_name="m",tp_rank="0"} 2.0
sglang:gen_throughput{model_name="m",tp_rank="0"} 812.5
sglang:token_usage{model_name="m",tp_rank="0"} 0.28
sglang:prompt_tokens_total{model_name="m"} 1000.0
"""
VLLM = """\
vllm:num_requests_running{engine="0",model_name="a b"} 3.0
vllm:num_requests_running{engine="1",model_name="a b"} 4.0
vllm:num_requests_waiting{engine="0",model_name="a b"} 0.0
vllm:kv_cache_usage_perc{engine="0",model_name="a b"} 0.5
vllm:kv_cache_usage_perc{engine="1",model_name="a b"} 0.9
vllm:generation_tokens_total{engine="0",model_name="a b"} 1.0e+03
vllm:prompt_tokens_total{engine="0",model_name="a b"} 200.0 1700000000000
"""


def test_sglang_ranks_of_one_scheduler_count_once() -> None:
    samples = parse_prometheus(SGLANG)
    assert engine_of(samples) == "sglang"
    assert engine_metrics(samples) == {
        "running": 5.0,
        "waiting": 2.0,
        "generation_tokens_s": 812.5,
        "kv_usage_pct": 28.0,
    }


def test_data_parallel_engines_add_up_and_the_fullest_cache_counts() -> None:
    samples = parse_prometheus(VLLM)
    assert engine_of(samples) == "vllm"
    assert engine_metrics(samples) == {"running": 7.0, "waiting": 0.0, "kv_usage_pct": 90.0}


def test_counters_become_rates_with_two_pages_only() -> None:
    later = VLLM.replace("1.0e+03", "1500").replace("200.0 17", "400.0 17")
    metrics = engine_metrics(parse_prometheus(later), parse_prometheus(VLLM), 2.0)
    assert metrics["generation_tokens_s"] == 250.0
    assert metrics["prompt_tokens_s"] == 100.0


def test_a_counter_that_went_back_gives_no_rate() -> None:
    metrics = engine_metrics(parse_prometheus(VLLM), parse_prometheus(VLLM.replace("1.0e+03", "5000")), 2.0)
    assert "generation_tokens_s" not in metrics


def test_a_throughput_gauge_that_sticks_is_zero_when_nothing_runs() -> None:
    idle = SGLANG.replace("} 5.0", "} 0.0")
    assert engine_metrics(parse_prometheus(idle))["generation_tokens_s"] == 0.0


def test_the_older_name_of_a_series_is_known() -> None:
    assert engine_metrics(parse_prometheus("vllm:gpu_cache_usage_perc 0.25\n")) == {"kv_usage_pct": 25.0}


def test_triton_backend_rows_are_chosen_by_their_label() -> None:
    text = (
        'nv_trt_llm_request_metrics{model="t",request_type="waiting",version="1"} 1\n'
        'nv_trt_llm_request_metrics{model="t",request_type="scheduled",version="1"} 6\n'
        'nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction",model="t"} 0.4\n'
    )
    samples = parse_prometheus(text)
    assert engine_of(samples) == "tensorrt_llm"
    assert engine_metrics(samples) == {"running": 6.0, "waiting": 1.0, "kv_usage_pct": 40.0}


@pytest.mark.parametrize("value", ["", "NaN", "+Inf", "-Inf", "abc"])
def test_blank_and_unreal_values_are_absent(value: str) -> None:
    samples = parse_prometheus(f'DCGM_FI_DEV_GPU_UTIL{{gpu="0"}} {value}\nvllm:num_requests_running {value}\n')
    assert engine_metrics(samples) == {}
    assert all(sample.value is None for sample in samples)


def test_labels_may_hold_any_text() -> None:
    (sample,) = parse_prometheus('a{x="b\\"c}, d=\\"",y="1"} 2 # comment\n')
    assert sample.labels == {"x": 'b"c}, d="', "y": "1"}
    assert sample.value == 2.0


def test_foreign_text_gives_nothing_and_a_flood_is_cut() -> None:
    assert parse_prometheus("<html>not found</html>\n\x00\xff\n{}\n") == []
    assert len(parse_prometheus("a 1\n" * (MAX_SAMPLES + 10))) == MAX_SAMPLES


def test_trtllm_iteration_statistics_of_the_newest_record() -> None:
    record = {
        "numActiveRequests": 9,
        "numQueuedRequests": 3,
        "inflightBatchingStats": {"numScheduledRequests": 8},
        "kvCacheStats": {"usedNumBlocks": 50, "maxNumBlocks": 200},
    }
    text = json.dumps([{"numActiveRequests": 1}, record])
    assert trtllm_iteration_metrics(text) == {"running": 8.0, "waiting": 3.0, "kv_usage_pct": 25.0}


@pytest.mark.parametrize("text", ["[]", "{}", "null", "nonsense", '[{"numActiveRequests": "x"}]', "[3]"])
def test_trtllm_statistics_that_hold_nothing_give_nothing(text: str) -> None:
    assert trtllm_iteration_metrics(text) == {}


def test_every_key_is_one_of_the_models() -> None:
    keys = set(engine_metrics(parse_prometheus(VLLM + SGLANG)))
    assert keys <= {field.name for field in msgspec.structs.fields(ServerMetrics)}
