"""What moetop costs, as a table: `python -m tests.bench [NAME...]`. Prints figures and ratios, asserts nothing."""

from __future__ import annotations

import datetime
import importlib
import os
import platform
import subprocess
import sys

from moetop import __version__
from tests.bench_kit import show

BENCHES = {
    "start": "tests.bench_start",
    "remote": "tests.bench_remote",
    "scan": "tests.bench_scan",
    "report": "tests.bench_report",
    "screen": "tests.bench_ui",
    "fleet": "tests.bench_fleet",
    "many": "tests.bench_many",
    "slowest": "tests.bench_slowest",
    "memory": "tests.bench_memory",
    "seek": "tests.bench_seek",
}


def main() -> int:
    """Run the benches named, or all."""
    names = sys.argv[1:] or list(BENCHES)
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        print(f"no such bench: {' '.join(unknown)}; there are {' '.join(BENCHES)}", file=sys.stderr)
        return 2
    if len(names) > 1:  # each in a process of its own: memory of one is not the other's
        return max(
            subprocess.run([sys.executable, "-m", "tests.bench", name], check=False).returncode for name in names
        )
    load = os.getloadavg()[0]
    now = datetime.datetime.now().strftime("%Y-%m-%d %H:%M")
    print(
        f"\nmoetop {__version__}, {now}, Python {platform.python_version()}, {os.cpu_count()} CPUs, load {load:.1f}",
        flush=True,
    )
    module = importlib.import_module(BENCHES[names[0]])
    show(f"{names[0]}: {(module.__doc__ or '').splitlines()[0]}", module.figures())
    return 0


if __name__ == "__main__":
    sys.exit(main())
