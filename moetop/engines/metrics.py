"""Adds periodic throughput lines up to a server's numbers. Keeps only the newest of each engine or rank."""

from __future__ import annotations

from moetop.engines.reader import Record
from moetop.engines.rules import Fields
from moetop.model import ServerMetrics

MAX_PARTS = 1024
_NAMES = ("running", "waiting", "prompt_tok_s", "gen_tok_s", "kv_pct")


class LogMetrics:
    """Numbers of a run, one part for each engine (vLLM) or data-parallel rank (SGLang)."""

    def __init__(self) -> None:
        self.parts: dict[str, Fields] = {}
        self.t: float | None = None

    def note(self, record: Record, fields: Fields) -> None:
        """Take in the fields of a throughput or step-time line."""
        part = str(fields.get("engine") or record.rank or "")
        if part not in self.parts and len(self.parts) >= MAX_PARTS:
            return
        values = self.parts.setdefault(part, {})
        for name in _NAMES:
            value = fields.get(name)
            if isinstance(value, int | float):
                values[name] = value
        self.t = record.t

    def read(self) -> ServerMetrics | None:
        """The sums (KV use: the fullest part), or None before the first line."""
        if not self.parts:
            return None
        usage = [part["kv_pct"] for part in self.parts.values() if "kv_pct" in part]
        return ServerMetrics(
            running=self._sum("running"),
            waiting=self._sum("waiting"),
            prompt_tokens_s=self._sum("prompt_tok_s"),
            generation_tokens_s=self._sum("gen_tok_s"),
            kv_usage_pct=float(max(usage)) if usage else None,
            source="log",
            t=self.t,
        )

    def _sum(self, name: str) -> float | None:
        values = [part[name] for part in self.parts.values() if name in part]
        return float(sum(values)) if values else None
