"""A steady load for minimoe: so many requests at once, again and again; it waits while the server is away.

python load.py --port 30000 --concurrency 32 --seconds 600
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
import urllib.error
import urllib.request


class Load:
    """Closed loop: each worker sends its next request when the last one is answered."""

    def __init__(self, url: str, tokens: int) -> None:
        self._url, self._body = url, json.dumps({"text": "go", "sampling_params": {"max_new_tokens": tokens}}).encode()
        self.stop = threading.Event()
        self._lock = threading.Lock()
        self.answered = 0
        self.tokens = 0
        self.refused = 0

    def worker(self) -> None:
        while not self.stop.is_set():
            request = urllib.request.Request(self._url, self._body, {"Content-Type": "application/json"})
            try:
                with urllib.request.urlopen(request, timeout=600) as reply:
                    made = json.loads(reply.read())["meta_info"]["completion_tokens"]
            except (OSError, ValueError, KeyError):
                with self._lock:
                    self.refused += 1
                self.stop.wait(0.5)
                continue
            with self._lock:
                self.answered += 1
                self.tokens += made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=30000)
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=8192, help="new tokens a request")
    parser.add_argument("--seconds", type=float, default=60.0)
    args = parser.parse_args()
    load = Load(f"http://{args.host}:{args.port}/generate", args.tokens)
    workers = [threading.Thread(target=load.worker, daemon=True) for _ in range(args.concurrency)]
    for worker in workers:
        worker.start()
    deadline, last, last_tokens = time.monotonic() + args.seconds, time.monotonic(), 0
    while time.monotonic() < deadline:
        time.sleep(min(5.0, max(0.0, deadline - time.monotonic())))
        now = time.monotonic()
        rate = (load.tokens - last_tokens) / max(now - last, 1e-3)
        last, last_tokens = now, load.tokens
        print(f"{rate:.0f} tokens/s, {load.answered} answered, {load.refused} refused or cut", flush=True)
    load.stop.set()
    return 0


if __name__ == "__main__":
    sys.exit(main())
