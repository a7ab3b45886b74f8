"""Puts a mode together: configuration -> transports, fleet, watch state, recorder. Judges and shows nothing."""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from moetop.asking import person
from moetop.config import Config, HostSpec, Overrides, merge
from moetop.config import load_config as read_config_file
from moetop.errors import ExitCode, UsageError
from moetop.fleet import Fleet
from moetop.model import EPOCH_FLOOR_S, RECORDING, LinkPhase
from moetop.recording import Recorder
from moetop.text import plain
from moetop.transport.base import HostTarget, ProbeOptions, Transport
from moetop.watch import Watch

if TYPE_CHECKING:
    from moetop.demo.retune import RecordedRetune
    from moetop.player import Player
    from moetop.reload import Reloader

SCREEN_WINDOW_S = 10.0
"""Window of a live screen (judgement: long enough to be calm, short enough to follow a restart)."""

SNAPSHOT_WINDOW_S = 2.0
"""Window of a snapshot of a live host."""

LOCAL_NAME = "localhost"

DEMO_NOTE = "glm5-sm120 is scripted after a real case; h200-lab is a real H200's recording: r plays its retune"


Kind = Literal["live", "demo", "recording", "pasted"]


@dataclass
class Session:
    """A fleet and what is known of it. `flat_out` sources end by themselves and are read as fast as they come.

    `kind` is what the source is: live hosts, the demo, a recording, or pasted text. `faults` are sentences on a
    recording that is damaged; its hosts' notes have them too. `retune` is what the demo plays instead of a job.
    """

    watch: Watch
    fleet: Fleet
    flat_out: bool = False
    kind: Kind = "live"
    recorder: Recorder | None = None
    notes: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    transports: Sequence[Transport] = field(default_factory=tuple)
    reloader: Reloader | None = None
    player: Player | None = None
    retune: RecordedRetune | None = None

    @contextmanager
    def running(self, say: Callable[[str], None] | None = None, *, begun: bool = True) -> Iterator[None]:
        """Start the fleet (with `begun` False only `begin` does); on leaving, whatever the reason, stop it and close
        the recorder.

        SIGHUP reads the configuration anew where there is one; `say` takes the sentence on that.
        """
        heeding = nullcontext() if self.reloader is None else self.reloader.heeding_hangup(say)
        with heeding, self._started(begun):
            yield

    def begin(self) -> None:
        """Start the fleet. A screen does once it stands: what connections load would hold up its first paint."""
        if not gc.isenabled():  # off since the start of the program; what is loaded by now stays
            gc.freeze()
            gc.enable()
        self.fleet.start()

    @contextmanager
    def _started(self, begun: bool) -> Iterator[None]:
        if begun:
            self.begin()
        try:
            yield
        finally:
            self.fleet.stop()
            if self.recorder is not None:
                self.recorder.close()

    def reconnect(self, host: str) -> str:
        """Try a lost host now, not when its pause is over; a passphrase or password that was left out or wrong is
        asked for again. A sentence on it. Raises MoetopError where there is no such host or no connection to make."""
        if self.kind != "live":
            raise UsageError("there is no connection to make: the hosts are read from a file or made up")
        shown = plain(host, 80)
        if self.fleet.retry(host):
            return f"{shown}: trying again now"
        trying = self.watch.link_of(host).phase is LinkPhase.CONNECTING
        return f"{shown}: being tried already" if trying else f"{shown}: connected already"

    def taken_at(self) -> float | None:
        """Epoch seconds of a snapshot taken now: of a recording its newest sample's, None where its times are no
        epoch seconds and for pasted text, whose times have no zone."""
        if self.kind == "pasted":
            return None
        if self.kind == "recording":
            times = [t for name in self.watch.names() if (t := self.watch.last_t(name)) is not None]
            newest = max(times, default=0.0)
            return newest if newest >= EPOCH_FLOOR_S else None
        return time.time()


def load_config(args: argparse.Namespace) -> Config:
    """The configuration file, if any, under the command line. Raises UsageError."""
    return merge(
        read_config_file(args.config),
        Overrides(
            hosts=tuple(args.host),
            window_s=args.window,
            interval_s=args.interval,
            theme=args.theme,
            readonly=args.readonly,
            accept_new_host_keys=args.accept_new_host_keys,
            log_path=args.log_path,
            record=args.record,
            debug=args.debug,
        ),
    )


def open_session(args: argparse.Namespace, config: Config, *, charts: bool = False) -> Session:
    """The session that the arguments ask for; nothing is connected yet. With `charts` series are kept even where no
    screen shows them. Raises UsageError."""
    for_snapshot = args.snapshot is not None
    window_s = config.window_s
    if window_s is None:
        window_s = SNAPSHOT_WINDOW_S if for_snapshot else SCREEN_WINDOW_S
    flat_out = for_snapshot and args.every is None
    shown = not for_snapshot and (args.record is None or sys.stdout.isatty())
    charts = charts or shown  # 2 MiB a GPU in six hours
    if args.log is not None or args.smi_log is not None or args.metrics is not None:
        from moetop.triage.offline import offline_transport

        say = _tell if for_snapshot and sys.stderr is not None and sys.stderr.isatty() else None
        transport = offline_transport(
            log=args.log, smi_log=args.smi_log, metrics=args.metrics, window_s=window_s, say=say
        )
        return _assemble([transport], window_s, kind="pasted", flat_out=True, charts=charts and for_snapshot)
    if args.replay is not None:
        return _replay_session(args, window_s, flat_out=flat_out, charts=charts)
    if args.demo:
        from moetop.demo import transports
        from moetop.demo.retune import RecordedRetune

        retune = RecordedRetune()
        made = transports(retune, flat_out=flat_out)
        session = _assemble(made, window_s, kind="demo", flat_out=flat_out, charts=charts, record=config.record)
        session.notes, session.retune = (DEMO_NOTE,), retune
        return session
    read = (lambda: load_config(args)) if config.path is not None else None
    return live_session(config, window_s, once=flat_out and window_s == 0, charts=charts, read=read)


def _replay_session(args: argparse.Namespace, window_s: float, *, flat_out: bool, charts: bool) -> Session:
    from moetop.player import Player
    from moetop.transport.replay import open_recording

    if flat_out:
        replays = open_recording(args.replay, speed=0.0, from_s=args.from_s, to_s=args.to_s)
        session = _assemble(replays, window_s, kind="recording", flat_out=True, charts=charts)
        session.faults = replays[0].faults
        return session
    player = Player(args.replay, speed=args.speed or 1.0, from_s=args.from_s, to_s=args.to_s)
    session = _assemble(player.transports(), window_s, kind="recording", charts=charts)
    session.player = player
    session.faults = player.faults
    return session


def live_session(
    config: Config,
    window_s: float,
    *,
    once: bool = False,
    charts: bool = False,
    read: Callable[[], Config] | None = None,
) -> Session:
    """Every host of the configuration, or this machine where it names none. `read` reads the configuration anew."""
    hosts = config.hosts or (local_host(config),)
    options = {host.name: probe_options(config, host, once=once) for host in hosts}
    transports = [transport_for(config, host) for host in hosts]
    session = _assemble(transports, window_s, kind="live", charts=charts, record=config.record, per_host=options)
    for host in hosts:
        session.watch.expect(host.name, host.labels)
    if not once:
        from dataclasses import replace

        from moetop.reload import Reloader, Wiring

        wiring = Wiring(target_of, probe_options, transport_for)
        session.reloader = Reloader(replace(config, hosts=hosts), session.fleet, session.watch, wiring, read)
    return session


def local_host(config: Config) -> HostSpec:
    """This machine, with what the configuration says of `localhost` or of all hosts."""
    from dataclasses import replace

    return replace(config.host(LOCAL_NAME), transport="local")


def probe_options(config: Config, host: HostSpec, *, once: bool = False) -> ProbeOptions:
    """What the probe on `host` is asked to do."""
    if once:
        return ProbeOptions.single(config.interval_of(host), sudo=host.sudo)
    from moetop.engines.literals import scan_literals

    literals, noise = scan_literals()
    return ProbeOptions(
        interval_s=config.interval_of(host),
        literals=literals,
        noise_literals=noise,
        logs=tuple(host.probe_logs()),
        discover=host.discover,
        sudo=host.sudo,
    )


def target_of(config: Config, host: HostSpec) -> HostTarget:
    """Where `host` is and how it is reached. Raises UsageError."""
    return HostTarget(
        address=host.address,
        name=host.name,
        user=host.user,
        port=host.port,
        kind=host.transport,
        identity_file=host.identity_file,
        accept_new_host_keys=config.accept_new_host_keys,
        ask_password=host.ask_password,
        connect_timeout_s=host.connect_timeout_s,
        python=host.python,
    )


def transport_for(config: Config, host: HostSpec) -> Transport:
    """The way to `host`; connects to nothing yet."""
    from moetop.transport import open_transport

    return open_transport(target_of(config, host), person.ask)


def _tell(text: str) -> None:
    """A word to somebody who waits, outside the screen."""
    print(f"moetop: {text}", file=sys.stderr, flush=True)  # noqa: T201 - outside the screen


def _assemble(
    transports: Sequence[Transport],
    window_s: float,
    *,
    kind: Kind,
    flat_out: bool = False,
    charts: bool = False,
    record: str | None = None,
    per_host: dict[str, ProbeOptions] | None = None,
) -> Session:
    recorder = Recorder(record) if record is not None else None
    live = kind == "live"
    watch = Watch(
        window_s,
        live=live,
        source=RECORDING if kind == "recording" else None,
        keep_history=charts,
        on_frame=recorder.write if recorder is not None else None,
    )
    for transport in transports:
        watch.expect(transport.name)
    fleet = Fleet(transports, watch, ProbeOptions(), per_host=per_host)
    return Session(watch, fleet, flat_out=flat_out, kind=kind, recorder=recorder, transports=transports)


def run_retune(args: argparse.Namespace, config: Config) -> ExitCode:
    """`moetop --retune HOST`."""
    from moetop.retune.cli import run

    return run(args, config)


def run_app(args: argparse.Namespace, session: Session, config: Config) -> ExitCode:
    """The screen."""
    from moetop.screen import run_screen

    return run_screen(args, session, config)
