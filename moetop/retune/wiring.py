"""Builds what `--retune` needs from the command line: the host's transport and a running watch of it."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager

from moetop.config import Config
from moetop.errors import LinkError
from moetop.model import HostReport, HostStatus, LinkPhase
from moetop.retune.cli import Call
from moetop.retune.types import overrides_for

FIRST_REPORT_S = 60.0
"""Connecting, finding servers and scanning their logs; a 1 GiB log takes seconds."""
QUIET_S = 3.0
"""A host whose servers and findings have not changed for this long has told what it knows (judgement)."""


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
                _wait_for_report(report, lambda: session.watch.link(name))
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


def _wait_for_report(report, link) -> None:  # type: ignore[no-untyped-def]
    """Until the host has told what servers it has. Raises LinkError."""
    deadline = time.monotonic() + FIRST_REPORT_S
    last, since = None, time.monotonic()
    while time.monotonic() < deadline:
        now = report()
        state = link()
        if state.phase == LinkPhase.LOST and state.next_try_t is None:
            raise LinkError(state.reason or "the host cannot be watched", state.advice, code=state.code or "lost")
        shape = (now.status, tuple((one.name, one.phase, one.tuning, len(one.events)) for one in now.servers))
        if shape != last:
            last, since = shape, time.monotonic()
        if now.status != HostStatus.UNREACHABLE and now.servers and time.monotonic() - since > QUIET_S:
            return
        time.sleep(0.1)
    if report().status == HostStatus.UNREACHABLE:
        state = link()
        raise LinkError(state.reason or "the host cannot be watched", state.advice, code=state.code or "lost")
