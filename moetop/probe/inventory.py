"""Lists the tuning caches and configuration files that a server would read, there or missing; read-only."""

from __future__ import annotations

import glob
import os
import re
from typing import Any, Callable, Iterator, NamedTuple

from . import procfs
from .cachefile import describe_flashinfer, describe_trtllm, stale_reason
from .discover import Found
from .tables import table_names, wanted_table

MAX_FILES = 200
MAX_GROUPS = 16
NVIDIA_GPUS = "/proc/driver/nvidia/gpus"


class Ground(NamedTuple):
    """What decides where a server reads from."""

    engine: str
    view: str
    home: str
    env: dict[str, str]
    args: dict[str, Any]
    versions: dict[str, str]
    homes: dict[str, str]
    gpus: list[str]
    cwd: str


class CachePlace(NamedTuple):
    """Where an engine keeps FlashInfer's tuning results.

    `root` is the first of the alternatives whose variable is set; `pattern` is below it.
    """

    engine: str
    roots: tuple[tuple[str | None, str], ...]
    pattern: str
    source: str


CACHE_PLACES = (
    CachePlace(
        "sglang",
        (("SGLANG_CACHE_DIR", "/flashinfer/autotune"), (None, "{home}/.cache/sglang/flashinfer/autotune")),
        "{flashinfer}/sm*/*/rank_tp*.json",
        "SGLang 0.5.12+ runner/flashinfer_autotune.py:131-170",
    ),
    CachePlace(
        "vllm",
        (("VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR", ""),),
        "*/autotune_configs.json",
        "vLLM 2026-05-18+ warmup/flashinfer_autotune_cache.py",
    ),
    CachePlace(
        "vllm",
        (
            ("VLLM_CACHE_ROOT", "/flashinfer_autotune_cache"),
            ("XDG_CACHE_HOME", "/vllm/flashinfer_autotune_cache"),
            (None, "{home}/.cache/vllm/flashinfer_autotune_cache"),
        ),
        "{flashinfer}/*/*/autotune_configs.json",
        "vLLM 2026-05-18+ warmup/flashinfer_autotune_cache.py",
    ),
)


class TablePlace(NamedTuple):
    """A folder with Triton MoE tables. `folder` may name package homes and the Triton version."""

    engine: str
    variable: str | None
    folder: str
    source: str


TABLE_PLACES = (
    TablePlace(
        "sglang", "SGLANG_MOE_CONFIG_DIR", "{value}/configs/triton_{triton}", "SGLang fused_moe_triton_config.py:84"
    ),
    TablePlace(
        "sglang",
        None,
        "{sglang}/srt/layers/moe/moe_runner/triton_utils/configs/triton_{triton}",
        "SGLang 0.5.11+ (5f7aee726a)",
    ),
    TablePlace(
        "sglang", None, "{sglang}/srt/layers/moe/fused_moe_triton/configs/triton_{triton}", "SGLang up to 0.5.10"
    ),
    TablePlace("vllm", "VLLM_TUNED_CONFIG_FOLDER", "{value}", "vLLM 2025-08-13+ fused_moe.py:1089"),
    TablePlace("vllm", None, "{vllm}/model_executor/layers/fused_moe/configs", "vLLM fused_moe.py:1089"),
)


def gpu_names(root: str = NVIDIA_GPUS) -> list[str]:
    """Product names of the GPUs as the driver's own /proc files give them."""
    names = []
    for path in sorted(glob.glob(glob.escape(root) + "/*/information")):
        match = re.search(r"^Model:\s*(\S.*?)\s*$", procfs.read_text(path, 8192) or "", re.M)
        if match:
            names.append(match.group(1))
    return list(dict.fromkeys(names))


def take_inventory(server: Found, args: dict[str, Any]) -> tuple[list[dict[str, Any]], list[str]]:
    """(files as `TuningFile` keys, notes) for one server."""
    ground = Ground(
        server.engine,
        server.view or "",
        server.env.get("HOME") or server.home or "/",
        server.env,
        args,
        server.packages.versions,
        server.packages.homes,
        gpu_names(),
        server.cwd or "/",
    )
    notes: list[str] = []
    if server.view is None:
        notes.append("only world-readable places were looked at: the process belongs to another user")
    files: list[dict[str, Any]] = []
    for part in (_flashinfer_caches, _tables, _trtllm_cache, _named_files):
        files.extend(part(ground, notes))
    if len(files) > MAX_FILES:
        notes.append("%d further files are left out" % (len(files) - MAX_FILES))
    return files[:MAX_FILES], notes


def _entry(path: str, role: str, ground: Ground, **more: Any) -> dict[str, Any]:
    """Keys of a `TuningFile`, with the path as the server itself sees it."""
    shown = path[len(ground.view) :] if ground.view and path.startswith(ground.view) else path
    entry: dict[str, Any] = {"path": shown, "role": role, "exists": False}
    try:
        told = os.stat(path)
        entry.update(exists=True, mtime=told.st_mtime, size=told.st_size)
    except OSError:
        pass
    entry.update((key, value) for key, value in more.items() if value)
    return entry


# -- FlashInfer's JSON caches ---------------------------------------------------------------------


def _cache_root(place: CachePlace, ground: Ground) -> str | None:
    for variable, tail in place.roots:
        if variable is None:
            return tail.format(home=ground.home)
        if ground.env.get(variable):
            return re.sub(r"^~(?=/|$)", lambda _: ground.home, ground.env[variable]) + tail
    return None


def _flashinfer_caches(ground: Ground, notes: list[str]) -> Iterator[dict[str, Any]]:
    for place in CACHE_PLACES:
        root = _cache_root(place, ground) if place.engine == ground.engine else None
        if root is None:
            continue
        base = ground.view + os.path.join(ground.cwd, root)
        version = ground.versions.get("flashinfer")
        pattern = place.pattern.format(flashinfer=glob.escape(version) if version else "*")
        groups: dict[str, list[str]] = {}
        for path in sorted(glob.glob(glob.escape(base) + "/" + pattern)):
            groups.setdefault(os.path.dirname(path), []).append(path)
        if not groups:
            notes.append("no FlashInfer tuning cache lies under %s%s" % (root, _for_version(version)))
        newest = sorted(groups, key=lambda folder: -max(_mtime(path) for path in groups[folder]))
        for folder in newest[:MAX_GROUPS]:
            yield from _cache_group(folder, groups[folder], ground)
        yield from _other_versions(base, place, version, ground)
        return


def _for_version(version: str | None) -> str:
    return " for FlashInfer %s" % version if version else ""


def _mtime(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


def _cache_group(folder: str, paths: list[str], ground: Ground) -> Iterator[dict[str, Any]]:
    """The files of one configuration: a file a rank under SGLang, one for all under vLLM."""
    for path in paths:
        described, metadata = describe_flashinfer(path)
        described["group"] = os.path.basename(folder)
        stale = described.pop("unreadable", None) or stale_reason(metadata, ground.versions, ground.gpus)
        yield _entry(path, "flashinfer_cache", ground, stale=stale, facts=described)
    present = {os.path.basename(path) for path in paths}
    for name in _expected_ranks(ground, present):
        if name not in present:
            yield _entry(
                os.path.join(folder, name), "flashinfer_cache", ground, facts={"group": os.path.basename(folder)}
            )


def _expected_ranks(ground: Ground, present: set[str]) -> list[str]:
    """SGLang names one file for each tensor-parallel rank; other axes are taken from the files there."""
    size = ground.args.get("tp_size", 1)
    if ground.engine != "sglang" or not isinstance(size, int) or not 0 < size <= 1024:
        return []
    if ground.args.get("pp_size", 1) != 1 or ground.args.get("nnodes", 1) != 1:
        return []
    tails = {
        match.group(1) for name in present for match in [re.match(r"^rank_tp\d+(_pp\d+_dp\d+\.json)$", name)] if match
    }
    if len(tails) != 1:
        return []
    tail = next(iter(tails))
    return ["rank_tp%d%s" % (rank, tail) for rank in range(size)]


def _other_versions(base: str, place: CachePlace, version: str | None, ground: Ground) -> Iterator[dict[str, Any]]:
    """Caches made by another FlashInfer: the path holds the version, so they are not read."""
    if version is None or "{flashinfer}" not in place.pattern:
        return
    try:
        names = sorted(os.listdir(base))
    except OSError:
        return
    for name in names[:MAX_GROUPS]:
        if name != version and re.match(r"^\d+\.\d+", name):
            stale = "made by FlashInfer %s, the server runs %s" % (name, version)
            yield _entry(os.path.join(base, name), "flashinfer_cache_folder", ground, stale=stale)


# -- Triton tables ---------------------------------------------------------------------------------


def _table_folder(place: TablePlace, ground: Ground) -> str | None:
    value = ground.env.get(place.variable) if place.variable else ""
    if value is None or place.engine != ground.engine:
        return None
    triton = ground.versions.get("triton")
    if "{triton}" in place.folder and triton is None:
        return None
    home = ground.homes.get(place.engine)
    if not place.variable and home is None:
        return None
    words = {
        "value": ground.view + os.path.join(ground.cwd, value),
        "triton": re.split(r"[+-]", triton or "")[0].replace(".", "_"),
        place.engine: home or "",
    }
    return place.folder.format(**words)


def _tables(ground: Ground, notes: list[str]) -> Iterator[dict[str, Any]]:
    if ground.engine not in ("sglang", "vllm"):
        return
    folders = [folder for place in TABLE_PLACES for folder in [_table_folder(place, ground)] if folder]
    there = [folder for folder in folders if os.path.isdir(folder)]
    if not there:
        if ground.homes.get(ground.engine):
            notes.append("no folder with Triton MoE tables for this Triton version was found")
        return
    if not ground.gpus:
        notes.append("the GPU's name is not known here: Triton MoE tables cannot be matched")
        return
    matched = {folder: table_names(folder, ground.engine, ground.gpus) for folder in there}
    wanted = wanted_table(ground.engine, ground.args, ground.env, ground.home, ground.view, ground.gpus[0])
    if wanted is not None and wanted.name not in [name for rows in matched.values() for name, _ in rows]:
        path = os.path.join(there[0], wanted.name)
        yield _entry(path, "triton_config", ground, facts={"from": wanted.basis})
    for folder, rows in matched.items():
        for name, parts in rows:
            yield _entry(os.path.join(folder, name), "triton_config", ground, facts=parts)
        if not rows:
            notes.append("%s has no Triton MoE table for %s" % (folder[len(ground.view) :], ", ".join(ground.gpus)))


# -- TensorRT-LLM and single files -------------------------------------------------------------------


def _trtllm_cache(ground: Ground, notes: list[str]) -> Iterator[dict[str, Any]]:
    if ground.engine != "tensorrt_llm":
        return
    path = ground.env.get("TLLM_AUTOTUNER_CACHE_PATH")
    if not path:
        notes.append("TLLM_AUTOTUNER_CACHE_PATH is not set: every start tunes anew and keeps nothing")
        return
    full = ground.view + os.path.join(ground.cwd, path)
    stem, suffix = os.path.splitext(full)
    ranks = sorted(glob.glob(glob.escape(stem) + ".rank*" + glob.escape(suffix)))
    for name in [full, *ranks[:64]] if os.path.exists(full) or not ranks else ranks[:64]:
        described, metadata = describe_trtllm(name)
        stale = described.pop("unreadable", None) or stale_reason(metadata, ground.versions, ground.gpus)
        if stale and metadata:
            stale += "; TensorRT-LLM uses it all the same, without a word"
        yield _entry(name, "trtllm_cache", ground, stale=stale, facts=described)


NAMED_FILES: tuple[tuple[str, str, Callable[[str], str], str], ...] = (
    ("FLASHINFER_TACTICS_BLOCKLIST", "flashinfer_blocklist", str, "FlashInfer 0.6.15+ tactics_blocklist.py"),
    ("SGLANG_LOGGING_CONFIG_PATH", "logging_config", str, "SGLang utils/common.py:2328"),
)


def _named_files(ground: Ground, notes: list[str]) -> Iterator[dict[str, Any]]:
    """Files that a variable names, and FlashInfer's bundled tables where they are read at all."""
    for variable, role, clean, _source in NAMED_FILES:
        if ground.env.get(variable):
            path = ground.view + os.path.join(ground.cwd, clean(ground.env[variable]))
            yield _entry(path, role, ground, facts={"variable": variable})
    if ground.env.get("FLASHINFER_AUTOTUNER_LOAD_FROM_FILE") == "1" and "flashinfer" in ground.homes:
        folder = os.path.join(os.path.dirname(ground.homes["flashinfer"]), "flashinfer", "tuning_configs")
        for name in ground.gpus:
            tail = "_trtllm_fused_moe_%s.py" % name.replace(" ", "_")
            found = sorted(glob.glob(glob.escape(folder) + "/v*" + glob.escape(tail)))
            for path in found or [os.path.join(folder, "v0_1" + tail)]:
                yield _entry(path, "flashinfer_bundled", ground)
