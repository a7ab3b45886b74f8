"""Questions of connecting threads to the person (passphrases, codes): on the screen where there is one, else on the
terminal. Keeps no answer."""

from __future__ import annotations

import itertools
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

ANSWER_S = 100.0
"""How long a question stays on the screen: OpenSSH's server ends a login after 120 s (LoginGraceTime)."""


@dataclass(frozen=True)
class Question:
    """A question on the screen. The answer to one that is not `visible` is a secret."""

    id: int
    text: str
    visible: bool


@dataclass
class _Waiting:
    question: Question
    answered: threading.Event = field(default_factory=threading.Event)
    answer: str | None = field(default=None, repr=False)


class Person:
    """Whom the threads ask. Every method may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[_Waiting] = deque()
        self._ids = itertools.count(1)
        self._on_screen = False
        self._left = False

    def ask(self, question: str, visible: bool, timeout_s: float = ANSWER_S) -> str | None:
        """Block until there is an answer; None where nobody answers."""
        with self._lock:
            if self._left:
                return None
            waiting = _Waiting(Question(next(self._ids), question, visible)) if self._on_screen else None
            if waiting is not None:
                self._waiting.append(waiting)
        if waiting is None:
            return _ask_at_terminal(question, visible)
        waiting.answered.wait(timeout_s)
        with self._lock:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
        return waiting.answer

    def question(self) -> Question | None:
        """The question to show now. Never blocks for long."""
        with self._lock:
            return self._waiting[0].question if self._waiting else None

    def answer(self, question: int, text: str | None) -> None:
        """Answer a question, None to leave it unanswered; one that nobody waits for any more is passed over."""
        with self._lock:
            for waiting in self._waiting:
                if waiting.question.id == question:
                    waiting.answer = text
                    waiting.answered.set()
                    self._waiting.remove(waiting)
                    return

    @contextmanager
    def on_screen(self) -> Iterator[None]:
        """While inside, questions wait for `answer` instead of reading the terminal. On leaving none is answered."""
        with self._lock:
            self._on_screen = True
        try:
            yield
        finally:
            self.leave()
            with self._lock:
                self._on_screen = self._left = False

    def leave(self) -> None:
        """Nobody looks any more: every question, also one to come, is left unanswered."""
        with self._lock:
            for waiting in self._waiting:
                waiting.answered.set()
            self._waiting.clear()
            self._left = True


def _ask_at_terminal(question: str, visible: bool) -> str | None:
    if sys.stdin is None or not sys.stdin.isatty():
        return None
    import getpass

    try:
        if not visible:
            return getpass.getpass(f"{question} ")
        print(question, end=" ", file=sys.stderr, flush=True)  # noqa: T201 - a prompt on the terminal
        return sys.stdin.readline().rstrip("\n")
    except EOFError:
        return None


person = Person()
"""The person at this process."""
