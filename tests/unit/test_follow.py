"""A log file is followed by name: no line twice, none lost, and what the system loses is said."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from moetop.probe import follow, lines
from moetop.probe.follow import FileFollower
from moetop.probe.lines import Matcher, Picker
from moetop.probe.openlog import position
from moetop.probe.scan import HistoryScan

LITERALS = ("autotun", "ready to roll", "traceback")
NOISE = {"http_access": ("http/1.",), "throughput": ("decode batch",)}


class Heard:
    """Frames of one follower, with waiting."""

    def __init__(self) -> None:
        self.frames: list[dict[str, Any]] = []
        self.changed = threading.Condition()

    def emit(self, frame: dict[str, Any], is_event: bool) -> None:
        with self.changed:
            self.frames.append(dict(frame, event=is_event))
            self.changed.notify_all()

    def status(self, code: str, message: str, level: str = "info", detail: dict[str, Any] | None = None) -> None:
        self.emit({"type": "status", "code": code, "message": message, "level": level, "detail": detail or {}}, False)

    def lines(self) -> list[str]:
        return [frame["line"] for frame in self.frames if frame["type"] == "log" and frame["line"]]

    def codes(self) -> list[str]:
        return [frame["code"] for frame in self.frames if frame["type"] == "status" and frame["code"] != "log_position"]

    def message(self, code: str) -> str:
        return next(frame["message"] for frame in self.frames if frame.get("code") == code)

    def wait(self, done: Callable[[], bool], seconds: float = 10.0) -> None:
        with self.changed:
            assert self.changed.wait_for(done, seconds), (self.lines()[-5:], self.codes())

    def wait_lines(self, *wanted: str) -> None:
        self.wait(lambda: self.lines()[-len(wanted) :] == list(wanted))

    def counted(self) -> int:
        return sum(frame.get("skipped", 0) for frame in self.frames)


class Desk:
    """Starts followers of one path and ends them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.running: list[FileFollower] = []

    def follow(self, resume: dict[str, Any] | None = None, history: bool = True, tail: int = 200, **more: Any) -> Heard:
        heard = Heard()
        picker = Picker(str(self.path), Matcher(LITERALS, NOISE), heard.emit)
        scan = HistoryScan(picker, heard.status, lambda: False) if history else None
        follower = FileFollower(str(self.path), picker, heard.status, resume, scan, tail, **more)
        self.running.append(follower)
        follower.start()
        return heard

    def stop(self) -> None:
        for follower in self.running:
            follower.stop()
        self.running.clear()


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.setattr(follow, "POLL_S", 0.02)
    desk = Desk(tmp_path / "server.log")
    yield desk
    desk.stop()


def append(path: Path, text: str | bytes) -> None:
    with path.open("ab") as out:
        out.write(text.encode() if isinstance(text, str) else text)


def test_new_lines_arrive_once_in_order_with_the_place_after_each(desk: Desk) -> None:
    append(desk.path, "one\n")
    heard = desk.follow()
    heard.wait_lines("one")
    append(desk.path, "two\nthree\n")
    heard.wait_lines("one", "two", "three")
    assert [frame["offset"] for frame in heard.frames if frame["type"] == "log"] == [4, 8, 14]


def test_a_line_is_not_sent_before_it_is_complete(desk: Desk) -> None:
    append(desk.path, "start\n")
    heard = desk.follow()
    heard.wait_lines("start")
    append(desk.path, "half a ")
    append(desk.path, "line\nnext\n")
    heard.wait_lines("start", "half a line", "next")


def test_bars_without_a_newline_are_sent_while_they_grow_and_never_twice(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "BAR_WAIT_S", 0.1)
    append(desk.path, "start\n")
    heard = desk.follow()
    heard.wait_lines("start")
    append(desk.path, "\r 10%|#  |\r 20%|## |\r 30%|###|")
    heard.wait(lambda: len(heard.lines()) == 2)
    append(desk.path, "\r100%|####|\nafter\n")
    heard.wait(lambda: heard.lines()[-1] == "after")
    segments = [part for line in heard.lines()[1:-1] for part in line.split("\r") if part]
    assert segments == [" 10%|#  |", " 20%|## |", " 30%|###|", "100%|####|"]


def test_a_last_line_without_newline_is_sent_after_a_long_silence(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "LINE_WAIT_S", 0.2)
    append(desk.path, "start\nSegmentation fault")
    heard = desk.follow()
    heard.wait_lines("start", "Segmentation fault")


def test_renamed_away_and_created_anew(desk: Desk) -> None:
    append(desk.path, "old 1\n")
    heard = desk.follow()
    heard.wait_lines("old 1")
    append(desk.path, "old 2\n")
    desk.path.rename(desk.path.with_suffix(".log.1"))
    append(desk.path.with_suffix(".log.1"), "old 3\n")
    append(desk.path, "new 1\n")
    heard.wait_lines("old 1", "old 2", "old 3", "new 1")
    assert heard.codes().count("log_rotated") == 1


def test_a_writer_that_keeps_the_renamed_file_is_still_heard(desk: Desk) -> None:
    writer = desk.path.open("ab", buffering=0)
    writer.write(b"before\n")
    heard = desk.follow()
    heard.wait_lines("before")
    desk.path.rename(desk.path.with_suffix(".log.1"))
    desk.path.touch()
    writer.write(b"into the renamed file\n")
    heard.wait_lines("before", "into the renamed file")
    append(desk.path, "into the new one\n")
    heard.wait_lines("into the new one")
    writer.write(b"and once more into the old\n")
    heard.wait_lines("and once more into the old")
    writer.close()


def test_deleted_and_created_again(desk: Desk) -> None:
    append(desk.path, "first\n")
    heard = desk.follow()
    heard.wait_lines("first")
    desk.path.unlink()
    heard.wait(lambda: "log_missing" in heard.codes())
    append(desk.path, "second\n")
    heard.wait_lines("first", "second")


def test_a_symbolic_link_that_is_switched_leads_to_the_new_file(desk: Desk, tmp_path: Path) -> None:
    append(tmp_path / "a", "in a\n")
    append(tmp_path / "b", "in b\n")
    desk.path.symlink_to(tmp_path / "a")
    heard = desk.follow()
    heard.wait_lines("in a")
    fresh = tmp_path / "link"
    fresh.symlink_to(tmp_path / "b")
    fresh.replace(desk.path)
    heard.wait_lines("in a", "in b")


def test_copy_and_truncate_takes_the_rest_from_the_copy_and_says_what_may_be_lost(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(desk.path, "".join(f"line {n}\n" for n in range(50)))
    heard = desk.follow()
    heard.wait_lines("line 49")
    monkeypatch.setattr(follow, "POLL_S", 0.5)
    time.sleep(0.05)  # the follower now sleeps its longer pause
    append(desk.path, "seen only in the copy\n")
    desk.path.with_suffix(".log.1").write_bytes(desk.path.read_bytes())
    os.truncate(desk.path, 0)
    append(desk.path, "after\n")
    heard.wait_lines("line 49", "seen only in the copy", "after")
    assert len(heard.lines()) == len(set(heard.lines())) == 52
    assert "may be lost" in heard.message("log_truncated")


def test_truncated_and_already_longer_than_before_is_noticed_by_content(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(desk.path, "a short log\n")
    heard = desk.follow()
    heard.wait_lines("a short log")
    desk.path.write_text("something else, longer than the log was before\nand more\n")
    heard.wait_lines("a short log", "something else, longer than the log was before", "and more")
    assert "log_truncated" in heard.codes()


def test_the_hole_that_a_truncation_leaves_before_a_writer_is_no_line(desk: Desk) -> None:
    with desk.path.open("wb", buffering=0) as writer:  # not O_APPEND: it keeps its place
        writer.write(b"x" * 5000 + b" before\n")
        heard = desk.follow()
        heard.wait(lambda: len(heard.lines()) == 1)
        os.truncate(desk.path, 0)
        writer.write(b"after the cut\n")
        heard.wait(lambda: heard.lines()[-1] == "after the cut")
        writer.write(b"and on\n")
        heard.wait_lines("after the cut", "and on")


def test_a_log_that_is_not_there_yet_is_waited_for(desk: Desk) -> None:
    heard = desk.follow()
    heard.wait(lambda: heard.codes() == ["log_missing"])
    append(desk.path, "at last\n")
    heard.wait_lines("at last")
    levels = [frame["level"] for frame in heard.frames if frame.get("code") == "log_missing"]
    assert levels == ["warning", "info"]  # said again at level info: it is over


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become another user")
def test_a_log_that_may_not_be_read_is_said_with_the_fix(desk: Desk) -> None:
    append(desk.path, "secret\n")
    desk.path.chmod(0o600)
    for folder in desk.path.parents:
        if folder.stat().st_mode & 0o005 != 0o005:
            folder.chmod(0o755)
    result: list[str] = []
    pid = os.fork()
    if pid == 0:
        os.setuid(65534)
        heard = Heard()
        picker = Picker("x", Matcher(LITERALS, NOISE), heard.emit)
        FileFollower(str(desk.path), picker, heard.status).step()
        os._exit(0 if heard.codes() == ["log_denied"] and "read permission" in heard.message("log_denied") else 1)
    result.append(str(os.waitpid(pid, 0)[1]))
    assert result == ["0"]


def test_going_on_after_a_reconnect_reads_no_line_twice(desk: Desk) -> None:
    append(desk.path, "one\ntwo\n")
    heard = desk.follow()
    heard.wait_lines("one", "two")
    desk.stop()
    append(desk.path, "three\n")
    again = desk.follow({"offset": heard.frames[-1].get("offset") or 8})
    again.wait_lines("three")
    assert again.lines() == ["three"]


def told(heard: Heard) -> list[str]:
    """Lines, and what is said of the past, in the order in which they came."""
    words = [frame["line"] if frame["type"] == "log" else frame["code"] for frame in heard.frames]
    return [word for word in words if word in ("log_behind", "log_read") or not word.startswith("log_")]


def test_lines_of_the_past_stand_between_the_words_that_say_so(desk: Desk) -> None:
    append(desk.path, "old\n")
    heard = desk.follow()
    heard.wait(lambda: told(heard) == ["log_behind", "old", "log_read"])
    append(desk.path, "live\n")
    heard.wait_lines("old", "live")
    with desk.path.open("rb") as file:
        place = position(file.fileno(), file.seek(0, 2))
    desk.stop()
    append(desk.path, "while away\n")
    again = desk.follow(resume=place)
    again.wait(lambda: told(again) == ["log_behind", "while away", "log_read"])
    desk.path.rename(desk.path.with_name("server.log.1"))
    append(desk.path, "of a new file\n")
    again.wait(lambda: told(again)[3:] == ["log_behind", "of a new file", "log_read"])


def test_a_log_rotated_during_the_absence_is_read_to_its_end_first(desk: Desk) -> None:
    append(desk.path, "one\ntwo\n")
    with desk.path.open("rb") as log:
        place = position(log.fileno(), 4)
    append(desk.path, "three\n")
    desk.path.rename(desk.path.with_suffix(".log.1"))
    append(desk.path, "four\n")
    heard = desk.follow(place)
    heard.wait_lines("two", "three", "four")
    assert heard.lines() == ["two", "three", "four"]


def test_several_rotations_during_the_absence_are_read_one_after_the_other(desk: Desk) -> None:
    append(desk.path, "one\ntwo\n")
    with desk.path.open("rb") as log:
        place = position(log.fileno(), 4)
    for n, text in ((1, "three\n"), (2, "four\n"), (3, "five\n")):
        desk.path.rename(desk.path.with_name(f"server.log.{3 - n}"))
        append(desk.path, text)
        os.utime(desk.path.with_name(f"server.log.{3 - n}"), (time.time() + n, time.time() + n))
    heard = desk.follow(place)
    heard.wait_lines("two", "three", "four", "five")
    assert heard.lines() == ["two", "three", "four", "five"]


def test_rotated_twice_between_two_looks_the_file_between_is_read_too(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(desk.path, "one\n")
    heard = desk.follow()
    heard.wait_lines("one")
    monkeypatch.setattr(follow, "POLL_S", 0.5)
    time.sleep(0.05)  # the follower now sleeps its longer pause
    for n, text in ((1, "two\n"), (2, "three\n")):
        desk.path.rename(desk.path.with_name(f"server.log.{2 - n}"))
        os.utime(desk.path.with_name(f"server.log.{2 - n}"), (time.time() + n, time.time() + n))
        append(desk.path, text)
    append(desk.path.with_name("server.log.notes"), "no log at all\n")
    heard.wait_lines("one", "two", "three")


def test_a_log_replaced_during_the_absence_is_begun_anew_and_the_gap_is_said(desk: Desk) -> None:
    append(desk.path, "one\ntwo\n")
    with desk.path.open("rb") as log:
        place = position(log.fileno(), 8)
    desk.path.unlink()
    append(desk.path, "a new log\nof the same size or longer\n")
    heard = desk.follow(place)
    heard.wait_lines("a new log", "of the same size or longer")
    assert "log_gap" in heard.codes()


def test_lines_of_ten_megabytes_stay_bounded_and_keep_their_first_64_kib(desk: Desk) -> None:
    append(desk.path, "start\n")
    heard = desk.follow()
    heard.wait_lines("start")
    append(desk.path, b"A" * 60000 + b" autotun " + b"B" * 10_000_000 + b"\nnext\n")
    heard.wait_lines("next")
    long = heard.lines()[1]
    assert " autotun " in long and len(long) < 66000
    append(desk.path, b"C" * 1000 + b"\r 10%|" + b"D" * 5_000_000 + b"\r 90%|the last bar\nend\n")
    heard.wait(lambda: heard.lines()[-1] == "end")
    bars = heard.lines()[3]
    assert bars.endswith("\r 90%|the last bar") and len(bars) < 75000


def test_zero_bytes_and_broken_utf8_become_harmless_text(desk: Desk) -> None:
    append(desk.path, b"bad \xff\xfe\x00 and \xed\xa0\x80 end\n")
    heard = desk.follow()
    heard.wait(lambda: len(heard.lines()) == 1)
    heard.lines()[0].encode("utf-8")  # no surrogates: it can be encoded
    assert heard.lines()[0].startswith("bad \ufffd")


def test_secrets_leave_the_host_masked(desk: Desk) -> None:
    append(desk.path, "ServerArgs(api_key='sk-abcdefghij1234567890')\n")
    heard = desk.follow()
    heard.wait(lambda: len(heard.lines()) == 1)
    assert "sk-abc" not in heard.lines()[0] and "***" in heard.lines()[0]


def test_in_a_storm_every_event_line_travels_and_the_rest_is_counted_by_kind(desk: Desk) -> None:
    append(desk.path, "start\n")
    heard = desk.follow()
    heard.wait_lines("start")
    noise = "".join(f'[2026-06-28 14:00:05] INFO:     10.0.0.1:{n} - "GET / HTTP/1.1" 200 OK\n' for n in range(500))
    for n in range(100):
        append(desk.path, noise + f"Autotuning event {n}\n")
    append(desk.path, "the end autotun\n")
    heard.wait(lambda: bool(heard.lines()) and heard.lines()[-1] == "the end autotun")
    events = [line for line in heard.lines() if line.startswith("Autotuning event")]
    assert events == [f"Autotuning event {n}" for n in range(100)]
    assert len(heard.lines()) + heard.counted() == 1 + 100 * 501 + 1
    counts = sum(frame.get("counts", {}).get("http_access", 0) for frame in heard.frames)
    assert counts == heard.counted() > 40000


def test_after_a_storm_the_newest_elided_line_is_sent_so_that_the_screen_is_true(desk: Desk) -> None:
    append(desk.path, "start\n")
    heard = desk.follow()
    heard.wait_lines("start")
    append(desk.path, "".join(f"plain line {n}\n" for n in range(5000)))
    heard.wait(lambda: heard.lines()[-1] == "plain line 4999")
    assert len(heard.lines()) + heard.counted() == 5001
    assert len(heard.lines()) < 2 * lines.TAIL_BURST


def test_a_writer_that_never_stops_loses_no_line_through_rotations_and_reconnects(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()
    written = 0

    def write() -> None:
        nonlocal written
        out = desk.path.open("ab", buffering=0)
        while not over.is_set():
            out.write(b"autotun %d\n" % written)
            written += 1
            if written % 400 == 0:
                for n in (2, 1):
                    old = desk.path.with_name(f"server.log.{n}")
                    if old.exists():
                        old.replace(desk.path.with_name(f"server.log.{n + 1}"))
                desk.path.rename(desk.path.with_name("server.log.1"))
                out.write(b"autotun %d\n" % written)  # a writer that reopens a moment after the rename
                written += 1
                out.close()
                out = desk.path.open("ab", buffering=0)
            time.sleep(0.0005)
        out.close()

    thread = threading.Thread(target=write)
    thread.start()
    numbers: list[int] = []
    place: dict[str, Any] | None = None
    for _ in range(6):
        heard = desk.follow(place)
        heard.wait(lambda heard=heard: len(heard.lines()) >= 150)
        desk.stop()
        numbers += [int(line.split()[1]) for line in heard.lines()]
        offsets = [f["offset"] for f in heard.frames if f["type"] == "log" and f["offset"] is not None]
        place = _remember(heard, offsets[-1])
    over.set()
    thread.join()
    append(desk.path, f"autotun {written}\n")
    heard = desk.follow(place)
    heard.wait(lambda: bool(heard.lines()) and int(heard.lines()[-1].split()[1]) == written)
    numbers += [int(line.split()[1]) for line in heard.lines()]
    assert sorted(numbers) == list(range(written + 1))


def _remember(heard: Heard, offset: int) -> dict[str, Any]:
    """What a client knows: the last position told, and the newest offset."""
    told = [f["detail"] for f in heard.frames if f.get("code") == "log_position"]
    return {**(told[-1] if told else {}), "offset": offset}
