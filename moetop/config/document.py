"""YAML text to a bounded tree of plain nodes with line numbers. Knows nothing of moetop's keys; runs no tags."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Union

import yaml

from moetop.errors import UsageError
from moetop.text import plain

MAX_DEPTH = 32
"""Deepest nesting (judgement: the schema needs 7)."""

MAX_NODES = 100_000
"""Most values after aliases are expanded; an alias bomb passes this at once."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_SCALARS = ("str", "int", "float", "bool", "null", "timestamp")


@dataclass(frozen=True)
class Scalar:
    """A single value: its text as written and the kind YAML gives it (`str`, `int`, `float`, `bool`, `null`)."""

    line: int
    text: str
    kind: str

    def value(self) -> str | int | float | bool | None:
        """The value YAML means. Raises ValueError for a number that cannot be held."""
        node = yaml.ScalarNode(_TAG + self.kind, self.text)
        make = yaml.constructor.SafeConstructor()
        if self.kind == "int":
            return int(make.construct_yaml_int(node))
        if self.kind == "float":
            return float(make.construct_yaml_float(node))
        if self.kind == "bool":
            return bool(make.construct_yaml_bool(node))
        return None if self.kind == "null" else self.text


@dataclass(frozen=True)
class Sequence:
    """A list of nodes."""

    line: int
    items: tuple[Node, ...]


@dataclass(frozen=True)
class Mapping:
    """Keys in file order; each has the line it stands on."""

    line: int
    items: tuple[tuple[Scalar, Node], ...]


Node = Union[Scalar, Sequence, Mapping]


class _Reader:
    """Turns YAML's nodes into ours while counting, so that no input costs more than the bounds."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.count = 0

    def fail(self, line: int, message: str, advice: str | None = None) -> UsageError:
        return UsageError(f"{self.file}:{line}: {message}", advice)

    def read(self, node: Any, depth: int) -> Node:
        line = node.start_mark.line + 1
        self.count += 1
        if self.count > MAX_NODES:
            raise self.fail(line, f"more than {MAX_NODES} values", "are aliases nested in aliases?")
        if depth > MAX_DEPTH:
            raise self.fail(line, f"nested deeper than {MAX_DEPTH} levels")
        kind = node.tag.removeprefix(_TAG)
        if isinstance(node, yaml.ScalarNode):
            if kind not in _SCALARS:
                raise self.fail(line, f"the tag {plain(node.tag, 80)} is not allowed")
            return Scalar(line, node.value, "str" if kind == "timestamp" else kind)
        if isinstance(node, yaml.SequenceNode) and kind == "seq":
            return Sequence(line, tuple(self.read(item, depth + 1) for item in node.value))
        if isinstance(node, yaml.MappingNode) and kind == "map":
            return self._mapping(node, line, depth)
        raise self.fail(line, f"the tag {plain(node.tag, 80)} is not allowed")

    def _mapping(self, node: Any, line: int, depth: int) -> Mapping:
        seen: dict[str, int] = {}
        items = []
        for key_node, value_node in node.value:
            key_line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise self.fail(key_line, "a key must be a word")
            key = Scalar(key_line, key_node.value, "str")
            if key.text == "<<":
                raise self.fail(key_line, "'<<' is not supported", "shared settings go into 'defaults' or a group")
            if key.text in seen:
                raise self.fail(
                    key_line, f"the key {plain(key.text, 80)!r} stands twice (also in line {seen[key.text]})"
                )
            seen[key.text] = key_line
            items.append((key, self.read(value_node, depth + 1)))
        return Mapping(line, tuple(items))


def parse_yaml(text: str, file: str) -> Node | None:
    """The tree of `text`, None where there is nothing but comments. Raises UsageError naming `file` and the line."""
    reader = _Reader(file)
    try:
        _check_depth(text, reader)
        loader = _LOADER(text)
        try:
            root = loader.get_single_node()
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise _syntax_error(error, text, reader) from None
    if root is None or (isinstance(root, yaml.ScalarNode) and root.tag == _TAG + "null"):
        return None
    return reader.read(root, 0)


def _check_depth(text: str, reader: _Reader) -> None:
    """Walk the events first: composing nodes recurses, reading events does not."""
    depth = 0
    for count, event in enumerate(yaml.parse(text, Loader=_LOADER)):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH + 1 or count > 2 * MAX_NODES:
            line = event.start_mark.line + 1 if event.start_mark else 1
            raise reader.fail(line, f"nested deeper than {MAX_DEPTH} levels or more than {MAX_NODES} values")


def _syntax_error(error: yaml.YAMLError, text: str, reader: _Reader) -> UsageError:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "it cannot be read"
    line = text.count("\n", 0, getattr(error, "position", 0) or 0) if mark is None else mark.line
    return reader.fail(line + 1, f"not YAML: {plain(str(problem), 200)}", _yaml_advice(str(problem)))


def _yaml_advice(problem: str) -> str | None:
    if "cannot start any token" in problem:
        return "indent with spaces, not tabs, and put text with special characters in quotes"
    if "mapping values are not allowed" in problem:
        return "put a value that holds ': ' in quotes, and check the indentation"
    return None
