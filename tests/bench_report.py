"""What one frame and one report cost: eight GPUs at 1 Hz, with and without a server and its log."""

from __future__ import annotations

import time
from collections.abc import Callable

from moetop.diagnose.host import HostEvidence
from moetop.model import Gpus, Log
from moetop.recording import Malformed, Unknown, clean
from moetop.watch import Watch
from tests.bench_frames import frames
from tests.bench_kit import Figure

GPUS = 8
SECONDS = 60
EVENTS = 2000


def _lines(seconds: int, *, server: bool) -> list[bytes]:
    lines = []
    for line in frames(1, GPUS, 1_000_000.0):
        if line.startswith(b'{"type":"gpus"'):
            seconds -= 1
        if seconds < 0:
            return lines
        if server or not (b'"type": "log"' in line[:40] or b'"type": "server"' in line[:40]):
            lines.append(line)
    return lines


def _cost_ms(work: Callable[[], object], times: int = 200) -> float:
    """Processor milliseconds of one call, the best of five rounds."""
    best = float("inf")
    for _ in range(5):
        begun = time.process_time()
        for _ in range(times):
            work()
        best = min(best, (time.process_time() - begun) / times)
    return best * 1000


def figures() -> list[Figure]:
    """Decoding, taking in, judging; a second of a host costs about the sum."""
    HostEvidence("warm").apply(Log(t=0.0, source="log", line="loads the engines' tables"))
    rows = []
    for server in (False, True):
        lines = _lines(SECONDS, server=server)
        decoded = [frame for frame in (clean(line)[0] for line in lines) if not isinstance(frame, (Unknown, Malformed))]
        evidence = HostEvidence("bench")
        begun = time.process_time()
        for frame in decoded:
            evidence.apply(frame)
        took_ms = (time.process_time() - begun) * 1000 / SECONDS
        gpu_frames = sum(isinstance(frame, Gpus) for frame in decoded)
        kind = "with a server and its log" if server else "GPUs alone"
        rows.append(
            Figure(
                f"decode and clean a second of frames, {kind}",
                _cost_ms(lambda lines=lines: [clean(line) for line in lines], 3) / SECONDS,
                "ms",
            )
        )
        rows.append(
            Figure(f"take them into the evidence, {kind}", took_ms, "ms", note=f"{gpu_frames} samples of {GPUS} GPUs")
        )
        rows.append(Figure(f"report() after a sample, {kind}", _report_ms(evidence, decoded), "ms"))
        rows.append(Figure(f"report() again, nothing new, {kind}", _cost_ms(evidence.report), "ms"))
    rows.append(Figure(f"report() of a log with {EVENTS} events", _long_log_ms(), "ms"))
    return rows  # fmt: skip


def _report_ms(evidence: HostEvidence, decoded: list) -> float:
    """A report right after a new sample, without the cost of taking that in."""
    samples = [frame for frame in decoded if isinstance(frame, Gpus)][-20:]
    spent = 0.0
    for sample in samples:
        evidence.apply(sample)
        begun = time.process_time()
        evidence.report()
        spent += time.process_time() - begun
    return spent * 1000 / len(samples)


def _long_log_ms() -> float:
    """Each report after one more log line."""
    watch = Watch(10.0, live=False)
    for line in _lines(30, server=True):
        frame, raw = clean(line)
        watch.frame("bench", frame, raw)  # type: ignore[arg-type]
    logs = [clean(line)[0] for line in _lines(EVENTS, server=True) if b'"type": "log"' in line[:40]]
    for frame in logs:
        watch.frame("bench", frame, b"")  # type: ignore[arg-type]
    spent = 0.0
    for frame in logs[:50]:
        watch.frame("bench", frame, b"")  # type: ignore[arg-type]
        begun = time.process_time()
        watch.report("bench")
        spent += time.process_time() - begun
    return spent * 1000 / 50
