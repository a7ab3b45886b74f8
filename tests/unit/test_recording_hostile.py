"""Frames with GPUs that cannot be keep the others; files that never end, or hold nothing, are refused in words."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from moetop import recording
from moetop.diagnose.host import HostEvidence
from moetop.errors import UsageError
from moetop.model import Gpus, Hello, HostReport, HostStatus
from moetop.recording import MAX_GPUS, Malformed, clean, decode, index_recording, read_frames
from moetop.transport.replay import open_recording

GOOD = {"index": 0, "util_gpu_pct": 50.0, "power_w": 300.0, "power_limit_w": 700.0}
NO_GPUS: list[Any] = [
    {"index": -1},
    {"index": MAX_GPUS},
    {"index": 10**30},
    {"index": 1.5},
    {"index": True},
    {"index": "1"},
    {"util_gpu_pct": 5},
    {"index": 1, "util_gpu_pct": "5"},
    {"index": 1, "power_w": 1e30},
    {"index": 0, "util_gpu_pct": 99.0},
    None,
    7,
]


def line(*gpus: Any, t: float = 1.0, kind: str = "gpus") -> bytes:
    return json.dumps({"type": kind, "t": t, "gpus": gpus}).encode()


def replayed(tmp_path: Path, *lines: bytes) -> HostReport:
    path = tmp_path / "r.jsonl"
    path.write_bytes(b"".join(one + b"\n" for one in lines))
    evidence = HostEvidence("r", 10.0)
    for raw in open_recording(path, speed=0.0)[0].open({}).lines():
        frame = decode(raw)
        if not isinstance(frame, Malformed):
            evidence.apply(frame)  # type: ignore[arg-type]
    return evidence.report()


@pytest.mark.parametrize("bad", NO_GPUS, ids=repr)
def test_one_entry_that_is_no_gpu_takes_no_other_with_it(bad: Any) -> None:
    frame, raw = clean(line(GOOD, bad))
    assert isinstance(frame, Gpus)
    assert [(gpu.index, gpu.util_gpu_pct) for gpu in frame.gpus] == [(0, 50.0)]
    assert frame.rejected == 1
    assert decode(raw) == frame


def test_of_too_many_gpus_so_many_as_there_can_be_are_kept() -> None:
    frame = decode(line(*({"index": i} for i in range(MAX_GPUS + 500))))
    assert isinstance(frame, Gpus)
    assert (len(frame.gpus), frame.rejected) == (MAX_GPUS, 500)


def test_a_hello_keeps_its_good_gpus_and_says_what_was_left_out() -> None:
    frame = decode(line({"index": 0, "name": "NVIDIA H200"}, {"index": -4}, kind="hello"))
    assert isinstance(frame, Hello)
    assert [gpu.name for gpu in frame.gpus] == ["NVIDIA H200"]
    assert frame.notes[0].startswith("1 of 2 GPU entries left out")


def test_secrets_are_gone_from_a_frame_that_lost_gpus_too() -> None:
    gpu = {**GOOD, "processes": [{"pid": 1, "name": "python --api-key sk-abcdefghijklmnop1234"}]}
    frame, raw = clean(line(gpu, {"index": -1}))
    assert isinstance(frame, Gpus)
    assert b"abcdefghijklmnop" not in raw
    assert "abcdefghijklmnop" not in str(frame)


def test_what_was_left_out_is_a_note_and_the_rest_is_judged(tmp_path: Path) -> None:
    report = replayed(tmp_path, *(line(GOOD, {"index": -1}, t=float(t)) for t in range(5)))
    assert (report.status, [gpu.util_gpu_pct for gpu in report.gpus]) == (HostStatus.OK, [50.0])
    assert any("1 GPU entry of the newest sample left out" in note for note in report.notes)


@pytest.mark.parametrize(
    "lines",
    [
        [line({"index": -1}, {"index": 10**18}, t=float(t)) for t in range(5)],
        [b'{"type":"gpus","t":1,"gpus":{"index":0}}', b'{"type":"gpus","t":2,"gpus":[],"load":"x"}'],
        [b'{"type":"hello","t":1,"gpus":"no"}', b'{"type":"log","t":2,"source":5,"line":7}'],
    ],
    ids=["bad-indices", "bad-samples", "nothing-good"],
)
def test_a_recording_of_which_no_sample_can_be_read_is_not_well(tmp_path: Path, lines: list[bytes]) -> None:
    report = replayed(tmp_path, *lines)
    assert (report.headline, report.status) == ("no_data", HostStatus.DEGRADED)
    assert report.error is not None
    assert report.notes


def test_one_good_sample_is_data(tmp_path: Path) -> None:
    report = replayed(tmp_path, b'{"type":"gpus","t":1,"gpus":{}}', line(GOOD, t=2.0))
    assert (report.status, len(report.gpus)) == (HostStatus.OK, 1)


# ── files without end, without lines, without frames ─────────────────────────────────────────────


@pytest.mark.timeout(30)
def test_empty_lines_by_the_million_are_passed_over_in_bulk(tmp_path: Path) -> None:
    path = tmp_path / "bomb.jsonl.gz"
    path.write_bytes(gzip.compress(line(GOOD) + b"\n" * 100_000_000 + line(GOOD, t=2.0) + b"\n", 1))
    index = index_recording(path)
    assert (index.skipped, [len(host.offsets) for host in index.hosts.values()]) == (0, [2])
    assert [frame.t for frame in read_frames(path)] == [1.0, 2.0]


@pytest.mark.parametrize("junk", [b"\n", b"x\n", b"x" * 1000, b"{}\r\n"], ids=["empty", "short", "one", "objects"])
@pytest.mark.parametrize("name", ["r.jsonl", "r.jsonl.gz"])
def test_so_much_without_a_frame_is_no_recording_or_its_end(
    junk: bytes, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "MAX_JUNK_BYTES", 50_000)
    monkeypatch.setattr(recording, "MAX_JUNK_LINES", 500)
    monkeypatch.setattr(recording, "MAX_LINE_BYTES", 1000)
    filled = junk * (200_000 // len(junk)) + b"\n"
    pack = gzip.compress if name.endswith(".gz") else bytes
    path = tmp_path / name
    path.write_bytes(pack(filled + line(GOOD) + b"\n"))
    with pytest.raises(UsageError, match="not a recording"):
        index_recording(path)
    path.write_bytes(pack(line(GOOD) + b"\n" + filled + line(GOOD, t=2.0) + b"\n"))
    index = index_recording(path)
    assert [len(host.offsets) for host in index.hosts.values()] == [1]
    assert index.truncated


@pytest.mark.timeout(60)
@pytest.mark.parametrize("option", ["--replay", "--log", "--smi-log", "--metrics"])
def test_a_device_without_end_and_a_file_of_nuls_are_refused_in_a_sentence(option: str, tmp_path: Path) -> None:
    hole = tmp_path / "hole"
    with hole.open("wb") as file:
        os.truncate(file.fileno(), 10 * 2**20)
    for path in ("/dev/zero", str(hole)):
        done = subprocess.run(
            [sys.executable, "-m", "moetop", option, path, "--snapshot", "-"],
            check=False,
            capture_output=True,
            text=True,
            timeout=25,
        )
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.count("\n") == 1
        assert path in done.stderr


def test_a_pipe_of_nuls_is_no_log() -> None:
    command = [sys.executable, "-m", "moetop", "--log", "-", "--snapshot", "-"]
    with Path("/dev/zero").open("rb") as zeros:
        feeder = subprocess.Popen(["cat"], stdin=zeros, stdout=subprocess.PIPE)
        done = subprocess.run(command, check=False, stdin=feeder.stdout, capture_output=True, text=True, timeout=25)
        feeder.kill()
        feeder.wait()
    assert done.returncode == 2
    assert "only binary data" in done.stderr


def test_a_log_from_a_pipe_with_a_name_is_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.log"
    os.mkfifo(pipe)
    command = [sys.executable, "-m", "moetop", "--log", str(pipe), "--snapshot", "-"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        pipe.write_text("[2026-02-19 01:06:58] The server is fired up and ready to roll!\n")
        out, _ = running.communicate(timeout=25)
    assert json.loads(out)["hosts"][0]["servers"][0]["phase"] == "ready"
