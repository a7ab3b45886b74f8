"""Reading a log: records, blocks, runs, phases, bounds."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moetop.engines import LogBook, LogDigest
from moetop.engines.reader import read_line
from moetop.engines.rules import RULES
from moetop.model import EventKind, EventSeverity, LogEvent, Phase

SGL_ARGS = "[2026-02-19 01:00:41] server_args=ServerArgs(model_path='m', tp_size=8, moe_runner_backend='triton')"
READY = "[2026-02-19 01:06:58] The server is fired up and ready to roll!"
DECODE = (
    "[2026-06-28 13:36:54 TP0] Decode batch, #running-req: 12, #token: 21504, token usage: 0.10, cuda graph: True, "
    "gen throughput (token/s): 245.11, #queue-req: 3"
)
ACCESS = '(APIServer pid=1) INFO:     10.0.0.81:16983 - "POST /v1/chat/completions HTTP/1.1" 200 OK'


def book_of(*lines: str) -> LogBook:
    book = LogBook("x.log")
    for line in lines:
        book.feed(line)
    return book


def read(*lines: str) -> LogDigest:
    return book_of(*lines).digest()


def of_kind(digest: LogDigest, kind: EventKind) -> list[LogEvent]:
    return [event for event in digest.events if event.kind is kind]


# ── prefixes ─────────────────────────────────────────────────────────────────────────────────────

INNER = "[2026-06-28 13:36:54 DP0 TP1] Load weight begin. avail mem=93.80 GB"
PREFIXES = {
    "docker compose": "sglang-1  | ",
    "compose with brackets": "[sglang]     | ",
    "docker logs -t": "2026-06-28T13:36:54.120394871Z ",
    "containerd": "2026-06-28T13:36:54.120394871+02:00 stderr F ",
    "kubectl --prefix": "[pod/glm-0/server] ",
    "stern": "glm-0 server ",
    "syslog": "Jun 28 13:36:54 host-a sglang[8707]: ",
    "journald with ISO time": "2026-06-28T13:36:54+0000 host-a sglang[8707]: ",
    "mpirun": "[1,3]<stderr>:",
    "several at once": "2026-06-28T13:36:54.120394871Z sglang-1  | ",
    "colour": "\x1b[0;36m",
    "colour that lost its escape byte": "[0;0m ",
}


@pytest.mark.parametrize("prefix", PREFIXES.values(), ids=PREFIXES.keys())
def test_a_record_is_found_behind_any_collectors_prefix(prefix: str) -> None:
    (event,) = read(prefix + INNER).events
    assert (event.kind, event.ranks, event.fields["avail_gb"]) == (EventKind.WEIGHTS_LOADING, ("DP0 TP1",), 93.8)


def test_json_with_escapes_is_read_through_all_its_layers() -> None:
    inner = (
        "\x1b[0;36m(Worker_TP0 pid=61)\x1b[0;0m WARNING 09-01 08:01:12 [fused_moe.py:1090] Using default MoE config. "
    )
    inner += "Performance might be sub-optimal! Config file not found at /c/E=64,N=768,device_name=NVIDIA_B200.json\n"
    line = json.dumps({"log": inner, "stream": "stderr", "time": "2026-09-01T08:01:12.551002344Z"})
    (event,) = read(line).events
    assert event.ranks == ("TP0",)
    assert event.fields["device_name"] == "NVIDIA_B200"
    assert event.t == pytest.approx(1788249672.551, abs=0.01)


def test_in_a_json_record_the_message_decides_and_the_traceback_continues_it() -> None:
    trace = (
        'Traceback (most recent call last):\n  File "/x/core.py", line 3, '
        "in run\n    foo()\nRuntimeError: CUDA error: x"
    )
    record = {"level": "ERROR", "message": "EngineCore encountered a fatal error.", "exc_info": trace}
    digest = read("vllm-0  | " + json.dumps(record), "next")
    (event,) = digest.events
    assert (event.kind, event.fields["error"]) == (EventKind.CRASH, "RuntimeError: CUDA error: x")
    assert digest.phase is Phase.CRASHED


def test_a_json_line_without_a_message_is_an_ordinary_line() -> None:
    assert read('{"a": [1, 2, {"b": "Traceback (most recent call last)"}]}', "{broken", "[]").lines == 3


# ── bars, glued records, lines cut by a terminal ─────────────────────────────────────────────────


def test_of_a_bar_only_the_last_state_counts() -> None:
    bar = "\r".join(
        f"Loading safetensors checkpoint shards: {n * 10:3d}% Completed | {n}/10 [00:0{n}<00:01]" for n in range(6)
    )
    digest = read(bar)
    assert digest.counts == {"weights_progress": 1}
    assert "  0%" not in digest.events[0].line
    assert digest.events[0].fields["done"] == 5


def test_records_glued_to_a_bar_are_records() -> None:
    bar = "Capturing batches (bs=1 avail_mem=3 GB):  20%|##        | 2/10 [00:10<00:40,  5.0s/it]"
    jit = "[2025-12-26 08:51:31 DP0 TP0] Entering DeepGEMM JIT Pre-Compile session. It may take a long time"
    for line in (bar + jit, bar + "\r" + jit, jit + "\r" + bar):
        assert {e.kind for e in read(line).events} == {EventKind.GRAPH_CAPTURE, EventKind.JIT_START}


def test_lines_that_vllm_joins_with_carriage_returns_are_one_crash() -> None:
    head = "(EngineCore_DP0 pid=9) ERROR 08-17 10:00:00 [core.py:1348] "
    parts = ["EngineCore failed to start.", "Traceback (most recent call last):", '  File "/v/core.py", line 3, in run']
    parts += ["    x()", "ValueError: Free memory on device cuda:0 (3.1/95.0 GiB) on startup is less than desired"]
    digest = read("\r\n".join(head + part for part in parts))
    (event,) = digest.events
    assert event.kind is EventKind.ENGINE_START_FAILED
    assert event.fields["error"].startswith("ValueError: Free memory")


WIDTHS = range(60, 221, 20)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(
    ("line", "kind", "field", "value"),
    [
        (
            "[2026-06-28 13:36:54 TP0] Using default MoE kernel config. Performance might be sub-optimal! Config file "
            "not "
            "found at /sgl/configs/triton_3_5_1/E=256,N=256,device_name=NVIDIA_RTX_PRO_6000_Blackwell_Server_Edition,"
            "dtype=fp8_w8a8.json, you can create them with https://github.com/sgl-project/sglang/tree/main/benchmark",
            EventKind.MOE_CONFIG_DEFAULT,
            "file",
            "E=256,N=256,device_name=NVIDIA_RTX_PRO_6000_Blackwell_Server_Edition,dtype=fp8_w8a8.json",
        ),
        (
            "[rank4]:[E210 02:06:33.321131395 ProcessGroupNCCL.cpp:616] [Rank 4] Watchdog caught collective operation "
            "timeout: WorkNCCL(SeqNum=1522789, OpType=_ALLGATHER_BASE, NumelIn=298960, NumelOut=4783360, "
            "Timeout(ms)=600000) ran for 600022 milliseconds before timing out.",
            EventKind.NCCL_TIMEOUT,
            "ran_ms",
            600022,
        ),
    ],
    ids=["path", "watchdog"],
)
def test_a_record_cut_at_a_terminals_width_is_one_event(
    width: int, line: str, kind: EventKind, field: str, value: object
) -> None:
    pieces = [line[at : at + width] for at in range(0, len(line), width)]
    digest = read(*pieces, "[2026-06-28 13:37:00 TP0] Load weight begin. avail mem=93.80 GB")
    (event,) = of_kind(digest, kind)
    assert event.fields[field] == value
    assert digest.counts[kind.value] == 1


def test_a_plain_line_does_not_join_the_record_before_it() -> None:
    digest = read(
        "[2026-06-28 13:36:54 TP0] a line of ordinary words that is longer than forty characters", "Load weight begin."
    )
    assert digest.counts == {"weights_loading": 1}
    assert of_kind(digest, EventKind.WEIGHTS_LOADING)[0].ranks == ()


# ── tracebacks ───────────────────────────────────────────────────────────────────────────────────


def crash(rank: str, error: str, second: int = 54) -> list[str]:
    head = f"[2026-06-28 13:36:{second} {rank}] Scheduler hit an exception: Traceback (most recent call last):"
    return [head, '  File "/a.py", line 1, in f', "    g()", error, ""]


def test_the_same_crash_on_several_ranks_is_one_event() -> None:
    lines = crash("TP0", "ValueError: x") + crash("TP1", "ValueError: x") + crash("TP2", "KeyError: 'y'")
    events = of_kind(read(*lines), EventKind.CRASH)
    assert [(event.ranks, event.count, event.fields["error"]) for event in events] == [
        (("TP0", "TP1"), 2, "ValueError: x"),
        (("TP2",), 1, "KeyError: 'y'"),
    ]


def test_the_cause_is_the_first_error() -> None:
    lines = crash("TP1", "ValueError: the first") + crash("TP0", "RuntimeError: an echo", 56)
    cause = read(SGL_ARGS, *lines).cause
    assert cause is not None
    assert cause.fields["error"] == "ValueError: the first"


def test_chained_exceptions_are_one_traceback_with_both_errors() -> None:
    digest = read(
        "Traceback (most recent call last):",
        '  File "/a.py", line 1, in f',
        "ValueError: first",
        "",
        "During handling of the above exception, another exception occurred:",
        "",
        "Traceback (most recent call last):",
        '  File "/b.py", line 1, in h',
        "RuntimeError: last",
        "[2026-06-28 13:40:00] ok",
    )
    (event,) = digest.events
    assert (event.fields["error"], event.fields["first_error"]) == ("RuntimeError: last", "ValueError: first")


def test_a_traceback_alone_does_not_end_a_run() -> None:
    digest = read(
        SGL_ARGS, READY, "Traceback (most recent call last):", '  File "/a.py", line 1, in f', "ValueError: bad request"
    )
    assert digest.phase is Phase.READY
    assert digest.cause is None


def test_a_traceback_that_ends_in_a_failed_start_is_a_failed_start() -> None:
    digest = read(
        "(EngineCore_DP0 pid=9) Traceback (most recent call last):",
        '(EngineCore_DP0 pid=9)   File "/v/core.py", line 3, in run',
        "(EngineCore_DP0 pid=9) ValueError: No available memory for the cache blocks. Try increasing it",
        "(APIServer pid=1) INFO:     Shutting down",
    )
    assert digest.counts == {"engine_start_failed": 1, "shutdown": 1}
    assert digest.phase is Phase.CRASHED


def test_out_of_memory_inside_a_traceback_is_no_event_of_its_own() -> None:
    digest = read(*crash("TP0", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"))
    assert digest.counts == {"crash": 1}
    assert digest.events[0].fields["oom"] is True


def test_interleaved_tracebacks_keep_their_own_error() -> None:
    zero = "(Worker_TP0 pid=1) ERROR 03-13 12:01:42 [multiproc_executor.py:932] "
    one = "(Worker_TP1 pid=2) ERROR 03-13 12:01:42 [multiproc_executor.py:932] "
    digest = read(
        zero + "WorkerProc hit an exception.",
        one + "WorkerProc hit an exception.",
        zero + "Traceback (most recent call last):",
        one + "Traceback (most recent call last):",
        one + "RuntimeError: of one",
        zero + "RuntimeError: of zero",
        READY,
    )
    assert {(event.ranks, event.fields["error"]) for event in of_kind(digest, EventKind.CRASH)} == {
        (("TP0",), "RuntimeError: of zero"),
        (("TP1",), "RuntimeError: of one"),
    }


def test_a_line_of_another_record_is_not_taken_for_the_exception() -> None:
    """The host sends only lines that may be events: a traceback's frames do not travel."""
    head = "[2026-06-28 13:36:54 TP0] Scheduler hit an exception: Traceback (most recent call last):"
    bar = "Capturing CUDA graphs (PIECEWISE): 100%|##########| 5/5 [00:02<00:00,  2.11it/s]"
    digest = read(head, bar, "[2026-06-28 13:36:54 TP0] Load weight end. elapsed=1 s, type=x", "ValueError: x", READY)
    (event,) = of_kind(digest, EventKind.CRASH)
    assert event.fields.get("error") in (None, "ValueError: x")
    assert digest.counts["graph_capture"] == 1


@pytest.mark.parametrize("level", ["WARNING", "INFO", "DEBUG"])
def test_a_warning_that_quotes_a_cuda_error_is_no_crash(level: str) -> None:
    said = f"(Worker_TP0 pid=1) {level} 08-17 10:00:00 [x.py:1] probe failed: CUDA error: invalid device ordinal"
    assert read(said).phase is Phase.UNKNOWN
    assert read(said.replace(level, "ERROR")).phase is Phase.CRASHED


# ── runs and phases ──────────────────────────────────────────────────────────────────────────────


def test_each_arguments_line_after_a_start_begins_a_run() -> None:
    digest = read(SGL_ARGS, READY, SGL_ARGS.replace("01:00:41", "02:00:41").replace("triton", "auto"), INNER)
    assert [(run.n, run.start_text, run.phase) for run in digest.runs] == [
        (1, "2026-02-19 01:00:41", Phase.READY),
        (2, "2026-02-19 02:00:41", Phase.LOADING),
    ]
    assert {event.run for event in of_kind(digest, EventKind.WEIGHTS_LOADING)} == {2}


def test_lines_printed_just_before_the_arguments_belong_to_their_run() -> None:
    backend = "[2026-02-19 02:00:40] Use flashinfer_cutlass as MoE runner backend on SM120 for modelopt_fp4 (x)"
    digest = read(SGL_ARGS, READY, backend, SGL_ARGS.replace("01:00:41", "02:00:41").replace("'triton'", "'auto'"))
    assert digest.moe_backend == "flashinfer_cutlass"
    assert of_kind(digest, EventKind.MOE_BACKEND_SELECTED)[0].run == 2


def test_arguments_of_several_nodes_are_one_start() -> None:
    assert len(read(SGL_ARGS, SGL_ARGS.replace("01:00:41", "01:00:43"), INNER).runs) == 1


def test_a_vllm_banner_and_its_arguments_are_one_start() -> None:
    start = (
        "(APIServer pid=1) INFO 07-24 10:00:00 [api_server.py:1755] vLLM API server version 0.10.0",
        (
            "(APIServer pid=1) INFO 07-24 10:00:00 [utils.py:272] non-default "
            "args: {'model': 'm', 'tensor_parallel_size': 8}"
        ),
    )
    ready = "(APIServer pid=1) INFO:     Application startup complete."
    digest = read(*start, ready, *start, ready)
    assert [run.phase for run in digest.runs] == [Phase.READY, Phase.READY]
    assert (digest.version, digest.tp_size, digest.model) == ("0.10.0", 8, "m")


@pytest.mark.parametrize(
    ("lines", "phase"),
    [
        ((SGL_ARGS,), Phase.UNKNOWN),
        ((SGL_ARGS, INNER), Phase.LOADING),
        ((SGL_ARGS, "[2026-06-28 13:36:54 TP0] Running FlashInfer autotune..."), Phase.TUNING),
        (
            (
                SGL_ARGS,
                "[2026-06-28 13:36:54 TP0] Running FlashInfer autotune...",
                "2026-06-28 13:36:55,836 - INFO - flashinfer.jit: Loading JIT ops: norm",
            ),
            Phase.TUNING,
        ),
        (
            (
                SGL_ARGS,
                "[2026-06-28 13:36:54 TP0] Running FlashInfer autotune...",
                "[2026-06-28 13:36:54 TP0] FlashInfer autotune completed.",
            ),
            Phase.LOADING,
        ),
        ((SGL_ARGS, "[2026-06-28 13:36:54 TP0] Capture cuda graph begin. x"), Phase.CAPTURING),
        ((SGL_ARGS, INNER, READY), Phase.READY),
        ((SGL_ARGS, INNER, DECODE), Phase.READY),
        (
            (
                SGL_ARGS,
                READY,
                (
                    "[2026-06-28 14:00:00] SIGTERM received. signum=None "
                    "frame=None. Draining requests and shutting down..."
                ),
            ),
            Phase.DRAINING,
        ),
        ((SGL_ARGS, READY, "INFO:     Application shutdown complete."), Phase.STOPPED),
        ((SGL_ARGS, READY, "sglang-1 exited with code 0"), Phase.EXITED),
        ((SGL_ARGS, READY, "sglang-1 exited with code 137"), Phase.CRASHED),
        ((SGL_ARGS, INNER, "Received sigquit from a child process. It usually means the child failed."), Phase.CRASHED),
    ],
)
def test_the_phase_follows_the_lines(lines: tuple[str, ...], phase: Phase) -> None:
    assert read(*lines).phase is phase


def test_an_exit_after_a_drain_is_a_stop() -> None:
    drain = "[2026-06-28 14:00:00] SIGTERM received. signum=None frame=None. Draining requests and shutting down..."
    assert read(SGL_ARGS, READY, drain, "sglang-1 exited with code 137").phase is Phase.STOPPED


def test_a_run_that_drained_when_the_next_began_is_over() -> None:
    drain = "[2026-06-28 14:00:00] SIGTERM received. signum=None frame=None. Draining requests and shutting down..."
    assert [run.phase for run in read(SGL_ARGS, READY, drain).runs] == [Phase.DRAINING]
    assert [run.phase for run in read(SGL_ARGS, READY, drain, SGL_ARGS).runs] == [Phase.STOPPED, Phase.UNKNOWN]


def test_the_exit_of_another_service_is_not_the_servers() -> None:
    ready = "sglang-1  | " + READY
    assert read(ready, "prometheus-1 exited with code 1").phase is Phase.READY
    assert read(ready, "sglang-1 exited with code 1").phase is Phase.CRASHED


def test_a_lone_memory_error_is_forgotten_when_the_server_goes_on() -> None:
    oom = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
    assert read(SGL_ARGS, READY, oom).phase is Phase.CRASHED
    again = read(SGL_ARGS, READY, oom, DECODE)
    assert (again.phase, again.cause) == (Phase.READY, None)


def test_wait_lines_are_counted_until_something_moves() -> None:
    wait = (
        "(EngineCore pid=9) INFO 08-17 10:00:00 [shm_broadcast.py:500] No available "
        "shared memory broadcast block found in 60 seconds."
    )
    assert read(wait, wait, wait).waits == 3
    assert read(wait, wait, INNER).waits == 0


def test_the_drafts_of_engines_are_told_apart_by_bracket_and_head() -> None:
    fi = (
        "2026-02-02 13:25:05,231 - INFO - autotuner.py:256 - flashinfer.jit: [Autotuner]: Autotuning process starts ..."
    )
    trt = "[12/20/2025-04:21:10] [TRT-LLM] [I] [Autotuner]: Autotuning process starts ..."
    assert [event.rule for event in read(fi).events] == ["fi.tune.start"]
    assert [event.rule for event in read(trt).events] == ["tl.tune.start"]


def test_a_secret_among_the_arguments_is_not_kept() -> None:
    digest = read(
        "[2026-02-19 01:00:41] server_args=ServerArgs(model_path='m', "
        "api_key='sk-abc', hf_token=None, x={'token': 'y'})"
    )
    assert digest.args["api_key"] == "***"
    assert digest.args["x"] == {"token": "***"}


def test_times_are_epoch_only_with_year_and_zone() -> None:
    book = LogBook("x")
    (own,) = book.feed("2026-06-28T13:36:54.5Z " + INNER, t=5.0)
    assert own.t == pytest.approx(1782653814.5)
    (arrived,) = book.feed(INNER.replace("TP1", "TP2"), t=5.0)
    assert (arrived.t, arrived.t_text) == (5.0, "2026-06-28 13:36:54")
    (history,) = book.feed(INNER.replace("TP1", "TP3"))
    assert history.t is None


# ── numbers ──────────────────────────────────────────────────────────────────────────────────────


def test_decode_lines_of_any_release_give_the_numbers() -> None:
    old = (
        "[2025-10-07 11:00:00 TP0] Decode batch. #running-req: 2, #token: 9, token "
        "usage: 0.25, gen throughput (token/s): 10.5, #queue-req: 1, "
    )
    metrics = read(old).metrics
    assert metrics is not None
    assert (metrics.running, metrics.waiting, metrics.generation_tokens_s, metrics.kv_usage_pct) == (2, 1, 10.5, 25)


def test_numbers_of_several_engines_add_up() -> None:
    line = (
        "Engine {}: Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: 2.0 tokens/s, Running: 3 "
        "reqs, Waiting: 1 reqs, GPU KV cache usage: {}%, Prefix cache hit rate: 0.0%"
    )
    metrics = read(line.format("000", "10.0"), line.format("001", "30.0"), line.format("000", "20.0")).metrics
    assert metrics is not None
    assert (metrics.running, metrics.generation_tokens_s, metrics.kv_usage_pct) == (6, 4, 30)


def test_an_iteration_line_without_its_last_fields_still_counts() -> None:
    line = (
        "[08/04/2026-19:08:13] [TRT-LLM] [I] [_torch][RANK 0] iter = 7, "
        "num_scheduled_requests = 8, host_step_time = 7.4ms, prev_device_step_time = N/A"
    )
    digest = read(line)
    assert digest.counts == {"step_time": 1}
    assert digest.metrics is not None
    assert digest.metrics.running == 8


def test_the_newest_numbers_of_a_storm_are_those_of_its_last_line() -> None:
    lines = [DECODE.replace("#running-req: 12", f"#running-req: {n}") for n in range(1, 2001)]
    digest = read(*lines)
    assert digest.metrics is not None
    assert digest.metrics.running == 2000
    assert digest.counts == {"throughput": 2000}
    assert digest.noise == 2000


# ── bounds ───────────────────────────────────────────────────────────────────────────────────────


def test_what_the_host_counted_is_counted_and_shown_as_left_out() -> None:
    book = book_of(READY)
    book.count({"http_access": 900}, 1000)
    book.feed(INNER)
    digest = book.digest()
    assert (digest.counts["http_access"], digest.skipped, digest.noise) == (900, 1000, 900)
    assert [line.elided for line in book.tail] == [0, 1000]


def test_noise_is_counted_and_not_listed() -> None:
    digest = read(*[ACCESS] * 50)
    assert (digest.counts, digest.events, digest.noise) == ({"http_access": 50}, (), 50)


def test_a_storm_leaves_the_grave_events_and_bounded_memory() -> None:
    book = LogBook("x", tail_lines=100)
    for line in (SGL_ARGS, *crash("TP0", "ValueError: x")):
        book.feed(line)
    for n in range(6000):
        book.feed(
            f"(EngineCore pid=9) INFO 08-17 10:00:00 [cuda.py:486] Using BACKEND{n} "
            f"attention backend out of potential backends: []"
        )
    digest = book.digest()
    assert len(digest.events) <= 2100
    assert len(book.tail) == 100
    assert of_kind(digest, EventKind.CRASH)
    assert digest.counts["attention_backend_selected"] == 6000


def test_the_tail_shows_lines_harmlessly_with_their_weight() -> None:
    book = book_of("\x1b[31mERROR\x1b[0m bad\x07thing\u202e", ACCESS, READY, "plain words")
    shown = [(line.text, line.severity) for line in book.tail]
    assert shown[0] == ("ERROR bad\u2407thing<U+202E>", EventSeverity.ERROR)
    assert [severity for _, severity in shown[1:]] == [EventSeverity.NOISE, EventSeverity.GOOD, None]
    assert [line.n for line in book.tail] == [0, 1, 2, 3]


def rate(lines: list[str], seconds: float = 0.25) -> float:
    """Lines a second of CPU time."""
    book = LogBook("x")
    began, fed = time.process_time(), 0
    while time.process_time() - began < seconds:
        for line in lines:
            book.feed(line)
        fed += len(lines)
    return fed / (time.process_time() - began)


def plain_rate(lines: list[str]) -> float:
    """Lines a second of CPU time for lower-case and split alone."""
    began, done = time.process_time(), 0
    while time.process_time() - began < 0.1:
        for line in lines:
            line.lower().split()
        done += len(lines)
    return done / (time.process_time() - began)


def test_noise_is_read_fast_against_the_plainest_work_on_the_same_lines() -> None:
    """A ratio, since machines differ: 50,000 lines a second hold where lower-case plus split do 1.5 million. The
    best of several runs, since a loaded machine slows one side of a single run."""
    header = (
        "[2026-06-28 13:36:54] hpack header: x-request-id: 0123456789abcdef and more in a long debug header dump line"
    )
    lines = [ACCESS, DECODE, header] * 200
    assert any(rate(lines) > plain_rate(lines) / 45 for _ in range(6))


def test_a_line_of_a_megabyte_costs_no_more_than_its_first_64_kib() -> None:
    for rule in RULES:
        hit = read_line(rule.example)[-1].text
        book = LogBook("x")
        began = time.process_time()
        book.feed((hit[:-1] * (1_000_000 // len(hit)))[:1_000_000])
        book.feed("next")
        book.digest()
        assert time.process_time() - began < 2.0, rule.id


def test_an_event_at_the_start_of_a_huge_line_is_found() -> None:
    assert read(READY + " " + "x" * 10_000_000).ready


PIECES = st.sampled_from(
    [rule.example for rule in RULES]
    + [
        "\r",
        "\n",
        "\x1b[0m",
        "NVRM: ",
        "Message: '",
        '  File "x", line 1, in f',
        "ValueError: x",
        "",
        "[",
        '{"message": "',
        "\x00",
        "(a pid=1) ",
    ]
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.one_of(st.text(max_size=60), PIECES, st.lists(PIECES, max_size=3).map("".join)), max_size=20),
    st.floats(0, 2e9),
)
def test_no_lines_whatever_raise(lines: list[str], t: float) -> None:
    book = LogBook("x")
    for line in lines:
        book.feed(line, t)
    digest = book.digest()
    assert digest.lines == len(lines)
    assert sum(digest.counts.values()) >= 0


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(max_size=200), max_size=10))
def test_no_bytes_whatever_raise(chunks: list[bytes]) -> None:
    book = LogBook("x")
    for chunk in chunks:
        book.feed(chunk.decode("utf-8", "surrogateescape"))
        book.feed(chunk.decode("utf-8", "replace"))
    assert book.digest().lines == 2 * len(chunks)


def test_feeding_in_one_go_or_with_looks_between_gives_the_same() -> None:
    lines = [SGL_ARGS, INNER, *crash("TP0", "ValueError: x"), READY, DECODE, *[rule.example for rule in RULES]]
    whole = read(*lines)
    book = LogBook("x.log")
    for line in lines:
        book.feed(line)
        book.digest()
    assert book.digest() == whole


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-16"])
def test_a_log_in_utf_16_reads_like_any_other(encoding: str) -> None:
    raw = "\r\n".join((SGL_ARGS, INNER, READY, DECODE)).encode(encoding)
    digest = read(*(line.decode("utf-8", errors="replace") for line in raw.split(b"\n")))
    assert digest.engine is not None and digest.phase is Phase.READY
    assert digest.metrics is not None and digest.metrics.running == 12
