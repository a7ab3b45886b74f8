"""What nvidia-smi prints in a loop becomes frames, one a sample, and its complaints become statuses."""

from __future__ import annotations

from typing import Any

from moetop.model import Gpus, Hello, Status
from moetop.probe.smi_stream import SmiStream
from moetop.recording import decode, encode
from moetop.transport.fallback import SmiFrames

HEADER = "index, name, driver_version, utilization.gpu [%], power.draw [W], mig.mode.current"


def read(*lines: str) -> list[Any]:
    stream, frames = SmiStream(), SmiFrames("the host has no python3; install it")
    found = [frame for n, line in enumerate(lines) for frame in frames.take(stream.feed(line), float(n))]
    return [decode(encode(frame)) for frame in [*found, *frames.take(stream.flush(), 99.0)]]


def test_a_sample_is_sent_when_its_last_gpu_came() -> None:
    found = read(HEADER, *["0, A100, 470.1, 5, 60.5, Disabled", "1, A100, 470.1, 6, 61.5, Enabled"] * 3)
    assert [type(frame) for frame in found] == [Status, Hello, Gpus, Gpus, Gpus]
    assert [gpu.mig for gpu in found[1].gpus] == [False, True]
    assert [(frame.t, [gpu.power_w for gpu in frame.gpus]) for frame in found[2:]] == [
        (3.0, [60.5, 61.5]),
        (4.0, [60.5, 61.5]),
        (6.0, [60.5, 61.5]),
    ]


def test_a_gpu_that_is_lost_keeps_its_row_and_the_rest_goes_on() -> None:
    found = read(
        HEADER,
        "0, A100, 470.1, 5, 60.5, Disabled",
        "1, A100, 470.1, 6, 61.5, Disabled",
        "0, A100, 470.1, 5, 60.5, Disabled",
        "1, [GPU is lost], [GPU is lost], [GPU is lost], [GPU is lost], [GPU is lost]",
    )
    assert found[-1].gpus[0].power_w == 60.5
    assert (found[-1].gpus[1].power_w, found[-1].gpus[1].error) == (None, "gpu_lost")


def test_other_gpus_than_before_are_announced_anew() -> None:
    rows = ["0, A100, 470.1, 5, 60.5, Disabled", "1, A100, 470.1, 6, 61.5, Disabled"]
    found = read(HEADER, *rows, *rows, "2, A100, 470.1, 7, 62.5, Disabled", *rows)
    hellos = [[gpu.index for gpu in frame.gpus] for frame in found if isinstance(frame, Hello)]
    assert hellos == [[0, 1], [0, 1, 2]]


def test_what_stops_nvidia_smi_is_fatal_before_the_first_sample() -> None:
    (status,) = read("Failed to initialize NVML: Driver/library version mismatch")
    assert (status.code, status.fatal, status.level) == ("driver_mismatch", True, "error")


def test_noise_and_escape_sequences_yield_nothing() -> None:
    assert read("Welcome, dear, user, of, the, cluster", "\x1b[2J\x07", "", "0, 1, 2") == []
