"""The tuning verdict: which claims the evidence carries, and which it does not."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from moetop.engines import LogBook, LogDigest, ServerFacts, judge_tuning
from moetop.engines.backends import UNTUNED_BACKENDS, Tuner, tuner_of
from moetop.engines.gates import SGLANG_GATES, Outcome, first_release, sglang_gate
from moetop.engines.versions import is_before_release, version_key
from moetop.model import Engine, Tuning, TuningFile, Verdict

READY = "[2026-02-19 01:06:58] The server is fired up and ready to roll!"
VLLM_READY = "(APIServer pid=1) INFO:     Application startup complete."
CUTLASS = "(EngineCore_DP0 pid=214) INFO 08-17 10:00:00 [nvfp4.py:244] Using 'FLASHINFER_CUTLASS' NvFp4 MoE backend."
FI = "(Worker_TP0 pid=271) 2026-08-17 13:25:0{},231 - INFO - autotuner.py:256 - flashinfer.jit: [Autotuner]: {}"
START, END = FI.format(5, "Autotuning process starts ..."), FI.format(7, "Autotuning process ends")
BAR = "[AutoTuner]: Tuning {}: {:3d}%|#####| {}/10 [00:38<00:00,  9.72s/profile]"


def args(**more: Any) -> str:
    listed = {"model_path": "lukealonso/GLM-5-NVFP4", "tp_size": 8, "moe_runner_backend": "flashinfer_cutlass"} | more
    return "[2026-02-19 01:00:41] server_args=ServerArgs(" + ", ".join(f"{k}={v!r}" for k, v in listed.items()) + ")"


def read(*lines: str) -> LogDigest:
    book = LogBook("x.log")
    for line in lines:
        book.feed(line)
    return book.digest()


def sglang(version: str | None, *lines: str, cc: str | None = "12.0", files: tuple[TuningFile, ...] = ()) -> Tuning:
    facts = ServerFacts(engine=Engine.SGLANG, versions={"sglang": version} if version else {}, compute_capability=cc)
    return judge_tuning(read(*(lines or (args(), READY))), facts, files)


def vllm(*lines: str, **facts: Any) -> Tuning:
    return judge_tuning(read(*lines), ServerFacts(engine=Engine.VLLM, **facts), ())


def said(tuning: Tuning) -> str:
    return " / ".join((*tuning.evidence, *tuning.remedy))


# ── the gate ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", ["0.5.7", "0.5.8", "0.5.9", "0.5.10", "0.5.11", "0.5.12", "0.5.12.post1"])
def test_the_reference_scenario_never_ran_and_says_which_release_would(version: str) -> None:
    tuning = sglang(version)
    assert tuning.verdict is Verdict.NEVER_RAN
    assert f"SGLang {version}" in tuning.evidence[0]
    assert "flashinfer_cutlass tuning never starts" in tuning.evidence[0]
    assert "no tuner lines proves nothing" in tuning.evidence[1]
    assert "0.5.16 or later" in tuning.remedy[0]
    assert "retune and restart" in tuning.remedy[0]
    assert "all-reduce" in said(tuning)


def test_a_missing_bundled_file_is_never_the_cause() -> None:
    tuning = sglang("0.5.9")
    assert "tuning_configs" not in " ".join(tuning.evidence)
    assert "do not write a file" in said(tuning)


@pytest.mark.parametrize("version", ["0.5.13", "0.5.14", "0.5.16", "0.5.18", "0.6.0"])
def test_silence_of_a_release_that_tunes_proves_nothing(version: str) -> None:
    tuning = sglang(version)
    assert tuning.verdict is Verdict.UNKNOWN
    assert "cannot be told apart" in said(tuning)
    assert "to tell" in said(tuning)


def test_without_a_version_silence_proves_nothing() -> None:
    tuning = sglang(None)
    assert tuning.verdict is Verdict.UNKNOWN
    assert "version is not known" in said(tuning)


@pytest.mark.parametrize(
    ("version", "backend", "more", "outcome"),
    [
        ("0.5.5", "flashinfer_trtllm", {}, Outcome.REFUSES),
        ("0.5.6", "flashinfer_cutlass", {"x": 1}, Outcome.OFF),
        ("0.5.6", "flashinfer_cutlass", {}, Outcome.UNKNOWN),
        ("0.5.6", "flashinfer_cutlass", {"enable_flashinfer_autotune": True}, Outcome.PASSES),
        (
            "0.5.6",
            "flashinfer_cutlass",
            {"enable_flashinfer_autotune": True, "attention_backend": "fa3"},
            Outcome.REFUSES,
        ),
        ("0.5.7", "flashinfer_trtllm", {}, Outcome.PASSES),
        ("0.5.10", "flashinfer_cutedsl", {}, Outcome.REFUSES),
        ("0.5.11", "flashinfer_cutedsl", {}, Outcome.PASSES),
        ("0.5.12.post1", "flashinfer_cutlass", {}, Outcome.REFUSES),
        ("0.5.13", "flashinfer_cutlass", {}, Outcome.PASSES),
        ("0.5.17", "flashinfer_megamoe", {}, Outcome.REFUSES),
        ("0.5.18", "flashinfer_cutlass", {"enable_deterministic_inference": True}, Outcome.OFF),
        ("0.5.17", "flashinfer_cutlass", {"enable_deterministic_inference": True}, Outcome.PASSES),
        ("not a version", "flashinfer_cutlass", {}, Outcome.UNKNOWN),
        ("0.5.13", None, {}, Outcome.UNKNOWN),
    ],
)
def test_the_gate_answers_by_version_and_backend(
    version: str, backend: str | None, more: dict[str, Any], outcome: Outcome
) -> None:
    assert sglang_gate(version, backend, more, "12.0").outcome is outcome


@pytest.mark.parametrize("version", ["0.5.13rc1", "0.5.13.dev120+g1234567", "0.5.12.post1.dev40+gabc", "0.5.12+gabc"])
def test_a_build_between_two_releases_that_differ_is_unknown(version: str) -> None:
    assert sglang_gate(version, "flashinfer_cutlass", {}, "12.0").outcome is Outcome.UNKNOWN
    assert sglang_gate(version, "flashinfer_trtllm", {}, "12.0").outcome is Outcome.PASSES


def test_a_build_between_two_releases_that_agree_is_decided() -> None:
    assert sglang_gate("0.5.9.dev3+gabc", "flashinfer_cutlass", {}, "12.0").outcome is Outcome.REFUSES


def test_older_gpus_are_refused_whatever_the_version() -> None:
    assert sglang_gate(None, "flashinfer_cutlass", {}, "8.9").outcome is Outcome.REFUSES
    assert vllm(CUTLASS, VLLM_READY, compute_capability="8.6").verdict is Verdict.NEVER_RAN
    assert vllm(CUTLASS, VLLM_READY, compute_capability="9.0").verdict is Verdict.UNKNOWN


def test_the_gates_cover_every_release_once() -> None:
    for before, after in itertools.pairwise(SGLANG_GATES):
        assert before.until == after.since
    assert SGLANG_GATES[-1].until is None
    assert all(gate.source for gate in SGLANG_GATES)


@pytest.mark.parametrize(
    ("backend", "release"),
    [
        ("flashinfer_cutlass", "0.5.13"),
        ("flashinfer_trtllm", "0.5.7"),
        ("flashinfer_cutedsl", "0.5.11"),
        ("triton", None),
    ],
)
def test_the_remedy_names_the_first_release_for_this_backend(backend: str, release: str | None) -> None:
    assert first_release(backend) == release


def test_versions_sort_as_their_makers_mean() -> None:
    names = ["0.5.9", "0.5.10.dev3", "0.5.10rc1", "0.5.10", "0.5.10.post1", "0.5.10.post2", "0.5.11", "0.6.17", "1.0"]
    keys = [version_key(name) for name in names]
    assert keys == sorted(keys, key=lambda key: key or ())
    assert [is_before_release(name) for name in names] == [False, True, True, *[False] * 6]
    assert version_key("") is None
    assert version_key(None) is None
    assert version_key("nightly") is None


# ── switched off, running, failed ────────────────────────────────────────────────────────────────


def test_an_option_that_switches_tuning_off_is_off() -> None:
    assert sglang("0.5.14", args(disable_flashinfer_autotune=True), READY).verdict is Verdict.OFF
    assert sglang("0.5.14", args(disable_flashinfer_autotune=False), READY).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    "given",
    [
        {"enable_flashinfer_autotune": False},
        {"no_enable_flashinfer_autotune": True},
        {"kernel_config": {"enable_flashinfer_autotune": False}},
        {"kernel_config.enable_flashinfer_autotune": "False"},
        {"optimization_level": 0},
    ],
)
def test_every_spelling_of_vllms_option_is_off(given: dict[str, Any]) -> None:
    assert vllm(CUTLASS, VLLM_READY, args=given).verdict is Verdict.OFF


def test_the_engines_own_word_on_skipping_is_off() -> None:
    line = (
        "(Worker_TP0 pid=90) INFO 09-19 04:00:00 [kernel_warmup.py:120] "
        "Skipping FlashInfer autotune because it is disabled."
    )
    tuning = vllm(line, VLLM_READY)
    assert tuning.verdict is Verdict.OFF
    assert "on purpose" in said(tuning)


def test_a_start_without_an_end_is_running() -> None:
    tuning = vllm(CUTLASS, START)
    assert tuning.verdict is Verdict.RUNNING
    assert "TP0" in said(tuning)


def test_a_crash_inside_the_tuner_failed_and_one_beside_it_is_not_known() -> None:
    crash = "(Worker_TP0 pid=271) ERROR 08-17 13:25:08 [multiproc_executor.py:932] "
    head, trace = crash + "WorkerProc hit an exception.", crash + "Traceback (most recent call last):"
    frame = crash + '  File "/x/flashinfer/autotuner.py", line 3, in choose_one'
    other = crash + '  File "/x/model.py", line 3, in forward'
    assert vllm(CUTLASS, START, head, trace, frame, crash + "RuntimeError: x").verdict is Verdict.FAILED
    beside = vllm(CUTLASS, START, head, trace, other, crash + "RuntimeError: x")
    assert beside.verdict is Verdict.UNKNOWN
    assert "no proof of its cause" in said(beside)


# ── what FlashInfer's tuner left ─────────────────────────────────────────────────────────────────


def test_a_finished_bar_of_the_moe_kernel_is_tuned() -> None:
    assert (
        vllm(CUTLASS, START, BAR.format("trtllm::fused_moe::gemm1", 100, 10), END, VLLM_READY).verdict is Verdict.TUNED
    )


def test_a_finished_bar_of_another_kernel_proves_nothing_of_the_moe_kernel() -> None:
    tuning = vllm(CUTLASS, START, BAR.format("fp4_gemm", 100, 10), END, VLLM_READY)
    assert tuning.verdict is Verdict.UNKNOWN
    assert "not the MoE kernels" in said(tuning)


def test_start_and_end_alone_prove_nothing() -> None:
    tuning = vllm(CUTLASS, START, END, VLLM_READY)
    assert tuning.verdict is Verdict.UNKNOWN
    assert "alone does not prove" in said(tuning)


def test_a_pass_of_milliseconds_may_be_a_warm_cache() -> None:
    quick = FI.format(5, "Autotuning process ends")
    assert "warm cache" in said(vllm(CUTLASS, START, quick, VLLM_READY))


@pytest.mark.parametrize(
    "result",
    [
        "Saved 42 configs to /c/a.json (42 new, 0 from previous config)",
        "Loaded 214 configs from /c/a.json",
        "Config cache hit for trtllm::fused_moe::gemm1 (runner=MoERunner, source=config file)",
    ],
)
def test_results_of_the_tuner_are_tuned(result: str) -> None:
    assert vllm(CUTLASS, START, FI.format(6, result), END, VLLM_READY).verdict is Verdict.TUNED


def test_out_of_memory_with_no_result_is_untuned_and_with_results_partly() -> None:
    oom = FI.format(6, "OOM detected, falling back to default tactic")
    saved = FI.format(7, "Saved 42 configs to /c/a.json (42 new, 0 from previous config)")
    nothing = vllm(CUTLASS, START, oom, oom, END, VLLM_READY)
    assert nothing.verdict is Verdict.UNTUNED
    assert "2 times" in said(nothing)
    assert "--gpu-memory-utilization" in said(nothing)
    assert vllm(CUTLASS, START, oom, saved, END, VLLM_READY).verdict is Verdict.PARTLY_TUNED


def test_nothing_saved_is_untuned_only_where_something_had_to_be() -> None:
    zero = FI.format(6, "Saved 0 configs to /c/a.json (0 new, 0 from previous config)")
    assert vllm(CUTLASS, START, END, zero, VLLM_READY).verdict is Verdict.UNTUNED
    assert vllm(START, END, zero, VLLM_READY).verdict is Verdict.UNKNOWN


def test_a_shape_outside_the_tuned_sizes_is_partly_tuned() -> None:
    saved = FI.format(6, "Saved 42 configs to /c/a.json (42 new, 0 from previous config)")
    outside = FI.format(8, "x").replace(
        "[Autotuner]: x",
        "[AutoTuner]: No tuned config covers trtllm::fused_moe::gemm1 input_shapes=((4096, 3072)); falling back to "
        "runner=MoERunner tactic=-1.  This shape is outside the tuning bucket range",
    )
    tuning = vllm(CUTLASS, START, saved, END, VLLM_READY, outside)
    assert tuning.verdict is Verdict.PARTLY_TUNED
    assert "trtllm::fused_moe::gemm1" in said(tuning)


def test_a_hidden_log_level_is_named_as_the_reason_of_silence() -> None:
    assert "FLASHINFER_LOGGING_LEVEL=warning hides" in said(
        vllm(CUTLASS, VLLM_READY, env={"FLASHINFER_LOGGING_LEVEL": "warning"})
    )


# ── caches on disk ───────────────────────────────────────────────────────────────────────────────

FOLDER = "/root/.cache/sglang/flashinfer/autotune/0.6.12/sm120/88ed/"


def cache(rank: int, exists: bool = True, stale: str | None = None, **facts: Any) -> TuningFile:
    ops = {"trtllm::fused_moe::gemm1": {"entries": 20}, "trtllm::fused_moe::gemm2": {"entries": 20}}
    return TuningFile(
        path=f"{FOLDER}rank_tp{rank}_pp0_dp0.json",
        role="flashinfer_cache",
        exists=exists,
        stale=stale,
        facts={"group": "88ed", "entries": 40, "ops": ops} | facts if exists else {"group": "88ed"},
    )


def test_full_caches_on_disk_are_tuned_though_the_log_is_silent() -> None:
    assert sglang("0.5.14", files=(cache(0), cache(1))).verdict is Verdict.TUNED


def test_a_missing_or_rejected_ranks_cache_is_partly_tuned() -> None:
    missing = sglang("0.5.14", files=(cache(0), cache(1, exists=False)))
    assert missing.verdict is Verdict.PARTLY_TUNED
    assert "rank_tp1" in said(missing)
    stale = sglang("0.5.14", files=(cache(0), cache(1, stale="made on NVIDIA B200, this host has another")))
    assert stale.verdict is Verdict.PARTLY_TUNED


@pytest.mark.parametrize(
    ("chunk", "verdict"), [(512, Verdict.TUNED), (8192, Verdict.PARTLY_TUNED), (-1, Verdict.TUNED)]
)
def test_prefill_chunks_above_the_tuned_sizes_are_partly_tuned(chunk: int, verdict: Verdict) -> None:
    ops = {"trtllm::fused_moe::gemm1": {"entries": 20, "buckets": [1, 2, 512]}}
    tuning = sglang("0.5.14", args(chunked_prefill_size=chunk), READY, files=(cache(0, ops=ops),))
    assert tuning.verdict is verdict
    assert ("512 tokens" in said(tuning)) is (verdict is Verdict.PARTLY_TUNED)


def test_a_cache_of_default_tactics_is_not_tuned() -> None:
    assert sglang("0.5.14", files=(cache(0, fallback_only=40),)).verdict is Verdict.UNKNOWN
    assert sglang("0.5.14", files=(cache(0, fallback_only=4),)).verdict is Verdict.PARTLY_TUNED


def test_caches_of_several_configurations_are_not_taken_for_this_servers() -> None:
    other = TuningFile(
        path="/x/99/rank_tp0_pp0_dp0.json", role="flashinfer_cache", exists=True, facts={"group": "99", "entries": 9}
    )
    assert sglang("0.5.14", files=(cache(0), other)).verdict is Verdict.UNKNOWN
    line = f"[2026-06-28 13:36:54 TP0] Running FlashInfer autotune with cache: {FOLDER}rank_tp0_pp0_dp0.json"
    assert sglang("0.5.14", args(), line, READY, files=(cache(0), other)).verdict is Verdict.TUNED


def test_a_gate_that_refuses_outranks_a_cache_of_another_configuration() -> None:
    assert sglang("0.5.12", files=(cache(0),)).verdict is Verdict.NEVER_RAN


# ── other tuners ─────────────────────────────────────────────────────────────────────────────────

TRITON_DEFAULT = (
    "[2026-06-28 13:36:54 TP0] Using default MoE kernel config. Performance might be sub-optimal! Config file not "
    "found at /sgl/configs/triton_3_5_1/E=256,N=256,device_name=NVIDIA_H200,dtype=fp8_w8a8.json, you can create them"
)
TRITON_TUNED = (
    "[2026-06-28 13:36:54 TP0] Using MoE kernel config from "
    "/sgl/configs/triton_3_5_1/E=8,N=2,device_name=NVIDIA_H200.json."
)


def test_triton_follows_its_file() -> None:
    given = args(moe_runner_backend="triton")
    untuned = sglang("0.5.9", given, TRITON_DEFAULT, READY)
    assert untuned.verdict is Verdict.UNTUNED
    assert "tuning_fused_moe_triton.py --model lukealonso/GLM-5-NVFP4 --tp-size 8 --dtype fp8_w8a8" in said(untuned)
    assert "/sgl/configs/triton_3_5_1/E=256,N=256" in said(untuned)
    assert "try tuning" in said(untuned)
    assert sglang("0.5.9", given, TRITON_TUNED, READY).verdict is Verdict.TUNED
    assert sglang("0.5.9", given, TRITON_TUNED, TRITON_DEFAULT, READY).verdict is Verdict.PARTLY_TUNED
    assert sglang("0.5.9", given, READY).verdict is Verdict.UNKNOWN


def test_a_triton_table_missing_on_disk_is_named() -> None:
    file = TuningFile(
        path="/sgl/configs/triton_3_5_1/E=1,N=2,device_name=NVIDIA_H200.json", role="triton_config", exists=False
    )
    tuning = sglang("0.5.9", args(moe_runner_backend="triton"), READY, files=(file,))
    assert tuning.verdict is Verdict.UNTUNED
    assert file.path in said(tuning)


@pytest.mark.parametrize("backend", ["marlin", "cutlass", "deep_gemm"])
def test_backends_without_a_tuner_say_so(backend: str) -> None:
    tuning = sglang("0.5.16", args(moe_runner_backend=backend), TRITON_DEFAULT, READY)
    assert tuning.verdict is Verdict.NOT_TUNABLE
    assert "does not read that file" in said(tuning)


def test_every_backend_has_one_tuner() -> None:
    assert tuner_of(Engine.VLLM, "FLASHINFER_CUTLASS") is Tuner.FLASHINFER
    assert tuner_of(Engine.SGLANG, "auto") is Tuner.UNKNOWN
    assert tuner_of(Engine.TENSORRT_LLM, None) is Tuner.TRTLLM
    assert all(tuner_of(Engine.SGLANG, name) is Tuner.NONE for name in UNTUNED_BACKENDS)


TRT = "[12/20/2025-04:21:37] [TRT-LLM] [I] [Autotuner] "
TRT_FALLBACK = (
    "[TRT-LLM] [W] [_torch][RANK 3] [AutoTuner] trtllm::fused_moe::gemm1 using the "
    "fallback tactic, due to cache miss on input shapes=()"
)


@pytest.mark.parametrize(
    ("lines", "verdict"),
    [
        ((TRT + "Cache size after warmup is 28", VLLM_READY), Verdict.TUNED),
        ((TRT + "Cache size after warmup is 0", VLLM_READY), Verdict.UNTUNED),
        ((TRT + "Cache size after warmup is 28", VLLM_READY, TRT_FALLBACK), Verdict.PARTLY_TUNED),
        ((TRT + "Autotuning process starts ...", TRT + "Autotuning process ends", VLLM_READY), Verdict.UNKNOWN),
        ((TRT + "No valid runner/tactic was found for custom_op=a::b, input_shapes=x", VLLM_READY), Verdict.FAILED),
    ],
)
def test_tensorrt_llm_follows_the_size_of_its_cache(lines: tuple[str, ...], verdict: Verdict) -> None:
    assert judge_tuning(read(*lines), ServerFacts(engine=Engine.TENSORRT_LLM), ()).verdict is verdict


def test_the_process_outranks_the_log_and_the_log_resolves_auto() -> None:
    tuning = judge_tuning(
        read(args(moe_runner_backend="triton"), READY),
        ServerFacts(engine=Engine.SGLANG, versions={"sglang": "0.5.9"}, args={"moe_runner_backend": "marlin"}),
        (),
    )
    assert tuning.verdict is Verdict.NOT_TUNABLE
    resolved = read(
        args(moe_runner_backend="auto"),
        "[2026-06-28 13:58:47] Use flashinfer_cutlass as MoE runner backend on SM120 for modelopt_fp4 (trtllm-gen)",
        READY,
    )
    auto = ServerFacts(engine=Engine.SGLANG, versions={"sglang": "0.5.9"}, args={"moe_runner_backend": "auto"})
    assert judge_tuning(resolved, auto, ()).verdict is Verdict.NEVER_RAN


def test_nothing_known_is_unknown() -> None:
    assert judge_tuning(LogDigest(name=""), ServerFacts(), ()).verdict is Verdict.UNKNOWN


def test_a_verdict_without_a_log_rests_on_the_process() -> None:
    facts = ServerFacts(
        engine=Engine.SGLANG,
        versions={"sglang": "0.5.9"},
        args={"moe_runner_backend": "flashinfer_cutlass", "tp_size": 8},
        compute_capability="12.0",
    )
    assert judge_tuning(LogDigest(name=""), facts, ()).verdict is Verdict.NEVER_RAN
