"""Where GPU figures come from: NVML, else nvidia-smi, else nowhere, each behind the same few calls."""

from __future__ import annotations

import threading
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

from .board import GpuBoard
from .hostinfo import memory_mib
from .nvml import Failure, Nvml, lost_pci_addresses

Frame = Dict[str, Any]
Say = Callable[[str, str, str, Dict[str, Any]], None]
"""code, message, level (info, warning, error, or fatal: no GPU data will come), detail."""

START_PATIENCE_S = 20.0
"""nvmlInit takes seconds without persistence mode, for ever on a wedged driver."""
COUNT_S = 30.0
"""How often the GPUs are counted: one can come back after a reset."""
FINAL = ("driver_mismatch", "no_driver", "not_permitted", "gpu_lost")
"""nvidia-smi uses the same library: where NVML fails so, it fails too."""


class Source:
    """No GPU figures at all; the base of those that have some."""

    name: Optional[str] = None

    def hello(self) -> Frame:
        """driver, nvml_version, gpus, notes."""
        return {"driver": None, "gpus": [], "notes": []}

    def sample(self, interval_s: float, patience_s: Optional[float] = None) -> Tuple[List[Frame], List[Frame]]:
        """(rows, status frames) of now."""
        return [], []

    def pids(self) -> Dict[int, List[int]]:
        return {}

    def hello_again(self) -> bool:
        """Whether the constants changed since the last hello."""
        return False

    def stop(self) -> None:
        return None


class NvmlSource(Source):
    """NVML answers."""

    name = "nvml"

    def __init__(self, nvml: Nvml, count: int) -> None:
        self.nvml = nvml
        self.board = GpuBoard(nvml, count)
        self._said: List[Frame] = []
        self._count_due = time.monotonic() + COUNT_S

    def hello(self) -> Frame:
        infos = self.board.infos()
        self._said = infos
        driver, _ = self.nvml.text("nvmlSystemGetDriverVersion")
        version, _ = self.nvml.text("nvmlSystemGetNVMLVersion")
        known = [str(info["pci_bus_id"]) for info in infos if info.get("pci_bus_id")]
        notes = []
        if len(known) == len(infos):
            notes = [
                "the driver lists GPU %s, NVML does not show it" % address for address in lost_pci_addresses(known)
            ]
        if any(info.get("mig") for info in infos):
            notes.append("MIG is on: NVML gives no utilization and no tensor activity for a divided GPU")
        return {"driver": driver, "nvml_version": version, "gpus": infos, "notes": notes}

    def hello_again(self) -> bool:
        return self.board.infos(0.0) != self._said

    def sample(self, interval_s: float, patience_s: Optional[float] = None) -> Tuple[List[Frame], List[Frame]]:
        if time.monotonic() >= self._count_due:
            self._count_due = time.monotonic() + COUNT_S
            count, reason = self.nvml.call("nvmlDeviceGetCount")
            if reason is None:
                self.board.grow(count)
        rows = self.board.sample(interval_s, patience_s)
        return rows, self.board.changes(rows)

    def pids(self) -> Dict[int, List[int]]:
        return self.board.pids()


class SmiSource(Source):
    """nvidia-smi in a loop."""

    name = "nvidia-smi"

    def __init__(self, program: str, interval_s: float, say: Say, patience_s: Optional[float]) -> None:
        from . import smi_live, smi_stream  # here: memory that a host with NVML need not spend

        self._stream = smi_stream
        self._loop = smi_live.SmiLoop(program, interval_s, say, **({"patience_s": patience_s} if patience_s else {}))
        self._rows: List[Frame] = []
        self._greeted: List[int] = []
        self._loop.start()

    def hello(self) -> Frame:
        rows = self._rows
        self._greeted = [row["index"] for row in rows]
        total, _ = memory_mib()
        drivers = [row["driver"] for row in rows if row.get("driver")]
        return {
            "driver": drivers[0] if drivers else None,
            "gpus": [self._stream.info_of(row, total) for row in rows],
            "notes": ["nvidia-smi is the source: no tensor and DRAM activity, no GPU processes"],
        }

    def hello_again(self) -> bool:
        return bool(self._rows) and [row["index"] for row in self._rows] != self._greeted

    def sample(self, interval_s: float, patience_s: Optional[float] = None) -> Tuple[List[Frame], List[Frame]]:
        self._loop.interval_s = interval_s
        if patience_s is not None:
            self._loop.first.wait(patience_s)
        rows = self._loop.take()
        if rows is None:
            return [], []
        self._rows = rows
        _, used = memory_mib()
        return [self._stream.sample_of(row, used) for row in rows], []

    def stop(self) -> None:
        self._loop.stop()


class _Starting:
    """NVML being started in a thread of its own, since that can take for ever."""

    def __init__(self) -> None:
        self.nvml = Nvml()
        self.failure: Optional[Failure] = None
        self.over = threading.Event()
        threading.Thread(target=self._run, name="nvml-init", daemon=True).start()

    def _run(self) -> None:
        self.failure = self.nvml.start()
        self.over.set()


class LateSource(Source):
    """Nothing yet, and the real source as soon as NVML has started after all."""

    def __init__(self, starting: _Starting, interval_s: float, say: Say, patience_s: Optional[float]) -> None:
        self._open: Callable[[], Source] = lambda: _choose(starting, interval_s, say, patience_s)
        self._starting = starting
        self._say = say
        self._real: Optional[Source] = None

    def _source(self) -> Source:
        if self._real is None and self._starting.over.is_set():
            self._say("stuck_gpu", "NVML has started after all", "info", {})
            self._real = self._open()
            self.name = self._real.name
        return self._real or Source()

    def hello(self) -> Frame:
        return self._source().hello()

    def hello_again(self) -> bool:
        return self._source().hello_again()

    def sample(self, interval_s: float, patience_s: Optional[float] = None) -> Tuple[List[Frame], List[Frame]]:
        return self._source().sample(interval_s, patience_s)

    def pids(self) -> Dict[int, List[int]]:
        return self._source().pids()

    def stop(self) -> None:
        if self._real is not None:
            self._real.stop()


def open_source(interval_s: float, say: Say, patience_s: Optional[float] = None) -> Source:
    """The best source of this host; conditions are told through `say`."""
    starting = _Starting()
    if not starting.over.wait(START_PATIENCE_S):
        say("stuck_gpu", "NVML did not start within %d s: the driver does not answer" % START_PATIENCE_S, "fatal", {})
        return LateSource(starting, interval_s, say, patience_s)
    return _choose(starting, interval_s, say, patience_s)


def _choose(starting: _Starting, interval_s: float, say: Say, patience_s: Optional[float]) -> Source:
    nvml, failure = starting.nvml, starting.failure
    if failure is None:
        count, reason = nvml.call("nvmlDeviceGetCount")
        if reason is None and count:
            return NvmlSource(nvml, count)
        if reason is None:
            say("no_gpu", "the NVIDIA driver is there but shows no GPU", "fatal", {})
            return Source()
        failure = Failure("no_nvml", "NVML does not count its GPUs: %s" % reason.replace("_", " "), {"reason": reason})
    if failure.code in FINAL:
        say(failure.code, failure.message, "fatal", dict(failure.detail))
        return Source()
    from .smi_live import find_nvidia_smi

    program = find_nvidia_smi()
    if program is None:
        code = "no_nvml" if failure.detail.get("kernel") else "no_driver"
        say(code, "%s, and no nvidia-smi was found" % failure.message, "fatal", dict(failure.detail))
        return Source()
    say(
        "fallback_smi",
        "%s; reading nvidia-smi instead, with less detail" % failure.message,
        "warning",
        dict(failure.detail),
    )
    return SmiSource(program, interval_s, say, patience_s)
