"""The history of a log is searched on the host: every event line, in order, in bounded memory."""

from __future__ import annotations

import itertools
import os
import random
from pathlib import Path
from typing import Any

import pytest

from moetop.probe import scan, sieve
from moetop.probe.lines import Matcher, Picker
from moetop.probe.scan import HistoryScan, split_ranges
from moetop.probe.sieve import choose_fragments, gnu_grep

LITERALS = ("autotun", "default moe", "server_args=", "out of memory", "traceback", "[x](y)*")
NOISE = {"http_access": ("http/1.",), "throughput": ("decode batch",)}
ACCESS = '[2026-06-28 14:00:05] INFO:     10.0.0.1:44444 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
DECODE = "[2026-06-28 14:00:05 TP0] Decode batch, #running-req: 12, gen throughput (token/s): 245.11, #queue-req: 0\n"
needs_grep = pytest.mark.skipif(gnu_grep() is None, reason="needs GNU grep")


class Result:
    """What one scan sent."""

    def __init__(self, path: Path, start: int = 0, end: int | None = None) -> None:
        self.frames: list[dict[str, Any]] = []
        self.status: list[tuple[str, dict[str, Any]]] = []
        matcher = Matcher(LITERALS, NOISE)
        picker = Picker("log", matcher, lambda frame, event: self.frames.append(frame))
        history = HistoryScan(picker, self._note, lambda: False)
        with path.open("rb") as log:
            history.run(log.fileno(), start, os.fstat(log.fileno()).st_size if end is None else end)
        history.wait_counted()
        history.poll()

    def _note(self, code: str, message: str, level: str = "info", detail: dict[str, Any] | None = None) -> None:
        self.status.append((code, detail or {}))

    @property
    def lines(self) -> list[str]:
        return [frame["line"] for frame in self.frames if frame["line"]]

    @property
    def counts(self) -> dict[str, int]:
        return self.frames[-1].get("counts", {})


def make_log(path: Path, events: dict[int, str], lines: int = 30000) -> list[str]:
    """A log with an event after so many lines; the event lines in order."""
    rng = random.Random(4)
    with path.open("w") as out:
        for n in range(lines):
            if n in events:
                out.write(events[n] + "\n")
            out.write(rng.choice((ACCESS, DECODE, f"[2026] a plain message {rng.random()}\n")))
    return [events[n] for n in sorted(events)]


EVENTS = {
    0: "server_args=ServerArgs(model_path='m')",
    777: "[Autotuner]: Autotuning process starts ...",
    9000: "Using DEFAULT MoE kernel config",
    15000: "odd [X](y)* signs",
    29999: "Traceback (most recent call last):",
}


@pytest.fixture(params=["grep", "here"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to search: grep in several parts, and this process alone."""
    if request.param == "grep":
        if gnu_grep() is None:
            pytest.skip("needs GNU grep")
        monkeypatch.setattr(scan, "GREP_FROM_BYTES", 0)
        monkeypatch.setattr(scan, "BYTES_A_WORKER", 1 << 20)
    else:
        monkeypatch.setattr(scan, "gnu_grep", lambda: None)
    return str(request.param)


def test_every_event_line_is_found_in_order_whatever_its_case(tmp_path: Path, way: str) -> None:
    wanted = make_log(tmp_path / "log", EVENTS)
    result = Result(tmp_path / "log")
    assert result.lines == wanted
    assert all(frame.get("history") for frame in result.frames)
    assert result.status[-1][0] == "scan_done"


def test_each_line_says_where_reading_would_go_on_after_it(tmp_path: Path, way: str) -> None:
    make_log(tmp_path / "log", EVENTS)
    data = (tmp_path / "log").read_bytes()
    for frame in Result(tmp_path / "log").frames[:-1]:
        assert data[: frame["offset"]].endswith(frame["line"].encode() + b"\n")


def test_the_lines_that_stay_are_counted_by_kind(tmp_path: Path, way: str) -> None:
    make_log(tmp_path / "log", EVENTS)
    text = (tmp_path / "log").read_text()
    result = Result(tmp_path / "log")
    assert result.counts == {"http_access": text.count("HTTP/1."), "throughput": text.count("Decode batch")}
    assert result.frames[-1]["skipped"] == text.count("\n") - len(EVENTS)


def test_only_the_asked_part_is_searched(tmp_path: Path, way: str) -> None:
    make_log(tmp_path / "log", EVENTS)
    data = (tmp_path / "log").read_bytes()
    start = data.find(b"[Autotuner]")
    end = data.find(b"odd [X]")
    assert Result(tmp_path / "log", start, end).lines == [EVENTS[777], EVENTS[9000]]


def test_huge_lines_zero_bytes_and_broken_utf8_hide_no_event(tmp_path: Path, way: str) -> None:
    path = tmp_path / "log"
    path.write_bytes(
        b"A" * 60000 + b" autotun early in a long line " + b"B" * 6_000_000 + b"\n"
        + b"\0\0\xff\xfe traceback \xe2\x96\x88\n"
        + (b"\rbar 10%" * 20000 + b"\rout of memory, the last bar\n")
        + b"plain\n" * 50
    )  # fmt: skip
    result = Result(path)
    assert [line[:3] for line in result.lines][:2] == ["AAA", "\0\0\ufffd"]
    assert all(len(line) < 75000 for line in result.lines)


def test_of_a_kind_repeated_very_often_the_first_and_the_newest_are_kept(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "FIRST_KEPT", 3)
    monkeypatch.setattr(scan, "NEWEST_KEPT", 5)
    path = tmp_path / "log"
    path.write_text("".join(f"autotun {n}\n" for n in range(20000)) + "traceback\n")
    result = Result(path)
    kept = [int(line.split()[1]) for line in result.lines[:-1]]
    assert kept[:3] == [0, 1, 2] and kept[-5:] == list(range(19995, 20000)) and len(kept) == 8
    assert result.lines[-1] == "traceback"
    assert result.status[-1][1]["events"] == 20001 and result.status[-1][1]["sent"] == 9


def test_lines_repeated_very_often_do_not_push_out_others_with_the_same_literal(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "FIRST_KEPT", 3)
    monkeypatch.setattr(scan, "NEWEST_KEPT", 5)
    path = tmp_path / "log"
    begin, skip = "Autotuning process starts\n", "".join(f"Autotuner: Skipping tactic {n}\n" for n in range(5000))
    path.write_text((begin + skip) * 4 + "Autotuning process ends\n")
    lines = Result(path).lines
    assert lines.count("Autotuning process starts") == 4 and lines[-1] == "Autotuning process ends"
    assert len(lines) == 4 + 8 + 1


def test_a_log_without_any_event_sends_nothing_but_counts(tmp_path: Path, way: str) -> None:
    (tmp_path / "log").write_text(ACCESS * 3000)
    result = Result(tmp_path / "log")
    assert result.lines == [] and result.counts == {"http_access": 3000}


@needs_grep
def test_parts_for_parallel_search_cover_the_file_and_end_at_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "BYTES_A_WORKER", 1000)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    make_log(tmp_path / "log", EVENTS, 1000)
    data = (tmp_path / "log").read_bytes()
    with (tmp_path / "log").open("rb") as log:
        parts = split_ranges(log.fileno(), 0, len(data))
    assert len(parts) == 8
    assert parts[0][0] == 0 and parts[-1][1] == len(data)
    assert all(one[1] == two[0] and data[one[1] - 1 : one[1]] == b"\n" for one, two in itertools.pairwise(parts))


def test_fragments_avoid_what_the_log_is_full_of() -> None:
    sample = ("using default port " * 2000).encode()
    (fragment,) = choose_fragments([b"using default moe kernel"], sample)
    assert fragment not in sample and len(fragment) == sieve.FRAGMENT_BYTES


@needs_grep
def test_every_grep_is_gone_when_a_scan_is_stopped(tmp_path: Path) -> None:
    make_log(tmp_path / "log", EVENTS, 200000)
    picker = Picker("log", Matcher(LITERALS, NOISE), lambda frame, event: None)
    history = HistoryScan(picker, lambda *args, **more: None, lambda: True)
    with (tmp_path / "log").open("rb") as log:
        history.run(log.fileno(), 0, os.fstat(log.fileno()).st_size)
        mine = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    assert [pid for pid in mine if "grep" in Path(f"/proc/{pid}/comm").read_text()] == []
