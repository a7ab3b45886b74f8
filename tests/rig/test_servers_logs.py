"""Logs that come out of commands: journal, containers, anything configured; real processes that end and come back."""

from __future__ import annotations

import json
import os
import signal
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from moetop.probe import journal
from moetop.probe.hub import LogHub

# A container runtime: prints a file whose lines carry their times, as `docker logs --timestamps` does.
DOCKER = """#!/usr/bin/env python3
import os, sys, time
words = sys.argv[1:]
since = words[words.index("--since") + 1] if "--since" in words else ""
if os.environ.get("DENY"):
    sys.exit("permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock")
open(os.environ["PIDS"], "a").write("%d\\n" % os.getpid())
with open(os.environ["LOG"], "rb") as log:
    rest = b""
    while True:
        data = log.read(65536)
        if not data:
            time.sleep(0.02)
            continue
        *lines, rest = (rest + data).split(b"\\n")
        for line in lines:
            if line.split(b" ")[0].decode() >= since:
                sys.stdout.buffer.write(line + b"\\n")
        sys.stdout.flush()
"""
# journalctl -o json; the shape of its records is systemd 252's own.
JOURNALCTL = """#!/usr/bin/env python3
import json, os, sys, time
words = sys.argv[1:]
after = words[words.index("--after-cursor") + 1] if "--after-cursor" in words else ""
with open(os.environ["LOG"], "rb") as log:
    rest = b""
    while True:
        data = log.read(65536)
        if not data:
            time.sleep(0.02)
            continue
        *lines, rest = (rest + data).split(b"\\n")
        for line in lines:
            if json.loads(line)["__CURSOR"] > after:
                print(line.decode(), flush=True)
"""
KUBECTL = """#!/usr/bin/env python3
import os, sys
sys.stdout.write(open(os.environ["LOG"]).read())
sys.stdout.flush()
if not os.environ.get("ENDS"):
    import time
    time.sleep(1000)
"""


class Room:
    """A hub with stand-in commands on its PATH, and what it sent."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log = root / "printed"
        self.log.touch()
        self.pids = root / "pids"
        self.bin = root / "bin"
        self.bin.mkdir()
        self.frames: list[dict[str, Any]] = []
        self.changed = threading.Condition()
        self.hubs: list[LogHub] = []
        monkeypatch.setenv("PATH", f"{self.bin}:{os.environ['PATH']}")
        monkeypatch.setenv("LOG", str(self.log))
        monkeypatch.setenv("PIDS", str(self.pids))
        monkeypatch.setattr(journal, "FIRST_WAIT_S", 0.1)
        monkeypatch.setattr(journal, "IDLE_S", 0.4)

    def install(self, name: str, text: str) -> None:
        path = self.bin / name
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def emit(self, frame: dict[str, Any], is_event: bool) -> None:
        with self.changed:
            self.frames.append(frame)
            self.changed.notify_all()

    def follow(self, spec: dict[str, Any], **options: Any) -> LogHub:
        hub = LogHub({"literals": ["autotun"], "noise_literals": {"x": ["decode"]}, **options}, self.emit)
        self.hubs.append(hub)
        hub.configure(spec)
        hub.start_new()
        return hub

    def lines(self) -> list[str]:
        return [frame["line"] for frame in self.frames if frame["type"] == "log" and frame["line"]]

    def message(self, code: str) -> str:
        return next((frame["message"] for frame in self.frames if frame.get("code") == code), "")

    def wait(self, done: Callable[[], Any], seconds: float = 15.0) -> Any:
        with self.changed:
            assert self.changed.wait_for(done, seconds), self.frames[-8:]
            return done()

    def offset(self) -> Any:
        return [frame["offset"] for frame in self.frames if frame["type"] == "log" and frame["offset"]][-1]

    def stamped(self, *lines: str) -> None:
        with self.log.open("a") as out:
            for line in lines:
                now = time.time()
                stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{time.time_ns() % 10**9:09d}Z"
                out.write(f"{stamp} {line}\n")
                time.sleep(0.001)


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Room]:
    room = Room(tmp_path, monkeypatch)
    yield room
    for hub in room.hubs:
        hub.stop()


CONTAINER = {"kind": "container", "target": "abc", "runtime": "docker", "source": "engine"}


def test_a_containers_log_goes_on_when_its_command_dies_no_line_twice(room: Room) -> None:
    room.install("docker", DOCKER)
    room.stamped("old autotun", *(f"decode {n}" for n in range(10)))
    room.follow(CONTAINER, tail_lines=3)
    room.wait(lambda: room.lines() == ["old autotun", "decode 7", "decode 8", "decode 9"])
    assert all(frame["history"] for frame in room.frames if frame["type"] == "log")
    assert sum(frame.get("skipped", 0) for frame in room.frames) == 7
    room.stamped("live 1")
    room.wait(lambda: room.lines()[-1] == "live 1")
    os.kill(int(room.pids.read_text().split()[-1]), signal.SIGKILL)
    room.stamped("while it was down")
    room.wait(lambda: room.lines()[-1] == "while it was down")
    room.stamped("live 2")
    room.wait(lambda: room.lines()[-3:] == ["live 1", "while it was down", "live 2"])
    assert "started again" in room.message("log_end")


def test_a_reconnect_goes_on_at_the_time_of_the_last_line(room: Room) -> None:
    room.install("docker", DOCKER)
    room.stamped("one", "two")
    room.follow(CONTAINER).stop()
    room.frames.clear()
    room.follow(CONTAINER)
    room.wait(lambda: room.lines() == ["one", "two"])
    place = {"engine": {"offset": room.offset()}}
    room.hubs[-1].stop()
    room.stamped("three")
    room.frames.clear()
    room.follow(CONTAINER, resume=place)
    room.wait(lambda: room.lines() == ["three"])


def test_a_runtime_that_may_not_be_asked_is_said_with_the_fix(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    room.install("docker", DOCKER)
    monkeypatch.setenv("DENY", "1")
    room.follow(CONTAINER)
    room.wait(lambda: "group" in room.message("log_denied"))
    assert "permission denied" in room.message("log_denied")


def test_a_command_that_is_not_installed_is_said(room: Room) -> None:
    room.follow({"kind": "command", "argv": ["no-such-command", "logs"], "source": "engine"})
    room.wait(lambda: "not installed" in room.message("log_missing"))


def test_a_units_journal_is_read_from_a_cursor_with_its_own_times(room: Room) -> None:
    room.install("journalctl", JOURNALCTL)

    def record(n: int, message: object) -> None:
        entry = {"__CURSOR": f"s=68ea;i={n:05x}", "__REALTIME_TIMESTAMP": str(1796036492910964 + n), "MESSAGE": message}
        with room.log.open("a") as out:
            out.write(json.dumps(entry) + "\n")

    record(1, "plain █")
    record(2, list(b"bin \xff autotun"))
    record(3, None)
    room.follow({"kind": "journal", "target": "vllm.service", "source": "unit"})
    room.wait(lambda: room.lines() == ["plain █", "bin \ufffd autotun"])
    assert room.frames[0]["t"] == pytest.approx(1796036492.910965)
    room.hubs[-1].stop()
    record(4, "while away")
    place = {"unit": {"offset": room.offset()}}
    room.frames.clear()
    room.follow({"kind": "journal", "target": "vllm.service", "source": "unit"}, resume=place)
    room.wait(lambda: room.lines() == ["while away"])


def test_a_command_without_places_that_starts_from_the_top_repeats_nothing(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    room.install("kubectl", KUBECTL)
    monkeypatch.setenv("ENDS", "1")
    room.log.write_text("".join(f"autotun {n}\n" for n in range(20)))
    room.follow({"kind": "command", "argv": ["kubectl", "logs", "-f", "pod"], "source": "pod"})
    room.wait(lambda: len(room.lines()) == 20)
    with room.log.open("a") as out:
        out.write("autotun 20\nautotun 21\n")
    room.wait(lambda: len(room.lines()) == 22)
    assert room.lines() == [f"autotun {n}" for n in range(22)]
    place = {"pod": {"offset": room.offset()}}
    room.hubs[-1].stop()
    room.frames.clear()
    with room.log.open("a") as out:
        out.write("autotun 22\n")
    room.follow({"kind": "command", "argv": ["kubectl", "logs", "-f", "pod"], "source": "pod"}, resume=place)
    room.wait(lambda: room.lines() == ["autotun 22"])


def test_nothing_of_a_stopped_log_command_is_left_running(room: Room) -> None:
    room.install("docker", DOCKER)
    room.stamped("one")
    hub = room.follow(CONTAINER)
    room.wait(lambda: room.lines() == ["one"])
    pid = int(room.pids.read_text().split()[-1])
    hub.stop()
    end = time.monotonic() + 5
    while _runs(pid) and time.monotonic() < end:
        time.sleep(0.02)
    assert not _runs(pid)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[-1].split()[0] != "Z"
    except OSError:
        return False
