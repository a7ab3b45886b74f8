"""Text of the pages: why, host, GPU, server, findings, jobs, help. Pure: values in, pieces of lines out."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from itertools import chain, repeat

from moetop.model import (
    Confidence,
    Finding,
    GpuReport,
    Severity,
)
from moetop.ui import fmt
from moetop.ui.paint import clean
from moetop.ui.scene import HostView, gpu_sign, host_words, no_server_words
from moetop.ui.words import (
    CONFIDENCE_WORDS,
    FINDING_TITLES,
    LIMIT_WORDS,
    LINK_WORDS,
    PHASE_SIGNS,
    QUIET_LIMITS,
    SEVERITY_SIGNS,
    VERDICT_SIGNS,
)

Page = list[list[tuple[str, str]]]
"""Lines of pieces: text and colour role (`role!` is bold)."""

LABEL_CELLS = 13
COMMAND = "$ "
EVIDENCE_LABELS = ("Seen", "Compared", "Ruled out", "Log", "Server", "Files", "Not known")
"""Labels that diagnosis puts before its sentences, in the order a person reads them."""

RETUNE_WORD = "r: retune and restart"

CONFIDENCE_ROLES = {Confidence.MEASURED: "text!", Confidence.REPORTED: "text", Confidence.INFERRED: "quiet"}


def blank() -> list[tuple[str, str]]:
    """An empty line."""
    return []


def head(text: str) -> list[tuple[str, str]]:
    """A section's title."""
    return [(text, "accent!")]


def labelled(label: str, text: str, width: int, role: str = "text") -> Page:
    """`label   text`, wrapped under itself."""
    room = max(20, width - LABEL_CELLS - 3)
    parts = textwrap.wrap(clean(text, 3000), room, break_long_words=True, break_on_hyphens=False) or [fmt.ABSENT]
    lines: Page = []
    for at, part in enumerate(parts):
        name = f"{clean(label, 60)[: LABEL_CELLS - 1]:<{LABEL_CELLS}}" if at == 0 else " " * LABEL_CELLS
        lines.append([(name, "quiet"), (part, role)])
    return lines


# ── why ──────────────────────────────────────────────────────────────────────────────────────────


def split_label(sentence: str, otherwise: str = "Seen") -> tuple[str, str]:
    """`Seen: x` into its label and the rest; a sentence without a label gets `otherwise`."""
    label, colon, rest = sentence.partition(": ")
    return (label, rest) if colon and label in EVIDENCE_LABELS else (otherwise, sentence)


def commands_of(finding: Finding) -> list[str]:
    """Commands of a remedy, ready to copy."""
    return [line[len(COMMAND) :] for line in finding.remedy if line.startswith(COMMAND)]


def finding_page(host: str, finding: Finding, width: int, retune_word: str | None = None) -> Page:
    """Why: what was seen, compared, ruled out, what is not known, what to do."""
    sign = SEVERITY_SIGNS[finding.severity]
    where = f" · gpu {_ranges(finding.gpus)}" if finding.gpus else ""
    title = FINDING_TITLES.get(finding.kind, finding.kind.value)
    page: Page = [
        [
            (f"{sign.glyph} ", f"{sign.role}!"),
            (f"{clean(host, 60)} · {title}", "text!"),
            (where, "quiet"),
            (f"   {finding.severity.value}", sign.role),
            (f"   {finding.confidence.value}", CONFIDENCE_ROLES[finding.confidence]),
        ]
    ]
    page += [[(part, "text")] for part in textwrap.wrap(clean(finding.summary, 2000), max(20, width - 4))]
    groups: dict[str, list[str]] = {}
    for sentence in finding.evidence:
        label, rest = split_label(sentence)
        groups.setdefault(label, []).append(rest)
    for label in EVIDENCE_LABELS:
        for at, rest in enumerate(groups.get(label, ())):
            page += labelled(label if at == 0 else "", rest, width)
    number, label = 0, "Do"
    for line in finding.remedy:
        if line.startswith(COMMAND):
            page += labelled(label, line, width, "accent")
        else:
            number += 1
            page += labelled(label, f"{number}  {line}", width, "text!" if number == 1 else "text")
        label = ""
    if retune_word is not None:
        page += labelled(label, retune_word, width, "accent" if retune_word == RETUNE_WORD else "quiet")
    if commands_of(finding):
        page += labelled("", "c copies the commands", width, "quiet")
    page += labelled("How sure", CONFIDENCE_WORDS[finding.confidence], width, "quiet")
    return page


def _ranges(numbers: Iterable[int]) -> str:
    there = sorted(set(numbers))
    if not there:
        return ""
    if len(there) > 2 and there[-1] - there[0] == len(there) - 1:
        return f"{there[0]}-{there[-1]}"
    return ", ".join(str(number) for number in there)


# ── host and GPU ─────────────────────────────────────────────────────────────────────────────────


def connection_lines(host: HostView, t: float, width: int) -> Page:
    """The connection: since when it is as it is, why, what helps, and when a lost host is tried again."""
    link, sign = host.link, LINK_WORDS[host.link.phase]
    since = f" for {fmt.span(t - link.since_t)}" if link.since_t is not None else ""
    page = labelled("link", f"{sign.glyph} {sign.word}{since}", width, sign.role)
    if link.reason:
        page += labelled("reason", link.reason, width)
    if link.advice:
        page += labelled("what helps", link.advice, width, "accent")
    if host.lost:
        again = f"in {fmt.span(link.next_try_t - t)}" if link.next_try_t is not None else "not by itself"
        page += labelled("next try", f"{again}; R tries now", width)
    return page


def link_page(host: HostView, t: float, width: int) -> Page:
    """Connection, driver, host load, and what could not be seen."""
    report = host.report
    page: Page = [head("Host"), *connection_lines(host, t, width)]
    if report.error:
        page += labelled("error", report.error, width, "critical")
    if report.driver or report.source:
        page += labelled("driver", f"{report.driver or fmt.ABSENT}   read by {report.source or fmt.ABSENT}", width)
    load = report.load
    if load is not None:
        memory = fmt.of(fmt.gib(load.memory_used_mib), fmt.gib(load.memory_total_mib))
        page += labelled(
            "load", f"cpu {fmt.number(load.cpu_pct)} %   load {fmt.number(load.load1, 1)}   memory {memory} GiB", width
        )
    for status in host.statuses.values():
        if status.level != "info" or status.fatal:
            role = "warning" if status.level == "warning" else "critical"
            page += labelled(status.code.replace("_", " "), status.message, width, role)
    for note in report.notes:
        page += labelled("note", note, width, "quiet")
    return page


def gpu_values(gpu: GpuReport) -> list[tuple[str, str, str]]:
    """Names and values of a GPU, and the key under which an absence has its reason."""
    gpm = gpu.gpm

    def unit(value: float | None, suffix: str) -> str:
        return fmt.ABSENT if value is None else f"{value:,.0f}{suffix}"

    limit = unit(gpu.power_limit_w, " W")
    if gpu.power_limit_default_w is not None and gpu.power_limit_default_w != gpu.power_limit_w:
        limit += f" (default {gpu.power_limit_default_w:,.0f} W)"
    clock = unit(gpu.sm_clock_mhz, " MHz")
    if gpu.sm_clock_max_mhz is not None and gpu.sm_clock_mhz is not None:
        clock += f" of {gpu.sm_clock_max_mhz:,.0f}"
    memory = fmt.of(fmt.gib(gpu.memory_used_mib), fmt.gib(gpu.memory_total_mib))
    floats = (gpm.fp16_pct, gpm.fp32_pct, gpm.fp64_pct) if gpm else ()
    pct = fmt.power_pct(gpu)
    return [
        ("utilization", unit(gpu.util_gpu_pct, " %"), "util_gpu_pct"),
        ("memory util", unit(gpu.util_mem_pct, " %"), "util_mem_pct"),
        ("power", unit(gpu.power_w, " W"), "power_w"),
        ("power limit", limit, "power_limit_w"),
        (
            "power %",
            fmt.ABSENT if pct is None else f"{pct:.0f} % of the limit in force",
            "power_w" if gpu.power_w is None else "power_limit_w",
        ),
        ("SM active", unit(gpm.sm_active_pct if gpm else None, " %"), "gpm"),
        ("tensor", unit(gpm.tensor_pct if gpm else None, " %"), "gpm"),
        ("DRAM", unit(gpm.dram_pct if gpm else None, " %"), "gpm"),
        ("occupancy", unit(gpm.sm_occupancy_pct if gpm else None, " %"), "gpm"),
        (
            "FP16/32/64",
            " ".join(map(fmt.number, floats)) + " %" if any(v is not None for v in floats) else fmt.ABSENT,
            "gpm",
        ),
        ("SM clock", clock, "sm_clock_mhz"),
        ("memory clock", unit(gpu.mem_clock_mhz, " MHz"), "mem_clock_mhz"),
        ("temperature", unit(gpu.temp_c, " °C"), "temp_c"),
        ("memory temp", unit(gpu.memory_temp_c, " °C"), "memory_temp_c"),
        ("memory", memory if memory == fmt.ABSENT else f"{memory} GiB", "memory_used_mib"),
        ("PCIe", _pcie(gpu), "pcie_gen"),
        ("PCIe rx tx", _rates(gpm.pcie_rx_mib_s, gpm.pcie_tx_mib_s) if gpm else fmt.ABSENT, "gpm"),
        ("NVLink rx tx", _rates(gpm.nvlink_rx_mib_s, gpm.nvlink_tx_mib_s) if gpm else fmt.ABSENT, "gpm"),
        ("ECC", unit(gpu.ecc_uncorrected, " uncorrected"), "ecc_uncorrected"),
        ("MIG", fmt.ABSENT if gpu.mig is None else "on" if gpu.mig else "off", "mig"),
    ]


def _absences(gpu: GpuReport, values: Sequence[tuple[str, str, str]], width: int) -> Page:
    """Why values are missing, each reason once with the values it keeps away."""
    missing: dict[str, list[str]] = {}
    for name, text, key in values:
        if text == fmt.ABSENT and (key != "gpm" or gpu.gpm is None):
            missing.setdefault(gpu.absent.get(key) or "not given by this source", []).append(name)
    page: Page = []
    for label, (why, names) in zip(chain(("absent",), repeat("")), missing.items(), strict=False):
        page += labelled(label, f"{', '.join(names)}: {clean(why, 200)}", width, "quiet")
    return page


def _rates(rx: float | None, tx: float | None) -> str:
    if rx is None and tx is None:
        return fmt.ABSENT
    return f"{fmt.ABSENT if rx is None else f'{rx:,.0f}'} / {fmt.ABSENT if tx is None else f'{tx:,.0f}'} MiB/s"


def _pcie(gpu: GpuReport) -> str:
    if gpu.pcie_gen is None and gpu.pcie_width is None:
        return fmt.ABSENT
    now = f"gen {gpu.pcie_gen or fmt.ABSENT} x{gpu.pcie_width or fmt.ABSENT}"
    if gpu.pcie_gen_max is None and gpu.pcie_width_max is None:
        return now
    return f"{now} of gen {gpu.pcie_gen_max or fmt.ABSENT} x{gpu.pcie_width_max or fmt.ABSENT}"


def gpu_page(gpu: GpuReport, width: int) -> Page:
    """State with its evidence, values, limits, processes, identity."""
    sign = gpu_sign(gpu)
    page: Page = [
        [
            ("State        ", "accent!"),
            (f"{sign.glyph} {sign.word}", f"{sign.role}!"),
            (f"   {sign.meaning}", "text"),
            ("" if gpu.error else f"   {gpu.confidence.value}", CONFIDENCE_ROLES[gpu.confidence]),
        ]
    ]
    for sentence in gpu.evidence:
        label, rest = split_label(sentence)
        page += labelled(label, rest, width)
    if gpu.error:
        page += labelled("error", gpu.error.replace("_", " "), width, "critical")
        for why in dict.fromkeys(gpu.absent.values()):
            page += labelled("", why, width, "quiet")
    for limit in gpu.limits:
        role = "text" if limit in QUIET_LIMITS else "warning"
        page += labelled("limit", LIMIT_WORDS[limit][1], width, role)
    if gpu.error is None:
        values = gpu_values(gpu)
        page += [blank(), head("Values (medians over the window)")]
        page += [*two_columns([(name, text) for name, text, _ in values], width), *_absences(gpu, values, width)]
        page += [blank(), *_process_page(gpu, width)]
    page += [blank(), head("Identity")]
    page += labelled("name", gpu.name or fmt.ABSENT, width)
    page += labelled("uuid", gpu.uuid or fmt.ABSENT, width)
    page += labelled("PCI", gpu.pci_bus_id or fmt.ABSENT, width)
    return page


def two_columns(values: Sequence[tuple[str, str]], width: int) -> Page:
    """Names and values, in two or three columns where the width allows."""
    count = 3 if width >= 150 else 2 if width >= 76 else 1
    rows = -(-len(values) // count)
    cell = width // count
    page: Page = []
    for row in range(rows):
        line: list[tuple[str, str]] = []
        for column in range(count):
            at = column * rows + row
            if at < len(values):
                name, value = values[at]
                room = cell - LABEL_CELLS - 2
                shown = value if len(value) <= room else value[: room - 1] + "…"
                role = "quiet" if value.startswith(fmt.ABSENT) else "text"
                line += [(f"{name:<{LABEL_CELLS}}", "quiet"), (f"{shown:<{room + 2}}", role)]
        page.append(line)
    return page


def _process_page(gpu: GpuReport, width: int) -> Page:
    page: Page = [head("Processes")]
    if gpu.processes is None:
        return page + labelled("", gpu.absent.get("processes") or "not listed by this source", width, "quiet")
    if not gpu.processes:
        return page + labelled("", "none seen", width, "quiet")
    page.append([(f"{'pid':>9}  {'user':<12} {'MiB':>8}  name", "quiet")])
    for process in gpu.processes[:64]:
        name = clean(process.name or "— (not permitted to look)", 300)
        user = clean(process.user or fmt.ABSENT, 40)[:12]
        memory = fmt.ABSENT if process.memory_used_mib is None else f"{process.memory_used_mib:,.0f}"
        page.append([(f"{process.pid:>9}  {user:<12} {memory:>8}  ", "text"), (name, "text")])
    return page


def host_page(host: HostView, t: float, width: int) -> Page:
    """Servers and GPUs of a host in a line each."""
    page: Page = [head("Servers")]
    if not host.report.servers:
        page += labelled("", no_server_words(host), width, "quiet")
    for server in host.report.servers:
        phase, verdict = PHASE_SIGNS[server.phase], VERDICT_SIGNS[server.tuning.verdict]
        page.append(
            [
                (f"{clean(server.name, 40):<24} ", "text!"),
                (f"{phase.glyph} {phase.word:<16} ", phase.role),
                ("tuning ", "quiet"),
                (f"{verdict.glyph} {verdict.word}", verdict.role),
            ]
        )
    page += [blank(), head("GPUs")]
    for gpu in host.report.gpus:
        sign = gpu_sign(gpu)
        why = "; ".join(split_label(sentence)[1] for sentence in gpu.evidence[:2])
        page.append(
            [
                (f"{gpu.index:>3} {fmt.gpu_name(gpu.name)[:20]:<20} ", "text"),
                (f"{sign.glyph} {sign.word:<12} ", sign.role),
                (clean(why, 300), "quiet"),
            ]
        )
    if not host.report.gpus:
        page += labelled("", host_words(host, t) or "none", width, "quiet")
    return page


# ── help ─────────────────────────────────────────────────────────────────────────────────────────


def sign_legend(entries: Iterable[tuple[str, str, str, str]]) -> Page:
    """Glyph, word, role and meaning in a line each."""
    return [
        [(f"{glyph} ", role), (f"{word:<14}", role), (clean(meaning, 200), "text")]
        for glyph, word, role, meaning in entries
    ]


def severity_order(finding: Finding) -> int:
    """Critical first."""
    return [Severity.CRITICAL, Severity.WARNING, Severity.INFO].index(finding.severity)
