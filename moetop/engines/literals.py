"""Plain strings that decide which rows a line can match at all. Runs before any pattern."""

from __future__ import annotations

from collections.abc import Iterable

from moetop.engines.rules import RULES, Rule

CONTINUATIONS = ("error: ", "exception: ", "nvrm: ")
"""Lines that complete an event of an earlier line: an exception's last line, a spread kernel record."""


def _without_longer(texts: Iterable[str]) -> tuple[str, ...]:
    """`texts` without those that hold another of them."""
    every = tuple(texts)
    return tuple(text for text in every if not any(other != text and other in text for other in every))


def _collect() -> tuple[tuple[str, ...], dict[str, tuple[str, ...]]]:
    events: dict[str, None] = dict.fromkeys(CONTINUATIONS)
    noise: dict[str, dict[str, None]] = {}
    for rule in RULES:
        if rule.is_counted:
            noise.setdefault(rule.kind.value, {}).update(dict.fromkeys(rule.literals))
        else:
            events.update(dict.fromkeys(rule.literals))
    return _without_longer(events), {kind: _without_longer(texts) for kind, texts in noise.items()}


_EVENTS, _NOISE = _collect()


def scan_literals() -> tuple[tuple[str, ...], dict[str, tuple[str, ...]]]:
    """`(literals, noise_literals)`, all lower case.

    A line holding one of `literals` (whatever its case) may be an event and always travels; a line
    holding none of them and one of `noise_literals[kind]` is counted under that kind. The literals
    are specific, so that a storm of one kind does not crowd out the others.
    """
    return _EVENTS, dict(_NOISE)


class _Index:
    """Finds the rows whose literals a line holds.

    Most literals hold a word between blanks, which is then a word of the line: one look at the
    line's words leaves only a few literals to search for. (Searching all of them, or one pattern
    of all of them, took 13 and 50 microseconds a line; this takes about 3.)
    """

    def __init__(self) -> None:
        by_word: dict[str, dict[str, list[int]]] = {}
        others: dict[str, list[int]] = {}
        for at, rule in enumerate(RULES):
            for literal in rule.literals:
                inner = max((word for word in literal.split(" ")[1:-1] if len(word) > 2), key=len, default="")
                place = by_word.setdefault(inner, {}) if inner else others
                place.setdefault(literal, []).append(at)
        self._words = {word: tuple((text, tuple(at)) for text, at in place.items()) for word, place in by_word.items()}
        self._keys = frozenset(self._words)
        self._others = tuple((text, tuple(at)) for text, at in others.items())

    def rows(self, lowered: str) -> list[int]:
        """Places in the table of the rows that may match, in order; `lowered` is in lower case."""
        found: list[int] = []
        for word in self._keys.intersection(lowered.split()):
            for text, at in self._words[word]:
                if text in lowered:
                    found.extend(at)
        for text, at in self._others:
            if text in lowered:
                found.extend(at)
        if len(found) > 1:
            return sorted(set(found))
        return found


_INDEX = _Index()


def candidates(lowered: str) -> list[Rule]:
    """The rows that a lower-case text may match, in the table's order."""
    return [RULES[at] for at in _INDEX.rows(lowered)]
