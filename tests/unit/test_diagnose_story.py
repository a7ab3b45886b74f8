"""The reference scenario, from frames: eight PCIe-only cards, SGLang 0.5.9, flashinfer_cutlass, an earlier
run that crashed in the same log, and a missing bundled table that is not the cause."""

from __future__ import annotations

from typing import Any

import pytest

from moetop.diagnose.host import HostEvidence
from moetop.model import Confidence, Gpus, HostReport, Inventory, Log, Phase, Severity, TuningFile, Verdict
from moetop.triage.offline import build_offline
from tests.unit.diagnose_kit import finding, gpm, host, make_server, sample, standing, text_of

ARGS = (
    "server_args=ServerArgs(model_path='/models/GLM-5-NVFP4', tp_size=8, quantization='modelopt_fp4', "
    "moe_runner_backend='{backend}', disable_flashinfer_autotune=False, log_level='info')"
)
LOG = (
    "[2026-02-19 00:41:03] " + ARGS.format(backend="flashinfer_trtllm"),
    "2026-02-19 00:47:11,310 - INFO - autotuner.py:256 - flashinfer.jit: [Autotuner]: Autotuning process starts ...",
    "[2026-02-19 00:47:12 TP3] Scheduler hit an exception: Traceback (most recent call last):",
    "RuntimeError: Error in function 'run': no kernel image is available for execution on the device",
    "[2026-02-19 00:47:13] Received sigquit from a child process. It usually means the child failed.",
    "[2026-02-19 01:04:33] " + ARGS.format(backend="flashinfer_cutlass"),
    "[2026-02-19 01:04:40 TP0] Custom allreduce is disabled because it's not supported on more than two PCIe-only "
    "GPUs. To silence this warning, specify disable_custom_all_reduce=True explicitly.",
    "[2026-02-19 01:04:51 TP0] Load weight begin. avail mem=93.10 GB",
    "[2026-02-19 01:06:20 TP0] Capture cuda graph begin. This can take up to several minutes. avail mem=18.02 GB",
    "[2026-02-19 01:06:58] The server is fired up and ready to roll!",
    "[2026-02-19 01:09:30 TP0] Decode batch, #running-req: 16, #token: 9000, token usage: 0.31, cuda graph: True, "
    "gen throughput (token/s): 812.00, #queue-req: 0",
)
SIGNATURE: dict[str, Any] = {
    "power_w": 330.0,
    "power_limit_w": 600.0,
    "util_mem_pct": 31.0,
    "sm_clock_mhz": 2425.0,
    "memory_used_mib": 89211.0,
    "temp_c": 58.0,
}
CARD = {
    "name": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
    "compute_capability": "12.0",
    "sm_clock_max_mhz": 3090.0,
    "power_limit_default_w": 600.0,
    "gpm": False,
}
SERVER: dict[str, Any] = {
    "name": "sglang",
    "engine": "sglang",
    "versions": {"sglang": "0.5.9", "flashinfer": "0.6.3", "triton": "3.5.1"},
    "args": {"moe_runner_backend": "flashinfer_cutlass", "tp_size": 8, "quantization": "modelopt_fp4"},
    "env": {},
    "gpus": tuple(range(8)),
    "healthy": True,
}
BUNDLED = TuningFile(
    path="flashinfer/tuning_configs/v0_1_trtllm_fused_moe_NVIDIA_RTX_PRO_6000_Blackwell_Server_Edition.py",
    role="flashinfer_bundled",
    exists=False,
)


def story(*, version: str = "0.5.9", gpu: dict[str, Any] | None = None, log: tuple[str, ...] = LOG) -> HostReport:
    server = {**SERVER, "versions": {**SERVER["versions"], "sglang": version}}
    evidence = host(*[gpu if gpu is not None else SIGNATURE] * 8, infos=CARD, server=server, log=log)
    evidence.apply(Inventory(t=1.0, server="sglang", files=(BUNDLED,)))
    return evidence.report()


def test_the_answer_is_that_this_release_does_not_tune_this_backend() -> None:
    report = story()
    found = report.findings[0]
    assert report.headline == "untuned_kernels"
    assert (found.kind, found.severity, found.confidence) == ("untuned_kernels", Severity.WARNING, Confidence.INFERRED)
    assert "SGLang 0.5.9 does not autotune flashinfer_cutlass" in found.summary
    assert "8 of 8 GPUs show the starvation signature" in found.summary
    assert found.gpus == tuple(range(8))
    assert standing(report) == ["untuned_kernels"]


def test_the_server_is_judged_by_its_newest_run() -> None:
    server = story().servers[0]
    assert [str(run.phase) for run in server.runs] == ["crashed", "ready"]
    assert (server.phase, server.ready, server.tuning.verdict) == (Phase.READY, True, Verdict.NEVER_RAN)
    assert server.args["moe_runner_backend"] == "flashinfer_cutlass"


def test_both_kinds_of_evidence_stand_in_the_finding() -> None:
    evidence = "\n".join(finding(story(), "untuned_kernels").evidence)
    assert "100 % busy at 55 % of the power limit" in evidence
    assert "power cap (no reason bit)" in evidence
    assert "16 running requests" in evidence
    assert "0.5.9" in evidence
    assert "flashinfer_cutlass" in evidence


def test_the_remedy_is_the_upgrade_and_what_to_check_for_the_all_reduce() -> None:
    found = finding(story(), "untuned_kernels")
    remedy = "\n".join(found.remedy)
    assert "0.5.16" in remedy
    assert "$ nvidia-smi topo -m" in found.remedy
    assert "NCCL_P2P" in remedy
    unknown = [line for line in found.evidence if line.startswith("Not known:")]
    assert any("all-reduce" in line and "2026-02-19 01:04:40" in line for line in unknown)
    assert any("tensor activity" in line for line in unknown)


def test_the_missing_bundled_table_is_never_given_as_the_cause() -> None:
    report = story()
    for found in report.findings:
        assert "tuning_configs" not in found.summary
        assert "bundled" not in found.summary
    for line in text_of(report).splitlines():
        if "tuning_configs" in line or "bundled" in line:
            assert "not" in line, line


def test_the_silence_of_the_log_is_not_given_as_the_evidence() -> None:
    evidence = finding(story(), "untuned_kernels").evidence
    assert not any(line.startswith("Log: no ") and "line" in line for line in evidence[:3])


def test_without_telemetry_the_refused_gate_is_a_hint_and_the_headline_is_the_phase() -> None:
    evidence = HostEvidence("h")
    evidence.apply(make_server(**SERVER))
    for line in LOG:
        evidence.apply(Log(t=1.0, source="serve.log", line=line))
    report = evidence.report()
    assert report.headline == "healthy"
    assert finding(report, "untuned_kernels").severity is Severity.INFO


def test_measured_starvation_makes_it_a_measurement_and_rules_the_waiting_out() -> None:
    dark = {**SIGNATURE, "power_w": 590.0, "gpm": gpm(sm_active_pct=99.0, tensor_pct=9.0, dram_pct=29.0)}
    found = finding(story(gpu=dark), "untuned_kernels")
    assert found.confidence is Confidence.MEASURED
    assert "measured starved" in found.summary
    assert not any("all-reduce" in line for line in found.evidence)


@pytest.mark.parametrize("version", ["0.5.8", "0.5.9", "0.5.10"])
def test_every_release_that_leaves_the_backend_out_gives_this_answer(version: str) -> None:
    assert story(version=version).headline == "untuned_kernels"


def test_a_release_that_tunes_this_backend_leaves_the_cause_open() -> None:
    report = story(version="0.5.17")
    assert report.headline == "starvation_signature"
    assert report.servers[0].tuning.verdict is not Verdict.NEVER_RAN


def test_gpus_that_work_well_leave_only_the_hint() -> None:
    well = {**SIGNATURE, "gpm": gpm(tensor_pct=70.0), "power_w": 590.0}
    report = story(gpu=well)
    assert report.headline == "healthy"
    assert finding(report, "untuned_kernels").severity is Severity.INFO


def test_while_the_server_loads_its_gpus_are_not_called_starved() -> None:
    report = story(log=LOG[:8])
    assert report.headline == "loading"
    assert standing(report) == []


def test_the_pasted_log_and_listing_alone_claim_less() -> None:
    head = (
        "index, name, utilization.gpu [%], utilization.memory [%], power.draw [W], power.limit [W], "
        "clocks.current.sm [MHz], clocks_event_reasons.active\n"
    )
    rows = "".join(f"{i}, NVIDIA RTX PRO 6000, 100 %, 31 %, 331 W, 600 W, 2422 MHz, 0x0\n" for i in range(8))
    report = build_offline(log=("sglang-glm5.log", LOG), smi_log=head + rows).report()
    assert report.headline in ("starvation_signature", "untuned_kernels")
    assert report.findings[0].confidence is Confidence.INFERRED


def test_one_sample_is_enough_for_the_answer() -> None:
    evidence = host(*[SIGNATURE] * 8, infos=CARD, server=SERVER, log=LOG, seconds=0)
    evidence.apply(Gpus(t=1.0, gpus=tuple(sample(i, **SIGNATURE) for i in range(8))))
    assert evidence.report().headline == "untuned_kernels"
