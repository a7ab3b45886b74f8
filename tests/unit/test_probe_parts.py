"""Parts of the probe that need no driver: the way out, GPM's guard, the kernel log, names, the loader's text."""

from __future__ import annotations

import ast
import json
import os
import stat
import subprocess
import sys
import threading
import time
import zlib
from pathlib import Path
from typing import Any

import pytest

from moetop import probe
from moetop.probe import child, kernel, outbox
from moetop.probe.gpm import METRICS, judge_pair
from moetop.probe.hostinfo import LoadReader, memory_mib
from moetop.probe.kernel import KernelWatch, kernel_address, kmsg_record
from moetop.probe.outbox import Outbox
from moetop.probe.processes import short_name
from moetop.transport.bootstrap import LOADER, payload

SOURCES = sorted(Path(probe.__path__[0]).glob("*.py"))


# ── the outbox ───────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def pipe() -> Any:
    reading, writing = os.pipe()
    yield reading, writing
    for end in (reading, writing):
        try:
            os.close(end)
        except OSError:
            continue


def read_all(descriptor: int, until: str) -> list[dict[str, Any]]:
    """Frames up to one whose code is `until`."""
    data = b""
    end = time.monotonic() + 10
    while not (data.endswith(b"\n") and until.encode() in data) and time.monotonic() < end:
        data += os.read(descriptor, 1 << 16)
    return [json.loads(line) for line in data.splitlines()]


def fill(box: Outbox) -> None:
    """Give the writer more than a pipe holds, so that it stands in a write."""
    box.emit({"code": "big", "x": "x" * 200_000})
    time.sleep(0.05)


def test_events_overtake_samples_and_old_samples_are_dropped_and_counted(pipe: tuple[int, int]) -> None:
    box = Outbox(pipe[1], lambda: None)
    box.start()
    fill(box)
    for number in range(outbox.MAX_SAMPLES + 3):
        box.sample({"code": "sample", "n": number})
    box.emit({"code": "event"})
    box.emit({"code": "last"})
    box_frames = read_all(pipe[0], f'"n":{outbox.MAX_SAMPLES + 2}')
    codes = [frame["code"] for frame in box_frames]
    assert codes == ["big", "event", "last"] + ["sample"] * outbox.MAX_SAMPLES
    assert box_frames[-1]["n"] == outbox.MAX_SAMPLES + 2
    assert box_frames[-1]["dropped"] == 3


def test_events_keep_their_order_under_load(pipe: tuple[int, int]) -> None:
    box = Outbox(pipe[1], lambda: None)
    box.start()
    writer = threading.Thread(target=lambda: [box.emit({"code": "e", "n": n}) for n in range(5000)])
    writer.start()
    frames = read_all(pipe[0], '"n":4999')
    writer.join()
    assert [frame["n"] for frame in frames] == list(range(5000))


def test_in_a_storm_of_events_samples_still_get_out(pipe: tuple[int, int]) -> None:
    box = Outbox(pipe[1], lambda: None)
    box.start()
    fill(box)
    box.sample({"code": "sample"})
    for number in range(60):
        box.emit({"code": "event", "n": number, "x": "x" * 40_000})
    codes = [frame["code"] for frame in read_all(pipe[0], '"n":59')]
    assert "sample" in codes
    assert codes.index("sample") < len(codes) - 20


def test_a_full_outbox_waits_then_gives_up_lines_before_events_and_says_how_many(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "MAX_FRAMES", 3)
    monkeypatch.setattr(outbox, "EVENT_PATIENCE_S", 0.05)
    monkeypatch.setattr(outbox, "LINE_PATIENCE_S", 0.02)
    box = Outbox(pipe[1], lambda: None)
    box.start()
    fill(box)
    assert box.emit({"code": "line", "n": 0}, False)
    assert box.emit({"code": "event", "n": 1}, True)
    assert box.emit({"code": "event", "n": 2}, True)
    assert not box.emit({"code": "line", "n": 3}, False)  # no room: the line is lost
    assert box.emit({"code": "event", "n": 4}, True)  # an older line makes room for it
    frames = read_all(pipe[0], '"n":4')
    assert [frame.get("n") for frame in frames if frame["code"] in ("line", "event")] == [1, 2, 4]
    assert [frame["detail"]["lost"] for frame in frames if frame["code"] == "log_gap"] == [2]


def test_a_broken_output_is_told_once_and_nothing_blocks_after_it(pipe: tuple[int, int]) -> None:
    broken = threading.Event()
    box = Outbox(pipe[1], broken.set)
    box.start()
    os.close(pipe[0])
    box.emit({"code": "x"})
    assert broken.wait(5)
    start = time.monotonic()
    assert box.emit({"code": "y"}) is False
    box.flush(5)
    assert time.monotonic() - start < 4


def test_a_number_that_is_none_never_travels() -> None:
    with pytest.raises(ValueError, match="JSON"):
        outbox.encode({"x": float("nan")})


# ── GPM's guard ──────────────────────────────────────────────────────────────────────────────────

GOOD = [(key, 0, 50.0) for key, _ in METRICS]


def replaced(**changes: tuple[int, float]) -> list[tuple[str, int, float]]:
    return [(key, *changes.get(key, (code, value))) for key, code, value in GOOD]


def test_a_good_pair_gives_every_metric() -> None:
    assert judge_pair(GOOD) == ({key: 50.0 for key, _ in METRICS}, None)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 250.0])
def test_a_core_metric_that_is_no_percentage_voids_the_whole_pair(value: float) -> None:
    assert judge_pair(replaced(dram_pct=(0, value))) == (None, "bad_pair")
    assert judge_pair(replaced(tensor_pct=(0, value))) == (None, "bad_pair")


def test_a_metric_that_a_part_lacks_is_absent_alone() -> None:
    metrics, why = judge_pair(replaced(nvlink_rx_mib_s=(3, 0.0), nvlink_tx_mib_s=(0, float("nan"))))
    assert why is None
    assert metrics is not None
    assert (metrics["nvlink_rx_mib_s"], metrics["nvlink_tx_mib_s"], metrics["dram_pct"]) == (None, None, 50.0)


def test_a_pair_without_any_core_metric_is_no_reading() -> None:
    nothing = dict.fromkeys(("sm_active_pct", "sm_occupancy_pct", "tensor_pct", "dram_pct"), (3, 0.0))
    assert judge_pair(replaced(**nothing)) == (None, "not_supported")


def test_rounding_above_a_hundred_is_a_hundred() -> None:
    metrics, _ = judge_pair(replaced(sm_active_pct=(0, 100.4), pcie_rx_mib_s=(0, 56000.25)))
    assert metrics is not None
    assert (metrics["sm_active_pct"], metrics["pcie_rx_mib_s"]) == (100.0, 56000.25)


# ── the kernel log ───────────────────────────────────────────────────────────────────────────────


def test_a_record_of_dev_kmsg_has_time_and_text() -> None:
    record = "4,1234,5000000,-;NVRM: Xid (PCI:0000:06:00): 79, GPU has fallen off the bus.\n SUBSYSTEM=pci\n"
    assert kmsg_record(record, 1000.0) == (1005.0, "NVRM: Xid (PCI:0000:06:00): 79, GPU has fallen off the bus.")
    assert kmsg_record("no record", 0.0) is None
    assert kmsg_record("a,b,c;x", 0.0) is None


@pytest.mark.parametrize("address", ["00000000:06:00.0", "0000:06:00.0", "0000:06:00"])
def test_addresses_are_compared_in_the_kernels_form(address: str) -> None:
    assert kernel_address(address) == "0000:06:00"


def stand_in_journal(folder: Path, body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folder / "journalctl"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setattr(kernel, "KMSG", str(folder / "no-such-device"))


def collect(wanted: int, **options: bool) -> list[dict[str, Any]]:
    frames: list[dict[str, Any]] = []
    done = threading.Event()

    def emit(frame: dict[str, Any], _is_event: bool) -> None:
        frames.append(frame)
        if len(frames) >= wanted:
            done.set()

    KernelWatch(emit, **options).start(None, {}, {})
    assert done.wait(10)
    return frames


def test_xid_lines_of_the_journal_travel_those_of_before_as_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time() + 1
    body = f"""
echo '1700000000.500000 node kernel: NVRM: Xid (PCI:0000:06:00): 31, pid=1'
echo '1700000001.500000 node kernel: usb 1-1: new device'
echo '1700000002.500000 node kernel: NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.1'
echo '{now:.6f} node kernel: NVRM: Xid (PCI:0000:07:00): 79, GPU has fallen off the bus. token=abcdefgh12345'
"""
    stand_in_journal(tmp_path, body, monkeypatch)
    old, new = collect(2)
    assert (old["history"], old["t"], old["line"]) == (True, 1700000000.5, "NVRM: Xid (PCI:0000:06:00): 31, pid=1")
    assert "history" not in new
    assert new["line"].endswith("fallen off the bus. token=***")


def test_history_does_not_wait_for_the_next_kernel_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = "echo '1700000000.5 node kernel: NVRM: Xid (PCI:0000:06:00): 31, pid=1'; sleep 60"
    stand_in_journal(tmp_path, body, monkeypatch)
    try:
        (old,) = collect(1)
    finally:
        child.stop_all()
    assert old["history"] is True


def test_records_of_before_are_left_out_when_history_is_not_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = (
        "echo '1700000000.5 node kernel: NVRM: Xid (PCI:0000:06:00): 31'; echo '9999999999.5 node kernel: NVRM: Xid 1'"
    )
    stand_in_journal(tmp_path, body, monkeypatch)
    (only,) = collect(1, history=False)
    assert only["line"] == "NVRM: Xid 1"


def test_a_kernel_log_that_may_not_be_read_is_said_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = "echo 'No journal files were opened due to insufficient permissions.' >&2; exit 1"
    stand_in_journal(tmp_path, body, monkeypatch)
    (frame,) = collect(1)
    assert (frame["type"], frame["code"], frame["level"]) == ("status", "xid_unavailable", "info")
    assert "dmesg_restrict" in frame["message"]


# ── names, load ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("argv", "comm", "name"),
    [
        (["sglang::scheduler_TP0"], "sglang::schedul", "sglang::scheduler_TP0"),
        (["VLLM::EngineCore"], "VLLM::EngineCor", "VLLM::EngineCore"),
        (
            ["/usr/bin/python3", "-m", "sglang.launch_server", "--api-key", "x"],
            "python3",
            "python3 -m sglang.launch_server",
        ),
        (["python3", "-u", "/opt/vllm/bin/vllm", "serve", "m"], "python3", "python3 vllm"),
        (["/usr/bin/Xorg", ":0"], "Xorg", "Xorg"),
        ([], "kworker", "kworker"),
    ],
)
def test_a_process_is_named_as_people_know_it(argv: list[str], comm: str, name: str) -> None:
    assert short_name(argv, comm) == name


def test_load_has_percent_and_mib() -> None:
    reader = LoadReader()
    end = time.monotonic() + 5
    load = reader.read()
    while "cpu_pct" not in load and time.monotonic() < end:
        load = reader.read()
    total, used = memory_mib()
    assert 0 <= load["cpu_pct"] <= 100
    assert load["memory_total_mib"] == total
    assert 0 < used < total


# ── the loader's text and the program ────────────────────────────────────────────────────────────


def test_the_loader_passes_through_every_shell() -> None:
    assert not set(LOADER) & set("'!\n")
    assert LOADER.isascii()


def test_the_program_holds_the_probe_the_binding_and_the_options_and_nothing_else() -> None:
    length, _, packed = payload({"interval_s": 2}).partition(b"\n")
    assert int(length) == len(packed)
    program = json.loads(zlib.decompress(packed))
    assert program["options"] == {"interval_s": 2}
    assert set(program["modules"]) == {
        "pynvml", "moetop_probe", *(f"moetop_probe.{path.stem}" for path in SOURCES if path.stem != "__init__")
    }  # fmt: skip
    assert len(packed) < 200_000


def test_packing_the_program_imports_neither_the_binding_nor_the_probe() -> None:
    code = "import sys; from moetop.transport.bootstrap import payload; payload({}); "
    code += "print(sorted(m for m in sys.modules if m == 'pynvml' or m.startswith('moetop.probe.')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_the_probe_parses_on_python_3_8_and_imports_only_itself_and_the_standard_library(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 8))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        else:
            continue
        for name in names:
            top = name.split(".")[0]
            assert top in sys.stdlib_module_names or (top == "pynvml" and path.stem == "nvml"), f"{path.name}: {name}"
