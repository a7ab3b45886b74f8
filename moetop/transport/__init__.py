"""How bytes reach a probe. Importing this package loads no transport; `open_transport` does."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from moetop.errors import UsageError

if TYPE_CHECKING:
    from moetop.transport.base import Channel, Completed, HostTarget, ProbeOptions, Transport

__all__ = [
    "Channel",
    "Completed",
    "HostTarget",
    "ProbeOptions",
    "Prompt",
    "Transport",
    "open_transport",
]

Prompt = Callable[[str, bool], "str | None"]
"""Asks the person: (question, whether the answer may be seen) -> the answer, None when there is none."""


def __getattr__(name: str) -> Any:
    """The names of `base`, loaded when first used: this machine's probe is started before."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from moetop.transport import base

    return getattr(base, name)


def open_transport(target: HostTarget, prompt: Prompt | None = None) -> Transport:
    """The transport a target names; connects to nothing yet. Raises UsageError for an unknown kind."""
    if target.kind == "local":
        from moetop.transport.local import LocalTransport

        return LocalTransport(target.name)
    if target.kind == "openssh":
        from moetop.transport.openssh import OpensshTransport

        return OpensshTransport(target)
    if target.kind == "auto":
        from moetop.transport.auto import AutoTransport

        return AutoTransport(target, prompt)
    if target.kind == "ssh":
        from moetop.transport.ssh import SshTransport

        return SshTransport(target, prompt)
    raise UsageError(f"{target.kind!r} is no transport", "transports are auto, ssh, openssh and local")
