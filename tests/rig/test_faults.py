"""The full fault table, end to end: a real moetop watches a real host while something breaks. `make faults`."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.rig.cli_kit import Lines, Moetop, interrupt, sentence
from tests.rig.nvml_rig import Scenario
from tests.rig.proxy_rig import Proxy
from tests.rig.sshd_rig import Client, Sshd, free_port, until
from tests.rig.test_reload import probes

ROOT = Path(__file__).parents[2]
EVENT = "[2026-02-19 01:02:03 TP0] Using default MoE kernel config. Performance might be sub-optimal! n={}"
NUMBER = re.compile(r"sub-optimal! n=(\d+)")


class Writer:
    """Appends numbered event lines to a log until stopped."""

    def __init__(self, path: Path, every_s: float = 0.05) -> None:
        self.path = path
        self.written = 0
        self._stop = threading.Event()
        self._every_s = every_s
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        with self.path.open("a") as file:
            while not self._stop.wait(self._every_s):
                file.write(EVENT.format(self.written) + "\n")
                file.flush()
                self.written += 1

    def stop(self) -> int:
        self._stop.set()
        self._thread.join()
        return self.written


def recorded_numbers(record: Path) -> list[int]:
    """The numbers of the event lines in a recording, in its order."""
    found = []
    for line in record.read_text().splitlines():
        frame = json.loads(line)
        if frame["type"] == "log" and (match := NUMBER.search(frame.get("line", ""))):
            found.append(int(match[1]))
    return found


def rss_mib(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def alone(folder: Path, port: int, *logs: Path) -> tuple[str, str]:
    """Arguments that watch this machine over `port`, and of it only `logs`: other tests' servers stay out."""
    config = folder / "alone.yaml"
    entry = {"name": "rig", "address": "127.0.0.1", "port": port, "discover": False, "logs": [str(log) for log in logs]}
    config.write_text(json.dumps({"hosts": [entry]}))
    return "--config", str(config)


class Rig:
    """A host behind a proxy, a log that grows on it, and a moetop that watches and records."""

    def __init__(self, sshd: Sshd, client: Client, proxy: Proxy, moetop: Moetop, folder: Path) -> None:
        self.sshd, self.proxy = sshd, proxy
        client.known_hosts.write_text(sshd.keyscan_line(name=f"[127.0.0.1]:{proxy.port}"))
        self.record = folder / "r.jsonl"
        log = folder / "server.log"
        log.touch()
        self.writer = Writer(log)
        self.process = moetop.start(
            *alone(folder, proxy.port, log), "--record", str(self.record),
            "--snapshot", "-", "--every", "0.2", "--window", "1", "--interval", "0.2",
        )  # fmt: skip
        assert self.process.stdout
        self.lines = Lines(self.process.stdout)

    def host(self) -> dict[str, Any]:
        return json.loads(self.lines.lines[-1])["hosts"][0] if self.lines.lines else {}

    def is_well(self) -> bool:
        host = self.host()
        return (
            bool(host) and host["status"] == "ok" and host["gpus"][:1] != [] and host["gpus"][0]["state"] != "unknown"
        )

    def is_lost(self) -> bool:
        return bool(self.host()) and self.host()["status"] == "unreachable"

    def finish(self) -> tuple[list[int], int, str]:
        """Stop writing, wait for the last line, interrupt: the numbers recorded, how many were written, stderr."""
        written = self.writer.stop()
        until(lambda: recorded_count(self.record) >= written, 30)
        said = interrupt(self.process)
        assert said.code == 130 and "Traceback" not in said.err
        return recorded_numbers(self.record), written, said.err


def recorded_count(record: Path) -> int:
    return record.read_text().count("sub-optimal! n=")


def proxy_cut(rig: Rig) -> None:
    rig.proxy.cut()


def proxy_half_open(rig: Rig) -> None:
    rig.proxy.swallow()


def sshd_killed(rig: Rig) -> None:
    rig.sshd.kill()


def sshd_stopped(rig: Rig) -> None:
    for pid in rig.sshd.session_pids():
        os.kill(pid, signal.SIGSTOP)


def probe_killed(rig: Rig) -> None:
    for pid in probes(rig.sshd):
        os.kill(pid, signal.SIGKILL)


def probe_stopped(rig: Rig) -> None:
    for pid in probes(rig.sshd):
        os.kill(pid, signal.SIGSTOP)


@pytest.mark.faults
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (proxy_cut, "lost"),
        (proxy_half_open, "nothing heard for 3 s"),
        (sshd_killed, ""),
        (sshd_stopped, "nothing heard for 3 s"),
        (probe_killed, "signal"),
        (probe_stopped, "nothing heard for 3 s"),
    ],
)
def test_after_a_broken_link_the_host_is_back_and_no_log_line_is_lost_or_doubled(
    gpu_host: Sshd, client: Client, make_proxy: Callable[[int], Proxy], moetop: Moetop, tmp_path: Path,
    fault: Callable[[Rig], None], words: str,
) -> None:  # fmt: skip
    rig = Rig(gpu_host, client, make_proxy(gpu_host.port), moetop, tmp_path)
    until(rig.is_well, 30)
    stopped = set(gpu_host.session_pids())
    fault(rig)
    until(rig.is_lost, 30)
    lost = rig.host()
    assert words in (lost["error"] or ""), lost["error"]
    assert lost["headline"] == "unreachable"
    if fault is sshd_killed:
        gpu_host.start()
    rig.proxy.restore()
    until(rig.is_well, 60)
    for pid in stopped:
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            continue
    numbers, written, err = rig.finish()
    assert numbers == list(range(written))
    assert "moetop: rig: " in err  # the reason was said once on standard error
    until(lambda: not gpu_host.session_pids(), 30)


@pytest.mark.faults
@pytest.mark.timeout(120)
def test_a_link_slower_by_200_ms_is_watched_without_a_word(
    gpu_host: Sshd, client: Client, make_proxy: Callable[[int], Proxy], moetop: Moetop, tmp_path: Path
) -> None:
    proxy = make_proxy(gpu_host.port)
    proxy.delay_s = 0.2
    rig = Rig(gpu_host, client, proxy, moetop, tmp_path)
    until(rig.is_well, 60)
    seen = len(rig.lines.lines)
    until(lambda: len(rig.lines.lines) > seen + 25, 30)
    assert all(json.loads(line)["hosts"][0]["status"] == "ok" for line in rig.lines.lines[seen:])
    numbers, written, err = rig.finish()
    assert numbers == list(range(written)) and err == ""


@pytest.mark.faults
@pytest.mark.timeout(120)
def test_a_moetop_that_stood_still_goes_on_where_it_was(
    gpu_host: Sshd, client: Client, make_proxy: Callable[[int], Proxy], moetop: Moetop, tmp_path: Path
) -> None:
    rig = Rig(gpu_host, client, make_proxy(gpu_host.port), moetop, tmp_path)
    until(rig.is_well, 30)
    begun = len(rig.lines.lines)
    rig.process.send_signal(signal.SIGSTOP)
    time.sleep(8)  # longer than the silence that ends a link
    rig.process.send_signal(signal.SIGCONT)
    seen = len(rig.lines.lines)
    until(lambda: len(rig.lines.lines) > seen + 10)
    assert {json.loads(line)["hosts"][0]["error"] for line in rig.lines.lines[begun:]} == {None}
    numbers, written, err = rig.finish()
    assert numbers == list(range(written)) and err == ""


@pytest.mark.faults
@pytest.mark.timeout(120)
def test_a_moetop_killed_the_hard_way_leaves_a_whole_recording_and_nothing_on_the_host(
    gpu_host: Sshd, client: Client, make_proxy: Callable[[int], Proxy], moetop: Moetop, tmp_path: Path
) -> None:
    rig = Rig(gpu_host, client, make_proxy(gpu_host.port), moetop, tmp_path)
    until(rig.is_well, 30)
    until(lambda: recorded_count(rig.record) > 40, 30)
    rig.process.kill()
    rig.process.wait()
    rig.writer.stop()
    until(lambda: not gpu_host.session_pids(), 45)
    said = moetop("--replay", str(rig.record), "--snapshot", "-")
    assert said.code == 0 and said.err == ""


# ── NVML ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.faults
@pytest.mark.timeout(240)
def test_whatever_nvml_answers_to_its_start_is_one_sentence(scenario: Scenario, moetop: Moetop, tmp_path: Path) -> None:
    moetop.environment.update(scenario.environment, PATH="/usr/bin:/bin")
    for code in [*range(1, 31), 99, 999]:
        scenario.write(f"init {code}")
        said = moetop("--snapshot", "-", "--window", "0.2", "--interval", "0.1")
        assert said.code == 4, (code, said)
        assert sentence(said).startswith("moetop: localhost: "), code
        assert said.hosts()["localhost"]["gpus"] == []


# ── files ────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)], check=False, capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip("needs the right to mount")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def check_stopped_recording(moetop: Moetop, record: Path, process: subprocess.Popen[str], words: str) -> None:
    assert process.stdout and process.stderr
    lines, errors = Lines(process.stdout), Lines(process.stderr)
    assert words in errors.until(lambda line: "recording to" in line)
    seen = len(lines.lines)
    until(lambda: len(lines.lines) > seen + 5)
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 130
    assert len(errors.lines) == 1
    said = moetop("--replay", str(record), "--snapshot", "-")
    assert said.code == 0, said.err
    assert said.hosts()


@pytest.mark.faults
def test_a_full_disk_stops_the_recording_and_nothing_else(scenario: Scenario, moetop: Moetop, small_disk: Path) -> None:
    moetop.environment.update(scenario.environment)
    scenario.write("count 8")
    record = small_disk / "r.jsonl"
    process = moetop.start("--record", str(record), "--snapshot", "-", "--every", "0.1", "--interval", "0.1")
    check_stopped_recording(moetop, record, process, "no space left on device")


@pytest.mark.faults
def test_a_limit_on_the_size_of_files_stops_the_recording_and_nothing_else(
    scenario: Scenario, moetop: Moetop, tmp_path: Path
) -> None:
    moetop.environment.update(scenario.environment)
    record = tmp_path / "r.jsonl"
    process = moetop.start(
        "--record", str(record), "--snapshot", "-", "--every", "0.1", "--interval", "0.1",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000)),
    )  # fmt: skip
    check_stopped_recording(moetop, record, process, "file too large")


# ── clocks ───────────────────────────────────────────────────────────────────────────────────────

STEPPED_CLOCK = """\
import os, time
real = time.time
def stepped():
    try:
        with open(os.environ["RIG_CLOCK"]) as file:
            return real() + float(file.read() or 0)
    except OSError:
        return real()
time.time = stepped
"""


@pytest.mark.faults
@pytest.mark.timeout(90)
def test_a_host_whose_clock_is_set_stays_watched_and_no_finding_comes_of_it(
    make_sshd: Callable[..., Sshd], client: Client, scenario: Scenario, moetop: Moetop, tmp_path: Path
) -> None:
    clock = tmp_path / "clock"
    clock.write_text("0")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(STEPPED_CLOCK)
    carried = {**scenario.environment, "PYTHONPATH": str(tmp_path / "site"), "RIG_CLOCK": str(clock)}
    server = make_sshd(env=carried)
    client.admit(server)
    record = tmp_path / "r.jsonl"
    process = moetop.start(
        *alone(tmp_path, server.port), "--record", str(record),
        "--snapshot", "-", "--every", "0.1", "--window", "0.5", "--interval", "0.1",
    )  # fmt: skip
    assert process.stdout
    lines = Lines(process.stdout)

    def states(line: str) -> list[str]:
        return [gpu["state"] for gpu in json.loads(line)["hosts"][0]["gpus"]]

    lines.until(lambda line: states(line) == ["tensor_busy"])
    for step_s in ("-3600", "86400", "-5", "30", "0"):
        clock.write_text(step_s)
        seen = len(lines.lines)
        until(lambda seen=seen: len(lines.lines) > seen + 25)  # type: ignore[misc]
        settled = lines.lines[seen + 12 : seen + 25]
        assert [states(line) for line in settled] == [["tensor_busy"]] * 13, step_s
        assert [json.loads(line)["hosts"][0]["findings"] for line in settled] == [[]] * 13, (step_s, settled[-1])
    assert interrupt(process).code == 130
    times = [json.loads(line)["t"] for line in record.read_text().splitlines() if '"gpus"' in line]
    assert max(times) - min(times) > 80_000  # the clock was set indeed
    said = moetop("--replay", str(record), "--snapshot", "-", "--window", "0.5")
    assert states(said.out) == ["tensor_busy"]


@pytest.mark.faults
def test_many_hosts_that_are_down_are_counted_after_the_first_few(moetop: Moetop) -> None:
    closed = free_port()
    names = [part for n in range(1, 32) for part in ("--host", f"127.0.0.{n}:{closed}")]
    said = moetop(*names, "--snapshot", "-", "--window", "0.3")
    assert said.code == 4
    assert len(said.err.splitlines()) == 9 and "23 more hosts" in said.err
    assert len(said.hosts()) == 31
