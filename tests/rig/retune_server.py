"""minimoe's CPU stand-in with faults: words in the file `faults` of its folder, each `word` or `word@N` (Nth start)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, os.environ["MINIMOE_SRC"] + "/sglang")
import launch_server

HOME = Path.cwd()


def faults_of_this_start() -> set[str]:
    """Words that hold for this start; the starts are counted in the file `starts`."""
    counter = HOME / "starts"
    number = int(counter.read_text()) + 1 if counter.exists() else 1
    counter.write_text(str(number))
    words = (HOME / "faults").read_text().split() if (HOME / "faults").exists() else []
    return {word.partition("@")[0] for word in words if word.partition("@")[2] in ("", str(number))}


def main() -> int:
    faults = faults_of_this_start()
    if "fail_start" in faults:
        launch_server.log("Received sigquit from a child process. It usually means the child failed.")
        return 3
    if "never_ready" in faults:
        launch_server.log("Load weight begin. avail mem=0.00 GB")
        time.sleep(600)
    if "leftover" in faults:
        child = subprocess.Popen(["sleep", "600"], start_new_session=True)
        (HOME / "leftover_pid").write_text(str(child.pid))
    if "ignore_sigterm" in faults:
        installed = signal.signal

        def ignore(number: int, handler: object) -> object:
            return installed(number, signal.SIG_IGN if number == signal.SIGTERM else handler)

        signal.signal = ignore
    if "unhealthy" in faults:
        launch_server.Handler.do_GET = lambda self: self._reply(503, "")
    if "crash_after_ready" in faults:
        threading.Timer(1.0, lambda: os._exit(9)).start()
    if "writes_caches" in faults:
        for path in (HOME / "caches").read_text().split():
            Path(path).write_text('{"new": 1}')
    if "forgets_table" in faults:
        launch_server.moeconfig.load_tiles = lambda shape: None
    return launch_server.main()


if __name__ == "__main__":
    sys.exit(main())
