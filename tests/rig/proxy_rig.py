"""A TCP proxy whose line can be cut, slowed, or made to swallow everything."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest


class Proxy:
    """Forwards to a port. `swallow` keeps connections open and passes nothing; `delay_s` holds bytes back."""

    def __init__(self, port: int) -> None:
        self.to_port = port
        self.delay_s = 0.0
        self._passing = threading.Event()
        self._passing.set()
        self._pairs: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def swallow(self) -> None:
        self._passing.clear()

    def restore(self) -> None:
        self._passing.set()

    def cut(self) -> None:
        """Drop every connection there is; new ones are still taken."""
        pairs, self._pairs = self._pairs, []
        for sock in pairs:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def close(self) -> None:
        self._passing.set()
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self.to_port))
            except OSError:
                near.close()
                continue
            self._pairs += [near, far]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                time.sleep(self.delay_s)
                self._passing.wait()
                sink.sendall(data)
        except OSError:
            pass
        finally:
            for sock in (source, sink):
                try:
                    sock.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue


@pytest.fixture
def make_proxy() -> Iterator[Callable[[int], Proxy]]:
    """Starts proxies that end with the test."""
    started: list[Proxy] = []

    def make(port: int) -> Proxy:
        started.append(Proxy(port))
        return started[-1]

    yield make
    for proxy in started:
        proxy.close()
