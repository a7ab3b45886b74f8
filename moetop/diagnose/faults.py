"""GPU faults: Xid records and ECC counts -> findings that name the root, not its clean-up."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone

import msgspec

from moetop.diagnose import thresholds as th
from moetop.diagnose import words
from moetop.diagnose.view import HostView
from moetop.model import Confidence, EventKind, Finding, FindingKind, LogEvent, Severity


class Xid(msgspec.Struct, frozen=True):
    """What an Xid means and who most often causes it (`program`, `card`, `link`, `driver`)."""

    meaning: str
    who: str


# NVIDIA, "Xid Errors" catalogue (docs.nvidia.com/deploy/xid-errors), in our words.
XIDS: dict[int, Xid] = {
    13: Xid("exception in a kernel, most often a fault of the program", "program"),
    31: Xid("illegal memory access (MMU fault), most often a fault of the program", "program"),
    32: Xid("corrupted push buffer", "driver"),
    38: Xid("driver firmware error", "driver"),
    43: Xid("a kernel was stopped after a fault of its program", "program"),
    45: Xid("clean-up after another error", "program"),
    48: Xid("uncorrectable ECC error", "card"),
    61: Xid("micro-controller breakpoint", "driver"),
    62: Xid("micro-controller halted", "driver"),
    63: Xid("memory page retired or row remapped", "card"),
    64: Xid("page retirement or row remapping failed", "card"),
    68: Xid("video processor exception", "driver"),
    69: Xid("graphics engine class error", "program"),
    74: Xid("NVLink error", "link"),
    79: Xid("the GPU has fallen off the bus", "card"),
    92: Xid("high rate of single-bit ECC errors", "card"),
    94: Xid("contained ECC error: only the program at fault was hit", "card"),
    95: Xid("uncontained ECC error: every program on the GPU was hit", "card"),
    109: Xid("context switch time-out", "driver"),
    119: Xid("the GPU's firmware (GSP) does not answer", "driver"),
    120: Xid("error in the GPU's firmware (GSP)", "driver"),
    121: Xid("corrected error on the chip-to-chip link", "link"),
    137: Xid("NVLink fault of a peer's access", "link"),
    140: Xid("unrecovered ECC error", "card"),
    144: Xid("NVLink fault (SAW)", "link"),
    145: Xid("NVLink fault (RLW)", "link"),
    146: Xid("NVLink fault (TLW)", "link"),
    147: Xid("NVLink fault (TREX)", "link"),
    148: Xid("NVLink fault (NVLPW_CTRL)", "link"),
    149: Xid("NVLink fault (NETIR)", "link"),
    150: Xid("NVLink fault (MSE)", "link"),
    154: Xid("the GPU asks for a recovery action", "card"),
}

CLEAN_UP = 45
LOST = 79
PROGRAM_CODES = frozenset(code for code, xid in XIDS.items() if xid.who == "program")

_REMEDY: dict[str, tuple[str, ...]] = {
    "program": (
        "look at the program first: its log around that time, its newest kernel or backend",
        "repeated on one card with different programs: test the card",
        words.COMMAND + "dcgmi diag -r 3",
    ),
    "card": (
        "drain the host and test or reset the card",
        words.COMMAND + "nvidia-smi -q -d ECC,ROW_REMAPPER",
        words.COMMAND + "dcgmi diag -r 3",
    ),
    "link": (
        "check the NVLink state and the fabric manager on this host and its peers",
        words.COMMAND + "nvidia-smi nvlink -s",
        words.COMMAND + "systemctl status nvidia-fabricmanager",
    ),
    "driver": (
        "restart the workload; reset the GPU or reboot when it comes back",
        words.COMMAND + "nvidia-smi -r -i INDEX",
    ),
}


def bus_of(text: object) -> str:
    """`0000:06:00` from any spelling of a PCI address."""
    address = str(text or "").lower().split(".")[0]
    parts = address.split(":")
    if len(parts) != 3:
        return address
    return ":".join((parts[0].rjust(8, "0")[-8:].lstrip("0").rjust(4, "0"), parts[1], parts[2]))


def codes_of(event: LogEvent) -> int | None:
    code = event.fields.get("code")
    return code if isinstance(code, int) and not isinstance(code, bool) else None


def gpus_of_event(view: HostView, event: LogEvent) -> tuple[int, ...]:
    """GPUs an event speaks of, by index or by PCI address."""
    index = event.fields.get("gpu")
    if isinstance(index, int):
        return (index,)
    named = event.fields.get("pci")
    there = named if isinstance(named, (list, tuple)) else [named]
    buses = {bus_of(address) for address in there if address}
    return tuple(g.index for g in view.gpus if g.report.pci_bus_id and bus_of(g.report.pci_bus_id) in buses)


def is_old(view: HostView, event: LogEvent) -> bool:
    """Whether a fault is history: the host's GPUs answer, and it is long past. Of one without any date,
    found while reading an old log, only a program's fault is taken for history."""
    if not view.live or view.now is None or not view.answers:
        return False
    program = codes_of(event) in PROGRAM_CODES
    fresh_s = th.XID_APP_FRESH_S if program else th.XID_FRESH_S
    if event.t is not None:
        return view.now - event.t > fresh_s
    written = _printed_time(event.t_text)
    if written is None:
        return program
    return view.now - written > fresh_s + th.ZONE_S


_PRINTED = ("%a %b %d %H:%M:%S %Y", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S")


def _printed_time(text: str | None) -> float | None:
    """Epoch seconds of a printed date without a zone, right to within `ZONE_S`."""
    plain = " ".join((text or "").strip("[] ").split())
    for form in _PRINTED:
        try:
            return datetime.strptime(plain, form).replace(tzinfo=timezone.utc).timestamp()
        except ValueError:
            continue
    return None


def _roots(event: LogEvent) -> tuple[int, ...]:
    """Root codes a clean-up record names (`caused by previous Xid 149`)."""
    caused = event.fields.get("caused_by")
    values = list(caused.values()) if isinstance(caused, dict) else [caused]
    flat = [v for value in values for v in (value if isinstance(value, (list, tuple)) else [value])]
    return tuple(sorted({v for v in flat if isinstance(v, int) and not isinstance(v, bool)}))


def find_faults(view: HostView) -> Iterator[Finding]:
    """`gpu_fault`: one finding a root code; clean-up alone names what it was cleaning up after."""
    by_code: dict[int, list[LogEvent]] = {}
    for event in view.kernel(EventKind.XID):
        code = codes_of(event)
        if code is not None and code != LOST:
            by_code.setdefault(code, []).append(event)
    clean_up = by_code.pop(CLEAN_UP, [])
    lines = tuple(words.LOG + e.line for e in clean_up[:2])
    for code, events in by_code.items():
        yield _xid_finding(view, code, events, lines)
    if clean_up and not by_code:
        yield _clean_up_finding(view, clean_up)
    yield from _ecc(view)


def _xid_finding(view: HostView, code: int, events: list[LogEvent], clean_up: tuple[str, ...]) -> Finding:
    known = XIDS.get(code, Xid("not in the catalogue this program knows", "driver"))
    gpus = tuple(sorted({g for e in events for g in gpus_of_event(view, e)}))
    old = all(is_old(view, e) for e in events)
    where = words.gpus(gpus) if gpus else words.listed(sorted({str(e.fields.get("pci") or "?") for e in events}), 4)
    count = sum(e.count for e in events)
    evidence = [f"{words.LOG}{e.line}" for e in events[:3]]
    evidence.append(f"{words.SEEN}{words.plural(count, 'record')} of Xid {code}: one incident repeats its record")
    evidence.extend(clean_up)
    if any(e.rule == GAUGE_RULE for e in events):
        evidence.append(words.NOT_KNOWN + "when it happened: the exporter's gauge keeps the last code")
    return Finding(
        kind=FindingKind.GPU_FAULT,
        severity=Severity.INFO if old else Severity.CRITICAL,
        confidence=Confidence.REPORTED,
        summary=f"Xid {code} on {where}: {known.meaning}",
        gpus=gpus,
        evidence=tuple(evidence),
        remedy=_REMEDY[known.who],
    )


GAUGE_RULE = "dcgm.xid"
"""Rule name of faults read from an exporter's gauge."""


def _clean_up_finding(view: HostView, events: list[LogEvent]) -> Finding:
    roots = tuple(sorted({root for e in events for root in _roots(e)}))
    gpus = tuple(sorted({g for e in events for g in gpus_of_event(view, e)}))
    if roots:
        known = [XIDS[r] for r in roots if r in XIDS]
        what = f"root Xid {'/'.join(map(str, roots))}"
        summary = f"GPU fault, {what}" + (f": {known[0].meaning}" if known else "") + " (Xid 45 is its clean-up)"
        remedy = _REMEDY[known[0].who if known else "driver"]
    else:
        summary = "GPU fault: clean-up (Xid 45) was recorded, its root was not seen"
        remedy = ("look for the first Xid in the kernel log", words.COMMAND + "dmesg -T | grep -i xid | head")
    old = all(is_old(view, e) for e in events)
    return Finding(
        kind=FindingKind.GPU_FAULT,
        severity=Severity.INFO if old else Severity.CRITICAL,
        confidence=Confidence.REPORTED,
        summary=summary,
        gpus=gpus,
        evidence=tuple(words.LOG + e.line for e in events[:3]),
        remedy=remedy,
    )


def _ecc(view: HostView) -> Iterator[Finding]:
    events = [e for e in view.kernel(EventKind.ECC_ERROR) if not is_old(view, e)]
    if events:
        yield Finding(
            kind=FindingKind.GPU_FAULT,
            severity=Severity.CRITICAL,
            confidence=Confidence.REPORTED,
            summary="uncorrectable memory (ECC) error reported",
            gpus=tuple(sorted({g for e in events for g in gpus_of_event(view, e)})),
            evidence=tuple(words.LOG + e.line for e in events[:3]),
            remedy=_REMEDY["card"],
        )
    counted = [g for g in view.gpus if g.report.ecc_uncorrected]
    if counted:
        yield Finding(
            kind=FindingKind.GPU_FAULT,
            severity=Severity.WARNING,
            confidence=Confidence.REPORTED,
            summary=f"uncorrectable ECC errors counted on {words.gpus(g.index for g in counted)}",
            gpus=tuple(g.index for g in counted),
            evidence=(
                *(
                    f"{words.SEEN}GPU {g.index}: {g.report.ecc_uncorrected} uncorrectable since the driver was loaded"
                    for g in counted
                ),
                words.NOT_KNOWN + "when they happened, and whether the rows were remapped since",
            ),
            remedy=_REMEDY["card"],
        )


def needs_reset(view: HostView) -> Iterator[Finding]:
    """`gpu_fault`: the driver itself says that a GPU must be reset."""
    asking = [g for g in view.gpus if g.report.error == RESET_ERROR]
    if asking:
        yield Finding(
            kind=FindingKind.GPU_FAULT,
            severity=Severity.CRITICAL,
            confidence=Confidence.REPORTED,
            summary=f"{words.gpus(g.index for g in asking)}: the driver says that a reset is needed",
            gpus=tuple(g.index for g in asking),
            evidence=(words.SEEN + "values answer 'GPU requires reset'; memory may stay taken without a process",),
            remedy=(
                "stop what uses the card, then reset it; where the reset is not supported, power-cycle the host",
                *(f"{words.COMMAND}nvidia-smi -r -i {g.index}" for g in asking),
            ),
        )


RESET_ERROR = "reset_required"
"""`GpuSample.error` of a GPU that answers 'GPU requires reset'."""


def crash_xids(view: HostView) -> tuple[LogEvent, ...]:
    """Fault records that may explain a crash."""
    return tuple(e for e in view.kernel(EventKind.XID) if not is_old(view, e))
