"""Blocks of lines that are one event: tracebacks and what follows a crash line. Keeps no log."""

from __future__ import annotations

import re
from dataclasses import dataclass

from moetop.engines.entry import Entry
from moetop.engines.reader import Record

MAX_BLOCK_LINES = 4000
MAX_OTHERS = 64
"""How many records of other writers may come between the lines of one block."""
MAX_AFTER_ERROR = 12
"""A message of several lines may follow the exception's line."""

_EXCEPTION = re.compile(
    r"(?:[A-Za-z_][\w.]{0,200}\.)?[A-Z]\w{0,80}(?:Error|Exception|Interrupt|Exit|Failure|Timeout|Fault|Died)(?::|\s*$)"
)
_CHAIN = (
    "The above exception was the direct cause",
    "During handling of the above exception",
)
_FRAME = re.compile(r'\s+File "(?P<file>[^"]{0,500})", line \d+, in (?P<name>\S{1,200})')
_TRACEBACK = "Traceback (most recent call last)"
_MAIN_FRAMES = ("<module>", "_run_module_as_main")
_ASKED_ENDS = ("KeyboardInterrupt", "SystemExit", "asyncio.exceptions.CancelledError", "BrokenPipeError")
"""Ends that somebody asked for: Ctrl-C, an exit in so many words, a reader that went."""
_TUNER_FRAME = re.compile(r"autotun|choose_one", re.IGNORECASE)


def is_exception(text: str) -> bool:
    """Whether a line reads like the last line of a traceback."""
    return _EXCEPTION.match(text) is not None


@dataclass(slots=True)
class Block:
    """A block being read. `entry` is its event, updated in place as lines come."""

    entry: Entry
    key: str
    src: str | None
    headed: bool
    lines: int = 1
    others: int = 0
    after_error: int = 0
    in_traceback: bool = False
    blank: bool = False
    has_error: bool = False
    tuner_frames: bool = False
    frame: str | None = None
    first_error: str | None = None
    bare: bool = False
    outermost: bool = True
    from_main: bool = False

    @property
    def is_uncaught(self) -> bool:
        """Whether nothing caught the exception: no logger wrote it, and its first frame is the main program's."""
        error = str(self.entry.fields.get("error", ""))
        return self.bare and self.from_main and self.has_error and not error.startswith(_ASKED_ENDS)

    @property
    def is_logging(self) -> bool:
        """Whether it is Python's report of a failing logger, whose traceback is not the engine's."""
        return self.entry.rule.id == "g.logging"

    def takes(self, record: Record, is_event: bool) -> bool:
        """Whether `record` continues the block. `is_event` says that it matches a row by itself."""
        text = record.text
        if self.lines >= MAX_BLOCK_LINES:
            return False
        if self.is_logging:
            return not record.headed
        if record.headed:
            if record.key != self.key or (record.src is not None and record.src != self.src):
                return False
            if record.level is not None and record.level[0] not in "EFC":
                return False
        if text.startswith(_CHAIN):
            return True
        if self.blank and self.has_error:
            return False
        if not text.strip():
            return True
        if text[0] in " \t":
            return not is_event or self.in_traceback
        if _TRACEBACK in text[:120]:
            return not self.has_error or self.in_traceback
        if self.in_traceback:
            return is_exception(text) or (not is_event and not self._is_other_record(record))
        if not self.has_error:
            return is_exception(text)
        return self._goes_on(record, is_event)

    @staticmethod
    def _is_other_record(record: Record) -> bool:
        """Whether a head without a source place says that this is a record of its own."""
        return bool(record.head) and record.src is None

    def _goes_on(self, record: Record, is_event: bool) -> bool:
        """Lines of the exception's own message."""
        if is_event and not is_exception(record.text):
            return False
        return self.after_error < MAX_AFTER_ERROR

    def take(self, record: Record) -> bool:
        """Take in a continuation; true when it brought the error."""
        text = record.text
        self.others = 0
        self.lines += 1 if text.strip() else 0
        if self.is_logging:
            return False
        if not text.strip():
            self.blank = True
            return False
        if text.startswith(_CHAIN):
            self.first_error = self.first_error or self.entry.fields.get("error")
            self.blank = self.has_error = False
            self.after_error = 0
            return False
        if _TRACEBACK in text[:120]:
            self.in_traceback = self.outermost = True
            self.blank = False
            return False
        frame = _FRAME.match(text)
        if frame:
            self._take_frame(frame)
            return False
        if text[0] in " \t":
            return False
        if self.in_traceback or not self.has_error:
            self.in_traceback = False
            self.after_error = 0
            self._set_error(text)
            return True
        self.after_error += 1
        return False

    def _take_frame(self, frame: re.Match[str]) -> None:
        fields = self.entry.fields
        if self.outermost:
            self.outermost = False
            self.from_main = frame["name"] in _MAIN_FRAMES and frame["file"] != "<string>"
        if _TUNER_FRAME.search(frame["file"]) or _TUNER_FRAME.search(frame["name"]):
            if frame["file"].endswith("autotuner.py") and self.frame and not _TUNER_FRAME.search(self.frame):
                fields["op"] = self.frame
            fields["phase"] = "autotune"
            self.tuner_frames = True
        self.frame = frame["name"]
        self.in_traceback = True

    def _set_error(self, text: str) -> None:
        fields = self.entry.fields
        fields["error"] = text.strip()[:1000]
        self.has_error = True
        if self.first_error and self.first_error != fields["error"]:
            fields["first_error"] = self.first_error
