"""Stands for systemctl where systemd does not run: one unit, the rig's server, started from what `as_unit` kept."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def main(home: str) -> None:
    folder = Path(home)
    unit = json.loads((folder / "unit.json").read_text())
    words = sys.argv[1:]
    pid_file = folder / "unit.pid"
    pid = int(pid_file.read_text())
    if "show" in words:
        print(f"MainPID={pid if living(pid) else 0}")
        return
    with (folder / "systemctl.log").open("a") as log:
        log.write(" ".join(words) + "\n")
    if "stop" in words:
        os.kill(pid, signal.SIGTERM)
        while living(pid):
            time.sleep(0.05)
    if "start" in words:
        with Path(unit["log"]).open("ab") as output:
            child = subprocess.Popen(
                unit["argv"], cwd=unit["cwd"], env=unit["env"], stdout=output, stderr=output, start_new_session=True
            )
        pid_file.write_text(str(child.pid))


def living(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
