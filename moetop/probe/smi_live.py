"""The fallback source: one `nvidia-smi` in its own loop, watched for silence, started anew when it ends."""

from __future__ import annotations

import os
import queue
import shutil
import threading
import time
from typing import Any, Callable, Dict, List, Optional

from .child import Child
from .smi import Row
from .smi_stream import FIELDS, SmiEvent, SmiStream, query_argv

Frame = Dict[str, Any]

PLACES = ("/usr/bin", "/usr/lib/wsl/lib", "/opt/bin", "/usr/local/nvidia/bin", "/run/current-system/sw/bin")
PATIENCE_S = 20.0
"""A single call was seen to take 6 s on hosts with many GPUs without persistence mode."""
PATIENCE_INTERVALS = 5
QUIET_S = 0.15
"""Rows of one sample are printed together; after this pause the first sample is whole."""
RESTART_S = 30.0
MIN_RERUN_S = 1.0
MAX_LINE = 8192


def find_nvidia_smi() -> Optional[str]:
    """Path of nvidia-smi, also where a non-login shell's PATH does not have it."""
    path = os.pathsep.join([os.environ.get("PATH", "")] + list(PLACES))
    return shutil.which("nvidia-smi", path=path)


class SmiLoop:
    """Runs the loop in a thread; the newest sample is taken by `take`."""

    def __init__(
        self,
        program: str,
        interval_s: float,
        say: "Callable[[str, str, str, Dict[str, Any]], None]",
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._program = program
        self.interval_s = interval_s
        self._say = say  # code, message, level, detail
        self._told: Dict[str, Dict[str, Any]] = {}  # conditions said and not yet over
        self._patience_s = patience_s
        self._fields: List[str] = list(FIELDS)
        self._lock = threading.Lock()
        self._gave = False  # a sample, by the nvidia-smi that runs now
        self._rows: "Optional[List[Row]]" = None
        self._stop = threading.Event()
        self.first = threading.Event()
        """Set when the first sample is there or will not come."""
        self._thread = threading.Thread(target=self._run, name="nvidia-smi", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def take(self) -> "Optional[List[Row]]":
        """Rows of the newest sample since the last call, or None."""
        with self._lock:
            rows, self._rows = self._rows, None
            return rows

    def _run(self) -> None:
        while not self._stop.is_set():
            if not self._watch_one():
                self.first.set()
                self._stop.wait(RESTART_S)

    def _watch_one(self) -> bool:
        """One nvidia-smi from start to end; True when it should be started again at once."""
        interval_s = self.interval_s
        stream = SmiStream()
        try:
            child = Child(query_argv(interval_s, self._fields, self._program))
        except OSError as error:
            self._tell("smi_failed", "nvidia-smi cannot be started: %s" % error.strerror)
            return False
        lines: "queue.Queue[Optional[str]]" = queue.Queue(10000)
        threading.Thread(target=_pump, args=(child, lines), name="nvidia-smi-out", daemon=True).start()
        try:
            return self._read(lines, stream, interval_s)
        finally:
            child.stop()

    def _read(self, lines: "queue.Queue[Optional[str]]", stream: SmiStream, interval_s: float) -> bool:
        patience_s = max(self._patience_s, PATIENCE_INTERVALS * interval_s)
        heard = time.monotonic()
        self._gave = False
        while not self._stop.is_set():
            try:
                line = lines.get(timeout=QUIET_S)
            except queue.Empty:
                self._keep(stream.flush())
                if time.monotonic() - heard > patience_s:
                    words = "nvidia-smi gave nothing for %d s and was ended; the driver may be wedged"
                    self._tell("smi_hang", words % patience_s)
                    return False
                if self.interval_s != interval_s:
                    return True
                continue
            if line is None:
                self._keep(stream.flush())
                if self._told:
                    return False
                if self._gave:  # it knows no loop: run it again and again
                    self._stop.wait(max(MIN_RERUN_S, interval_s))
                    return True
                said = stream.last_words or "it printed nothing"
                self._tell("smi_failed", "nvidia-smi ended: %s" % said)
                return False
            heard = time.monotonic()
            event = stream.feed(line)
            if event is None:
                continue
            if event.refused is not None and event.refused in self._fields and len(self._fields) > 1:
                self._fields.remove(event.refused)
                return True
            self._keep(event)
        return False

    def _tell(self, code: str, message: str, detail: "Optional[Dict[str, Any]]" = None) -> None:
        detail = detail or {}
        self._told[code] = detail
        self._say(code, message, "error" if code == "gpu_lost" else "fatal", detail)

    def _keep(self, event: Optional[SmiEvent]) -> None:
        if event is None:
            return
        for trouble in event.troubles:
            self._tell(trouble.code, trouble.message, trouble.detail)
        if event.rows:
            with self._lock:
                self._rows = event.rows
            self._gave = True
            self.first.set()
            for code in [code for code in self._told if code != "gpu_lost"]:
                self._say(code, "nvidia-smi answers again", "info", self._told.pop(code))


def _pump(child: Child, lines: "queue.Queue[Optional[str]]") -> None:
    try:
        while True:
            raw = child.stdout.readline(MAX_LINE)
            if not raw:
                break
            lines.put(raw.decode("utf-8", "replace"))
    except (OSError, ValueError):
        pass
    lines.put(None)
