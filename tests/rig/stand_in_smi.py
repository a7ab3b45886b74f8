"""A stand-in `nvidia-smi`: answers --query-gpu in a loop, or fails in the way that MODE in its folder says.

Modes: ok; hang; mismatch; missing-field NAME (an old driver); lost; ends (after one sample). A loop that runs
looks again before every sample: hang holds it up while MODE says so.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

ROWS = (
    {
        "index": "0", "uuid": "GPU-0", "pci.bus_id": "00000000:01:00.0", "name": "NVIDIA H200",
        "driver_version": "580.159.04", "compute_cap": "9.0", "memory.total": "143771", "memory.used": "3539",
        "utilization.gpu": "100", "utilization.memory": "38", "power.draw": "412.50", "enforced.power.limit": "700.00",
        "power.default_limit": "700.00", "temperature.gpu": "63", "temperature.memory": "[N/A]", "clocks.sm": "1965",
        "clocks.mem": "3201", "clocks.max.sm": "1980", "clocks_throttle_reasons.active": "0x0000000000000004",
        "pcie.link.gen.current": "5", "pcie.link.gen.max": "5", "pcie.link.width.current": "16",
        "pcie.link.width.max": "16", "mig.mode.current": "Disabled", "ecc.errors.corrected.volatile.total": "0",
        "ecc.errors.uncorrected.volatile.total": "0",
    },
    {
        "index": "1", "uuid": "GPU-1", "pci.bus_id": "00000000:02:00.0", "name": "NVIDIA GB10",
        "driver_version": "580.159.04", "compute_cap": "12.1", "memory.total": "[N/A]", "memory.used": "[N/A]",
        "utilization.gpu": "7", "utilization.memory": "[N/A]", "power.draw": "11.17", "enforced.power.limit": "[N/A]",
        "power.default_limit": "[N/A]", "temperature.gpu": "35", "clocks.sm": "208", "clocks.max.sm": "3003",
        "mig.mode.current": "[N/A]",
    },
)  # fmt: skip
UNITS = {"memory": " [MiB]", "power": " [W]", "utilization": " [%]", "clocks": " [MHz]"}


def main() -> None:
    where = Path(sys.argv[0]).parent / "MODE"
    mode, _, rest = where.read_text().strip().partition(" ")
    query = next(arg.partition("=")[2] for arg in sys.argv if arg.startswith("--query-gpu="))
    fields = query.split(",")
    pause = int(sys.argv[sys.argv.index("-lms") + 1]) / 1000
    if mode == "hang":
        time.sleep(600)
    if mode == "mismatch":
        print("Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 570.86")
        sys.exit(18)
    if mode == "lost":
        print("Unable to determine the device handle for GPU0: 0000:09:00.0: Unknown Error\nNo devices were found")
        sys.exit(6)
    if mode == "missing-field" and rest in fields:
        print(f'Field "{rest}" is not a valid field to query.')
        sys.exit(2)
    units = "nounits" not in "".join(sys.argv)
    print(", ".join(field + (UNITS.get(field.split(".")[0], "")) for field in fields), flush=True)
    assert not units
    while True:
        while where.read_text().strip() == "hang":
            time.sleep(0.05)
        for row in ROWS:
            print(", ".join(row.get(field, "[N/A]") for field in fields))
        sys.stdout.flush()
        if mode == "ends":
            sys.exit(0)
        time.sleep(pause)


if __name__ == "__main__":
    main()
