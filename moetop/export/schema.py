"""The JSON Schema of a snapshot, made from the model and tightened to what the writer really writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from moetop import model
from moetop.export.plainform import keys_of

SCHEMA_ID = "moetop.snapshot/1"
_TAKEN_AT = (
    "Epoch seconds: now, or of a recording its newest sample's. null where a recording's times are no epoch seconds, "
    "and for pasted text, whose times have no zone."
)
_NOT_NEGATIVE = ("_pct", "_w", "_mib", "_mhz", "_mib_s", "tokens_s")
_NOT_NEGATIVE_NAMES = frozenset(
    {"index", "pid", "count", "n", "size", "window_s", "running", "waiting", "ecc_uncorrected"}
)


def _structs() -> dict[str, type[msgspec.Struct]]:
    return {
        name: value
        for name, value in vars(model).items()
        if isinstance(value, type) and issubclass(value, msgspec.Struct)
    }


def _tighten(name: str, cls: type[msgspec.Struct], definition: dict[str, Any]) -> None:
    """Every key is always written, in order; numbers that cannot be negative are not."""
    keys = keys_of(cls)
    properties = {key: definition["properties"][key] for key in keys}
    for key, value in properties.items():
        value.pop("default", None)
        if key in _NOT_NEGATIVE_NAMES or key.endswith(_NOT_NEGATIVE):
            for branch in value.get("anyOf", [value]):
                if branch.get("type") in ("number", "integer"):
                    branch["minimum"] = 0
    definition["properties"] = properties
    definition["required"] = list(keys)
    if name in ("Snapshot", "HostReport"):
        words = [*(kind.value for kind in model.FindingKind), *(calm.value for calm in model.Calm)]
        properties["headline"] = {"enum": words}
    if name == "Snapshot":
        properties["schema"] = {"const": SCHEMA_ID}
        properties["taken_at"]["description"] = _TAKEN_AT


def snapshot_schema() -> dict[str, Any]:
    """The schema as JSON values. Objects may gain keys later; readers ignore keys they do not know."""
    (made,), definitions = msgspec.json.schema_components([model.Snapshot], ref_template="#/$defs/{name}")
    for name, cls in _structs().items():
        if name in definitions:
            _tighten(name, cls, definitions[name])
    for definition in definitions.values():
        definition.pop("title", None)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "moetop snapshot",
        "description": "What `moetop --snapshot` writes. null is 'not available', never zero. " + _UNITS,
        **made,
        "$defs": dict(sorted(definitions.items())),
    }


_UNITS = "Units stand in the names; times are epoch seconds, or counted from the zero of a recording."


def main() -> None:
    """Write docs/snapshot.schema.json (`make schema`)."""
    target = Path(__file__).parents[2] / "docs" / "snapshot.schema.json"
    target.write_bytes(msgspec.json.format(msgspec.json.encode(snapshot_schema()), indent=2) + b"\n")


if __name__ == "__main__":
    main()
