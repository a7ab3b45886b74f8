"""Everything the probe knows of serving processes and their logs, turned into frames; it reads no GPU."""

from __future__ import annotations

import os
import threading
import time
from typing import Any, Callable

from . import procfs, retunes
from .discover import Finder, Found, name_servers
from .endpoints import Numbers
from .hub import LogHub
from .inventory import take_inventory

FIND_EVERY_S = 5.0
FIND_STARTING_S = 2.0  # while a server starts
FIND_SOON_S = 1.0  # while one is expected; also how soon a server's end is noticed
FIRST_S = 10.0  # at the beginning, a process may be on its way to become a server
RESTART_S = 120.0  # after a server ended, another one is expected
NUMBERS_EVERY_S = 5.0
NUMBERS_SOON_S = 1.0  # before the first numbers and to the second ones, which give the rates
HEALTH_EVERY_S = 2.0
INVENTORY_EVERY_S = 60.0
HIDDEN_AFTER_S = 4.0  # NVML's list is read every 3 s and names a process that just ended

Emit = Callable[["dict[str, Any]", bool], None]


class _Watched:
    """A server and what was last said of it."""

    def __init__(self, found: Found, name: str) -> None:
        self.found = found
        self.name = name
        self.source: str | None = None
        self.numbers = Numbers(found.engine)
        self.over = threading.Event()
        self.poke = threading.Event()
        self.lock = threading.Lock()
        self.thread: threading.Thread | None = None
        self.said: dict[str, Any] = {}
        self.inventory: dict[str, Any] = {}
        self.inventory_at = 0.0


class ServerWatch:
    """Finds servers, follows their logs, reads their numbers and files, in daemon threads of its own.

    `emit(frame, is_event)` takes the frames. `options` are the probe's, see docs/architecture.md.
    """

    def __init__(self, options: dict[str, Any], emit: Emit) -> None:
        self._options = options
        self._emit = emit
        self._hub = LogHub(options, emit)
        self._finder = Finder(bool(options.get("sudo", False)))
        self._lock = threading.Lock()
        self._gpu_pids: dict[int, list[int]] = {}
        self._watched: dict[tuple[int, int], _Watched] = {}
        self._health: set[str] = set()
        self._told: set[str] = set()
        self._unseen: dict[int, float] = {}
        self._named_at = 0.0
        self._ports: set[int] = set()
        self._retune: tuple[str, dict[str, list[Any]]] | None = None
        self._searched = False
        self._ever = False
        self._expect_until = time.monotonic() + FIRST_S
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look_on, name="servers", daemon=True)

    def start(self) -> None:
        """Follow the configured logs and begin to look for servers."""
        for spec in self._options.get("logs") or ():
            if isinstance(spec, dict):
                self._hub.configure(spec)
        self._hub.start_new()
        if not self._options.get("discover", True):
            self._say_searched("looking for servers is switched off", processes=False)
            return
        self._thread.start()

    def gpu_pids(self, pids: dict[int, list[int]]) -> None:
        """GPU index -> processes on it, as NVML lists them."""
        with self._lock:
            self._named_at = time.monotonic()
            if pids != self._gpu_pids:
                self._gpu_pids = {gpu: list(numbers) for gpu, numbers in pids.items()}
                self._wake.set()

    def control(self, message: dict[str, Any]) -> None:
        """Control lines that concern servers: `health`."""
        name = message.get("server")
        if message.get("cmd") == "health" and isinstance(name, str):
            with self._lock:
                if message.get("on"):
                    self._health.add(name)
                else:
                    self._health.discard(name)
                for entry in self._watched.values():
                    entry.poke.set()
            self._wake.set()

    def stop(self) -> None:
        """End every thread and follower."""
        self._stop.set()
        self._wake.set()
        with self._lock:
            for entry in self._watched.values():
                entry.poke.set()
        self._hub.stop()
        if self._thread.is_alive():
            self._thread.join(2.0)

    # -- loops --------------------------------------------------------------------------------

    def _guard(self, work: Callable[[], None]) -> None:
        """Run one round; a strange process must not end the watching of the others."""
        try:
            work()
        except Exception as error:
            message = "looking at servers failed: %s: %s" % (type(error).__name__, error)
            self._tell("probe_error", message, "error")

    def _look_on(self) -> None:
        while not self._stop.is_set():
            self._guard(self._look)
            end = time.monotonic() + self._pause()
            while time.monotonic() < end and not self._stop.is_set():
                if self._wake.wait(min(FIND_SOON_S, max(end - time.monotonic(), 0.01))) or self._one_ended():
                    break
            self._wake.clear()

    def _one_ended(self) -> bool:
        with self._lock:
            keys = list(self._watched)
        return any(procfs.start_of(pid) != ticks for pid, ticks in keys)

    def _pause(self) -> float:
        with self._lock:
            starting = any(not entry.found.listens for entry in self._watched.values()) or bool(self._health)
        if time.monotonic() < self._expect_until:
            return FIND_SOON_S
        return FIND_STARTING_S if starting else FIND_EVERY_S

    def _ask_on(self, entry: _Watched) -> None:
        """Read one server's numbers for as long as it lives."""
        while not self._stop.is_set() and not entry.over.is_set():
            first = entry.numbers.metrics is None
            self._guard(lambda: self._ask(entry))
            if entry.name in self._health:
                wait = HEALTH_EVERY_S
            elif first:
                wait = NUMBERS_SOON_S
            else:
                wait = NUMBERS_EVERY_S
            entry.poke.wait(wait)
            entry.poke.clear()

    # -- finding ------------------------------------------------------------------------------

    def _look(self) -> None:
        """One pass over /proc: new servers, changed ones, those that went."""
        with self._lock:
            gpu_pids = dict(self._gpu_pids)
        found = self._finder.find(gpu_pids)
        with self._lock:
            names = name_servers(found, {key: entry.name for key, entry in self._watched.items()})
            gone = [entry for key, entry in self._watched.items() if key not in names]
            for server in found:
                entry = self._watched.get(server.key)
                if entry is None:
                    self._watched[server.key] = _Watched(server, names[server.key])
                else:
                    entry.found = server
            for entry in gone:
                del self._watched[entry.found.key]
            entries = list(self._watched.values())
        for entry in gone:
            entry.over.set()
            entry.poke.set()
            self._expect_until = time.monotonic() + RESTART_S
            self._emit({**self._frame(entry), "t": time.time(), "gone": True}, True)
        for entry in entries:
            self._follow(entry)
            self._say(entry)
        if not self._searched:
            self._hub.read_on()
        self._hub.start_new()
        for entry in entries:
            if entry.thread is None:
                entry.thread = threading.Thread(target=self._ask_on, args=(entry,), name=entry.name, daemon=True)
                entry.thread.start()
            self._take_inventory(entry)
        self._say_retune(found)
        self._say_what_is_hidden(found)

    def _say_retune(self, found: list[Found]) -> None:
        """While a retune job works on a server it may be down, starting or slow, and that is the job's doing."""
        self._ports |= {server.port for server in found if server.port is not None}
        work = retunes.at_work(self._ports)
        if work == self._retune:
            return
        self._retune = work
        message, detail = work or ("no retune job works here any longer", {})
        self._emit(
            {"type": "status", "t": time.time(), "code": "retune_job", "message": message, "detail": detail,
             "level": "warning" if work else "info"},
            True,
        )  # fmt: skip

    def _follow(self, entry: _Watched) -> None:
        """Follow a server's log where it can be; a server that merely keeps a renamed file open is followed on."""
        if entry.name in self._hub.configured:
            entry.source = entry.name
            return
        follow = entry.found.place.follow
        if follow is None:
            return
        entry.source = self._hub.add(follow)
        also = follow.get("also")
        if also:
            self._hub.add({"kind": "file", "target": also[0], "holder": (entry.found.pid, also[1])})

    def _say(self, entry: _Watched, always: bool = False) -> None:
        with entry.lock:
            frame = self._frame(entry)
            if always or frame != entry.said:
                entry.said = frame
                self._emit({**frame, "t": time.time()}, True)

    def _frame(self, entry: _Watched) -> dict[str, Any]:
        found, numbers = entry.found, entry.numbers
        args = {**found.args, **numbers.settings}
        versions = dict(found.packages.versions)
        if numbers.version:
            versions[found.engine] = numbers.version
        frame: dict[str, Any] = {
            "type": "server",
            "t": 0.0,
            "name": entry.name,
            "pid": found.pid,
            "engine": found.engine,
            "versions": versions,
            "argv": found.argv,
            "args": args,
            "env": found.env,
            "cwd": found.cwd,
            "user": found.user,
            "port": found.port,
            "started": found.started,
            "manager": found.manager,
            "log": found.place.place,
            "source": entry.source,
            "gpus": list(found.gpus),
            "metrics": numbers.metrics,
            "healthy": numbers.healthy,
            "notes": found.notes + found.place.notes + ([numbers.note] if numbers.note else []),
        }
        return {key: value for key, value in frame.items() if value not in (None, [], {})}

    def _say_what_is_hidden(self, found: list[Found]) -> None:
        with self._lock:
            gpu_pids = {pid for pids in self._gpu_pids.values() for pid in pids}
        self._ever = self._ever or bool(found)
        self._say_searched("this host was searched for servers", processes=True)
        if not self._ever and not self._options.get("logs"):
            self._tell("no_server", "no SGLang, vLLM or TensorRT-LLM server process was found on this host", "info")
        if os.getpid() != 1 and procfs.stat(1) is None:
            self._tell("not_permitted", "/proc hides other users' processes (hidepid): their servers are not seen")
        if self._stay_unseen({pid for pid in gpu_pids if procfs.stat(pid) is None}, gpu_pids):
            message = "the GPU driver names processes that are not in this /proc (another container or hidden)"
            self._tell("not_permitted", message)

    def _stay_unseen(self, unseen: set[int], named: set[int]) -> bool:
        """Whether all processes that the driver names are hidden, one of them in a list read since it was missed."""
        now = time.monotonic()
        self._unseen = {pid: self._unseen.get(pid, now) for pid in unseen}
        return bool(unseen) and unseen == named and self._named_at - min(self._unseen.values()) >= HIDDEN_AFTER_S

    def _say_searched(self, message: str, processes: bool) -> None:
        """Once, after the first pass: whether processes were looked through, and which log files are read besides
        those of the servers that were named."""
        if not self._searched:
            self._searched = True
            files = [log for log in self._options.get("logs") or () if log.get("kind") == "file"]
            detail = {"logs": [str(log.get("source") or log.get("target")) for log in files], "processes": processes}
            self._emit(
                {"type": "status", "t": time.time(), "code": "searched", "message": message, "level": "info",
                 "detail": detail},
                False,
            )  # fmt: skip

    def _tell(self, code: str, message: str, level: str = "warning") -> None:
        """A status, once."""
        if message not in self._told:
            self._told.add(message)
            self._emit(
                {"type": "status", "t": time.time(), "code": code, "message": message, "level": level}, level != "info"
            )

    # -- numbers and files --------------------------------------------------------------------

    def _ask(self, entry: _Watched) -> None:
        with self._lock:
            health = entry.name in self._health
        before = entry.numbers.metrics
        if not health:
            entry.numbers.healthy = None
        entry.numbers.read(entry.found, health)
        if not entry.over.is_set() and not self._stop.is_set():
            self._say(entry, always=entry.numbers.metrics is not None and entry.numbers.metrics is not before)

    def _take_inventory(self, entry: _Watched) -> None:
        now = time.monotonic()
        if entry.inventory_at and now - entry.inventory_at < INVENTORY_EVERY_S:
            return
        entry.inventory_at = now
        files, notes = take_inventory(entry.found, {**entry.found.args, **entry.numbers.settings})
        frame = {"type": "inventory", "server": entry.name, "files": files, "notes": notes}
        if frame != entry.inventory:
            entry.inventory = frame
            self._emit({**frame, "t": time.time()}, True)
