"""Hosts beside each other: the one of equals that differs. Reads reports, gives reports."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import msgspec

from moetop.diagnose.crossgpu import Equal, find_straggler
from moetop.diagnose.findings_gpu import straggler_finding
from moetop.diagnose.headline import host_headline, sort_findings
from moetop.model import HostReport
from moetop.text import plain


def compare_hosts(reports: Sequence[HostReport]) -> tuple[HostReport, ...]:
    """The same reports, with a `straggler` finding on the host that does the same as at least two
    others for clearly less power. Hosts are equals with the same GPUs and, where known, the same model.
    A host whose GPUs are those of another one, which it is under another name, has a note of that."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for place, report in enumerate(reports):
        if report.gpus:
            groups.setdefault(_kind_of(report), []).append(place)
    changed = _noted_twins(reports)
    for places in groups.values():
        slow = find_straggler([_equal(reports[place], place) for place in places])
        if slow is None:
            continue
        report = changed[slow.key]
        gpus = tuple(g.index for g in report.gpus)
        finding = straggler_finding(slow, f"host {report.name}", len(places), gpus)
        findings = sort_findings((*report.findings, finding))
        changed[slow.key] = msgspec.structs.replace(
            report, findings=findings, headline=host_headline(findings, report.gpus, report.servers)
        )
    return tuple(changed)


def _noted_twins(reports: Sequence[HostReport]) -> list[HostReport]:
    owners: dict[str, str] = {}
    noted = []
    for report in reports:
        ids = [gpu.uuid for gpu in report.gpus if gpu.uuid]
        twin = next((owners[uuid] for uuid in ids if uuid in owners), None)
        if twin is not None:
            words = f"its GPUs are those of {plain(twin, 80)}: one machine under two names, counted twice"
            noted.append(msgspec.structs.replace(report, notes=(*report.notes, words)))
        else:
            noted.append(report)
        for uuid in ids:
            owners.setdefault(uuid, report.name)
    return noted


def _kind_of(report: HostReport) -> tuple[object, ...]:
    models = sorted({str(s.args.get("model_path") or s.args.get("model") or "") for s in report.servers})
    return (*(g.name for g in report.gpus), *models)


def _equal(report: HostReport, place: int) -> Equal:
    gpus = report.gpus
    utils = [g.util_gpu_pct for g in gpus]
    powers = [g.power_w for g in gpus]
    used = [g.memory_used_mib for g in gpus]
    clocks = [g.sm_clock_mhz for g in gpus if g.sm_clock_mhz is not None]
    return Equal(
        key=place,
        name=gpus[0].name,
        util_pct=min((u for u in utils if u is not None), default=None) if None not in utils else None,
        power_w=sum(p for p in powers if p is not None) if None not in powers else None,
        clock_mhz=statistics.median(clocks) if clocks else None,
        memory_mib=sum(m for m in used if m is not None) if None not in used else None,
    )
