"""Hosts without an NVML library: `nvidia-smi` in a loop, read by the probe."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from moetop.probe import smi_live
from moetop.probe.smi_live import SmiLoop
from tests.rig.probe_kit import PATIENCE_S, children_of, probe
from tests.rig.smi_kit import Smi, wait_until_gone


@pytest.fixture
def smi(tmp_path: Path) -> Smi:
    return Smi(tmp_path)


def test_without_the_library_nvidia_smi_is_read_and_it_is_said(smi: Smi) -> None:
    with probe(smi.environment) as running:
        hello = running.hello()
        told = running.status("fallback_smi")
        row = running.row(0, lambda r: True)
        unified = running.row(1, lambda r: True)
    assert (hello["source"], hello["driver"]) == ("nvidia-smi", "580.159.04")
    assert [gpu["name"] for gpu in hello["gpus"]] == ["NVIDIA H200", "NVIDIA GB10"]
    assert hello["gpus"][0]["memory_total_mib"] == 143771
    assert hello["gpus"][0]["mig"] is False
    assert (told["level"], told.get("fatal", False)) == ("warning", False)
    assert (row["util_gpu_pct"], row["power_w"], row["power_limit_w"]) == (100, 412.5, 700.0)
    assert row["clock_event_reasons"] == 4
    assert row["gpm"] is None
    assert row["absent"] == {"gpm": "nvidia-smi"}
    assert hello["gpus"][1]["unified_memory"] is True
    assert unified["memory_used_mib"] > 0
    assert unified["absent"] == {
        "util_mem_pct": "not_supported",
        "power_limit_w": "not_supported",
        "mem_clock_mhz": "not_supported",
        "clock_event_reasons": "not_supported",
        "gpm": "nvidia-smi",
    }


def test_one_sample_by_nvidia_smi(smi: Smi) -> None:
    with probe(smi.environment, once=True) as running:
        assert running.wait() == 0
    frames = [frame for frame in running.frames if frame["type"] == "gpus"]
    assert [len(frame["gpus"]) for frame in frames] == [2]


def test_a_field_that_an_old_nvidia_smi_lacks_is_left_out(smi: Smi) -> None:
    smi.mode("missing-field compute_cap")
    with probe(smi.environment) as running:
        hello = running.hello()
        running.row(0, lambda r: r["power_w"] == 412.5)
    assert "compute_capability" not in hello["gpus"][0]


def test_an_nvidia_smi_that_knows_no_loop_is_run_again_and_again(smi: Smi) -> None:
    smi.mode("ends")
    with probe(smi.environment) as running:
        running.row(0, lambda r: True)
        running.row(0, lambda r: True)
        assert not [frame for frame in running.frames if frame.get("fatal")]


def test_an_nvidia_smi_that_answers_again_takes_its_condition_back(smi: Smi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smi_live, "RESTART_S", 0.2)
    said: list[tuple[str, str]] = []
    loop = SmiLoop(
        str(smi.mode("mismatch").folder / "nvidia-smi"), 0.2, lambda code, _, level, __: said.append((code, level))
    )
    loop.start()
    assert loop.first.wait(10)
    smi.mode("ok")
    end = time.monotonic() + 10
    while loop.take() is None:
        assert time.monotonic() < end
        time.sleep(0.02)
    loop.stop()
    assert said[0] == ("driver_mismatch", "fatal")
    assert said[-1] == ("driver_mismatch", "info")


def test_a_hanging_nvidia_smi_is_ended_and_said_and_the_host_still_watched(smi: Smi) -> None:
    smi.mode("hang")
    with probe(smi.environment, smi_patience_s=1.0) as running:
        told = running.status("smi_hang")
        running.next(lambda frame: frame["type"] == "gpus" and frame["load"])
        wait_until_gone(children_of(running.process.pid))
    assert told["fatal"] is True


@pytest.mark.parametrize(
    ("mode", "code", "fatal"), [("mismatch", "driver_mismatch", True), ("lost", "gpu_lost", False)]
)
def test_what_nvidia_smi_says_instead_of_figures_is_passed_on(smi: Smi, mode: str, code: str, fatal: bool) -> None:
    smi.mode(mode)
    with probe(smi.environment) as running:
        told = running.status(code)
    assert told.get("fatal", False) is fatal
    if mode == "mismatch":
        assert told["detail"] == {"library": "570.86"}
    else:
        assert told["detail"] == {"index": 0, "pci": "0000:09:00.0"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nvidia_smi_goes_with_the_probe_however_it_ends(smi: Smi, number: int) -> None:
    with probe(smi.environment) as running:
        running.row(0, lambda r: True)
        children = children_of(running.process.pid)
        running.process.send_signal(number)
        running.process.wait(PATIENCE_S)
        wait_until_gone(children)
    assert len(children) >= 2


def test_nvidia_smi_goes_when_the_input_closes(smi: Smi) -> None:
    with probe(smi.environment) as running:
        running.row(0, lambda r: True)
        children = children_of(running.process.pid)
        running.close_input()
        assert running.wait() == 0
        wait_until_gone(children)
