"""Run in a process of its own: every NVML error of every function that a GPU's reading uses.

Prints a JSON object: how many combinations were read, and the sentences on those that went wrong.
"""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path

from moetop.probe import gpm, gpus
from moetop.probe.gpus import GpuReader
from moetop.probe.nvml import REASONS, Nvml
from moetop.probe.processes import Namer
from tests.rig.nvml_rig import Scenario

# function -> keys of info or sample that go with it (any of them); None: nothing need go
FUNCTIONS = {
    "nvmlDeviceGetHandleByIndex_v2": None,
    "nvmlDeviceGetName": "name",
    "nvmlDeviceGetUUID": "uuid",
    "nvmlDeviceGetPciInfo_v3": "pci_bus_id",
    "nvmlDeviceGetCudaComputeCapability": "compute_capability",
    "nvmlDeviceGetMigMode": None,
    "nvmlDeviceGetPowerManagementDefaultLimit": "power_limit_default_w",
    "nvmlDeviceGetMaxClockInfo": "sm_clock_max_mhz",
    "nvmlDeviceGetMaxPcieLinkGeneration": "pcie_gen_max",
    "nvmlDeviceGetMaxPcieLinkWidth": "pcie_width_max",
    "nvmlGpmQueryDeviceSupport": "gpm",
    "nvmlGpmSampleAlloc": "gpm",
    "nvmlGpmSampleGet": "gpm",
    "nvmlGpmMetricsGet": "gpm",
    "nvmlDeviceGetMemoryInfo": "memory_used_mib",
    "nvmlDeviceGetUtilizationRates": "util_gpu_pct",
    "nvmlDeviceGetPowerUsage": "power_w",
    "nvmlDeviceGetEnforcedPowerLimit": None,
    "nvmlDeviceGetTemperature": "temp_c",
    "nvmlDeviceGetClockInfo": "sm_clock_mhz",
    "nvmlDeviceGetCurrentClocksEventReasons": None,
    "nvmlDeviceGetFieldValues": "memory_temp_c",
    "nvmlDeviceGetCurrPcieLinkGeneration": "pcie_gen",
    "nvmlDeviceGetCurrPcieLinkWidth": "pcie_width",
    "nvmlDeviceGetTotalEccErrors": "ecc_uncorrected",
    "nvmlDeviceGetTotalEnergyConsumption": "energy_j",
    "nvmlDeviceGetComputeRunningProcesses_v3": None,
    "nvmlDeviceGetGraphicsRunningProcesses_v3": None,
}
LOST = (15, 28, 11)
HOST_MEMORY_INSTEAD = ("nvmlDeviceGetMemoryInfo", "not_supported")


class _NoWait:
    """Every seldom value is due at once, and GPM needs no pause."""

    def __enter__(self) -> None:
        self._seldom, self._pair = gpus._SELDOM, gpm.MIN_PAIR_S
        gpus._SELDOM = tuple(item._replace(first_s=0.0) for item in self._seldom)
        gpm.MIN_PAIR_S = 0.0

    def __exit__(self, *_: object) -> None:
        gpus._SELDOM, gpm.MIN_PAIR_S = self._seldom, self._pair


def _finite(value: object) -> bool:
    if isinstance(value, dict):
        return all(_finite(item) for item in value.values())
    return not isinstance(value, float) or math.isfinite(value)


def check(scenario: Scenario, function: str, code: int) -> list[str]:
    """Sentences on what is wrong with a reading while `function` answers `code`; 0 is no error."""
    scenario.write("gpu.0.memory_temp 70", "gpu.0.gpm.min_apart 0", f"error.{function} {code}")
    nvml = Nvml()
    failure = nvml.start()
    if failure is not None:
        return [f"{function} {code}: NVML did not start: {failure}"]
    reader = GpuReader(nvml, 0, Namer())
    reader.open()
    first, _, row = [reader.sample(1.0) for _ in range(3)]  # GPM speaks at the third
    where, key, reason = f"{function} {code}", FUNCTIONS[function], REASONS.get(code, f"error_{code}")
    said = {**reader.info, **first, **row}
    if code == 0:
        return [] if key is None or said.get(key) is not None else [f"{where}: {key} is not there without an error"]
    wrong = [] if _finite(said) else [f"{where}: a number that is none: {said}"]
    if row.get("error") == "gpu_lost" and set(row) != {"index", "error"}:
        wrong.append(f"{where}: a lost GPU has figures: {row}")
    if key is not None and row.get("error") is None and said.get(key) and (function, reason) != HOST_MEMORY_INSTEAD:
        wrong.append(f"{where}: {key} is still there: {said[key]}")
    if function == "nvmlDeviceGetHandleByIndex_v2" and not row.get("error"):
        wrong.append(f"{where}: no error said")
    if function == "nvmlDeviceGetUtilizationRates" and code in LOST and row.get("error") != "gpu_lost":
        wrong.append(f"{where}: not lost: {row}")
    if key in ("temp_c", "power_w") and row.get("error") is None and row.get("absent", {}).get(key) != reason:
        wrong.append(f"{where}: no reason for {key}: {row.get('absent')}")
    return wrong


def main() -> None:
    scenario = Scenario(Path(os.environ["MOETOP_NVML_SCENARIO"]), Path(os.environ["LD_LIBRARY_PATH"]))
    codes = [*(code for code in REASONS if code != 1), 77]
    wrong: list[str] = []
    with _NoWait():
        for function in FUNCTIONS:
            for code in codes:
                wrong += check(scenario, function, code)
            wrong += check(scenario, function, 0)
    json.dump({"read": len(FUNCTIONS) * len(codes), "wrong": wrong}, sys.stdout)


if __name__ == "__main__":
    main()
