"""A link that breaks all night leaves no descriptor, thread or process behind on this side."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from moetop.errors import LinkError
from moetop.transport import open_transport
from moetop.transport.base import Transport
from tests.rig.sshd_rig import Client, Sshd, free_port, until

pytestmark = pytest.mark.usefixtures("tiny_probe")


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def session(transport: Transport) -> None:
    channel = transport.open({"interval_s": 0.05})
    lines = channel.lines()
    next(lines)
    channel.close()
    assert list(lines) is not None


@pytest.mark.parametrize("kind", ["ssh", "openssh"])
def test_sessions_and_failures_give_everything_back(sshd: Sshd, client: Client, kind: str) -> None:
    good = open_transport(client.target(sshd, kind=kind))
    refused = open_transport(client.target("127.0.0.1", port=free_port(), kind=kind))
    no_python = open_transport(client.target(sshd, kind=kind, python="python3-nowhere"))
    proxied = open_transport(client.target(sshd, kind=kind, options={"ProxyCommand": "false"}))

    def one_round() -> None:
        session(good)
        good.run(["true"])
        for transport in (refused, no_python, proxied):
            with pytest.raises(LinkError):
                transport.open({})

    one_round()
    settled: Callable[[], bool] = lambda: threading.active_count() <= threads and descriptors() <= files  # noqa: E731
    threads, files = threading.active_count(), descriptors()
    one_round()
    until(settled)
    for transport in (good, refused, no_python, proxied):
        transport.close()
    until(lambda: not sshd.session_pids())
