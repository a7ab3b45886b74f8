"""The demo's scripted half: eight PCIe-only SM120 GPUs whose server never tuned its kernels. Measures nothing.

Every value follows from the second it stands for, so that two runs are the same frame by frame.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from datetime import datetime, timezone
from heapq import merge
from importlib.resources import files
from typing import Any

LOG_PATH = "/root/sglang-glm5.log"
SOURCE = LOG_PATH
SERVER = "sglang:8000"
PID = 41822
NOISE_LINES = 12_431
"""Lines of request headers and access records that the debug level wrote since the server was ready."""

NOTE = (
    "Scripted: no such machine was measured. The values and the log follow a case people meet: "
    "GLM-5-NVFP4 with SGLang 0.5.9 on eight RTX PRO 6000 Blackwell."
)

_GPU_COUNT = 8
_LIMIT_W, _MEMORY_MIB, _MODEL_MIB = 600.0, 97887.0, 89211.0
_SERVING_W = (331.2, 327.7, 335.0, 330.2, 328.8, 333.4, 329.9, 326.1)
_SERVING_C = (58, 57, 60, 59, 57, 60, 58, 56)
_LOAD_BEGINS_S, _LOAD_ENDS_S, _READY_S = -279.0, -214.0, -198.0
"""Seconds from the present at which the newest run loads, has loaded, and is ready; they stand in the log."""

_PROGRESS_S = 2
"""The server says every so many seconds how fast it generates."""

_PACKAGES = "/opt/sglang/lib/python3.12/site-packages"
_ARGV = (
    "python3", "-m", "sglang.launch_server", "--model-path", "/models/GLM-5-NVFP4", "--served-model-name", "glm-5",
    "--trust-remote-code", "--tp-size", "8", "--quantization", "modelopt_fp4", "--moe-runner-backend",
    "flashinfer_cutlass", "--attention-backend", "flashinfer", "--mem-fraction-static", "0.9", "--host", "0.0.0.0",
    "--port", "8000", "--log-level", "debug",
)  # fmt: skip
_ARGS = {
    "model_path": "/models/GLM-5-NVFP4", "served_model_name": "glm-5", "trust_remote_code": True, "tp_size": 8,
    "quantization": "modelopt_fp4", "moe_runner_backend": "flashinfer_cutlass", "attention_backend": "flashinfer",
    "mem_fraction_static": 0.9, "host": "0.0.0.0", "port": 8000, "log_level": "debug",
}  # fmt: skip
_STAMP = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)")


def scripted_frames(now_t: float, past_s: float) -> Iterator[dict[str, Any]]:
    """Frames from `past_s` before `now_t` on, without end."""
    start_t = now_t - past_s
    yield _hello(start_t)
    yield _server(start_t, now_t)
    yield _inventory(start_t)
    yield from merge(
        _history(start_t, now_t),
        _telemetry(start_t, now_t),
        _progress(start_t, now_t),
        _traffic(now_t),
        key=lambda frame: frame["t"],
    )


def _hello(t: float) -> dict[str, Any]:
    gpus = [
        {
            "index": index, "uuid": f"GPU-5c12{index:04d}-0000-4000-8000-000000000000",
            "pci_bus_id": f"00000000:{0x11 + 0x10 * index:02X}:00.0",
            "name": "NVIDIA RTX PRO 6000 Blackwell Server Edition", "compute_capability": "12.0",
            "memory_total_mib": _MEMORY_MIB, "power_limit_default_w": _LIMIT_W, "sm_clock_max_mhz": 2430, "gpm": False,
            "mig": False, "pcie_gen_max": 5, "pcie_width_max": 16,
            "absent": {"gpm": "this GPU has no GPM counters (nvmlGpmQueryDeviceSupport)"},
        }
        for index in range(_GPU_COUNT)
    ]  # fmt: skip
    return {
        "type": "hello", "schema": 1, "t": t, "driver": "580.126.09", "gpus": gpus, "source": "nvml", "user": "root",
        "python": "3.12.3", "hostname": "glm5-sm120", "cpus": 128, "memory_total_mib": 1547000.0, "notes": [NOTE],
    }  # fmt: skip


def _server(t: float, now_t: float) -> dict[str, Any]:
    return {
        "type": "server", "t": t, "name": SERVER, "pid": PID, "engine": "sglang",
        "versions": {"sglang": "0.5.9", "flashinfer": "0.6.3", "torch": "2.9.1", "triton": "3.5.1"},
        "argv": list(_ARGV), "args": _ARGS, "cwd": "/root", "user": "root", "port": 8000,
        "started": now_t - 300.0, "manager": "plain", "log": {"kind": "file", "target": LOG_PATH}, "source": SOURCE,
        "gpus": list(range(_GPU_COUNT)), "env": {"HOME": "/root", "VIRTUAL_ENV": "/opt/sglang"},
    }  # fmt: skip


def _inventory(t: float) -> dict[str, Any]:
    """This release keeps no cache of its tuning, so there is none to find."""
    return {
        "type": "inventory", "t": t, "server": SERVER,
        "notes": [
            "no FlashInfer tuning cache lies under /root/.cache/sglang/flashinfer/autotune for FlashInfer 0.6.3",
            f"{_PACKAGES}/sglang/srt/layers/moe/fused_moe_triton/configs/triton_3_5_1 has no Triton MoE table for "
            "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        ],
    }  # fmt: skip


def read_log() -> list[str]:
    """The lines of the scripted log, all three runs."""
    data = (files("moetop.demo") / "data" / "sglang-glm5.log").read_bytes()
    return data.decode("utf-8").removesuffix("\n").split("\n")


def _history(start_t: float, now_t: float) -> Iterator[dict[str, Any]]:
    """The log as the scan of an existing file gives it; what is older than the telemetry stands at its beginning."""
    yield {
        "type": "status", "t": start_t, "code": "log_behind", "level": "info", "source": SOURCE,
        "message": "what the log holds is read",
    }  # fmt: skip
    t, offset = start_t, 0
    for line in read_log():
        match = _STAMP.match(line)
        if match:
            written = datetime.strptime(match.group(1), "%Y-%m-%d %H:%M:%S").replace(tzinfo=timezone.utc)
            t = max(t, written.timestamp())
        offset += len(line.encode()) + 1
        yield {"type": "log", "t": t, "source": SOURCE, "line": line, "offset": offset, "history": True}
    last = _decode_line(now_t - 1, random.Random(0))
    yield {
        "type": "log", "t": now_t - 1, "source": SOURCE, "line": last, "offset": offset + 1_905_114, "history": True,
        "skipped": NOISE_LINES, "counts": {"http_access": 1_204},
    }  # fmt: skip
    yield {
        "type": "status", "t": now_t - 1, "code": "scan_done", "level": "info", "source": SOURCE,
        "message": f"{LOG_PATH} was searched from its beginning",
    }  # fmt: skip
    yield {
        "type": "status", "t": now_t - 1, "code": "log_read", "level": "info", "source": SOURCE,
        "message": "what the log held is read",
    }  # fmt: skip


def _progress(start_t: float, now_t: float) -> Iterator[dict[str, Any]]:
    """The progress lines between ready and the present as they came, one every two seconds."""
    dice = random.Random(198)
    t = max(start_t, now_t + _READY_S + _PROGRESS_S)
    while t < now_t - 1:
        yield {"type": "log", "t": t, "source": SOURCE, "line": _decode_line(t, dice)}
        t += _PROGRESS_S


def _traffic(now_t: float) -> Iterator[dict[str, Any]]:
    """What the server goes on writing: a progress line every two seconds, and the noise of the debug level."""
    dice = random.Random(20260219)
    second = 0
    while True:
        t = now_t + second
        stamp = _stamp(t)
        lines = [
            f"[{stamp}] receive_response_headers.complete return_value=(b'HTTP/1.1', 200, b'OK', "
            "[(b'server', b'uvicorn'), (b'content-type', b'application/json')])",
            f"[{stamp}] INFO:     10.1.230.9:{dice.randrange(40000, 60000)} - "
            '"POST /v1/chat/completions HTTP/1.1" 200 OK',
        ]
        if second % _PROGRESS_S == 0:
            lines.append(_decode_line(t, dice))
        for number, line in enumerate(lines):
            yield {"type": "log", "t": t + 0.1 * (number + 1), "source": SOURCE, "line": line}
        second += 1


def _stamp(t: float) -> str:
    return datetime.fromtimestamp(t, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")


def _decode_line(t: float, dice: random.Random) -> str:
    return (
        f"[{_stamp(t)} TP0] Decode batch, #running-req: 16, #token: {34000 + dice.randrange(900)}, token usage: 0.16, "
        f"cuda graph: True, gen throughput (token/s): {812 + dice.uniform(-6, 6):.2f}, #queue-req: 0"
    )


def _telemetry(start_t: float, now_t: float) -> Iterator[dict[str, Any]]:
    """One frame a second: the old run's end, loading, graph capture, then serving at 55 % of the limit."""
    dice = random.Random(175)
    second = 0
    while True:
        t = start_t + second
        gpus = [_sample(index, t - now_t, dice) for index in range(_GPU_COUNT)]
        if second % 10 == 0 and t - now_t > _LOAD_BEGINS_S:
            for index, gpu in enumerate(gpus):
                gpu["processes"] = [
                    {"pid": PID + 201 + index, "user": "root", "name": f"sglang::scheduler_TP{index}",
                     "memory_used_mib": gpu["memory_used_mib"] - 611},
                ]  # fmt: skip
        load = {
            "cpu_pct": round(9 + dice.uniform(-1, 1), 1), "load1": round(10.4 + dice.uniform(-0.4, 0.4), 2),
            "memory_used_mib": 96410.0, "memory_total_mib": 1547000.0,
        }  # fmt: skip
        yield {"type": "gpus", "t": t, "gpus": gpus, "load": load}
        second += 1


def _sample(index: int, age_s: float, dice: random.Random) -> dict[str, Any]:
    """One GPU, `age_s` seconds from the present."""
    if age_s < _LOAD_BEGINS_S:
        util, util_mem, power, clock, memory, temp = 0, 0, 83.0, 180, 612.0, 34
    elif age_s < _LOAD_ENDS_S:
        done = (age_s - _LOAD_BEGINS_S) / (_LOAD_ENDS_S - _LOAD_BEGINS_S)
        util, util_mem, power, clock, memory, temp = 7, 3, 118.0, 2430, 1800.0 + done * 58650, 38
    elif age_s < _READY_S:
        util, util_mem, power, clock, memory, temp = 46, 12, 196.0, 2430, _MODEL_MIB, 45
    else:
        util, util_mem, clock, memory = 100, 30 + dice.randrange(3), 2415 + 15 * dice.randrange(2), _MODEL_MIB
        power, temp = _SERVING_W[index], _SERVING_C[index]
    return {
        "index": index, "util_gpu_pct": util, "util_mem_pct": util_mem,
        "power_w": round(power + dice.uniform(-3.5, 3.5), 1), "power_limit_w": _LIMIT_W, "temp_c": temp,
        "memory_used_mib": round(memory), "sm_clock_mhz": clock, "mem_clock_mhz": 12481, "clock_event_reasons": 0,
        "pcie_gen": 5, "pcie_width": 16,
    }  # fmt: skip
