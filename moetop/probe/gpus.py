"""Reads one GPU: constants once, what moves every sample, what is dear or slow seldom. Runs no thread."""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from .gpm import MIN_PAIR_S, GpmPairs, contradicts
from .hostinfo import memory_mib
from .nvml import Nvml
from .processes import Namer, list_processes

Row = Dict[str, Any]
Reading = Tuple[Any, Optional[str]]

# A handle or a call that answers so means that the GPU itself is gone, not one value.
LOST = ("gpu_lost", "irq_issue")
LOST_AT_OPEN = LOST + ("unknown_error", "not_found", "operating_system")
REOPEN_S = 10.0
MIG_S = 30.0
"""From Hopper on a GPU can be divided while it is watched; a call of 0.05 ms."""
PROCESSES_S = 3.0
"""Two calls of 0.1 to 0.2 ms and a look into /proc for each process; a new server is found by them."""
JITTER_S = 0.1
"""A reading that is due so soon is taken now: samples come a little early or late."""
# Integrated parts that share the host's memory: NVML answers NotSupported there, or numbers that are wrong.
UNIFIED_NAMES = ("GB10", "Thor", "Orin")

CLOCK_SM, CLOCK_MEM = 1, 2  # nvmlClockType_t
SENSOR_GPU = 0
ECC_CORRECTED, ECC_UNCORRECTED, ECC_VOLATILE = 0, 1, 0
FIELD_MEMORY_TEMP = 82  # NVML_FI_DEV_MEMORY_TEMP
FIELD_POWER_INSTANT = 186  # NVML_FI_DEV_POWER_INSTANT

_REASONS_CALLS = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")


class _Seldom(NamedTuple):
    """A value that is read every `period_s` seconds and repeated in the rows between."""

    key: str
    period_s: float
    first_s: float  # when it is read first: the dear ones not with others
    read: "Callable[[GpuReader], Reading]"
    expected: bool = False  # its absence is worth a word
    repeat: bool = True  # the last value goes into every row until read anew


class GpuReader:
    """Everything asked of one GPU. `constants` and `sample` are called by one thread."""

    def __init__(self, nvml: Nvml, index: int, namer: Namer) -> None:
        self.index = index
        self.info: Row = {"index": index}
        self.pids: Optional[List[int]] = None
        self.handle: Any = None
        self._nvml = nvml
        self._namer = namer
        self._gpm: Optional[GpmPairs] = None
        self._gpm_why: Optional[str] = None
        self._mig = False
        self._unified = False
        self._started = time.monotonic()
        self._due: Dict[str, float] = {}
        self._kept: Dict[str, Reading] = {}
        self._opened_at: Optional[float] = None
        self._open_error: Optional[str] = None
        self._processes_due = 0.0
        self._mig_due = 0.0

    # ── constants ────────────────────────────────────────────────────────────────────────────────

    def open(self) -> Optional[str]:
        """Get the handle and the constants; the reason where the GPU cannot be had."""
        self._opened_at = time.monotonic()
        handle, reason = self._nvml.call("nvmlDeviceGetHandleByIndex", self.index)
        if reason is not None:
            self._open_error = "gpu_lost" if reason in LOST_AT_OPEN else reason
            self.info = {"index": self.index, "error": self._open_error}
            return self._open_error
        self.handle, self._open_error = handle, None
        self.info = self._constants()
        self._mig_due = self._opened_at + MIG_S
        return None

    def _check_mig(self, now: float) -> None:
        """Read the constants anew when the GPU has been divided, or is whole again."""
        self._mig_due = now + MIG_S
        mode, reason = self._nvml.call("nvmlDeviceGetMigMode", self.handle)
        if reason is None and (mode[0] == 1) != self._mig:
            self.info = self._constants()

    def _constants(self) -> Row:
        nvml, handle = self._nvml, self.handle
        info: Row = {"index": self.index}
        absent: Dict[str, str] = {}

        def keep(key: str, reading: Reading, scale: float = 1.0) -> None:
            value, reason = reading
            if reason is not None:
                absent[key] = reason
            else:
                info[key] = round(value * scale, 3) if scale != 1.0 else value

        keep("uuid", nvml.text("nvmlDeviceGetUUID", handle))
        keep("name", nvml.text("nvmlDeviceGetName", handle))
        keep("pci_bus_id", self._pci_bus_id())
        capability, reason = nvml.call("nvmlDeviceGetCudaComputeCapability", handle)
        keep("compute_capability", ("%d.%d" % tuple(capability), None) if reason is None else (None, reason))
        mode, reason = nvml.call("nvmlDeviceGetMigMode", handle)
        self._mig = reason is None and mode[0] == 1
        info["mig"] = self._mig if reason is None else (False if reason == "not_supported" else None)
        self._unified = any(word in str(info.get("name")) for word in UNIFIED_NAMES)
        keep("memory_total_mib", self._memory_total())
        if self._unified:
            info["unified_memory"] = True
        keep("power_limit_default_w", nvml.call("nvmlDeviceGetPowerManagementDefaultLimit", handle), 0.001)
        keep("sm_clock_max_mhz", nvml.call("nvmlDeviceGetMaxClockInfo", handle, CLOCK_SM))
        keep("pcie_gen_max", nvml.call("nvmlDeviceGetMaxPcieLinkGeneration", handle))
        keep("pcie_width_max", nvml.call("nvmlDeviceGetMaxPcieLinkWidth", handle))
        self._prepare_gpm(info, absent)
        if absent:
            info["absent"] = absent
        return info

    def _pci_bus_id(self) -> Reading:
        pci, reason = self._nvml.call("nvmlDeviceGetPciInfo", self.handle)
        if reason is not None:
            return None, reason
        raw = pci.busId or pci.busIdLegacy
        return (raw.decode("ascii", "replace") if isinstance(raw, bytes) else str(raw)), None

    def _prepare_gpm(self, info: Row, absent: Dict[str, str]) -> None:
        pairs = GpmPairs(self._nvml, self.handle)
        supported, reason = pairs.supported()
        if self._mig and supported:
            supported, reason = False, "mig"  # per instance only; the whole GPU has no pair
        info["gpm"] = supported
        self._gpm = pairs if supported else None
        self._gpm_why = reason
        if reason is not None:
            absent["gpm"] = reason

    def _memory(self) -> Tuple[Any, Optional[str]]:
        """NVML's memory structure; version 2 leaves the driver's reserve out of `used`, as nvidia-smi does."""
        version = self._nvml.constant("nvmlMemory_v2", 0x02000028)
        memory, reason = self._nvml.call("nvmlDeviceGetMemoryInfo", self.handle, version=version)
        if reason is not None and reason not in LOST:
            memory, reason = self._nvml.call("nvmlDeviceGetMemoryInfo", self.handle)
        if reason is None and not memory.total:
            return None, "not_supported"
        return memory, reason

    def _memory_total(self) -> Reading:
        if not self._unified:
            memory, reason = self._memory()
            if reason is None:
                return round(memory.total / 1048576.0, 1), None
            if reason != "not_supported" or self._mig:
                return None, reason
            self._unified = True
        total, _ = memory_mib()
        return total, (None if total is not None else "not_supported")

    # ── samples ──────────────────────────────────────────────────────────────────────────────────

    def sample(self, interval_s: float) -> Row:
        """A row of a gpus frame. `absent` says why a value is missing, `error` that all are."""
        now = time.monotonic()
        if self.handle is None and (self._opened_at is None or now - self._opened_at >= REOPEN_S):
            self.open()
        if self.handle is None:
            return {"index": self.index, "error": self._open_error or "gpu_lost"}
        if now >= self._mig_due:
            self._check_mig(now)
        row: Row = {"index": self.index}
        absent: Dict[str, str] = {}
        lost = self._read_moving(row, absent)
        if lost is not None:
            return {"index": self.index, "error": lost}
        self._read_seldom(row, absent, now)
        row["gpm"] = None
        if self._gpm is not None:
            pair, reason = self._gpm.read(time.monotonic(), interval_s)
            if pair is not None and contradicts(pair, row.get("util_gpu_pct"), self._power_pct(row)):
                pair, reason = None, "contradicted"
            row["gpm"] = pair
            if reason is not None:
                absent["gpm"] = reason
        elif self._gpm_why is not None:
            absent["gpm"] = self._gpm_why
        self._read_processes(row, now)
        if "reset_required" in absent.values():
            row["error"] = "reset_required"
        if absent:
            row["absent"] = absent
        return row

    def _power_pct(self, row: Row) -> Optional[float]:
        """Draw in percent of the card's own limit, even where a lower one is set."""
        limit_w = max(row.get("power_limit_w") or 0.0, self.info.get("power_limit_default_w") or 0.0)
        power_w = row.get("power_w")
        return 100.0 * power_w / limit_w if power_w is not None and limit_w > 0 else None

    def warm_up(self, interval_s: float) -> None:
        """Spend GPM's first pair, which can be stale, before the second sample is due."""
        if self._gpm is not None and interval_s >= 3 * MIN_PAIR_S:
            time.sleep(MIN_PAIR_S * 1.2)
            self._gpm.read(time.monotonic(), interval_s)

    def _read_moving(self, row: Row, absent: Dict[str, str]) -> Optional[str]:
        """Values that move every sample; the error where the whole GPU cannot be read."""
        nvml, handle = self._nvml, self.handle
        util, reason = nvml.call("nvmlDeviceGetUtilizationRates", handle)
        if reason in LOST:
            return "gpu_lost"
        if reason is None:
            row["util_gpu_pct"], row["util_mem_pct"] = int(util.gpu), int(util.memory)
        else:
            why = "mig" if self._mig and reason == "not_supported" else reason
            absent["util_gpu_pct"] = absent["util_mem_pct"] = why
        power, reason = nvml.call("nvmlDeviceGetPowerUsage", handle)
        if reason == "not_supported":
            power, reason = nvml.field(handle, FIELD_POWER_INSTANT)
        readings: List[Tuple[str, Reading, float]] = [
            ("power_w", (power, reason), 0.001),
            ("sm_clock_mhz", nvml.call("nvmlDeviceGetClockInfo", handle, CLOCK_SM), 1.0),
            ("clock_event_reasons", nvml.first(_REASONS_CALLS, handle), 1.0),
        ]
        for key, (value, why_not), scale in readings:
            if why_not is not None:
                absent[key] = why_not
            else:
                row[key] = round(value * scale, 1) if scale != 1.0 else value
        if any(why in LOST for why in absent.values()):
            return "gpu_lost"
        if len(absent) == len(readings) + 2 and set(absent.values()) == {"unknown_error"}:
            return "gpu_lost"
        return None

    def read_memory_used(self) -> Reading:
        """MiB in use, of the host where the GPU shares its memory."""
        if self._unified:
            _, used = memory_mib()
            return used, (None if used is not None else "not_supported")
        memory, reason = self._memory()
        return (round(memory.used / 1048576.0, 1) if reason is None else None), reason

    def _read_seldom(self, row: Row, absent: Dict[str, str], now: float) -> None:
        for item in _SELDOM:
            fresh = now + JITTER_S >= self._due.setdefault(item.key, self._started + item.first_s)
            if fresh:
                self._due[item.key] = now + item.period_s
                self._kept[item.key] = item.read(self)
            value, reason = self._kept.get(item.key, (None, None))
            if value is not None and (item.repeat or fresh):
                row[item.key] = value
            elif reason is not None and item.expected:
                absent[item.key] = reason

    def _read_processes(self, row: Row, now: float) -> None:
        if now + JITTER_S < self._processes_due:
            return
        self._processes_due = now + PROCESSES_S
        processes, why, self.pids = list_processes(self._nvml, self.handle, self._namer)
        if processes is not None:
            row["processes"] = processes
            if processes and self._namer.foreign:
                row["processes_why"] = "in a container: these are the host's process ids, their names cannot be seen"
        elif why is not None:
            row["processes_why"] = why

    def read_power_limit(self) -> Reading:
        """The limit in force; the set one where a card has only that."""
        limit, reason = self._nvml.first(
            ("nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPowerManagementLimit"), self.handle
        )
        return (round(limit / 1000.0, 1) if reason is None else None), reason

    def read_call(self, name: str, *args: int) -> Reading:
        """A plain call on this GPU."""
        return self._nvml.call(name, self.handle, *args)

    def read_ecc(self, kind: int) -> Reading:
        """Errors of a kind since the driver was loaded."""
        return self._nvml.call("nvmlDeviceGetTotalEccErrors", self.handle, kind, ECC_VOLATILE)

    def read_memory_temperature(self) -> Reading:
        """Degrees Celsius of the memory; 0 is how parts without the sensor answer."""
        value, reason = self._nvml.field(self.handle, FIELD_MEMORY_TEMP)
        return (value or None), reason

    def read_energy(self) -> Reading:
        """Joules since the driver was loaded. Dear: 4.8 ms a call on the H200."""
        value, reason = self._nvml.call("nvmlDeviceGetTotalEnergyConsumption", self.handle)
        return (value / 1000.0 if reason is None else None), reason


# How often, and why. Costs are CPU time a call on an H200, driver 580.159.04. What is not here moves with the work
# and is read for every sample: utilization, power, clock, reasons (0.05 to 0.2 ms each) and a GPM pair (0.3).
_SELDOM: Tuple[_Seldom, ...] = (
    # 0.1 ms; degrees follow power by seconds, and a thermal limit shows in the reasons at once
    _Seldom("temp_c", 2.0, 0.0, lambda gpu: gpu.read_call("nvmlDeviceGetTemperature", SENSOR_GPU), expected=True),
    # 0.1 ms; moves while a model loads, then hardly
    _Seldom("memory_used_mib", 2.0, 0.0, GpuReader.read_memory_used, expected=True),
    # 0.1 ms; changed by hand (nvidia-smi -pl) or by a power manager
    _Seldom("power_limit_w", 10.0, 0.0, GpuReader.read_power_limit, expected=True),
    # 0.1 ms; two or three values in a card's life
    _Seldom("mem_clock_mhz", 10.0, 0.0, lambda gpu: gpu.read_call("nvmlDeviceGetClockInfo", CLOCK_MEM), expected=True),
    # 0.1 to 0.2 ms; slower than the die's
    _Seldom("memory_temp_c", 10.0, 0.0, GpuReader.read_memory_temperature),
    # 0.1 ms each; drop when idle, matter when they stay low under load
    _Seldom("pcie_gen", 20.0, 1.0, lambda gpu: gpu.read_call("nvmlDeviceGetCurrPcieLinkGeneration")),
    _Seldom("pcie_width", 20.0, 2.0, lambda gpu: gpu.read_call("nvmlDeviceGetCurrPcieLinkWidth")),
    # counters; an error that matters comes as an Xid at once
    _Seldom("ecc_uncorrected", 60.0, 1.0, lambda gpu: gpu.read_ecc(ECC_UNCORRECTED)),
    _Seldom("ecc_corrected", 60.0, 2.0, lambda gpu: gpu.read_ecc(ECC_CORRECTED)),
    # 4.8 ms; a counter that nobody needs by the second
    _Seldom("energy_j", 300.0, 30.0, GpuReader.read_energy, repeat=False),
)
