"""Reads the time stamps that logs print. Epoch seconds only where year and zone are printed."""

from __future__ import annotations

import re
from datetime import datetime, timezone

_MONTHS = {
    "Jan": 1,
    "Feb": 2,
    "Mar": 3,
    "Apr": 4,
    "May": 5,
    "Jun": 6,
    "Jul": 7,
    "Aug": 8,
    "Sep": 9,
    "Oct": 10,
    "Nov": 11,
    "Dec": 12,
}
_ISO = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))? ?(Z|[+-]\d\d:?\d\d)?",
)
_MONTH_DAY = re.compile(r"(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)()")
_US = re.compile(r"(\d\d)/(\d\d)/(\d{4})-(\d\d):(\d\d):(\d\d)")
_GLOG = re.compile(r"(\d{1,2})(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?")
_SYSLOG = re.compile(r"([A-Z][a-z]{2}) +(\d{1,2}) (\d\d):(\d\d):(\d\d)")


def glog_time(text: str | None) -> str | None:
    """Month and day of `210 02:06:33.3` (or `0210 ...`) written apart: `02-10 02:06:33.3`; other text as it is."""
    short = _GLOG.match(text) if text else None
    return f"{int(short[1]):02d}-{short[2]}{text[short.end(2) :]}" if text and short else text


LEAP_YEAR = 2000
"""Stands in where a log prints no year: only differences of such times are used."""


def read_time(text: str) -> tuple[float | None, float | None]:
    """`(epoch, clock)` of a printed time: epoch needs year and zone, clock is for differences only."""
    try:
        return _read(text)
    except (ValueError, OverflowError):
        return None, None


def _read(text: str) -> tuple[float | None, float | None]:
    iso = _ISO.match(text)
    if iso:
        seconds = _utc(int(iso[1]), int(iso[2]), int(iso[3]), iso[4], iso[5], iso[6], iso[7])
        if iso[8] is None:
            return None, seconds
        return seconds - _offset(iso[8]), seconds
    us = _US.match(text)
    if us:
        return None, _utc(int(us[3]), int(us[1]), int(us[2]), us[4], us[5], us[6], None)
    short = _MONTH_DAY.match(text) or _GLOG.match(text)
    if short:
        return None, _utc(LEAP_YEAR, int(short[1]), int(short[2]), short[3], short[4], short[5], short[6])
    syslog = _SYSLOG.match(text)
    if syslog and syslog[1] in _MONTHS:
        return None, _utc(LEAP_YEAR, _MONTHS[syslog[1]], int(syslog[2]), syslog[3], syslog[4], syslog[5], None)
    return None, None


def _utc(year: int, month: int, day: int, hour: str, minute: str, second: str, fraction: str | None) -> float:
    whole = datetime(year, month, day, int(hour), int(minute), min(int(second), 59), tzinfo=timezone.utc).timestamp()
    return whole + (float(f"0.{fraction}") if fraction else 0.0)


def _offset(zone: str) -> float:
    if zone == "Z":
        return 0.0
    sign = -1 if zone[0] == "-" else 1
    digits = zone[1:].replace(":", "")
    return sign * (int(digits[:2]) * 3600.0 + int(digits[2:]) * 60.0)
