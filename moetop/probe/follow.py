"""Follows a log file by name through rotation, truncation and deletion, no line twice, none lost."""

from __future__ import annotations

import errno
import os
import re
import stat as stat_bits
import threading
import time
from typing import Any, Callable

from .lines import Picker
from .openlog import HEAD_BYTES, READ_BYTES, Stream, marked_length, matches, position
from .scan import HistoryScan

Status = Callable[..., None]  # status(code, message, level="info", detail=None), bound to one log


POLL_S = 0.2
READS_A_STEP = 4
BAR_WAIT_S = 1.0  # an unfinished line of progress bars is sent on this often
LINE_WAIT_S = 30.0  # any other unfinished line waits this long, then counts as a line
OLD_FILE_S = 60.0  # a renamed file is read on until it was silent for this long
RESTLESS_S = 2.0
GAP_SCAN_BYTES = 4 * 1024 * 1024  # after a longer absence the missed part is scanned instead of read whole
POSITION_EVERY_S = 5.0
MAX_SIBLINGS = 64
COPY_AGE_S = 120.0
ROTATED = r"(?:\.old|[.-]\d[\d.:T_-]*)(?:\.(?:gz|xz|zst|bz2|lz4))?"  # .1, -20260628, .1.gz
PACKED = (".gz", ".xz", ".zst", ".bz2", ".lz4")


class FileFollower:
    """Follows one path in its own thread. `holder` tells which file the server itself writes to, if known."""

    def __init__(
        self,
        path: str,
        picker: Picker,
        status: Status,
        resume: dict[str, Any] | None = None,
        history: HistoryScan | None = None,
        tail_lines: int = 200,
        holder: Callable[[], tuple[int, int] | None] | None = None,
    ) -> None:
        self.path = path
        self.picker = picker
        self._status = status
        self._resume = resume
        self._history = history
        self._tail_lines = tail_lines
        self._holder = holder
        self._now: Stream | None = None
        self._old: list[Stream] = []
        self._chain: list[int] = []
        self._said: set[str] = set()
        self._seen_before = False
        self._target: int | None = None
        self._behind_since = 0.0
        self._positioned: tuple[float, int, tuple[int, int]] = (0.0, -1, (-1, -1))
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self.run, name="log " + path, daemon=True)

    def start(self) -> None:
        """Begin in a thread of its own."""
        self._thread.start()

    def ask_stop(self) -> None:
        """Begin to end; returns at once."""
        self._stop.set()

    def stop(self, wait_s: float = 2.0) -> None:
        """End; everything complete was sent."""
        self.ask_stop()
        if self._thread.is_alive():
            self._thread.join(wait_s)

    def reads(self, device: int, inode: int) -> bool:
        """Whether this file is being read, under whatever name."""
        streams = [*self._old, *([self._now] if self._now else [])]
        return any(stream.identity == (device, inode) for stream in streams)

    def run(self) -> None:
        """Read until stopped."""
        try:
            while not self._stop.is_set():
                if not self.step():
                    self._stop.wait(POLL_S)
        finally:
            for stream in self._old + ([self._now] if self._now else []):
                stream.close()
            for fd in self._chain:
                os.close(fd)

    def step(self) -> bool:
        """Read what there is; True when there may be more at once."""
        try:
            if self._now is None and not self._open():
                return False
            busy = self._drain_old()
            busy = self._read_now() or busy
            self._tell_caught_up(busy)
        except OSError as error:
            self._say("log_denied", "cannot read %s: %s" % (self.path, error.strerror), "warning")
            return False
        if not busy:
            self._check_name()
            self._unfinished()
            if self._history is not None:
                self._history.poll()
            self.picker.flush()
        self._tell_position()
        return busy

    # -- opening ------------------------------------------------------------------------------

    def _open(self) -> bool:
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        except OSError as error:
            self._say_absent(error)
            return False
        if not stat_bits.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            self._say("log_denied", "%s is not a regular file and cannot be followed" % self.path, "warning")
            return False
        self._over()
        if self._seen_before:
            self._fall_behind()
            self._now = Stream(fd)
            self._target = os.fstat(fd).st_size
            self._tell_position()
            return True
        self._seen_before = True
        if self._resume and self._take_up(fd):
            return True
        self._begin(fd)
        return True

    def _begin(self, fd: int) -> None:
        """First sight of a log: its history is scanned, its last lines are sent, then it is followed."""
        size = os.fstat(fd).st_size
        tail = self._tail_start(fd, size)
        self._status("log_behind", "what the log holds is read")
        if self._history is not None and tail > 0:
            self._history.run(fd, 0, tail)
        self._now = Stream(fd, tail)
        self._tell_position()
        self._read_history(size)
        self._status("log_read", "what the log held is read")

    def _read_history(self, size: int) -> None:
        stream = self._now
        while stream is not None and stream.offset < size and not self._stop.is_set():
            data = stream.read(size - stream.offset)
            if not data:
                break
            self._deliver(stream, data, history=True)

    def _tail_start(self, fd: int, size: int) -> int:
        """Where the last lines begin; at most 1 MiB of them."""
        start = max(size - 1024 * 1024, 0)
        data = os.pread(fd, size - start, start)
        at = len(data)
        for _ in range(max(self._tail_lines, 0) + 1):
            at = data.rfind(b"\n", 0, at)
            if at < 0:
                return start + data.find(b"\n") + 1 if start else 0
        return start + at + 1

    def _take_up(self, fd: int) -> bool:
        """Go on where an earlier session stopped; False when the log has to be begun anew."""
        resume, self._resume = self._resume or {}, None
        offset = resume.get("offset")
        if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
            return False
        if self._is_place(fd, offset, resume):
            self._continue(fd, offset)
            return True
        sibling = self._sibling(lambda other, entry: self._is_place(other, offset, resume))
        if sibling is None:
            self._status(
                "log_gap",
                "%s was replaced while nobody watched and the old file is gone: lines between are missing" % self.path,
                level="warning",
            )
            return False
        old, name = sibling
        self._status("log_rotated", "%s was rotated; its rest is read from %s" % (self.path, name))
        self._chain = self._between(os.fstat(old), os.fstat(fd))
        os.close(fd)
        self._continue(old, offset)
        return True

    def _between(self, old: os.stat_result, new: os.stat_result) -> list[int]:
        """The open files that were the log after `old` and before `new`: rotated more than once since the last look."""
        known = {(old.st_dev, old.st_ino), (new.st_dev, new.st_ino)}
        later = [
            (entry.st_mtime, path)
            for path, entry in self._siblings()
            if entry.st_mtime >= old.st_mtime and (entry.st_dev, entry.st_ino) not in known
        ]
        packed = [path for _, path in later if path.endswith(PACKED)]
        if packed:
            message = "%s was packed before it was read: its lines are missing" % ", ".join(packed[:3])
            self._status("log_gap", message, level="warning")
        return [fd for fd in map(_open, [path for _, path in sorted(later) if path not in packed]) if fd is not None]

    def _is_place(self, fd: int, offset: int, resume: dict[str, Any]) -> bool:
        """Whether this file is the one that was read up to `offset`."""
        if os.fstat(fd).st_size < offset or not matches(fd, 0, resume.get("head")):
            return False
        if resume.get("anchor_at") == offset:
            length = marked_length(resume.get("anchor"))
            if length:
                return matches(fd, offset - length, resume.get("anchor"))
        if not marked_length(resume.get("head")) and resume.get("inode") not in (None, os.fstat(fd).st_ino):
            return False
        return offset == 0 or os.pread(fd, 1, offset - 1) in (b"\n", b"\r")

    def _continue(self, fd: int, offset: int) -> None:
        size = os.fstat(fd).st_size
        self._fall_behind()
        if self._history is not None and size - offset > GAP_SCAN_BYTES:
            tail = max(self._tail_start(fd, size), offset)
            self._history.run(fd, offset, tail)
            offset = tail
        self._now = Stream(fd, offset)
        self._target = size

    def _fall_behind(self) -> None:
        """Say that lines of the past come, of which only all together tell how things stand."""
        self._status("log_behind", "what was written meanwhile is read")
        self._behind_since = time.monotonic()

    def _tell_caught_up(self, busy: bool) -> None:
        """Once what a file held when it was opened is read, and no other waits behind it. Where more comes at once,
        it may still be written as a whole; a writer that never rests is not waited for."""
        stream = self._now
        if self._target is None or stream is None or stream.offset < self._target or self._chain:
            return
        if not busy or time.monotonic() - self._behind_since > RESTLESS_S:
            self._target = None
            self._status("log_read", "what the log held is read")

    def _siblings(self) -> list[tuple[str, os.stat_result]]:
        """Plain files beside this log that are named like rotated ones of it, newest first."""
        folder, base = os.path.split(self.path)
        stem, extension = os.path.splitext(base)
        rotated = re.compile(
            "^(?:%s%s|%s%s%s)$" % (re.escape(base), ROTATED, re.escape(stem), ROTATED, re.escape(extension))
        )
        found = []
        try:
            with os.scandir(folder or ".") as entries:
                for entry in entries:
                    if rotated.match(entry.name) and entry.is_file(follow_symlinks=False):
                        found.append((entry.path, entry.stat(follow_symlinks=False)))
        except OSError:
            return []
        return sorted(found, key=lambda item: -item[1].st_mtime)[:MAX_SIBLINGS]

    def _sibling(self, fits: Callable[[int, os.stat_result], bool]) -> tuple[int, str] | None:
        """A renamed or copied former self of this log, opened, and its name."""
        for path, _ in self._siblings():
            fd = _open(path)
            if fd is None:
                continue
            try:
                fit = fits(fd, os.fstat(fd))
            except OSError:
                fit = False
            if fit:
                return fd, os.path.basename(path)
            os.close(fd)
        return None

    # -- reading ------------------------------------------------------------------------------

    def _read_now(self) -> bool:
        stream = self._now
        if stream is None:
            return False
        if stream.rewritten():
            self._after_cut(stream)
        return self._read_stream(stream, READS_A_STEP)

    def _read_stream(self, stream: Stream, reads: int) -> bool:
        for _ in range(reads):
            data = stream.read()
            if not data:
                return False
            self._deliver(stream, data)
            if len(data) < READ_BYTES:
                return False
        return True

    def _deliver(self, stream: Stream, data: bytes, history: bool = False) -> None:
        cut, block = stream.split.feed(data)
        end = stream.offset - stream.split.held
        named = stream is self._now
        if cut:
            self.picker.line(cut.lstrip(b"\0"), end - len(block) if named else None, history)
        if block:
            if block[:1] == b"\0":
                block = block.lstrip(b"\0")
            self.picker.block(block, end if named else None, history)

    def _drain_old(self) -> bool:
        busy = False
        for stream in list(self._old):
            busy = self._read_stream(stream, READS_A_STEP) or busy
            held = self._holder() if self._holder else None
            if time.monotonic() - stream.quiet_since > OLD_FILE_S and held != stream.identity:
                self._finish(stream)
                self._old.remove(stream)
        return busy

    def _finish(self, stream: Stream) -> None:
        rest = stream.split.take_all()
        if rest.strip(b"\0"):
            self.picker.line(rest, None)
        stream.close()

    def _unfinished(self) -> None:
        """Send on what waits without a newline: bars soon, other text after a long silence."""
        stream = self._now
        if stream is None or not stream.split.pending:
            return
        now = time.monotonic()
        if now - stream.split.touched >= LINE_WAIT_S:
            self.picker.line(stream.split.take_all(), stream.offset)
        elif now - stream.split.since >= BAR_WAIT_S:
            bars = stream.split.take_bars()
            if bars:
                self.picker.line(bars, stream.offset - stream.split.held)

    # -- rotation and truncation --------------------------------------------------------------

    def _check_name(self) -> None:
        """Notice that the name now stands for another file, or for none."""
        stream = self._now
        if stream is None:
            return
        if self._chain:
            self._switch(stream, self._chain.pop(0))
            return
        try:
            entry = os.stat(self.path)
            if (entry.st_dev, entry.st_ino) == stream.identity:
                self._over()
                return
            if entry.st_size == 0:
                return  # the writer may still hold the renamed file; an empty new one can wait
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            self._say_absent(error)
            return
        self._chain = [*self._between(os.fstat(stream.fd), os.fstat(fd)), fd]
        self._switch(stream, self._chain.pop(0))
        self._status("log_rotated", "%s was replaced by a new file; following the new one" % self.path)

    def _switch(self, stream: Stream, fd: int) -> None:
        """Go on with another file; the old one is read on beside it until it stays silent."""
        self._read_stream(stream, 1 << 20)
        self._old.append(stream)
        self._fall_behind()
        self._now = Stream(fd)
        self._target = os.fstat(fd).st_size
        self._tell_position()
        self._over()

    def _after_cut(self, stream: Stream) -> None:
        """The file was truncated in place: take what a copy of it kept, then start at its beginning."""
        lost_from = stream.offset
        anchor = stream.anchor

        def holds_rest(fd: int, entry: os.stat_result) -> bool:
            fresh = time.time() - entry.st_mtime < COPY_AGE_S
            return fresh and entry.st_size >= lost_from and _at(fd, lost_from, len(anchor)) == anchor

        saved = 0
        copy = self._sibling(holds_rest) if anchor else None
        if copy is not None:
            rest = Stream(copy[0], lost_from)
            rest.split = stream.split
            self._read_stream(rest, 1 << 20)
            saved = rest.offset - lost_from
            self._finish(rest)
        elif stream.split.pending:
            self.picker.line(stream.split.take_all(), None)
        self._fall_behind()
        stream.begin_anew()
        self._target = os.fstat(stream.fd).st_size
        message = "%s was truncated in place; %s lines written just before the cut may be lost" % (
            self.path,
            "%d bytes were recovered from its copy %s, but" % (saved, copy[1])
            if copy
            else "no copy of it was found and",
        )
        self._status("log_truncated", message, level="warning", detail={"read_to": lost_from, "recovered_bytes": saved})

    # -- saying -------------------------------------------------------------------------------

    def _say_absent(self, error: OSError) -> None:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            self._say("log_missing", "%s does not exist; waiting for it" % self.path, "warning")
        elif error.errno in (errno.EACCES, errno.EPERM):
            message = "%s may not be read by this user; give it read permission or run moetop as its owner" % self.path
            self._say("log_denied", message, "warning")
        else:
            self._say("log_denied", "cannot open %s: %s" % (self.path, error.strerror), "warning")

    def _say(self, code: str, message: str, level: str) -> None:
        """Once, until the state changes."""
        if code not in self._said:
            self._said.add(code)
            self._status(code, message, level=level)

    def _over(self) -> None:
        """What was said before holds no more."""
        for code in sorted(self._said):
            self._status(code, "%s can be read again" % self.path)
        self._said.clear()

    def _tell_position(self) -> None:
        """What a later session needs to go on from here: for a new file at once, then now and then."""
        stream = self._now
        if stream is None or not self.picker.settled:
            return
        offset = stream.offset - stream.split.held
        at, told, identity = self._positioned
        due = time.monotonic() - at >= POSITION_EVERY_S or told < HEAD_BYTES <= offset
        if identity != stream.identity or (offset != told and due):
            self._positioned = (time.monotonic(), offset, stream.identity)
            self._status("log_position", "reading on at byte %d" % offset, detail=position(stream.fd, offset))


def _open(path: str) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None


def _at(fd: int, offset: int, length: int) -> bytes:
    return os.pread(fd, length, offset - length)
