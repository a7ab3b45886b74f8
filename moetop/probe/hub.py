"""Keeps one follower a log: configured ones and those of found servers, never the same log twice."""

from __future__ import annotations

import os
import time
from typing import Any, Callable

from . import asroot, procfs
from .follow import FileFollower
from .journal import CommandFollower, CommandSource, ContainerSource, JournalSource
from .lines import Emit, Matcher, Picker
from .scan import HistoryScan

SUDO_LINES = 20000  # of a file that only root may read, so many last lines are the history


class LogHub:
    """Starts and stops followers. `options` are the probe's."""

    def __init__(self, options: dict[str, Any], emit: Emit) -> None:
        self._emit = emit
        self._matcher = Matcher(options.get("literals") or (), options.get("noise_literals") or {})
        self._history = bool(options.get("history", True))
        self._tail_lines = int(options.get("tail_lines", 200))
        self._resume: dict[str, Any] = dict(options.get("resume") or {})
        self._sudo = bool(options.get("sudo", False))
        self._followers: dict[str, FileFollower | CommandFollower] = {}
        self._names: dict[tuple[Any, ...], str] = {}
        self._new: list[FileFollower | CommandFollower] = []
        self._held: dict[tuple[int, int], str] = {}
        self.configured: set[str] = set()
        self._stopped = False

    def configure(self, spec: dict[str, Any]) -> None:
        """Follow a log that configuration names; a server of the same name takes it for its own."""
        name = self.add(spec, spec.get("source"))
        if name is not None:
            self.configured.add(name)

    def add(self, spec: dict[str, Any], source: str | None = None) -> str | None:
        """Follow a log unless it is followed already; the name of its frames, None if the kind is not known."""
        same = _identity(spec)
        holder = spec.get("holder")
        if holder in self._held and self._reads_on(self._held[holder], holder):
            return self._held[holder]  # renamed under the server, which writes on into the same file
        if holder is not None and same in self._names:
            self._held[holder] = self._names[same]
        if same in self._names:
            return self._names[same]
        name = source or str(spec.get("target") or " ".join(spec.get("argv") or ()))
        if self._stopped or not name or name in self._followers:
            return name or None
        follower = self._make(spec, name)
        if follower is None:
            return None
        self._names[same] = name
        self._followers[name] = follower
        self._new.append(follower)
        if holder is not None:
            self._held[holder] = name
        return name

    def read_on(self) -> None:
        """Follow on the files that the probe before this one read and that no server found now writes: how the one
        that did has ended stands there."""
        for name in self._resume:
            if name.startswith("/") and os.path.isfile(name) and os.access(name, os.R_OK):
                self.add({"kind": "file", "target": name}, name)

    def start_new(self) -> None:
        """Begin to read the logs added since; apart from `add`, so that the server can be announced first."""
        new, self._new = self._new, []
        for follower in new:
            follower.start()

    def _reads_on(self, name: str, holder: tuple[int, int]) -> bool:
        follower = self._followers.get(name)
        entry = procfs.fd_stat(*holder)
        return isinstance(follower, FileFollower) and entry is not None and follower.reads(entry.st_dev, entry.st_ino)

    def stop(self) -> None:
        """End every follower."""
        self._stopped = True
        followers = list(self._followers.values())
        for follower in followers:
            follower.ask_stop()
        for follower in followers:
            follower.stop()

    def say(self, source: str) -> Callable[..., None]:
        """A status sender for one log."""

        def status(code: str, message: str, level: str = "info", detail: dict[str, Any] | None = None) -> None:
            frame: dict[str, Any] = {
                "type": "status",
                "t": time.time(),
                "code": code,
                "message": message,
                "level": level,
                "source": source,
            }
            if detail:
                frame["detail"] = detail
            self._emit(frame, level != "info")

        return status

    def _make(self, spec: dict[str, Any], name: str) -> FileFollower | CommandFollower | None:
        picker = Picker(name, self._matcher, self._emit)
        status = self.say(name)
        resume = self._resume.get(name)
        resume = resume if isinstance(resume, dict) else None
        kind, target = spec.get("kind"), str(spec.get("target") or "")
        path = os.path.expanduser(target)
        closed = kind == "file" and self._sudo and not os.access(path, os.R_OK)
        if kind == "file" and not (closed and not _missing(path)):
            return self._make_file(path, picker, status, resume, spec.get("holder"))
        source: CommandSource
        if kind == "file":
            source = CommandSource(asroot.tail_words(path, SUDO_LINES), sudo=True)
        elif kind == "journal":
            source = JournalSource(target, bool(spec.get("user")), self._sudo and not spec.get("user"))
        elif kind == "container":
            source = ContainerSource(str(spec.get("runtime") or "docker"), target, self._sudo)
        elif kind == "command" and spec.get("argv"):
            source = CommandSource([str(word) for word in spec["argv"]])
        else:
            status("log_missing", "a log of kind %r cannot be followed" % (kind,), level="warning")
            return None
        return CommandFollower(source, picker, status, resume, self._tail_lines, self._history)

    def _make_file(
        self,
        path: str,
        picker: Picker,
        status: Callable[..., None],
        resume: dict[str, Any] | None,
        holder: tuple[int, int] | None,
    ) -> FileFollower:
        def held() -> tuple[int, int] | None:
            if holder is None:
                return None
            entry = procfs.fd_stat(*holder)
            return None if entry is None else (entry.st_dev, entry.st_ino)

        history = HistoryScan(picker, status, lambda: self._stopped) if self._history else None
        return FileFollower(path, picker, status, resume, history, self._tail_lines, held)


def _missing(path: str) -> bool:
    """Whether a file is known not to exist (a folder that may not be entered leaves it open)."""
    try:
        os.stat(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


def _identity(spec: dict[str, Any]) -> tuple[Any, ...]:
    """What makes two ways of naming a log the same log."""
    kind = spec.get("kind")
    if kind == "file":
        return ("file", os.path.realpath(os.path.expanduser(str(spec.get("target") or ""))))
    return (kind, spec.get("target"), tuple(spec.get("argv") or ()), bool(spec.get("user")))
