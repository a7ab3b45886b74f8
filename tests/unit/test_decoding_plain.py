"""A line of samples is taken as it is only where nothing in it can be a secret or a number out of bounds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from moetop import decoding
from moetop.cli import main
from moetop.decoding import MAX_NUMBER, clean
from moetop.model import Gpus

SECRETS = {
    "the error of a GPU": b'{"index":0,"error":"https://u:geheim-1@h/x hf_GEHEIMGEHEIMGEHEIMGEHEIM123456"}',
    "a key in escapes": b'{"index":0,"\\u0070rocesses":[{"pid":1,"name":"serve --api-key geheim-1"}]}',
    "a value in escapes": b'{"index":0,"error":"\\u0068f_GEHEIMGEHEIMGEHEIMGEHEIM123456"}',
    "an unknown key": b'{"index":0,"note":"hf_GEHEIMGEHEIMGEHEIMGEHEIM123456"}',
    "the name of a secret": b'{"index":0,"api_key":"geheim-1"}',
    "the name of a secret, apart": b'{"index":0,"api_key" \t: "geheim-1"}',
    "a secret as a key": b'{"index":0,"hf_GEHEIMGEHEIMGEHEIMGEHEIM123456":1}',
    "arguments": b'{"index":0,"argv":["--api-key","geheim-1"]}',
    "a key that comes twice": b'{"index":0,"note":{"a":"token=geheim-111"},"note":1}',
    "why a value is absent": b'{"index":0,"absent":{"gpm":"password=geheim-1"}}',
    "processes": b'{"index":0,"processes":[{"pid":1,"user":"x","name":"serve --api-key=geheim-1"}]}',
}


def sample(gpu: bytes) -> bytes:
    return b'{"type":"gpus","t":1,"host":"gpu-a","gpus":[' + gpu + b"]}"


@pytest.mark.parametrize("gpu", SECRETS.values(), ids=SECRETS)
def test_no_secret_of_a_sample_is_shown_or_recorded(gpu: bytes) -> None:
    frame, line = clean(sample(gpu))
    assert isinstance(frame, Gpus)
    assert "geheim" not in str(frame).lower()
    assert b"geheim" not in line.lower()
    assert clean(line)[0] == frame


def test_a_line_that_is_no_frame_leaves_nothing_to_record() -> None:
    for line in (
        b'{"type":"weather","t":1}',
        b"token=geheim",
        b'{"type":"gpus","t":1e15,"x":"gehe"}',
    ):
        assert clean(line)[1] == b""


@pytest.mark.parametrize("number", ["1e0300", "1e300", "1E+0021", "1.5e00021", "-1e0300", "1" + "0" * 21, "0.1e0022"])
def test_a_number_beyond_the_bound_is_dropped_however_it_is_spelled(number: str) -> None:
    frame, line = clean(sample(b'{"index":0,"power_w":%s},{"index":1}' % number.encode()))
    assert isinstance(frame, Gpus)
    assert ([gpu.index for gpu in frame.gpus], frame.rejected) == ([1], 1)
    assert number.encode() not in line


def test_numbers_within_the_bound_stay() -> None:
    for number in ("1e019", "1e-0300", "99999999999999999999", "0.12345678901234567890123"):
        frame, _ = clean(sample(b'{"index":0,"power_w":%s}' % number.encode()))
        assert isinstance(frame, Gpus)
        assert frame.gpus[0].power_w == float(number) <= MAX_NUMBER


def test_what_the_probe_writes_every_second_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = {
        "index": 0,
        "util_gpu_pct": 99,
        "power_w": 690.2,
        "gpm": {"sm_active_pct": 1e-05, "tensor_pct": None},
        "absent": {"dram_pct": "not_supported"},
        "processes_why": "in a container: these are the host's process ids, their names cannot be seen",
    }
    line = json.dumps({"type": "gpus", "t": 1.8e9, "host": "gpu-a", "gpus": [gpu], "load": {"load1": 3.5}}).encode()
    monkeypatch.setattr(decoding, "_redact", None)
    frame, kept = clean(line)
    assert isinstance(frame, Gpus)
    assert kept is line


def test_a_picture_of_a_replay_shows_no_secret_of_a_sample(tmp_path: Path) -> None:
    path, out = tmp_path / "r.jsonl", tmp_path / "out.svg"
    hello = b'{"type":"hello","t":1,"host":"gpu-a","gpus":[{"index":0,"name":"NVIDIA H200"}]}'
    path.write_bytes(hello + b"\n" + (sample(SECRETS["the error of a GPU"]) + b"\n") * 3)
    main(["--replay", str(path), "--snapshot", str(out), "--format", "svg"])
    assert "gpu-a" in out.read_text()
    assert "geheim" not in out.read_text().lower()
