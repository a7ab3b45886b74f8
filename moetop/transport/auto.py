"""paramiko where it can, the system's ssh where only that can, and the reason said. Decides nothing else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from moetop.errors import LinkError
from moetop.transport import Prompt
from moetop.transport.base import Channel, Completed, HostTarget
from moetop.transport.openssh import OpensshTransport
from moetop.transport.ssh_config import find_ssh

if TYPE_CHECKING:
    from moetop.transport.ssh import SshTransport

T = TypeVar("T")


class AutoTransport:
    """A host over SSH. `why` is the sentence that made it use the system's ssh, None while it uses paramiko.

    paramiko is loaded by the first use, which is some host's own thread: 0.1 s that a screen need not wait for.
    """

    finite = False

    def __init__(self, target: HostTarget, prompt: Prompt | None = None) -> None:
        self.name = target.name
        self.why: str | None = None
        self._target = target
        self._prompt = prompt
        self._made: SshTransport | None = None
        self._openssh: OpensshTransport | None = None
        self._lock = threading.Lock()
        self._closed = False

    @property
    def renews(self) -> bool:
        return self.why is None

    def open(self, options: Mapping[str, object]) -> Channel:
        from moetop.transport.ssh import note_line

        return self._either(
            lambda: self._paramiko().open(options),
            lambda system: system.open(options, (note_line(f"the system's ssh is used: {self.why}"),)),
        )

    def run(self, argv: Sequence[str], stdin: bytes = b"", timeout_s: float = 30.0) -> Completed:
        return self._either(
            lambda: self._paramiko().run(argv, stdin, timeout_s), lambda system: system.run(argv, stdin, timeout_s)
        )

    def close(self) -> None:
        with self._lock:
            self._closed = True
            ways = (self._made, self._openssh)
        for way in ways:
            if way is not None:
                way.close()

    def ask_again(self) -> None:
        if self._made is not None:
            self._made.ask_again()

    def _paramiko(self) -> SshTransport:
        from moetop.transport.ssh import SshTransport

        with self._lock:
            if self._closed:
                raise LinkError("the transport is closed", code="closed", retry=False)
            if self._made is None:
                self._made = SshTransport(self._target, self._prompt)
            return self._made

    def _either(self, by_paramiko: Callable[[], T], by_system: Callable[[OpensshTransport], T]) -> T:
        if self._openssh is None:
            try:
                return by_paramiko()
            except LinkError as error:
                if error.code != "needs_openssh" or find_ssh() is None:
                    raise
                self._switch(str(error))
        system = self._openssh
        if system is None:
            raise LinkError("the transport is closed", code="closed", retry=False)
        return by_system(system)

    def _switch(self, why: str) -> None:
        with self._lock:
            if not self._closed and self._openssh is None:
                self.why = why
                self._openssh = OpensshTransport(self._target)
            made = self._made
        if made is not None:
            made.close()
