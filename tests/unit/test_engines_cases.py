"""Every collected log excerpt is read as an engineer who knows the engines would read it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from moetop.engines import LogBook, LogDigest, ServerFacts, judge_tuning, scan_literals
from moetop.model import Engine, EventKind, EventSeverity, LogEvent, Phase, Verdict

CASES = Path(__file__).parent.parent / "data" / "cases"


def load(name: str) -> dict[str, Any]:
    (path,) = CASES.glob(f"{name}*.yaml")
    case: dict[str, Any] = yaml.safe_load(path.read_text())
    return case


def log_of(case: dict[str, Any]) -> str | None:
    return case["input"] if case["door"] == "log" else case.get("log_input")


def read(text: str) -> LogDigest:
    book = LogBook("case.log")
    for line in text.removesuffix("\n").split("\n"):
        book.feed(line)
    return book.digest()


def digest(name: str) -> LogDigest:
    text = log_of(load(name))
    assert text is not None
    return read(text)


def events(name: str, kind: str) -> list[LogEvent]:
    return [event for event in digest(name).events if event.kind is EventKind(kind)]


def one(name: str, kind: str) -> LogEvent:
    (event,) = events(name, kind)
    return event


def kinds(name: str) -> set[str]:
    return {event.kind.value for event in digest(name).events}


LOGS = sorted(path.stem for path in CASES.glob("*.yaml") if log_of(yaml.safe_load(path.read_text())))
NOT_IN_THE_LOG = {("076-dcgm-xid-last-value-sticks", "xid", 45)}
"""Expected events that come from the metrics beside the log."""

SAID_OTHERWISE = {
    "rank",
    "ranks",
    "count",
    "run",
    "kind",
    "host",
    "message_form",
    "count_of_servers",
    "lines_in_one_event",
}
SAID_OTHERWISE |= {
    "path_ends_with",
    "distinct_files",
    "silence_s",
    "meaning",
    "pci",
    "caused_by",
}
"""Keys of an expectation that are no field of an event; tests below look at what they say."""


def agrees(expected: Any, found: Any) -> bool:
    if isinstance(expected, float) or isinstance(found, float):
        return found is not None and abs(float(expected) - float(found)) < 0.01
    if isinstance(expected, str) and isinstance(found, str):
        return expected in found
    return bool(expected == found)


@pytest.mark.parametrize("stem", LOGS)
def test_the_expected_events_are_there_with_their_fields(stem: str) -> None:
    found = digest(stem)
    for wanted in load(stem)["expect"].get("events", []):
        if (stem, wanted["kind"], wanted.get("code")) in NOT_IN_THE_LOG:
            continue
        of_kind = [event for event in found.events if event.kind.value == wanted["kind"]]
        of_kind = [event for event in of_kind if event.run == wanted.get("run", event.run)]
        fields = {key: value for key, value in wanted.items() if key not in SAID_OTHERWISE}
        fits = [e for e in of_kind if all(agrees(value, e.fields.get(key)) for key, value in fields.items())]
        assert fits, (wanted, [event.fields for event in of_kind])
        if "count" in wanted:
            assert fits[0].count == wanted["count"]
        for rank in wanted.get("ranks", [wanted["rank"]] if "rank" in wanted else []):
            printed = rank if isinstance(rank, str) else f"rank {rank}"
            assert any(printed in event.ranks for event in fits), (rank, [event.ranks for event in fits])


@pytest.mark.parametrize("stem", LOGS)
def test_counts_hold_every_line_of_a_kind_before_ranks_are_collapsed(stem: str) -> None:
    found = digest(stem)
    for event in found.events:
        if event.severity not in (EventSeverity.METRIC, EventSeverity.NOISE):
            assert found.counts[event.kind.value] >= event.count


@pytest.mark.parametrize("stem", LOGS)
def test_nothing_of_a_terminal_or_of_json_is_left_in_the_text(stem: str) -> None:
    for event in digest(stem).events:
        text = f"{event.line} {event.fields}"
        assert "\x1b" not in text
        for value in event.fields.values():
            assert not (isinstance(value, str) and ("\\u" in value or "[0;0m" in value))


@pytest.mark.parametrize("stem", LOGS)
def test_only_lines_that_travel_from_a_host_are_needed(stem: str) -> None:
    """What the host sends (lines with a literal) must give the same kinds as the whole file."""
    text = log_of(load(stem))
    assert text is not None
    if stem.startswith("027"):
        pytest.skip("pasted from a terminal: no host sends its log hard-wrapped")
    literals, noise = scan_literals()
    every = (*literals, *(literal for kind in noise.values() for literal in kind))
    sent = [line for line in text.split("\n") if any(literal in line.lower() for literal in every)]
    whole, scanned = read(text), read("\n".join(sent))
    assert scanned.counts == whole.counts
    assert scanned.phase is whole.phase
    if whole.cause is not None:
        assert scanned.cause is not None
        assert scanned.cause.fields.get("error") == whole.cause.fields.get("error")


PHASES = {
    "001": Phase.CRASHED,
    "002": Phase.UNKNOWN,
    "003": Phase.READY,
    "005": Phase.READY,
    "006": Phase.UNKNOWN,
    "008": Phase.LOADING,
    "009": Phase.READY,
    "014": Phase.READY,
    "016": Phase.TUNING,
    "018": Phase.TUNING,
    "020": Phase.READY,
    "021": Phase.READY,
    "023": Phase.CRASHED,
    "024": Phase.CRASHED,
    "025": Phase.CRASHED,
    "027": Phase.CRASHED,
    "029": Phase.LOADING,
    "031": Phase.LOADING,
    "032": Phase.CRASHED,
    "034": Phase.READY,
    "036": Phase.UNKNOWN,
    "040": Phase.READY,
    "042": Phase.CRASHED,
    "045": Phase.READY,
    "046": Phase.READY,
    "048": Phase.CRASHED,
    "069": Phase.TUNING,
}

VERDICTS = {
    "002": Verdict.NOT_TUNABLE,
    "003": Verdict.UNTUNED,
    "004": Verdict.PARTLY_TUNED,
    "005": Verdict.UNTUNED,
    "006": Verdict.UNTUNED,
    "009": Verdict.TUNED,
    "011": Verdict.UNKNOWN,
    "013": Verdict.UNTUNED,
    "014": Verdict.UNTUNED,
    "016": Verdict.RUNNING,
    "018": Verdict.RUNNING,
    "019": Verdict.UNKNOWN,
    "020": Verdict.UNTUNED,
    "021": Verdict.TUNED,
    "023": Verdict.FAILED,
    "034": Verdict.UNTUNED,
    "037": Verdict.UNTUNED,
    "040": Verdict.UNKNOWN,
    "046": Verdict.UNKNOWN,
    "069": Verdict.RUNNING,
    "079": Verdict.UNTUNED,
}


@pytest.mark.parametrize(("number", "phase"), PHASES.items())
def test_the_newest_run_stands_where_it_stands(number: str, phase: Phase) -> None:
    assert digest(number).phase is phase


@pytest.mark.parametrize(("number", "verdict"), VERDICTS.items())
def test_the_verdict_claims_what_the_lines_carry(number: str, verdict: Verdict) -> None:
    assert judge_tuning(digest(number), ServerFacts(), ()).verdict is verdict


ENGINES = {"003": "vllm", "006": "sglang", "011": "vllm", "021": "tensorrt_llm", "031": "sglang", "042": "vllm"}


@pytest.mark.parametrize(("number", "engine"), ENGINES.items())
def test_the_engine_comes_from_the_form_of_the_lines(number: str, engine: str) -> None:
    assert digest(number).engine is Engine(engine)


# ── what must not happen ─────────────────────────────────────────────────────────────────────────


def test_the_lines_of_a_traceback_are_one_crash() -> None:
    crash = one("001", "crash")
    assert crash.count == 1
    assert crash.fields["lines"] == 5
    assert "traceback" not in kinds("001")


def test_brackets_and_quotes_around_a_path_are_not_part_of_it() -> None:
    assert one("002", "moe_config_default").fields["path"].startswith("/opt/src/vllm/")
    assert one("002", "moe_config_default").fields["path"].endswith("NVIDIA_H100_80GB_HBM3.json")


def test_a_missing_file_is_listed_once_for_all_ranks() -> None:
    event = one("003", "moe_config_default")
    assert (set(event.ranks), event.count) == ({"rank 0", "rank 1"}, 2)
    assert event.fields["file"].endswith("block_shape=[128,128].json")


def test_a_configuration_in_use_is_no_default_configuration() -> None:
    assert "moe_config_default" not in kinds("004")
    assert one("004", "moe_config_no_down_variant").fields["device_name"] == "NVIDIA_H200"


def test_a_path_with_a_blank_ends_at_its_json_and_not_at_the_advice_after_it() -> None:
    files = [event.fields["path"] for event in events("005", "moe_config_default")]
    assert [path.rsplit("/", 1)[1] for path in files] == [
        "E=256,N=768,device_name=NVIDIA_H200_NVL,dtype=fp8_w8a8,block_shape=[128, 128].json",
        "E=256,N=768,device_name=NVIDIA_H200_NVL,dtype=fp8_w8a8,block_shape=[128, 128]_down.json",
    ]
    assert {e.fields["device_name"] for e in events("005", "moe_config_default")} == {"NVIDIA_H200_NVL"}


def test_a_dense_gemm_file_is_no_moe_file() -> None:
    assert "E" not in one("006", "gemm_config_default").fields
    assert one("006", "moe_config_default").fields["E"] == 256


def test_a_line_that_arrives_late_is_kept() -> None:
    assert one("008", "compile_cache_saved").t_text == "06-10 11:10:34"


def test_bars_without_a_rank_get_none() -> None:
    bar = one("009", "autotune_progress")
    assert (bar.ranks, bar.fields["ranks_finished"], bar.count) == ((), 4, 4)


def test_a_native_stack_inside_a_warning_is_no_crash() -> None:
    assert kinds("011").isdisjoint({"crash", "traceback", "engine_dead"})
    assert one("011", "autotune_tactic_skipped").engine is Engine.FLASHINFER
    assert one("011", "autotune_tactic_skipped").fields["tactics"] == [15, 16]


def test_an_allocation_the_process_survives_is_no_crash() -> None:
    assert one("013", "oom").severity is EventSeverity.WARN
    assert digest("013").cause is None


def test_ranks_keep_their_own_tuning_state() -> None:
    tuning = digest("018").tuning
    assert (tuning.open_ranks, tuning.ended_ranks) == (("TP1",), ("TP0",))


def test_a_rejected_cache_is_not_a_loaded_one() -> None:
    assert "autotune_cache_loaded" not in kinds("019")
    assert digest("019").tuning.seconds == pytest.approx(0.948)


def test_a_second_short_pass_keeps_the_entries_of_the_first() -> None:
    assert digest("021").tuning.cache_entries == 28


def test_the_word_autotune_in_a_stack_frame_is_no_tuning_event() -> None:
    assert kinds("024") == {"crash", "shutdown"}
    assert digest("024").counts["crash"] == 1


def test_a_failing_logger_is_not_the_engines_error() -> None:
    found = digest("025")
    assert "shutdown" in kinds("025")
    assert not any("reentrant" in str(event.fields) for event in found.events)


def test_a_watchdog_report_over_three_records_is_one_event() -> None:
    event = one("027", "nccl_timeout")
    assert (event.fields["ran_ms"], event.fields["process_group"], event.ranks) == (600022, 2, ("rank 4",))


def test_an_example_command_inside_a_message_is_not_the_servers_arguments() -> None:
    found = digest("029")
    assert (found.tp_size, found.model) == (None, None)
    assert not any(kind.startswith("autotune") for kind in kinds("029"))


def test_a_service_name_in_brackets_is_no_rank() -> None:
    assert all(event.ranks == () for event in digest("031").events)
    assert not any(kind.startswith("moe_") for kind in kinds("031"))


def test_a_line_that_points_up_says_whether_the_cause_is_there() -> None:
    assert one("032", "engine_start_failed").fields["root_cause_in_excerpt"] is False
    assert one("042", "engine_dead").fields["root_cause_in_excerpt"] is True
    assert one("025", "shutdown").fields["root_cause_in_excerpt"] is False


def test_a_time_without_a_year_is_kept_as_text_only() -> None:
    assert one("032", "exit").t is None
    assert one("032", "exit").t_text == "Aug 19 18:34:31"


def test_the_containers_time_is_the_events_time() -> None:
    assert one("034", "moe_config_default").t == pytest.approx(1788249672.551, abs=0.01)


def test_an_exporters_warning_is_no_engine_problem() -> None:
    assert kinds("036") == {"monitoring_gap"}


def test_ranks_are_kept_where_the_colour_codes_lost_their_escape_byte() -> None:
    assert one("037", "moe_config_default").ranks == ("rank 0", "TP1", "rank 1")


def test_the_first_error_is_the_cause_not_its_echo() -> None:
    cause = digest("042").cause
    assert cause is not None
    assert (cause.kind, cause.fields["error"]) == (
        EventKind.CRASH,
        "TimeoutError: RPC call to sample_tokens timed out.",
    )


def test_ready_is_said_once_whatever_its_spelling() -> None:
    assert one("045", "ready").count >= 2
    early = "\n".join(
        [
            "[2026-07-27 08:54:40] Load weight begin. avail mem=93.80 GB",
            "[2026-07-27 08:54:42] INFO:     Uvicorn running on http://0.0.0.0:30000 (Press CTRL+C to quit)",
        ]
    )
    assert not read(early).ready


def test_nothing_of_an_earlier_run_is_carried_into_the_newest() -> None:
    found = digest("046")
    assert [run.phase for run in found.runs] == [Phase.CRASHED, Phase.READY]
    assert found.tuning.starts == 0
    assert found.cause is None
    assert found.args["moe_runner_backend"] == "flashinfer_cutlass"


def test_xids_of_one_card_are_one_incident() -> None:
    assert one("048", "xid").count == 3
    assert events("050", "xid")[0].fields["root"] is False
    assert {event.fields["caused_by"] for event in events("050", "xid")} == {149, 145}
    assert one("076", "xid").fields["pid"] is None


def test_a_gpu_is_lost_without_any_xid() -> None:
    assert one("051", "gpu_lost").fields == {"pci": "0000:b3:00.0", "pci_id": "10de:26b5", "xid": None}


def test_arguments_with_the_word_autotune_are_arguments() -> None:
    found = read(load("096")["input"])
    assert {event.kind for event in found.events} == {EventKind.SERVER_ARGS}
    assert found.args["disable_flashinfer_autotune"] is False
    assert (found.tp_size, found.port, found.quantization) == (8, 8000, "modelopt_fp4")
    assert found.args["trust_remote_code"] is True


def test_tuning_that_was_switched_off_is_off() -> None:
    found = read(load("098")["input"])
    assert found.counts == {"autotune_disabled": 1}
    assert judge_tuning(found, ServerFacts(), ()).verdict is Verdict.OFF
