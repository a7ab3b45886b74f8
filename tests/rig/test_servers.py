"""Servers are found on a host without configuration: real processes, logs, sockets; nothing told but /proc."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from moetop import model
from moetop.probe import servers
from moetop.probe.servers import ServerWatch
from tests.rig.sshd_rig import until
from tests.rig.standin.prefix import command, make_prefix

LITERALS = (
    "server_args=",
    "autotun",
    "ready to roll",
    "startup complete",
    "default moe",
    "hit an exception",
    "sigterm",
)
NOISE = {"throughput": ("decode batch", "avg prompt throughput"), "http_access": ("http/1.",)}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Bench:
    """Stand-in servers and a watch over this machine; frames of others' processes are left out."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.processes: list[subprocess.Popen[bytes]] = []
        self.frames: list[dict[str, Any]] = []
        self.changed = threading.Condition()
        self.watch: ServerWatch | None = None
        self.mine: set[int] = set()

    def start(
        self,
        engine: str,
        *arguments: str,
        out: Any = None,
        err: Any = None,
        shell: str | None = None,
        versions: dict[str, str] | None = None,
        **settings: str,
    ) -> subprocess.Popen[bytes]:
        prefix = make_prefix(self.root / engine, engine, versions)
        words = command(prefix, engine, list(arguments))
        if shell is not None:
            words = ["/bin/sh", "-c", shell, *words]
        env = {**os.environ, "HOME": str(self.root), "HF_TOKEN": "hf_notToBeSeen123456"}
        env.update({name if "_" in name and not name.startswith("S_") else f"STANDIN_{name[2:]}": value
                    for name, value in settings.items()})  # fmt: skip
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=out if out is not None else subprocess.DEVNULL,
            stderr=err if err is not None else (out if out is not None else subprocess.DEVNULL),
            env=env,
            cwd=self.root,
            start_new_session=True,
        )
        self.processes.append(process)
        return process

    def emit(self, frame: dict[str, Any], is_event: bool) -> None:
        line = json.dumps(frame).encode()
        msgspec.json.decode(line, type=model.AnyFrame)  # what travels is what model.py says
        with self.changed:
            self.frames.append(frame)
            self.changed.notify_all()

    def look(self, **options: Any) -> None:
        self.watch = ServerWatch({"literals": LITERALS, "noise_literals": NOISE, **options}, self.emit)
        self.watch.start()

    def wait(self, done: Callable[[], Any], seconds: float = 20.0) -> Any:
        with self.changed:
            assert self.changed.wait_for(done, seconds), [str(frame)[:300] for frame in self.frames[-12:]]
            return done()

    def server(self, port: int) -> dict[str, Any]:
        """The newest frame of the server on a port."""
        return next((f for f in reversed(self.frames) if f["type"] == "server" and f.get("port") == port), {})

    def lines(self, source: str) -> list[str]:
        return [f["line"] for f in self.frames if f["type"] == "log" and f["source"] == source]

    def inventory(self, name: str) -> dict[str, Any]:
        return next((f for f in reversed(self.frames) if f["type"] == "inventory" and f["server"] == name), {})

    def close(self) -> None:
        if self.watch is not None:
            self.watch.stop()
        for process in self.processes:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except OSError:
                process.kill()
            process.wait()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.close()


def test_a_gpu_process_that_is_not_in_proc_is_told_once_it_cannot_be_one_that_just_ended(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "HIDDEN_AFTER_S", 2.0)

    def told() -> list[str]:
        return [f["message"] for f in bench.frames if f["type"] == "status" and f["code"] == "not_permitted"]

    ended = subprocess.Popen(["true"])
    ended.wait()
    bench.look()
    bench.watch.gpu_pids({0: [ended.pid]})
    until(lambda: bench.watch._unseen)
    assert not told()
    bench.watch.gpu_pids({0: [os.getpid()]})
    until(lambda: not bench.watch._unseen)
    bench.watch.gpu_pids({0: [ended.pid]})
    until(lambda: time.monotonic() - bench.watch._unseen.get(ended.pid, time.monotonic()) > 2.5)
    assert not told(), "no list was read since it was missed"

    def named_again() -> bool:
        bench.watch.gpu_pids({0: [ended.pid]})
        return bool(told())

    until(named_again)
    assert "another container or hidden" in told()[0]


def test_three_engines_side_by_side_are_found_with_log_version_port_and_numbers(bench: Bench, tmp_path: Path) -> None:
    ports = [free_port() for _ in range(3)]
    logs = [tmp_path / f"{name}.log" for name in ("sglang", "vllm", "trt")]
    with logs[0].open("wb") as one, logs[1].open("wb") as two, logs[2].open("wb") as three:
        bench.start(
            "sglang", "--model-path", "m", "--tp", "2", "--port", str(ports[0]), "--enable-metrics",
            "--moe-runner-backend", "auto", "--api-key", "sk-notToBeSeen123456", out=one, S_SCENARIO="untuned",
        )  # fmt: skip
        bench.start("vllm", "/models/m", "-tp", "2", f"--port={ports[1]}", "--no-enable-flashinfer-autotune", out=two)
        bench.start("tensorrt_llm", "m", "--port", str(ports[2]), out=three)
    bench.look()
    bench.wait(lambda: all(bench.server(port).get("metrics") for port in ports))
    bench.wait(lambda: "generation_tokens_s" in bench.server(ports[1])["metrics"])

    sglang = bench.server(ports[0])
    assert sglang["name"] == f"sglang:{ports[0]}"
    assert sglang["versions"] == {"sglang": "0.5.9", "flashinfer": "0.6.3", "triton": "3.5.1", "torch": "2.9.1"}
    assert sglang["log"] == {"kind": "file", "target": str(logs[0])} and sglang["source"] == str(logs[0])
    assert sglang["args"]["tp_size"] == 2 and sglang["metrics"]["running"] == 8
    bench.wait(lambda: bench.server(ports[0])["args"].get("moe_runner_backend") == "flashinfer_cutlass")
    vllm = bench.server(ports[1])
    assert vllm["args"]["model"] == "/models/m" and vllm["args"]["enable_flashinfer_autotune"] is False
    assert 300 < vllm["metrics"]["generation_tokens_s"] < 400 and vllm["metrics"]["waiting"] == 1
    assert bench.server(ports[2])["metrics"]["kv_usage_pct"] == 25
    assert any("Using default MoE kernel config" in line for line in bench.lines(str(logs[0])))
    assert "ToBeSeen" not in json.dumps(bench.frames) and "not-to-be-seen" not in json.dumps(bench.frames)


def test_children_with_engine_titles_and_gpu_processes_lead_to_their_server(bench: Bench, tmp_path: Path) -> None:
    port = free_port()
    with (tmp_path / "log").open("wb") as log:
        process = bench.start("sglang", "--model-path", "m", "--tp", "2", "--port", str(port), out=log)
    bench.look()
    bench.wait(lambda: any("ready to roll" in line for line in bench.lines(str(tmp_path / "log"))))
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    titles = {int(pid): Path(f"/proc/{pid}/cmdline").read_text().strip("\0") for pid in children}
    ranks = [pid for pid, title in titles.items() if title.startswith("sglang::scheduler_TP")]
    assert len(ranks) == 2 and bench.watch is not None
    bench.watch.gpu_pids({0: [ranks[0]], 3: [ranks[1]], 5: [os.getpid()]})
    bench.wait(lambda: bench.server(port).get("gpus") == [0, 3])


def test_a_server_that_ends_is_said_to_be_gone_and_its_last_words_are_kept(bench: Bench, tmp_path: Path) -> None:
    port = free_port()
    with (tmp_path / "log").open("wb") as log:
        process = bench.start("sglang", "--model-path", "m", "--port", str(port), out=log)
    bench.look()
    bench.wait(lambda: any("ready to roll" in line for line in bench.lines(str(tmp_path / "log"))))
    process.terminate()
    bench.wait(lambda: bench.server(port).get("gone"))
    bench.wait(lambda: any("SIGTERM received" in line for line in bench.lines(str(tmp_path / "log"))))


def test_a_restart_on_the_same_port_keeps_name_and_log(bench: Bench, tmp_path: Path) -> None:
    port = free_port()
    with (tmp_path / "log").open("ab") as log:
        first = bench.start("sglang", "--model-path", "m", "--port", str(port), out=log)
        bench.look()
        bench.wait(lambda: any("ready to roll" in line for line in bench.lines(str(tmp_path / "log"))))
        name = bench.server(port)["name"]
        first.kill()
        bench.wait(lambda: bench.server(port).get("gone"))
        second = bench.start("sglang", "--model-path", "m", "--port", str(port), out=log)
    bench.wait(lambda: bench.server(port).get("pid") == second.pid)
    assert bench.server(port)["name"] == name
    bench.wait(lambda: sum("ready to roll" in line for line in bench.lines(str(tmp_path / "log"))) == 2)


def test_a_renamed_log_that_the_server_keeps_writing_to_is_followed_once(bench: Bench, tmp_path: Path) -> None:
    port = free_port()
    log = tmp_path / "log"
    with log.open("ab") as out:
        bench.start("sglang", "--model-path", "m", "--port", str(port), out=out, S_RATE="20")
    bench.look()
    bench.wait(lambda: bench.lines(str(log)))
    log.rename(tmp_path / "log.1")
    log.touch()
    assert bench.watch is not None
    bench.wait(lambda: bench.server(port).get("log", {}).get("target") == str(tmp_path / "log.1"))
    before = len(bench.lines(str(log)))
    bench.wait(lambda: len(bench.lines(str(log))) > before + 10)
    assert bench.lines(str(tmp_path / "log.1")) == []


def test_output_through_tee_is_followed_and_the_fix_is_said(bench: Bench, tmp_path: Path) -> None:
    port = free_port()
    bench.start("vllm", "m", "--port", str(port), shell=f'"$0" "$@" 2>&1 | tee -a {tmp_path}/tee.log')
    bench.look()
    bench.wait(lambda: "target" in bench.server(port).get("log", {}))  # tee may start a moment after the server
    frame = bench.server(port)
    assert frame["log"]["kind"] == "pipe" and frame["log"]["target"] == f"{tmp_path}/tee.log"
    assert "tee" in frame["log"]["why"] and ">> FILE" in frame["log"]["fix"]
    bench.wait(lambda: any("startup complete" in line for line in bench.lines(f"{tmp_path}/tee.log")))


def test_output_into_a_terminal_a_foreign_pipe_or_nowhere_is_said_in_words(bench: Bench, tmp_path: Path) -> None:
    ports = [free_port() for _ in range(3)]
    master, slave = pty.openpty()
    bench.start("vllm", "m", "--port", str(ports[0]), out=slave)
    os.close(slave)
    bench.start("vllm", "m", "--port", str(ports[1]), shell='"$0" "$@" 2>&1 | cat > /dev/null')
    bench.start("vllm", "m", "--port", str(ports[2]))
    bench.look()
    bench.wait(lambda: all(bench.server(port) for port in ports))
    terminal, pipe, nothing = (bench.server(port)["log"] for port in ports)
    assert terminal["kind"] == "terminal" and "/dev/pts/" in terminal["why"] and terminal["fix"]
    assert pipe["kind"] == "pipe" and "`cat`" in pipe["why"] and pipe["fix"]
    assert nothing["kind"] == "none" and "/dev/null" in nothing["why"] and nothing["fix"]
    os.close(master)


def test_a_deleted_log_is_still_read_and_said(bench: Bench, tmp_path: Path) -> None:
    port = free_port()
    log = tmp_path / "log"
    with log.open("ab") as out:
        process = bench.start("sglang", "--model-path", "m", "--port", str(port), out=out)
    while log.stat().st_size == 0:
        time.sleep(0.02)
    log.unlink()
    bench.look()
    frame = bench.wait(lambda: bench.server(port))
    assert "deleted" in frame["log"]["why"] and frame["log"]["target"] == f"/proc/{process.pid}/fd/2"
    bench.wait(lambda: any("ready to roll" in line for line in bench.lines(frame["source"])))


def test_two_streams_into_two_files_are_both_followed(bench: Bench, tmp_path: Path) -> None:
    port = free_port()
    with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
        bench.start("sglang", "--model-path", "m", "--port", str(port), out=out, err=err)
    bench.look()
    frame = bench.wait(lambda: bench.server(port))
    assert frame["source"] == str(tmp_path / "err")
    assert any(str(tmp_path / "out") in note for note in frame["notes"])


def test_health_is_asked_only_where_told(bench: Bench, tmp_path: Path) -> None:
    port = free_port()
    with (tmp_path / "log").open("wb") as log:
        bench.start("sglang", "--model-path", "m", "--port", str(port), "--enable-metrics", out=log)
    bench.look()
    bench.wait(lambda: bench.server(port).get("metrics"))
    assert "healthy" not in bench.server(port) and bench.watch is not None
    bench.watch.control({"cmd": "health", "server": f"sglang:{port}", "on": True})
    bench.wait(lambda: bench.server(port).get("healthy") is True)
    bench.watch.control({"cmd": "health", "server": f"sglang:{port}", "on": False})
    bench.wait(lambda: "healthy" not in bench.server(port))


def test_a_server_without_metrics_says_where_its_numbers_come_from(bench: Bench, tmp_path: Path) -> None:
    port = free_port()
    with (tmp_path / "log").open("wb") as log:
        bench.start("sglang", "--model-path", "m", "--port", str(port), out=log)
    bench.look()
    notes = bench.wait(lambda: bench.server(port).get("notes"))
    assert "--enable-metrics" in notes[0]


def test_tuning_caches_are_listed_by_rank_with_the_missing_and_the_stale(bench: Bench, tmp_path: Path) -> None:
    port = free_port()
    versions = {"sglang": "0.5.13", "flashinfer_python": "0.6.12", "triton": "3.5.1", "torch": "2.9.1"}
    start = {"S_SCENARIO": "tuned", "SGLANG_CACHE_DIR": str(tmp_path / "cache"), "versions": versions}
    arguments = ("--model-path", "m", "--tp", "2", "--port", str(port), "--moe-runner-backend", "flashinfer_cutlass")
    with (tmp_path / "log").open("wb") as log:
        first = bench.start("sglang", *arguments, out=log, **start)  # type: ignore[arg-type]
        made = tmp_path / "cache/flashinfer/autotune/0.6.12/sm120"
        end = time.monotonic() + 20
        while len(list(made.glob("*/rank_*.json"))) < 2 and time.monotonic() < end:
            time.sleep(0.05)
        next(made.glob("*/rank_tp1_pp0_dp0.json")).unlink()
        (tmp_path / "cache/flashinfer/autotune/0.6.3").mkdir()
        first.kill()
        first.wait()
        bench.start("sglang", *arguments, out=log, **{**start, "S_SCENARIO": "normal"})  # type: ignore[arg-type]
    bench.look()
    files = bench.wait(lambda: bench.inventory(f"sglang:{port}").get("files"))
    by_name = {Path(entry["path"]).name: entry for entry in files}
    here = by_name["rank_tp0_pp0_dp0.json"]
    assert here["exists"] and here["facts"]["ops"]["trtllm::fused_moe::gemm1"]["buckets"] == [1, 2, 4, 8, 16, 32, 64]
    assert by_name["rank_tp1_pp0_dp0.json"]["exists"] is False
    assert "0.6.3" in by_name["0.6.3"]["stale"]


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become another user")
def test_another_users_server_is_found_and_what_is_hidden_is_said(bench: Bench, tmp_path: Path) -> None:
    port = free_port()
    with (tmp_path / "log").open("wb") as log:
        bench.start("sglang", "--model-path", "m", "--port", str(port), out=log)
    script = (
        "import json, os, sys, time\n"
        f"sys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
        "os.setuid(65534)\n"
        "from moetop.probe.servers import ServerWatch\n"
        "watch = ServerWatch({}, lambda frame, event: print(json.dumps(frame), flush=True))\n"
        "watch.start()\n"
        "time.sleep(30)\n"
    )
    python = shutil.which("python3", path="/usr/bin") or shutil.which("python3")
    assert python is not None
    watch = subprocess.Popen([python, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert watch.stdout is not None
        for line in watch.stdout:
            frame = json.loads(line)
            if frame["type"] == "server" and frame.get("port") == port:
                break
        else:
            pytest.fail("the server was not found: " + (watch.stderr.read().decode() if watch.stderr else ""))
        assert frame["user"] == "root" and frame["args"]["port"] == port
        assert frame["log"]["kind"] == "none" and "root" in frame["log"]["fix"]
        assert any("may not be read" in note for note in frame["notes"])
    finally:
        watch.kill()
        watch.wait()
