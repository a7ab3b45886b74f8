"""Times as the NVIDIA tools print them -> seconds. The text has no zone: UTC is assumed for all."""

from __future__ import annotations

from datetime import datetime, timezone

_FORMATS = (
    "%Y/%m/%d %H:%M:%S.%f",  # nvidia-smi --query-gpu=timestamp
    "%Y/%m/%d %H:%M:%S",
    "%Y%m%d %H:%M:%S",  # nvidia-smi dmon -o DT
    "%a %b %d %H:%M:%S %Y",  # the line above the plain table
    "%Y-%m-%d %H:%M:%S.%f",
    "%Y-%m-%d %H:%M:%S",
)


def read_time(text: str | None) -> float | None:
    """Seconds of a printed time, or None."""
    if not text:
        return None
    plain = " ".join(text.split())[:40]
    for form in _FORMATS:
        try:
            return datetime.strptime(plain, form).replace(tzinfo=timezone.utc).timestamp()
        except ValueError:
            continue
    return None
