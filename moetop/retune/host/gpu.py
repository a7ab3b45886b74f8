"""What nvidia-smi says of processes and power; None where it is not there. Never changes a GPU's settings."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

SMI_TIMEOUT_S = 20.0
_NO_GPUS: tuple[str, ...] = ()


def _query(arguments: list[str]) -> list[list[str]] | None:
    """Rows of a CSV query; None if nvidia-smi is missing or hangs. Raises RuntimeError with its words if it fails."""
    smi = shutil.which("nvidia-smi")
    if smi is None:
        return None
    try:
        done = subprocess.run(
            [smi, *arguments, "--format=csv,noheader,nounits"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=SMI_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"nvidia-smi does not answer within {SMI_TIMEOUT_S:.0f} s") from None
    text = done.stdout.decode("utf-8", "replace")
    if done.returncode != 0:
        raise RuntimeError(f"nvidia-smi fails: {' '.join(text.split())[:300]}")
    return [[cell.strip() for cell in line.split(",")] for line in text.splitlines() if line.strip()]


def available() -> bool:
    """Whether nvidia-smi is on the path."""
    return shutil.which("nvidia-smi") is not None


def processes() -> list[dict[str, Any]] | None:
    """`{pid, gpu, name, memory_mib}` of every compute process. Raises RuntimeError."""
    rows = _query(["--query-compute-apps=pid,gpu_uuid,used_memory,process_name"])
    if rows is None:
        return None
    found = []
    for row in rows:
        if len(row) >= 4 and row[0].isdigit():
            memory = float(row[2]) if row[2].replace(".", "", 1).isdigit() else None
            found.append({"pid": int(row[0]), "gpu": row[1], "memory_mib": memory, "name": ",".join(row[3:])[:120]})
    return found


def power_w(gpus: tuple[str, ...] | list[str] = _NO_GPUS) -> float | None:
    """Total draw now of the GPUs with these UUIDs (all if none given); None if any of them is not known."""
    try:
        rows = _query(["--query-gpu=uuid,power.draw"])
    except RuntimeError:
        return None
    total = 0.0
    for row in rows or []:
        if gpus and row[0] not in gpus:
            continue
        try:
            total += float(row[1])
        except (IndexError, ValueError):
            return None
    return total if rows else None
