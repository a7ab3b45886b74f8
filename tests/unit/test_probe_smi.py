"""nvidia-smi's query output by header name, every absence, every error sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from moetop.model import GpuInfo, GpuSample
from moetop.probe.smi import absent_reason, find_troubles, is_header, parse_query_csv, refused_field
from moetop.probe.smi_stream import SmiStream, info_of, sample_of

CASES = Path(__file__).parents[1] / "data" / "cases"


def case(number: str) -> dict[str, Any]:
    (path,) = CASES.glob(f"{number}-*.yaml")
    return yaml.safe_load(path.read_text())


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("index, utilization.gpu [%], power.draw [W], memory.used [MiB]", "0, 56 %, 228.82 W, 58222 MiB"),
        ("index, utilization.gpu [%], power.draw [W], memory.used [MiB]", "0, 56, 228.82, 58222"),
        ("memory.used [MiB], power.draw [W], index, utilization.gpu [%]", "58222 MiB, 228.82 W, 0, 56 %"),
        ("index,utilization.gpu,power.draw,memory.used", "0,56,228.82,58222"),
    ],
)
def test_columns_are_found_by_name_with_or_without_units(header: str, row: str) -> None:
    (found,) = parse_query_csv(f"{header}\n{row}\n")
    assert found == {"index": 0, "util_gpu_pct": 56, "power_w": 228.82, "memory_used_mib": 58222}


def test_units_are_turned_into_ours() -> None:
    text = "index, memory.total, memory.used, power.draw\n0, 141 GiB, 1048576 KiB, 93500 mW\n"
    (row,) = parse_query_csv(text)
    assert (row["memory_total_mib"], row["memory_used_mib"], row["power_w"]) == (144384, 1024, 93.5)


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("[N/A]", "not_supported"),
        ("N/A", "not_supported"),
        ("[Not Supported]", "not_supported"),
        ("Not Supported", "not_supported"),
        ("[Unknown Error]", "unknown_error"),
        ("[GPU requires reset]", "reset_required"),
        ("[GPU is lost]", "gpu_lost"),
        ("[Insufficient Permissions]", "no_permission"),
        ("ERR!", "error"),
        ("", "blank"),
        ("-", "blank"),
        ("[Something New]", "something_new"),
        ("nan", "not_supported"),
    ],
)
def test_every_spelling_of_absent_is_an_absence_with_its_reason(cell: str, reason: str) -> None:
    assert absent_reason(cell) == reason
    (row,) = parse_query_csv(f"index, power.draw [W], temperature.gpu\n0, {cell}, 54\n")
    assert row["power_w"] is None
    assert row["absent"] == {"power_w": reason}
    assert row["temp_c"] == 54


@pytest.mark.parametrize("cell", ["0", "0 %", "Disabled", "Not Active", "P0", "0x0000000000000000"])
def test_values_are_not_taken_for_absences(cell: str) -> None:
    assert absent_reason(cell) is None


def test_a_lost_gpu_and_one_that_wants_a_reset_are_marked() -> None:
    rows = "0, [GPU is lost], [GPU is lost]\n1, [GPU requires reset], 58222 MiB\n"
    lost, reset = parse_query_csv("index, temperature.gpu, memory.used [MiB]\n" + rows)
    assert sample_of(lost) == {"index": 0, "error": "gpu_lost"}
    assert sample_of(reset)["error"] == "reset_required"
    assert sample_of(reset)["memory_used_mib"] == 58222


def test_a_line_cut_short_is_no_row() -> None:
    text = "index, utilization.gpu [%], power.draw [W]\n0, 100 %, 228.82 W\n1, 100 %, 2"
    assert [row["index"] for row in parse_query_csv(text[: text.rindex(",")])] == [0]


def test_several_blocks_with_other_columns_follow_each_other() -> None:
    text = "index, power.draw [W]\n0, 5 W\n\nsome words, and more\ntemperature.gpu, index\n40, 1\n"
    assert [(row["index"], row.get("power_w"), row.get("temp_c")) for row in parse_query_csv(text)] == [
        (0, 5.0, None),
        (1, None, 40),
    ]


def test_without_a_header_nothing_is_read_unless_the_columns_are_given() -> None:
    recorded = case("106")
    columns = recorded["expect"]["fields"].split(",")
    assert parse_query_csv(recorded["input"]) == []
    (row,) = parse_query_csv(recorded["input"], columns)
    assert (row["util_gpu_pct"], row["power_w"], row["power_limit_w"], row["sm_clock_mhz"]) == (93, 38.22, None, 2405)


def test_rows_without_an_index_are_numbered_by_uuid_by_time_or_by_order() -> None:
    by_uuid = parse_query_csv("uuid, temperature.gpu\nGPU-a, 1\nGPU-b, 2\nGPU-a, 3\n")
    assert [row["index"] for row in by_uuid] == [0, 1, 0]
    stamps = ("2026/01/01 10:00:00.100", "2026/01/01 10:00:00.104", "2026/01/01 10:00:05.100")
    by_time = parse_query_csv("timestamp, temperature.gpu\n" + "".join(f"{stamp}, 40\n" for stamp in stamps))
    assert [row["index"] for row in by_time] == [0, 1, 0]
    assert [row["index"] for row in parse_query_csv("name, temperature.gpu\na, 1\nb, 2\n")] == [0, 1]


def test_the_limit_in_force_wins_over_the_one_that_was_set() -> None:
    text = "index, power.limit [W], enforced.power.limit [W]\n0, 700.00 W, 450.00 W\n1, 700.00 W, [N/A]\n"
    assert [row["power_limit_w"] for row in parse_query_csv(text)] == [450.0, 700.0]


def test_single_reasons_add_up_to_the_mask() -> None:
    text = (
        "index, clocks_event_reasons.sw_power_cap, clocks_throttle_reasons.hw_thermal_slowdown\n"
        "0, Active, Not Active\n1, Active, Active\n2, [N/A], [N/A]\n"
    )
    assert [row.get("clock_event_reasons") for row in parse_query_csv(text)] == [4, 0x44, None]


def test_the_zoo_of_brackets_keeps_every_row() -> None:
    rows = parse_query_csv(case("085")["input"])
    assert [row["index"] for row in rows] == [0, 1, 2, 3, 4]
    assert (rows[0]["power_w"], rows[0]["power_limit_w"], rows[0]["power_limit_default_w"]) == (228.82, 210.0, None)
    assert rows[4]["absent"]["power_w"] == "no_permission"


def test_a_header_is_known_from_prose() -> None:
    assert is_header("index, name, fan.speed [%]")
    assert not is_header("0, NVIDIA GeForce RTX 3080, 56 %")
    assert not is_header("Warning: name resolution, index rebuilt, all is well, and so on, and so forth")


@given(st.text(max_size=400))
def test_any_text_is_read_without_a_fault(text: str) -> None:
    for row in parse_query_csv("index, power.draw [W]\n" + text):
        assert isinstance(row["index"], int)
    find_troubles(text)


# ── error sentences ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Failed to initialize NVML: Driver/library version mismatch", "driver_mismatch"),
        ("No devices were found", "no_gpu"),
        ("Unable to determine the device handle for GPU 0000:BA:00.0: Unknown Error", "gpu_lost"),
        ("Unable to determine the device handle for gpu 0000:02:00.0: GPU is lost.  Reboot the system", "gpu_lost"),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure", "no_driver"),
        ("Failed to initialize NVML: Driver Not Loaded", "no_driver"),
        ("Failed to initialize NVML: Insufficient Permissions", "not_permitted"),
        ("Failed to initialize NVML: Unknown Error", "smi_failed"),
        ("Failed to initialize NVML: GPU access blocked by the operating system", "smi_failed"),
        ("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.", "no_nvml"),
        ("bash: nvidia-smi: command not found", "smi_missing"),
        ("bash: line 1: nvidia-smi: command not found", "smi_missing"),
        ("zsh: command not found: nvidia-smi", "smi_missing"),
        ("sh: 1: nvidia-smi: not found", "smi_missing"),
        ("fish: Unknown command: nvidia-smi", "smi_missing"),
        ("env: ‘nvidia-smi’: No such file or directory", "smi_missing"),
        ("timeout: failed to run command 'nvidia-smi': No such file or directory", "smi_missing"),
    ],
)
def test_what_nvidia_smi_and_shells_say_has_a_code(text: str, code: str) -> None:
    assert [trouble.code for trouble in find_troubles(f"motd line\n{text}\n")] == [code]


def test_a_mismatch_has_the_librarys_version_of_the_next_line() -> None:
    (trouble,) = find_troubles(case("087")["input"])
    assert (trouble.code, trouble.detail) == ("driver_mismatch", {"library": "570.86"})


def test_no_devices_after_a_lost_gpu_is_the_lost_gpus_doing() -> None:
    (trouble,) = find_troubles(case("088")["input"])
    assert (trouble.code, trouble.detail) == ("gpu_lost", {"index": 0, "pci": "0000:09:00.0"})


def test_a_login_banner_is_no_figure_and_hides_no_error() -> None:
    text = case("104")["input"]
    assert parse_query_csv(text) == []
    assert [trouble.code for trouble in find_troubles(text)] == ["smi_missing"]


def test_healthy_output_has_no_trouble() -> None:
    assert find_troubles(case("084")["input"] + case("085")["input"] + case("110")["input"]) == []


def test_the_field_that_an_old_nvidia_smi_refuses_is_named() -> None:
    assert refused_field('Field "compute_cap" is not a valid field to query.\n') == "compute_cap"
    assert refused_field("index, name\n") is None


# ── the loop's stream ────────────────────────────────────────────────────────────────────────────


def test_rows_are_grouped_into_samples_of_all_gpus() -> None:
    stream = SmiStream()
    lines = ["index, power.draw [W]", "0, 1", "1, 2", "0, 3", "1, 4", "0, 5", "0, 6"]
    events = [stream.feed(line) for line in lines]
    sizes = [[row["power_w"] for row in event.rows] for event in events if event]
    assert sizes == [[1.0, 2.0], [3.0, 4.0], [5.0]]


def test_rows_become_keys_of_the_model() -> None:
    header = "index, uuid, name, mig.mode.current, utilization.gpu [%], memory.total [MiB], memory.used [MiB]"
    (row,) = parse_query_csv(f"{header}\n0, GPU-1, NVIDIA H100, Enabled, [N/A], 81559 MiB, 10 MiB\n")
    info = msgspec.convert(info_of(row), GpuInfo)
    sample = msgspec.convert(sample_of(row), GpuSample)
    assert (info.mig, info.memory_total_mib, info.gpm) == (True, 81559.0, False)
    assert (sample.memory_used_mib, sample.util_gpu_pct, sample.absent["util_gpu_pct"]) == (10.0, None, "mig")
