"""A node tree checked against the schema's types; every error names file, line and key. Knows no key by itself."""

from __future__ import annotations

import dataclasses
import difflib
import math
import types
import typing
from functools import cache
from typing import Any, Literal, TypeVar, Union

from moetop.config.document import Mapping, Node, Scalar, Sequence
from moetop.config.schema import Between, Form
from moetop.errors import UsageError
from moetop.text import plain

T = TypeVar("T")

_KIND_WORDS = {"str": "text", "int": "a whole number", "float": "a number", "bool": "true or false", "null": "nothing"}


@cache
def _hints(cls: Any) -> dict[str, Any]:
    return {
        name: hint
        for name, hint in typing.get_type_hints(cls, include_extras=True).items()
        if typing.get_origin(hint) is not typing.ClassVar
    }


def _found(node: Node) -> str:
    if isinstance(node, Mapping):
        return "a table of keys"
    if isinstance(node, Sequence):
        return "a list"
    return _KIND_WORDS[node.kind]


class Binder:
    """Binds the nodes of one file. `lines` remembers on which line each dotted key stands."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.lines: dict[str, int] = {}

    def fail(self, line: int, key: str, message: str, advice: str | None = None) -> UsageError:
        """The error for `key` (dotted, as in `hosts[0].port`; empty for the file itself)."""
        where = f"{self.file}:{line}: " + (f"{key}: " if key else "")
        return UsageError(where + message, advice)

    def bind(self, node: Node, cls: type[T], key: str = "") -> T:
        """`node` as an instance of the dataclass `cls`. Raises UsageError."""
        shorthand = getattr(cls, "shorthand", None)
        if shorthand is not None and not isinstance(node, Mapping):
            hint = _hints(typing.cast(Any, cls))[shorthand]
            listed = typing.get_origin(_bare(hint)) is tuple
            if isinstance(node, Sequence) == listed:
                value = self._value(node, hint, key)
                return self._make(node, cls, {shorthand: value}, key)
        if not isinstance(node, Mapping):
            raise self.fail(node.line, key, f"expected a table of keys, found {_found(node)}")
        hints = _hints(typing.cast(Any, cls))
        values = {}
        for name, value in node.items:
            path = f"{key}.{plain(name.text, 60)}" if key else plain(name.text, 60)
            if name.text not in hints:
                raise self.fail(name.line, path, "unknown key", _suggest(name.text, tuple(hints)))
            if isinstance(value, Scalar) and value.kind == "null":
                continue
            values[name.text] = self._value(value, hints[name.text], path)
        return self._make(node, cls, values, key)

    def _make(self, node: Node, cls: type[T], values: dict[str, Any], key: str) -> T:
        for field in dataclasses.fields(typing.cast(Any, cls)):
            required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
            if required and field.name not in values:
                raise self.fail(node.line, key, f"{field.name} is missing")
        try:
            return cls(**values)
        except ValueError as error:
            raise self.fail(node.line, key, str(error)) from None

    def _value(self, node: Node, hint: Any, key: str) -> Any:
        self.lines[key] = node.line
        hint = _without_none(hint)
        checks: tuple[Any, ...] = ()
        if typing.get_origin(hint) is typing.Annotated:
            hint, *rest = typing.get_args(hint)
            checks = tuple(rest)
        origin = typing.get_origin(hint)
        if origin is Literal:
            return self._choice(node, typing.get_args(hint), key)
        if origin is tuple:
            if not isinstance(node, Sequence):
                raise self.fail(node.line, key, f"expected a list, found {_found(node)}")
            item_hint = typing.get_args(hint)[0]
            return tuple(self._value(item, item_hint, f"{key}[{n}]") for n, item in enumerate(node.items))
        if origin is dict:
            return self._table(node, typing.get_args(hint), key)
        if dataclasses.is_dataclass(hint):
            return self.bind(node, typing.cast(Any, hint), key)
        value = self._scalar(node, hint, key)
        for check in checks:
            self._check(node, value, check, key)
        return value

    def _table(self, node: Node, hints: tuple[Any, Any], key: str) -> dict[str, Any]:
        if not isinstance(node, Mapping):
            raise self.fail(node.line, key, f"expected a table of keys, found {_found(node)}")
        key_hint, value_hint = hints
        return {
            self._value(name, key_hint, f"{key}.{plain(name.text, 60)}"): self._value(
                value, value_hint, f"{key}.{plain(name.text, 60)}"
            )
            for name, value in node.items
        }

    def _choice(self, node: Node, allowed: tuple[str, ...], key: str) -> str:
        text = self._scalar(node, str, key)
        if text not in allowed:
            raise self.fail(node.line, key, f"expected one of {', '.join(allowed)}", _suggest(str(text), allowed))
        return str(text)

    def _scalar(self, node: Node, hint: type, key: str) -> str | int | float | bool:
        expected = _KIND_WORDS[hint.__name__]
        if not isinstance(node, Scalar):
            raise self.fail(node.line, key, f"expected {expected}, found {_found(node)}")
        if hint is str and node.kind in ("str", "int", "float"):
            return node.text
        if hint is str:
            advice = "put it in quotes if it is meant as text" if node.kind == "bool" else None
            raise self.fail(node.line, key, f"expected {expected}, found {_found(node)}", advice)
        if node.kind != hint.__name__ and not (hint is float and node.kind == "int"):
            raise self.fail(node.line, key, f"expected {expected}, found {_found(node)}")
        try:
            value = hint(node.value())
            finite = math.isfinite(value)
        except (ValueError, OverflowError):
            finite = False
        if not finite:
            raise self.fail(node.line, key, f"expected {expected} that can be counted with")
        return typing.cast("int | float | bool", value)

    def _check(self, node: Node, value: Any, check: Any, key: str) -> None:
        if isinstance(check, Between) and not (check.low <= value <= check.high or (check.or_zero and value == 0)):
            zero = "0, or " if check.or_zero else ""
            bounds = f"{zero}a number from {check.low:g} to {check.high:g}"
            raise self.fail(node.line, key, f"expected {bounds}, found {value:g}")
        if isinstance(check, Form) and not check.pattern.fullmatch(value):
            raise self.fail(node.line, key, f"expected {check.what}")


def _without_none(hint: Any) -> Any:
    """`X` of `X | None`; only a single X is ever used in the schema."""
    if typing.get_origin(hint) in (Union, types.UnionType):
        return next(part for part in typing.get_args(hint) if part is not type(None))
    return hint


def _bare(hint: Any) -> Any:
    hint = _without_none(hint)
    return typing.get_args(hint)[0] if typing.get_origin(hint) is typing.Annotated else hint


def _suggest(word: str, allowed: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(word, allowed, n=1, cutoff=0.6)
    if near:
        return f"did you mean {near[0]}?"
    return f"known here: {', '.join(allowed)}"
