"""The stand-in engine itself: log lines in the engines' own words, rank children with their titles, HTTP, signals.

What it does is set by STANDIN_* variables, so that its command line looks like an engine's:
SCENARIO normal | tuned | untuned | crash_tuning | stuck_tuning | slow | crash_serving, STEP_S seconds between start-up
lines, RATE decode lines a second, STORM access lines a second, IGNORE_TERM 1, START_S seconds until ready,
RUNNING requests said to run, GPU the device's name.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

CHILD = """
import ctypes, signal, time
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
while True:
    time.sleep(3600)
"""
GPU = "NVIDIA RTX PRO 6000 Blackwell Server Edition"
OPS = ("trtllm::fused_moe::gemm1", "trtllm::fused_moe::gemm2")
TUNED_RATE, UNTUNED_RATE = 2400.0, 340.0


def setting(name: str, default: str) -> str:
    """A STANDIN_ variable."""
    return os.environ.get("STANDIN_" + name, default)


class Engine:
    """State, log and life of the stand-in; one subclass an engine for its words."""

    stream = sys.stderr
    default_port = 30000
    titles: tuple[str, ...] = ()

    def __init__(self, arguments: list[str]) -> None:
        self.arguments = arguments
        self.scenario = setting("SCENARIO", "normal")
        self.step_s = float(setting("STEP_S", "0.02"))
        self.port = int(self.value("--port", str(self.default_port)))
        self.tp = int(self.value("--tp", self.value("--tensor-parallel-size", self.value("--tp_size", "1"))))
        self.running = int(setting("RUNNING", "8"))
        self.ready = False
        self.draining = False
        self.tuned = False
        self.tokens = 0.0
        self.began = time.monotonic()
        self.lock = threading.Lock()
        self.children: list[subprocess.Popen[bytes]] = []
        self.over = threading.Event()

    def value(self, name: str, default: str) -> str:
        """An argument's value."""
        for at, word in enumerate(self.arguments):
            if word == name and at + 1 < len(self.arguments):
                return self.arguments[at + 1]
            if word.startswith(name + "="):
                return word.partition("=")[2]
        return default

    def write(self, text: str) -> None:
        """Raw text to the log."""
        with self.lock:
            self.stream.write(text)
            self.stream.flush()

    def say(self, text: str, rank: int | None = None) -> None:
        """One record in the engine's own form."""
        raise NotImplementedError

    def step(self) -> None:
        """The pause between two lines of the start."""
        self.over.wait(self.step_s)

    def spawn(self) -> None:
        """One child a rank with the engine's process title as its whole command line."""
        for title in self.titles:
            for rank in range(self.tp if "{rank}" in title else 1):
                child = subprocess.Popen(
                    [title.format(rank=rank)], executable=os.path.realpath(sys.executable), stdin=subprocess.PIPE
                )
                assert child.stdin is not None
                child.stdin.write(CHILD.encode())
                child.stdin.close()
                self.children.append(child)

    def rate(self) -> float:
        """Generated tokens a second."""
        return TUNED_RATE if self.tuned else UNTUNED_RATE

    def bars(self, op: str) -> None:
        """A progress bar that is redrawn in place."""
        for done in range(0, 22, 7):
            times = f"[00:0{done // 3}<00:02,  9.72s/profile]"
            self.write(f"\r[AutoTuner]: Tuning {op}:  {done * 100 // 21}%|{'#' * done}| {done}/21 {times}")
            self.step()
        self.write("\n")

    def start(self) -> None:
        """Everything until ready."""
        raise NotImplementedError

    def decode_line(self) -> None:
        """One line of the running engine's numbers."""
        raise NotImplementedError

    def access_line(self, n: int) -> None:
        """One line of the web server."""
        raise NotImplementedError

    def metrics(self) -> str:
        """Prometheus text."""
        raise NotImplementedError

    def page(self, path: str) -> tuple[int, str] | None:
        """(status, body) of a page beside /metrics and /health."""
        return None

    # -- life ------------------------------------------------------------------------------------

    def serve(self) -> None:
        """Log numbers until told to stop."""
        rate, storm = float(setting("RATE", "2")), float(setting("STORM", "0"))
        last, n = time.monotonic(), 0
        while not self.over.wait(0.05 if storm else 1.0 / max(rate, 0.1)):
            now = time.monotonic()
            self.tokens += (now - last) * self.rate() * (self.running > 0)
            for _ in range(int(storm * (now - last))):
                n += 1
                self.access_line(n)
            last = now
            if self.draining:
                break
            self.decode_line()
            if self.scenario == "crash_serving" and now - self.began > 2:
                self.crash("CUDA error: an illegal memory access was encountered")

    def crash(self, what: str) -> None:
        """Die like the engine dies: the parent kills everything."""
        raise NotImplementedError

    def die(self, code: int) -> None:
        """End at once with all children."""
        for child in self.children:
            child.kill()
        os._exit(code)

    def on_term(self, *_: Any) -> None:
        """SIGTERM: drain, then go."""
        if setting("IGNORE_TERM", "0") == "1":
            return
        if not self.ready:
            self.die(143)
        self.draining = True
        threading.Thread(target=self.drain, daemon=True).start()

    def drain(self) -> None:
        """Let the requests end."""
        raise NotImplementedError

    def run(self) -> None:
        """The whole life."""
        signal.signal(signal.SIGTERM, self.on_term)
        signal.signal(signal.SIGINT, self.on_term)
        signal.signal(signal.SIGQUIT, lambda *_: self.die(131))
        self.spawn()
        threading.Thread(target=self.start_then_serve, daemon=True).start()
        while not self.over.wait(0.2):
            pass
        self.die(0)

    def start_then_serve(self) -> None:
        """Start-up lines, the web server, then work."""
        if self.scenario == "slow":
            self.step_s = max(self.step_s, 1.0)
        self.start()
        self.serve()

    def listen(self) -> None:
        """Open the port."""
        engine = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                status, body = engine.answer(self.path)
                data = body.encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                return

        web = ThreadingHTTPServer((self.value("--host", "127.0.0.1"), self.port), Handler)
        threading.Thread(target=web.serve_forever, daemon=True).start()

    def answer(self, path: str) -> tuple[int, str]:
        """(status, body) of a request."""
        if path == "/health":
            return (200, "") if self.ready and not self.draining else (503, "")
        if path == "/metrics":
            return (200, self.metrics()) if self.metrics() else (404, "")
        return self.page(path) or (404, '{"detail":"Not Found"}')


class SGLang(Engine):
    """SGLang 0.5.x words: no level names, ranks in the head, everything on standard error."""

    stream = sys.stderr
    titles = ("sglang::scheduler_TP{rank}", "sglang::detokenizer")

    def __init__(self, arguments: list[str]) -> None:
        super().__init__(arguments)
        self.backend = self.value("--moe-runner-backend", "auto")
        self.model = self.value("--model-path", self.value("--model", "moe"))

    def say(self, text: str, rank: int | None = None) -> None:
        ranks = f" TP{rank}" if rank is not None and self.tp > 1 else ""
        self.write(f"[{time.strftime('%Y-%m-%d %H:%M:%S')}{ranks}] {text}\n")

    def cache_files(self) -> list[Path]:
        """SGLang 0.5.12+: one JSON cache a rank, the folder named by a hash of the configuration."""
        root = Path(os.environ.get("SGLANG_CACHE_DIR") or Path.home() / ".cache" / "sglang")
        key = hashlib.sha256(f"{self.model}|{self.backend}|{self.tp}".encode()).hexdigest()[:16]
        version = setting("FLASHINFER", "0.6.12")
        folder = root / "flashinfer" / "autotune" / version / "sm120" / key
        return [folder / f"rank_tp{rank}_pp0_dp0.json" for rank in range(self.tp)]

    def start(self) -> None:
        self.say(
            f"server_args=ServerArgs(model_path='{self.model}', tp_size={self.tp}, port={self.port}, "
            f"moe_runner_backend='{self.backend}', disable_flashinfer_autotune=False, log_level='info')"
        )
        for words in ("Init torch distributed begin.", "Init torch distributed ends. mem usage=0.10 GB"):
            self.step()
            self.say(words, 0)
        self.say("Load weight begin. avail mem=93.80 GB", 0)
        self.over.wait(float(setting("START_S", "0")))
        self.say("Load weight end. elapsed=1.22 s, type=Glm4MoeForCausalLM, avail mem=33.10 GB, mem usage=60.70 GB.", 0)
        self.say("Memory pool end. avail mem=18.02 GB", 0)
        if self.scenario in ("tuned", "crash_tuning", "stuck_tuning"):
            self.tune()
        self.say("Capture cuda graph begin. This can take up to several minutes. avail mem=18.02 GB", 0)
        if self.scenario == "untuned":
            for rank in range(self.tp):
                self.say(
                    "Using default MoE kernel config. Performance might be sub-optimal! Config file not found at "
                    "/opt/sglang/configs/triton_3_5_1/E=256,N=256,device_name="
                    + GPU.replace(" ", "_")
                    + ",dtype=fp8_w8a8.json, "
                    "you can create them with https://github.com/sgl-project/sglang/tree/main/benchmark/kernels/fused_moe_triton",
                    rank,
                )
        self.step()
        self.say("Capture cuda graph end. Time elapsed: 31.20 s. mem usage=1.21 GB. avail mem=11.30 GB.", 0)
        self.say(
            "max_total_num_tokens=212345, chunked_prefill_size=8192, max_prefill_tokens=16384, "
            "max_running_requests=2048, context_len=131072, available_gpu_mem=9.80 GB",
            0,
        )
        self.listen()
        self.write(f"[{time.strftime('%Y-%m-%d %H:%M:%S')}] INFO:     Application startup complete.\n")
        self.ready = True
        self.say("The server is fired up and ready to roll!")

    def tune(self) -> None:
        """FlashInfer's pass before graph capture, with the cache of this configuration."""
        files = self.cache_files()
        for rank, path in enumerate(files):
            self.say(f"Running FlashInfer autotune with cache: {path}", rank)
        if self.scenario == "crash_tuning":
            self.step()
            self.crash("MemoryError: CUDA out of memory. Tried to allocate 1.64 GiB")
        if self.scenario == "stuck_tuning":
            self.bars(OPS[0])
            self.over.wait()
        if not all(path.exists() for path in files):
            for op in OPS:
                self.bars(op)
            for path in files:
                self.save(path)
        for rank in range(self.tp):
            self.say("FlashInfer autotune completed.", rank)
        self.tuned = True

    def save(self, path: Path) -> None:
        """Write a cache file as FlashInfer does."""
        path.parent.mkdir(parents=True, exist_ok=True)
        told: dict[str, Any] = {
            "_metadata": {"flashinfer_version": setting("FLASHINFER", "0.6.12"), "gpu": setting("GPU", GPU)}
        }
        for op in OPS:
            for bucket in (1, 2, 4, 8, 16, 32, 64):
                told[str((op, "MoERunner", ((bucket, 3072), (256, 512, 448))))] = ["MoERunner", 14]
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(told))
        fresh.replace(path)

    def decode_line(self) -> None:
        if self.running:
            self.say(
                f"Decode batch, #running-req: {self.running}, #token: 21504, token usage: 0.10, cuda graph: True, "
                f"gen throughput (token/s): {self.rate():.2f}, #queue-req: 0",
                0,
            )

    def access_line(self, n: int) -> None:
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        self.write(f'[{stamp}] INFO:     10.0.0.1:{n % 60000} - "POST /v1/chat/completions HTTP/1.1" 200 OK\n')

    def metrics(self) -> str:
        if "--enable-metrics" not in self.arguments:
            return ""
        label = '{engine_type="unified",model_name="moe",tp_rank="0"}'
        rows = {
            "sglang:num_running_reqs": self.running,
            "sglang:num_queue_reqs": 0,
            "sglang:token_usage": 0.1,
            "sglang:gen_throughput": self.rate() if self.running else 0.0,
            "sglang:generation_tokens_total": self.tokens,
            "sglang:prompt_tokens_total": self.tokens / 4,
        }
        return "".join(f"# TYPE {name} gauge\n{name}{label} {value}\n" for name, value in rows.items())

    def page(self, path: str) -> tuple[int, str] | None:
        if path in ("/server_info", "/get_server_info"):
            backend = "flashinfer_cutlass" if self.backend == "auto" else self.backend
            told = {
                "version": setting("VERSION", "0.5.9"),
                "model_path": self.model,
                "tp_size": self.tp,
                "moe_runner_backend": backend,
                "api_key": "sk-not-to-be-seen",
                "internal_states": [{"last_gen_throughput": self.rate()}],
            }
            return 200, json.dumps(told)
        if path in ("/model_info", "/get_model_info"):
            return 200, json.dumps({"model_path": self.model, "is_generation": True})
        return None

    def crash(self, what: str) -> None:
        self.say("Scheduler hit an exception: Traceback (most recent call last):", 0)
        self.write('  File "/opt/sglang/srt/managers/scheduler.py", line 5068, in run_scheduler_process\n')
        self.write(f"{what}\n\n")
        self.say("Received sigquit from a child process. It usually means the child failed.")
        self.die(137)

    def drain(self) -> None:
        self.say("SIGTERM received. signum=None frame=None. Draining requests and shutting down...")
        self.over.wait(float(setting("DRAIN_S", "0.2")))
        self.say("Gracefully exiting... Remaining number of requests 0. Remaining requests remaining_rids=[].")
        self.over.set()


class VLLM(Engine):
    """vLLM words: process prefix, level, month and day only; standard output."""

    stream = sys.stdout
    default_port = 8000
    titles = ("VLLM::EngineCore", "VLLM::Worker_TP{rank}")

    def say(self, text: str, rank: int | None = None, level: str = "INFO", src: str = "core.py:338") -> None:
        who = "EngineCore pid=9" if rank is None else f"Worker_TP{rank} pid=9"
        self.write(f"({who}) {level} {time.strftime('%m-%d %H:%M:%S')} [{src}] {text}\n")

    def start(self) -> None:
        self.say(f"vLLM server version 0.19.0, serving model {self.value('serve', 'moe')}", src="api_utils.py:1")
        self.say(
            f"non-default args: {{'port': {self.port}, 'tensor_parallel_size': {self.tp}}}", src="api_utils.py:272"
        )
        self.over.wait(float(setting("START_S", "0")))
        self.say("Model loading took 16.52 GiB memory and 11.250000 seconds", 0, src="gpu_model_runner.py:5132")
        if self.scenario in ("tuned", "crash_tuning", "stuck_tuning"):
            head = time.strftime("%Y-%m-%d %H:%M:%S") + ",231 - INFO - autotuner.py:829 - flashinfer.jit: "
            for rank in range(self.tp):
                self.write(f"(Worker_TP{rank} pid=9) {head}[Autotuner]: Autotuning process starts ...\n")
            if self.scenario == "crash_tuning":
                self.crash("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.64 GiB")
            self.bars(OPS[0])
            if self.scenario == "stuck_tuning":
                self.over.wait()
            self.write(f"(Worker_TP0 pid=9) {head}[Autotuner]: Autotuning process ends\n")
            self.tuned = True
        if self.scenario == "untuned":
            self.say(
                "Using default MoE config. Performance might be sub-optimal! Config file not found at "
                "/opt/vllm/configs/E=256,N=256,device_name=NVIDIA_H200.json",
                0,
                "WARNING",
                "fused_moe.py:1161",
            )
        self.step()
        self.say("init engine (profile, create kv cache, warmup model) took 43.20 s (compilation: 40.10 s)")
        self.listen()
        self.say(f"Starting vLLM server on http://0.0.0.0:{self.port}", src="api_server.py:548")
        self.write("(APIServer pid=1) INFO:     Application startup complete.\n")
        self.ready = True

    def decode_line(self) -> None:
        self.say(
            "Engine 000: Avg prompt throughput: 120.0 tokens/s, "
            f"Avg generation throughput: {self.rate():.1f} tokens/s, "
            f"Running: {self.running} reqs, Waiting: 0 reqs, GPU KV cache usage: 3.4%, Prefix cache hit rate: 41.0%",
            src="loggers.py:257",
        )

    def access_line(self, n: int) -> None:
        self.write(f'(APIServer pid=1) INFO:     10.0.0.81:{n % 60000} - "POST /v1/completions HTTP/1.1" 200 OK\n')

    def metrics(self) -> str:
        label = '{engine="0",model_name="moe"}'
        rows = {
            "vllm:num_requests_running": self.running,
            "vllm:num_requests_waiting": 1,
            "vllm:kv_cache_usage_perc": 0.034,
            "vllm:generation_tokens_total": self.tokens,
            "vllm:prompt_tokens_total": self.tokens / 4,
        }
        return "".join(f"# TYPE {name} gauge\n{name}{label} {value}\n" for name, value in rows.items())

    def page(self, path: str) -> tuple[int, str] | None:
        return (200, '{"version":"0.19.0"}') if path == "/version" else None

    def crash(self, what: str) -> None:
        self.say("WorkerProc hit an exception.", 0, "ERROR", "multiproc_executor.py:932")
        self.say("Traceback (most recent call last):", 0, "ERROR", "multiproc_executor.py:932")
        self.say(what, 0, "ERROR", "multiproc_executor.py:932")
        self.say("EngineCore encountered a fatal error.", None, "ERROR", "core.py:1348")
        self.die(1)

    def drain(self) -> None:
        self.say("[shutdown] API server: shutdown triggered", src="launcher.py:114")
        self.over.wait(float(setting("DRAIN_S", "0.2")))
        self.over.set()


class TensorRT(Engine):
    """TensorRT-LLM words; numbers as a JSON list under /metrics."""

    stream = sys.stdout
    default_port = 8000

    def say(self, text: str, rank: int | None = None) -> None:
        self.write(f"[{time.strftime('%m/%d/%Y-%H:%M:%S')}] [TRT-LLM] [I] {text}\n")

    def start(self) -> None:
        self.say("[Autotuner] Autotuning process starts ...")
        self.step()
        self.say(f"[Autotuner] Cache size after warmup is {0 if self.scenario == 'untuned' else 28}")
        self.say("[Autotuner] Autotuning process ends")
        self.listen()
        self.write("INFO:     Application startup complete.\n")
        self.tuned = self.scenario != "untuned"
        self.ready = True

    def decode_line(self) -> None:
        self.say(
            "[_torch][RANK 0] iter = 7, num_scheduled_requests = 8, host_step_time = 7.4ms, "
            "prev_device_step_time = 7.1ms"
        )

    def access_line(self, n: int) -> None:
        self.write(f'INFO:     10.0.0.81:{n % 60000} - "POST /v1/completions HTTP/1.1" 200 OK\n')

    def metrics(self) -> str:
        record = {
            "numActiveRequests": self.running,
            "numQueuedRequests": 2,
            "kvCacheStats": {"usedNumBlocks": 25, "maxNumBlocks": 100},
            "inflightBatchingStats": {"numScheduledRequests": self.running},
        }
        return json.dumps([record])

    def crash(self, what: str) -> None:
        self.write(f"RuntimeError: {what}\n")
        self.die(1)

    def drain(self) -> None:
        self.over.set()


ENGINES = {"sglang": SGLang, "vllm": VLLM, "tensorrt_llm": TensorRT}


def main(engine: str, arguments: list[str]) -> None:
    """Run until told to stop."""
    ENGINES[engine](arguments).run()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
