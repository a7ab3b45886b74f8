"""Snapshot to SVG: a picture of the screen. The only part outside `ui` that loads Textual."""

from __future__ import annotations

from moetop.errors import UsageError
from moetop.model import Snapshot


def write_svg(snapshot: Snapshot) -> bytes:
    """A picture of the fleet screen with this snapshot on it. Raises UsageError where it cannot be drawn."""
    try:
        from moetop.ui.app import render_svg
    except ImportError as error:
        raise UsageError(f"the picture cannot be drawn: {error}", "use --format json, csv or md") from None
    text: str = render_svg(snapshot)
    return text.encode("utf-8")
