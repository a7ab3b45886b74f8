"""Servers, their logs and counters: what joins what, how a run ended, what outranks what."""

from __future__ import annotations

import time
from typing import Any

import pytest

from moetop.diagnose.host import HostEvidence
from moetop.model import (
    AnyFrame,
    Calm,
    Gpus,
    Hello,
    HostReport,
    Inventory,
    Log,
    LogPlace,
    Phase,
    Server,
    ServerMetrics,
    Severity,
    Status,
    TuningFile,
    Verdict,
)
from tests.unit.diagnose_kit import (
    SIGNATURE,
    SPIN,
    finding,
    gpm,
    host,
    info,
    kinds,
    make_server,
    sample,
    standing,
    text_of,
)

ARGS = "[2026-02-19 01:04:33] server_args=ServerArgs(model_path='/m', tp_size=8, moe_runner_backend='{backend}')"
READY = "[2026-02-19 01:06:58] The server is fired up and ready to roll!"
WEIGHTS = "[2026-02-19 01:04:51 TP0] Load weight begin. avail mem=93.10 GB"
TERM = "[2026-02-19 02:00:00] SIGTERM received. signum=None frame=None. Draining requests and shutting down..."
CRASH = (
    "[2026-02-19 02:00:00 TP3] Scheduler hit an exception: Traceback (most recent call last):",
    "RuntimeError: boom",
    "",
    "[2026-02-19 02:00:01] Received sigquit from a child process. It usually means the child failed.",
)
DEFAULT = (
    "[2026-02-19 01:05:42 TP1] Using default MoE kernel config. Performance might be sub-optimal! Config file not "
    "found at /s/configs/triton_3_4_0/E=256,N=768,device_name=NVIDIA_H200.json, you can create them with https://x"
)
DECODE = (
    "[2026-02-19 01:09:30 TP0] Decode batch, #running-req: {running}, #token: 9000, token usage: {usage}, "
    "cuda graph: True, gen throughput (token/s): 812.00, #queue-req: {queue}"
)
XID = "NVRM: Xid (PCI:0000:06:00): {code}, pid=77, name=python3, Ch 00000001"


def served(*lines: str, **server: Any) -> HostEvidence:
    """One well working GPU under a server whose log says `lines`."""
    return host({"gpm": gpm(tensor_pct=70.0)}, server=server, log=lines)


# ── joining ──────────────────────────────────────────────────────────────────────────────────────


def test_a_process_and_its_log_are_one_server_and_other_logs_are_servers_of_their_own() -> None:
    evidence = served(ARGS.format(backend="triton"), READY)
    evidence.apply(Log(t=1.0, source="other.log", line="hello"))
    evidence.apply(Log(t=1.0, source="kernel", line="[ 1.0] booted"))
    assert [s.name for s in evidence.report().servers] == ["sglang", "other.log"]
    assert sorted(evidence.books) == ["kernel", "other.log", "serve.log"]


def test_what_the_process_says_wins_over_its_log_but_auto_does_not_hide_what_it_became() -> None:
    server = {"versions": {"sglang": "0.5.14"}, "args": {"moe_runner_backend": "auto", "tp_size": 4}}
    report = served(ARGS.format(backend="flashinfer_cutlass"), READY, **server).report().servers[0]
    assert report.args["moe_runner_backend"] == "flashinfer_cutlass"
    assert report.args["tp_size"] == 4
    assert report.version == "0.5.14"


def test_environment_log_place_and_tuning_files_travel_into_the_report() -> None:
    place = LogPlace(kind="pipe", why="standard output goes to tee", fix="redirect to a file")
    evidence = served(env={"FLASHINFER_LOGGING_LEVEL": "warning"}, log=place, source=None, manager="plain")
    files = (TuningFile(path="/c/a.json", role="flashinfer_cache", exists=True),)
    evidence.apply(Inventory(t=1.0, server="sglang", files=files, notes=("one cache",)))
    report = evidence.report().servers[0]
    assert (report.env, report.log, report.files, report.manager) == (
        {"FLASHINFER_LOGGING_LEVEL": "warning"},
        place,
        files,
        "plain",
    )
    assert "one cache" in report.notes


def test_a_server_without_a_readable_log_is_ready_when_it_answers() -> None:
    assert served(source=None, healthy=True).report().servers[0].phase is Phase.READY
    assert served(source=None, metrics={"running": 2.0}).report().servers[0].phase is Phase.READY
    assert served(source=None).report().servers[0].phase is Phase.UNKNOWN


def test_an_unknown_engine_name_is_no_engine() -> None:
    assert served(source=None, engine="llamafile").report().servers[0].engine is None


# ── counters and their age ───────────────────────────────────────────────────────────────────────


def test_the_endpoints_counters_go_before_the_logs() -> None:
    lines = (ARGS.format(backend="triton"), READY, DECODE.format(running=16, usage=0.3, queue=0))
    from_log = served(*lines).report().servers[0].metrics
    from_endpoint = served(*lines, metrics={"running": 3.0}).report().servers[0].metrics
    assert from_log is not None
    assert from_endpoint is not None
    assert (from_log.running, from_endpoint.running) == (16.0, 3.0)


def test_counters_grow_old_and_then_say_nothing() -> None:
    evidence = host(SIGNATURE, server={"metrics": {"running": 0.0}}, seconds=1)
    assert evidence.report().servers[0].metrics == ServerMetrics(running=0.0)
    evidence.apply(Gpus(t=300.0, gpus=(sample(0, **SIGNATURE),)))
    assert evidence.report().servers[0].metrics is None


def test_a_throughput_line_of_the_past_is_not_taken_for_now() -> None:
    evidence = host(SIGNATURE, server={}, seconds=0)
    old = DECODE.format(running=1, usage=0.3, queue=0)
    evidence.apply(Log(t=1.0, source="serve.log", line=old, history=True))
    evidence.apply(Gpus(t=1.0, gpus=(sample(0, **SIGNATURE),)))
    assert evidence.report().servers[0].metrics is None
    assert str(evidence.report().gpus[0].state) == "tensor_starved"
    evidence.apply(Log(t=2.0, source="serve.log", line=old))
    evidence.apply(Gpus(t=2.0, gpus=(sample(0, **SIGNATURE),)))
    assert str(evidence.report().gpus[0].state) == "unknown"


@pytest.mark.parametrize(
    ("metrics", "overloaded"),
    [
        ({"running": 4.0, "waiting": 5.0}, True),
        ({"running": 5.0, "waiting": 5.0}, False),
        ({"running": 5.0, "waiting": 0.0, "kv_usage_pct": 95.0}, True),
        ({"running": None, "waiting": 50.0}, False),
    ],
)
def test_more_waiting_than_running_or_a_full_cache_is_overloaded(metrics: dict[str, Any], overloaded: bool) -> None:
    evidence = served(metrics=metrics)
    evidence.apply(make_server(t=5.0, metrics=metrics))
    assert ("overloaded" in standing(evidence.report())) is overloaded


def test_a_burst_of_arrivals_is_no_overload_whether_counters_or_the_log_tell_of_it() -> None:
    many, few = {"running": 8.0, "waiting": 20.0}, {"running": 31.0, "waiting": 1.0}
    counters = served(metrics=many)
    assert "overloaded" not in standing(counters.report())
    counters.apply(make_server(t=1.0, metrics=few))
    counters.apply(make_server(t=6.0, metrics=many))
    assert "overloaded" not in standing(counters.report())
    counters.apply(make_server(t=11.0, metrics=many))
    assert "overloaded" in standing(counters.report())
    calm = served(metrics=few)
    for t in range(200, 230, 5):  # counters are old by then
        calm.apply(Gpus(t=float(t), gpus=(sample(0, gpm=gpm(tensor_pct=70.0)),)))
        calm.apply(Log(t=float(t), source="serve.log", line=DECODE.format(running=8, usage=0.99, queue=400)))
    assert "overloaded" in standing(calm.report())
    lines = served()
    for t, queue in ((12.0, 20), (13.0, 0), (14.0, 20)):
        lines.apply(Log(t=t, source="serve.log", line=DECODE.format(running=8, usage=0.3, queue=queue)))
        assert "overloaded" not in standing(lines.report())
    lines.apply(Log(t=19.0, source="serve.log", line=DECODE.format(running=8, usage=0.3, queue=20)))
    lines.apply(Gpus(t=19.0, gpus=(sample(0, gpm=gpm(tensor_pct=70.0)),)))
    assert "overloaded" in standing(lines.report())


# ── how a run ended ──────────────────────────────────────────────────────────────────────────────


def test_a_crash_is_named_by_its_first_error_and_outranks_everything_below() -> None:
    report = served(
        ARGS.format(backend="triton"), DEFAULT, READY, *CRASH, metrics={"running": 1.0, "waiting": 9.0}
    ).report()
    found = finding(report, "crashed")
    assert report.headline == "crashed"
    assert "TP3: RuntimeError: boom" in found.summary
    assert any("process 100 is still there" in line for line in found.evidence)
    assert finding(report, "untuned_kernels").severity is Severity.INFO
    assert "overloaded" not in kinds(report)


def test_an_earlier_crash_in_the_log_is_history() -> None:
    report = served(ARGS.format(backend="triton"), *CRASH, ARGS.format(backend="triton"), READY).report()
    assert report.headline == Calm.HEALTHY
    assert [str(r.phase) for r in report.servers[0].runs] == ["crashed", "ready"]


def gone(*lines: str, **server: Any) -> HostEvidence:
    evidence = served(*lines, **server)
    evidence.apply(Server(t=20.0, name="sglang", gone=True))
    evidence.apply(Gpus(t=20.0, gpus=(sample(0, util_gpu_pct=0.0, power_w=120.0, util_mem_pct=0.0),)))
    return evidence


def test_a_process_gone_without_a_clean_stop_is_said_with_care() -> None:
    report = gone(ARGS.format(backend="triton"), READY).report()
    found = finding(report, "crashed")
    assert (report.headline, report.servers[0].phase, found.confidence) == ("crashed", Phase.EXITED, "inferred")
    assert "no clean stop" in found.summary
    assert any(line.startswith("Not known: whether it was killed") for line in found.evidence)


def test_a_process_gone_after_a_clean_stop_is_stopped() -> None:
    report = gone(ARGS.format(backend="triton"), READY, TERM).report()
    assert report.servers[0].phase in (Phase.STOPPED, Phase.DRAINING)
    assert report.headline == Calm.STOPPED
    assert "crashed" not in kinds(report)


def test_a_process_gone_whose_log_cannot_be_read_is_only_a_hint() -> None:
    report = gone(source=None).report()
    assert finding(report, "crashed").severity is Severity.INFO
    assert "its log cannot be read" in text_of(report)


@pytest.mark.parametrize("line", ["Killed", "sglang-1 exited with code 137"])
def test_a_killed_server_is_called_killed_and_who_did_it_is_looked_for(line: str) -> None:
    found = finding(served(ARGS.format(backend="triton"), READY, line).report(), "crashed")
    assert "was killed (SIGKILL)" in found.summary and "dmesg" in str(found.remedy)


def reconnected(evidence: HostEvidence, *frames: AnyFrame, read: bool = True, processes: bool = True) -> HostReport:
    """What is said after another probe of the same host brought `frames` and was through with its search."""
    evidence.apply(Hello(t=30.0, gpus=(info(),), source="nvml"))
    for frame in frames:
        evidence.apply(frame)
    evidence.apply(Status(t=31.0, code="searched", message="searched", detail={"logs": [], "processes": processes}))
    if read:
        evidence.apply(Status(t=31.1, code="log_read", message="read", source="serve.log"))
    return evidence.report()


def test_a_process_that_the_next_probe_does_not_find_went_while_nobody_looked() -> None:
    report = reconnected(served(ARGS.format(backend="triton"), READY, pid=4711))
    assert report.servers[0].gone and finding(report, "crashed").severity is Severity.CRITICAL
    stopped = reconnected(served(ARGS.format(backend="triton"), READY, TERM, pid=4711))
    assert stopped.servers[0].gone and stopped.headline == "stopped"


def test_how_a_server_ended_is_not_known_before_its_log_was_read_on() -> None:
    evidence = served(ARGS.format(backend="triton"), READY, pid=4711)
    found = finding(reconnected(evidence, read=False), "crashed")
    assert found.severity is Severity.INFO and "was not read on" in str(found.evidence)
    evidence.apply(Log(t=31.1, source="serve.log", line=TERM, history=True))
    evidence.apply(Status(t=31.2, code="log_read", message="read", source="serve.log"))
    assert kinds(evidence.report()) == [] and evidence.report().headline == "stopped"


def test_a_probe_that_looks_for_no_processes_misses_none() -> None:
    report = reconnected(served(ARGS.format(backend="triton"), READY, pid=4711), processes=False)
    assert [server.gone for server in report.servers] == [False] and kinds(report) == []


def test_a_process_that_the_next_probe_finds_is_there_as_before() -> None:
    again = make_server(t=30.5, pid=4711)
    report = reconnected(served(ARGS.format(backend="triton"), READY, pid=4711), again)
    assert [server.gone for server in report.servers] == [False] and report.headline == "healthy"


def test_of_a_server_told_without_a_process_the_search_says_nothing() -> None:
    report = reconnected(served(ARGS.format(backend="triton"), READY, pid=None))
    assert [server.gone for server in report.servers] == [False]


def test_a_retune_job_is_known_until_the_next_probe_has_looked_for_it() -> None:
    def at_work(t: float) -> Status:
        detail = {"servers": ["sglang"], "ports": []}
        return Status(t=t, code="retune_job", message="at work", level="warning", detail=detail)

    evidence = served(READY, pid=4711)
    evidence.apply(at_work(20.0))
    evidence.apply(Hello(t=30.0, gpus=(info(),), source="nvml"))
    assert "at work" in str(evidence.report())
    assert "at work" not in str(reconnected(evidence))
    assert "at work" in str(reconnected(evidence, at_work(30.5)))


def test_a_process_gone_after_a_crash_has_the_cause() -> None:
    assert "boom" in finding(gone(ARGS.format(backend="triton"), READY, *CRASH).report(), "crashed").summary


def test_a_restart_ends_the_crash() -> None:
    evidence = gone(ARGS.format(backend="triton"), READY, *CRASH)
    evidence.apply(make_server(t=30.0, name="sglang-2", pid=200, source="serve.log"))
    for line in (ARGS.format(backend="triton"), WEIGHTS):
        evidence.apply(Log(t=31.0, source="serve.log", line=line))
    report = evidence.report()
    assert [s.name for s in report.servers] == ["sglang-2"]
    assert report.headline == Calm.LOADING


# ── tuning, phases, slow paths ───────────────────────────────────────────────────────────────────


def test_a_default_configuration_is_a_warning_when_serving_and_a_hint_while_loading() -> None:
    serving = served(ARGS.format(backend="triton"), WEIGHTS, DEFAULT, READY).report()
    loading = served(ARGS.format(backend="triton"), WEIGHTS, DEFAULT).report()
    assert (serving.headline, loading.headline) == ("untuned_kernels", Calm.LOADING)
    assert finding(loading, "untuned_kernels").severity is Severity.INFO
    assert "worth trying" in finding(serving, "untuned_kernels").summary


def test_experts_that_do_not_read_the_file_make_it_a_hint() -> None:
    lines = (ARGS.format(backend="triton"), WEIGHTS, DEFAULT, READY)
    report = served(*lines, args={"kt_weight_path": "/w"}).report()
    assert report.headline == Calm.HEALTHY
    assert all(f.severity is Severity.INFO for f in report.findings if f.kind == "untuned_kernels")


def test_tuning_switched_off_with_starved_gpus_keeps_its_name_and_both_kinds_of_evidence() -> None:
    server = {
        "engine": "vllm",
        "versions": {"vllm": "0.22.0"},
        "args": {"moe_backend": "flashinfer_cutlass", "enable_flashinfer_autotune": False},
    }
    line = (
        "(Worker pid=9) INFO 09-19 04:00:00 [kernel_warmup.py:9] Skipping FlashInfer autotune because it is disabled."
    )
    report = host(SIGNATURE, SIGNATURE, server=server, log=(line,)).report()
    found = finding(report, "tuning_off")
    assert (report.headline, report.servers[0].tuning.verdict) == ("tuning_off", Verdict.OFF)
    assert any(line.startswith("Seen:") for line in found.evidence)
    assert "starvation_signature" not in kinds(report)


def test_a_tuner_line_alone_is_tuning() -> None:
    line = "[2026-02-19 01:05:00 TP0] Running FlashInfer autotune with cache: /c/rank_tp0_pp0_dp0.json"
    assert served(ARGS.format(backend="flashinfer_trtllm"), line).report().headline == Calm.TUNING


def test_eager_mode_of_the_process_is_launch_bound_without_any_log_line() -> None:
    server = {"engine": "vllm", "args": {"enforce_eager": True}, "source": None}
    report = host({"util_gpu_pct": 31.0, "power_w": 140.0, "gpm": gpm(sm_active_pct=2.0)}, server=server).report()
    found = finding(report, "launch_bound")
    assert (report.headline, found.confidence) == ("launch_bound", "measured")
    assert any("wait for the host" in line for line in found.evidence)


def spinning(*lines: str, **server: Any) -> HostEvidence:
    return host(SPIN, SPIN, server=server, log=lines)


def test_a_ready_server_without_counters_may_be_idle_and_is_no_critical_hang() -> None:
    report = spinning(ARGS.format(backend="triton"), READY).report()
    found = finding(report, "collective_hang")
    assert found.severity is Severity.WARNING
    assert "idle, or a hang" in found.summary


def test_a_ready_server_whose_last_numbers_were_zero_is_idle() -> None:
    drained = (
        "(APIServer pid=1) INFO 05-12 01:46:22 [loggers.py:271] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg "
        "generation throughput: 0.0 tokens/s, Running: 0 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.0%"
    )
    assert standing(spinning(drained, engine="vllm").report()) == ["idle_spin"]


def test_ranks_that_wait_at_a_barrier_of_a_normal_start_are_no_hang() -> None:
    report = spinning(ARGS.format(backend="triton"), WEIGHTS).report()
    assert (report.headline, standing(report)) == (Calm.LOADING, [])


def test_a_gpu_of_a_known_server_is_no_ghost_though_its_process_cannot_be_seen() -> None:
    evidence = host({**SPIN, "processes": ()}, server={"gpus": (0,)}, log=(READY,))
    assert "ghost_busy" not in kinds(evidence.report())


def test_a_short_wait_during_a_start_is_no_hang() -> None:
    wait = (
        "(EngineCore_DP0 pid=9) INFO 08-20 10:01:00 [shm_broadcast.py:500] No available shared memory broadcast block "
        "found in 60 seconds. This typically happens when some processes are hanging"
    )
    assert "collective_hang" not in kinds(host({}, server={"engine": "vllm"}, log=(wait,)).report())


# ── faults ───────────────────────────────────────────────────────────────────────────────────────


def with_kernel(*codes: int, t: float = 5.0) -> HostEvidence:
    evidence = host({"gpm": gpm(tensor_pct=70.0)})
    for code in codes:
        evidence.apply(Log(t=t, source="kernel", line=XID.format(code=code)))
    return evidence


def test_an_xid_names_the_gpu_by_its_bus_and_what_it_means() -> None:
    report = with_kernel(48).report()
    found = finding(report, "gpu_fault")
    assert (report.headline, found.gpus) == ("gpu_fault", (0,))
    assert "uncorrectable ECC error" in found.summary
    assert [str(e.kind) for e in report.events] == ["xid"]


def test_clean_up_records_stand_under_their_root() -> None:
    report = with_kernel(74, 45, 45).report()
    assert kinds(report) == ["gpu_fault"]
    assert "Xid 74" in report.findings[0].summary


def test_clean_up_alone_says_that_the_root_was_not_seen() -> None:
    assert "its root was not seen" in finding(with_kernel(45).report(), "gpu_fault").summary


def test_a_gpu_that_fell_off_the_bus_but_answers_again_is_not_lost() -> None:
    assert "gpu_lost" not in kinds(with_kernel(79).report())


def test_an_old_fault_on_a_host_that_answers_is_a_hint() -> None:
    evidence = with_kernel(31, t=5.0)
    evidence.apply(Gpus(t=90000.0, gpus=(sample(0, gpm=gpm(tensor_pct=70.0)),)))
    report = evidence.report()
    assert finding(report, "gpu_fault").severity is Severity.INFO
    assert report.headline == Calm.HEALTHY


def test_counted_ecc_errors_are_a_warning_with_an_unknown_date() -> None:
    report = host({"gpm": gpm(tensor_pct=70.0), "ecc_uncorrected": 2}).report()
    assert finding(report, "gpu_fault").severity is Severity.WARNING
    assert any(line.startswith("Not known: when") for line in finding(report, "gpu_fault").evidence)


def test_words_of_a_hostile_host_reach_nobody_as_control_characters() -> None:
    evidence = host({}, infos={"name": "NVIDIA \x1b[31mH200"})
    evidence.apply(Status(t=12.0, code="no_driver", message="bad\x1b]0;title\x07\u202e", level="error", fatal=True))
    evidence.apply(Log(t=12.0, source="kernel", line=XID.format(code=48) + "\x1b[2J"))
    report = evidence.report(1000.0)
    spoken = [report.error, report.gpus[0].name, *report.notes]
    spoken += [text for f in report.findings for text in (f.summary, *f.evidence, *f.remedy)]
    assert all(text is not None and text.isprintable() for text in spoken)


# ── the whole host ───────────────────────────────────────────────────────────────────────────────


def test_values_read_seldom_stand_until_the_next_reading() -> None:
    evidence = host({"processes": (), "pcie_gen": 5, "pcie_width": 16}, seconds=1)
    evidence.apply(Gpus(t=1.0, gpus=(sample(0),)))
    gpu = evidence.report().gpus[0]
    assert (gpu.processes, gpu.pcie_gen, gpu.pcie_width) == ((), 5, 16)


def test_a_reconnect_keeps_the_gpus_and_forgets_the_troubles() -> None:
    evidence = host({"gpm": gpm(tensor_pct=70.0)})
    evidence.apply(Hello(t=13.0, source="nvml", driver="590.1", gpus=(info(),)))
    report = evidence.report()
    assert (report.driver, str(report.gpus[0].state), report.source) == ("590.1", "tensor_busy", "nvml")


def test_a_recording_without_a_source_is_a_recording() -> None:
    evidence = HostEvidence("h")
    evidence.apply(Hello(t=0.0, gpus=(info(),)))
    assert evidence.report().source == "recording"
    assert HostEvidence("h", source="recording").report().source == "recording"


def test_a_report_of_eight_gpus_costs_little() -> None:
    evidence = host(*[{**SIGNATURE, "gpm": gpm()}] * 8, server={"gpus": tuple(range(8))}, log=(DEFAULT, READY))
    took = []
    for k in range(60):
        evidence.apply(Gpus(t=12.0 + k, gpus=tuple(sample(i, **SIGNATURE, gpm=gpm()) for i in range(8))))
        started = time.perf_counter()
        evidence.report()
        took.append(time.perf_counter() - started)
    typical_ms = sorted(took)[len(took) // 2] * 1000
    print(f"report of 8 GPUs: {typical_ms:.2f} ms")
    assert typical_ms < 15
