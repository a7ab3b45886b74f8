"""Entry points of the program on the host: one request in, one reply out; or, detached, the runner of a job."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

MARK = "MOETOP-RETUNE:"


def serve(request: dict[str, Any], program: dict[str, Any]) -> None:
    """Print the reply on one marked line: a login banner may stand before it."""
    from . import door

    os.umask(0o077)
    sys.stdout.write("\n" + MARK + json.dumps(door.answer(request, program)) + "\n")
    sys.stdout.flush()


def run_job(arguments: list[str]) -> None:
    """`FOLDER MODE`, as the detached process is called."""
    from . import runner

    os.umask(0o077)
    runner.run(Path(arguments[0]), arguments[1])
