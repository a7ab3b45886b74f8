"""Turns a line of a log into records: prefixes, heads, bars and JSON taken apart. Knows no line kinds."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from typing import Any

from moetop.engines.times import glog_time, read_time
from moetop.text import strip_ansi

MAX_LINE = 65536
"""Bytes of a line that are looked at: an event within the first 64 KiB of a line is never dropped."""
MAX_PREFIXES = 8
MAX_RECORDS = 64
HEAD_WINDOW = 240
"""How far into a line a record's head may stand behind prefixes that nobody can list."""


@dataclass(slots=True)
class Record:
    """One record of a log.

    `head` names the format that was recognised (`sglang`, `vllm`, `flashinfer`, `trt`, `trtcpp`,
    `glog`, `uvicorn`, `kernel`, `json`, `logfmt`, `tracing`) or is empty: then the text may continue
    the record before. `t` is epoch seconds where the log prints year and zone, `clock` seconds for
    differences only. `line` is the whole of it, `rank` is as printed, `more` what continues it within
    the same line.
    """

    text: str
    line: str = ""
    head: str = ""
    t: float | None = None
    t_text: str | None = None
    clock: float | None = None
    rank: str | None = None
    process: str | None = None
    worker: str | None = None
    pid: int | None = None
    host: str | None = None
    unit: str | None = None
    level: str | None = None
    src: str | None = None
    more: str | None = None
    repeated: int | None = None
    fields: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Who wrote the record; lines of one traceback share it."""
        return f"{self.rank or ''}|{self.process or ''}|{self.pid or ''}"

    @property
    def headed(self) -> bool:
        """Whether the line began with something that only a new record begins with."""
        return bool(self.head or self.process)


_ORPHAN_CODES = re.compile(r"\[\d{1,3}(?:;\d{1,3})*m ?")
_ISO_PREFIX = re.compile(
    r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)) +(?:std(?:out|err) [FP] )?"
)
_COMPOSE = re.compile(r"(?:\[?([A-Za-z0-9][\w./-]{0,80})\]?) +\| ?")
_KUBECTL = re.compile(r"\[(pod/[^\]]{1,200})\] ?")
_SYSLOG = re.compile(
    r"(?:<\d{1,3}>)?([A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d) (\S{1,100}) ([\w./@:-]{1,100}?)(?:\[(\d{1,9})\])?: ?"
)
_JOURNAL_ISO = re.compile(r"(?!\()([\w.-]{1,100}) ([\w./@-]{1,100})\[(\d{1,9})\]: ?")
_KERNEL = re.compile(
    r"(?:<\d{1,3}>)?\[ *(\d{1,9}\.\d{6})\] ?"
    r"|\[([A-Z][a-z]{2} [A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d \d{4})\] ?|kernel: ?"
)
_PROCESS = re.compile(r"\(([\w.:-]{1,80}?)(?: rank=(\d{1,5}))? pid=(\d{1,9})(?:, ip=([^)\s]{1,60}))?\) ?")
_LAUNCHER = re.compile(r"\[\d{1,4},(\d{1,5})\]<std(?:out|err)>: ?|\[(?:rank|default)(\d{1,5})\]: ?")
_WORKER_RANK = re.compile(r"(?:Vllm)?Worker_((?:[A-Z]+\d+_?)+)$")

_SGLANG = re.compile(
    r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d{1,6})?)"
    r"((?: (?:DP|PP|ATTN_CP|ATTN_TP|MOE_DP|MOE_EP|CP|TP|EP)\d{1,5})*)\] ?"
)
_VLLM = re.compile(r"(DEBUG|INFO|WARNING|ERROR|CRITICAL) (\d\d-\d\d \d\d:\d\d:\d\d) \[([^\]]{1,200})\] ?")
_FLASHINFER = re.compile(
    r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) - (\w{1,10}) - (?:([\w.]{1,80}:\d{1,6}) - )?flashinfer\.jit: ?"
)
_TRT = re.compile(
    r"\[(\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d)\] \[TRT-LLM\] ?"
    r"((?:\[(?:MPI_Rank \d{1,5}|RANK \d{1,5}|[FEWIVD]|_torch)\] ?){1,4})"
    r"|\[TRT-LLM\] ?((?:\[(?:MPI_Rank \d{1,5}|RANK \d{1,5}|[FEWIVD]|_torch)\] ?){1,4})"
)
_TRT_TAG = re.compile(r"\[(?:(?:MPI_Rank|RANK) (\d{1,5})|([FEWIVD])|_torch)\]")
_TRT_CPP = re.compile(r"\[TensorRT-LLM\]\[(\w{1,10})\] ?")
_GLOG = re.compile(
    r"\[?([EWIF])(\d{3,4} \d\d:\d\d:\d\d\.\d{6,9}) (?:\d+ )?(\S{1,80}:\d{1,6})\] ?(?:\[Rank (\d{1,5})\] )?"
)
_UVICORN = re.compile(r"(INFO|WARNING|ERROR|CRITICAL|DEBUG): {1,9}")
_TRACING = re.compile(
    r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{1,9}Z) {1,4}(TRACE|DEBUG|INFO|WARN|ERROR) ([\w:.]{1,120}): "
)
_LOGFMT = re.compile(r'(?:^|\s)time="?([^"\s]{1,40})"? level=(\w{1,10}) msg="((?:[^"\\]|\\.){0,8000})"?')
_ANYWHERE = re.compile(
    r"(?<=\s)(?=\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|\[\d\d/\d\d/\d{4}-\d\d:|\((?:Worker|EngineCore|APIServer|VllmWorker)"
    r"[\w.-]{0,60}(?: rank=\d+)? pid=\d|(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:|"
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} - \w+ - )"
)
_BAR = re.compile(r"\d{1,3}%(?:\||\s+Completed \|)")
_GLUED = re.compile(
    r"(?<=\])(?=\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
    r"|\((?:Worker|EngineCore|APIServer|VllmWorker)[\w.-]{0,60}(?: rank=\d+)? pid=\d"
    r"|\[\d\d/\d\d/\d{4}-\d\d:|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} - |(?:INFO|WARNING|ERROR) \d\d-\d\d )"
)
_REPEATED = re.compile(r" ?\[repeated (\d{1,9})x across cluster\].{0,200}$")

_MESSAGE_KEYS = ("message", "msg", "event", "text", "body", "log", "MESSAGE")
_LEVEL_KEYS = ("level", "levelname", "severity", "lvl", "log.level")
_TIME_KEYS = ("time", "timestamp", "asctime", "ts", "@timestamp", "datetime")
_MORE_KEYS = ("exc_info", "exception", "traceback", "exc_text", "stack", "stack_info", "error.stack_trace")


def clean(line: str) -> str:
    """`line` bounded, without terminal colours, also where the ESC byte was lost."""
    text = line[:MAX_LINE]
    if "\x1b" in text:
        text = strip_ansi(text)
    if "m" in text and "[" in text and "\\u001b" not in text:
        text = _ORPHAN_CODES.sub("", text)
    return text


def read_line(line: str, depth: int = 0) -> list[Record]:
    """The records in one line: most have one; bars drawn with carriage returns and JSON may have more."""
    records: list[Record] = []
    base: Record | None = None
    for segment in segments(clean(line)):
        for piece in _GLUED.split(segment) if _BAR.search(segment) else (segment,):
            found = _read_piece(piece, depth)
            for record in found:
                if base is not None and not record.headed:
                    record.rank, record.process, record.pid = base.rank, base.process, base.pid
                elif record.process is not None:
                    base = record
                if record.text or record.more or not records:
                    records.append(record)
        if len(records) > MAX_RECORDS:
            break
    if len(records) > 1:
        records = [record for record in records if record.text or record.more] or records[:1]
    return records


def segments(text: str) -> list[str]:
    """Pieces between carriage returns; of a bar's states only the last is kept."""
    text = text.rstrip("\r\n")
    if "\r" not in text and "\n" not in text:
        return [text]
    kept: list[str] = []
    label: str | None = None
    for part in re.split(r"\r\n?|\n", text):
        found = _BAR.search(part)
        name = part[: found.start()].strip() if found and not _GLUED.search(part) else None
        if name is not None and name == label:
            kept[-1] = part
        elif part.strip():
            kept.append(part)
        else:
            continue
        label = name
        if len(kept) > MAX_RECORDS * 4:
            kept = kept[-MAX_RECORDS:]
    return kept or [""]


def _read_piece(text: str, depth: int) -> list[Record]:
    record = Record(text=text, line=text)
    _strip_prefixes(record)
    if record.text.startswith("{") and depth < 3:
        inner = _read_json(record, depth)
        if inner is not None:
            return inner
    _strip_head(record)
    if not record.head:
        _find_head(record)
    if record.head in ("sglang", "vllm", "") and record.text[:8].endswith((":", ": ", ":  ", ":   ")):
        _strip_uvicorn(record)
    repeated = (
        _REPEATED.search(record.text[-260:]) if record.text.endswith("]") or "across cluster" in record.text else None
    )
    if repeated:
        record.repeated = int(repeated[1])
        record.text = record.text[: record.text.rfind("[repeated ")].rstrip()
    return [record]


def _strip_prefixes(record: Record) -> None:
    for _ in range(MAX_PREFIXES):
        if not record.text or not (_strip_container(record) or _strip_syslog(record) or _strip_process(record)):
            return


def _strip_container(record: Record) -> bool:
    text = record.text
    if text[0].isdigit() and not _TRACING.match(text):
        iso = _ISO_PREFIX.match(text)
        if iso:
            _set_time(record, iso[1])
            record.text = text[iso.end() :]
            journal = _JOURNAL_ISO.match(record.text)
            if journal:
                record.unit = journal[2]
                record.text = record.text[journal.end() :]
                record.head = "kernel" if journal[2] == "kernel" else record.head
            return True
    if " |" in text[:100]:
        compose = _COMPOSE.match(text)
        if compose:
            record.unit = compose[1]
            record.text = text[compose.end() :]
            return True
    kubectl = _KUBECTL.match(text) if text.startswith("[pod/") else None
    if kubectl:
        record.unit = kubectl[1]
        record.text = text[kubectl.end() :]
        return True
    return False


def _strip_syslog(record: Record) -> bool:
    text = record.text
    if text[0] in "<JFMASOND":
        syslog = _SYSLOG.match(text)
        if syslog:
            _set_time(record, syslog[1])
            record.unit = syslog[3]
            record.text = text[syslog.end() :]
            if syslog[3] == "kernel":
                record.head = "kernel"
            return True
    if text[0] in "<[k":
        kernel = _KERNEL.match(text)
        if kernel:
            record.t_text = kernel[2] or record.t_text
            record.head = "kernel"
            record.text = text[kernel.end() :]
            return True
    return False


def _strip_process(record: Record) -> bool:
    text = record.text
    if text[0] == "(":
        process = _PROCESS.match(text)
        if process:
            if record.process is None:
                record.process = process[1]
            else:
                record.worker = process[1]
            record.pid = int(process[3])
            record.host = process[4] or record.host
            rank = _WORKER_RANK.match(process[1])
            if rank:
                record.rank = rank[1].strip("_").replace("_", " ")
            elif process[2] is not None:
                record.rank = f"rank {process[2]}"
            record.text = text[process.end() :]
            return True
    if text[0] == "[":
        launcher = _LAUNCHER.match(text)
        if launcher:
            record.rank = record.rank or f"rank {launcher[1] or launcher[2]}"
            record.text = text[launcher.end() :]
            return True
    return False


def _set_time(record: Record, text: str) -> None:
    epoch, clock = read_time(text)
    record.t_text = text
    record.clock = clock if clock is not None else record.clock
    record.t = epoch if epoch is not None else record.t


def _set_inner_time(record: Record, text: str) -> None:
    """The record's own time; a container's time, having year and zone, stays the epoch."""
    epoch, clock = read_time(text)
    record.clock = clock if clock is not None else record.clock
    if record.t is None:
        record.t = epoch
        record.t_text = text


def _strip_head(record: Record) -> None:
    text = record.text
    if text[:1] == "[":
        _strip_bracket_head(record, text)
    elif text[:1].isdigit():
        flashinfer = _FLASHINFER.match(text)
        tracing = None if flashinfer else _TRACING.match(text)
        if flashinfer:
            _set_inner_time(record, flashinfer[1])
            record.head, record.level, record.src = "flashinfer", flashinfer[2], flashinfer[3]
            record.text = text[flashinfer.end() :]
        elif tracing:
            _set_inner_time(record, tracing[1])
            record.head, record.level, record.src = "tracing", tracing[2], tracing[3]
            record.text = text[tracing.end() :]
    else:
        vllm = _VLLM.match(text)
        if vllm:
            _set_inner_time(record, vllm[2])
            record.head, record.level, record.src = "vllm", vllm[1], vllm[3]
            record.text = text[vllm.end() :]
        elif "level=" in text[:300]:
            _strip_logfmt(record)


def _strip_bracket_head(record: Record, text: str) -> None:
    sglang = _SGLANG.match(text)
    if sglang:
        _set_inner_time(record, sglang[1])
        record.head = "sglang"
        record.rank = sglang[2].strip() or record.rank
        record.text = text[sglang.end() :]
        return
    trt = _TRT.match(text)
    if trt:
        if trt[1]:
            _set_inner_time(record, trt[1])
        record.head = "trt"
        for rank, level in _TRT_TAG.findall(trt[2] or trt[3]):
            record.rank = f"rank {rank}" if rank else record.rank
            record.level = level or record.level
        record.text = text[trt.end() :]
        return
    cpp = _TRT_CPP.match(text)
    if cpp:
        record.head, record.level = "trtcpp", cpp[1]
        record.text = text[cpp.end() :]
        return
    glog = _GLOG.match(text)
    if glog:
        if glog[2]:
            _set_inner_time(record, glog[2])
            record.t_text = glog_time(record.t_text)
        record.head, record.level, record.src = "glog", glog[1], glog[3]
        if glog[4] is not None:
            record.rank = record.rank or f"rank {glog[4]}"
        record.text = text[glog.end() :]


def _find_head(record: Record) -> None:
    """A head behind a prefix of no known form, such as a pod's and a container's name."""
    at = _ANYWHERE.search(record.text, 0, HEAD_WINDOW) if not record.text.startswith((" ", "\t")) else None
    if at is None:
        if "level=" in record.text[:300]:
            _strip_logfmt(record)
        return
    whole = record.text
    record.unit = whole[: at.start()].strip() or record.unit
    record.text = whole[at.start() :]
    _strip_prefixes(record)
    _strip_head(record)
    if not record.headed:
        record.text = whole


def _strip_logfmt(record: Record) -> None:
    logfmt = _LOGFMT.search(record.text[:9000])
    if logfmt:
        _set_inner_time(record, logfmt[1])
        record.head, record.level = "logfmt", logfmt[2]
        record.text = logfmt[3].replace('\\"', '"')


def _strip_uvicorn(record: Record) -> None:
    uvicorn = _UVICORN.match(record.text)
    if uvicorn:
        record.level = uvicorn[1]
        record.head = record.head or "uvicorn"


def _read_json(record: Record, depth: int) -> list[Record] | None:
    try:
        data = json.loads(record.text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict):
        return None
    message = next((data[key] for key in _MESSAGE_KEYS if isinstance(data.get(key), str)), None)
    if message is None:
        return None
    stamp = next((data[key] for key in _TIME_KEYS if isinstance(data.get(key), str)), None)
    if stamp is not None:
        _set_inner_time(record, stamp)
    if "log" in data and data["log"] == message and "stream" in data:
        inner = read_line(message, depth + 1)
        for each in inner:
            each.t = record.t if record.t is not None else each.t
            each.t_text = record.t_text or each.t_text
        return inner
    level = next((data[key] for key in _LEVEL_KEYS if isinstance(data.get(key), str)), None)
    more = next((data[key] for key in _MORE_KEYS if isinstance(data.get(key), str)), None)
    inner = read_line(message.split("\n", 1)[0], depth + 1)[-1:]
    first = inner[0] if inner else Record(text="")
    rest = message.split("\n", 1)[1] if "\n" in message else None
    more = "\n".join(part for part in (rest, more) if part) or None
    return [_merge(record, first, level, more)]


def _merge(outer: Record, inner: Record, level: str | None, more: str | None) -> Record:
    return replace(
        inner,
        head=inner.head or "json",
        t=outer.t if outer.t is not None else inner.t,
        t_text=outer.t_text or inner.t_text,
        clock=inner.clock if inner.clock is not None else outer.clock,
        process=inner.process or outer.process,
        pid=inner.pid or outer.pid,
        rank=inner.rank or outer.rank,
        level=inner.level or level,
        more=more,
    )
