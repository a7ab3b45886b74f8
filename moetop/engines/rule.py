"""The shape of a row of the rules table. Knows no rule and reads no log."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from moetop.model import Engine, EventKind, EventSeverity

Fields = dict[str, Any]
Parse = Callable[[re.Match[str]], Fields]

SGL = (Engine.SGLANG,)
VLLM = (Engine.VLLM,)
TRT = (Engine.TENSORRT_LLM,)
FI = (Engine.FLASHINFER,)
SGL_VLLM = (Engine.SGLANG, Engine.VLLM)
VLLM_TRT = (Engine.VLLM, Engine.TENSORRT_LLM)
ANY: tuple[Engine, ...] = ()

COUNTED = (EventSeverity.NOISE, EventSeverity.METRIC)
"""Lines of these severities are counted, and only the newest are kept."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of log line.

    `engines` empty means every engine; rows of FlashInfer apply to every engine too. Every line the
    pattern matches holds one of `literals` (lower case), so that a search for plain strings can run
    before it. `parse` turns the match into fields; without it the named groups are the fields, with
    numbers as numbers. `block` rows open a block: the lines that belong to them are one event.
    `echo` rows repeat an earlier event of the same kind in other words. The record's head must not
    be one of `not_heads`. `needs` names the field without which the record may have been cut by a
    terminal's width and goes on in the next line. `counted` rows are counted like metric lines.
    `own_only` rows match only where the engine is known to be theirs: others print the same words.
    `error_only` rows do not match a record that calls itself a warning or less: who warned lived on.
    """

    id: str
    kind: EventKind
    severity: EventSeverity
    engines: tuple[Engine, ...]
    pattern: str
    literals: tuple[str, ...]
    meaning: str
    source: str
    example: str
    versions: str = ""
    parse: Parse | None = None
    block: bool = False
    echo: bool = False
    not_heads: tuple[str, ...] = ()
    counted: bool = False
    needs: str = ""
    error_only: bool = False
    own_only: bool = False
    _compiled: list[re.Pattern[str]] = field(default_factory=list, init=False, repr=False, compare=False)

    @property
    def regex(self) -> re.Pattern[str]:
        """The pattern, compiled when a line first asks for it: a start needs few of them."""
        if not self._compiled:
            self._compiled.append(re.compile(self.pattern))
        return self._compiled[0]

    @property
    def is_counted(self) -> bool:
        """Whether lines of this row are counted instead of travelling one by one."""
        return self.counted or self.severity in COUNTED

    def fits(self, engine: Engine | None, head: str, level: str | None = None) -> bool:
        """Whether a record of this engine, head and level may match this row."""
        if self.own_only and engine is None:
            return False
        if head and head in self.not_heads:
            return False
        if self.error_only and level is not None and level[:1].upper() in ("W", "I", "D", "T", "V"):
            return False
        return not self.engines or engine is None or engine in self.engines or Engine.FLASHINFER in self.engines

    def fields(self, match: re.Match[str]) -> Fields:
        """What the line says, as values."""
        if self.parse is not None:
            return self.parse(match)
        return {name: number(value) for name, value in match.groupdict().items() if value is not None}


def number(text: str) -> str | int | float:
    """`text` as a number where it plainly is one; identifiers such as `000` stay text."""
    plain = text.strip()
    if plain.isascii() and plain.isdigit() and (plain == "0" or plain[0] != "0") and len(plain) < 16:
        return int(plain)
    if re.fullmatch(r"-?\d{1,15}\.\d{1,15}|-[1-9]\d{0,14}|0\.\d{1,15}", plain):
        return float(plain) if "." in plain else int(plain)
    return text
