"""Before and after, side by side: figures with windows and spread, and one of three answers. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

import msgspec

from moetop.model import GpuReport, HostReport, ServerReport, Verdict, Word

LOAD_TOLERANCE = 0.25
"""Running requests of both windows may differ by this share and still count as the same load (judgement)."""
MIN_GAIN = 0.03
"""A smaller change of tokens a second is called no gain (judgement: run-to-run noise of serving benchmarks)."""


class Outcome(Word):
    """What a comparison shows."""

    RETUNED = "retuned"
    NO_GAIN = "no_gain"
    NOT_COMPARABLE = "not_comparable"


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A median over a window with the lowest and highest value seen; None where nothing was."""

    median: float | None = None
    low: float | None = None
    high: float | None = None


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured of one server over a window. `states` is the share of GPU readings in each state."""

    seconds: float
    samples: int
    verdict: Verdict = Verdict.UNKNOWN
    states: dict[str, float] = {}
    tokens_s: Figure = Figure()
    running: Figure = Figure()
    power_w: Figure = Figure()
    tokens_j: Figure = Figure()
    tensor_pct: Figure = Figure()
    dram_pct: Figure = Figure()
    sm_active_pct: Figure = Figure()


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the table, as text; `change` is empty where a ratio says nothing."""

    name: str
    unit: str
    before: str
    after: str
    change: str = ""


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """The table, the answer and the sentence that carries it."""

    outcome: Outcome
    sentence: str
    rows: tuple[Row, ...]
    before: Window
    after: Window


def figure(values: Sequence[float | None]) -> Figure:
    """Median and range of the values there are."""
    there = [value for value in values if value is not None]
    return Figure(median=statistics.median(there), low=min(there), high=max(there)) if there else Figure()


def _server(report: HostReport, name: str) -> ServerReport | None:
    return next((server for server in report.servers if server.name == name), None)


def _gpus(report: HostReport, server: ServerReport | None) -> list[GpuReport]:
    """The server's GPUs; all of the host where it is not known which are its."""
    if server is None or not server.gpus:
        return list(report.gpus)
    return [gpu for gpu in report.gpus if gpu.index in server.gpus]


def _total_power(gpus: Sequence[GpuReport]) -> float | None:
    """Sum over the GPUs; None if any is unknown, because a partial sum would be a wrong number."""
    draws = [gpu.power_w for gpu in gpus]
    known = [draw for draw in draws if draw is not None]
    return sum(known) if known and len(known) == len(draws) else None


def window(reports: Sequence[HostReport], server_name: str, seconds: float) -> Window:
    """Figures of a server from reports taken over `seconds`."""
    rows: list[tuple[ServerReport | None, list[GpuReport]]] = []
    for report in reports:
        server = _server(report, server_name)
        rows.append((server, _gpus(report, server)))
    metrics = [server.metrics if server else None for server, _ in rows]
    tokens = [one.generation_tokens_s if one else None for one in metrics]
    power = [_total_power(gpus) for _, gpus in rows]
    joule = [t / w if t is not None and w else None for t, w in zip(tokens, power, strict=True)]
    states = [str(gpu.state) for _, gpus in rows for gpu in gpus]

    def gpm(read: Callable[[GpuReport], float | None]) -> Figure:
        return figure([_mean([read(gpu) for gpu in gpus]) for _, gpus in rows])

    last = rows[-1][0] if rows else None
    return Window(
        seconds=seconds,
        samples=len(rows),
        verdict=last.tuning.verdict if last else Verdict.UNKNOWN,
        states={state: states.count(state) / len(states) for state in sorted(set(states))} if states else {},
        tokens_s=figure(tokens),
        running=figure([one.running if one else None for one in metrics]),
        power_w=figure(power),
        tokens_j=figure(joule),
        tensor_pct=gpm(lambda gpu: gpu.gpm.tensor_pct if gpu.gpm else None),
        dram_pct=gpm(lambda gpu: gpu.gpm.dram_pct if gpu.gpm else None),
        sm_active_pct=gpm(lambda gpu: gpu.gpm.sm_active_pct if gpu.gpm else None),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return sum(there) / len(there) if there else None


def compare(before: Window, after: Window) -> Proof:
    """Judge a change at like load; "no gain" and "not comparable" are answers."""
    outcome, sentence = _judge(before, after)
    return Proof(outcome=outcome, sentence=sentence, rows=_rows(before, after), before=before, after=after)


def _judge(before: Window, after: Window) -> tuple[Outcome, str]:
    load_before, load_after = before.running.median, after.running.median
    if load_before is None or load_after is None:
        return Outcome.NOT_COMPARABLE, "not comparable: the number of running requests is not known"
    if load_before <= 0 or load_after <= 0:
        which = "before" if load_before <= 0 else "after"
        return Outcome.NOT_COMPARABLE, f"not comparable: no requests were running {which}"
    if abs(load_after - load_before) > LOAD_TOLERANCE * max(load_before, load_after):
        return Outcome.NOT_COMPARABLE, (
            f"not comparable: the load differs ({load_before:g} requests running before, {load_after:g} after)"
        )
    old, new = before.tokens_s.median, after.tokens_s.median
    if not old or new is None:
        return Outcome.NOT_COMPARABLE, "not comparable: the server gives no token rate"
    ratio = new / old
    words = f"{_number(old)} -> {_number(new)} tokens/s at the same load ({ratio:.2f} times)"
    if ratio < 1 + MIN_GAIN:
        return Outcome.NO_GAIN, f"no gain: {words}"
    if before.tokens_s.high is not None and new <= before.tokens_s.high:
        return Outcome.NO_GAIN, f"no gain beyond the spread of the samples before: {words}"
    return Outcome.RETUNED, words


def _rows(before: Window, after: Window) -> tuple[Row, ...]:
    table = (
        ("tokens a second", "tokens/s", before.tokens_s, after.tokens_s),
        ("tokens a joule", "tokens/J", before.tokens_j, after.tokens_j),
        ("running requests", "", before.running, after.running),
        ("power", "W", before.power_w, after.power_w),
        ("tensor activity", "%", before.tensor_pct, after.tensor_pct),
        ("DRAM activity", "%", before.dram_pct, after.dram_pct),
        ("SM activity", "%", before.sm_active_pct, after.sm_active_pct),
    )
    head = (
        Row(name="tuning", unit="", before=str(before.verdict), after=str(after.verdict)),
        Row(name="GPU state", unit="", before=_share(before.states), after=_share(after.states)),
    )
    rows = [
        Row(name=name, unit=unit, before=_cell(old), after=_cell(new), change=_change(old, new))
        for name, unit, old, new in table
    ]
    tail = Row(name="window", unit="s", before=f"{before.seconds:g} ({before.samples} samples)",
               after=f"{after.seconds:g} ({after.samples} samples)")  # fmt: skip
    return (*head, *rows, tail)


def _number(value: float | None) -> str:
    """Four digits, never an exponent; a dash is "not available"."""
    if value is None:
        return "—"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _cell(value: Figure) -> str:
    """Median and range; a dash is "not available"."""
    if value.median is None:
        return "—"
    spread = "" if value.low == value.high else f" ({_number(value.low)}..{_number(value.high)})"
    return _number(value.median) + spread


def _change(before: Figure, after: Figure) -> str:
    if not before.median or after.median is None:
        return ""
    return f"{(after.median / before.median - 1) * 100:+.0f} %"


def _share(states: dict[str, float]) -> str:
    ordered = sorted(states.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{state} {share * 100:.0f} %" for state, share in ordered[:3]) or "—"
