"""Adds up what one run's lines say about its tuning. Draws no conclusion."""

from __future__ import annotations

from collections.abc import Iterable

from moetop.engines.digest import TuningFacts
from moetop.engines.reader import Record
from moetop.engines.rules import Fields, Rule
from moetop.model import EventKind as K

MAX_NAMES = 256
NO_RANK = "?"
_FILE_KINDS = frozenset(
    {
        K.MOE_CONFIG_TUNED,
        K.MOE_CONFIG_DEFAULT,
        K.MOE_CONFIG_FALLBACK,
        K.GEMM_CONFIG_DEFAULT,
        K.MOE_CONFIG_NO_DOWN_VARIANT,
    }
)


def _remember(names: dict[str, int], name: str | None, by: int = 1) -> None:
    if name and (name in names or len(names) < MAX_NAMES):
        names[name] = names.get(name, 0) + by


class TuningTally:
    """The mutable side of `TuningFacts`."""

    def __init__(self) -> None:
        self.entered = self.starts = self.ends = self.zero_saves = self.rejected = 0
        self.oom_fallbacks = self.extend_oom = self.no_entries = self.disabled = self.failures = 0
        self.skipped_tactics = 0
        self.open: dict[str, tuple[float | None, str | None]] = {}
        self.unranked = 0
        self.ended: dict[str, int] = {}
        self.since: float | None = None
        self.since_text: str | None = None
        self.seconds: float | None = None
        self.ops: dict[str, tuple[int, int, int]] = {}
        self.configs_saved: int | None = None
        self.configs_loaded: int | None = None
        self.cache_entries: int | None = None
        self.cache_sizes: dict[str, int] = {}
        self.cache_hits: dict[str, int] = {}
        self.cache_paths: dict[str, int] = {}
        self.mismatch: Fields = {}
        self.uncovered: dict[str, int] = {}
        self.crashed_inside = self.deterministic = self.marlin = False
        self.files: dict[K, dict[str, int]] = {}
        self.paths: dict[K, dict[str, int]] = {}

    def note(self, rule: Rule, record: Record, fields: Fields) -> None:
        """Take in one matched line."""
        kind = rule.kind
        if kind in (K.AUTOTUNE_START, K.AUTOTUNE_END, K.AUTOTUNE_PROGRESS) or rule.id == "vl.tune.cache":
            self._note_pass(rule, record, fields)
        elif kind in _FILE_KINDS:
            self.note_files(kind, fields)
        else:
            self._note_cache(rule, record, fields)
        if rule.kind in (K.AUTOTUNE_START, K.AUTOTUNE_CACHE_SAVED, K.AUTOTUNE_CACHE_LOADED, K.NOTE):
            _remember(self.cache_paths, fields.get("path") if "tune" in rule.id or "cache" in rule.id else None)
        self.deterministic = self.deterministic or rule.id == "sgl.triton.determ"
        self.marlin = self.marlin or rule.id == "vl.marlin"

    def note_files(self, kind: K, fields: Fields) -> None:
        """Take in a configuration file that a line named."""
        if kind in _FILE_KINDS:
            _remember(self.files.setdefault(kind, {}), fields.get("file"))
            _remember(self.paths.setdefault(kind, {}), fields.get("path"))

    def _note_pass(self, rule: Rule, record: Record, fields: Fields) -> None:
        rank = record.rank or NO_RANK
        when = record.clock if record.clock is not None else record.t
        if rule.kind is K.AUTOTUNE_END:
            self.ends += 1
            if rank == NO_RANK:
                self.unranked -= 1
                if self.unranked > 0:
                    return
                self.unranked = 0
            began = self.open.pop(rank, None) or (self.open.pop(NO_RANK, None) if rank != NO_RANK else None)
            _remember(self.ended, rank)
            if began and began[0] is not None and when is not None and 0 <= when - began[0] < 1e6:
                fields["seconds"] = round(when - began[0], 3)
                self.seconds = max(self.seconds or 0.0, fields["seconds"])
            return
        self.entered += 1
        if rule.kind is K.AUTOTUNE_PROGRESS:
            done, total, finished = int(fields["done"]), int(fields["total"]), self.ops.get(fields["op"], (0, 0, 0))[2]
            if fields["op"] in self.ops or len(self.ops) < MAX_NAMES:
                self.ops[fields["op"]] = (done, total, finished + (1 if done >= total > 0 else 0))
        elif rule.kind is K.AUTOTUNE_START:
            self.starts += 1
            self.unranked += rank == NO_RANK
        if not self.open:
            self.since, self.since_text = record.t, record.t_text
        if rank not in self.open and not (rank == NO_RANK and self.open) and len(self.open) < MAX_NAMES:
            self.open.pop(NO_RANK, None)
            self.open[rank] = (when, record.t_text)

    def _note_cache(self, rule: Rule, record: Record, fields: Fields) -> None:
        kind = rule.kind
        if kind is K.AUTOTUNE_CACHE_SAVED and "configs" in fields:
            self.configs_saved = max(self.configs_saved or 0, int(fields["configs"]))
            self.zero_saves += fields["configs"] == 0
        elif kind is K.AUTOTUNE_CACHE_LOADED and "configs" in fields:
            self.configs_loaded = max(self.configs_loaded or 0, int(fields["configs"]))
        elif kind is K.AUTOTUNE_CACHE_HIT:
            _remember(self.cache_hits, str(fields.get("op", "")))
        elif kind is K.AUTOTUNE_CACHE_SIZE:
            self.cache_entries = max(self.cache_entries or 0, int(fields["entries"]))
            rank = record.rank or NO_RANK
            if rank in self.cache_sizes or len(self.cache_sizes) < MAX_NAMES:
                self.cache_sizes[rank] = int(fields["entries"])
        elif kind is K.AUTOTUNE_CACHE_REJECTED:
            self.rejected += 1
            self.mismatch = fields.get("mismatch") or self.mismatch
        elif kind is K.AUTOTUNE_OOM_FALLBACK:
            if rule.id == "sgl.tune.extend.oom":
                self.extend_oom += 1
            else:
                self.oom_fallbacks += 1
        elif kind is K.AUTOTUNE_NO_ENTRIES:
            self.no_entries += 1
        elif kind is K.AUTOTUNE_DISABLED:
            self.disabled += 1
        elif kind is K.AUTOTUNE_FAILED:
            self.failures += 1
        elif kind is K.AUTOTUNE_TACTIC_SKIPPED:
            self.skipped_tactics += int(fields["n"]) if isinstance(fields.get("n"), int) else 1
        elif kind is K.AUTOTUNE_UNCOVERED_SHAPE:
            _remember(self.uncovered, str(fields.get("op") or NO_RANK))

    def close(self, rank: str | None) -> None:
        """Something that comes only after tuning was seen on `rank` (None: anywhere)."""
        if rank is None:
            self.open.clear()
        else:
            self.open.pop(rank, None)
            self.open.pop(NO_RANK, None)

    def facts(self) -> TuningFacts:
        """The frozen side."""
        return TuningFacts(
            entered=self.entered,
            starts=self.starts,
            ends=self.ends,
            open_ranks=tuple(self.open),
            ended_ranks=tuple(self.ended),
            since=self.since,
            since_text=self.since_text,
            seconds=self.seconds,
            ops=dict(self.ops),
            configs_saved=self.configs_saved,
            zero_saves=self.zero_saves,
            configs_loaded=self.configs_loaded,
            cache_hits=tuple(self.cache_hits),
            cache_entries=self.cache_entries,
            cache_empty_ranks=tuple(rank for rank, entries in self.cache_sizes.items() if entries == 0),
            cache_paths=tuple(self.cache_paths),
            rejected=self.rejected,
            mismatch=dict(self.mismatch),
            oom_fallbacks=self.oom_fallbacks,
            extend_oom=self.extend_oom,
            no_entries=self.no_entries,
            disabled=self.disabled,
            failures=self.failures,
            skipped_tactics=self.skipped_tactics,
            uncovered=dict(self.uncovered),
            crashed_inside=self.crashed_inside,
            tuned_files=_names(self.files.get(K.MOE_CONFIG_TUNED, ())),
            default_files=_names(self.files.get(K.MOE_CONFIG_DEFAULT, ())),
            default_paths=_names(self.paths.get(K.MOE_CONFIG_DEFAULT, ())),
            fallback_files=_names(self.files.get(K.MOE_CONFIG_FALLBACK, ())),
            no_down_files=_names(self.files.get(K.MOE_CONFIG_NO_DOWN_VARIANT, ())),
            gemm_default_paths=_names(self.paths.get(K.GEMM_CONFIG_DEFAULT, ())),
            deterministic=self.deterministic,
            marlin=self.marlin,
        )


def _names(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(names)
