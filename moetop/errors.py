"""The one exception family: a sentence for a person, what to do, and the exit code."""

from __future__ import annotations

from enum import IntEnum

from moetop.text import plain


class ExitCode(IntEnum):
    """Exit codes of every moetop command; 4 beats 3."""

    OK = 0
    FAULT = 1
    USAGE = 2
    FINDINGS = 3
    UNWATCHED = 4
    ROLLED_BACK = 5
    DOWN = 6
    REFUSED = 7
    RUNNING = 8
    INTERRUPTED = 130


class MoetopError(Exception):
    """A condition moetop expects. `str(error)` is one sentence; `advice` says what to do."""

    exit_code: ExitCode = ExitCode.FAULT

    def __init__(self, message: str, advice: str | None = None) -> None:
        super().__init__(message)
        self.advice = advice

    def sentence(self) -> str:
        """The whole message on one line, safe on any terminal whatever names it quotes."""
        text = str(self) if self.advice is None else f"{self}; {self.advice}"
        return plain(" ".join(text.split()))


class UsageError(MoetopError):
    """Bad arguments, configuration, input or output file."""

    exit_code = ExitCode.USAGE


class LinkError(MoetopError):
    """A host cannot be reached or its session ended. `code` is a short stable word.

    `retry` is False where trying again cannot help (an unknown host key, failed authentication).
    """

    exit_code = ExitCode.UNWATCHED

    def __init__(self, message: str, advice: str | None = None, *, code: str = "lost", retry: bool = True) -> None:
        super().__init__(message, advice)
        self.code = code
        self.retry = retry
