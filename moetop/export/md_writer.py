"""Snapshot to Markdown: a report fit to paste into a bug report. Every text from a host is made inert."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

from moetop.export.chart import power_map
from moetop.export.plainform import to_plain
from moetop.export.sparks import SeriesSource, host_chart
from moetop.model import EventSeverity, Snapshot
from moetop.text import plain

MAX_EVENTS = 40
"""Newest log events listed a server (judgement: one screen)."""

MAX_RUNS = 10
"""Most earlier runs named."""

MAX_CHART_HOSTS = 52
"""Most hosts on the map: a letter each."""

_INLINE = r"[\\`*\[\]<>#|~&$@]|(?<!\w)_|_(?!\w)|:(?=//)|(?<=www)\."
_MARKUP = re.compile(rf"({_INLINE}|^[-+])")
_MARKUP_WITHIN = re.compile(rf"({_INLINE})")
_QUOTED = re.compile(r"\(?`[^`]*[^`\s][^`]*`[).,;:]*")
_WORD = re.compile(rf"(?<!\S){_QUOTED.pattern}(?!\S)|(?:[^\s\[]|\[[\d, ]*\]|\[)+")
"""A part quoted in backticks, or a word; a list of numbers belongs to it (`block_shape=[128, 128].json`)."""
_UNLISTED = (EventSeverity.NOISE.value, EventSeverity.METRIC.value)
_BAR_STEP = re.compile("[\r␍]")
"""Between the states of a progress bar; only the last is of interest."""


def _cell(value: Any, limit: int = 400) -> str:
    """Text that Markdown shows as it is: no markup, links, mentions or table breaks."""
    return _MARKUP.sub(r"\\\1", plain(str(value), limit))


def _inert(value: Any, limit: int = 400) -> str:
    """The same outside a table: paths, options and quoted words stand as code, so that a copied one is right."""
    return _WORD.sub(_word, plain(str(value), limit))


def _word(match: re.Match[str]) -> str:
    word = match.group()
    if _QUOTED.fullmatch(word):
        return word
    markup = _MARKUP_WITHIN if match.start() else _MARKUP
    core = word.lstrip("(").rstrip(").,;:")
    if "`" in word or not any(letter.isalnum() for letter in core) or not markup.search(core):
        return markup.sub(r"\\\1", word)
    before, _, after = word.partition(core)
    return f"{before}`{core}`{after}"


def _code(text: str) -> list[str]:
    """Lines of a fenced block that nothing inside can end."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return [fence + "text", *text.split("\n"), fence]


def _number(value: float | None, digits: int = 0) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _time(value: float | None) -> str:
    if value is None:
        return "time not known"
    return datetime.fromtimestamp(value, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


def _do(line: str) -> str:
    """A remedy: a command (`$ ...`) as code, anything else as words."""
    if line.startswith("$ ") and "`" not in line:
        return f"`{plain(line[2:], 400)}`"
    return _inert(line)


def _ranges(numbers: list[int]) -> str:
    """0, 1, 2, 5 as `0-2, 5`."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)


def _findings(host: dict[str, Any]) -> Iterator[str]:
    for finding in host["findings"]:
        gpus = f"GPU {_ranges(finding['gpus'])}" if finding["gpus"] else ""
        places = [gpus, f"server {_inert(finding['server'])}" if finding["server"] else ""]
        place = "; ".join(part for part in places if part)
        yield f"- **{finding['severity']}, {finding['confidence']}**: {_inert(finding['summary'])}" + (
            f" ({place})" if place else ""
        )
        yield from (f"    - {_inert(line)}" for line in finding["evidence"])
        yield from (f"    - **do:** {_do(line)}" for line in finding["remedy"])
    if not host["findings"]:
        yield "No findings."


def _gpus(host: dict[str, Any]) -> Iterator[str]:
    yield "| GPU | name | state | util % | power W / limit | % | tensor % | DRAM % | °C | memory GiB |"
    yield "|---:|---|---|---:|---:|---:|---:|---:|---:|---:|"
    for gpu in host["gpus"]:
        gpm = gpu["gpm"] or {}
        gib = "/".join(
            "-" if value is None else f"{value / 1024:.0f}"
            for value in (gpu["memory_used_mib"], gpu["memory_total_mib"])
        )
        state = gpu["error"] or f"{gpu['state']} ({gpu['confidence']})"
        cells = (
            str(gpu["index"]), _cell(gpu["name"] or "-"), _cell(state), _number(gpu["util_gpu_pct"]),
            f"{_number(gpu['power_w'])} / {_number(gpu['power_limit_w'])}", _number(gpu["power_pct"]),
            _number(gpm.get("tensor_pct")), _number(gpm.get("dram_pct")), _number(gpu["temp_c"]), gib,
        )  # fmt: skip
        yield f"| {' | '.join(cells)} |"


def _chart(hosts: list[dict[str, Any]]) -> Iterator[str]:
    """Utilization against power: a busy GPU far under its limit is what this program looks for."""
    points: dict[str, list[tuple[float, float]]] = {}
    for host in hosts:
        pairs = [(gpu["util_gpu_pct"], gpu["power_pct"]) for gpu in host["gpus"]]
        known = [(x, y) for x, y in pairs if x is not None and y is not None]
        if known:
            points[plain(host["name"], 40)] = known
    if points and len(points) <= MAX_CHART_HOSTS:
        yield from _code(power_map(points))
        yield ""


def _server(server: dict[str, Any], said: set[str]) -> Iterator[str]:
    """One server; what the findings above have `said` is not said again."""
    facts = [
        part
        for part in (
            " ".join(str(word) for word in (server["engine"], server["version"]) if word),
            f"pid {server['pid']}" if server["pid"] is not None else "",
            f"phase {server['phase']}",
            f"run {server['runs'][-1]['n']}" if server["runs"] else "",
        )
        if part
    ]
    yield f"### Server {_inert(server['name'])}"
    yield ""
    yield _inert(", ".join(facts))
    yield ""
    yield f"Kernel tuning: **{_inert(server['tuning']['verdict'])}**"
    yield ""
    yield from (f"- {_inert(line)}" for line in server["tuning"]["evidence"])
    yield from (f"- **do:** {_do(line)}" for line in server["tuning"]["remedy"] if line not in said)
    metrics = server["metrics"]
    if metrics:
        shown = [
            f"{name} {value:g}" for name, value in metrics.items() if isinstance(value, (int, float)) and name != "t"
        ]
        yield from ("", _inert("Numbers: " + ", ".join(shown))) if shown else ()
    yield from _log(server)


def _log(server: dict[str, Any]) -> Iterator[str]:
    """The newest run's events; what earlier runs came to is history and one line each."""
    runs = server["runs"]
    newest = runs[-1]["n"] if runs else None
    lines = [f"run {run['n']}  {run['start_text'] or ''}  {run['phase']}" for run in runs[:-1][-MAX_RUNS:]]
    listed = [
        event for event in server["events"] if event["severity"] not in _UNLISTED and event["run"] in (newest, None)
    ]
    if len(listed) > MAX_EVENTS:
        lines.append(f"({len(listed) - MAX_EVENTS} earlier events of this run left out)")
    for event in listed[-MAX_EVENTS:]:
        times = f" x{event['count']}" if event["count"] > 1 else ""
        text = _BAR_STEP.split(event["line"].rstrip("\r␍"))[-1]
        lines.append(f"run {event['run'] or '?'}  {event['kind']}{times}  {plain(text, 240)}")
    if lines:
        yield from ("", *_code("\n".join(plain(line) for line in lines)))


def _host(host: dict[str, Any], chart: list[str]) -> Iterator[str]:
    yield f"## {_inert(host['name'])}: {_inert(host['headline'])}"
    yield ""
    facts = [f"status {host['status']}"]
    facts += [f"{name} {host[name]}" for name in ("driver", "source") if host[name]]
    yield _inert(", ".join(facts))
    if host["error"]:
        yield from ("", f"**{_inert(host['error'])}**")
    yield ""
    yield from _findings(host)
    if host["gpus"]:
        yield ""
        yield from _gpus(host)
    if chart:
        yield ""
        yield from _code("\n".join(chart))
    said = {line for finding in host["findings"] for line in finding["remedy"]}
    for server in host["servers"]:
        yield ""
        yield from _server(server, said)
    if host["events"]:
        yield ""
        yield from _code("\n".join(plain(event["line"], 240) for event in host["events"][-MAX_EVENTS:]))
    if host["notes"]:
        yield ""
        yield from (f"- note: {_inert(note)}" for note in host["notes"])
    yield ""


def write_md(snapshot: Snapshot, series: SeriesSource | None = None) -> bytes:
    """The snapshot as a Markdown report, with the course of its values where `series` has it."""
    whole = to_plain(snapshot)
    seen = whole["window_s"] is not None and any(host["gpus"] for host in whole["hosts"])
    window = f", states over {whole['window_s']:g} s" if seen else ""
    lines = [f"# moetop: {_inert(whole['headline'])}", "", f"{_time(whole['taken_at'])}{window}", ""]
    lines.extend(_chart(whole["hosts"]))
    for report, host in zip(snapshot.hosts, whole["hosts"], strict=True):
        lines.extend(_host(host, host_chart(report, series) if series is not None else []))
    lines.append(_inert(f"Written by moetop {whole['moetop']}."))
    return ("\n".join(lines) + "\n").encode("utf-8")
