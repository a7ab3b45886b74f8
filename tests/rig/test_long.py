"""Much and long: a storm of log lines over a real link, a day of replay on a real screen; memory stays flat."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.rig.cli_kit import Moetop, interrupt
from tests.rig.sshd_rig import Sshd, descendants, until
from tests.rig.terminal_kit import Terminal, needs_tmux
from tests.rig.test_faults import EVENT, alone, recorded_count, recorded_numbers, rss_mib
from tests.rig.test_reload import probes

NOISE = '[2026-02-19 01:02:03] INFO:     10.0.0.81:{} - "POST /v1/completions HTTP/1.1" 200 OK'
STORM_RATE = 50_000

STORM = """
import sys, time
path, seconds, rate = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
event, noise = sys.argv[4], sys.argv[5]
tick, n, events, begun = 0.02, 0, 0, time.monotonic()
total = int(seconds * rate)
with open(path, "a") as file:
    while n < total:
        for _ in range(int(rate * tick)):
            if n % 997 == 0:
                file.write(event.format(events) + "\\n"); events += 1
            else:
                file.write(noise.format(n) + "\\n")
            n += 1
        file.flush()
        time.sleep(max(0, begun + n / rate - time.monotonic()))
print(n, events)
"""


@pytest.mark.timeout(240)
@pytest.mark.parametrize("seconds", [2, pytest.param(60, marks=pytest.mark.faults)])
def test_in_a_storm_of_log_lines_every_event_arrives_once_every_line_is_counted_and_memory_is_flat(
    gpu_host: Sshd, moetop: Moetop, tmp_path: Path, seconds: int
) -> None:
    log, record = tmp_path / "server.log", tmp_path / "r.jsonl"
    log.touch()
    process = moetop.start(
        *alone(tmp_path, gpu_host.port, log), "--record", str(record), "--duration", "600", "--interval", "0.5",
    )  # fmt: skip
    until(lambda: record.exists() and '"searched"' in record.read_text(), 30)
    probe = max(probes(gpu_host))
    storm = subprocess.Popen(
        [sys.executable, "-c", STORM, str(log), str(seconds), str(STORM_RATE), EVENT, NOISE],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    peaks: list[tuple[float, float]] = []
    while storm.poll() is None:
        peaks.append((rss_mib(process.pid), rss_mib(probe)))
        time.sleep(0.2)
    assert storm.stdout is not None
    lines, events = map(int, storm.stdout.read().split())
    storm.stdout.close()
    until(lambda: recorded_count(record) >= events, 60)
    until(lambda: accounted(record) >= lines, 30)
    assert interrupt(process).code == 130
    assert recorded_numbers(record) == list(range(events))
    assert accounted(record) == lines
    early, late = peaks[len(peaks) // 3], peaks[-1]
    assert late[0] - early[0] < 16 and late[1] - early[1] < 16, (early, late)


def accounted(record: Path) -> int:
    """Log lines that travelled or were counted on the host."""
    total = 0
    for line in record.read_text().splitlines():
        frame = json.loads(line)
        if frame["type"] == "log" and frame.get("source") == "server.log":
            total += (1 if frame.get("line") else 0) + (frame.get("skipped") or 0)
    return total


DAY = """
import json, sys
path, hours = sys.argv[1], float(sys.argv[2])
gpu = dict(util_gpu_pct=100, util_mem_pct=38, power_w=690.0, power_limit_w=700.0, temp_c=63, sm_clock_mhz=1965)
with open(path, "w") as file:
    infos = [dict(index=n, uuid=f"GPU-{n}", name="NVIDIA H200", power_limit_default_w=700.0) for n in range(8)]
    print(json.dumps(dict(type="hello", t=0, host="day", gpus=infos)), file=file)
    for t in range(int(hours * 3600)):
        gpus = [dict(gpu, index=n, power_w=600 + t % 90, memory_used_mib=1000 + t % 500) for n in range(8)]
        print(json.dumps(dict(type="gpus", t=t, host="day", gpus=gpus)), file=file)
        if t % 5 == 0:
            line = f"[2026-02-19 01:02:03 TP0] Decode batch. #running-req: {t % 40}, gen throughput (token/s): {t}"
            print(json.dumps(dict(type="log", t=t, host="day", source="s.log", line=line, offset=t)), file=file)
"""


@needs_tmux
@pytest.mark.faults
@pytest.mark.timeout(300)
def test_a_day_of_replay_at_high_speed_on_the_screen_keeps_memory_flat(moetop: Moetop, tmp_path: Path) -> None:
    file = tmp_path / "day.jsonl"
    subprocess.run([sys.executable, "-c", DAY, str(file), "24"], check=True)
    terminal = Terminal(moetop, tmp_path, 120, 40, "--replay", str(file), "--speed", "1500")
    try:
        until(lambda: "day" in terminal.text() and "H200" in terminal.text(), 60)
        pane = int(terminal.tmux("display-message", "-p", "#{pane_pid}"))
        pid = max(descendants(pane), key=rss_mib)
        sizes = []
        begun = time.monotonic()
        while "finished" not in terminal.text():
            assert time.monotonic() - begun < 200
            sizes.append(rss_mib(pid))
            time.sleep(0.5)
        assert len(sizes) > 20
        half = len(sizes) // 2
        assert max(sizes[half:]) - max(sizes[:half]) < 24, sizes[:: max(1, len(sizes) // 20)]
        terminal.press("q")
        until(terminal.ended)
        assert terminal.status.read_text().strip() == "0"
    finally:
        terminal.close()
