"""Which server and which log a screen speaks of, and the words where there is none. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from moetop.model import ServerReport
from moetop.ui.loglines import LogLines
from moetop.ui.paint import clean
from moetop.ui.scene import HostView, no_server_words
from moetop.ui.words import EVENT_WORDS

KERNEL = "kernel"


def server_of(host: HostView, named: tuple[str, str] | None, gpu: int | None) -> ServerReport | None:
    """The server meant on `host`: the one `named` (host, server), else that on the chosen GPU, else the first alive."""
    servers = host.report.servers
    if named is not None and named[0] == host.name:
        for server in servers:
            if server.name == named[1]:
                return server
    alive = [server for server in servers if not server.gone] or list(servers)
    if gpu is not None:
        for server in alive:
            if gpu in server.gpus:
                return server
    return alive[0] if alive else None


def source_of(server: ServerReport, sources: Sequence[str]) -> str | None:
    """The log of a server among those read; None where it has none."""
    target = server.log.target if server.log is not None else None
    return next((name for name in (server.source, server.name, target) if name is not None and name in sources), None)


def order_sources(host: HostView, sources: Sequence[str]) -> list[str]:
    """Logs of the servers in their order, those gone last; other logs next, the kernel's at the end."""
    owned = [source_of(server, sources) for server in sorted(host.report.servers, key=lambda server: server.gone)]

    def rank(source: str) -> tuple[int, int]:
        if source == KERNEL:
            return (2, 0)
        return (0, owned.index(source)) if source in owned else (1, 0)

    return sorted(sources, key=rank)


def source_shown(host: HostView, server: ServerReport | None, sources: Sequence[str]) -> str | None:
    """The log to show beside a host: of its server; another only where no server is known."""
    if server is not None:
        return source_of(server, sources)
    ordered = order_sources(host, sources)
    return ordered[0] if ordered else None


def hidden_words(lines: LogLines) -> str:
    """Why none of a log's lines is shown on the log's own screen, and which key shows them again."""
    if lines.filter is not None:
        among = "" if lines.level == "all" else f", x shows other lines than now ({lines.level})"
        return f"no line passes {clean(lines.filter_text, 80)!r}; esc clears the filter{among}"
    if lines.kind is not None:
        return f"no line of this kind ({EVENT_WORDS.get(lines.kind, lines.kind.value)}) is kept; k shows all again"
    if lines.until is not None:
        return "no line of this log is from before that time; 0 goes back to now"
    if lines.level == "events":
        return "no event in this log yet; x shows all its lines"
    return "only noise in this log so far; x x shows it"


def log_words(host: HostView, source: str | None, has_lines: bool, server: ServerReport | None = None) -> str:
    """Why no line is shown beside the fleet, and what would help."""
    if has_lines:
        return "no event in this log yet; l shows all its lines"
    if host.lost:
        return "no log while the host is lost"
    statuses = host.statuses
    for code in ("log_denied", "log_missing"):
        if code in statuses and statuses[code].source in (None, source, server.source if server is not None else None):
            return clean(statuses[code].message, 300)
    place = server.log if server is not None else None
    if server is not None and place is not None and place.why and source is None:
        fix = f"; {place.fix}" if place.fix else ""
        return f"no log of {clean(server.name, 60)}: {clean(place.why, 200)}{clean(fix, 200)}"
    if "scan_progress" in statuses and "scan_done" not in statuses:
        return clean(statuses["scan_progress"].message, 200)
    if source is not None:
        return "the log is empty so far"
    if server is not None:
        return f"no log of {clean(server.name, 60)} is read yet"
    if "no_server" in statuses or (host.last_t is not None and not host.report.servers):
        return f"{no_server_words(host)}; --log-path can name a log"
    return "looking for servers and their logs"
