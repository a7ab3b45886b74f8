"""One supervisor thread a host: open, decode, back off, reconnect. Judges nothing, shows nothing."""

from __future__ import annotations

import json
import logging
import random
import threading
import time
from collections import deque
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from moetop.errors import LinkError, MoetopError
from moetop.heartbeat import Heartbeat, Pulse
from moetop.model import AnyFrame, Gpus, Hello, Link, LinkPhase, Log, Status
from moetop.recording import Malformed, Unknown, clean
from moetop.transport.base import Asking, ProbeOptions, Transport

BACKOFF_FIRST_S = 1.0
BACKOFF_LAST_S = 60.0
RENEW_S = 600.0
"""How soon a probe whose GPM values are wrong is replaced again: where the next one's are as well, it cures nothing."""

HEALTHY_S = 30.0
"""A session that lived this long starts the back-off anew."""

MALFORMED_WINDOW_S = 30.0
MALFORMED_MANY = 20
"""So many lines that are no frames within the window, and the host is degraded."""

STOP_JOIN_S = 1.8
MAX_RESUME_SOURCES = 256
MAX_SOURCE_CHARS = 4096
MAX_PLACE_KEYS = 16
MAX_PLACE_CHARS = 1024
"""Bounds of what is remembered of a host's logs: it comes from the host."""

_log = logging.getLogger(__name__)
logging.getLogger("moetop").addHandler(logging.NullHandler())  # else faults of ours reach the terminal


def _small(place: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers and short words of a place in a log; nothing a host could grow without end."""
    kept = {
        key: value
        for key, value in place.items()
        if isinstance(value, int) or (isinstance(value, str) and len(value) <= MAX_PLACE_CHARS)
    }
    return kept if len(kept) <= MAX_PLACE_KEYS else {}


class Sink(Protocol):
    """Takes what the supervisors hear; called from their threads, must return quickly."""

    def frame(self, host: str, frame: AnyFrame, raw: bytes) -> None:
        """One frame of `host`, and its line as it may be recorded."""

    def link(self, host: str, link: Link) -> None:
        """The connection to `host` changed."""


class Supervisor:
    """Keeps one host's probe running and passes its frames on, until stopped."""

    def __init__(self, transport: Transport, sink: Sink, options: ProbeOptions) -> None:
        self.transport = transport
        self.name = transport.name
        self.session: Pulse | None = None
        self._sink = sink
        self._options = options
        self._stop = threading.Event()
        self._again = threading.Event()
        self._attempt = 0
        self._link = Link()
        self._resume: dict[str, dict[str, Any]] = {}
        self._malformed: deque[float] = deque(maxlen=MALFORMED_MANY)
        self._garbled = False
        self._said_bye = False
        self._renewed: float | None = None
        self._renew = False
        self.thread = threading.Thread(target=self._run, name=f"moetop-{self.name}", daemon=True)

    # ── from other threads ───────────────────────────────────────────────────────────────────────

    def stop(self) -> None:
        """Begin to end: no more is passed on. Returns at once."""
        self._stop.set()
        self._again.set()
        self.transport.close()
        session = self.session
        if session is not None:
            session.channel.close()

    def retry(self) -> bool:
        """Make the next try now; somebody is there to answer what it asks. False where none is waited for."""
        if self._link.next_try_t is None:
            return False
        if isinstance(self.transport, Asking):
            self.transport.ask_again()
        self._again.set()
        return True

    def set_interval(self, interval_s: float) -> None:
        """Sample so often from now on and after reconnects. Raises LinkError when the probe cannot be told."""
        self._options = replace(self._options, interval_s=interval_s)
        session = self.session
        if session is not None:
            session.set_interval(interval_s)
            session.channel.send(json.dumps({"cmd": "interval", "interval_s": interval_s}).encode())

    def send(self, line: bytes) -> None:
        """Send a control line. Raises LinkError when no probe is running."""
        session = self.session
        if session is None:
            raise LinkError(f"{self.name} is not connected", code="closed")
        session.channel.send(line)

    # ── the supervisor's own thread ──────────────────────────────────────────────────────────────

    def _run(self) -> None:
        while not self._stop.is_set():
            self._say(LinkPhase.CONNECTING, carry=self._link.is_lost)
            begun = time.monotonic()
            try:
                finished = self._watch_once()
            except MoetopError as error:
                fault = error if isinstance(error, LinkError) else LinkError(str(error), error.advice, retry=False)
            except Exception as error:  # a fault of ours must not end the watching of this host
                _log.exception("supervisor of %s", self.name)
                fault = LinkError(f"unexpected fault: {type(error).__name__}: {error}", code="fault")
            else:
                if self._stop.is_set():
                    return
                if finished:
                    self._say(LinkPhase.FINISHED)
                    return
                if self._renew:
                    continue
                fault = LinkError("the probe ended by itself", code="probe_ended")
            if self._stop.is_set():
                return
            self._rest(fault, time.monotonic() - begun)

    def _watch_once(self) -> bool:
        """One session from opening to its end; whether all there is has been told."""
        channel = self.transport.open(self._options.wire(self._resume))
        session = Pulse(channel, self._options.interval_s, watched=not self.transport.finite)
        self._said_bye = self._renew = False
        self.session = session
        lines = channel.lines()
        try:
            if self._stop.is_set():
                return False
            while True:
                session.waiting(True)
                raw = next(lines, None)
                session.waiting(False)
                if raw is None or self._stop.is_set():
                    break
                session.lines += 1
                self._take(raw)
                if self._renew:
                    _log.info("%s: a new probe is started, since the GPM values of this one are wrong", self.name)
                    self._say(LinkPhase.CONNECTING)  # before the channel closes, which takes its time
                    return False
            if session.silent and not self._stop.is_set():
                raise LinkError(f"nothing heard for {session.patience_s:.0f} s", code="silent")
            sampled = self._said_bye or session.lines > 0
            return self.transport.finite or (self._options.once and sampled)
        finally:
            self.session = None
            channel.close()
            if isinstance(lines, Generator):
                lines.close()  # releases what it holds now, not when it is collected

    def _take(self, raw: bytes) -> None:
        """One line of the host: decode it, note what matters to the link, pass it on."""
        frame, line = clean(raw)
        if isinstance(frame, Malformed):
            self._note_malformed(frame)
            return
        if self._garbled and (not self._malformed or time.monotonic() - self._malformed[-1] > MALFORMED_WINDOW_S):
            self._garbled = False
            self._say(LinkPhase.WATCHING)
        if isinstance(frame, Unknown):
            return
        self._note(frame)
        self._sink.frame(self.name, frame, line)

    def _note(self, frame: AnyFrame) -> None:
        """What a frame says of the link and of where to go on reading."""
        if isinstance(frame, Status):
            self._said_bye |= frame.code == "bye"
            if frame.code not in ("log_position", "scan_progress"):
                _log.debug("%s says %s: %s", self.name, frame.code, frame.message)
            if frame.code == "gpm_wrong" and frame.level != "info":
                self._ask_renewal()
            if frame.code == "log_position":
                self._remember(frame.source, _small(frame.detail))
            if frame.fatal:
                self._say(LinkPhase.DEGRADED, LinkError(frame.message, code=frame.code))
            elif self._link.phase is LinkPhase.CONNECTING:
                self._say(LinkPhase.WATCHING)
            return
        if isinstance(frame, Log) and frame.offset is not None:
            self._remember(frame.source, _small({**self._place_of(frame), "offset": frame.offset}))
        data = isinstance(frame, Gpus) and any(gpu.error is None for gpu in frame.gpus)
        fatal = self._link.phase is LinkPhase.DEGRADED and not self._garbled
        if (data and fatal) or (self._link.phase is LinkPhase.CONNECTING and isinstance(frame, (Gpus, Hello, Log))):
            self._say(LinkPhase.WATCHING)

    def _ask_renewal(self) -> None:
        """Replace the probe where that takes no new login, unless it was done a while ago."""
        now = time.monotonic()
        lately = self._renewed is not None and now - self._renewed < RENEW_S
        if self.transport.renews and not (self._options.once or lately):
            self._renewed, self._renew = now, True
            self._garbled = False
            self._malformed.clear()

    def _place_of(self, log: Log) -> dict[str, Any]:
        """What marks the file being read, unless the offset went back: then it is another file."""
        place = self._resume.get(log.source, {})
        before = place.get("offset")
        went_back = isinstance(before, int) and isinstance(log.offset, int) and log.offset < before
        return {} if went_back else place

    def _remember(self, source: str | None, place: dict[str, Any]) -> None:
        """Keep where the reading of `source` goes on after a reconnect."""
        known = source in self._resume or len(self._resume) < MAX_RESUME_SOURCES
        if source is not None and known and len(source) <= MAX_SOURCE_CHARS:
            self._resume[source] = place

    def _note_malformed(self, what: Malformed) -> None:
        """Many lines that are no frames make the host degraded, with the newest reason."""
        now = time.monotonic()
        self._malformed.append(now)
        many = len(self._malformed) == MALFORMED_MANY and now - self._malformed[0] <= MALFORMED_WINDOW_S
        if many and not self._garbled:
            self._garbled = True
            reason = f"the host sends lines that are no frames ({what.reason})"
            self._say(LinkPhase.DEGRADED, LinkError(reason, "see what its login shell prints", code="garbage"))

    def _rest(self, fault: LinkError, lived_s: float) -> None:
        """Say what happened and wait for the next try."""
        if lived_s >= HEALTHY_S:
            self._attempt = 0
        base = BACKOFF_LAST_S if not fault.retry else min(BACKOFF_LAST_S, BACKOFF_FIRST_S * 2.0**self._attempt)
        delay = base * random.uniform(0.5, 1.0)
        self._attempt = min(self._attempt + 1, 30)
        phase = LinkPhase.DEGRADED if fault.code == "garbage" else LinkPhase.LOST
        self._say(phase, fault, next_try_t=time.time() + delay)
        self._garbled = False
        self._malformed.clear()
        self._again.wait(delay)
        if not self._stop.is_set():
            self._again.clear()

    def _say(
        self, phase: LinkPhase, fault: LinkError | None = None, *, next_try_t: float | None = None, carry: bool = False
    ) -> None:
        """Tell the sink about a new state; `carry` keeps the last reason while trying again."""
        old = self._link
        reason, advice, code = old.reason, old.advice, old.code
        if fault is not None or not carry:
            reason = str(fault) if fault is not None else None
            advice = fault.advice if fault is not None else None
            code = fault.code if fault is not None else None
        down = (LinkPhase.LOST, LinkPhase.CONNECTING)
        since = old.since_t if old.phase == phase or (phase in down and old.phase in down) else None
        link = Link(
            phase=phase,
            since_t=since if since is not None else time.time(),
            reason=reason,
            advice=advice,
            code=code,
            next_try_t=next_try_t,
            attempt=self._attempt,
        )
        if link != old and not self._stop.is_set():
            if (phase, code, reason) != (old.phase, old.code, old.reason):
                _log.info("%s is %s%s", self.name, phase, f": {reason}" if reason else "")
            self._link = link
            self._sink.link(self.name, link)


class Fleet:
    """The supervisors of all hosts and the one heartbeat that pings them and notices silence.

    `options` hold for every host but those named in `per_host`.
    """

    def __init__(
        self,
        transports: Sequence[Transport],
        sink: Sink,
        options: ProbeOptions,
        *,
        per_host: Mapping[str, ProbeOptions] | None = None,
    ) -> None:
        self._sink = sink
        self._options = options
        self._per_host = dict(per_host or {})
        self._lock = threading.Lock()
        self._hosts: dict[str, Supervisor] = {}
        self._stopping = threading.Event()
        self._started = False
        self._heartbeat = Heartbeat(self._pulses)
        for transport in transports:
            self._adopt(transport)

    def start(self) -> None:
        """Start every supervisor; returns at once."""
        with self._lock:
            self._started = True
            hosts = list(self._hosts.values())
        self._heartbeat.start()
        for host in hosts:
            host.thread.start()

    def stop(self) -> None:
        """Close every channel and join the threads; under two seconds, whatever the hosts do."""
        self._stopping.set()
        with self._lock:
            hosts = list(self._hosts.values())
            self._hosts.clear()
            started = self._started
        self._end(hosts, started)
        if started:
            self._heartbeat.stop()

    def add(self, transport: Transport, options: ProbeOptions | None = None) -> None:
        """Watch one more host. Raises MoetopError where its name is taken."""
        if options is not None:
            self._per_host[transport.name] = options
        supervisor = self._adopt(transport)
        if self._started and not self._stopping.is_set():
            supervisor.thread.start()

    def remove(self, name: str) -> None:
        """Stop watching a host; unknown names are none of its business."""
        with self._lock:
            supervisor = self._hosts.pop(name, None)
            self._per_host.pop(name, None)
        if supervisor is not None:
            self._end([supervisor], self._started)

    def send(self, host: str, line: bytes) -> None:
        """Send a control line to a host's probe. Raises LinkError."""
        self._host(host).send(line)

    def retry(self, host: str) -> bool:
        """Try to reach a lost host now, asking again what was left unanswered or answered wrongly. False where it is
        not lost or a try is being made already. Raises LinkError where it is not watched."""
        return self._host(host).retry()

    def transport(self, host: str) -> Transport:
        """The transport of a watched host, to run commands over. Raises LinkError."""
        return self._host(host).transport

    def set_interval(self, interval_s: float) -> None:
        """Change how often every probe samples, now and after reconnects."""
        with self._lock:
            hosts = list(self._hosts.values())
        for host in hosts:
            try:
                host.set_interval(interval_s)
            except LinkError as error:
                _log.debug("%s learns of its interval when it reconnects: %s", host.name, error)

    def _host(self, name: str) -> Supervisor:
        with self._lock:
            supervisor = self._hosts.get(name)
        if supervisor is None:
            raise LinkError(f"{name} is not watched", code="closed", retry=False)
        return supervisor

    def _adopt(self, transport: Transport) -> Supervisor:
        supervisor = Supervisor(transport, self._sink, self._per_host.get(transport.name, self._options))
        with self._lock:
            if transport.name in self._hosts:
                raise MoetopError(f"{transport.name} is watched already")
            self._hosts[transport.name] = supervisor
        return supervisor

    @staticmethod
    def _end(hosts: Iterable[Supervisor], started: bool) -> None:
        hosts = list(hosts)
        for host in hosts:
            host.stop()
        deadline = time.monotonic() + STOP_JOIN_S
        for host in hosts:
            if started and host.thread.is_alive() and host.thread is not threading.current_thread():
                host.thread.join(max(0.0, deadline - time.monotonic()))

    def _pulses(self) -> list[Pulse]:
        with self._lock:
            sessions = [host.session for host in self._hosts.values()]
        return [session for session in sessions if session is not None]
