"""Lines from hosts and files become frames, or say why not; recordings survive what disks do to them."""

from __future__ import annotations

import gzip
import json
import math
import stat
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moetop.cli import main
from moetop.diagnose.host import HostEvidence
from moetop.errors import MoetopError, UsageError
from moetop.model import Gpus, Hello, Log, Server, Status
from moetop.recording import (
    MAX_LINE_BYTES,
    Malformed,
    Recorder,
    Unknown,
    clean,
    decode,
    encode,
    index_recording,
    read_frames,
    with_host,
)
from moetop.transport.replay import FrameTransport, open_recording

RECORDINGS = sorted((Path(__file__).parents[1] / "data" / "recordings").glob("*.jsonl"))
HELLO = b'{"type":"hello","t":0,"host":"a","gpus":[{"index":0,"name":"NVIDIA H200"}]}'


def sample(t: float, host: str | None = None) -> bytes:
    frame: dict[str, object] = {"type": "gpus", "t": t, "gpus": [{"index": 0, "util_gpu_pct": 100}]}
    return json.dumps({**frame, "host": host} if host else frame).encode()


def write_lines(path: Path, *lines: bytes) -> Path:
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def play(transport: FrameTransport) -> list[bytes]:
    return list(transport.open({}).lines())


def frames_only(transport: FrameTransport) -> list[bytes]:
    """What a damaged recording holds, without the word that it is damaged."""
    return [raw for raw in play(transport) if b'"recording_' not in raw]


# ── decoding ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_every_handed_recording_decodes_whole(path: Path) -> None:
    frames = [decode(line) for line in path.read_bytes().splitlines()]
    assert isinstance(frames[0], Hello)
    assert all(isinstance(frame, Gpus) for frame in frames[1:])


def test_an_unknown_type_is_named_and_unknown_keys_are_passed_over() -> None:
    assert decode(b'{"type":"weather","t":1,"sky":"blue"}') == Unknown("weather")
    assert isinstance(decode(b'{"type":"gpus","t":1,"gpus":[],"sky":{"colour":"blue"}}'), Gpus)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"Last login: Mon Nov 30",
        b"[]",
        b'"gpus"',
        b'{"type":"gpus"}',
        b'{"type":"gpus","t":NaN}',
        b'{"type":"gpus","t":Infinity}',
        b'{"type":"gpus","t":1e999}',
        b'{"type":"gpus","t":1e15}',
        b'{"type":"gpus","t":true}',
        b'{"type":"gpus","t":1,"gpus":[{"index":0,"power_w":NaN}]}',
        b'{"type":"gpus","t":1,"gpus":[{"index":0,"power_w":"700 W"}]}',
        b'{"type":"gpus","t":1,"gpus":[{"index":0,"power_w":1e300}]}',
        b'{"type":"gpus","t":1,"gpus":[{"index":-1}]}',
        b'{"type":"gpus","t":1,"gpus":[{"index":99999999999999999999}]}',
        b'{"type":"log","t":1,"source":"s","line":"\\ud800"}',
        b'{"type":"log","t":1,"source":"s","line":"\xff\xfe"}',
        b'{"type":"gpus","t":1}{"type":"gpus","t":2}',
        b'{"type":"gpus","t":1,"gpus":' + b"[" * 200_000 + b"]" * 200_000 + b"}",
        b'{"type":"status","t":1,"code":"c","message":"m","detail":{"a":' + b"[" * 40 + b"]" * 40 + b"}}",
        b'{"type":"gpus","t":1,"gpus":[' + b'{"index":1},' * 5000 + b'{"index":2}]}',
        b'{"type":"log","t":1,"source":"s","line":"' + b"x" * MAX_LINE_BYTES + b'"}',
    ],
    ids=lambda line: repr(line[:60]),
)
def test_what_is_no_frame_is_malformed_and_nothing_is_raised(line: bytes) -> None:
    assert isinstance(decode(line), Malformed)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_decode_to_a_value(line: bytes) -> None:
    assert isinstance(decode(line), (Malformed, Unknown))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(["hello", "gpus", "log", "server", "inventory", "status"]),
    st.dictionaries(
        st.sampled_from(["t", "gpus", "source", "line", "name", "argv", "args", "env", "detail", "code", "server"]),
        _JSON,
    ),
)
def test_a_frame_with_any_content_decodes_or_is_malformed_and_stays_valid_json(kind: str, body: dict) -> None:
    frame, line = clean(json.dumps({"t": 1.0, **body, "type": kind}).encode())
    if not isinstance(frame, (Malformed, Unknown)):
        assert math.isfinite(frame.t)
        assert decode(encode(frame)) == frame
        assert json.loads(line)["type"] == kind


def test_secrets_are_gone_from_the_frame_and_from_the_line_that_is_recorded() -> None:
    server = {
        "type": "server",
        "t": 1,
        "name": "s",
        "argv": ["serve", "--api-key", "geheim-1", "--url=http://bob:geheim-2@h/"],
        "args": {"api_key": "geheim-3", "port": 30000, "nested": {"hf_token": "geheim-4"}},
        "env": {"HF_TOKEN": "geheim-5", "NCCL_DEBUG": "INFO"},
        "future": {"password": "geheim-6"},
    }
    log = {"type": "log", "t": 1, "source": "s", "line": "server_args=ServerArgs(api_key='geheim-7', port=1)"}
    told = (
        {"type": "hello", "t": 1, "notes": ["cannot read: token=geheim-81", "b"]},
        {"type": "server", "t": 1, "name": "s", "log": {"kind": "pipe", "why": "tee token=geheim-82"}},
        {"type": "inventory", "t": 1, "server": "s", "notes": ["token=geheim-83"]},
        {"type": "status", "t": 1, "code": "x", "message": "m", "detail": {"pairs": [["hf_token", "geheim-84"]]}},
        {"type": "server", "t": 1, "name": "s", "notes": ["args [('secret','geheim-85')] {'api_key': b'geheim-86'}"]},
    )
    for content in (server, log, *told):
        frame, line = clean(json.dumps(content).encode())
        assert b"geheim" not in line
        assert b"geheim" not in encode(frame)
        assert b"***" in line
    frame = decode(json.dumps(server).encode())
    assert isinstance(frame, Server)
    assert frame.args["port"] == 30000
    assert frame.env["NCCL_DEBUG"] == "INFO"


def test_a_host_is_put_into_a_line_that_names_none_and_replaces_another() -> None:
    for raw in (sample(1.5), sample(1.5, "old"), b'  { "type": "gpus", "t": 1.5, "gpus": [] }'):
        frame = decode(with_host(raw, 'new"host'))
        assert isinstance(frame, Gpus)
        assert (frame.host, frame.t) == ('new"host', 1.5)


# ── reading ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("content", "words"), [(None, "no such file"), (b"", "is empty"), (b"a,b\n1,2\n", "is not a recording")]
)
def test_a_file_that_is_no_recording_is_refused_in_one_sentence(
    tmp_path: Path, content: bytes | None, words: str
) -> None:
    path = tmp_path / "r.jsonl"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=words) as caught:
        open_recording(path)
    assert caught.value.exit_code == 2
    assert str(path) in caught.value.sentence()


def test_a_directory_is_no_recording(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="directory"):
        open_recording(tmp_path)


def test_a_recording_cut_in_the_middle_of_a_line_plays_up_to_there(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_bytes(HELLO + b"\n" + sample(1) + b"\n" + sample(2)[:30])
    (transport,) = open_recording(path, speed=0)
    assert transport.faults == ("the recording ends in the middle of a line",)
    assert frames_only(transport) == [HELLO, sample(1)]


def test_a_compressed_recording_plays_and_a_cut_one_plays_up_to_there(tmp_path: Path) -> None:
    whole = tmp_path / "r.jsonl.gz"
    lines = [HELLO] + [sample(t / 10) for t in range(3000)]
    whole.write_bytes(gzip.compress(b"\n".join(lines)))
    (transport,) = open_recording(whole, speed=0)
    assert play(transport) == lines
    assert transport.faults == ()
    cut = tmp_path / "cut.jsonl.gz"
    cut.write_bytes(whole.read_bytes()[: whole.stat().st_size * 3 // 4])
    (transport,) = open_recording(cut, speed=0)
    assert transport.faults == ("the recording ends in the middle of a line",)
    played = frames_only(transport)
    assert lines[: len(played)] == played
    assert len(played) > 100


def test_an_over_long_line_is_counted_and_the_rest_plays(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "r.jsonl", HELLO, b"x" * (MAX_LINE_BYTES * 2), sample(1))
    (transport,) = open_recording(path, speed=0)
    assert transport.faults == ("1 line of the recording is no frame",)
    assert frames_only(transport) == [HELLO, sample(1)]


def test_a_snapshot_of_a_cut_recording_says_so_on_standard_error_and_in_its_notes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    path = tmp_path / "cut.jsonl.gz"
    packed = gzip.compress(b"\n".join([HELLO] + [sample(t / 10) for t in range(3000)]))
    path.write_bytes(packed[: len(packed) // 2])
    assert main(["--replay", str(path), "--snapshot", "-"]) == 0
    out, err = capsys.readouterr()
    assert err == "moetop: the recording ends in the middle of a line\n"
    assert "the recording ends in the middle of a line" in json.loads(out)["hosts"][0]["notes"]


def test_a_damaged_recording_says_so_after_every_hello_that_would_end_it(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "r.jsonl", HELLO, b"x", sample(1), b"y", HELLO, sample(2)[:30])
    path.write_bytes(path.read_bytes().rstrip())
    (transport,) = open_recording(path, speed=0)
    evidence = HostEvidence("r")
    for raw in play(transport):
        frame = decode(raw)
        assert not isinstance(frame, (Unknown, Malformed))
        evidence.apply(frame)
    assert evidence.report().notes == (
        "the recording ends in the middle of a line",
        "2 lines of the recording are no frames",
    )


def test_several_hosts_of_one_file_become_one_transport_each(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "r.jsonl", sample(0, "a"), sample(0, "b"), sample(1, "a"), sample(2, "b"), sample(3))
    a, b = open_recording(path, speed=0)
    assert (a.name, play(a)) == ("a", [sample(0, "a"), sample(1, "a")])
    assert (b.name, play(b)) == ("b", [sample(0, "b"), sample(2, "b"), sample(3)])


def test_a_recording_without_any_name_takes_the_name_of_its_file(tmp_path: Path) -> None:
    (transport,) = open_recording(write_lines(tmp_path / "night.jsonl.gz", sample(0)))
    assert transport.name == "night"


def test_from_and_to_cut_the_samples_and_keep_what_was_known_before(tmp_path: Path) -> None:
    log = b'{"type":"log","t":1,"source":"s","line":"x"}'
    path = write_lines(tmp_path / "r.jsonl", HELLO, log, *[sample(t) for t in range(1, 10)])
    (transport,) = open_recording(path, speed=0, from_s=4, to_s=6)
    assert play(transport) == [HELLO, log, sample(4), sample(5), sample(6)]
    with pytest.raises(UsageError, match="only 9 s long"):
        open_recording(path, from_s=60)
    with pytest.raises(UsageError, match="--to must lie after --from"):
        open_recording(path, from_s=5, to_s=5)


def test_read_frames_gives_typed_frames_and_passes_over_the_rest(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "r.jsonl", HELLO, b"noise", sample(1))
    assert [type(frame) for frame in read_frames(path)] == [Hello, Gpus]


# ── playing ──────────────────────────────────────────────────────────────────────────────────────


def test_a_replay_keeps_the_frames_own_pace_times_speed() -> None:

    begun = time.monotonic()
    assert len(play(FrameTransport("h", lambda: iter([sample(0), sample(2), sample(4)]), speed=20))) == 3
    assert 0.19 <= time.monotonic() - begun < 3.5, "faster than the frames themselves"


def test_a_silence_of_the_whole_recording_is_cut_short(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "r.jsonl", sample(0), sample(10), sample(86_400), sample(86_401))
    playtime = index_recording(path).playtime
    assert [playtime.at(t) for t in (0, 10, 86_400, 86_401)] == [0, 10, 70, 71]


def test_a_loop_goes_on_with_growing_times_until_it_is_closed() -> None:
    frames = [{"type": "gpus", "t": t, "gpus": []} for t in (5.0, 6.0)]
    channel = FrameTransport("h", lambda: iter(frames), speed=0, loop=True).open({})
    times = []
    for raw in channel.lines():
        times.append(json.loads(raw)["t"])
        if len(times) == 6:
            channel.close()
    assert times == [5, 6, 7, 8, 9, 10]


def test_closing_ends_a_replay_that_waits_for_its_next_frame() -> None:
    channel = FrameTransport("h", lambda: iter([sample(0), sample(1000)])).open({})
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.extend(channel.lines()))
    reader.start()
    channel.close()
    reader.join(5)
    assert not reader.is_alive()
    assert len(got) <= 1


# ── writing ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["r.jsonl", "r.jsonl.gz"])
def test_what_is_recorded_plays_again_and_a_second_session_is_appended(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    for start in (0, 10):
        recorder = Recorder(path)
        for t in range(start, start + 3):
            recorder.write("a", sample(t))
            recorder.write("b", sample(t))
        recorder.close()
        assert (recorder.frames, recorder.error) == (6, None)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    a, b = open_recording(path, speed=0)
    assert [json.loads(line)["t"] for line in play(a)] == [0, 1, 2, 10, 11, 12]
    assert [json.loads(line)["host"] for line in play(b)] == ["b"] * 6


def test_appending_after_a_cut_line_loses_only_that_line(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_bytes(sample(0, "a") + b"\n" + sample(1, "a")[:20])
    recorder = Recorder(path)
    recorder.write("a", sample(2))
    recorder.close()
    assert [frame.t for frame in read_frames(path)] == [0, 2]


def test_a_file_that_is_no_recording_is_never_written_over(tmp_path: Path) -> None:
    path = tmp_path / "thesis.txt"
    path.write_text("years of work\n")
    with pytest.raises(UsageError, match="is no recording"):
        Recorder(path)
    assert path.read_text() == "years of work\n"


def test_a_place_that_cannot_be_written_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file or directory"):
        Recorder(tmp_path / "nowhere" / "r.jsonl")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_stops_the_recording_in_words_and_nothing_else() -> None:
    recorder = Recorder("/dev/full")
    for t in range(100):
        recorder.write("a", sample(t))
    recorder.close()
    assert isinstance(recorder.error, MoetopError)
    assert "no space left" in recorder.error.sentence()
    recorder.write("a", sample(1))


def test_frames_reach_the_disk_within_seconds_so_that_a_kill_loses_little(tmp_path: Path) -> None:

    path = tmp_path / "r.jsonl"
    recorder = Recorder(path)
    recorder.write("a", sample(0))
    deadline = time.monotonic() + 10
    while not path.stat().st_size and time.monotonic() < deadline:
        time.sleep(0.02)
    assert [type(frame) for frame in read_frames(path)] == [Gpus]
    recorder.close()


def test_log_and_status_frames_keep_every_key(tmp_path: Path) -> None:
    log = Log(t=1, source="s", line="x", offset=17, history=True, skipped=3, counts={"http_access": 3})
    status = Status(t=1, code="log_gap", message="12 lines lost", source="s", detail={"lines": 12})
    assert decode(encode(log)) == log
    assert decode(encode(status)) == status
