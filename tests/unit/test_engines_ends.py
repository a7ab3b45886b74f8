"""How a run ends, and what shows that it did not."""

from __future__ import annotations

import pytest

from moetop.engines import LogBook, LogDigest
from moetop.model import EventKind, Phase

SGL_ARGS = "[2026-06-28 13:34:00] server_args=ServerArgs(model_path='m', tp_size=2, port=30000)"
SGL_LOAD = "[2026-06-28 13:34:10 TP0] Load weight begin. avail mem=93.80 GB"
SGL_READY = "[2026-06-28 13:38:10] The server is fired up and ready to roll!"
SGL_CRASH = (
    "[2026-06-28 15:00:00 TP0] Scheduler hit an exception: Traceback (most recent call last):",
    '  File "/sgl/scheduler.py", line 1, in run',
    "torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
    "[2026-06-28 15:00:01] Received sigquit from a child process. It usually means the child failed.",
)
VL_BANNER = "(APIServer pid=1) INFO 08-17 10:00:00 [api_server.py:1772] vLLM API server version 0.23.0"
VL_LOAD = "(Worker_TP0 pid=3) INFO 08-17 10:00:30 [gpu_model_runner.py:5000] Starting to load model Qwen/Qwen3-30B..."
VL_READY = "(APIServer pid=1) INFO:     Application startup complete."
VL_STATS = (
    "(APIServer pid=1) INFO 08-17 10:05:00 [loggers.py:257] Engine 000: Avg prompt throughput: 120.0 tokens/s, Avg "
    "generation throughput: 512.3 tokens/s, Running: 12 reqs, Waiting: 0 reqs, GPU KV cache usage: 3.4%, Prefix cache "
    "hit rate: 41.0%"
)
ACCESS = '(APIServer pid=1) INFO:     127.0.0.1:44444 - "GET /health HTTP/1.1" 200 OK'
UNCAUGHT = (
    "Traceback (most recent call last):",
    '  File "/usr/bin/vllm", line 8, in <module>',
    "    sys.exit(main())",
    "OSError: m is not a local folder and is not a valid model identifier",
)


def read(*lines: str) -> LogDigest:
    book = LogBook("x.log")
    for line in lines:
        book.feed(line)
    return book.digest()


def decode(clock: str, running: int = 12) -> str:
    return (
        f"[2026-06-28 {clock} TP0] Decode batch, #running-req: {running}, #token: 21504, token usage: 0.10, cuda "
        "graph: True, gen throughput (token/s): 245.11, #queue-req: 0"
    )


@pytest.mark.parametrize(
    ("after", "phase"),
    [
        (decode("15:00:03"), Phase.CRASHED),
        (decode("15:10:00"), Phase.READY),
        (decode("15:10:00", running=0), Phase.CRASHED),
        ("[2026-06-28 15:10:00] The server is fired up and ready to roll!", Phase.READY),
    ],
    ids=["what the dying still print", "requests run long after", "none runs", "ready again"],
)
def test_only_work_long_after_a_crash_shows_that_the_server_lives(after: str, phase: Phase) -> None:
    digest = read(SGL_ARGS, SGL_LOAD, SGL_READY, *SGL_CRASH, after)
    assert digest.phase is phase
    assert (digest.cause is None) is (phase is Phase.READY)


KILLED = (
    "Killed",
    "[1]+  Killed                  python -m sglang.launch_server --port 30000",
    "zsh: killed     python -m sglang.launch_server",
    "./run.sh: line 12: 12345 Killed                  python -m sglang.launch_server",
    "Segmentation fault (core dumped)",
)
"""What shells say of a process that did not end by itself."""


@pytest.mark.parametrize("line", KILLED)
def test_what_a_shell_says_of_a_killed_server_is_its_end(line: str) -> None:
    assert read(SGL_ARGS, SGL_READY, line).phase is Phase.CRASHED


@pytest.mark.parametrize("line", KILLED)
def test_a_server_that_works_on_was_not_what_the_shell_saw_killed(line: str) -> None:
    assert read(SGL_ARGS, SGL_READY, line, decode("13:38:20")).phase is Phase.CRASHED
    assert read(SGL_ARGS, SGL_READY, line, decode("13:50:00")).phase is Phase.READY
    assert read(SGL_ARGS, SGL_READY, line, ACCESS).phase is (Phase.CRASHED if "Segm" in line else Phase.READY)


@pytest.mark.parametrize("line", ["Killed by request", "Aborted request 12", "The job was Killed", "KV blocks killed"])
def test_words_of_a_sentence_are_no_kill(line: str) -> None:
    assert read(SGL_ARGS, SGL_READY, line).phase is Phase.READY


def test_weights_that_load_after_a_crash_begin_a_new_run_without_arguments() -> None:
    again = "[2026-06-28 15:01:10 TP0] Load weight begin. avail mem=93.80 GB"
    digest = read(SGL_ARGS, SGL_LOAD, SGL_READY, *SGL_CRASH, again)
    assert [run.phase for run in digest.runs] == [Phase.CRASHED, Phase.LOADING]
    ready = "[2026-06-28 15:04:10] The server is fired up and ready to roll!"
    digest = read(SGL_ARGS, SGL_LOAD, SGL_READY, *SGL_CRASH, again, ready, decode("15:05:00"))
    assert digest.phase is Phase.READY and digest.ready


def test_another_rank_that_still_begins_to_load_is_of_the_run_that_crashed() -> None:
    crash = SGL_CRASH[0].replace("15:00:00", "13:34:11")
    other = "[2026-06-28 13:34:30 TP1] Load weight begin. avail mem=93.80 GB"
    digest = read(SGL_ARGS, SGL_LOAD, crash, *SGL_CRASH[1:3], other)
    assert [run.phase for run in digest.runs] == [Phase.CRASHED]


def test_an_engine_core_killed_for_host_memory_crashed_and_the_kill_is_the_cause() -> None:
    digest = read(
        VL_BANNER,
        VL_READY,
        VL_STATS,
        "Aug 17 11:00:05 host kernel: Out of memory: Killed process 214 (VLLM::EngineCor) total-vm:123456kB",
        "(APIServer pid=1) ERROR 08-17 11:00:06 [core_client.py:600] Engine core proc EngineCore_DP0 died "
        "unexpectedly, shutting down client.",
        "(APIServer pid=1) INFO:     Shutting down",
    )
    assert digest.phase is Phase.CRASHED
    assert digest.cause is not None and digest.cause.rule == "k.oomkill"


@pytest.mark.parametrize("prefix", ["", "(APIServer pid=1) "])
def test_an_exception_that_nothing_caught_is_a_failed_start_before_the_server_is_ready(prefix: str) -> None:
    digest = read(VL_BANNER, VL_LOAD, *(prefix + line for line in UNCAUGHT))
    assert digest.phase is Phase.CRASHED
    assert digest.cause is not None and digest.cause.kind is EventKind.ENGINE_START_FAILED
    assert str(digest.cause.fields["error"]).startswith("OSError: m is not")


def test_an_exception_that_nothing_caught_is_a_crash_where_no_engine_is_known_to_start() -> None:
    digest = read(*UNCAUGHT)
    assert digest.phase is Phase.CRASHED
    assert digest.cause is not None and digest.cause.kind is EventKind.CRASH


def test_an_exception_that_nothing_caught_is_a_crash_of_a_server_that_was_ready() -> None:
    digest = read(VL_BANNER, VL_LOAD, VL_READY, VL_STATS, *UNCAUGHT)
    assert digest.phase is Phase.CRASHED
    assert digest.cause is not None and digest.cause.kind is EventKind.CRASH


@pytest.mark.parametrize("after", [VL_STATS, ACCESS], ids=["numbers", "an answer"])
def test_a_server_that_works_on_did_not_end_with_a_helpers_exception(after: str) -> None:
    digest = read(VL_BANNER, VL_LOAD, VL_READY, *UNCAUGHT, after)
    assert digest.phase is Phase.READY and digest.ready and digest.cause is None


def test_a_start_that_goes_on_did_not_end_with_a_helpers_exception() -> None:
    assert read(VL_BANNER, *UNCAUGHT, VL_LOAD).phase is Phase.LOADING


@pytest.mark.parametrize(
    "lines",
    [
        (UNCAUGHT[0], '  File "/usr/lib/python3.12/threading.py", line 1073, in _bootstrap_inner', UNCAUGHT[3]),
        (*UNCAUGHT[:3], "KeyboardInterrupt"),
        tuple("(APIServer pid=1) ERROR 08-17 10:05:00 [serving.py:1] " + line for line in UNCAUGHT),
    ],
    ids=["of a thread", "by Ctrl-C", "logged"],
)
def test_other_tracebacks_end_no_run(lines: tuple[str, ...]) -> None:
    assert read(VL_BANNER, VL_LOAD, VL_READY, *lines).phase is Phase.READY


@pytest.mark.parametrize(
    "lines",
    [
        (
            SGL_ARGS,
            SGL_LOAD,
            "[2026-06-28 13:38:07] ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 30000): "
            "address already in use",
        ),
        (
            SGL_ARGS,
            UNCAUGHT[0],
            '  File "/sgl/launch.py", line 1, in <module>',
            "ModuleNotFoundError: No module named 'x'",
        ),
        ("usage: vllm serve [model_tag] [options]", "vllm serve: error: unrecognized arguments: --enable-foo"),
        ("launch_server.py: error: argument --tp-size: invalid int value: 'two'",),
    ],
    ids=["port in use", "module not found", "unknown option", "bad value"],
)
def test_a_start_that_failed_at_once_is_said_to_have_failed(lines: tuple[str, ...]) -> None:
    digest = read(*lines)
    assert digest.phase is Phase.CRASHED
    assert digest.cause is not None and digest.cause.kind is EventKind.ENGINE_START_FAILED


def test_a_start_that_fails_again_and_again_is_as_many_runs() -> None:
    failed = (UNCAUGHT[0], '  File "/sgl/launch.py", line 1, in <module>', "ModuleNotFoundError: No module named 'x'")
    later = SGL_ARGS.replace("13:34:00", "13:34:30")
    assert [run.phase for run in read(SGL_ARGS, *failed, later, *failed).runs] == [Phase.CRASHED] * 2


CORE_FAILED = "(EngineCore_DP0 pid=214) ERROR 08-17 09:02:00 [core.py:866] "
POINTS_UP = (
    "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): "
    "{'EngineCore_DP0': 1}"
)


def test_a_failed_start_that_tells_why_is_its_own_cause() -> None:
    digest = read(
        VL_BANNER,
        VL_LOAD,
        CORE_FAILED + "EngineCore failed to start.",
        CORE_FAILED + "Traceback (most recent call last):",
        CORE_FAILED + "ValueError: Free memory on device cuda:0 (3.1/95.0 GiB) on startup is less than desired.",
        POINTS_UP,
    )
    assert digest.cause is not None
    assert str(digest.cause.fields["error"]).startswith("ValueError: Free memory on device")
    assert digest.cause.fields["root_cause_in_excerpt"] is True


def test_a_failed_start_whose_cause_stands_before_the_log_says_so() -> None:
    for lines in ((VL_BANNER, POINTS_UP), (VL_BANNER, CORE_FAILED + "EngineCore failed to start.")):
        digest = read(*lines)
        assert digest.cause is not None and digest.cause.fields["root_cause_in_excerpt"] is False
