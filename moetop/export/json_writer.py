"""Snapshot to JSON: one document, or one line for `--every`. Never holds NaN or a secret."""

from __future__ import annotations

import msgspec

from moetop.export.plainform import to_plain
from moetop.model import Snapshot


def write_json_line(snapshot: Snapshot) -> bytes:
    """The snapshot as one line of JSON with its line end."""
    return msgspec.json.encode(to_plain(snapshot)) + b"\n"


def write_json(snapshot: Snapshot) -> bytes:
    """The snapshot as indented JSON (docs/snapshot.schema.json)."""
    return msgspec.json.format(msgspec.json.encode(to_plain(snapshot)), indent=2) + b"\n"
