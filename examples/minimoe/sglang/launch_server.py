"""minimoe: a tiny Mixture-of-Experts server for one NVIDIA GPU that speaks and logs like SGLang.

    python examples/minimoe/sglang/launch_server.py --port 30000 >> minimoe.log 2>&1 &

It stands under sglang/ because it is found and read by the rules for SGLang.
It serves /health, /generate, /metrics and /model_info, drains on SIGTERM, reads a tuned-tiles table and says in
SGLang's words when there is none. `--cpu-standin` needs no GPU and computes nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import moeconfig
from moemodel import Model, StandIn, TritonModel

VERSION = "0.1.0"
LOG_EVERY_S = 5.0
MAX_BODY = 1 << 20


def log(text: str) -> None:
    """One line in SGLang's form."""
    print(f"[{time.strftime('%Y-%m-%d %H:%M:%S')}] {text}", file=sys.stderr, flush=True)


class Request:
    """One generation: tokens still wanted and those made (one of each block is kept)."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.made = 0
        self.tokens: list[int] = []
        self.done = threading.Event()


class Engine:
    """Runs steps for up to `max_running` requests at once and counts what it does."""

    def __init__(self, model: Model, block_tokens: int, max_running: int) -> None:
        self._model, self._block, self._max = model, block_tokens, max_running
        self._lock = threading.Condition()
        self._queue: list[Request] = []
        self._running: list[Request] = []
        self.draining = False
        self.failed: str | None = None
        self.generated = 0
        self.throughput = 0.0

    def submit(self, request: Request) -> bool:
        """False while draining."""
        with self._lock:
            if self.draining:
                return False
            self._queue.append(request)
            self._lock.notify()
        return True

    def drain(self) -> None:
        """Take no more requests; `run` ends when those that are here are done."""
        with self._lock:
            self.draining = True
            self._lock.notify()

    def counts(self) -> tuple[int, int]:
        with self._lock:
            return len(self._running), len(self._queue)

    def run(self) -> None:
        """The scheduler loop; ends when drained."""
        last_log, last_count = time.monotonic(), 0
        while True:
            with self._lock:
                while not self._queue and not self._running and not self.draining:
                    self._lock.wait(1.0)
                    self.throughput = 0.0
                    last_log, last_count = time.monotonic(), self.generated
                room = self._max - len(self._running)
                self._running += self._queue[:room]
                del self._queue[:room]
                batch = list(self._running)
                if self.draining and not batch:
                    return
            if batch:
                self._advance(batch)
            now = time.monotonic()
            if now - last_log >= LOG_EVERY_S:
                self.throughput = (self.generated - last_count) / (now - last_log)
                last_log, last_count = now, self.generated
                running, queued = self.counts()
                log(
                    f"Decode batch, #running-req: {running}, #token: {running * self._block}, token usage: "
                    f"{running / self._max:.2f}, gen throughput (token/s): {self.throughput:.2f}, #queue-req: {queued}"
                )

    def _advance(self, batch: list[Request]) -> None:
        tokens = self._model.step(len(batch))
        with self._lock:
            for request, token in zip(batch, tokens, strict=True):
                request.made += self._block
                request.tokens.append(token)
                if request.made >= request.wanted:
                    self._running.remove(request)
                    request.done.set()
            self.generated += self._block * len(batch)


class Handler(BaseHTTPRequestHandler):
    """The HTTP face. SGLang's access lines are left out."""

    engine: Engine
    model_path: str
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        return

    def _reply(self, code: int, body: str, kind: str = "application/json") -> None:
        data = body.encode()
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        engine = self.engine
        if self.path in ("/health", "/health_generate"):
            healthy = not engine.draining and engine.failed is None and self._generate(1, 20.0) is not None
            self._reply(200 if healthy else 503, "")
        elif self.path == "/metrics":
            self._reply(200, self._metrics(), "text/plain; version=0.0.4")
        elif self.path == "/model_info":
            self._reply(200, json.dumps({"model_path": self.model_path, "is_generation": True}))
        else:
            self._reply(404, "{}")

    def do_POST(self) -> None:
        if self.path != "/generate":
            self._reply(404, "{}")
            return
        try:
            size = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(min(size, MAX_BODY)))
            wanted = int(body.get("sampling_params", {}).get("max_new_tokens", 256))
        except (ValueError, AttributeError):
            self._reply(400, json.dumps({"error": 'expected {"text": ..., "sampling_params": {"max_new_tokens": N}}'}))
            return
        request = self._generate(max(1, min(wanted, 1 << 20)), 3600.0)
        if request is None:
            self._reply(503, json.dumps({"error": "draining"}))
            return
        text = " ".join(f"w{token}" for token in request.tokens)
        self._reply(200, json.dumps({"text": text, "meta_info": {"completion_tokens": request.made}}))

    def _generate(self, wanted: int, timeout_s: float) -> Request | None:
        request = Request(wanted)
        if not self.engine.submit(request) or not request.done.wait(timeout_s):
            return None
        return request

    def _metrics(self) -> str:
        running, queued = self.engine.counts()
        labels = f'{{model_name="{self.model_path}"}}'
        rows = (
            ("num_running_reqs", "gauge", running),
            ("num_queue_reqs", "gauge", queued),
            ("gen_throughput", "gauge", round(self.engine.throughput, 2)),
            ("generation_tokens_total", "counter", self.engine.generated),
        )
        return "".join(f"# TYPE sglang:{name} {kind}\nsglang:{name}{labels} {value}\n" for name, kind, value in rows)


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model-path", "--model", default=str(moeconfig.HERE), help="folder with a config.json")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=30000)
    parser.add_argument("--tp-size", "--tp", type=int, default=1, help="1: it runs on one GPU")
    parser.add_argument("--max-running-requests", type=int, default=32)
    parser.add_argument("--cpu-standin", action="store_true", help="no GPU, no computing: for trying the restart only")
    return parser.parse_args(argv)


def build_model(shape: moeconfig.Shape, args: argparse.Namespace) -> Model:
    """Load weights and the tuned table, with the lines SGLang prints."""
    log("Load weight begin. avail mem=0.00 GB")
    table = moeconfig.load_tiles(shape)
    begun = time.monotonic()
    model: Model = (
        StandIn(shape, table) if moeconfig.is_standin() else TritonModel(shape, table, args.max_running_requests)
    )
    log(
        f"Load weight end. elapsed={time.monotonic() - begun:.2f} s, type=MiniMoeForCausalLM, "
        f"avail mem={model.free_gib():.2f} GB"
    )
    path = moeconfig.config_path(shape)
    if table:
        log(f"Using MoE kernel config from {path}.")
    else:
        log(
            f"Using default MoE kernel config. Performance might be sub-optimal! Config file not found at {path}, "
            "you can create them with examples/minimoe/tune.py"
        )
    model.step(args.max_running_requests)
    model.step(args.max_running_requests)
    return model


def main() -> int:
    args = parse()
    if args.tp_size != 1:
        raise SystemExit("minimoe runs on one GPU: --tp-size 1")
    if args.cpu_standin:
        os.environ["MINIMOE_CPU_STANDIN"] = "1"
    shape = moeconfig.load_shape(args.model_path)
    log(
        f"server_args=ServerArgs(model_path={args.model_path!r}, host={args.host!r}, port={args.port}, "
        f"tp_size={args.tp_size}, moe_runner_backend='triton', max_running_requests={args.max_running_requests}, "
        "enable_metrics=True)"
    )
    engine = Engine(build_model(shape, args), shape.block_tokens, args.max_running_requests)
    Handler.engine, Handler.model_path = engine, args.model_path
    server = ThreadingHTTPServer((args.host, args.port), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def drain(signum: int, frame: object) -> None:
        engine.drain()
        log(f"SIGTERM received. signum={signum} frame=None. Draining requests and shutting down...")

    signal.signal(signal.SIGTERM, drain)
    log("INFO:     Application startup complete.")
    scheduler = threading.Thread(target=_run, args=(engine,), daemon=True)
    scheduler.start()
    log("The server is fired up and ready to roll!")
    while scheduler.is_alive():
        scheduler.join(0.1)
    time.sleep(0.2)
    server.shutdown()
    return 0 if engine.failed is None else 1


def _run(engine: Engine) -> None:
    try:
        engine.run()
    except Exception as error:
        engine.failed = f"{type(error).__name__}: {error}"
        log(f"Scheduler hit an exception: Traceback (most recent call last): {engine.failed}")


if __name__ == "__main__":
    sys.exit(main())
