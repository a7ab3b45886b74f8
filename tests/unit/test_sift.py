"""A big log is read in the time grep takes, and what is said of it is what reading every line would say."""

from __future__ import annotations

import io
import itertools
import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest

from moetop.model import HostReport, ServerReport
from moetop.probe.sieve import gnu_grep
from moetop.triage import offline, sift
from moetop.triage.offline import build_offline
from tests.bench_scan import make_log, ordinary
from tests.unit.test_cases import LOADED

pytestmark = pytest.mark.skipif(gnu_grep() is None, reason="needs GNU grep")

STORIES = [
    case["input"] if case["door"] == "log" else case["log_input"]
    for case in LOADED.values()
    if case["door"] == "log" or "log_input" in case
]


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds so small that a file of a few megabytes has stretches of every sort."""
    monkeypatch.setattr(sift, "SIFT_FROM_BYTES", 1 << 20)
    monkeypatch.setattr(sift, "SMALL_GAP_BYTES", 16 * 1024)
    monkeypatch.setattr(sift, "BLOCK_BYTES", 64 * 1024)
    monkeypatch.setattr(sift, "TAIL_LINES", 500)


def sifted(path: Path) -> HostReport:
    with path.open("rb") as stream:
        assert sift.can_sift(stream)
        return build_offline(log=("log", sift.sift(stream)), window_s=2.0).report()


def read_whole(path: Path) -> HostReport:
    with path.open("rb") as stream:
        lines = [sift.decoded(raw) for raw in stream]
    return build_offline(log=("log", lines), window_s=2.0).report()


def server(report: HostReport) -> ServerReport:
    return report.servers[0]


def story_log(path: Path, stories: list[str], lines_between: int, seed: int = 3) -> None:
    """What people pasted, one after the other, with the lines of a busy server between."""
    source = ordinary(random.Random(seed))
    with path.open("w", encoding="utf-8", errors="surrogateescape") as out:
        for story in stories:
            out.write(story.rstrip("\n") + "\n")
            out.writelines(line + "\n" for line in itertools.islice(source, lines_between))


def told(report: HostReport) -> dict[str, object]:
    """A report without a server's present numbers: those of a log that mixes many servers are no server's."""
    plain = msgspec.to_builtins(report)
    for one in plain["servers"]:
        del one["metrics"]
    for finding in plain["findings"]:
        finding["evidence"] = [text for text in finding["evidence"] if not text.startswith("Server: ")]
    return plain


@pytest.mark.parametrize("seed", range(2))
def test_pasted_stories_in_a_busy_log_are_told_as_if_every_line_were_read(
    tmp_path: Path, narrow: None, seed: int
) -> None:
    chosen = random.Random(seed).sample(STORIES, 6)
    story_log(tmp_path / "log", chosen, 2500, seed)
    quick, slow = sifted(tmp_path / "log"), read_whole(tmp_path / "log")
    assert told(quick) == told(slow)


def test_most_lines_are_counted_without_being_read(tmp_path: Path, narrow: None) -> None:
    story_log(tmp_path / "log", STORIES[:3], 8000)
    with (tmp_path / "log").open("rb") as stream:
        pieces = list(sift.sift(stream))
        total = sum(1 for _ in stream.seek(0) or stream)
    assert len(pieces) < total / 4
    assert len(pieces) + sum(piece.skipped for piece in pieces) == total
    assert pieces[-1].line == (tmp_path / "log").read_text().splitlines()[-1]


def test_the_last_lines_are_all_told(tmp_path: Path, narrow: None) -> None:
    story_log(tmp_path / "log", STORIES[:1], 9000)
    with (tmp_path / "log").open("rb") as stream:
        lines = [piece.line for piece in sift.sift(stream)]
    assert lines[-500:] == (tmp_path / "log").read_text().splitlines()[-500:]


def test_a_kind_of_noise_that_the_sample_did_not_show_is_counted_as_well(tmp_path: Path, narrow: None) -> None:
    path = tmp_path / "log"
    rare = "[2026-06-28 14:00:05 TP0] Decode batch, #running-req: 1, #token: 9, gen throughput (token/s): 2.1\n"
    path.write_text("a plain line of a server without any meaning\n" * 40_000 + rare * 3 + "other words\n" * 40_000)
    assert server(sifted(path)).counts == {"throughput": 3} == server(read_whole(path)).counts


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_long_lines_bad_bytes_and_any_line_end_change_nothing(tmp_path: Path, narrow: None, end: str) -> None:
    path = tmp_path / "log"
    filler = b'INFO: 10.0.0.1:44444 - "POST /v1/x HTTP/1.1" 200 OK\r\n' * 20_000
    event = b"\xff\xfe [2026-06-28 13:40:00] The server is fired up and ready to roll!\0\r\n"
    path.write_bytes(b"x" * 300_000 + b"\n" + filler + event + filler + b"y" * 200_000 + b"\n" + event + end.encode())
    quick, slow = server(sifted(path)), server(read_whole(path))
    assert quick.counts == slow.counts and quick.events == slow.events
    assert quick.counts["http_access"] == 40_000


def test_small_files_pipes_and_half_read_files_are_read_line_by_line(tmp_path: Path, narrow: None) -> None:
    path = tmp_path / "log"
    path.write_text("words\n" * 1000)
    with path.open("rb") as stream:
        assert not sift.can_sift(stream)
    path.write_text("words\n" * 400_000)
    with path.open("rb") as stream:
        stream.readline()
        assert not sift.can_sift(stream)
    assert not sift.can_sift(io.BytesIO(b"words\n" * 400_000))
    read, write = os.pipe()
    with os.fdopen(read, "rb") as stream, os.fdopen(write, "wb"):
        assert not sift.can_sift(stream)


def test_grep_is_gone_when_nobody_reads_on(tmp_path: Path, narrow: None) -> None:
    make_log(tmp_path / "log", 8 << 20)
    with (tmp_path / "log").open("rb") as stream:
        pieces = sift.sift(stream)
        next(pieces)
        pieces.close()
    mine = Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split()
    assert not [pid for pid in mine if "grep" in Path(f"/proc/{pid}/comm").read_text()]


def test_somebody_who_waits_is_told_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offline, "PATIENCE_S", 0.0)
    (tmp_path / "server.log").write_text("words\n" * 10)
    said: list[str] = []
    transport = offline.offline_transport(
        log=str(tmp_path / "server.log"), smi_log=None, metrics=None, window_s=2.0, say=said.append
    )
    list(transport.open({}).lines())
    assert said and said[0] == "reading server.log: 0 MiB"


@pytest.mark.slow
def test_a_log_of_60_mib_gives_the_same_report_both_ways(tmp_path: Path) -> None:
    make_log(tmp_path / "log", 60 << 20)
    quick, slow = sifted(tmp_path / "log"), read_whole(tmp_path / "log")
    assert quick == slow
    assert server(quick).counts["http_access"] > 100_000


PEAK = """
import resource, sys
from moetop.cli import main
code = main(["--log", "-", "--snapshot", "/dev/null"])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, code)
"""


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_log_from_a_pipe_is_read_in_bounded_memory(tmp_path: Path) -> None:
    """Peak memory after 75 MiB is not 15 MiB above that after 25 MiB."""
    make_log(tmp_path / "log", 25 << 20)
    data = (tmp_path / "log").read_bytes()
    peaks = []
    for times in (1, 3):
        child = subprocess.Popen([sys.executable, "-c", PEAK], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert child.stdin is not None and child.stdout is not None
        for _ in range(times):
            child.stdin.write(data)
        child.stdin.close()
        peak, code = child.stdout.read().split()
        assert child.wait(10) == 0 and code == b"0"
        peaks.append(int(peak))
    assert peaks[1] - peaks[0] < 15, peaks
