"""Reads the values out of records of the kernel, CUDA, NCCL and monitoring tools. Pure functions."""

from __future__ import annotations

import re

from moetop.engines.rule import Fields

_XID_REST = re.compile(r"pid=(?P<pid>'?[^,']{1,40}'?), name=(?P<name>[^,]{1,80})")
XID_MEANING: dict[int, str] = {
    13: "a kernel faulted, most of the time the program's own error",
    31: "a memory access of the program faulted; repeated on one card, test the card",
    43: "the program stopped on the GPU, most of the time its own error",
    45: "clean-up after an earlier error, not a cause",
    48: "double-bit ECC error in GPU memory",
    62: "internal micro-controller halt",
    63: "a memory row was remapped",
    64: "remapping a memory row failed",
    74: "NVLink error",
    79: "the GPU fell off the bus",
    92: "many single-bit ECC errors",
    94: "contained uncorrectable memory error",
    95: "uncontained uncorrectable memory error",
    109: "a context switch timed out",
    119: "the GPU's system processor (GSP) timed out",
    120: "the GPU's system processor (GSP) failed",
    140: "unrecovered ECC error",
    145: "NVLink error",
    149: "NVLink error",
}
"""NVIDIA's Xid list in short words, docs.nvidia.com/deploy/xid-errors."""


def xid(match: re.Match[str]) -> Fields:
    """An Xid record of the kernel."""
    code = int(match["code"])
    rest = match.string[match.end() : match.end() + 1024]
    fields: Fields = {"code": code, "pci": match["pci"].lower()}
    who = _XID_REST.search(rest)
    if who:
        pid = who["pid"].strip("'")
        fields["pid"] = int(pid) if pid.isascii() and pid.isdigit() else None
        name = who["name"].strip()
        fields["name"] = None if name.strip("'") == "<unknown>" else name
    cause = re.search(r"caused by previous Xid (\d{1,4})", rest)
    fields["root"] = code != 45 and cause is None
    if cause:
        fields["caused_by"] = int(cause[1])
    fields["meaning"] = XID_MEANING.get(code)
    return fields


def pci_address(match: re.Match[str]) -> Fields:
    """A kernel record about a GPU that is gone, spread over lines as the kernel prints it."""
    text = match.string[:2048]
    fields: Fields = {}
    address = re.search(r"GPU(?: at PCI:)? ?([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.\d)?)", text)
    device = re.search(r"\(PCI ID: ([0-9a-f:]+)\)", text)
    if address:
        fields["pci"] = address[1].lower()
    if device:
        fields["pci_id"] = device[1]
    fields["xid"] = None
    return fields


def api_mismatch(match: re.Match[str]) -> Fields:
    """Versions of the client library and of the loaded kernel module."""
    text = match.string[match.start() : match.start() + 1024]
    fields: Fields = {}
    for key, pattern in (
        ("client", r"client(?:'s)? .{0,60}?version (\d[\d.]*\d)"),
        ("kernel_module", r"kernel module .{0,60}?version (\d[\d.]*\d)"),
    ):
        found = re.search(pattern, text)
        if found:
            fields[key] = found[1]
    return fields


def nccl_watchdog(match: re.Match[str]) -> Fields:
    """Which collective timed out; `ran_ms` before the watchdog says when the hang began."""
    rest = match.string[match.end() : match.end() + 1024]
    fields: Fields = {"seq": int(match["seq"]), "op": match["op"]}
    limit = re.search(r"Timeout\(ms\)=\s*(\d+)\)", rest)
    ran = re.search(r"ran for (\d+) milliseconds", rest)
    if limit:
        fields["timeout_ms"] = int(limit[1])
    if ran:
        fields["ran_ms"] = int(ran[1])
    return fields


def alloc_oom(match: re.Match[str]) -> Fields:
    """The allocator's own warning: a failed try that the caller may survive."""
    return {
        "device": int(match["device"]),
        "wanted_bytes": int(match["wanted"]),
        "free_bytes": int(match["free"]) if match["free"] else None,
        "fatal": False,
    }


def listen_address(match: re.Match[str]) -> Fields:
    """Where the HTTP server listens."""
    address = match["address"].rstrip("/")
    port = address.rsplit(":", 1)[-1]
    return {"address": address, "port": int(port)} if port.isascii() and port.isdigit() else {"address": address}


def metric_gap(match: re.Match[str]) -> Fields:
    """A metric an exporter does not collect."""
    return {"metrics": [match["metric"]]} if match["metric"] else {"why": match["why"].strip()}
