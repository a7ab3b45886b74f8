"""The probe's life: hello, a sample every interval, control lines in, frames out, a clean end.

Ends when its input closes, when the client falls silent, on a signal, or when nobody reads its output.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import signal
import sys
import threading
import time
from typing import Any, Dict, List, Optional

from . import child
from .hostinfo import LoadReader, host_facts, sight_notes
from .outbox import Outbox
from .sources import NvmlSource, Source, open_source

Frame = Dict[str, Any]

NICE = 10
STACK_BYTES = 256 * 1024
ARENAS = 2
M_ARENA_MAX = -8  # malloc.h: a memory arena a thread would cost megabytes
MAX_CONTROL_LINE = 1 << 20
MIN_INTERVAL_S, MAX_INTERVAL_S = 0.1, 3600.0
SILENT_INTERVALS = 3
ONCE_PATIENCE_S = 20.0
STOP_PATIENCE_S = 1.0


class _Ended(BaseException):
    """Raised by a signal in the main thread."""


class Session:
    """One run of the probe. `options` are those of the probe protocol, all optional."""

    def __init__(self, options: Dict[str, Any]) -> None:
        self.options = options
        self.once = bool(options.get("once", False))
        self.interval_s = _interval(options.get("interval_s", 1.0))
        self.silence_s = float(options.get("silence_timeout_s", 30.0))
        self._wake = threading.Event()
        self._heard = time.monotonic()
        self._ending: Optional[str] = None
        self._servers: Any = None
        self._source: Source = Source()
        self._load = LoadReader()
        self._greeting = threading.Lock()
        self._waiting_says: List[Frame] = []
        self._greeted = False
        self.outbox = Outbox(_take_stdout(), lambda: self.end("nobody reads the output"))

    # ── ways to end ──────────────────────────────────────────────────────────────────────────────

    def end(self, why: str) -> None:
        """Ask for the end; from any thread."""
        self._ending = self._ending or why
        self._wake.set()

    def _on_signal(self, number: int, _frame: Any) -> None:
        _on_signals(signal.SIG_IGN)
        self._ending = self._ending or "signal %d" % number
        raise _Ended

    def run(self) -> None:
        _on_signals(self._on_signal)
        threading.excepthook = lambda args: self._fault(args.exc_value)
        try:
            self.outbox.start()
            threading.Thread(target=self._read_control, name="control", daemon=True).start()
            self._live()
        except _Ended:
            pass
        self._finish()

    def _finish(self) -> None:
        """Leave nothing behind. The process ends whatever a thread of it is stuck in."""
        _on_signals(signal.SIG_IGN)
        servers = self._servers
        if servers is not None:
            helper = threading.Thread(target=servers.stop, daemon=True)
            helper.start()
            helper.join(STOP_PATIENCE_S)
        self._source.stop()
        child.stop_all()
        self.outbox.flush()  # `bye` is an event and would overtake the last sample
        self._put(_status("bye", "the probe ends: %s" % (self._ending or "done")))
        self.outbox.flush()
        os._exit(0)

    def _fault(self, error: Optional[BaseException]) -> None:
        if isinstance(error, Exception):
            place = error.__traceback__
            while place is not None and place.tb_next is not None:
                place = place.tb_next
            where = " (%s:%d)" % (place.tb_frame.f_code.co_filename, place.tb_lineno) if place is not None else ""
            self._put(_status("probe_fault", "a part of the probe stopped: %r%s" % (error, where), level="error"))

    # ── input ────────────────────────────────────────────────────────────────────────────────────

    def _read_control(self) -> None:
        stream = sys.stdin.buffer
        while True:
            try:
                line = stream.readline(MAX_CONTROL_LINE)
            except (OSError, ValueError):
                line = b""
            if not line:
                if not self.once:
                    self.end("input closed")
                return
            self._heard = time.monotonic()
            try:
                message = json.loads(line)
            except ValueError:
                continue
            if isinstance(message, dict):
                self._control(message)

    def _control(self, message: Dict[str, Any]) -> None:
        command = message.get("cmd")
        if command == "quit":
            self.end("asked to")
        elif command == "interval":
            self.interval_s = _interval(message.get("interval_s"), self.interval_s)
            self._wake.set()
        elif command != "ping" and self._servers is not None:
            self._servers.control(message)

    # ── output ───────────────────────────────────────────────────────────────────────────────────

    def _put(self, frame: Frame) -> None:
        self.outbox.emit(frame, True)

    def _say(self, code: str, message: str, level: str, detail: Dict[str, Any]) -> None:
        """A condition of the source; held back until after hello, so that hello comes first."""
        fatal = level == "fatal"
        frame = _status(code, message, level="error" if fatal else level, fatal=fatal, detail=detail)
        with self._greeting:
            if not self._greeted:
                self._waiting_says.append(frame)
                return
        self._put(frame)

    def _greet(self) -> None:
        frame: Frame = {"type": "hello", "schema": 1, "t": round(time.time(), 3), "source": self._source.name}
        frame.update(host_facts())
        frame.update(self._source.hello())
        frame["notes"] = frame["notes"] + sight_notes()
        self._put(frame)
        with self._greeting:
            self._greeted = True
            waiting, self._waiting_says = self._waiting_says, []
        for said in waiting:
            self._put(said)

    # ── the loop ─────────────────────────────────────────────────────────────────────────────────

    def _live(self) -> None:
        patience = self.options.get("smi_patience_s")
        self._source = open_source(self.interval_s, self._say, patience)
        first = None
        if self._source.name == "nvidia-smi":
            first = self._source.sample(self.interval_s, ONCE_PATIENCE_S)
        self._greet()
        if self.once:
            self._tick(first or self._source.sample(self.interval_s, ONCE_PATIENCE_S))
            return
        self._tick(first or self._source.sample(self.interval_s))
        self._start_followers()
        _give_memory_back()
        taken = time.monotonic()
        while self._pause(taken):
            # keep the beat, but never run after a beat that is long gone
            now = time.monotonic()
            taken = max(taken + self.interval_s, now - self.interval_s)
            self._tick(self._source.sample(self.interval_s))

    def _pause(self, taken: float) -> bool:
        """Wait until an interval after `taken`; False when it is time to end."""
        while self._ending is None:
            now = time.monotonic()
            left = taken + self.interval_s - now
            # a client pings once an interval at least
            silence_s = max(self.silence_s, SILENT_INTERVALS * self.interval_s)
            silence_left = self._heard + silence_s - now
            if silence_left <= 0:
                self.end("no word from the client for %d s" % silence_s)
            elif left <= 0:
                return True
            else:
                self._wake.wait(min(left, silence_left))
                self._wake.clear()
        return False

    def _tick(self, reading: Any) -> None:
        rows, statuses = reading
        if self._source.hello_again():
            self._greet()
        frame: Frame = {"type": "gpus", "t": round(time.time(), 3), "gpus": rows, "load": self._load.read()}
        self.outbox.sample(frame)
        for status in statuses:
            self._put(status)
        if self._servers is not None:
            self._servers.gpu_pids(self._source.pids())

    def _start_followers(self) -> None:
        from .kernel import KernelWatch  # after the first sample, which needs none of it

        watch = KernelWatch(self.outbox.emit, bool(self.options.get("sudo")), bool(self.options.get("history", True)))
        if isinstance(self._source, NvmlSource):
            board = self._source.board
            addresses = {info["index"]: str(info.get("pci_bus_id", "")) for info in board.infos(0.0)}
            watch.start(self._source.nvml, board.handles(), addresses)
        else:
            watch.start(None, {}, {})
        self._servers = _server_watch(self.options, self.outbox)
        if self._servers is None:
            self._put(_status("no_server", "this probe cannot look for servers and logs", level="warning"))
            return
        self._servers.start()
        self._servers.gpu_pids(self._source.pids())


def _server_watch(options: Dict[str, Any], outbox: Outbox) -> Any:
    try:
        module = importlib.import_module(".servers", __package__)
    except ImportError:
        return None
    return module.ServerWatch(options, outbox.emit)


def _interval(value: Any, default: float = 1.0) -> float:
    """A usable interval in seconds: bounded, the default where it is no number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        return default
    return min(MAX_INTERVAL_S, max(MIN_INTERVAL_S, float(value)))


def _status(
    code: str, message: str, level: str = "info", fatal: bool = False, detail: Optional[Dict[str, Any]] = None
) -> Frame:
    frame: Frame = {"type": "status", "t": round(time.time(), 3), "code": code, "message": message, "level": level}
    if fatal:
        frame["fatal"] = True
    if detail:
        frame["detail"] = detail
    return frame


def _on_signals(action: Any) -> None:
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, action)


def _take_stdout() -> int:
    """Our own copy of standard output; what a library prints there goes to standard error instead."""
    try:
        own = os.dup(1)
        os.dup2(2, 1)
    except OSError:
        os._exit(0)
    return own


def _be_modest(once: bool) -> None:
    """Low priority and little memory. Not for one sample: it takes 60 ms, but stands still on a busy host."""
    if once:
        return
    try:
        os.nice(NICE)
    except OSError:
        pass
    try:
        threading.stack_size(STACK_BYTES)
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, ARENAS)
    except (OSError, AttributeError, ValueError):
        pass


def _give_memory_back() -> None:
    """What compiling and starting took and needs no more (1 MiB); glibc only."""
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        pass


def run(options: Dict[str, Any]) -> None:
    """Run until the end; never returns."""
    _be_modest(bool(options.get("once", False)))
    session = Session(options)
    try:
        session.run()
    except _Ended:  # the signal came while the end had begun
        child.stop_all()
        os._exit(0)
    except Exception as error:
        session._fault(error)
        child.stop_all()
        session.outbox.flush()
        os._exit(1)
