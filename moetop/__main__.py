"""Entry point of the `moetop` command and of `python -m moetop`; holds no logic of its own."""

from __future__ import annotations

import gc
import sys


def main() -> int:
    """Run moetop; the exit code. Loading it can be interrupted too, and that is no traceback either."""
    gc.disable()  # a tenth of the start would go into looking at what stays; `Session.begin` turns it on
    try:
        from moetop.cli import main as run

        code = run()
        gc.freeze()  # the interpreter's last collection would take 10 ms and free nothing that exiting does not
        return code
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
