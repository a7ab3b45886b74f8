"""Follows logs that come out of a command: a unit's journal, a container's log, any configured argument vector."""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import re
import select
import shutil
import threading
import time
from collections import deque
from typing import Any, Callable, NamedTuple

from .child import Child
from .lines import Picker, Splitter

Status = Callable[..., None]

HISTORY_LINES = 2000000
FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 30.0
SETTLED_S = 60.0  # a command that ran this long starts anew without a penalty
IDLE_S = 1.0
SLOW_START_S = 5.0  # a busy container runtime may take so long to print its first line, which is of the past
LIVE_BYTES = 16384  # so little at a time, a moment after the start, is no history any more
MARK_LINES = 3  # so many lines in a row name a place in a log that has no places of its own
SYNC_LINES = 200000
STAMP = re.compile(rb"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)) ?")
DENIED = re.compile(rb"(?i)permission denied|not seeing messages from other users|access denied|no permission")


class Entry(NamedTuple):
    """A line of such a log; `place` resumes the reading, `t` is when it was written."""

    line: bytes
    place: str | None
    t: float | None


class CommandSource:
    """A command that prints a log for ever. `argv(place)` begins after a place, or with the history."""

    has_places = False

    def __init__(self, words: list[str], sudo: bool = False) -> None:
        self._words = words
        self.sudo = sudo

    def argv(self, place: str | None) -> list[str]:
        """What to run."""
        return list(self._words)

    def entry(self, line: bytes) -> Entry | None:
        """A printed line as a log line, None if it is the command's own word."""
        return Entry(line, None, None)


class JournalSource(CommandSource):
    """The journal of a systemd unit."""

    has_places = True

    def __init__(self, unit: str, user: bool = False, sudo: bool = False) -> None:
        words = ["journalctl"] + (["--user"] if user else []) + ["--unit", unit]
        super().__init__(words, sudo)

    def argv(self, place: str | None) -> list[str]:
        begin = ["--after-cursor", place, "--no-tail"] if place else ["--lines", str(HISTORY_LINES)]
        tail = ["--follow", "--output", "json", "--output-fields", "MESSAGE", "--all", "--no-pager"]
        return self._words + tail + begin

    def entry(self, line: bytes) -> Entry | None:
        try:
            record = json.loads(line)
        except ValueError:
            return None
        message = record.get("MESSAGE") if isinstance(record, dict) else None
        if isinstance(message, list):
            text = bytes(item & 255 for item in message if isinstance(item, int))
        elif isinstance(message, str):
            text = message.encode("utf-8", "replace")
        else:
            return None
        stamp = record.get("__REALTIME_TIMESTAMP")
        t = int(stamp) / 1e6 if isinstance(stamp, str) and stamp.isdigit() else None
        return Entry(text, record.get("__CURSOR"), t)


class ContainerSource(CommandSource):
    """A container's log as its runtime prints it; both streams, each line with its time."""

    has_places = True

    def __init__(self, runtime: str, container: str, sudo: bool = False) -> None:
        super().__init__([runtime, "logs", "--follow", "--timestamps"], sudo)
        self._container = container

    def argv(self, place: str | None) -> list[str]:
        begin = ["--since", place] if place else ["--tail", str(HISTORY_LINES)]
        return self._words + begin + [self._container]

    def entry(self, line: bytes) -> Entry | None:
        match = STAMP.match(line)
        if match is None:
            return None
        stamp = match.group(1).decode("ascii")
        return Entry(line[match.end() :], stamp, epoch_of(stamp))


def epoch_of(stamp: str) -> float | None:
    """Epoch seconds of an RFC 3339 time with any number of digits."""
    match = re.match(r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d)$", stamp)
    if match is None:
        return None
    zone = "+0000" if match.group(3) == "Z" else match.group(3).replace(":", "")
    base = datetime.datetime.strptime(match.group(1) + zone, "%Y-%m-%dT%H:%M:%S%z").timestamp()
    return base + float(match.group(2) or 0)


class CommandFollower:
    """Runs a command source in its own thread, again after it ends, no line twice."""

    def __init__(
        self,
        source: CommandSource,
        picker: Picker,
        status: Status,
        resume: dict[str, Any] | None = None,
        tail_lines: int = 200,
        history: bool = True,
    ) -> None:
        self.picker = picker
        self._source = source
        self._status = status
        place = (resume or {}).get("offset")
        self._place = place if isinstance(place, str) and place else None
        self._tail: deque[tuple[bytes, str | None, float | None]] = deque()
        self._tail_lines = max(tail_lines, 0)
        self._send_history = history
        self._began = time.time()
        self._past = self._place is None
        self._recent: deque[bytes] = deque(maxlen=MARK_LINES)
        self._sync: list[bytes] | None = None
        self._words = b""
        self._lines = 0
        self._stop = threading.Event()
        self._child: Child | None = None
        self._troubles: set[str] = set()
        self._thread = threading.Thread(target=self.run, name="log " + picker.source, daemon=True)

    def start(self) -> None:
        """Begin in a thread of its own."""
        self._thread.start()

    def ask_stop(self) -> None:
        """Begin to end; returns at once."""
        self._stop.set()
        child = self._child
        if child is not None:
            child.stop()

    def stop(self, wait_s: float = 2.0) -> None:
        """End the command and the thread."""
        self.ask_stop()
        if self._thread.is_alive():
            self._thread.join(wait_s)

    def run(self) -> None:
        """Run the command until stopped, with growing pauses where it fails at once."""
        wait = FIRST_WAIT_S
        while not self._stop.is_set():
            began = time.monotonic()
            argv = self._source.argv(self._place)
            if shutil.which(argv[0]) is None:
                self._trouble("log_missing", "%s is not installed on this host" % argv[0])
            else:
                self._once(argv)
            if self._stop.is_set():
                return
            ran = time.monotonic() - began
            self._tell_end(argv, ran)
            wait = FIRST_WAIT_S if ran > SETTLED_S else min(wait * 2, LONGEST_WAIT_S)
            self._stop.wait(wait)

    def _once(self, argv: list[str]) -> None:
        self._words = b""
        self._lines = 0
        if not self._source.has_places and (self._place or self._recent):
            self._sync = []
        try:
            child = self._child = Child(argv, self._source.sudo)
        except OSError as error:
            self._words = str(error.strerror).encode()
            return
        try:
            self._pump(child.stdout.fileno())
        finally:
            child.stop()
            child.stdout.close()
        self._end_sync()
        self._end_past()

    def _pump(self, fd: int) -> None:
        split = Splitter()
        poll = select.poll()
        poll.register(fd, select.POLLIN | select.POLLHUP)
        began, silent = time.monotonic(), True
        while not self._stop.is_set():
            if not poll.poll(int(IDLE_S * 1000)):
                if not silent or time.monotonic() - began > SLOW_START_S:
                    self._caught_up()
                    self.picker.flush()
                continue
            silent = False
            data = os.read(fd, 1 << 18)
            if not data:
                break
            cut, block = split.feed(data)
            for line in ([cut.rstrip(b"\n")] if cut else []) + block.split(b"\n")[:-1]:
                self._take(line)
            if len(data) < LIVE_BYTES and time.monotonic() - began > IDLE_S:
                self._caught_up()
        rest = split.take_all()
        if rest and not self._stop.is_set():
            self._take(rest)

    def _caught_up(self) -> None:
        """What comes now is new: a history is printed without pauses, in full pipes."""
        if self._sync:
            self._end_sync()
        self._end_past()

    def _take(self, line: bytes) -> None:
        entry = self._source.entry(line)
        if entry is None:
            self._words = line.strip()[:500] or self._words
            return
        self._lines += 1
        if self._troubles:
            self._over()
        if not self._source.has_places:
            if self._sync is not None:
                self._sync.append(line)
                if len(self._sync) >= SYNC_LINES:
                    self._end_sync()
                return
            entry = Entry(line, self._mark(line), None)
        elif entry.place is not None and entry.place == self._place:
            return  # `--since` repeats the line at that very time
        self._place = entry.place
        self._deliver(entry)

    def _trouble(self, code: str, message: str) -> None:
        self._troubles.add(code)
        self._status(code, message, level="warning")

    def _over(self) -> None:
        """Lines come again: what was said before holds no more."""
        for code in sorted(self._troubles):
            self._status(code, "the log is read again")
        self._troubles.clear()

    def _mark(self, line: bytes) -> str | None:
        self._recent.append(hashlib.sha256(line).digest())
        if len(self._recent) < MARK_LINES:
            return None
        return "lines:" + hashlib.sha256(b"".join(self._recent)).hexdigest()[:24]

    def _end_sync(self) -> None:
        """A command without places starts from the top again: drop what was already read."""
        lines, self._sync = self._sync, None
        if lines is None:
            return
        wanted = self._place
        self._recent.clear()
        marks = [self._mark(line) for line in lines]
        at = next((index for index in range(len(marks) - 1, -1, -1) if marks[index] == wanted), None)
        if at is None and lines:
            self._status("log_gap", "it is not known where reading stopped: lines may be missing", level="warning")
        self._recent.clear()
        for index, line in enumerate(lines):
            place = self._mark(line)
            if at is None or index > at:
                self._place = place or self._place
                self._deliver(Entry(line, place, None))

    def _deliver(self, entry: Entry) -> None:
        if self._past and (entry.t is None or entry.t < self._began):
            self._tail.append((entry.line, entry.place, entry.t))
            if len(self._tail) > self._tail_lines:
                line, place, t = self._tail.popleft()
                if self.picker.matcher.hit(line) and self._send_history:
                    self.picker.ship(line, place, True, history=True, t=t)
                else:
                    kind = self.picker.matcher.kind_of(line)
                    self.picker.owe(1, {kind: 1} if kind is not None else {})
            return
        self._end_past()
        self.picker.line(entry.line, entry.place, t=entry.t)

    def _end_past(self) -> None:
        """The history is over: its last lines are sent, from here on the log is live."""
        if not self._past or (not self._tail and not self._lines):
            return
        self._past = False
        while self._tail:
            line, place, t = self._tail.popleft()
            self.picker.ship(line, place, self.picker.matcher.hit(line), history=True, t=t)
        if DENIED.search(self._words):
            self._status("log_denied", self._words.decode("utf-8", "replace"), level="warning")

    def _tell_end(self, argv: list[str], ran: float) -> None:
        words = self._words.decode("utf-8", "replace")
        command = " ".join(argv[:2])
        if DENIED.search(self._words):
            fix = "add this user to the group that may (docker, systemd-journal) or set sudo: true"
            self._trouble("log_denied", "%s: %s; %s" % (command, words, fix))
        elif shutil.which(argv[0]) is not None:
            self._trouble("log_end", "`%s` ended%s; it is started again" % (command, ": " + words if words else ""))
        if self._place and self._source.has_places and not self._lines and ran < FIRST_WAIT_S:
            message = "the place where reading stopped is gone: lines may be missing"
            self._status("log_gap", message, level="warning")
            self._place = None
