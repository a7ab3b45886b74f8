"""Reads the Python reprs that engines print as their arguments. Never evaluates them."""

from __future__ import annotations

import ast
import math
import re
from typing import Any

MAX_ARGS = 600
_SECRET = re.compile(r"(?i)(?:^|_)(?:api_?keys?|token|password|passwd|secret|hf_token|auth)$")
_KEY = re.compile(r"\s*(?:(?P<bare>[A-Za-z_]\w*)\s*=|(?P<quote>['\"])(?P<quoted>[^'\"]{1,100})(?P=quote)\s*:)")
_NUMBER = re.compile(r"-?\d{1,18}(?:\.\d{1,18})?(?:e[+-]?\d{1,3})?")
_WORDS = {"None": None, "True": True, "False": False, "null": None, "true": True, "false": False}
_OPEN = {"(": ")", "[": "]", "{": "}"}


def parse_call(text: str, start: int) -> dict[str, Any]:
    """Keyword arguments of `Name(a=1, b='x', ...)`, from after the opening bracket."""
    return _parse_pairs(text, start)


def parse_dict(text: str, start: int) -> dict[str, Any]:
    """Entries of a dict's repr, `start` at its opening brace."""
    return _parse_pairs(text, start + 1)


def _parse_pairs(text: str, at: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    while at < len(text) and len(found) < MAX_ARGS:
        key = _KEY.match(text, at)
        if key is None:
            break
        end = _value_end(text, key.end())
        name = key["bare"] or key["quoted"]
        found[name] = "***" if _SECRET.search(name) and end > key.end() else _value(text[key.end() : end].strip())
        if end >= len(text) or text[end] != ",":
            break
        at = end + 1
    return found


def _value_end(text: str, at: int) -> int:
    """Where the value that starts at `at` ends: the next comma or closing bracket of its own level."""
    depth: list[str] = []
    while at < len(text):
        char = text[at]
        if char in "'\"":
            at = _string_end(text, at)
            continue
        if char in _OPEN:
            depth.append(_OPEN[char])
        elif depth and char == depth[-1]:
            depth.pop()
        elif not depth and char in ",)}]":
            return at
        at += 1
    return at


def _string_end(text: str, at: int) -> int:
    quote = text[at]
    at += 1
    while at < len(text):
        if text[at] == "\\":
            at += 2
            continue
        if text[at] == quote:
            return at + 1
        at += 1
    return at


def _value(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    if _NUMBER.fullmatch(text):
        return float(text) if "." in text or "e" in text else int(text)
    if text[:1] in ("'", '"', "[", "{", "(") and len(text) < 4096:
        try:
            return _plain(ast.literal_eval(text))
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return text
    return text[:4096]


def _plain(value: Any) -> Any:
    """`value` in types that JSON has."""
    if isinstance(value, dict):
        return {
            str(key): "***" if _SECRET.search(str(key)) and item is not None else _plain(item)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple | set):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    return repr(value)
