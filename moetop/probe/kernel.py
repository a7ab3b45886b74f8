"""Xid errors and lost GPUs: NVML's event set, and the kernel log where this user may read it.

Emits `log` frames with source `kernel`. What both sources report is said once, in the kernel's words.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import select
import shutil
import threading
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from .child import Child
from .nvml import Nvml
from .redact import redact_text

Emit = Callable[[Dict[str, Any], bool], Any]

KMSG = "/dev/kmsg"
MAX_HISTORY = 200
MAX_LINE = 4096
WAIT_MS = 10_000
"""An Xid ends the wait at once; without one the thread wakes this seldom."""
QUIET_MS = 500
HOLD_S = 2.0
"""How long an event of NVML waits for the kernel's own, fuller line."""
EVENT_XID = 0x8  # nvmlEventTypeXidCriticalError
GIVE_UP_AFTER = 5

_WANTED = re.compile(
    r"NVRM: (?!loading )|\bS?Xid \(|fallen off the bus|GPU lost from the bus|Out of memory: Killed process|oom-kill:",
    re.IGNORECASE,
)
_XID = re.compile(r"Xid \(PCI:([0-9A-Fa-f:.]+)\): (\d+)")
_SHORT_UNIX = re.compile(r"(\d{9,11}\.\d+) \S+ kernel: (.*)")
_JOURNAL = ("journalctl", "-k", "-f", "-n", "5000", "-o", "short-unix", "--no-pager")
_DENIED = re.compile(r"not seeing messages|insufficient permissions|no journal files|not permitted|password is", re.I)


def kmsg_record(record: str, boot_epoch: float) -> Optional[Tuple[float, str]]:
    """(epoch seconds, text) of a record of /dev/kmsg: `prio,seq,microseconds,flags;text`."""
    head, semicolon, text = record.partition(";")
    parts = head.split(",")
    if not semicolon or len(parts) < 3:
        return None
    try:
        moment = boot_epoch + int(parts[2]) / 1e6
    except ValueError:
        return None
    return moment, text.split("\n", 1)[0]


class KernelWatch:
    """Follows both sources in threads of its own."""

    def __init__(self, emit: Emit, sudo: bool = False, history: bool = True) -> None:
        self._emit = emit
        self._sudo = sudo
        self._history = history
        self._lock = threading.Lock()
        self._seen: Dict[Tuple[str, int], float] = {}
        self._log_readable = False
        self._events_on = False
        self._started = time.time()
        self._boot_epoch = time.time() - time.monotonic()

    def start(self, nvml: Optional[Nvml], handles: Dict[int, Any], addresses: Dict[int, str]) -> None:
        """Begin; `addresses` are the PCI bus ids by GPU index."""
        events = self._open_events(nvml, handles) if nvml is not None else None
        if events is not None and nvml is not None:
            self._events_on = True
            names = {_pointer(handle): addresses.get(index, "") for index, handle in handles.items()}
            threading.Thread(target=self._wait_events, args=(nvml, events, names), name="xid", daemon=True).start()
        threading.Thread(target=self._follow, name="kernel-log", daemon=True).start()

    # ── NVML's event set ─────────────────────────────────────────────────────────────────────────

    @staticmethod
    def _open_events(nvml: Nvml, handles: Dict[int, Any]) -> Any:
        events, reason = nvml.call("nvmlEventSetCreate")
        if reason is not None:
            return None
        registered = 0
        for handle in handles.values():
            supported, reason = nvml.call("nvmlDeviceGetSupportedEventTypes", handle)
            if reason is None and supported & EVENT_XID:
                _, reason = nvml.call("nvmlDeviceRegisterEvents", handle, EVENT_XID, events)
                registered += reason is None
        return events if registered else None

    def _wait_events(self, nvml: Nvml, events: Any, names: "Dict[Optional[int], str]") -> None:
        failures = 0
        while failures < GIVE_UP_AFTER:
            data, reason = nvml.first(("nvmlEventSetWait_v2", "nvmlEventSetWait"), events, WAIT_MS)
            if reason == "timeout":
                failures = 0
                continue
            if reason is not None:
                failures += 1
                time.sleep(1.0)
                continue
            failures = 0
            if data.eventType == EVENT_XID:
                self._report_event(names.get(_pointer(data.device), ""), int(data.eventData))
        self._events_on = False
        self._say("xid_unavailable", "NVML reports no more Xid errors: %s" % reason)

    def _report_event(self, address: str, xid: int) -> None:
        place = kernel_address(address)
        if self._log_readable:
            time.sleep(HOLD_S)
            with self._lock:
                if time.time() - self._seen.get((place, xid), 0.0) < HOLD_S * 3:
                    return
        self._send(time.time(), "NVRM: Xid (PCI:%s): %d, reported by NVML" % (place or "unknown", xid), False)

    # ── the kernel log ───────────────────────────────────────────────────────────────────────────

    def _follow(self) -> None:
        for lines in (self._kmsg, self._journal, self._sudo_kmsg):
            batch: List[Tuple[float, str]] = []
            for moment, text in lines():
                self._log_readable = True
                if not text:
                    self._flush(batch)
                if not _WANTED.search(text):
                    continue
                old = moment < self._started - 1.0
                if old:
                    batch.append((moment, text))
                    del batch[:-MAX_HISTORY]
                    continue
                self._flush(batch)
                self._note_xid(text)
                self._send(moment, text, False)
            self._flush(batch)
            if self._log_readable:
                self._log_readable = False
                return
        if not self._events_on:
            self._say(
                "xid_unavailable",
                "Xid errors cannot be seen: NVML has no events here and the kernel log may not be read "
                "(kernel.dmesg_restrict; membership of group adm or systemd-journal helps)",
            )
        else:
            self._say("not_permitted", "the kernel log may not be read; Xid errors come from NVML, without history")

    def _flush(self, batch: List[Tuple[float, str]]) -> None:
        if self._history:
            for moment, text in batch:
                self._send(moment, text, True)
        del batch[:]

    def _kmsg(self) -> Iterator[Tuple[float, str]]:
        try:
            fd = os.open(KMSG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return
        poller = select.poll()
        poller.register(fd, select.POLLIN)
        try:
            while True:
                try:
                    raw = os.read(fd, 8192)
                except BlockingIOError:
                    yield time.time(), ""  # caught up: history ends here
                    poller.poll()
                    continue
                except OSError as error:
                    if error.errno == errno.EPIPE:  # records were overwritten before we read them
                        continue
                    return
                if not raw:
                    return
                record = kmsg_record(raw.decode("utf-8", "replace"), self._boot_epoch)
                if record is not None:
                    yield record
        finally:
            os.close(fd)

    def _journal(self) -> Iterator[Tuple[float, str]]:
        if shutil.which("journalctl") is None:
            return
        readable = False
        for line in _lines_of(Child(_JOURNAL)):
            if _DENIED.search(line):
                return
            match = _SHORT_UNIX.match(line)
            if match:
                yield float(match.group(1)), match.group(2)
            elif not line and readable:
                yield time.time(), ""
            readable = readable or match is not None

    def _sudo_kmsg(self) -> Iterator[Tuple[float, str]]:
        if not self._sudo or shutil.which("sudo") is None:
            return
        for line in _lines_of(Child(("cat", KMSG), sudo=True)):
            record = kmsg_record(line, self._boot_epoch)
            if record is not None:
                yield record
            elif not line:
                yield time.time(), ""
            elif _DENIED.search(line):
                return

    # ── frames ───────────────────────────────────────────────────────────────────────────────────

    def _note_xid(self, text: str) -> None:
        match = _XID.search(text)
        if match:
            with self._lock:
                self._seen[(kernel_address(match.group(1)), int(match.group(2)))] = time.time()

    def _send(self, moment: float, text: str, history: bool) -> None:
        frame: Dict[str, Any] = {
            "type": "log",
            "t": round(moment, 3),
            "source": "kernel",
            "line": redact_text(text[:MAX_LINE]),
            "offset": None,
        }
        if history:
            frame["history"] = True
        self._emit(frame, True)

    def _say(self, code: str, message: str) -> None:
        frame = {"type": "status", "t": time.time(), "code": code, "level": "info", "message": message}
        self._emit(frame, True)


def kernel_address(address: str) -> str:
    """A PCI address as the driver's kernel lines print it: `0000:06:00`."""
    text = address.lower().split(".")[0]
    parts = text.split(":")
    if len(parts) == 3:
        text = ":".join([parts[0][-4:].rjust(4, "0"), parts[1], parts[2]])
    return text


def _pointer(handle: Any) -> Optional[int]:
    return ctypes.cast(handle, ctypes.c_void_p).value


def _lines_of(child: Child) -> Iterator[str]:
    """Lines as they come; one empty line when the output first falls quiet, so that history can end."""
    poller = select.poll()
    descriptor = child.stdout.fileno()
    poller.register(descriptor, select.POLLIN)
    rest = b""
    quiet_ms: Optional[int] = QUIET_MS
    try:
        while True:
            if not poller.poll(quiet_ms):
                quiet_ms = None
                yield ""
                continue
            data = os.read(descriptor, 1 << 16)
            if not data:
                return
            *lines, rest = (rest + data).split(b"\n")
            rest = rest[: MAX_LINE * 2]
            for raw in lines:
                yield raw[: MAX_LINE * 2].decode("utf-8", "replace")
    finally:
        child.stop()
