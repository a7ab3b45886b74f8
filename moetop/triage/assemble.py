"""Blocks of pasted text -> constants and samples in time. Reads no text and judges nothing.

Blocks complement each other (a dmon listing, then a CSV of the links): what a later block does not
speak of, an earlier one says. Rows with a time make a timeline; of rows without, the last of each GPU
is its state and the earlier ones are history, set so far apart that none shares a window.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from moetop.model import GpuInfo, GpuSample
from moetop.triage.block import INFO_KEYS, SAMPLE_KEYS, Block, PastedRow

SAME_MOMENT_S = 0.5
"""Rows of one sample are printed within this."""

HISTORY_SAMPLES = 600
"""Samples of a GPU kept from before the last ones (judgement: what a chart can show)."""

RECENT_S = 900.0
"""Samples this near the end are all kept."""

MIN_GAP_S = 60.0
"""Distance of rows without a time, at least."""

_EXTRA_KEYS = ("gpm", "processes")


class Timeline(msgspec.Struct, kw_only=True):
    """Constants of each GPU, and samples by time, oldest first."""

    infos: tuple[GpuInfo, ...]
    frames: list[tuple[float, tuple[GpuSample, ...]]]


def assemble(blocks: Sequence[Block], window_s: float) -> Timeline:
    """Join the blocks. `window_s` is the window the samples will be judged over."""
    rows = [row for block in blocks for row in block.rows]
    infos = _infos(rows)
    timed = [row for row in rows if row.t is not None]
    states = _states([row for row in rows if row.t is None])
    frames = _timed_frames(timed, states) if timed else _untimed_frames(blocks, states, max(MIN_GAP_S, 4 * window_s))
    return Timeline(infos=infos, frames=frames)


def _infos(rows: Iterable[PastedRow]) -> tuple[GpuInfo, ...]:
    known: dict[int, dict[str, Any]] = {}
    for row in rows:
        there = known.setdefault(row.index, {})
        there.update({k: v for k, v in row.values.items() if k in INFO_KEYS and v is not None})
    return tuple(GpuInfo(index=index, **_typed(values)) for index, values in sorted(known.items()))


def _typed(values: dict[str, Any]) -> dict[str, Any]:
    whole = ("pcie_gen_max", "pcie_width_max")
    return {k: (int(v) if k in whole else v) for k, v in values.items()}


def _states(rows: Iterable[PastedRow]) -> dict[int, PastedRow]:
    """The last word on every value of every GPU."""
    states: dict[int, PastedRow] = {}
    for row in rows:
        before = states.get(row.index)
        states[row.index] = row if before is None else _over(before, row)
    return states


def _over(under: PastedRow, row: PastedRow) -> PastedRow:
    """`row`, and below it what it does not speak of."""
    kept = {key: why for key, why in under.absent.items() if key not in row.values}
    return PastedRow(
        index=row.index,
        values={**under.values, **row.values},
        absent={**kept, **row.absent},
        error=row.error or under.error,
        t=row.t,
    )


def _sample(row: PastedRow) -> GpuSample:
    values = {k: v for k, v in row.values.items() if (k in SAMPLE_KEYS or k in _EXTRA_KEYS) and v is not None}
    for key in ("pcie_gen", "pcie_width", "ecc_corrected", "ecc_uncorrected", "clock_event_reasons", "last_xid"):
        if key in values:
            values[key] = int(values[key])
    absent = {key: why for key, why in row.absent.items() if key not in values}
    return GpuSample(index=row.index, absent=absent, error=row.error, **values)


def _timed_frames(rows: Sequence[PastedRow], states: dict[int, PastedRow]) -> list[tuple[float, tuple[GpuSample, ...]]]:
    ordered = _thinned(sorted(rows, key=_time))
    last_t = _time(ordered[-1])
    groups: list[tuple[float, dict[int, PastedRow]]] = []
    for row in ordered:
        t = _time(row)
        if not groups or t - groups[-1][0] > SAME_MOMENT_S or row.index in groups[-1][1]:
            groups.append((t, {}))
        under = states.get(row.index)
        groups[-1][1][row.index] = row if under is None else _over(under, row)
    seen = {row.index for row in rows}
    only_states = {index: row for index, row in states.items() if index not in seen}
    groups[-1][1].update(only_states)
    groups[-1] = (last_t, groups[-1][1])
    return [(t, tuple(_sample(row) for _, row in sorted(group.items()))) for t, group in groups]


def _time(row: PastedRow) -> float:
    return row.t if row.t is not None else 0.0


def _thinned(rows: list[PastedRow]) -> list[PastedRow]:
    """All of the last rows; of a long log before them, evenly so many that a chart can show them."""
    border = _time(rows[-1]) - RECENT_S
    old = [row for row in rows if _time(row) < border]
    gpus = len({row.index for row in rows})
    step = max(1, len(old) // (HISTORY_SAMPLES * gpus))
    if step == 1:
        return rows
    counts: dict[int, int] = {}
    kept = []
    for row in old:
        count = counts[row.index] = counts.get(row.index, -1) + 1
        if count % step == 0:
            kept.append(row)
    return kept + rows[len(old) :]


def _untimed_frames(
    blocks: Sequence[Block], states: dict[int, PastedRow], gap_s: float
) -> list[tuple[float, tuple[GpuSample, ...]]]:
    if not states:
        return []
    sweeps: list[dict[int, PastedRow]] = []
    for block in blocks:
        sweep: dict[int, PastedRow] = {}
        for row in block.rows:
            if row.index in sweep:
                sweeps.append(sweep)
                sweep = {}
            sweep[row.index] = row
    step = max(1, len(sweeps) // HISTORY_SAMPLES)
    sweeps = [*sweeps[::step], states]
    return [
        (number * gap_s, tuple(_sample(row) for _, row in sorted(sweep.items()))) for number, sweep in enumerate(sweeps)
    ]
