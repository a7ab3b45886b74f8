"""Reads a server's own numbers and settings over HTTP on the host itself; sends no secret, follows no redirect."""

from __future__ import annotations

import http.client
import json
import socket
import time
from typing import Any, NamedTuple

from . import procfs
from .discover import Found
from .launch import SECRET_ARGUMENT
from .prom import PromSample, engine_metrics, parse_prometheus, trtllm_iteration_metrics
from .redact import redact_text

TIMEOUT_S = 2.0
HEALTH_TIMEOUT_S = 10.0  # SGLang generates a token for /health
SETTINGS_TIMEOUT_S = 5.0
SETTINGS_TRIES = 4  # a busy scheduler may not answer at once, and is not to be asked for ever
MAX_REPLY = 8 * 1024 * 1024
RETRY_ABSENT_S = 60.0  # a page the server does not have is asked for again after this
MAX_SETTINGS = 400

# Pages with numbers, in the order they are tried, and how each is read. Sources: SGLang http_server.py
# (only with --enable-metrics), vLLM api_server.py (always), TensorRT-LLM openai_server.py (/metrics is JSON;
# /prometheus/metrics only with return_perf_metrics).
METRIC_PAGES = {
    "sglang": (("/metrics", "prometheus"),),
    "vllm": (("/metrics", "prometheus"),),
    "tensorrt_llm": (("/prometheus/metrics", "prometheus"), ("/metrics", "iterations")),
}
# Pages with settings, read once: SGLang /server_info since 0.5.6, /get_server_info before; vLLM /version.
SETTING_PAGES = {
    "sglang": ("/server_info", "/get_server_info", "/model_info", "/get_model_info"),
    "vllm": ("/version",),
    "tensorrt_llm": ("/version",),
}
NO_NUMBERS = {
    "sglang": "it serves no /metrics (started without --enable-metrics): numbers come from its log",
    "vllm": "it serves no /metrics: numbers come from its log",
    "tensorrt_llm": "it serves no numbers over HTTP: they come from its log",
}


class Reply(NamedTuple):
    """What came back: an HTTP status, or None and why."""

    status: int | None
    body: bytes
    why: str | None


def get(address: str, port: int, path: str, tls: bool, timeout_s: float = TIMEOUT_S) -> Reply:
    """One GET with a limit on time and size."""
    deadline = time.monotonic() + timeout_s
    link: http.client.HTTPConnection
    if tls:
        import ssl  # some small Pythons come without

        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # its own machine, its own certificate; nothing secret is sent
        link = http.client.HTTPSConnection(address, port, timeout=timeout_s, context=context)
    else:
        link = http.client.HTTPConnection(address, port, timeout=timeout_s)
    try:
        link.request("GET", path, headers={"Accept": "*/*", "Connection": "close"})
        answer = link.getresponse()
        body = b""
        while len(body) <= MAX_REPLY:
            if time.monotonic() > deadline:
                return Reply(None, b"", "no complete answer within %.0f s" % timeout_s)
            part = answer.read(65536)
            if not part:
                return Reply(answer.status, body, None)
            body += part
        return Reply(None, b"", "the answer is larger than %d MiB" % (MAX_REPLY >> 20))
    except socket.timeout:
        return Reply(None, b"", "no answer within %.0f s" % timeout_s)
    except (OSError, http.client.HTTPException, ValueError) as error:
        return Reply(None, b"", str(error) or type(error).__name__)
    finally:
        link.close()


def address_of(server: Found) -> tuple[str | None, str | None]:
    """(the address to ask a server at from here, or None and why not)."""
    bound = server.address or str(server.args.get("host") or "127.0.0.1")
    loopback = bound in ("localhost", "::1") or bound.startswith("127.")
    anywhere = bound in ("0.0.0.0", "::", "")
    if procfs.same_namespace(server.pid, "net") is not False:
        return ("127.0.0.1" if anywhere or bound == "localhost" else bound), None
    if loopback:
        return None, "it listens on the loopback of its container: its numbers cannot be read from the host"
    if not anywhere:
        return bound, None
    own = procfs.local_addresses(server.pid)
    return (own[0], None) if own else (None, "the address of its container is not known")


class Numbers:
    """What is read of one server, again and again; used by one thread."""

    def __init__(self, engine: str) -> None:
        self.engine = engine
        self.metrics: dict[str, Any] | None = None
        self.settings: dict[str, Any] = {}
        self.version: str | None = None
        self.healthy: bool | None = None
        self.note: str | None = None
        self._asked = 0
        self._page: tuple[str, str] | None = None
        self._not_before = 0.0
        self._earlier: tuple[float, list[PromSample]] | None = None

    def read(self, server: Found, health: bool) -> None:
        """One round: numbers, once the settings, and /health where asked for."""
        address, why = address_of(server)
        if address is None or server.port is None:
            self.note = why
            return
        tls = bool(server.args.get("ssl_certfile"))
        if health:
            reply = get(address, server.port, "/health", tls, HEALTH_TIMEOUT_S)
            self.healthy = reply.status == 200
        if not server.listens:
            self.metrics = None
            return
        self._read_metrics(address, server.port, tls)
        if self._asked < SETTINGS_TRIES and (self.metrics is not None or self._not_before > 0):
            self._asked += 1
            if self._read_settings(address, server.port, tls):
                self._asked = SETTINGS_TRIES

    def _read_metrics(self, address: str, port: int, tls: bool) -> None:
        if time.monotonic() < self._not_before:
            return
        pages = (self._page,) if self._page else METRIC_PAGES.get(self.engine, ())
        for page in pages:
            reply = get(address, port, page[0], tls)
            if reply.status == 200 and self._take(page, reply.body):
                self._page = page
                self.note = None
                return
            if reply.status in (401, 403):
                self.note = "its %s wants an api key, which moetop does not send: numbers come from its log" % page[0]
            elif reply.status is None:
                self.note = "%s did not answer: %s" % (page[0], reply.why)
                self.metrics = None
                return
            elif self.note is None:
                self.note = NO_NUMBERS.get(self.engine)
        self.metrics, self._page, self._earlier = None, None, None
        self._not_before = time.monotonic() + RETRY_ABSENT_S

    def _take(self, page: tuple[str, str], body: bytes) -> bool:
        text = body.decode("utf-8", "replace")
        now = time.monotonic()
        if page[1] == "iterations":
            if not text.lstrip().startswith(("[", "{")):
                return False
            found: dict[str, Any] = dict(trtllm_iteration_metrics(text) or self.metrics or {})
        else:
            samples = parse_prometheus(text)
            if not samples:
                return False
            earlier = self._earlier
            found = dict(engine_metrics(samples, *((earlier[1], now - earlier[0]) if earlier else ())))
            self._earlier = (now, samples)
        found["source"], found["t"] = page[0], time.time()
        self.metrics = found
        return True

    def _read_settings(self, address: str, port: int, tls: bool) -> bool:
        for path in SETTING_PAGES.get(self.engine, ()):
            reply = get(address, port, path, tls, SETTINGS_TIMEOUT_S)
            if reply.status is None:
                return False
            if reply.status != 200:
                continue
            try:
                told = json.loads(reply.body)
            except ValueError:
                continue
            if isinstance(told, dict):
                version = told.get("version") or told.get("sglang_version")
                self.version = version if isinstance(version, str) else None
                self.settings = plain_settings(told)
                return True
        return True


def plain_settings(told: dict[str, Any]) -> dict[str, Any]:
    """The scalar settings of a server's own answer, secrets left out."""
    nested = told.get("server_args")
    rows = {**told, **nested} if isinstance(nested, dict) else told
    found: dict[str, Any] = {}
    for key, value in rows.items():
        if (
            key in ("version", "sglang_version")
            or SECRET_ARGUMENT.search(key)
            or value is None
            or len(found) >= MAX_SETTINGS
        ):
            continue
        if isinstance(value, str):
            found[key] = redact_text(value[:1024])
        elif isinstance(value, (bool, int, float)):
            found[key] = value
    return found
