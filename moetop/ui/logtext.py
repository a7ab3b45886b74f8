"""Which log a host shows first, and the words where there is none. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from moetop.ui.paint import clean
from moetop.ui.scene import HostView

KERNEL = "kernel"


def order_sources(host: HostView, sources: Sequence[str]) -> list[str]:
    """Logs of the newest servers first, other logs next, the kernel's last."""
    servers = [server.name for server in host.report.servers if not server.gone]
    targets = [server.log.target for server in host.report.servers if server.log is not None and server.log.target]

    def rank(source: str) -> tuple[int, str]:
        if source == KERNEL:
            return (3, source)
        if source in servers:
            return (0, f"{servers.index(source):04d}")
        return (1 if source in targets else 2, "")

    return sorted(sources, key=rank)


def log_words(host: HostView, source: str | None, has_lines: bool) -> str:
    """Why no line is shown, and what would help."""
    if has_lines:
        return "no event in this log yet; l shows all its lines"
    if host.lost:
        return "no log while the host is lost"
    statuses = host.statuses
    for code in ("log_denied", "log_missing"):
        if code in statuses:
            return clean(statuses[code].message, 300)
    for server in host.report.servers:
        place = server.log
        if place is not None and place.why:
            fix = f"; {place.fix}" if place.fix else ""
            return f"no log of {clean(server.name, 60)}: {clean(place.why, 200)}{clean(fix, 200)}"
    if source is not None:
        if "scan_progress" in statuses and "scan_done" not in statuses:
            return clean(statuses["scan_progress"].message, 200)
        return "the log is empty so far"
    if "no_server" in statuses or (host.last_t is not None and not host.report.servers):
        return "no serving process found here; --log-path or the configuration can name a log"
    return "looking for servers and their logs"
