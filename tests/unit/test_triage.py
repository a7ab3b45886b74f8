"""Pasted text becomes the right figures: nvidia-smi CSV, dmon, pmon, tables, DCGM, several at once."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from moetop.errors import UsageError
from moetop.model import GpuReport, Gpus, HostReport, HostStatus
from moetop.triage.offline import build_offline, offline_frames, offline_transport
from moetop.triage.smi_log import parse_smi_log
from moetop.triage.times import read_time

CSV_HEAD = "index, name, utilization.gpu [%], utilization.memory [%], power.draw [W], power.limit [W]"
TABLE_HEAD = """\
Thu Jan 30 05:00:03 2025
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 550.144.03             Driver Version: 550.144.03     CUDA Version: 12.4     |
|-----------------------------------------+------------------------+----------------------+
"""
TABLE_ROW = """\
|   {index}  NVIDIA H200                    On  |   00000000:{bus}:00.0 Off |                    0 |
| N/A   33C    P0            {power:>4}W /  700W |  124585MiB / 143771MiB |    {util:>3}%      Default |
|                                         |                        |             Disabled |
+-----------------------------------------+------------------------+----------------------+
"""
PROCESSES = """\
| Processes:                                                                              |
|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
|=========================================================================================|
|    0   N/A  N/A          684430      C   VLLM::Worker_TP0                    124568MiB |
+-----------------------------------------------------------------------------------------+
"""


def smi(text: str, window_s: float = 10.0) -> HostReport:
    return build_offline(smi_log=text, window_s=window_s).report()


def only(text: str) -> GpuReport:
    gpus = smi(text).gpus
    assert len(gpus) == 1
    return gpus[0]


# ── CSV ──────────────────────────────────────────────────────────────────────────────────────────


def test_columns_are_read_by_name_in_any_order_with_or_without_units() -> None:
    with_units = "power.limit [W], utilization.gpu [%], index, power.draw [W]\n700.00 W, 97 %, 3, 350.00 W\n"
    without = "power.limit [W], utilization.gpu [%], index, power.draw [W]\n700.00, 97, 3, 350.00\n"
    for text in (with_units, without):
        gpu = only(text)
        assert (gpu.index, gpu.util_gpu_pct, gpu.power_w, gpu.power_pct) == (3, 97.0, 350.0, 50.0)


def test_csv_without_a_header_is_refused_with_the_command_that_makes_a_good_one() -> None:
    with pytest.raises(UsageError) as caught:
        parse_smi_log("0, NVIDIA H100 PCIe, 97 %, 120.00 W, 350.00 W\n1, NVIDIA H100 PCIe, 96 %, 121.00 W, 350.00 W\n")
    assert "no header" in str(caught.value)
    assert "--format=csv" in (caught.value.advice or "")


@pytest.mark.parametrize("text", ["", "\n\n", "hello world\n", "\x00\x01\x02binary\xff"])
def test_text_that_is_no_nvidia_smi_output_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="nothing in the text"):
        parse_smi_log(text)


def test_with_times_the_last_window_counts_and_earlier_rows_are_history() -> None:
    rows = [
        f"2026/03/05 11:00:{s:02d}.120, 0, {util} %" for s, util in ((0, 10), (20, 20), (39, 80), (40, 90), (41, 97))
    ]
    text = "timestamp, index, utilization.gpu [%]\n" + "\n".join(rows)
    assert smi(text, window_s=3.0).gpus[0].util_gpu_pct == 90.0
    assert smi(text, window_s=0.0).gpus[0].util_gpu_pct == 97.0


def test_without_times_the_last_row_of_each_gpu_is_its_state() -> None:
    text = f"{CSV_HEAD}\n0, H, 10 %, 5 %, 100 W, 700 W\n1, H, 20 %, 5 %, 100 W, 700 W\n0, H, 97 %, 5 %, 300 W, 700 W\n"
    assert [g.util_gpu_pct for g in smi(text).gpus] == [97.0, 20.0]


def test_a_row_cut_short_and_foreign_lines_are_passed_over() -> None:
    text = f"$ nvidia-smi -l\n{CSV_HEAD}\n0, H, 10 %, 5 %, 100 W, 700 W\nuser@host:~$ # note\n0, H, 97 %, 5"
    assert only(text).util_gpu_pct == 10.0


@pytest.mark.parametrize(
    "spelling",
    ["[N/A]", "N/A", "[Not Supported]", "[Unknown Error]", "[Insufficient Permissions]", "ERR!", "-", "", "[whatever]"],
)
def test_every_spelling_of_an_absent_value_is_absent_and_never_zero(spelling: str) -> None:
    gpu = only(f"{CSV_HEAD}\n0, H, 12 %, 5 %, {spelling}, 350.00 W\n")
    assert (gpu.power_w, gpu.power_pct, gpu.util_gpu_pct) == (None, None, 12.0)
    assert gpu.absent["power_w"]


def test_windows_line_ends_and_a_byte_order_mark_are_no_obstacle() -> None:
    assert only(f"\ufeff{CSV_HEAD}\r\n0, H, 97 %, 5 %, 300 W, 700 W\r\n").util_gpu_pct == 97.0


def test_a_long_log_is_read_in_reasonable_time_and_its_end_counts() -> None:
    rows = [f"2026/03/05 {h:02d}:{m:02d}:{s:02d}.1, 0, {s} %" for h in range(6) for m in range(60) for s in range(60)]
    text = "timestamp, index, utilization.gpu [%]\n" + "\n".join(rows)
    started = time.perf_counter()
    assert smi(text, window_s=0.0).gpus[0].util_gpu_pct == 59.0
    assert time.perf_counter() - started < 20
    kept = sum(isinstance(f, Gpus) for f in offline_frames(smi_log=text))
    assert 900 <= kept <= 2200


# ── several blocks ───────────────────────────────────────────────────────────────────────────────


def test_blocks_complement_each_other() -> None:
    text = (
        "# gpu    pwr  gtemp     sm    mem\n# Idx      W      C      %      %\n    0    231     61     97      8\n"
        "pcie.link.gen.current, pcie.link.gen.max, pcie.link.width.current, pcie.link.width.max\n4, 4, 8, 16\n"
    )
    gpu = only(text)
    assert (gpu.util_gpu_pct, gpu.power_w, gpu.pcie_width, gpu.pcie_width_max) == (97.0, 231.0, 8, 16)


def test_a_later_block_that_says_absent_is_not_filled_from_an_earlier_one() -> None:
    text = f"{CSV_HEAD}\n0, H, 10 %, 5 %, 100 W, 700 W\nindex, power.draw [W]\n0, [N/A]\n"
    gpu = only(text)
    assert (gpu.power_w, gpu.util_gpu_pct) == (None, 10.0)


def test_errors_beside_data_do_not_hide_the_data() -> None:
    report = smi(
        f"Failed to initialize NVML: Driver/library version mismatch\n{CSV_HEAD}\n0, H, 97 %, 5 %, 300 W, 700 W\n"
    )
    assert report.gpus[0].util_gpu_pct == 97.0
    assert report.headline != "driver_mismatch"


@pytest.mark.parametrize(
    ("text", "headline"),
    [
        ("Failed to initialize NVML: Driver/library version mismatch\n", "driver_mismatch"),
        ("bash: nvidia-smi: command not found\n", "no_data"),
        ("zsh: command not found: nvidia-smi\n", "no_data"),
        ("No devices were found\n", "no_data"),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", "no_data"),
        ("Unable to determine the device handle for GPU 0000:BA:00.0: Unknown Error\n", "gpu_lost"),
    ],
)
def test_what_the_tools_say_instead_of_data_is_a_finding(text: str, headline: str) -> None:
    report = smi(text)
    assert (report.headline, report.status) == (headline, HostStatus.DEGRADED)
    assert report.error
    assert report.findings[0].remedy


# ── tables, dmon, pmon ───────────────────────────────────────────────────────────────────────────


def test_a_table_gives_driver_memory_and_processes() -> None:
    text = TABLE_HEAD + TABLE_ROW.format(index=0, bus="03", power=115, util=0) + PROCESSES
    report = smi(text)
    gpu = report.gpus[0]
    assert (report.driver, report.source) == ("550.144.03", "table")
    assert (gpu.power_w, gpu.memory_used_mib, gpu.memory_total_mib, gpu.mig) == (115.0, 124585.0, 143771.0, False)
    assert gpu.processes is not None
    assert [(p.pid, p.name) for p in gpu.processes] == [(684430, "VLLM::Worker_TP0")]


def test_of_several_tables_the_last_counts() -> None:
    first = TABLE_HEAD + TABLE_ROW.format(index=0, bus="03", power=115, util=0)
    second = TABLE_HEAD.replace("05:00:03", "05:01:03") + TABLE_ROW.format(index=0, bus="03", power=600, util=99)
    assert only(first + second).util_gpu_pct == 99.0


def test_a_table_without_a_process_list_does_not_say_there_is_none() -> None:
    assert only(TABLE_ROW.format(index=0, bus="03", power=115, util=0)).processes is None
    with_list = TABLE_ROW.format(index=0, bus="03", power=115, util=0) + "|  No running processes found     |\n"
    assert only(with_list).processes == ()


def test_table_cells_that_touch_the_border_or_hold_errors_are_absent() -> None:
    text = (
        "|   0  NVIDIA GeForce RTX 2080 ...    Off |   00000000:05:00.0 Off |                  N/A |\n"
        "|ERR!   41C    P8             N/A /  N/A  |       1MiB /   8192MiB |      0%      Default |\n"
        "|                                         |                        |                  N/A |\n"
    )
    gpu = only(text)
    assert (gpu.temp_c, gpu.power_w, gpu.power_limit_w, gpu.util_gpu_pct) == (41.0, None, None, 0.0)


def test_dmon_with_dates_has_times_and_its_repeated_header_is_no_new_block() -> None:
    head = "#Date       Time        gpu    pwr     sm    mem\n#YYYYMMDD   HH:MM:SS    Idx      W      %      %\n"
    text = (
        head
        + " 20260305   11:00:00      0    100     10      5\n"
        + head
        + " 20260305   11:00:01      0    200     97      5\n"
    )
    assert smi(text, window_s=0.0).gpus[0].util_gpu_pct == 97.0
    assert smi(text, window_s=10.0).gpus[0].power_w == 150.0


def test_dmon_traffic_is_turned_from_mb_to_mib() -> None:
    text = "# gpu  sm  mem  rxpci  txpci\n# Idx  %  %  MB/s  MB/s\n 0  50  5  1048.576  0\n"
    samples = [f for f in offline_frames(smi_log=text) if isinstance(f, Gpus)]
    assert samples[-1].gpus[0].pcie_rx_mib_s == pytest.approx(1000.0)


def test_pmon_lists_processes_and_dashes_are_none() -> None:
    text = (
        "# gpu         pid   type     sm    mem    enc    dec    jpg    ofa    command \n"
        "# Idx           #    C/G      %      %      %      %      %      %    name \n"
        "    0    1647159     C     96     41      -      -      -      -    VLLM::Worker_TP \n"
        "    1          -     -      -      -      -      -      -      -    -              \n"
    )
    first, second = smi(text).gpus
    assert first.processes is not None
    assert [(p.pid, p.name) for p in first.processes] == [(1647159, "VLLM::Worker_TP")]
    assert second.processes == ()


# ── metrics ──────────────────────────────────────────────────────────────────────────────────────

DCGM = 'DCGM_FI_{field}{{gpu="{gpu}",UUID="GPU-{gpu}",modelName="NVIDIA H100"{more}}} {value}\n'


def dcgm(gpu: int = 0, more: str = "", **fields: object) -> str:
    return "".join(DCGM.format(field=name, gpu=gpu, more=more, value=value) for name, value in fields.items())


@pytest.mark.parametrize(
    "blank", [2147483632, 2147483634, 9223372036854775792, 9223372036854775794, "140737488355330.000000", "NaN"]
)
def test_every_blank_of_dcgm_is_an_absence(blank: object) -> None:
    report = build_offline(metrics=dcgm(DEV_GPU_UTIL=blank, DEV_POWER_USAGE=312.4)).report()
    gpu = report.gpus[0]
    assert (gpu.util_gpu_pct, gpu.power_w, report.source) == (None, 312.4, "dcgm")


def test_profiling_fields_measure() -> None:
    text = dcgm(
        DEV_GPU_UTIL=100, PROF_SM_ACTIVE=0.99, PROF_PIPE_TENSOR_ACTIVE=0.09, PROF_DRAM_ACTIVE=0.29, DEV_POWER_USAGE=690
    )
    gpu = build_offline(metrics=text).report().gpus[0]
    assert (str(gpu.state), str(gpu.confidence)) == ("tensor_starved", "measured")


def test_a_mig_instances_utilization_of_zero_is_an_absence_and_its_activity_decides() -> None:
    instance = ',GPU_I_ID="7",GPU_I_PROFILE="1g.10gb"'
    text = dcgm(more=instance, DEV_GPU_UTIL=0, PROF_SM_ACTIVE=0.95, PROF_PIPE_TENSOR_ACTIVE=0.8, PROF_DRAM_ACTIVE=0.2)
    report = build_offline(metrics=text).report()
    gpu = report.gpus[0]
    assert (gpu.util_gpu_pct, str(gpu.state), gpu.mig) == (None, "tensor_busy", True)
    assert any("MIG instance 7 (1g.10gb)" in note for note in report.notes)


def test_byte_fields_that_are_counters_are_no_rates() -> None:
    text = "# TYPE DCGM_FI_PROF_PCIE_RX_BYTES counter\n" + dcgm(PROF_PCIE_RX_BYTES=9e15, DEV_GPU_UTIL=50)
    gpu = build_offline(metrics=text).report().gpus[0]
    assert gpu.gpm is None


def test_the_xid_gauge_is_a_code_and_zero_is_no_error() -> None:
    report = build_offline(metrics=dcgm(0, DEV_XID_ERRORS=79) + dcgm(1, DEV_XID_ERRORS=0)).report()
    assert report.headline == "gpu_lost"
    assert [(e.fields["code"], e.fields["gpu"], e.count) for e in report.events] == [(79, 0, 1)]


def test_metrics_of_an_engine_are_a_serving_server() -> None:
    report = build_offline(metrics='vllm:num_requests_running{model_name="m"} 4.0\n').report()
    assert [(s.name, str(s.engine)) for s in report.servers] == [("metrics", "vllm")]
    assert report.headline == "healthy"


def test_metrics_of_something_else_are_refused() -> None:
    with pytest.raises(UsageError, match="no metric of an engine"):
        build_offline(metrics="node_load1 0.5\n")


# ── the host ─────────────────────────────────────────────────────────────────────────────────────


def test_a_log_gives_exactly_one_server_named_by_its_file_even_when_empty() -> None:
    for lines in ((), ("nothing to see",), ("kernel: NVRM: Xid (PCI:0000:bc:00): 13, Graphics",)):
        report = build_offline(log=("serve.log", lines)).report()
        assert [(s.name, s.engine) for s in report.servers] == [("serve.log", None)]
        assert (report.name, report.source, report.gpus) == ("offline", None, ())


def test_a_log_and_metrics_are_one_server() -> None:
    metrics = 'vllm:num_requests_running{model_name="m"} 4.0\n'
    report = build_offline(log=("serve.log", ("x",)), metrics=metrics).report()
    assert [(s.name, s.metrics.running if s.metrics else None) for s in report.servers] == [("serve.log", 4.0)]


def test_the_transport_reads_files_and_names_the_log(tmp_path: Path) -> None:
    (tmp_path / "serve.log").write_bytes(b"first\r\nsec\xffond\n" + b"x" * (3 << 20) + b"\nlast")
    (tmp_path / "smi.csv").write_bytes(
        "\ufeff".encode("utf-16") + f"{CSV_HEAD}\n0, H, 97 %, 5 %, 300 W, 700 W".encode("utf-16-le")
    )
    transport = offline_transport(
        log=str(tmp_path / "serve.log"), smi_log=str(tmp_path / "smi.csv"), metrics=None, window_s=2.0
    )
    lines = list(transport.open({}).lines())
    assert transport.name == "offline"
    assert b'"type":"hello"' in lines[0]
    logs = [line for line in lines if b'"type":"log"' in line]
    assert len(logs) == 4
    assert all(b'"source":"serve.log"' in line for line in logs)
    assert b'"util_gpu_pct":97' in lines[-1]


@pytest.mark.parametrize("option", ["log", "smi_log", "metrics"])
def test_a_file_that_cannot_be_read_is_said_at_once(tmp_path: Path, option: str) -> None:
    files = dict.fromkeys(("log", "smi_log", "metrics"))
    with pytest.raises(UsageError, match=r"cannot read .*no-such-file"):
        offline_transport(**{**files, option: str(tmp_path / "no-such-file")}, window_s=2.0)


@pytest.mark.parametrize(
    "text",
    [
        "2026/03/05 11:00:00.120",
        "2026/03/05 11:00:00",
        "20260305 11:00:00",
        "Thu Mar  5 11:00:00 2026",
        "2026-03-05 11:00:00",
    ],
)
def test_every_printed_time_is_read(text: str) -> None:
    assert read_time(text) == pytest.approx(1772708400.0, abs=0.2)


def test_what_is_no_time_is_none() -> None:
    assert read_time("[N/A]") is None
    assert read_time(None) is None


# ── cut short, and numbers that cannot be ────────────────────────────────────────────────────────


@pytest.mark.parametrize("cut", ["1, NVIDIA H200, 0 %\n", "1, NVIDIA H200, 10", "1, NVI"])
def test_a_gpu_whose_only_row_is_cut_short_is_there_without_values(cut: str) -> None:
    report = smi(f"{CSV_HEAD}\n0, NVIDIA H200, 0 %, 0 %, 75.00 W, 700.00 W\n{cut}")
    assert [gpu.index for gpu in report.gpus] == [0, 1]
    assert (report.gpus[1].util_gpu_pct, report.gpus[1].power_w, report.gpus[1].state) == (None, None, "unknown")
    assert report.gpus[1].absent["power_w"] == "cut_short"
    assert any("cut short" in note for note in report.notes)


def test_what_was_read_of_a_gpu_before_a_row_that_is_cut_short_stands() -> None:
    gpu = only(f"{CSV_HEAD}\n0, NVIDIA H200, 97 %, 31 %, 385.00 W, 700.00 W\n0, NVIDIA H200, 9")
    assert (gpu.util_gpu_pct, gpu.power_w) == (97.0, 385.0)


def of_metrics(*lines: str) -> HostReport:
    return build_offline(metrics="\n".join(lines)).report()


def test_a_server_whose_numbers_cannot_be_is_there_without_them() -> None:
    report = of_metrics(
        'vllm:num_requests_running{engine="0"} -5',
        'vllm:num_requests_waiting{engine="0"} 1e308',
        'vllm:num_requests_waiting{engine="1"} 1e308',
        'vllm:kv_cache_usage_perc{engine="0"} 1e400',
    )
    assert [str(server.engine) for server in report.servers] == ["vllm"]
    metrics = report.servers[0].metrics
    assert metrics is None or (metrics.running, metrics.waiting, metrics.kv_usage_pct) == (None, None, None)


def test_a_cache_fuller_than_full_is_not_overload() -> None:
    report = of_metrics("vllm:num_requests_running 3.0", "vllm:kv_cache_usage_perc 3.0")
    assert report.servers[0].metrics is not None
    assert (report.servers[0].metrics.running, report.servers[0].metrics.kv_usage_pct) == (3.0, None)
    assert "overloaded" not in [str(found.kind) for found in report.findings]


# ── GPM columns of dmon ──────────────────────────────────────────────────────────────────────────

GPM_DMON = """\
# gpu    pwr  gtemp  mtemp     sm    mem   mclk   pclk     smutil      smocc     mmaact       dram       fp32
# Idx      W      C      C      %      %    MHz    MHz      GPM:%      GPM:%      GPM:%      GPM:%      GPM:%
"""


def test_gpm_columns_of_dmon_decide_the_state() -> None:
    gpu = only(f"{GPM_DMON}    0    331     63     70    100     31   3201   1980    99    12     9    29     0\n")
    assert gpu.gpm is not None
    assert (gpu.gpm.sm_active_pct, gpu.gpm.sm_occupancy_pct, gpu.gpm.tensor_pct, gpu.gpm.dram_pct) == (99, 12, 9, 29)
    assert (str(gpu.state), str(gpu.confidence)) == ("tensor_starved", "measured")


@pytest.mark.parametrize("cells", ["-  -  -  -  -", "0  0  0  -  0", "99  12  9  2900  0"])
def test_a_gpm_sample_with_a_hole_or_nonsense_is_none_and_never_zeros(cells: str) -> None:
    gpu = only(f"{GPM_DMON}    0    331     63     70    100     31   3201   1980   {cells}\n")
    assert gpu.gpm is None
    assert str(gpu.confidence) == "inferred"
