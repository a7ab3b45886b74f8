"""A thread a GPU: one NVML call that never returns stops that GPU's row and no other."""

from __future__ import annotations

import threading
import time
from typing import Any, Callable, Dict, List, Optional

from .gpm import WRONG_PAIRS, WRONG_S
from .gpus import GpuReader
from .nvml import Nvml
from .processes import Namer

Row = Dict[str, Any]
Frame = Dict[str, Any]

LATE_SHARE = 0.7
"""A row that is not there after this share of the interval misses its frame."""
STUCK_AFTER_S = 3.0
"""A call that runs longer is called stuck; NVML answers in milliseconds, a wedged GPU never."""
OPEN_STUCK_S = 20.0
"""The first call takes the driver seconds a GPU without persistence mode: it sets the GPU up anew."""
FIRST_PATIENCE_S = 5.0

GPM_WRONG = "gpm_wrong"
"""The supervisor of the host starts a new probe on it: the fault is the process's."""


class _Worker(threading.Thread):
    """Reads one GPU whenever asked; everything it leaves behind is guarded by the board's lock.

    Each waits for itself and tells the board only when that can go on: one condition for all would wake every
    thread for every row.
    """

    def __init__(self, reader: GpuReader, lock: threading.Lock, tell: "Callable[[], None]") -> None:
        super().__init__(name="gpu-%d" % reader.index, daemon=True)
        self.reader = reader
        self.wanted = threading.Condition(lock)
        self._tell = tell
        self.interval_s = 1.0
        self.asked = 0
        self.done = 0
        self.busy_since: Optional[float] = None
        self.row: Row = {}
        self.info: Optional[Row] = None
        self.pids: Optional[List[int]] = None
        self.error: Optional[str] = None  # last one said in a status
        self.wrong_pairs = 0
        self.wrong_since = 0.0
        self.wrong_told = False

    def run(self) -> None:
        while True:
            with self.wanted:
                while self.asked == self.done:
                    self.busy_since = None
                    self.wanted.wait()
                self.busy_since = time.monotonic()
                asked, interval_s, first = self.asked, self.interval_s, self.done == 0
            if first:
                self.reader.open()
                with self.wanted:
                    self.info = dict(self.reader.info)
                    self._tell()
            row = self.reader.sample(interval_s)
            with self.wanted:
                self.row, self.info, self.pids = row, dict(self.reader.info), self.reader.pids
                self.done = asked
                self.busy_since = None
                self._tell()
            if first:
                self.reader.warm_up(interval_s)


class GpuBoard:
    """All GPUs of the host, sampled in step."""

    def __init__(self, nvml: Nvml, count: int) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._ready: "Callable[[], bool]" = lambda: False  # what the sampling thread waits for
        self._nvml = nvml
        self._namer = Namer()
        self._workers: List[_Worker] = []
        self._asked = 0
        self._sampled = False
        self.grow(count)

    def grow(self, count: int) -> None:
        """Watch so many GPUs from now on; fewer than before change nothing: those that went show an error."""
        with self._changed:
            for index in range(len(self._workers), count):
                worker = _Worker(GpuReader(self._nvml, index, self._namer), self._lock, self._tell)
                self._workers.append(worker)
                worker.start()

    def infos(self, patience_s: float = FIRST_PATIENCE_S) -> List[Row]:
        """Constants of every GPU; of one that is still being opened the index only, of a stuck one the error."""
        with self._changed:
            if self._asked == 0:
                self._ask(1.0)
            self._wait(lambda: all(worker.info is not None for worker in self._workers), patience_s)
            return [worker.info or self._unopened(worker) for worker in self._workers]

    def _unopened(self, worker: _Worker) -> Row:
        index: Row = {"index": worker.reader.index}
        return dict(index, error="stuck") if self._is_stuck(worker) else index

    def sample(self, interval_s: float, patience_s: Optional[float] = None) -> List[Row]:
        """A row a GPU. A GPU that is late misses this frame, a stuck one has a row that says so."""
        with self._changed:
            if self._asked and not self._sampled:
                self._sampled = True  # the constants' round has read a first sample too
            else:
                self._ask(interval_s)
            limit = patience_s if patience_s is not None else LATE_SHARE * interval_s
            self._wait(lambda: all(self._settled(worker) for worker in self._workers), limit)
            rows: List[Row] = []
            for worker in self._workers:
                if worker.done == self._asked:
                    rows.append(worker.row)
                elif self._is_stuck(worker):
                    rows.append({"index": worker.reader.index, "error": "stuck"})
            return rows

    def _ask(self, interval_s: float) -> None:
        self._asked += 1
        for worker in self._workers:
            worker.asked, worker.interval_s = self._asked, interval_s
            worker.wanted.notify()

    def _tell(self) -> None:
        """A worker left something; called with the lock held."""
        if self._ready():
            self._changed.notify_all()

    def _wait(self, ready: "Callable[[], bool]", patience_s: float) -> None:
        end = time.monotonic() + patience_s
        self._ready = ready
        while not ready():
            left = end - time.monotonic()
            if left <= 0:
                return
            self._changed.wait(left)

    def _settled(self, worker: _Worker) -> bool:
        return worker.done == self._asked or self._is_stuck(worker)

    @staticmethod
    def _is_stuck(worker: _Worker) -> bool:
        limit = STUCK_AFTER_S if worker.info is not None else OPEN_STUCK_S
        return worker.busy_since is not None and time.monotonic() - worker.busy_since > limit

    def pids(self) -> Dict[int, List[int]]:
        """GPU index -> process ids, as NVML lists them; GPUs without a list are left out."""
        with self._changed:
            return {worker.reader.index: list(worker.pids) for worker in self._workers if worker.pids is not None}

    def handles(self) -> Dict[int, Any]:
        """GPU index -> NVML handle of those that have one."""
        with self._changed:
            return {w.reader.index: w.reader.handle for w in self._workers if w.reader.handle is not None}

    def changes(self, rows: List[Row]) -> List[Frame]:
        """Status frames for GPUs whose error came or went with these rows."""
        frames: List[Frame] = []
        for row in rows:
            worker = self._workers[row["index"]]
            error = row.get("error")
            if error != worker.error:
                frames.append(_status(worker, error))
                worker.error = error
            frames += _wrong_pairs(worker, row)
        return frames


def _wrong_pairs(worker: _Worker, row: Row) -> List[Frame]:
    """A status when GPM has been contradicted by power so many times in a row, and when it no longer is."""
    now = time.monotonic()
    if row.get("absent", {}).get("gpm") == "contradicted":
        worker.wrong_since = worker.wrong_since if worker.wrong_pairs else now
        worker.wrong_pairs += 1
    elif row.get("gpm"):
        worker.wrong_pairs = 0
    wrong = worker.wrong_pairs >= WRONG_PAIRS and now - worker.wrong_since >= WRONG_S
    if wrong and not worker.wrong_told:
        level, words = "warning", "reads no SM activity at a power that needs it: its activity values are left out"
    elif worker.wrong_told and not worker.wrong_pairs:
        level, words = "info", "has activity values again"
    else:
        return []
    worker.wrong_told = wrong
    index = worker.reader.index
    message = "GPU %d %s" % (index, words)
    return [{"type": "status", "t": time.time(), "code": GPM_WRONG, "level": level, "message": message,
             "detail": {"gpu": index}}]  # fmt: skip


_WORDS = {
    "gpu_lost": ("gpu_lost", "cannot be read any more: lost, or fallen off the bus; usually only a reboot helps"),
    "stuck": ("stuck_gpu", "does not answer NVML calls; the other GPUs are still watched"),
    "reset_required": ("gpu_lost", "requires a reset; its memory stays taken until then"),
    "no_permission": ("not_permitted", "may not be read by this user"),
}


def _status(worker: _Worker, error: Optional[str]) -> Frame:
    index = worker.reader.index
    pci = (worker.info or {}).get("pci_bus_id")
    if error is None:
        code = _WORDS.get(worker.error or "", ("stuck_gpu", ""))[0]
        level, words = "info", "answers again"
    else:
        code, words = _WORDS.get(error, ("gpu_lost", "cannot be read: %s" % error.replace("_", " ")))
        level = "error"
    return {
        "type": "status",
        "t": time.time(),
        "code": code,
        "level": level,
        "message": "GPU %d%s %s" % (index, " (%s)" % pci if pci else "", words),
        "detail": {"gpu": index, "pci_bus_id": pci, "error": error},
    }
