"""Snapshot to JSON: one document, or one line for `--every`. Never holds NaN or a secret."""

from __future__ import annotations

import json
import re

import msgspec

from moetop.export.plainform import to_plain
from moetop.model import Snapshot

_NOT_ON_A_TERMINAL = re.compile("[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
"""Characters that JSON may hold as they are but that steer a terminal: written as escapes, which mean the same."""


def _harmless(document: bytes) -> bytes:
    text = document.decode()
    return _NOT_ON_A_TERMINAL.sub(lambda found: json.dumps(found[0])[1:-1].replace("\x7f", "\\u007f"), text).encode()


def write_json_line(snapshot: Snapshot) -> bytes:
    """The snapshot as one line of JSON with its line end."""
    return _harmless(msgspec.json.encode(to_plain(snapshot))) + b"\n"


def write_json(snapshot: Snapshot) -> bytes:
    """The snapshot as indented JSON (docs/snapshot.schema.json)."""
    return _harmless(msgspec.json.format(msgspec.json.encode(to_plain(snapshot)), indent=2)) + b"\n"
