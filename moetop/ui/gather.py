"""From the feed to a scene. Called in a worker thread, so that diagnosing never holds a key press back."""

from __future__ import annotations

import logging

from moetop.model import Calm, HostReport
from moetop.ui.feed import WatchFeed
from moetop.ui.scene import HostView, Scene

WINDOW_SLACK_S = 1.0
"""The first sample of a full window may be younger than the window by one sampling interval."""

_log = logging.getLogger("moetop.ui")


def gather(feed: WatchFeed, t: float) -> Scene:
    """The fleet as the feed has it at `t` (epoch seconds)."""
    generation = feed.generation
    hosts = []
    for name in feed.names():
        try:
            hosts.append(_view(feed, name, _report(feed, name)))
        except KeyError:
            continue  # the host was taken off while we looked
    return Scene(tuple(hosts), generation, t)


def _report(feed: WatchFeed, name: str) -> HostReport:
    """The host's report; where making it fails, a report that says so: one host never takes the others down."""
    try:
        return feed.report(name)
    except Exception as error:
        if name not in feed.names():
            raise KeyError(name) from error
        _log.exception("report of %s", name)
        words = (
            f"moetop could not judge this host ({type(error).__name__}: {error}); run with --debug FILE and report it"
        )
        return HostReport(name=name, headline=Calm.NO_FINDING.value, error=words)


def _view(feed: WatchFeed, name: str, report: HostReport) -> HostView:
    return HostView(
        name=name,
        report=report,
        link=feed.link_of(name),
        now=feed.host_now(name),
        last_t=feed.last_t(name),
        statuses=feed.statuses(name),
        window_full=_window_full(feed, name, report),
    )


def _window_full(feed: WatchFeed, name: str, report: HostReport) -> bool:
    """Whether every GPU was watched for a whole window; where no history is kept, that is taken for granted."""
    for gpu in report.gpus:
        history = feed.history(name, gpu.index)
        if history is None or history.first_t is None or history.last_t is None:
            continue
        if history.last_t - history.first_t < feed.window_s - WINDOW_SLACK_S:
            return False
    return True
