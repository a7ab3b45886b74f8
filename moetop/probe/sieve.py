"""Searches for many literals at once: grep as a coarse filter with short fragments, the literals themselves after."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import Counter

FRAGMENT_BYTES = 4  # short ones keep grep's automaton in the first-level cache; measured by tests/bench_scan.py
COMMON_COST = 512  # a fragment that ordinary text holds costs a look at each such line


def choose_fragments(literals: list[bytes], sample: bytes) -> list[bytes]:
    """For each lower-case literal the short piece of it that this log's ordinary text resembles least.

    Every line with a literal holds its fragment; the other lines with one are sorted out later.
    """
    low = sample.lower()
    one = Counter(low)
    two = Counter(zip(low, low[1:]))  # noqa: B905
    three = Counter(zip(low, low[1:], low[2:]))  # noqa: B905

    def cost(piece: bytes) -> int:
        begin = three[(piece[0], piece[1], piece[2])] if len(piece) > 2 else 0
        follow = two[(piece[0], piece[1])] if len(piece) > 1 else 0
        return one[piece[0]] + follow + begin + (COMMON_COST * low.count(piece) if begin else 0)

    shared = Counter(piece for literal in literals for piece in set(_pieces(literal)))
    chosen: list[bytes] = []
    for literal in sorted(literals, key=len):
        if not any(piece in literal for piece in chosen):
            chosen.append(min(_pieces(literal), key=lambda piece: (cost(piece) / shared[piece], piece)))
    return sorted(chosen)


def _pieces(literal: bytes) -> list[bytes]:
    size = min(FRAGMENT_BYTES, len(literal))
    return [literal[at : at + size] for at in range(len(literal) - size + 1)]


def grep_words(grep: str, fragments: list[bytes]) -> list[bytes]:
    """A grep command that prints `offset:line` of the lines with a fragment, in any case."""
    pattern = b"|".join(re.sub(rb"([][\\.*^$(){}+?|])", rb"\\\1", piece) for piece in fragments)
    return [os.fsencode(grep), b"-a", b"-b", b"-i", b"-E", b"--line-buffered", b"-e", pattern]


def gnu_grep() -> str | None:
    """Path of a GNU grep (others lack -b or are slower than searching here)."""
    path = shutil.which("grep")
    if path is None:
        return None
    try:
        words = subprocess.run([path, "--version"], check=False, capture_output=True, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return path if b"GNU grep" in words.stdout else None
