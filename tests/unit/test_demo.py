"""The built-in demo: honest about what it is, the same every time, and telling the case it was made for."""

from __future__ import annotations

import gzip
import json
import re
import threading
import time
from collections import deque
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import pytest

import moetop.demo
from moetop.cli import main
from moetop.demo import RECORDED, SCRIPTED, transports
from moetop.demo.fleet import NOW_T, PAST_S, SNAPSHOT_S
from moetop.demo.recorded import recording
from moetop.demo.scripted import read_log
from moetop.model import AnyFrame, Gpus, Hello, Log, Server
from moetop.recording import Malformed, Unknown, decode

RECORDING = Path(__file__).parents[1] / "data" / "retune" / "h200-minimoe.jsonl.gz"
DATA = Path(moetop.demo.__file__).parent / "data"


def known(raw: bytes) -> AnyFrame:
    frame = decode(raw)
    assert not isinstance(frame, (Malformed, Unknown)), raw[:200]
    return frame


def frames_of(name: str) -> Iterator[AnyFrame]:
    transport = next(transport for transport in transports(flat_out=True) if transport.name == name)
    yield from map(known, transport.open({}).lines())


@pytest.mark.parametrize(("name", "words"), [(SCRIPTED, "Scripted"), (RECORDED, "Recorded on an H200")])
def test_a_host_says_first_of_all_what_it_is(name: str, words: str) -> None:
    hello = next(frames_of(name))
    assert isinstance(hello, Hello) and hello.notes[0].startswith(words)


@pytest.mark.parametrize("name", [SCRIPTED, RECORDED])
def test_the_same_frames_every_time_in_the_order_of_their_times(name: str) -> None:
    first, second = list(frames_of(name)), list(frames_of(name))
    assert first == second
    times = [frame.t for frame in first]
    assert times == sorted(times) and NOW_T + SNAPSHOT_S - 2 < times[-1] <= NOW_T + SNAPSHOT_S
    assert times[0] <= NOW_T - PAST_S


def test_the_recorded_host_plays_the_recorded_values_unchanged() -> None:
    with gzip.open(RECORDING, "rt") as lines:
        measured = [frame["gpus"] for line in lines if (frame := json.loads(line))["type"] == "gpus"]
    packaged = [frame["gpus"] for frame in recording() if frame["type"] == "gpus"]
    assert packaged == measured[: len(packaged)] and len(packaged) > 100
    played = [frame.gpus for frame in frames_of(RECORDED) if isinstance(frame, Gpus)]
    decoded = [decode(json.dumps({"type": "gpus", "t": 0, "gpus": gpus}).encode()) for gpus in packaged]
    recorded = [frame.gpus for frame in decoded if isinstance(frame, Gpus)]
    assert len(played) > 300 and all(gpus in recorded for gpus in played)


def test_what_is_packaged_is_small_and_names_no_machine() -> None:
    sizes = [path.stat().st_size for path in DATA.iterdir()]
    assert sum(sizes) < 200_000
    for path in DATA.glob("h200-*"):
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()
        for private in ("/work/", "127.0.0.1:2222", '"vm"', "@vm"):
            assert private not in text, path
        assert set(re.findall(r"GPU-[0-9a-f-]+", text)) <= {"GPU-00000000-0000-0000-0000-000000000000"}


def test_the_scripted_host_shows_busy_gpus_at_about_55_percent_of_their_power() -> None:
    samples = [frame for frame in frames_of(SCRIPTED) if isinstance(frame, Gpus) and frame.t >= NOW_T - 60]
    assert len(samples) == 81
    for frame in samples:
        assert len(frame.gpus) == 8
        for gpu in frame.gpus:
            assert gpu.util_gpu_pct == 100 and gpu.power_limit_w == 600 and gpu.power_w is not None
            assert 53 < gpu.power_w / 6 < 57 and gpu.util_mem_pct in (30, 31, 32) and gpu.gpm is None
            assert gpu.clock_event_reasons == 0
    assert samples[0].gpus != samples[1].gpus, "nothing real stands perfectly still"


def test_the_scripted_log_answers_the_greps_of_the_field_with_its_arguments_alone() -> None:
    lines = read_log()
    greps = (
        "autotun|Autotuner|tuning|profiling|tactic",
        "autotun|profil.runner|profil.tactic|Loading config|default config|from file|cutlass_fused|choose_one"
        "|cache_key",
    )
    for pattern in greps:
        found = [line for line in lines if re.search(pattern, line, re.IGNORECASE)]
        assert len(found) == 3 and all("server_args=ServerArgs(" in line for line in found)
    backends = [re.search(r"moe_runner_backend='(\w+)'", line) for line in lines if "server_args=" in line]
    assert [match and match.group(1) for match in backends] == [
        "flashinfer_trtllm", "flashinfer_cutlass", "flashinfer_cutlass",
    ]  # fmt: skip
    assert sum("Custom allreduce is disabled" in line for line in lines) == 24


def test_the_scripted_server_is_described_as_the_probe_would() -> None:
    frames = list(frames_of(SCRIPTED))
    (server,) = [frame for frame in frames if isinstance(frame, Server)]
    assert server.versions["sglang"] == "0.5.9" and server.log is not None and server.log.kind == "file"
    assert server.args["moe_runner_backend"] == "flashinfer_cutlass" and server.gpus == tuple(range(8))
    logs = [frame for frame in frames if isinstance(frame, Log)]
    assert {frame.source for frame in logs} == {server.source}
    offsets = [frame.offset for frame in logs if isinstance(frame.offset, int)]
    assert offsets == sorted(set(offsets))
    assert sum(frame.skipped for frame in logs) == 12_431
    assert any("gen throughput" in frame.line for frame in logs if not frame.history)


def test_in_real_time_the_past_is_there_at_once_and_the_present_goes_on() -> None:
    for transport in transports():
        channel = transport.open({})
        begun = time.monotonic()
        lines = channel.lines()
        frames = list(takewhile(lambda frame: frame.t < NOW_T - 1, map(known, lines)))
        assert time.monotonic() - begun < 5, "five minutes of past must not be waited for"
        assert sum(isinstance(frame, Gpus) for frame in frames) > 250
        reader = threading.Thread(target=deque, args=(lines, 0))
        reader.start()
        transport.close()
        reader.join(5)
        assert not reader.is_alive(), "closing must end the stream"


def test_the_snapshot_of_the_demo_gives_the_right_answer(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["--demo", "--snapshot", "-", "--check"]) == 3
    snapshot = json.loads(capsysbinary.readouterr().out)
    scripted, recorded = snapshot["hosts"]
    assert (scripted["headline"], recorded["headline"]) == ("untuned_kernels", "untuned_kernels")
    assert {(gpu["state"], gpu["confidence"]) for gpu in scripted["gpus"]} == {("tensor_starved", "inferred")}
    assert {(gpu["state"], gpu["confidence"]) for gpu in recorded["gpus"]} == {("tensor_starved", "measured")}
    (server,) = scripted["servers"]
    assert server["tuning"]["verdict"] == "never_ran" and server["phase"] == "ready"
    assert [run["phase"] for run in server["runs"]] == ["crashed", "stopped", "ready"]
    (finding,) = scripted["findings"]
    said = " ".join([finding["summary"], *finding["evidence"], *finding["remedy"]])
    assert finding["confidence"] == "inferred" and finding["server"] == server["name"]
    for word in ("0.5.9", "flashinfer_cutlass", "0.5.16", "all-reduce"):
        assert word in said
    assert "crash" not in finding["summary"]
    (server,), (finding,) = recorded["servers"], recorded["findings"]
    assert server["tuning"]["verdict"] == "untuned" and server["metrics"]["generation_tokens_s"] > 130_000
    assert finding["kind"] == "untuned_kernels" and finding["confidence"] == "measured"
    assert "E=64,N=2048,device_name=NVIDIA_H200.json" in " ".join(finding["evidence"])
    for host in (scripted, recorded):
        assert host["notes"][0].startswith(("Scripted", "Recorded"))
