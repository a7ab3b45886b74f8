"""Findings on whether a host and its GPUs can be read at all, and on faults its kernel reported."""

from __future__ import annotations

from collections.abc import Iterator

from moetop.diagnose import words
from moetop.diagnose.faults import LOST, bus_of, codes_of, find_faults, gpus_of_event, is_old, needs_reset
from moetop.diagnose.view import HostView
from moetop.model import Confidence, EventKind, Finding, FindingKind, LogEvent, Severity, Status

NO_DATA_CODES: dict[str, tuple[str, tuple[str, ...]]] = {
    # status code -> (what it means, remedy)
    "no_nvml": ("no NVML library was found", ("install the driver's library for this kernel module",)),
    "no_driver": ("no NVIDIA driver is loaded", (words.COMMAND + "lsmod | grep nvidia", "load or install the driver")),
    "no_gpu": ("the driver sees no GPU", (words.COMMAND + "lspci | grep -i nvidia",)),
    "smi_missing": (
        "nvidia-smi was not found on this host's path",
        ("try /usr/bin/nvidia-smi, /usr/lib/wsl/lib/nvidia-smi or /opt/bin/nvidia-smi",),
    ),
    "smi_failed": ("nvidia-smi ended in an error", (words.COMMAND + "nvidia-smi",)),
    "smi_hang": (
        "nvidia-smi does not answer",
        ("the driver hangs: look at the kernel log", words.COMMAND + "dmesg -T | grep -i nvrm | tail"),
    ),
    "not_permitted": (
        "this user may not talk to the driver",
        ("watch as a user that may open /dev/nvidia*", words.COMMAND + "ls -l /dev/nvidia*"),
    ),
    "recording_refused": (
        "the recording's frames cannot be read",
        ("see who wrote it: docs/recording.md says what a frame is",),
    ),
    "no_sample": ("no sample of its GPUs came", ("watch or record it for longer",)),
    "stuck_gpu": (
        "the driver's calls do not come back",
        ("the driver hangs: look at the kernel log", words.COMMAND + "dmesg -T | grep -i nvrm | tail"),
    ),
}

MISMATCH_REMEDY = (
    "the library was updated and the kernel module was not reloaded: reboot, or stop all GPU work and reload it",
    "a server that was started before may still be serving: stop it on purpose, not by surprise",
    words.COMMAND + "cat /proc/driver/nvidia/version",
)

LOST_REMEDY = (
    "look for Xid 79 or 'fallen off the bus' in the kernel log; most reports needed a reboot or a power cycle",
    words.COMMAND + "dmesg -T | grep -iE 'xid|fallen off' | tail",
)


def _finding(kind: FindingKind, summary: str, evidence: tuple[str, ...], remedy: tuple[str, ...]) -> Finding:
    return Finding(
        kind=kind,
        severity=Severity.CRITICAL,
        confidence=Confidence.REPORTED,
        summary=summary,
        evidence=evidence,
        remedy=remedy,
    )


def find_unreachable(view: HostView) -> Iterator[Finding]:
    """`unreachable`: the connection is lost or was never made."""
    link = view.link
    if link is None or not link.is_lost:
        return
    reason = link.reason or "no answer"
    yield _finding(
        FindingKind.UNREACHABLE,
        f"cannot be reached: {reason}",
        (words.SEEN + reason + (f" ({link.code})" if link.code else ""),),
        (link.advice,) if link.advice else (words.COMMAND + f"ssh {view.name} true",),
    )


def find_unreadable(view: HostView) -> Iterator[Finding]:
    """`no_data`, `driver_mismatch`: the host answers and its GPUs cannot be read."""
    if view.answers:
        return
    troubles = [s for s in view.statuses if is_trouble(s)]
    mismatch = any(s.code == "driver_mismatch" for s in troubles)
    lost = any(s.code == "gpu_lost" for s in troubles)
    for status in troubles:
        if status.code == "driver_mismatch":
            yield mismatch_finding(status.message, status.detail)
        elif mismatch or status.code == "gpu_lost":
            continue  # said already, or by find_lost_gpus
        elif status.fatal or (status.code in NO_DATA_CODES and not lost):
            yield _no_data(status)
    for event in view.kernel(EventKind.DRIVER_MISMATCH):
        yield mismatch_finding(event.line, event.fields)


def is_trouble(status: Status) -> bool:
    """Whether a status is a condition: at level info it tells that one is over."""
    return status.fatal or status.level != "info"


def _no_data(status: Status) -> Finding:
    meaning, remedy = NO_DATA_CODES.get(status.code, (status.message, ()))
    return _finding(FindingKind.NO_DATA, f"no GPU data: {meaning}", (words.SEEN + status.message,), remedy)


def mismatch_finding(line: str, detail: dict[str, object]) -> Finding:
    """`driver_mismatch` with the versions that were named."""
    versions = [
        f"{name.replace('_', ' ')} {detail[name]}"
        for name in ("client", "library", "kernel_module", "kernel")
        if detail.get(name)
    ]
    summary = "driver and library versions differ" + (f" ({', '.join(versions)})" if versions else "")
    return _finding(FindingKind.DRIVER_MISMATCH, summary, (words.SEEN + line,), MISMATCH_REMEDY)


def find_lost_gpus(view: HostView) -> Iterator[Finding]:
    """`gpu_lost`: a GPU the driver cannot reach, by what it answers or by the kernel's record."""
    lost = [g for g in view.gpus if g.report.error == "gpu_lost"]
    evidence = [f"{words.SEEN}GPU {g.index}: the driver answers that it is lost" for g in lost]
    gpus = {g.index for g in lost}
    for status in view.statuses:
        if status.code == "gpu_lost" and is_trouble(status) and status.detail.get("error") != "reset_required":
            evidence.append(words.SEEN + status.message)
            index = status.detail.get("gpu", status.detail.get("index"))
            if isinstance(index, int):
                gpus.add(index)
    for event in _lost_events(view):
        evidence.append(words.LOG + event.line)
        gpus.update(gpus_of_event(view, event))
    if not evidence:
        return
    where = words.gpus(gpus) if gpus else "a GPU"
    finding = _finding(FindingKind.GPU_LOST, f"{where} is lost to the driver", tuple(evidence[:6]), LOST_REMEDY)
    yield Finding(
        **{name: getattr(finding, name) for name in finding.__struct_fields__} | {"gpus": tuple(sorted(gpus))}
    )


def _lost_events(view: HostView) -> Iterator[LogEvent]:
    readable = {
        bus_of(g.report.pci_bus_id)
        for g in view.gpus
        if g.report.pci_bus_id and not g.report.error and view.answers and g.figures.n
    }
    for event in view.kernel(EventKind.GPU_LOST, EventKind.XID):
        if event.kind is EventKind.XID and codes_of(event) != LOST:
            continue
        buses = event.fields.get("pci")
        named = [bus_of(b) for b in (buses if isinstance(buses, (list, tuple)) else [buses]) if b]
        if is_old(view, event) or (named and all(b in readable for b in named)):
            continue
        yield event


def find_host(view: HostView) -> Iterator[Finding]:
    """Everything of ranks 1 and 3."""
    yield from find_unreachable(view)
    yield from find_unreadable(view)
    yield from find_lost_gpus(view)
    yield from find_faults(view)
    yield from needs_reset(view)
