"""`moetop --doctor`: every step to a working view of each host, and the fix for the one that fails."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from moetop.diagnose.words import neutral
from moetop.errors import ExitCode, LinkError
from moetop.headless import CONNECT_GRACE_S, SEARCH_GRACE_S, first_remedy
from moetop.model import HostReport, Link, LinkPhase, Status
from moetop.text import plain

if TYPE_CHECKING:
    from moetop.config import Config

STEPS: tuple[tuple[str, frozenset[str]], ...] = (
    ("settings", frozenset({"config", "proxy", "needs_openssh", "openssh_missing"})),
    (
        "reach",
        frozenset(
            {"unknown_host", "refused", "timeout", "unreachable", "lost", "jump", "banner", "max_startups", "closed"}
        ),
    ),
    ("host key", frozenset({"host_key_unknown", "host_key_changed", "host_key_revoked", "known_hosts", "protocol"})),
    ("authentication", frozenset({"auth"})),
    (
        "session",
        frozenset(
            {"max_sessions", "no_exec", "no_shell", "shell_exits", "no_marker", "no_program", "garbage", "silent"}
        ),
    ),
    ("python", frozenset({"no_python", "old_python", "stuck", "probe_ended"})),
)
"""Steps in the order a connection takes them, each with the link codes that mean it failed."""

LATER_STEPS = ("nvml", "gpm", "server", "log")
NVML_CODES = ("driver_mismatch", "no_driver", "no_nvml", "no_gpu", "not_permitted", "smi_missing", "smi_failed")
SLOW_NVML_CODES = ("smi_hang", "stuck_gpu")
LOG_FIXES = {"log_denied": None, "log_missing": "see that the path is right and the server writes there"}
"""A log that may not be read says itself what to do."""

GLYPHS = {"ok": "✓", "warn": "▲", "fail": "✕", "skip": "–"}


@dataclass(frozen=True)
class Check:
    """One step: `result` is ok, warn, fail or skip (not reached)."""

    step: str
    result: str
    words: str
    fix: str | None = None


def examine(
    link: Link, report: HostReport, statuses: Mapping[str, Status], known: Mapping[str, str] | None = None
) -> Iterator[Check]:
    """The checks of one host in their order. Pure. `known` has better words than "ok" for steps that passed,
    and under `user` who watches."""
    words = known or {}
    broken = link.phase is LinkPhase.LOST
    failed = next((n for n, (_, codes) in enumerate(STEPS) if link.code in codes), 1) if broken else len(STEPS)
    for n, (step, _) in enumerate(STEPS):
        if n < failed:
            passed = step != "python" or report.source != "nvidia-smi"
            yield Check(step, "ok", words.get(step, "ok")) if passed else Check(step, "warn", "none that can be used")
        elif n == failed:
            yield Check(step, "fail", link.reason or "failed", link.advice)
        else:
            yield Check(step, "skip", "not reached")
    if broken:
        for step in LATER_STEPS:
            yield Check(step, "skip", "not reached")
        return
    nvml = _nvml(report, statuses)
    yield nvml
    yield _gpm(report)
    yield from _servers(report, words.get("server"), as_root=words.get("user") == "root")
    troubles = {code: statuses[code].message for code in LOG_FIXES if code in statuses}
    for code, message in troubles.items():
        yield Check("log", "fail", message, LOG_FIXES[code])
    for note in report.notes:
        if note not in troubles.values() and note != neutral(nvml.words):
            yield Check("rights", "warn", note)


def _nvml(report: HostReport, statuses: Mapping[str, Status]) -> Check:
    for code in (*NVML_CODES, *SLOW_NVML_CODES):
        if code in statuses and statuses[code].level != "info" and (statuses[code].fatal or not report.gpus):
            return Check("nvml", "fail", statuses[code].message, _first_remedy(report))
    if not report.gpus:
        return Check("nvml", "fail", report.error or "no GPU answered", _first_remedy(report))
    names = sorted({gpu.name or "unnamed" for gpu in report.gpus})
    words = f"{len(report.gpus)} x {', '.join(names)}, driver {report.driver or 'unknown'}"
    if report.source == "nvidia-smi":
        fix = "install python3 (3.8 or later) for NVML's own values, processes, logs and GPM"
        return Check("nvml", "warn", f"{words}, read through nvidia-smi", fix)
    lost = [str(gpu.index) for gpu in report.gpus if gpu.error]
    if lost:
        return Check("nvml", "warn", f"{words}; GPU {', '.join(lost)} cannot be read", _first_remedy(report))
    return Check("nvml", "ok", words)


def _first_remedy(report: HostReport) -> str | None:
    """What to do about the gravest finding of the host."""
    return first_remedy(report.findings[0]) if report.findings else None


def _gpm(report: HostReport) -> Check:
    if not report.gpus:
        return Check("gpm", "skip", "no GPU to ask")
    able = sum(gpu.gpm is not None for gpu in report.gpus)
    if able == len(report.gpus):
        return Check("gpm", "ok", "tensor and memory activity are measured")
    why = next((gpu.absent["gpm"] for gpu in report.gpus if "gpm" in gpu.absent), "not supported by GPU or driver")
    return Check("gpm", "warn", f"{able} of {len(report.gpus)} GPUs ({why}): verdicts on the others are inferred")


def _servers(report: HostReport, not_looked: str | None, *, as_root: bool) -> Iterator[Check]:
    """Servers and where their logs go; a log that cannot be read is said by the caller."""
    if not report.servers:
        if not_looked is not None:
            yield Check("server", "skip", not_looked)
            return
        seen_by = "" if as_root else "watch as the server's user or as root, "
        advice = f"where one runs: {seen_by}{'or ' if seen_by else ''}name its log with --log-path"
        yield Check("server", "warn", "no SGLang, vLLM or TensorRT-LLM process found", advice)
        yield Check("log", "skip", "no server")
        return
    for server in report.servers:
        version = f" {server.version}" if server.version else ""
        running = f"pid {server.pid}" if server.pid is not None else "known from its log only"
        yield Check("server", "ok", f"{server.name}: {server.engine or 'unknown engine'}{version}, {running}")
        place, understood = server.log, sum(server.counts.values())
        if place is not None and place.target is not None:
            yield Check("log", "ok", f"{place.kind} {place.target}, {understood} lines understood")
        elif understood or server.pid is None:
            yield Check("log", "ok", f"{understood} lines understood")
        else:
            why, fix = (place.why, place.fix) if place is not None else (None, None)
            yield Check("log", "warn", why or "its output is not known", fix)


def _settings_words(config: Config) -> dict[str, str]:
    """What ssh's own configuration makes of each host, for hosts that are reached by ssh."""
    from moetop.session import target_of
    from moetop.transport.ssh_config import resolve

    words = {}
    for host in config.hosts:
        if host.transport == "local":
            words[host.name] = "this machine"
            continue
        try:
            found = resolve(target_of(config, host))
        except LinkError:
            continue  # the connection says it with its fix
        way = f" by way of {', '.join(found.proxy_jump)}" if found.proxy_jump else ""
        words[host.name] = found.shown + (way or (" through a ProxyCommand" if found.proxy_command else ""))
    return words


def run_doctor(config: Config) -> ExitCode:
    """Check every host of `config` and print a line a step. 4 when a host cannot be watched."""
    from moetop.session import live_session, local_host
    from moetop.stdout import print_text

    config = config if config.hosts else replace(config, hosts=(local_host(config),))
    session = live_session(config, window_s=1.0)
    settings = _settings_words(config)
    watch = session.watch
    names = watch.names()
    looked = {host.name: host.discover for host in config.hosts}

    def known(name: str) -> dict[str, str]:
        hello = watch.hello(name)
        words = {"settings": settings[name]} if name in settings else {}
        if hello is not None and hello.python and hello.source != "nvidia-smi":
            words["python"] = hello.python
        if hello is not None and hello.user:
            words["user"] = hello.user
            words["session"] = f"as {hello.user}" + (f" on {hello.hostname}" if hello.hostname else "")
        if not looked[name]:
            words["server"] = "not looked for (discover: false)"
        return words

    with session.running():
        watch.wait(lambda: all(watch.is_sampled(name, 1.0) for name in names), CONNECT_GRACE_S)
        watch.wait(lambda: all(watch.is_searched(name) for name in names), SEARCH_GRACE_S)
        watch.give_up_on_silent()
        found = [
            (name, list(examine(watch.link_of(name), watch.report(name), watch.statuses(name), known(name))))
            for name in names
        ]
    lines = [f"configuration  {config.path or 'none read; every value is the default'}"]
    code = ExitCode.OK
    for name, checks in found:
        lines += ["", plain(name), *map(_line, checks)]
        if any(check.result == "fail" and check.step != "log" for check in checks):
            code = ExitCode.UNWATCHED
    print_text("\n".join(lines) + "\n")
    return code


def _line(check: Check) -> str:
    utf8 = sys.stdout is not None and (sys.stdout.encoding or "").lower().startswith("utf")
    glyph = GLYPHS[check.result] if utf8 else check.result
    text = f"  {glyph:<4} {check.step:<15}{plain(check.words)}"
    return text if check.fix is None else f"{text}\n{'':22}-> {plain(check.fix)}"
