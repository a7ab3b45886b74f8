"""Builds what `--retune` needs from the command line: the host's transport and a running watch of it."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager

from moetop.config import Config
from moetop.errors import LinkError
from moetop.model import HostReport, HostStatus
from moetop.retune.cli import Call
from moetop.retune.types import overrides_for
from moetop.watch import Watch

FIRST_REPORT_S = 60.0
"""Connecting, finding servers and scanning their logs; a 1 GiB log takes seconds."""
SAMPLED_S = 3.0
"""Span of GPU samples wanted before a plan is made."""
QUIET_S = 8.0
"""Servers and files of which nothing new came for this long are taken as told (a log may never be scanned whole)."""


@contextmanager
def watching(args: argparse.Namespace, config: Config) -> Iterator[Call]:
    """A call with a live report of HOST. Raises LinkError where the host cannot be watched."""
    from dataclasses import replace

    from moetop import session as sessions

    spec = config.host(args.retune)
    if args.retune == sessions.LOCAL_NAME:
        spec = replace(spec, transport="local")
    args.snapshot, args.every = None, None
    session = sessions.open_session(args, replace(config, hosts=(spec,)))
    transport = sessions.transport_for(config, spec)
    name = spec.name

    def report() -> HostReport:
        return session.watch.report(name)

    try:
        with session.running():
            if not args.attach:
                _wait_for_report(session.watch, name)
            yield Call(
                transport=transport,
                host=name,
                report=report,
                server=args.server,
                dry_run=args.dry_run,
                yes=args.yes,
                attach=args.attach,
                readonly=config.readonly,
                as_json=args.format == "json",
                format=args.format,
                overrides=lambda server: overrides_for(spec.servers, server),
                python=spec.python,
            )
    finally:
        transport.close()


def _wait_for_report(watch: Watch, name: str) -> None:
    """Until the host has told what servers it has. Raises LinkError."""
    told: object = None
    since = time.monotonic()

    def enough() -> bool:
        nonlocal told, since
        if not watch.is_sampled(name, SAMPLED_S):
            return False
        now = [(one.name, one.phase, len(one.events), one.files) for one in watch.report(name).servers]
        if now != told:
            told, since = now, time.monotonic()
        return watch.is_searched(name) or (bool(now) and time.monotonic() - since > QUIET_S)

    watch.wait(enough, FIRST_REPORT_S)
    link = watch.link_of(name)
    if watch.report(name).status == HostStatus.UNREACHABLE:
        raise LinkError(link.reason or f"{name} cannot be watched", link.advice, code=link.code or "lost")
