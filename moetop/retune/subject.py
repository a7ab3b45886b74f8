"""Reads from a server's report what a retune depends on: backend, port, files to move or to make. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from moetop.model import Engine, EventKind, LogEvent, ServerReport
from moetop.retune.recipes import EngineRecipe, TunerRecipe
from moetop.retune.types import Overrides

_PATHS = re.compile(r"/[^\x00\n]*?\.json")
_BACKEND_ARGS = ("moe_runner_backend", "moe_backend", "moe_config_backend")
_TRITON_EVENTS = frozenset({EventKind.MOE_CONFIG_DEFAULT, EventKind.MOE_CONFIG_FALLBACK, EventKind.MOE_CONFIG_TUNED})
_DTYPE = re.compile(r",dtype=([a-z0-9_]+)")


@dataclass(frozen=True)
class Subject:
    """What is known of the server before its host is asked."""

    backend: str | None
    port: int | None
    base_url: str | None
    health_url: str | None
    metrics_url: str | None


def newest(events: Iterable[LogEvent], kinds: Iterable[EventKind]) -> list[LogEvent]:
    """Events of these kinds that belong to the newest run."""
    wanted = set(kinds)
    listed = list(events)
    runs = [event.run for event in listed if event.run is not None]
    last = max(runs, default=None)
    return [event for event in listed if event.kind in wanted and event.run in (None, last)]


def backend_of(server: ServerReport) -> str | None:
    """The resolved MoE backend in the engine's option spelling (lower case); None if nothing tells."""
    selected = newest(server.events, (EventKind.MOE_BACKEND_SELECTED,))
    for event in reversed(selected):
        named = event.fields.get("backend")
        if isinstance(named, str) and named:
            return re.sub(r"\W+", "_", named.strip()).lower()
    for key in _BACKEND_ARGS:
        value = server.args.get(key)
        if isinstance(value, str) and value and value != "auto":
            return value.lower()
    if newest(server.events, _TRITON_EVENTS):
        return "triton"
    if server.engine == Engine.TENSORRT_LLM:
        return "trtllm"
    return None


def _bind_address(server: ServerReport) -> str:
    host = server.args.get("host")
    if not isinstance(host, str) or host in ("", "0.0.0.0", "localhost"):
        return "127.0.0.1"
    if host == "::":
        return "[::1]"
    return f"[{host}]" if ":" in host else host


def subject_of(server: ServerReport, engine: EngineRecipe, overrides: Overrides) -> Subject:
    """Addresses and backend of a server."""
    given = server.port if server.port is not None else server.args.get("port")
    port = given if isinstance(given, int) else None
    secure = any(server.args.get(key) for key in ("ssl_keyfile", "ssl_certfile"))
    base = f"{'https' if secure else 'http'}://{_bind_address(server)}:{port}" if port else None
    health = overrides.health or engine.health_path
    health_url = (base + health if base else None) if health.startswith("/") else health
    metrics_url = f"{base}/metrics" if base and engine.metrics else None
    return Subject(backend_of(server), port, base, health_url, metrics_url)


def targets_of(server: ServerReport, row: TunerRecipe) -> tuple[str, ...]:
    """Tuned tables the engine looked for by exact name in its newest run, else those the inventory says it would."""
    found: dict[str, None] = {}
    for event in newest(server.events, _TRITON_EVENTS):
        for path in _event_paths(event.fields):
            found[path] = None
    wanted = [file for file in server.files if file.role in row.roles and ("from" in file.facts or not file.exists)]
    for file in wanted if not found else ():
        if file.path.endswith(".json"):
            found[file.path] = None
    return tuple(path for path in found if not PurePosixPath(path).name.endswith("_down.json")) or tuple(found)


def _event_paths(fields: dict[str, Any]) -> list[str]:
    """Absolute .json paths in an event's fields; a list of searched places ends with the one to make."""
    paths: list[str] = []
    for key in ("want", "path", "paths", "file", "files"):
        value = fields.get(key)
        texts = value if isinstance(value, (list, tuple)) else [value]
        for text in texts:
            if isinstance(text, str) and text.startswith("/"):
                paths += _PATHS.findall(text)
    return paths[-1:] if len(paths) > 1 and "path" not in fields else paths


def moves_of(server: ServerReport, row: TunerRecipe) -> tuple[str, ...]:
    """Globs of the caches to move aside: all of the folder, because a part of them misleads the ranks."""
    folders: dict[str, None] = {}
    kinds = (EventKind.AUTOTUNE_START, EventKind.AUTOTUNE_CACHE_LOADED, EventKind.AUTOTUNE_CACHE_SAVED)
    texts = [event.fields.get("path") for event in newest(server.events, kinds)]
    texts += [file.path for file in server.files if file.role in row.roles]
    for text in texts:
        if isinstance(text, str) and text.startswith("/") and text.endswith(".json"):
            folders[_quote(str(PurePosixPath(text).parent))] = None
    globs = [f"{folder}/{name}" for folder in folders for name in row.moves]
    if row.cache_env:
        named = server.env.get(row.cache_env)
        if named and named.startswith("/"):
            path = PurePosixPath(named)
            globs += [_quote(named), f"{_quote(str(path.with_suffix('')))}.rank*{path.suffix}"]
        globs += [_quote(file.path) for file in server.files if file.role in row.roles]
    return tuple(dict.fromkeys(globs))


def _quote(path: str) -> str:
    """A path as a glob that matches itself only."""
    return re.sub(r"([*?\[])", r"[\1]", path)


def words_of(server: ServerReport) -> tuple[str, ...]:
    """What tells one launcher from another: the command's first words and the model."""
    return (*server.argv[:4], str(server.args.get("model_path") or ""))


def fill(row: TunerRecipe, server: ServerReport, targets: tuple[str, ...], script: str, python: str) -> tuple[str, ...]:
    """The tuner's command; {out} is left for the runner, which knows the folder."""
    args = server.args
    model = str(args.get("model_path") or args.get("model") or "")
    tp = str(args.get("tp_size") or args.get("tensor_parallel_size") or 1)
    name = PurePosixPath(targets[0]).name if targets else ""
    dtype = match[1] if (match := _DTYPE.search(name)) else "auto"
    values = {"{python}": python, "{script}": script, "{model}": model, "{tp}": tp, "{dtype}": dtype}
    argv = [values.get(part, part) for part in row.argv]
    expert_parallel = args.get("ep_size") or args.get("enable_expert_parallel")
    if row.engine == Engine.SGLANG and isinstance(expert_parallel, int) and expert_parallel > 1:
        argv += ["--ep-size", str(expert_parallel)]
    if row.engine == Engine.VLLM and expert_parallel is True:
        argv.append("--enable-expert-parallel")
    if row.engine == Engine.SGLANG and "per_channel_quant=True" in name:
        argv.append("--per-channel-quant")
    return tuple(argv)
