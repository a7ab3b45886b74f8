"""The probe as a real process under a stand-in driver: what it says, and that nothing can end it but its end."""

from __future__ import annotations

import fcntl
import getpass
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from moetop.transport.bootstrap import LOADER, loader_argv
from tests.rig.nvml_rig import Scenario, build_library
from tests.rig.probe_kit import PATIENCE_S, probe

REPO = Path(__file__).parents[2]


def statuses(frames: list[dict], code: str) -> list[dict]:
    return [frame for frame in frames if frame["type"] == "status" and frame["code"] == code]


# ── what a healthy host says ─────────────────────────────────────────────────────────────────────


def test_hello_holds_the_constants_and_who_answers(scenario: Scenario) -> None:
    scenario.write("count 2", "driver 580.159.04")
    with probe(scenario.environment) as running:
        assert running.marker.startswith(b"MOETOP-READY 3.")
        hello = running.hello()
    assert (hello["source"], hello["driver"], hello["schema"]) == ("nvml", "580.159.04", 1)
    assert hello["cpus"] == os.cpu_count()
    assert hello["hostname"]
    assert [gpu["index"] for gpu in hello["gpus"]] == [0, 1]
    assert hello["gpus"][1] == {
        "index": 1,
        "uuid": "GPU-00000000-0000-0000-0000-000000000001",
        "name": "NVIDIA H200",
        "pci_bus_id": "00000000:07:00.0",
        "compute_capability": "9.0",
        "mig": False,
        "memory_total_mib": 143771.0,
        "power_limit_default_w": 700.0,
        "sm_clock_max_mhz": 1980,
        "pcie_gen_max": 5,
        "pcie_width_max": 16,
        "gpm": True,
    }


def test_a_sample_holds_every_value_in_its_unit_and_gpm_after_the_first_pair(scenario: Scenario) -> None:
    scenario.write("gpu.0.memory_temp 70", "gpu.0.limit 650", "gpu.0.ecc_uncorrected 3")
    with probe(scenario.environment, interval_s=0.4) as running:
        first = running.until(lambda frame: frame["type"] == "gpus")
        row = running.row(0, lambda r: r["gpm"] and "ecc_uncorrected" in r)
    assert first["gpus"][0]["gpm"] is None
    assert first["gpus"][0]["absent"] == {"gpm": "first_sample"}
    assert "absent" not in row
    assert (row["util_gpu_pct"], row["util_mem_pct"]) == (100, 38)
    assert (row["power_w"], row["power_limit_w"], row["temp_c"], row["memory_temp_c"]) == (694.1, 650.0, 63, 70.0)
    assert (row["memory_used_mib"], row["sm_clock_mhz"], row["mem_clock_mhz"]) == (3539.0, 1965, 3201)
    assert (row["clock_event_reasons"], row["ecc_uncorrected"]) == (4, 3)
    assert row["gpm"]["tensor_pct"] == 57.0
    assert row["gpm"]["dram_pct"] == 69.0
    assert row["gpm"]["pcie_rx_mib_s"] == 34.0
    assert first["load"]["memory_total_mib"] > first["load"]["memory_used_mib"] > 0


def test_one_sample_and_the_end_when_asked_for_one(scenario: Scenario) -> None:
    with probe(scenario.environment, once=True) as running:
        assert running.wait() == 0
        kinds = [frame["type"] for frame in running.frames]
    assert kinds == ["hello", "gpus", "status"]
    assert running.frames[1]["gpus"][0]["power_w"] == 694.1


def test_processes_have_user_name_and_memory(scenario: Scenario, tmp_path: Path) -> None:
    mine = os.getpid()
    scenario.write(f"gpu.0.process {mine} 3000 c", f"gpu.0.process {mine} 12 g", "gpu.0.process 999999999 -1 c")
    with probe(scenario.environment) as running:
        row = running.row(0, lambda r: "processes" in r)
    known = {process["pid"]: process for process in row["processes"]}
    assert known[mine]["memory_used_mib"] == 3000.0
    assert known[999999999] == {"pid": 999999999, "user": None, "name": None, "memory_used_mib": None}
    if str(Path("/proc/self/ns/pid").readlink()) == "pid:[4026531836]":
        assert known[mine]["user"] == getpass.getuser()
        assert "py" in known[mine]["name"]
    else:
        assert known[mine]["name"] is None
        assert "container" in row["processes_why"]


def test_the_interval_can_be_changed_while_it_runs(scenario: Scenario) -> None:
    with probe(scenario.environment, interval_s=60) as running:
        running.until(lambda frame: frame["type"] == "gpus")
        running.send(cmd="interval", interval_s=0.1)
        running.next(lambda frame: frame["type"] == "gpus", 3.0)


# ── values that are not there ────────────────────────────────────────────────────────────────────


def test_every_nvml_error_of_every_function_is_an_absence_with_its_reason(scenario: Scenario) -> None:
    command = [sys.executable, "-m", "tests.rig.every_nvml_error"]
    done = subprocess.run(
        command, env=scenario.full_environment(), cwd=REPO, capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["wrong"] == []
    assert result["read"] > 700


def test_a_bad_gpm_pair_is_no_reading_and_never_zeros(scenario: Scenario) -> None:
    scenario.write("gpu.0.gpm.bad 1")
    with probe(scenario.environment) as running:
        row = running.row(0, lambda r: r["absent"].get("gpm") == "bad_pair")
        scenario.drop("gpu.0.gpm.bad")
        running.row(0, lambda r: r["gpm"])
    assert row["gpm"] is None
    assert row["power_w"] == 694.1


def test_activity_that_the_power_drawn_contradicts_is_no_reading(scenario: Scenario) -> None:
    scenario.write("gpu.0.gpm.wrong_processes 1", "gpu.0.gpm.dram 20")
    with probe(scenario.environment, interval_s=0.2) as running:
        row = running.row(0, lambda r: r.get("absent", {}).get("gpm") == "contradicted")
        said = running.until(lambda frame: frame.get("code") == "gpm_wrong")
        scenario.drop("gpu.0.gpm.wrong_processes")
        over = running.next(lambda frame: frame.get("code") == "gpm_wrong")
        running.row(0, lambda r: r["gpm"])
    assert row["gpm"] is None
    assert (said["level"], over["level"]) == ("warning", "info")
    assert said["detail"] == {"gpu": 0}


@pytest.mark.parametrize("quiet", ["gpu.0.power 130", "gpu.0.util 10", "gpu.0.gpm.sm 3"])
def test_idle_sms_are_believed_where_power_or_utilization_is_low_too(scenario: Scenario, quiet: str) -> None:
    scenario.write("gpu.0.gpm.sm 0.2", "gpu.0.limit 200", quiet)
    with probe(scenario.environment, interval_s=0.2) as running:
        row = running.row(0, lambda r: r["gpm"])
    assert row["gpm"]["sm_active_pct"] in (0.2, 3.0)


def test_without_gpm_the_rest_is_there(scenario: Scenario) -> None:
    scenario.write("gpu.0.gpm 0", "gpu.0.name NVIDIA A100-SXM4-80GB")
    with probe(scenario.environment) as running:
        hello = running.hello()
        row = running.row(0, lambda r: True)
    assert hello["gpus"][0]["gpm"] is False
    assert row["gpm"] is None
    assert row["absent"] == {"gpm": "not_supported"}


def test_a_driver_that_lacks_newer_symbols_is_read_with_the_older_ones(scenario: Scenario) -> None:
    scenario.library = build_library(old_driver=True)
    scenario.write("driver 460.91.03", "gpu.0.process 1 100 c")
    with probe(scenario.environment) as running:
        info = running.hello()["gpus"][0]
        row = running.row(0, lambda r: "processes" in r)
    assert info["gpm"] is False
    assert info["absent"]["gpm"] == "function_not_found"
    assert (row["clock_event_reasons"], row["memory_used_mib"]) == (4, 3539.0)
    assert row["processes"][0]["memory_used_mib"] == 100.0


def test_unified_memory_shows_the_hosts_memory(scenario: Scenario) -> None:
    scenario.write(
        "gpu.0.name NVIDIA GB10", "error.nvmlDeviceGetMemoryInfo 3", "error.nvmlDeviceGetEnforcedPowerLimit 3"
    )
    scenario.add("error.nvmlDeviceGetPowerManagementLimit 3", "error.nvmlDeviceGetMemoryInfo_v2 3")
    with probe(scenario.environment) as running:
        hello = running.hello()
        row = running.row(0, lambda r: True)
    assert hello["gpus"][0]["unified_memory"] is True
    assert hello["gpus"][0]["memory_total_mib"] == pytest.approx(hello["memory_total_mib"])
    assert 0 < row["memory_used_mib"] < hello["memory_total_mib"]
    assert "power_limit_w" not in row
    assert row["absent"]["power_limit_w"] == "not_supported"


def test_a_divided_gpu_has_no_utilization_and_says_why(scenario: Scenario) -> None:
    scenario.write("gpu.0.mig 1", "error.nvmlDeviceGetUtilizationRates 3")
    with probe(scenario.environment) as running:
        hello = running.hello()
        row = running.row(0, lambda r: True)
    assert hello["gpus"][0]["mig"] is True
    assert any("MIG" in note for note in hello["notes"])
    assert "util_gpu_pct" not in row
    assert row["absent"] == {"util_gpu_pct": "mig", "util_mem_pct": "mig", "gpm": "mig"}


CHANGING = """
import sys, time
from pathlib import Path
from moetop.probe import gpus, sources
gpus.MIG_S = sources.COUNT_S = 0.05
source = sources.open_source(0.2, print)
first = source.hello()["gpus"]
source.sample(0.2)
Path(sys.argv[1]).write_text(sys.argv[2])
end = time.monotonic() + 10
while time.monotonic() < end:
    time.sleep(0.1)
    rows, statuses = source.sample(0.2)
    if source.hello_again() and all("name" in info for info in source.hello()["gpus"]):
        break
rows, _ = source.sample(0.2, 5.0)
print([info["mig"] for info in first], [info["mig"] for info in source.hello()["gpus"]], [row["index"] for row in rows])
"""


@pytest.mark.parametrize(
    ("later", "words"),
    [
        ("count 2\ngpu.1.mig 1\n", "[False, False] [False, True] [0, 1]"),
        ("count 4\n", "[False, False] [False, False, False, False] [0, 1, 2, 3]"),
    ],
)
def test_gpus_that_are_divided_or_come_back_while_watched_are_announced_anew(
    scenario: Scenario, later: str, words: str
) -> None:
    scenario.write("count 2")
    done = subprocess.run(
        [sys.executable, "-c", CHANGING, str(scenario.path), later],
        env=scenario.full_environment(),
        cwd=REPO,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.strip() == words


def test_sixteen_gpus_are_read_in_one_frame(scenario: Scenario) -> None:
    scenario.write("count 16")
    with probe(scenario.environment) as running:
        assert [gpu["index"] for gpu in running.hello()["gpus"]] == list(range(16))
        whole = running.next(lambda frame: frame["type"] == "gpus" and all(row.get("gpm") for row in frame["gpus"]))
    assert [row["index"] for row in whole["gpus"]] == list(range(16))


@pytest.mark.slow
def test_a_gpu_that_the_driver_sets_up_slowly_is_awaited_and_not_called_stuck(scenario: Scenario) -> None:
    scenario.write("count 2", "hang.nvmlDeviceGetHandleByIndex_v2.1 1")
    with probe(scenario.environment) as running:
        running.row(0, lambda r: r.get("power_w"))
        time.sleep(1.0)
        scenario.drop("hang.nvmlDeviceGetHandleByIndex_v2.1")
        running.row(1, lambda r: r.get("power_w"))
        again = running.until(lambda f: f["type"] == "hello" and f["gpus"][1].get("name"))
    assert "name" not in running.hello()["gpus"][1] and "error" not in running.hello()["gpus"][1]
    assert again["gpus"][1]["name"] == "NVIDIA H200"
    assert not statuses(running.frames, "stuck_gpu")


# ── GPUs that fail ───────────────────────────────────────────────────────────────────────────────


def test_a_gpu_lost_while_watching_keeps_its_row_and_the_others_go_on(scenario: Scenario) -> None:
    scenario.write("count 2")
    with probe(scenario.environment) as running:
        running.row(1, lambda r: r.get("power_w"))
        scenario.add("error.nvmlDeviceGetUtilizationRates.1 15")
        row = running.row(1, lambda r: r.get("error"))
        told = running.status("gpu_lost")
        running.row(0, lambda r: r.get("power_w") and not r.get("error"))
        scenario.drop("error.nvmlDeviceGetUtilizationRates.1")
        running.row(1, lambda r: r.get("power_w"))
    assert row == {"index": 1, "error": "gpu_lost"}
    assert told["level"] == "error"
    assert told["detail"]["gpu"] == 1
    assert "00000000:07:00.0" in told["message"]


@pytest.mark.parametrize("code", [15, 999])
def test_a_gpu_whose_handle_cannot_be_had_is_lost_from_the_start(scenario: Scenario, code: int) -> None:
    scenario.write("count 2", f"error.nvmlDeviceGetHandleByIndex_v2.0 {code}")
    with probe(scenario.environment) as running:
        hello = running.hello()
        lost = running.row(0, lambda r: True)
        running.row(1, lambda r: r.get("power_w"))
    assert hello["gpus"][0] == {"index": 0, "error": "gpu_lost"}
    assert hello["gpus"][1]["name"] == "NVIDIA H200"
    assert lost == {"index": 0, "error": "gpu_lost"}


def test_a_gpu_that_answers_unknown_error_to_everything_is_lost(scenario: Scenario) -> None:
    moving = ["UtilizationRates", "PowerUsage", "Temperature", "ClockInfo", "CurrentClocksEventReasons", "MemoryInfo"]
    scenario.write("count 2", *(f"error.nvmlDeviceGet{name}.1 999" for name in [*moving, "MemoryInfo_v2"]))
    with probe(scenario.environment) as running:
        assert running.row(1, lambda r: True) == {"index": 1, "error": "gpu_lost"}
        assert running.row(0, lambda r: True)["power_w"] == 694.1


def test_a_gpu_that_wants_a_reset_says_so_and_keeps_what_can_be_read(scenario: Scenario) -> None:
    scenario.write("error.nvmlDeviceGetUtilizationRates 16", "error.nvmlDeviceGetTemperature 16")
    with probe(scenario.environment) as running:
        row = running.row(0, lambda r: True)
    assert row["error"] == "reset_required"
    assert row["memory_used_mib"] == 3539.0
    assert row["absent"]["temp_c"] == "reset_required"


def test_a_stuck_call_stops_one_gpu_and_no_other(scenario: Scenario) -> None:
    scenario.write("count 2")
    with probe(scenario.environment) as running:
        running.row(1, lambda r: r.get("power_w"))
        scenario.add("hang.nvmlDeviceGetPowerUsage.1 1", "gpu.0.power 123")
        running.row(0, lambda r: r.get("power_w") == 123.0)
        stuck = running.row(1, lambda r: r.get("error"))
        told = running.status("stuck_gpu")
        scenario.drop("hang.nvmlDeviceGetPowerUsage.1")
        running.row(1, lambda r: r.get("power_w"))
        back = running.until(lambda f: f.get("code") == "stuck_gpu" and f["level"] == "info")
    assert stuck == {"index": 1, "error": "stuck"}
    assert told["level"] == "error"
    assert "GPU 1" in back["message"]


def test_it_ends_at_once_although_a_gpu_is_stuck(scenario: Scenario) -> None:
    scenario.write("count 2", "hang.nvmlDeviceGetTemperature.0 1")
    with probe(scenario.environment) as running:
        running.row(1, lambda r: r.get("power_w"), 10.0)
        running.close_input()
        assert running.wait() == 0


def test_an_xid_of_nvml_travels_in_the_kernels_words(scenario: Scenario) -> None:
    scenario.write("count 2")
    with probe(scenario.environment) as running:
        running.row(1, lambda r: r.get("power_w"))
        scenario.add("event 1 1 79")
        frame = running.until(
            lambda f: f["type"] == "log" and f["source"] == "kernel" and "PCI:0000:07:00" in f["line"]
        )
    assert frame["line"].startswith("NVRM: Xid (PCI:0000:07:00): 79,")
    assert not frame.get("history")


# ── hosts without GPU figures ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("code", "status", "words"),
    [
        (18, "driver_mismatch", "reboot"),
        (9, "no_driver", "not loaded"),
        (4, "not_permitted", "/dev/nvidia"),
        (15, "gpu_lost", "reboot"),
    ],
)
def test_a_driver_that_does_not_start_is_said_and_the_host_is_still_watched(
    scenario: Scenario, code: int, status: str, words: str
) -> None:
    scenario.write(f"init {code}")
    with probe(scenario.environment) as running:
        told = running.status(status)
        load = running.next(lambda frame: frame["type"] == "gpus")
    assert told["fatal"] is True
    assert words in told["message"]
    assert running.frames[0]["type"] == "hello"
    assert running.frames[0]["gpus"] == []
    assert load["gpus"] == []
    assert load["load"]["memory_total_mib"] > 0


def test_a_mismatch_names_the_librarys_version(scenario: Scenario, tmp_path: Path) -> None:
    real = tmp_path / "libnvidia-ml.so.570.86.15"
    shutil.copy(scenario.library / "libnvidia-ml.so.1", real)
    (tmp_path / "libnvidia-ml.so.1").symlink_to(real.name)
    scenario.library = tmp_path
    scenario.write("init 18")
    with probe(scenario.environment) as running:
        told = running.status("driver_mismatch")
    assert told["detail"]["library"] == "570.86.15"
    assert "570.86.15" in told["message"]


def test_a_library_outside_the_loaders_path_is_found_as_on_wsl(scenario: Scenario) -> None:
    code = (
        "import sys; from moetop.probe import nvml; nvml.LIBRARY_PLACES = (sys.argv[1],); "
        "gate = nvml.Nvml(); print(gate.start(), gate.call('nvmlDeviceGetCount'))"
    )
    environment = {**scenario.full_environment(), "LD_LIBRARY_PATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", code, str(scenario.library)],
        env=environment,
        cwd=REPO,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "None (1, None)"


def test_no_library_and_no_nvidia_smi_is_said(tmp_path: Path) -> None:
    with probe({"LD_LIBRARY_PATH": str(tmp_path), "PATH": str(tmp_path)}) as running:
        told = running.status("no_driver")
    assert told["fatal"] is True
    assert "libnvidia-ml.so.1" in told["message"]


def test_a_driver_without_a_gpu_is_said(scenario: Scenario) -> None:
    scenario.write("count 0")
    with probe(scenario.environment) as running:
        assert running.status("no_gpu")["fatal"] is True


# ── ends ─────────────────────────────────────────────────────────────────────────────────────────


def test_it_ends_when_its_input_closes(scenario: Scenario) -> None:
    with probe(scenario.environment) as running:
        running.hello()
        running.close_input()
        assert running.wait() == 0
    assert running.errors == b""
    assert statuses(running.frames, "bye")


def test_it_ends_when_asked_to(scenario: Scenario) -> None:
    with probe(scenario.environment) as running:
        running.hello()
        running.send(cmd="quit")
        assert running.wait() == 0


def test_it_ends_when_the_client_falls_silent_and_not_while_it_pings(scenario: Scenario) -> None:
    with probe(scenario.environment, silence_timeout_s=2.0) as running:
        running.hello()
        for _ in range(10):
            time.sleep(0.3)
            running.send(cmd="ping")
        assert running.process.poll() is None
        assert running.wait() == 0
    assert "no word" in statuses(running.frames, "bye")[0]["message"]


def test_it_ends_when_nobody_reads_its_output_and_prints_no_traceback(scenario: Scenario) -> None:
    with probe(scenario.environment, read=False) as running:
        assert running.process.stdout
        running.process.stdout.readline()
        running.process.stdout.close()
        assert running.process.wait(PATIENCE_S) == 0
        assert running.process.stderr
        assert running.process.stderr.read() == b""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_it_ends_on_a_signal(scenario: Scenario, number: int) -> None:
    with probe(scenario.environment) as running:
        running.hello()
        running.process.send_signal(number)
        assert running.wait() == 0
    assert running.errors == b""


def test_a_reader_that_stops_for_a_while_loses_old_samples_and_is_told_how_many(scenario: Scenario) -> None:
    scenario.write("count 8")
    with probe(scenario.environment, interval_s=0.1, read=False) as running:
        end = time.monotonic() + PATIENCE_S
        assert running.process.stdout
        fcntl.fcntl(running.process.stdout, fcntl.F_SETPIPE_SZ, 4096)
        assert select.select([running.process.stdout], [], [], PATIENCE_S)[0], "it has started"
        time.sleep(3.0)  # 8 rows of about 400 bytes, 10 times a second: much more than the pipe and the outbox hold
        assert running.process.poll() is None
        running.read()
        frame = running.until(lambda f: f.get("dropped", 0) > 0, end - time.monotonic())
        running.next(lambda f: f["type"] == "gpus")
    assert frame["dropped"] >= 1


LATE = """
import sys, time
from pathlib import Path
from moetop.probe import sources
sources.START_PATIENCE_S = 0.2
source = sources.open_source(0.2, lambda code, message, level, detail: print(code, level))
print(source.name, source.hello()["gpus"], source.sample(0.2))
Path(sys.argv[1]).write_text("count 1")
end = time.monotonic() + 10
while not source.hello_again() and time.monotonic() < end:
    time.sleep(0.05)
print(source.name, len(source.hello()["gpus"]), len(source.sample(0.2, 5.0)[0]))
"""


def test_a_driver_that_starts_very_late_is_read_all_the_same(scenario: Scenario) -> None:
    scenario.write("hang.nvmlInitWithFlags 1")
    done = subprocess.run(
        [sys.executable, "-c", LATE, str(scenario.path)],
        env=scenario.full_environment(),
        cwd=REPO,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.splitlines() == ["stuck_gpu fatal", "None [] ([], [])", "stuck_gpu info", "nvml 1 1"]


@pytest.mark.slow
def test_a_driver_that_never_answers_its_start_is_said(scenario: Scenario) -> None:
    scenario.write("hang.nvmlInitWithFlags 1")
    with probe(scenario.environment) as running:
        told = running.until(lambda frame: frame.get("code") == "stuck_gpu", 30.0)
        running.next(lambda frame: frame["type"] == "gpus" and frame["load"])
        running.close_input()
        assert running.wait() == 0
    assert told["fatal"] is True


@pytest.mark.slow
def test_what_watching_eight_gpus_costs(scenario: Scenario, capsys: pytest.CaptureFixture[str]) -> None:
    """Prints the figures; on a real H200 the driver's own time comes on top (tests/gpu/probe_cost.py)."""
    scenario.write("count 8")
    with probe(scenario.environment, interval_s=1.0) as running:
        running.row(7, lambda r: r["gpm"])
        before, count = cpu_ms(running.process.pid), len(running.frames)
        time.sleep(10)
        spent = cpu_ms(running.process.pid) - before
        rows = sum(len(frame["gpus"]) for frame in running.frames[count:] if frame["type"] == "gpus")
        status = Path(f"/proc/{running.process.pid}/status").read_text()
    rss_mib = int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) / 1024
    with capsys.disabled():
        print(
            f"\n8 GPUs at 1 Hz under the stand-in: {spent / rows:.2f} ms CPU a GPU a sample, {rss_mib:.0f} MiB at most"
        )
    assert rows >= 72
    assert rss_mib < 60


def cpu_ms(pid: int) -> float:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e6


# ── the loader ───────────────────────────────────────────────────────────────────────────────────


def pythons() -> list[str]:
    """Interpreters of this machine, the oldest that must work among them where there is one."""
    places = [Path("/root/.pyenv/versions")] if os.access("/root/.pyenv/versions", os.R_OK) else []
    found = [str(path) for place in places for path in place.glob("*/bin/python3")]
    return [path for path in found if not path.startswith(sys.prefix)]


@pytest.mark.parametrize("python", pythons() or [sys.executable])
def test_the_loader_runs_or_says_that_python_is_too_old(scenario: Scenario, python: str) -> None:
    version = subprocess.run(
        [python, "-c", "import sys; print(*sys.version_info[:2])"], capture_output=True, text=True, check=True
    )
    new_enough = tuple(int(part) for part in version.stdout.split()) >= (3, 8)
    if not new_enough:
        done = subprocess.run(loader_argv(python), stdin=subprocess.DEVNULL, capture_output=True, check=False)
        assert done.stdout.startswith(b"MOETOP-OLD 3.")
        assert done.returncode == 3
        return
    with probe(scenario.environment, python=python, discover=True) as running:
        assert running.row(0, lambda r: r["gpm"])["power_w"] == 694.1
        assert not statuses(running.frames, "probe_fault")


def test_an_old_python_is_named_before_anything_is_imported() -> None:
    pretend = "import sys; sys.version_info = (3, 5, 2, 'final', 0); sys.modules['json'] = None; "
    done = subprocess.run([sys.executable, "-c", pretend + LOADER], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (3, b"MOETOP-OLD 3.5\n")


def test_the_loader_ends_quietly_when_the_program_never_comes() -> None:
    for sent in (b"", b"100000\nabc"):
        done = subprocess.run(loader_argv(sys.executable), input=sent, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b"")


def test_modules_in_the_current_directory_do_not_get_in_the_way(scenario: Scenario, tmp_path: Path) -> None:
    for name in ("json", "select", "pynvml", "moetop_probe", "threading"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a stray file was imported')\n")
    here = Path.cwd()
    os.chdir(tmp_path)
    try:
        with probe(scenario.environment) as running:
            running.row(0, lambda r: r.get("power_w"))
    finally:
        os.chdir(here)


def test_nothing_is_written_on_the_host(scenario: Scenario, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    environment = {**scenario.environment, "HOME": str(home), "TMPDIR": str(home), "XDG_CACHE_HOME": str(home)}
    with probe(environment) as running:
        running.row(0, lambda r: r["gpm"])
        opened = [str(entry.readlink()) for entry in Path(f"/proc/{running.process.pid}/fd").iterdir()]
    assert list(home.iterdir()) == []
    assert [path for path in opened if path.startswith(("/tmp", str(home)))] == []
