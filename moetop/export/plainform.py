"""A snapshot as plain JSON values: documented key order, no NaN, secrets replaced. Writes nothing."""

from __future__ import annotations

import math
from enum import Enum
from typing import Any

import msgspec

from moetop import model
from moetop.probe.redact import redact_argv, redact_env, redact_text

KEY_ORDER: dict[type, tuple[str, ...]] = {
    model.Snapshot: ("schema", "moetop", "taken_at", "window_s", "headline", "hosts"),
    model.HostReport: (
        "name", "headline", "status", "error", "driver", "source", "gpus", "servers", "events", "findings",
    ),
    model.GpuReport: (
        "index", "uuid", "pci_bus_id", "name", "state", "confidence", "evidence", "limits", "util_gpu_pct",
        "util_mem_pct", "power_w", "power_limit_w", "power_limit_default_w", "power_pct", "temp_c",
        "memory_used_mib", "memory_total_mib", "sm_clock_mhz", "gpm", "processes",
    ),
    model.GpuProcess: ("pid", "user", "name", "memory_used_mib"),
    model.ServerReport: (
        "name", "engine", "version", "pid", "args", "phase", "ready", "metrics", "tuning", "runs", "events", "counts",
    ),
    model.Tuning: ("verdict", "evidence"),
    model.ServerRun: ("n", "start", "phase"),
    model.LogEvent: (
        "t", "t_text", "run", "kind", "rule", "severity", "engine", "ranks", "count", "fields", "line",
    ),
    model.Finding: ("kind", "severity", "confidence", "gpus", "server", "summary", "evidence", "remedy"),
}  # fmt: skip
"""The keys other programs rely on, in their order; keys added later follow in the order of the model."""

MAX_DEPTH = 40
"""Deepest nesting of free-form values (server arguments) that is written; deeper ones become text."""

_SAFE_INT = 1 << 63


def keys_of(cls: type[msgspec.Struct]) -> tuple[str, ...]:
    """Every key of `cls` in the order it is written."""
    first = KEY_ORDER.get(cls, ())
    return first + tuple(name for name in cls.__struct_fields__ if name not in first)


def clean_text(text: str) -> str:
    """`text` without secrets and without halves of surrogate pairs, which no UTF-8 can hold."""
    return redact_text(text).encode("utf-8", "replace").decode("utf-8")


def to_plain(value: Any, key: str = "", depth: int = 0) -> Any:
    """`value` (a model struct or anything inside one) as dicts, lists, text, numbers and None.

    `key` is the name it stands under: it decides what is a secret in arguments and environments.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, int):
        return value if -_SAFE_INT <= value < _SAFE_INT else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if depth > MAX_DEPTH:
        return clean_text(str(value)[:200])
    if isinstance(value, msgspec.Struct):
        return {name: to_plain(getattr(value, name), name, depth + 1) for name in keys_of(type(value))}
    if isinstance(value, dict):
        return {clean_text(str(name)): _named(str(name), item, depth + 1) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        if key == "argv":
            return [clean_text(arg) for arg in redact_argv([str(arg) for arg in value])]
        return [to_plain(item, "", depth + 1) for item in value]
    return clean_text(str(value))


def _named(name: str, value: Any, depth: int) -> Any:
    """A value of a free-form table: hidden where its name says that it is a secret."""
    if isinstance(value, str):
        return clean_text(redact_env({name: value})[name])
    if isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value):
        return [clean_text(redact_env({name: item})[name]) for item in value]
    return to_plain(value, name, depth)
