"""The job's memory on disk: folders, atomic state, lock, action log. Environment values go to one 0600 file only."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import socket
import struct
import time
from pathlib import Path
from typing import Any

from . import procs

KEEP_LINES = 20_000
RESERVE_BYTES = 256 << 10
NEVER_STARTED_S = 60.0
"""A job whose runner has not noted itself this long after its start was never begun."""
_JOB_ID = re.compile(r"[0-9]{8}T[0-9]{6}Z-[\w.-]{1,48}-[0-9a-f]{6}")


class Busy(Exception):
    """Another job holds the server; `str()` says whose."""


def root() -> Path:
    """moetop's state folder of this user, there or not: who only looks makes nothing."""
    base = os.environ.get("XDG_STATE_HOME") or ""
    home = Path(base) if base.startswith("/") else Path.home() / ".local" / "state"
    return home / "moetop"


def jobs_dir() -> Path:
    """Where jobs are kept, there or not."""
    return root() / "jobs"


def _made(path: Path) -> Path:
    """A folder of ours, made private."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def job_dir(job_id: str) -> Path:
    """Folder of a job. Raises ValueError for a name that is none."""
    if not _JOB_ID.fullmatch(job_id):
        raise ValueError("no such job")
    return jobs_dir() / job_id


def new_job(server: str) -> Path:
    """A fresh private folder."""
    word = re.sub(r"[^\w.-]+", "-", server, flags=re.ASCII).strip("-.")[:40] or "server"
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    _made(root())
    _made(jobs_dir()).chmod(0o700)
    path = jobs_dir() / f"{stamp}-{word}-{os.urandom(3).hex()}"
    path.mkdir(mode=0o700)
    return path


def keep_reserve(folder: Path) -> None:
    """Room that `use_reserve` frees, so that a full disk cannot keep a job from writing how it ended."""
    with (folder / "reserve").open("wb") as stream:
        stream.write(os.urandom(RESERVE_BYTES))


def use_reserve(folder: Path) -> bool:
    """Give the reserve back to the disk; False if that was done before."""
    path = folder / "reserve"
    if not path.exists():
        return False
    path.unlink()
    return True


def write_json(path: Path, value: object) -> None:
    """Replace a file by one that is whole and on disk, readable by its owner only."""
    temporary = path.with_name(path.name + ".new")
    fd = os.open(str(temporary), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "w") as stream:
        json.dump(value, stream, ensure_ascii=True)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)
    folder = os.open(str(path.parent), os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file. Raises OSError, ValueError."""
    value = json.loads(path.read_text())
    if not isinstance(value, dict):
        raise ValueError(f"{path.name} is not an object")
    return value


def append_line(path: Path, value: dict[str, Any]) -> None:
    """Add one JSON line in one write, so that two writers do not mix."""
    fd = os.open(str(path), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(fd, (json.dumps(value, ensure_ascii=True) + "\n").encode())
    finally:
        os.close(fd)


def log_action(who: str, what: str, result: str, job: str) -> None:
    """The host's side of the action log; a full disk must not stop a roll back, so it is only tried."""
    entry = {"when": round(time.time(), 3), "who": who, "what": what, "result": result, "job": job}
    try:
        append_line(_made(root()) / "actions.jsonl", entry)
    except OSError as error:
        print(f"action log not written: {error}", flush=True)  # noqa: T201 - goes to the job's runner.log


def lock_name(key: str) -> str:
    """Name of a server's lock, the same for every user of the host."""
    return "moetop-retune-" + hashlib.sha256(key.encode()).hexdigest()[:16]


def held_locks() -> set[str]:
    """Names of the locks that jobs of any user hold now, as the kernel lists their sockets."""
    try:
        table = Path("/proc/net/unix").read_text(errors="replace")
    except OSError:
        return set()
    return set(re.findall(r"@(moetop-retune-[0-9a-f]{16})$", table, re.MULTILINE))


class Lock:
    """One job a server, over all users of the host.

    A file lock in our own state folder carries the owner's words; an abstract socket of the same
    name holds against other users, who cannot see that folder. Both end with the process.
    """

    def __init__(self, key: str) -> None:
        name = lock_name(key)
        self.path = root() / f"lock-{name.rpartition('-')[2]}"
        self._address = f"\0{name}"
        self._fd: int | None = None
        self._socket: socket.socket | None = None

    def take(self, words: dict[str, Any]) -> None:
        """Raises Busy with the owner's words."""
        _made(self.path.parent)
        fd = os.open(str(self.path), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise Busy(self.holder() or "another moetop job") from None
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(self._address)
            listener.listen(8)
        except OSError:
            listener.close()
            os.close(fd)
            raise Busy(self.holder() or "a job of another user of this host") from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, json.dumps(words).encode(), 0)
        self._fd, self._socket = fd, listener

    def holder(self) -> str | None:
        """Who holds it, in words; None if it is free."""
        peer = self._peer()
        try:
            words = json.loads(self.path.read_text() or "{}")
        except (OSError, ValueError):
            words = {}
        if words and self._is_locked():
            since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(words.get("since", 0)))
            return f"{words.get('who', 'someone')} since {since} (job {words.get('job', '?')})"
        return None if peer is None else f"user id {peer[1]}, process {peer[0]}"

    def _is_locked(self) -> bool:
        try:
            fd = os.open(str(self.path), os.O_RDWR | os.O_NOFOLLOW)
        except OSError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(fd)
        return False

    def _peer(self) -> tuple[int, int] | None:
        """(pid, uid) of the process that listens, as the kernel knows it."""
        probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        probe.settimeout(1.0)
        try:
            probe.connect(self._address)
            raw = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        except OSError:
            return None
        finally:
            probe.close()
        pid, uid, _ = struct.unpack("3i", raw)
        return pid, uid


class Output:
    """The job's output as people read it: one line each, stamped, bounded, kept."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._count = 0

    def add(self, source: str, text: str) -> None:
        """Append a line; after KEEP_LINES only moetop's own lines are kept."""
        self._count += 1
        if self._count > KEEP_LINES and source != "moetop":
            return
        try:
            append_line(self._path, {"t": round(time.time(), 3), "from": source, "text": text[:2000]})
        except OSError as error:
            print(f"output not kept: {error}", flush=True)  # noqa: T201 - goes to the job's runner.log


def status_of(state: dict[str, Any]) -> str:
    """A job's status, told from its runner as well: a running job without one is interrupted."""
    status = str(state.get("status"))
    if status != "running" or runner_alive(state):
        return status
    if state.get("runner") is None:
        young = time.time() - float(state.get("created") or 0.0) < NEVER_STARTED_S
        return "running" if young else "refused"
    return "interrupted"


def runner_alive(state: dict[str, Any]) -> bool:
    """Whether the process that works on a job still runs."""
    return procs.alive(state.get("runner"))
