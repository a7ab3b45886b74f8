"""Tuning files: moved aside in their own folder (one rename, nothing copied, nothing deleted), put in place, put back.

Every change is described to `remember` before it is made; `undo` takes such a description and may run twice.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

MARK = ".moetop-"
MAX_JSON_BYTES = 64 << 20

if TYPE_CHECKING:
    Remember = Callable[[dict[str, Any]], None]


class Unusable(Exception):
    """A file cannot be used or moved; `str()` says why."""


def expand(patterns: list[str]) -> list[str]:
    """Existing files that match, without those moved aside earlier."""
    found = {path for pattern in patterns for path in Path("/").glob(pattern.lstrip("/"))}
    return sorted(str(path) for path in found if MARK not in path.name and path.is_file())


def why_not_movable(path: str) -> str | None:
    """Why a file or a file to be in this folder could not be moved or made; None if it can."""
    folder = Path(path).parent
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if not folder.is_dir():
        return f"{folder} is not a folder"
    if not os.access(str(folder), os.W_OK | os.X_OK):
        return f"no right to write in {folder}"
    return None


def free_name(path: str, job: str, word: str) -> str:
    """A name beside `path` that nothing has and no engine reads."""
    base = f"{path}{MARK}{word}-{job}"
    candidate, number = base, 1
    while os.path.lexists(candidate):
        number += 1
        candidate = f"{base}.{number}"
    return candidate


def move_aside(path: str, job: str, remember: Remember) -> str:
    """Rename a file to a name the engine does not read; the new name. Raises Unusable."""
    target = free_name(path, job, "old")
    remember({"do": "move_back", "from": target, "to": path})
    try:
        Path(path).rename(target)
    except OSError as error:
        raise Unusable(f"{path} cannot be moved aside: {error.strerror}") from None
    return target


def install(source: str, target: str, job: str, remember: Remember) -> None:
    """Put a new file where the engine reads it; one that is there is moved aside first. Raises Unusable."""
    try:
        data = Path(source).read_bytes()
        make_folder(str(Path(target).parent), remember)
        if os.path.lexists(target):
            move_aside(target, job, remember)
        temporary = Path(free_name(target, job, "new"))
        with temporary.open("xb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.chmod(0o644)
        _give_to_owner_of(str(Path(target).parent), str(temporary))
        inode = temporary.stat().st_ino
        remember({"do": "remove_new", "path": target, "inode": inode, "temporary": str(temporary)})
        temporary.rename(target)
    except OSError as error:
        raise Unusable(f"{target} cannot be written: {error.strerror}") from None


def _give_to_owner_of(folder: str, path: str) -> None:
    """A file made by root in a user's folder belongs to that user."""
    if os.geteuid() == 0:
        facts = Path(folder).stat()
        os.chown(path, facts.st_uid, facts.st_gid)


def make_folder(folder: str, remember: Remember) -> None:
    """Create a folder and those above it, each remembered, readable, given to the owner of the one above."""
    missing = []
    path = Path(folder)
    while not path.exists():
        missing.append(path)
        path = path.parent
    for one in reversed(missing):
        remember({"do": "remove_folder", "path": str(one)})
        one.mkdir(exist_ok=True)
        one.chmod(0o755)
        _give_to_owner_of(str(one.parent), str(one))


def undo(entry: dict[str, Any]) -> str | None:
    """Take one remembered change back; a sentence of what was done, None if there was nothing to do.

    Raises Unusable.
    """
    try:
        if entry["do"] == "move_back":
            return _move_back(entry)
        if entry["do"] == "remove_new":
            return _remove_new(entry)
        if entry["do"] == "as_before":
            return _as_before(entry)
        if entry["do"] == "remove_folder" and Path(entry["path"]).is_dir() and not any(Path(entry["path"]).iterdir()):
            Path(entry["path"]).rmdir()
            return f"empty folder {entry['path']} removed"
    except OSError as error:
        raise Unusable(f"{entry.get('to') or entry.get('path')} cannot be put back: {error.strerror}") from None
    return None


def keep_as_it_is(path: str, job: str, remember: Remember) -> None:
    """Before something else may write a file: a copy of it, or the note that there was none. Raises Unusable."""
    saved = free_name(path, job, "old") if Path(path).exists() else None
    remember({"do": "as_before", "path": path, "saved": saved, "aside": free_name(path, job, "tuned")})
    if saved is not None:
        try:
            shutil.copy2(path, saved)
        except OSError as error:
            raise Unusable(f"{path} cannot be copied: {error.strerror}") from None


def _as_before(entry: dict[str, Any]) -> str | None:
    path = Path(entry["path"])
    if entry["saved"] is None:
        if not path.exists():
            return None
        path.rename(entry["aside"])
        return f"{path} moved to {entry['aside']}"
    if not Path(entry["saved"]).exists():
        return None
    Path(entry["saved"]).replace(path)
    return f"{path} is as it was"


def _remove_new(entry: dict[str, Any]) -> str | None:
    """Only the very file that was installed: the old one may be back under its name already."""
    temporary, path = Path(entry["temporary"]), Path(entry["path"])
    if temporary.exists():
        temporary.unlink()
    if not path.exists() or path.stat().st_ino != entry["inode"]:
        return None
    path.unlink()
    return f"{path} taken away again (the table is kept in the job's folder)"


def _move_back(entry: dict[str, Any]) -> str | None:
    if not os.path.lexists(entry["from"]):
        return None
    said = f"{entry['to']} is back"
    if os.path.lexists(entry["to"]):
        newer = free_name(entry["to"], entry["from"].rpartition(f"{MARK}old-")[2], "tuned")
        Path(entry["to"]).rename(newer)
        said += f" (what the failed run wrote is {newer})"
    Path(entry["from"]).rename(entry["to"])
    return said


def read_made(path: str) -> bytes:
    """What a tuner wrote; never through a link, because its folder may belong to another user. Raises Unusable."""
    name = Path(path).name
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        raise Unusable(f"{name} was not written") from None
    except OSError as error:
        raise Unusable(f"{name} cannot be read: {error.strerror}") from None
    with os.fdopen(fd, "rb") as stream:
        data = stream.read(MAX_JSON_BYTES + 1)
    if len(data) > MAX_JSON_BYTES:
        raise Unusable(f"{name} is too large to be a configuration")
    return data


def check_triton_json(data: bytes, name: str) -> int:
    """Number of batch sizes in a tuned Triton configuration. Raises Unusable with the reason.

    The engine reads a mapping of batch size to tile sizes; other keys may be words (`triton_version`).
    """
    try:
        value = json.loads(data.decode("utf-8"))
    except ValueError as error:
        raise Unusable(f"{name} is not readable JSON: {str(error)[:120]}") from None
    if not isinstance(value, dict):
        raise Unusable(f"{name} does not map batch sizes to tiles")
    sizes = {key: tile for key, tile in value.items() if str(key).isdigit()}
    for key, tile in sizes.items():
        wanted = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K")
        if not (isinstance(tile, dict) and all(type(tile.get(one)) is int and tile[one] > 0 for one in wanted)):
            raise Unusable(f"{name} has no tile sizes for batch size {key}")
    if not sizes:
        raise Unusable(f"{name} holds no batch size")
    return len(sizes)
