"""From the feed to a scene. Called in a worker thread, so that diagnosing never holds a key press back."""

from __future__ import annotations

from moetop.ui.feed import WatchFeed
from moetop.ui.scene import HostView, Scene


def gather(feed: WatchFeed, t: float) -> Scene:
    """The fleet as the feed has it at `t` (epoch seconds)."""
    generation = feed.generation
    hosts = []
    for name in feed.names():
        try:
            hosts.append(
                HostView(
                    name=name,
                    report=feed.report(name),
                    link=feed.link_of(name),
                    now=feed.host_now(name),
                    last_t=feed.last_t(name),
                    statuses=feed.statuses(name),
                )
            )
        except KeyError:
            continue  # the host was taken off while we looked
    return Scene(tuple(hosts), generation, t)
