"""Entry point of the `moetop` command and of `python -m moetop`."""

import sys

from moetop.cli import main

if __name__ == "__main__":
    sys.exit(main())
