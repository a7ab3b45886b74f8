"""`moetop --doctor`: every step to a working view of each host, and the fix for the one that fails."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from moetop.errors import ExitCode
from moetop.model import HostReport, Link, LinkPhase, Status
from moetop.text import plain

if TYPE_CHECKING:
    from moetop.config import Config

STEPS: tuple[tuple[str, frozenset[str]], ...] = (
    ("settings", frozenset({"config", "proxy", "needs_openssh"})),
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

NVML_CODES = ("driver_mismatch", "no_driver", "no_nvml", "no_gpu", "smi_missing", "smi_failed", "smi_hang")
GLYPHS = {"ok": "✓", "warn": "▲", "fail": "✕", "skip": "–"}


@dataclass(frozen=True)
class Check:
    """One step: `result` is ok, warn, fail or skip (not reached)."""

    step: str
    result: str
    words: str
    fix: str | None = None


def examine(link: Link, report: HostReport, statuses: Mapping[str, Status]) -> Iterator[Check]:
    """The checks of one host in their order. Pure."""
    broken = link.phase is LinkPhase.LOST
    failed = next((n for n, (_, codes) in enumerate(STEPS) if link.code in codes), 1) if broken else len(STEPS)
    for n, (step, _) in enumerate(STEPS):
        if n < failed:
            words = "ok" if step != "python" or report.source != "nvidia-smi" else "none that can be used"
            yield Check(step, "ok" if words == "ok" else "warn", words)
        elif n == failed:
            yield Check(step, "fail", link.reason or "failed", link.advice)
        else:
            yield Check(step, "skip", "not reached")
    if broken:
        for step in ("nvml", "gpm", "server", "log"):
            yield Check(step, "skip", "not reached")
        return
    yield _nvml(report, statuses)
    yield _gpm(report)
    yield from _servers(report, statuses)
    for note in report.notes:
        yield Check("rights", "warn", note)


def _nvml(report: HostReport, statuses: Mapping[str, Status]) -> Check:
    for code in NVML_CODES:
        if code in statuses and (statuses[code].fatal or not report.gpus):
            return Check("nvml", "fail", statuses[code].message)
    if not report.gpus:
        return Check("nvml", "fail", report.error or "no GPU answered")
    names = sorted({gpu.name or "unnamed" for gpu in report.gpus})
    words = f"{len(report.gpus)} x {', '.join(names)}, driver {report.driver or 'unknown'}"
    if report.source == "nvidia-smi":
        fix = "install python3 (3.8 or later) for NVML's own values, processes, logs and GPM"
        return Check("nvml", "warn", f"{words}, read through nvidia-smi", fix)
    lost = [str(gpu.index) for gpu in report.gpus if gpu.error]
    if lost:
        return Check("nvml", "warn", f"{words}; GPU {', '.join(lost)} cannot be read")
    return Check("nvml", "ok", words)


def _gpm(report: HostReport) -> Check:
    able = sum(gpu.gpm is not None for gpu in report.gpus)
    if able == len(report.gpus) and able:
        return Check("gpm", "ok", "tensor and memory activity are measured")
    why = next((gpu.absent["gpm"] for gpu in report.gpus if "gpm" in gpu.absent), "not supported by GPU or driver")
    return Check("gpm", "warn", f"{able} of {len(report.gpus)} GPUs ({why}): verdicts on the others are inferred")


def _servers(report: HostReport, statuses: Mapping[str, Status]) -> Iterator[Check]:
    if not report.servers:
        fix = "start moetop as the server's user, or name its log with --log-path"
        yield Check("server", "warn", "no SGLang, vLLM or TensorRT-LLM process found", fix)
        yield Check("log", "skip", "no server")
        return
    for server in report.servers:
        version = f" {server.version}" if server.version else ""
        yield Check("server", "ok", f"{server.name}: {server.engine or 'unknown engine'}{version}, pid {server.pid}")
        place = server.log
        trouble = next((statuses[code] for code in ("log_denied", "log_missing") if code in statuses), None)
        if place is None or place.target is None:
            why = place.why if place is not None else None
            yield Check("log", "warn", why or "its output is not known", place.fix if place is not None else None)
        elif trouble is not None:
            yield Check("log", "fail", trouble.message, "start moetop as a user who may read it")
        else:
            yield Check("log", "ok", f"{place.kind} {place.target}, {sum(server.counts.values())} lines understood")


def run_doctor(config: Config) -> ExitCode:
    """Check every host of `config` and print a line a step. 4 when a host cannot be watched."""
    from moetop.headless import CONNECT_GRACE_S, SEARCH_GRACE_S
    from moetop.session import live_session

    session = live_session(config, window_s=1.0)
    watch = session.watch
    names = watch.names()
    with session.running():
        watch.wait(lambda: all(watch.is_sampled(name, 1.0) for name in names), CONNECT_GRACE_S)
        watch.wait(lambda: all(watch.is_searched(name) for name in names), SEARCH_GRACE_S)
        watch.give_up_on_silent()
        found = [(name, list(examine(watch.link_of(name), watch.report(name), watch.statuses(name)))) for name in names]
    print(f"configuration  {config.path or 'none read; every value is the default'}")  # noqa: T201
    code = ExitCode.OK
    for name, checks in found:
        print(f"\n{plain(name)}")  # noqa: T201
        for check in checks:
            print(_line(check))  # noqa: T201
        if any(check.result == "fail" and check.step != "log" for check in checks):
            code = ExitCode.UNWATCHED
    return code


def _line(check: Check) -> str:
    utf8 = (sys.stdout.encoding or "").lower().startswith("utf")
    glyph = GLYPHS[check.result] if utf8 else check.result
    text = f"  {glyph:<4} {check.step:<15}{plain(check.words)}"
    return text if check.fix is None else f"{text}\n{'':22}-> {plain(check.fix)}"
