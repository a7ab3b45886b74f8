"""Snapshot to CSV: one row a GPU, a row without GPU values for a host that has none to show."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any

from moetop.export.plainform import keys_of, to_plain
from moetop.model import Gpm, GpuReport, Snapshot
from moetop.text import plain

HOST_COLUMNS = (
    ("host", "name"), ("headline", "headline"), ("status", "status"), ("host_error", "error"), ("driver", "driver"),
    ("source", "source"),
)  # fmt: skip
"""Column and the host's key it shows; `name` and `error` of the GPU keep their names."""

_NOT_SCALAR = frozenset({"evidence", "limits", "gpm", "processes", "absent"})
GPU_COLUMNS = tuple(name for name in keys_of(GpuReport) if name not in _NOT_SCALAR)
GPM_COLUMNS = tuple(f"gpm_{name}" for name in Gpm.__struct_fields__)
COLUMNS = (
    *(column for column, _ in HOST_COLUMNS), *GPU_COLUMNS, "limits", *GPM_COLUMNS, "taken_at", "window_s",
)  # fmt: skip
"""Every column in order. New ones go to the end of their part."""

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def _cell(value: Any) -> str:
    """A value as a cell. Text that a spreadsheet would run as a formula is made text by a quote."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    text = plain(str(value))
    return f"'{text}" if text.startswith(_FORMULA) else text


def _rows(snapshot: dict[str, Any]) -> Iterator[list[str]]:
    for host in snapshot["hosts"]:
        head = [_cell(host[key]) for _, key in HOST_COLUMNS]
        tail = [_cell(snapshot["taken_at"]), _cell(snapshot["window_s"])]
        for gpu in host["gpus"] or [None]:
            if gpu is None:
                yield [*head, *("" for _ in (*GPU_COLUMNS, "limits", *GPM_COLUMNS)), *tail]
                continue
            gpm = gpu["gpm"] or {}
            yield [
                *head,
                *(_cell(gpu[name]) for name in GPU_COLUMNS),
                _cell(" ".join(gpu["limits"])),
                *(_cell(gpm.get(name.removeprefix("gpm_"))) for name in GPM_COLUMNS),
                *tail,
            ]


def write_csv(snapshot: Snapshot) -> bytes:
    """The snapshot as CSV with a header line; an absent value is an empty cell."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(_rows(to_plain(snapshot)))
    return text.getvalue().encode("utf-8")
