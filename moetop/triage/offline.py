"""Pasted files -> the frames of one host named `offline`, as if a probe had sent them.

`offline_frames` is pure; `offline_transport` is the edge that reads the files.
"""

from __future__ import annotations

import os
import shlex
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO

import msgspec

from moetop.diagnose.host import PASTED_LOG, HostEvidence
from moetop.diagnose.processes import sane
from moetop.diagnose.words import plural
from moetop.errors import UsageError
from moetop.model import AnyFrame, GpuInfo, Gpus, GpuSample, Hello, Log, Server, ServerMetrics, Status
from moetop.probe.prom import PromSample, engine_metrics, engine_of, parse_prometheus
from moetop.probe.smi import Trouble
from moetop.recording import HEAD_BYTES, is_binary
from moetop.text import plain
from moetop.transport.replay import FrameTransport
from moetop.triage.assemble import Timeline, assemble
from moetop.triage.block import Block
from moetop.triage.dcgm import has_dcgm, parse_dcgm
from moetop.triage.pasted import Understanding, is_recording, is_server_log, is_smi_output, with_head
from moetop.triage.sift import LONGEST_LINE, Piece, can_sift, decoded, sift
from moetop.triage.smi_log import Pasted, parse_smi_log

OFFLINE = "offline"
"""The name of the host that pasted text makes."""

METRICS_NAME = "metrics"
"""Name of a server known from its metrics alone."""

MAX_TEXT = 256 * 2**20
"""A pasted file larger than this is refused: it is a log (`--log`), not a listing."""

GZIP_MAGIC = b"\x1f\x8b"

PATIENCE_S = 2.0
"""A person waits this long without a word; then one comes every so often."""

_LOG_ADVICE = "it looks like a server's log; use --log"

_ENCODER = msgspec.json.Encoder()


def offline_frames(
    *,
    log: tuple[str, Iterable[str | Piece]] | None = None,
    smi_log: str | None = None,
    metrics: str | None = None,
    window_s: float = 10.0,
) -> Iterator[AnyFrame]:
    """Frames of host `offline`. `log` is a name and its lines (or pieces), the others are whole texts. Raises
    UsageError where a text is not what it should be."""
    blocks: list[Block] = []
    troubles: list[Trouble] = []
    server: Server | None = None
    if smi_log is not None:
        pasted = _smi_pasted(smi_log)
        blocks, troubles = pasted.blocks, pasted.troubles
    if metrics is not None:
        samples = parse_prometheus(metrics)
        if has_dcgm(samples):
            blocks = [*blocks, parse_dcgm(metrics, samples)]
        server = _server_of_metrics(samples)
        if server is None and not has_dcgm(samples):
            what = "no metric of an engine or of the DCGM exporter is in the text"
            raise UsageError(what, _LOG_ADVICE if is_server_log(metrics) else "take the page from the /metrics address")
    if log is not None:
        name = log[0]
        server = _named(server, name)
    return _frames(blocks, troubles, server, log, assemble(blocks, window_s))


def _smi_pasted(text: str) -> Pasted:
    try:
        return parse_smi_log(text)
    except UsageError as error:
        raise UsageError(str(error), _LOG_ADVICE if is_server_log(text) else error.advice) from None


def _frames(
    blocks: list[Block],
    troubles: list[Trouble],
    server: Server | None,
    log: tuple[str, Iterable[str | Piece]] | None,
    timeline: Timeline,
) -> Iterator[AnyFrame]:
    first_t = timeline.frames[0][0] if timeline.frames else 0.0
    last_t = timeline.frames[-1][0] if timeline.frames else 0.0
    lost = _lost_gpus(troubles, timeline.infos)
    known = {info.index for info in timeline.infos}
    yield Hello(
        t=first_t,
        driver=next((block.driver for block in blocks if block.driver), None),
        source=_source(blocks),
        gpus=(*timeline.infos, *(info for info, _ in lost if info.index not in known)),
        notes=tuple(note for block in blocks for note in block.notes)[:64],
    )
    if server is not None:
        yield server
    if log is not None:
        yield from _log_frames(log[0], log[1], last_t)
    for trouble in troubles:
        yield Status(t=last_t, code=trouble.code, message=trouble.message, level="error", detail=trouble.detail)
    for t, samples in timeline.frames:
        yield Gpus(t=t, gpus=samples)
    if lost:
        yield Gpus(t=last_t, gpus=tuple(sample for _, sample in lost))


def _log_frames(name: str, lines: Iterable[str | Piece], t: float) -> Iterator[AnyFrame]:
    """The lines of a log, and at its end a word where not one of them means anything."""
    found = Understanding(name)
    for line in found.watching(lines):
        if isinstance(line, str):
            yield Log(t=t, source=name, line=line)
        else:
            yield Log(t=t, source=name, line=line.line, skipped=line.skipped, counts=line.counts)
    if not found.understood:
        message = f"none of {plural(found.lines, 'line')} was understood: is this a server's log?"
        yield Status(t=t, code="log_not_understood", message=message, level="warning", source=name)


def _server_of_metrics(samples: list[PromSample]) -> Server | None:
    engine = engine_of(samples)
    if engine is None:
        return None
    figures = sane(ServerMetrics(**engine_metrics(samples), source=METRICS_NAME))
    return Server(t=0.0, name=METRICS_NAME, engine=engine, metrics=figures)


def _named(server: Server | None, name: str) -> Server:
    if server is None:
        return Server(t=0.0, name=name, source=name)
    return Server(t=0.0, name=name, source=name, engine=server.engine, metrics=server.metrics)


_SOURCES = {"csv": "csv", "dmon": "dmon", "pmon": "dmon", "table": "table", "dcgm": "dcgm"}


def _source(blocks: list[Block]) -> str:
    """What the GPU values came from: the first block that has some."""
    return next((_SOURCES[block.kind] for block in blocks if block.rows), PASTED_LOG)


def _lost_gpus(troubles: list[Trouble], infos: tuple[GpuInfo, ...]) -> list[tuple[GpuInfo, GpuSample]]:
    """A GPU for each one that a tool says is lost, in the row of its index where it is named."""
    taken = {info.index for info in infos}
    found: list[tuple[GpuInfo, GpuSample]] = []
    for trouble in troubles:
        if trouble.code != "gpu_lost":
            continue
        pci = trouble.detail.get("pci")
        index = trouble.detail.get("index")
        if not isinstance(index, int):
            index = max(taken, default=-1) + 1
        taken.add(index)
        info = GpuInfo(index=index, pci_bus_id=pci if isinstance(pci, str) else None)
        found.append((info, GpuSample(index=index, error="gpu_lost")))
    return found


def build_offline(
    *,
    log: tuple[str, Iterable[str]] | None = None,
    smi_log: str | None = None,
    metrics: str | None = None,
    window_s: float = 10.0,
) -> HostEvidence:
    """The evidence that the texts make, ready to report. Raises UsageError."""
    evidence = HostEvidence(OFFLINE, window_s)
    for frame in offline_frames(log=log, smi_log=smi_log, metrics=metrics, window_s=window_s):
        evidence.apply(frame)
    return evidence


# ── the edge: files ──────────────────────────────────────────────────────────────────────────────


def offline_transport(
    *,
    log: str | None,
    smi_log: str | None,
    metrics: str | None,
    window_s: float,
    say: Callable[[str], None] | None = None,
) -> FrameTransport:
    """The host `offline` as a transport. Paths, `-` is standard input. Raises UsageError at once where
    a file cannot be read or is not what it should be; a log is read when it is opened. `say` takes a
    sentence now and then where that takes long."""
    smi_text = _read_text(smi_log) if smi_log is not None else None
    metrics_text = _read_text(metrics) if metrics is not None else None
    named = None if log is None else (log_name(log), _open_log(log))
    lines = None if named is None else (named[0], _pieces(named[1], _Progress(named[0], say)))
    frames = offline_frames(log=lines, smi_log=smi_text, metrics=metrics_text, window_s=window_s)
    return FrameTransport(OFFLINE, lambda: map(_ENCODER.encode, frames), speed=0.0)


def log_name(path: str) -> str:
    """The name of a log read from `path`."""
    return "stdin" if path == "-" else Path(path).name


def _open(path: str) -> IO[bytes]:
    if path == "-":
        if sys.stdin is None:
            raise UsageError("standard input is closed", "name a file instead of -")
        return sys.stdin.buffer
    try:
        if _is_endless(path):
            raise UsageError(f"{path} is a device, not a file", "give a file, a pipe, or - for standard input")
        return Path(path).open("rb")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error


def _is_endless(path: str) -> bool:
    """Whether it is a device of which no end is to be expected; a terminal has one. Raises OSError."""
    kind = Path(path).stat().st_mode
    if stat.S_ISCHR(kind):
        return not os.path.realpath(path).startswith((os.devnull, "/dev/pts/", "/dev/tty", "/dev/console"))
    return stat.S_ISBLK(kind)


def _open_log(path: str) -> IO[bytes]:
    """A log from its beginning. Raises UsageError where it is empty or plainly something else."""
    stream = _open(path)
    try:
        head, stream = with_head(stream)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    name = "standard input" if path == "-" else path
    if not head:
        raise UsageError(f"the log {name} is empty", "is it the file that the server writes to?")
    if head.startswith(GZIP_MAGIC):
        raise UsageError(f"{name} is compressed", f"zcat {shlex.quote(plain(path, 300))} | moetop --log - ...")
    if is_recording(head):
        raise UsageError(f"{name} is a recording, not a server's log", "use --replay")
    if is_binary(head):
        raise UsageError(f"{name} has no lines, only binary data", "is it the file that the server writes to?")
    if is_smi_output(_decoded(head)):
        raise UsageError(f"{name} looks like nvidia-smi output, not a server's log", "use --smi-log")
    return stream


def _read_text(path: str) -> str:
    with _open(path) as stream:
        try:
            raw = stream.read(MAX_TEXT + 1)
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    if len(raw) > MAX_TEXT:
        raise UsageError(f"{path} is larger than {MAX_TEXT // 2**20} MiB", "give its last part (tail)")
    if is_binary(raw[:HEAD_BYTES]):
        raise UsageError(f"{path} has no lines, only binary data")
    return _decoded(raw)


def _decoded(raw: bytes) -> str:
    """Text of any encoding a terminal's paste arrives in: UTF-8, or UTF-16 with its mark (PowerShell)."""
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return raw.decode("utf-16", errors="replace")
    return raw.decode("utf-8", errors="replace")


class _Progress:
    """Says how far the reading of a log has come, to somebody who waits."""

    def __init__(self, name: str, say: Callable[[str], None] | None) -> None:
        self._name = name
        self._say = say
        self._due = time.monotonic() + PATIENCE_S

    def __call__(self, done: int, total: int | None = None) -> None:
        """So many bytes are read."""
        if self._say is None or time.monotonic() < self._due:
            return
        self._due = time.monotonic() + PATIENCE_S
        of = "" if total is None else f" of {total >> 20}"
        self._say(f"reading {plain(self._name, 80)}: {done >> 20}{of} MiB")


def _pieces(stream: IO[bytes], progress: _Progress) -> Iterator[str | Piece]:
    with stream:
        yield from sift(stream, progress) if can_sift(stream) else _lines(stream, progress)


def _lines(stream: IO[bytes], progress: _Progress) -> Iterator[str]:
    """Lines of a log, without their ends; of one longer than LONGEST_LINE only the beginning."""
    cut = False
    done = 0
    while raw := stream.readline(LONGEST_LINE):
        whole = raw.endswith(b"\n")
        if not cut:
            yield decoded(raw)
        cut = not whole
        done += len(raw)
        progress(done)
