"""What a finding tells to do fits its cause: every row of the crash table, and starvation that tuning cannot end."""

from __future__ import annotations

import pytest

from moetop.diagnose import words
from moetop.diagnose.crash_remedies import CRASH_REMEDIES, UNKNOWN_REMEDY, crash_remedy
from moetop.model import EventKind, EventSeverity, LogEvent, Verdict
from tests.unit.diagnose_kit import SIGNATURE, finding, gpm, host

EXAMPLES = (
    # what the log says -> what the remedy must speak of, in the order of the table
    ("kernel: Out of memory: Killed process 214 (VLLM::EngineCor) total-vm:123kB", "host's own memory"),
    ("Worker proc VllmWorker-3 died unexpectedly (exit code: -9), shutting down executor.", "killed from outside"),
    ("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.", "raise the engine's share"),
    (
        "ValueError: Free memory on device cuda:0 (3.1/95.0 GiB) on startup is less than desired GPU memory",
        "not free",
    ),
    ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "--mem-fraction-static"),
    ("[Errno 98] error while attempting to bind on address ('0.0.0.0', 30000): address already in use", "another port"),
    ("RuntimeError: CUDA driver version is insufficient for CUDA runtime version", "driver"),
    ("CUDA error: no kernel image is available for execution on the device", "another attention or MoE backend"),
    ("[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3)", "NCCL_DEBUG"),
    ("Watchdog timeout (self.watchdog_timeout=300)", "py-spy"),
    ("torch.AcceleratorError: CUDA error: an illegal memory access was encountered", "CUDA_LAUNCH_BLOCKING"),
    ("Fatal Python error: Segmentation fault", "native code"),
    ("ModuleNotFoundError: No module named 'flashinfer'", "environment"),
    ("error: unrecognized arguments: --enable-foo", "--help"),
    ("OSError: Qwen/Qwen3 is not a local folder and is not a valid model identifier", "name or path"),
)


def event(line: str, kind: EventKind = EventKind.CRASH) -> LogEvent:
    return LogEvent(kind=kind, rule="g.test", severity=EventSeverity.FATAL, line=line)


@pytest.mark.parametrize(("line", "word"), EXAMPLES, ids=[word for _, word in EXAMPLES])
def test_every_cause_has_a_remedy_of_its_own(line: str, word: str) -> None:
    assert word in "\n".join(crash_remedy(event("EngineCore failed"), line))
    assert word in "\n".join(crash_remedy(event(line), ""))


def test_every_row_of_the_table_has_an_example_and_things_to_do() -> None:
    taken = [next(row for row in CRASH_REMEDIES if row.words.search(line)) for line, _ in EXAMPLES]
    assert taken == list(CRASH_REMEDIES)
    for row in CRASH_REMEDIES:
        assert row.source
        assert not row.remedy[0].startswith(words.COMMAND)


def test_a_kind_decides_where_no_words_do_and_an_unknown_cause_sends_to_the_log() -> None:
    assert "--mem-fraction-static" in crash_remedy(event("memory", EventKind.OOM), "memory")[0]
    assert "rank did not take part" in crash_remedy(event("aborted", EventKind.NCCL_TIMEOUT), "aborted")[0]
    assert crash_remedy(event("RuntimeError: boom"), "RuntimeError: boom") == UNKNOWN_REMEDY
    assert "`l`" in UNKNOWN_REMEDY[0]


def failed(*lines: str) -> tuple[str, tuple[str, ...]]:
    found = finding(host({}, server={"engine": "vllm"}, log=lines).report(), "crashed")
    return found.summary, found.remedy


ABOVE = (
    "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): "
    "{'EngineCore_DP0': 1}"
)


def test_a_failed_start_that_names_its_error_does_not_send_further_up() -> None:
    summary, remedy = failed(
        "(EngineCore_DP0 pid=214) ERROR 08-17 09:02:00 [core.py:866] EngineCore failed to start.",
        "(EngineCore_DP0 pid=214) ERROR 08-17 09:02:00 [core.py:866] Traceback (most recent call last):",
        "(EngineCore_DP0 pid=214) ERROR 08-17 09:02:00 [core.py:866] ValueError: Free memory on device cuda:0 (3.1/"
        "95.0 GiB) on startup is less than desired GPU memory utilization (0.9, 85.5 GiB).",
        ABOVE,
    )
    assert "Free memory on device" in summary
    assert "earlier" not in summary
    assert "not free" in remedy[0]


def test_one_that_only_points_further_up_does() -> None:
    summary, remedy = failed(ABOVE)
    assert "the root cause stands earlier in the log" in summary
    assert "look further up" in remedy[0]


# ── starvation beside a tuning that is in place ──────────────────────────────────────────────────

TUNED = (
    "[2026-02-19 01:04:33] server_args=ServerArgs(model_path='/m', tp_size=1, moe_runner_backend='triton')",
    "[2026-02-19 01:05:42 TP0] Using MoE kernel config from /s/configs/triton_3_4_0/E=256,N=768,"
    "device_name=NVIDIA_H200.json.",
    "[2026-02-19 01:06:58] The server is fired up and ready to roll!",
)


@pytest.mark.parametrize("measured", [True, False], ids=["measured", "inferred"])
def test_a_gpu_that_starves_under_tuned_kernels_is_not_sent_to_tune_again(measured: bool) -> None:
    starved = {"gpm": gpm(sm_active_pct=99.0, tensor_pct=9.0, dram_pct=29.0)} if measured else SIGNATURE
    report = host(starved, server={"gpus": (0,)}, log=TUNED).report()
    assert report.servers[0].tuning.verdict is Verdict.TUNED
    found = finding(report, "tensor_starved" if measured else "starvation_signature")
    advice = "\n".join(found.remedy)
    assert "retune" not in advice
    assert "compare with a tuned configuration" not in advice
    assert "untuned kernels" not in advice
    assert "the tuning is in place" in advice
    assert "small batch" in advice
    assert "kernels are tuned" in found.summary


def test_without_a_verdict_tuning_stays_a_suspect() -> None:
    found = finding(host({"gpm": gpm(sm_active_pct=99.0, tensor_pct=9.0, dram_pct=29.0)}).report(), "tensor_starved")
    assert "tuned configuration" in found.remedy[0]
    assert "kernels are tuned" not in found.summary
