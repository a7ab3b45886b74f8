"""Two servers in one log, ranks that differ, and servers nobody can name."""

from __future__ import annotations

from moetop.engines import LogBook, LogDigest, ServerFacts, judge_tuning
from moetop.model import Engine, Phase, Verdict

SGLANG = (
    "[2026-06-28 13:34:00] server_args=ServerArgs(model_path='m', tp_size=2, port=30000)",
    "[2026-06-28 13:34:10 TP0] Load weight begin. avail mem=93.80 GB",
    "[2026-06-28 13:38:07] INFO:     Application startup complete.",
    "[2026-06-28 13:38:10] The server is fired up and ready to roll!",
    "[2026-06-28 13:40:54 TP0] Decode batch, #running-req: 12, #token: 21504, token usage: 0.10, cuda graph: True, "
    "gen throughput (token/s): 245.11, #queue-req: 0",
)
VLLM = (
    "(APIServer pid=1) INFO 08-17 10:00:00 [api_server.py:1772] vLLM API server version 0.23.0",
    "(APIServer pid=1) INFO 08-17 10:00:00 [utils.py:253] non-default args: {'model': 'q', 'port': 8000}",
    "(Worker_TP0 pid=3) INFO 08-17 10:00:30 [gpu_model_runner.py:5000] Starting to load model q...",
    "(APIServer pid=1) INFO:     Application startup complete.",
    "(APIServer pid=1) INFO 08-17 10:05:00 [loggers.py:257] Engine 000: Avg prompt throughput: 120.0 tokens/s, Avg "
    "generation throughput: 512.3 tokens/s, Running: 5 reqs, Waiting: 0 reqs, GPU KV cache usage: 3.4%, Prefix cache "
    "hit rate: 41.0%",
)
CRASH = (
    "[2026-06-28 15:00:00 TP0] Scheduler hit an exception: Traceback (most recent call last):",
    '  File "/sgl/scheduler.py", line 1, in run',
    "torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
)
TRT = "[12/20/2025-04:21:37] [TRT-LLM] [I] [RANK {rank}] [Autotuner] Cache size after warmup is {entries}"


def read(*lines: str) -> LogDigest:
    book = LogBook("x.log")
    for line in lines:
        book.feed(line)
    return book.digest()


def from_sglang(*lines: str) -> list[str]:
    return ["sglang-1  | " + line for line in lines]


def from_vllm(*lines: str) -> list[str]:
    return ["vllm-1    | " + line for line in lines]


def interleaved() -> list[str]:
    pairs = zip(from_sglang(*SGLANG), from_vllm(*VLLM), strict=True)
    return [line for pair in pairs for line in pair]


def test_numbers_of_two_engines_in_one_log_are_not_added() -> None:
    digest = read(*interleaved())
    assert [run.phase for run in digest.runs] == [Phase.READY, Phase.READY]
    assert digest.engine is Engine.VLLM and digest.args["model"] == "q"
    assert digest.metrics is not None and digest.metrics.running == 5
    (note,) = digest.notes
    assert "sglang-1 (SGLang), which is ready" in note


def test_the_crash_of_the_other_service_is_told_and_is_not_this_ones() -> None:
    digest = read(*interleaved(), *from_sglang(*CRASH), from_vllm(VLLM[-1])[0])
    assert digest.phase is Phase.READY and digest.cause is None
    (note,) = digest.notes
    assert "sglang-1 (SGLang), which is crashed" in note and "illegal memory access" in note


def test_the_crash_of_the_service_that_started_last_is_the_logs() -> None:
    dead = "(EngineCore_DP0 pid=9) ERROR 08-17 10:06:00 [core.py:1348] EngineCore encountered a fatal error."
    digest = read(*interleaved(), *from_vllm(dead), from_sglang(SGLANG[-1].replace("13:40:54", "19:40:54"))[0])
    assert digest.phase is Phase.CRASHED
    assert digest.cause is not None and digest.cause.rule == "vl.corefatal"


def test_the_exit_of_the_other_container_is_the_other_runs() -> None:
    digest = read(*interleaved(), "sglang-1 exited with code 137")
    assert digest.phase is Phase.READY
    assert [run.phase for run in digest.runs] == [Phase.CRASHED, Phase.READY]


def test_the_kernel_and_the_manager_in_one_journal_are_no_services() -> None:
    head = "Jun 28 13:36:54 host-a "
    lines = [f"{head}sglang[8707]: {line}" for line in SGLANG]
    kill = f"{head}kernel: Out of memory: Killed process 9 (python3) total-vm:1kB"
    ended = f"{head}systemd[1]: sglang.service: Main process exited, code=killed, status=9/KILL"
    digest = read(*lines, kill, ended, *(f"{head}vllm[9000]: {line}" for line in VLLM))
    assert [run.phase for run in digest.runs] == [Phase.CRASHED, Phase.READY]
    (note,) = digest.notes
    assert note.startswith("this log also holds sglang (SGLang), which is crashed")


def test_several_nodes_of_one_engine_are_one_server() -> None:
    lines = [f"node-{node} | {line}" for line in SGLANG for node in (0, 1)]
    digest = read(*lines)
    assert len(digest.runs) == 1 and digest.notes == ()


def test_a_rank_with_an_empty_cache_makes_a_trtllm_server_partly_tuned() -> None:
    digest = read(TRT.format(rank=0, entries=28), TRT.format(rank=1, entries=0))
    tuning = judge_tuning(digest, ServerFacts(), ())
    assert tuning.verdict is Verdict.PARTLY_TUNED
    assert any("empty on rank 1" in sentence for sentence in tuning.evidence)
    tuned = judge_tuning(read(TRT.format(rank=0, entries=28), TRT.format(rank=1, entries=28)), ServerFacts(), ())
    assert tuned.verdict is Verdict.TUNED


def test_a_web_server_alone_names_no_engine() -> None:
    digest = read(
        "INFO:     Started server process [1]",
        "INFO:     Waiting for application startup.",
        "INFO:     Application startup complete.",
        "INFO:     Uvicorn running on http://0.0.0.0:8000 (Press CTRL+C to quit)",
    )
    assert digest.engine is None and digest.phase is Phase.UNKNOWN
    assert all(event.engine is None for event in digest.events)
