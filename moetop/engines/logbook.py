"""One log being read: lines in, events and a digest out. Does no I/O and reads no clock."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from moetop.engines.blocks import MAX_OTHERS, Block, is_exception
from moetop.engines.digest import LogDigest
from moetop.engines.entry import LINE_LIMIT, Entry
from moetop.engines.ledger import Ledger
from moetop.engines.literals import candidates
from moetop.engines.match import classify, engine_of
from moetop.engines.reader import MAX_LINE, Record, read_line
from moetop.engines.report import make_digest
from moetop.engines.rules import COUNTED, UNCAUGHT_SERVING, UNCAUGHT_STARTING, Rule
from moetop.engines.rules.content import CONTENT_IDS
from moetop.engines.tail import Tail
from moetop.model import Engine, EventKind, EventSeverity, LogEvent, Phase, ServerMetrics
from moetop.text import plain

MAX_BLOCKS = 64
MAX_JOINS = 6
JOIN_LIMIT = 8192
METRICS_A_DIGEST = 200
"""Metric lines read one by one until a digest or `renew`; of more, only the newest `LATE_LINES` are read."""
LATE_LINES = 64
JUNCTION = 160
"""Characters on either side of a line's end in which a cut record is looked for."""
MIN_WRAP = 40
"""No terminal is narrower: a shorter line was not cut by one."""

_NEW_RECORD = re.compile(
    r"\s*(?:[\[({]|\x1b|\d{4}-\d\d-\d\d[T ]|(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)[: ]|[A-Z][a-z]{2} [ \d]\d \d\d:)"
)
_MESSAGE = re.compile(r"Message: ['\"]?")
_UPGRADES = frozenset(
    {
        EventKind.CRASH,
        EventKind.ENGINE_DEAD,
        EventKind.ENGINE_START_FAILED,
        EventKind.NCCL_TIMEOUT,
        EventKind.ECC_ERROR,
    }
)
"""What a traceback's last line may make of it; out of memory inside a traceback stays a traceback."""
_WEAK = frozenset({"g.cuda", "g.ima", "g.oom", "g.tb"})
"""Rows that a line inside a block may match without being an event of its own."""

MAX_CONTENT_LINES = 2000
"""A user's text over more lines than this is no longer taken for it."""
_OPENS = re.compile(r"(?:text'?(?:=|: )|prompt(?:=|: )|output: )['\"]")
_PARAMETERS = re.compile(r"params\b|meta_info|output_token_ids")
"""What a request's record says after the user's text."""

Found = tuple[Rule, "re.Match[str]"]


@dataclass(slots=True)
class _Open:
    """The last record, in case a terminal's width cut it. `entry` still lacks a field."""

    record: Record
    entry: Entry | None
    width: int
    joins: int = 0


class LogBook:
    """One log as read so far. Not thread-safe: one reader feeds it and asks it."""

    def __init__(self, name: str, tail_lines: int = 20_000) -> None:
        self.name = name
        self.tail = Tail(tail_lines)
        self._ledger = Ledger()
        self._lines = 0
        self._skipped = 0
        self._blocks: list[Block] = []
        self._open: _Open | None = None
        self._last_line = ""
        self._last_t: float | None = None
        self._last_t_text: str | None = None
        self._fresh: list[LogEvent] = []
        self._metric_lines = 0
        self._content = 0
        self._late: deque[tuple[str, float | None, int]] = deque(maxlen=LATE_LINES)

    def feed(self, line: str, t: float | None = None) -> tuple[LogEvent, ...]:
        """Take in one line; the events it completed (lines that are noise are not among them).

        `t` is when the line was written as far as the caller knows (None for history): a time that
        the line itself prints with year and zone goes before it.
        """
        n = self._lines
        self._lines += 1
        if "\0" in line:
            line = _without_nuls(line)
        if len(line) > MAX_LINE:
            line = line[:MAX_LINE]
        if t is not None:
            self._last_t = t
        self._fresh = []
        if self._content and self._in_content(line):
            self.tail.add(n, line, t, None)
            return ()
        rows = candidates(line.lower())
        matched = self._shortcut(rows, line, t, n) if not self._blocks else None
        if matched is None and (rows or self._blocks or self._may_continue(line)):
            self._flush_late()
            matched = self._feed_records(line, t, n)
            self._last_line = "" if matched is not None else line
        elif matched is None:
            self._settle()
            self._open = None
            self._last_line = line
        if matched is not None and matched.id in CONTENT_IDS and _OPENS.search(line) and not _ends_content(line):
            self._content = MAX_CONTENT_LINES
        self.tail.add(n, line, t, matched)
        return tuple(self._fresh)

    def _in_content(self, line: str) -> bool:
        """Whether the line goes on with a user's text that an earlier line began."""
        if read_line(line)[-1].headed:
            self._content = 0
            return False
        self._content = 0 if _ends_content(line) else self._content - 1
        return True

    def _shortcut(self, rows: list[Rule], line: str, t: float | None, n: int) -> Rule | None:
        """Count a line that is nothing but noise, or one more metric line of a storm, without taking it apart."""
        if not rows or not all(rule.severity in COUNTED for rule in rows) or "\r" in line or line[:1] in "{ \t":
            return None
        rule = next((each for each in rows if each.regex.search(line) is not None), None)
        if rule is None or self._ledger.run.survivable:
            return None
        if rule.severity is EventSeverity.METRIC:
            if self._metric_lines < METRICS_A_DIGEST:
                self._metric_lines += 1
                return None
            self._late.append((line, t, n))
        self._settle()
        self._open = None
        self._last_line = ""
        self._ledger.count_noise(rule.kind, 1)
        return rule

    def _flush_late(self) -> None:
        """Read the newest metric lines of a storm: whatever comes next must find them read."""
        late, self._late = self._late, deque(maxlen=LATE_LINES)
        for line, t, n in late:
            rule = self._feed_records(line, t, n)
            if rule is not None:
                self._ledger.count_noise(rule.kind, -1)

    def count(self, counts: Mapping[str, int], skipped: int) -> None:
        """Take in what the host counted instead of sending: lines by kind, and how many in all."""
        self._ledger.take_counts(counts)
        self._skipped += skipped
        if skipped:
            self.tail.elide(skipped)

    def digest(self) -> LogDigest:
        """All that is known from the log now."""
        self._flush_late()
        self._metric_lines = 0
        return make_digest(self.name, self._ledger, self._lines, self._skipped, self._last_t, self._last_t_text)

    def renew(self) -> None:
        """Read metric lines one by one again: someone wants the numbers of each."""
        self._metric_lines = 0

    @property
    def newest_run(self) -> int:
        """Number of the newest run."""
        return self._ledger.run.n

    @property
    def phase(self) -> Phase:
        """Where the newest run stands, as far as its lines are read: cheaper than a digest."""
        return self._ledger.run.phase

    def metrics(self) -> ServerMetrics | None:
        """The newest run's numbers, as far as its lines are read: cheaper than a digest."""
        return self._ledger.run.metrics.read()

    # ── records ──────────────────────────────────────────────────────────────────────────────────

    def _may_continue(self, line: str) -> bool:
        """Whether the line may be the rest of a record that was cut by a terminal's width."""
        if self._open is not None and self._open.entry is not None:
            return True
        if line.lstrip().startswith("NVRM:") or "kernel: NVRM:" in line:
            return True
        if len(self._last_line) < MIN_WRAP or _NEW_RECORD.match(line):
            return False
        return self._open is not None or bool(candidates((self._last_line[-JUNCTION:] + line[:JUNCTION]).lower()))

    def _feed_records(self, line: str, t: float | None, n: int) -> Rule | None:
        matched: Rule | None = None
        if self._open is None and self._last_line and not self._blocks:
            self._reopen()
        for record in read_line(line):
            record.t = record.t if record.t is not None else t
            if record.t_text is not None:
                self._last_t_text = record.t_text
            self._last_t = record.t if record.t is not None else self._last_t
            more, record.more = record.more, None
            rule = self._feed_record(record, line, n)
            for part in more.split("\n") if more else ():
                self._feed_record(_rest_of(record, part), line, n)
            if more:
                self._close_blocks(partial(_wrote, record.key))
            if rule is not None and (matched is None or matched.is_counted):
                matched = rule
        if matched is not None or self._blocks:
            self._ledger.touch()
        return matched

    def _reopen(self) -> None:
        """Look at the line before this one after all: the two may be one record."""
        before = read_line(self._last_line)
        if before:
            self._open = _Open(before[-1], None, len(self._last_line))

    def _feed_record(self, record: Record, line: str, n: int) -> Rule | None:
        if record.text.startswith("Message: ") and not record.headed:
            record.text = _MESSAGE.sub("", record.text, count=1).rstrip("'\"")
            self._close_blocks(lambda block: block.is_logging)
        engine = engine_of(record) or self._ledger.run_of(record).engine
        own = classify(record.text, engine, record.head, record.level)
        taken = self._continue_block(record, own, engine)
        if taken is not None:
            return taken
        joined = self._join(record, own, line, n, engine)
        if joined is not None:
            return joined
        self._settle()
        if own is None:
            if self._open is None or record.headed:
                self._open = _Open(record, None, len(line))
            return None
        return self._take(own, record, line, n, engine)

    def _take(self, found: Found, record: Record, line: str, n: int, engine: Engine | None) -> Rule:
        """A record that matched is an event."""
        rule, match = found
        fields = rule.fields(match)
        if rule.block and is_exception(record.text):
            fields["error"] = record.text.strip()[:1000]
        entry = self._ledger.add(rule, fields, record, line, n, engine)
        self._open = None
        if rule.block:
            self._open_block(entry, record)
        elif rule.needs and rule.needs not in fields:
            self._open = _Open(record, entry, len(line))
        else:
            self._finish(entry)
        return rule

    def _finish(self, entry: Entry) -> None:
        if entry.severity is not EventSeverity.NOISE:
            self._fresh.append(entry.freeze())
        self._ledger.finish(entry)

    # ── records cut by a terminal's width, kernel records over several lines ─────────────────────

    def _settle(self) -> None:
        """What still waited for its rest gets none."""
        if self._open is not None and self._open.entry is not None:
            entry, self._open = self._open.entry, None
            self._ledger.touch()
            self._finish(entry)

    def _join(self, record: Record, own: Found | None, line: str, n: int, engine: Engine | None) -> Rule | None:
        """Try the record as the rest of the one before it."""
        last = self._open
        if last is None or last.joins >= MAX_JOINS:
            return None
        kernel = record.text.lstrip().startswith("NVRM:") and last.record.text.startswith("NVRM:")
        if kernel:
            rest = " " + record.text.lstrip()[5:].lstrip()
        elif record.headed or last.width < MIN_WRAP:
            return None
        else:
            rest = record.text
        cut = len(last.record.text)
        text = (last.record.text + rest)[:JOIN_LIMIT]
        found = classify(text, engine, last.record.head, last.record.level)
        last.joins += 1
        whole = (last.record.line + rest)[:JOIN_LIMIT]
        if last.entry is not None:
            if own is not None and own[0] is not last.entry.rule:
                return None
            last.record.text = text.rstrip() if kernel else text
            last.record.line = whole
            return self._complete(last, found)
        spans = found is not None and found[1].start() < cut < found[1].end()
        same = kernel and found is not None and own is not None and own[0] is found[0]
        if found is not None and (spans or same):
            last.record.text, last.record.line = text, whole
            return self._take(found, last.record, text, n, engine)
        if own is None:
            last.record.text, last.record.line = text, whole
        return None

    def _complete(self, last: _Open, found: Found | None) -> Rule:
        entry = last.entry
        assert entry is not None
        if found is not None and found[0] is entry.rule:
            entry.line = plain(last.record.line, LINE_LIMIT)
            for name, value in found[0].fields(found[1]).items():
                if entry.fields.get(name) is None:
                    entry.fields[name] = value
            self._ledger.run.note_identity(entry.rule, entry.fields)
        if entry.rule.needs in entry.fields:
            self._ledger.run.tally.note_files(entry.rule.kind, entry.fields)
            self._open = None
            self._finish(entry)
        return entry.rule

    # ── blocks ───────────────────────────────────────────────────────────────────────────────────

    def _open_block(self, entry: Entry, record: Record) -> None:
        run = self._ledger.run
        if run.tally.open and entry.severity is EventSeverity.FATAL:
            entry.fields["phase"] = "autotune"
        self._blocks.append(
            Block(
                entry=entry,
                key=record.key,
                src=record.src,
                headed=record.headed,
                in_traceback="Traceback (most recent" in record.text,
                has_error=is_exception(record.text),
                bare=not record.head and record.level is None,
            )
        )
        if len(self._blocks) > MAX_BLOCKS:
            self._close(self._blocks[0])

    def _continue_block(self, record: Record, own: Found | None, engine: Engine | None) -> Rule | None:
        """Give the record to the block it continues; blocks that it ends are closed."""
        is_event = own is not None and own[0].id not in _WEAK
        starts = own is not None and own[0].block and own[0].id not in _WEAK and own[1].start() < 40
        for block in reversed(self._blocks):
            if (not starts or block.in_traceback) and block.takes(record, is_event):
                known_error = block.take(record)
                block.entry.fields["lines"] = block.lines
                if block.tuner_frames and block.entry.run == self._ledger.run.n:
                    self._ledger.run.tally.crashed_inside = True
                if known_error and not self._known(block):
                    self._judge_error(block, record, engine)
                if known_error:
                    self._judge_end(block, record)
                return block.entry.rule
            block.others += 1
            if block.key == record.key or not record.headed or block.others > MAX_OTHERS or block.has_error:
                self._close(block)
        return None

    def _known(self, block: Block) -> bool:
        """Whether the error is that of an earlier event: then the traceback is its echo."""
        if block.entry.kind is not EventKind.TRACEBACK:
            return False
        return self._ledger.same_error(block.entry) is not None

    def _judge_error(self, block: Block, record: Record, engine: Engine | None) -> None:
        """Let a traceback's last line say what it is."""
        entry = block.entry
        error = str(entry.fields.get("error", ""))
        found = classify(error, engine, record.head)
        if found is None or entry.rule.id == "g.logging":
            return
        if found[0].kind is EventKind.OOM:
            entry.fields["oom"] = True
        if entry.kind is EventKind.TRACEBACK and found[0].kind in _UPGRADES:
            self._ledger.upgrade(entry, found[0], record)

    def _judge_end(self, block: Block, record: Record) -> None:
        """An exception that nothing caught ends its process; the run too, unless something works on."""
        run = self._ledger.run
        starts = run.engine is not None and not run.ready
        rule = UNCAUGHT_STARTING if starts else UNCAUGHT_SERVING
        if block.entry.kind is EventKind.TRACEBACK and block.is_uncaught and block.entry.run == run.n:
            self._ledger.upgrade(block.entry, rule, record)

    def _close_blocks(self, which: Callable[[Block], bool]) -> None:
        for block in list(self._blocks):
            if which(block):
                self._close(block)

    def _close(self, block: Block) -> None:
        if block not in self._blocks:
            return
        self._blocks.remove(block)
        entry = block.entry
        known = self._ledger.same_error(entry) if entry.kind is EventKind.TRACEBACK else None
        if known is not None:
            self._ledger.merge(entry, known)
            return
        self._finish(entry)


def _without_nuls(line: str) -> str:
    """UTF-16 (a log that PowerShell wrote) that was read as UTF-8: a NUL beside each letter, and a mark before all."""
    return line[: 2 * MAX_LINE].replace("\0", "").lstrip("\ufffd\ufeff")


def _ends_content(line: str) -> bool:
    """Whether a request's record ends here: its parameters come after the text."""
    return _PARAMETERS.search(line) is not None and line.rstrip()[-1:] in ")}]."


def _wrote(key: str, block: Block) -> bool:
    return block.key == key


def _rest_of(record: Record, text: str) -> Record:
    """A line that came inside a record, as its continuation."""
    return Record(
        text=text.rstrip("\r"),
        rank=record.rank,
        process=record.process,
        pid=record.pid,
        src=record.src,
        t=record.t,
        t_text=record.t_text,
        clock=record.clock,
    )
