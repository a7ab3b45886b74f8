"""Text to standard output, with the ways in which that fails told apart. Loads next to nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import TextIO

from moetop.errors import UsageError


def print_text(text: str, stream: TextIO | None = None) -> None:
    """Write `text` to standard output (or `stream`) at once. Raises UsageError where that is closed or full,
    BrokenPipeError where the reader left, which the command line takes as a normal end."""
    out = sys.stdout if stream is None else stream
    if out is None or out.closed:
        raise UsageError("standard output is closed")
    try:
        out.write(text)
        out.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise unwritable_stdout(error) from None


def unwritable_stdout(error: OSError) -> UsageError:
    """The error for a standard output that takes no more; what is left in its buffer is given up."""
    give_up([sys.stdout])
    return UsageError(f"standard output cannot be written: {error.strerror}")


def give_up(streams: Iterable[TextIO | None]) -> None:
    """Let `streams` write into nothing from now on, else the interpreter complains when it empties them at exit."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        try:
            os.dup2(devnull, stream.fileno())  # type: ignore[union-attr]
        except (AttributeError, OSError, ValueError):  # none there, closed, or no file
            continue
    os.close(devnull)
