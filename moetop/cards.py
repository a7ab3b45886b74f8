"""Which card stands behind a GPU's index, so that what is kept of a card goes where it goes, or ends with it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

from moetop.model import GpuInfo

Kept = TypeVar("Kept")


class _Card(NamedTuple):
    uuid: str | None
    name: str | None

    def may_be(self, other: _Card) -> bool:
        """Whether both may be one card: by the uuid, else by the name; what says neither may be any."""
        for mine, others in zip(self, other, strict=True):
            if mine is not None and others is not None:
                return mine == others
        return True


class Cards:
    """The cards of one host as its hellos named them."""

    def __init__(self) -> None:
        self._cards: dict[int, _Card] = {}

    def name(self, gpus: Iterable[GpuInfo]) -> dict[int, int | None]:
        """Take what a hello names; for every index of it the index that this card had before, None where another
        card stood there. An index that no hello named before keeps what is kept of it."""
        named = {gpu.index: _Card(gpu.uuid, gpu.name) for gpu in gpus}
        before = dict(self._cards)
        by_uuid = {card.uuid: index for index, card in before.items() if card.uuid is not None}
        origins: dict[int, int | None] = {}
        for index, card in named.items():
            old = before.get(index)
            if old is not None and old.uuid is not None and old.uuid == card.uuid:
                origins[index] = index
            else:
                origins[index] = by_uuid.get(card.uuid) if card.uuid is not None else None
        taken = {origin for origin in origins.values() if origin is not None}
        seen: set[int] = set()
        for index, card in named.items():
            origin = origins[index]
            if origin in seen:  # one uuid for two indices: the first has it
                origins[index] = None
            elif origin is None and index not in taken and before.get(index, card).may_be(card):
                origins[index] = index
            elif origin is not None:
                seen.add(origin)
            came_from = origins[index]
            known = before.get(came_from, card) if came_from is not None else card
            named[index] = _Card(card.uuid or known.uuid, card.name or known.name)
        left = {index: card for index, card in before.items() if index not in named and index not in taken}
        self._cards = left | named
        return origins


def moved(kept: Mapping[int, Kept], origins: Mapping[int, int | None]) -> dict[int, Kept]:
    """What is kept by index, each where its card stands now. What belongs to a card that no hello names any more stays
    until another takes its place."""
    sources = set(origins.values())
    there = {index: value for index, value in kept.items() if index not in origins and index not in sources}
    for index, origin in origins.items():
        if origin is not None and origin in kept:
            there[index] = kept[origin]
    return there
