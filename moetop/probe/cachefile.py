"""Opens tuning caches and says what they hold and whether they fit this server; pure but for reading the file."""

from __future__ import annotations

import ast
import json
import re
from typing import Any

from . import procfs

MAX_CACHE_BYTES = 16 * 1024 * 1024
MAX_KEYS = 20000
MAX_OPS = 32

# Metadata of FlashInfer's JSON cache that this probe can compare: key, the server's package, its name in words.
COMPARED = (("flashinfer_version", "flashinfer", "FlashInfer"), ("lib_version", "tensorrt_llm", "TensorRT-LLM"))
GPU_KEYS = ("gpu", "device_name")


def _load(path: str) -> tuple[dict[str, Any], str | None]:
    data = procfs.read_bytes(path, MAX_CACHE_BYTES + 1)
    if data is None:
        return {}, None
    if len(data) > MAX_CACHE_BYTES:
        return {}, "it is larger than %d MiB and was not opened" % (MAX_CACHE_BYTES >> 20)
    try:
        told = json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return {}, "it is not valid JSON: it is ignored at start"
    return (told, None) if isinstance(told, dict) else ({}, "it is no JSON object: it is ignored at start")


def _operation(key: str) -> tuple[str, int | None]:
    """(operation, first dimension) of a key such as ('trtllm::fused_moe::gemm1', 'MoERunner', ((64, 3072), ...))."""
    try:
        parts = ast.literal_eval(key) if len(key) < 4096 else ()
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        parts = ()
    if not isinstance(parts, tuple) or len(parts) < 3 or not isinstance(parts[0], str):
        match = re.match(r"^\(?['\"]([^'\"]{1,120})['\"]", key)
        return (match.group(1) if match else "?", None)
    shape = parts[2]
    while isinstance(shape, tuple) and shape and isinstance(shape[0], tuple):
        shape = shape[0]
    bucket = shape[0] if isinstance(shape, tuple) and shape and isinstance(shape[0], int) else None
    return parts[0], bucket


def describe_flashinfer(path: str) -> tuple[dict[str, Any], dict[str, str]]:
    """(facts, metadata) of a FlashInfer JSON cache.

    Facts: `rank` from the file's name, `entries`, `fallback_only` (tactic -1: untuned), `ops` with entries
    and tuned buckets each; `unreadable` is why it counts for nothing.
    """
    facts: dict[str, Any] = {}
    match = re.search(r"rank_(tp\d+_pp\d+_dp\d+)", path)
    if match:
        facts["rank"] = match.group(1)
    told, broken = _load(path)
    if broken:
        facts["unreadable"] = broken
        return facts, {}
    metadata = told.get("_metadata")
    ops: dict[str, dict[str, Any]] = {}
    entries = fallback = 0
    for key in list(told)[:MAX_KEYS]:
        if key.startswith("_"):
            continue
        entries += 1
        value = told[key]
        untuned = isinstance(value, list) and len(value) > 1 and value[1] == -1
        fallback += untuned
        name, bucket = _operation(key)
        if name in ops or len(ops) < MAX_OPS:
            op = ops.setdefault(name, {"entries": 0, "buckets": set()})
            op["entries"] += 1
            if bucket is not None and not untuned:
                op["buckets"].add(bucket)
    facts["entries"] = entries
    if fallback:
        facts["fallback_only"] = fallback
    if ops:
        facts["ops"] = {name: {"entries": op["entries"], "buckets": sorted(op["buckets"])} for name, op in ops.items()}
    return facts, _strings(metadata)


def describe_trtllm(path: str) -> tuple[dict[str, Any], dict[str, str]]:
    """(facts, metadata) of a TensorRT-LLM autotuner cache: entries by rank, or of its one rank."""
    told, broken = _load(path)
    if broken:
        return {"unreadable": broken}, {}
    ranks = {key: len(value) for key, value in told.items() if key.startswith("rank_") and isinstance(value, dict)}
    facts: dict[str, Any] = {"ranks": ranks} if ranks else {}
    if told and not ranks:
        facts["entries"] = len([key for key in told if key != "metadata"])
    return facts, _strings(told.get("metadata"))


def _strings(metadata: object) -> dict[str, str]:
    if not isinstance(metadata, dict):
        return {}
    return {str(key)[:64]: str(value)[:256] for key, value in list(metadata.items())[:32]}


def stale_reason(metadata: dict[str, str], versions: dict[str, str], gpus: list[str]) -> str | None:
    """Which of a cache's metadata differs from this server and host; `*` fits everything, unknown proves nothing."""
    found = []
    for key, package, words in COMPARED:
        saved, now = metadata.get(key), versions.get(package)
        if saved and now and saved not in ("*", now):
            found.append("made by %s %s, the server runs %s" % (words, saved, now))
    saved_gpu = next((metadata[key] for key in GPU_KEYS if metadata.get(key)), None)
    if saved_gpu and gpus and saved_gpu != "*" and saved_gpu not in gpus:
        found.append("made on %s, this host has %s" % (saved_gpu, ", ".join(gpus)))
    return "; ".join(found) or None
