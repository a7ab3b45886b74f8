"""Charts and states belong to a card, not to the number it has: a card that comes in another's place starts anew."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetop.cards import Cards, moved
from moetop.model import GpuInfo, Hello
from moetop.watch import Watch
from tests.unit.test_watch import gpus, put

OLD = (("GPU-a", "H200"), ("GPU-b", "H200"))


def infos(*cards: tuple[str | None, str | None]) -> list[GpuInfo]:
    return [GpuInfo(index=index, uuid=uuid, name=name) for index, (uuid, name) in enumerate(cards)]


@pytest.mark.parametrize(
    ("old", "new", "origins"),
    [
        (OLD, OLD, [0, 1]),
        (OLD, (("GPU-c", "H200"), ("GPU-b", "H200")), [None, 1]),
        (OLD, (("GPU-b", "H200"), ("GPU-a", "H200")), [1, 0]),
        (OLD, (("GPU-b", "H200"),), [1]),
        (OLD, (("GPU-c", "H200"), ("GPU-a", "H200"), ("GPU-b", "H200")), [None, 0, 1]),
        (OLD, (("GPU-a", "H200"), ("GPU-a", "H200")), [0, None]),
        (OLD, ((None, "H200"), (None, "A100")), [0, None]),
        (OLD, ((None, "H200"), ("GPU-a", "H200")), [None, 0]),
        (OLD, ((None, None), ("GPU-b", None)), [0, 1]),
        (((None, "H200"),), (("GPU-a", "H200"),), [0]),
        (((None, "H200"),), (("GPU-a", "A100"),), [None]),
    ],
)
def test_a_card_is_known_by_its_uuid_else_by_its_name(old: tuple, new: tuple, origins: list[int | None]) -> None:
    cards = Cards()
    cards.name(infos(*old))
    assert list(cards.name(infos(*new)).values()) == origins


def test_a_card_that_could_not_be_read_for_a_while_is_still_itself_and_one_in_its_place_is_not() -> None:
    cards = Cards()
    cards.name(infos(*OLD))
    cards.name(infos((None, None), OLD[1]))
    assert cards.name(infos(OLD[0], OLD[1])) == {0: 0, 1: 1}
    cards.name([])
    assert cards.name(infos(("GPU-c", "H200"), OLD[1])) == {0: None, 1: 1}


_CARD = st.tuples(st.sampled_from([None, "a", "b", "c"]), st.sampled_from([None, "x", "y"]))


@given(st.lists(st.lists(_CARD, max_size=4), max_size=5))
def test_nothing_kept_is_ever_in_two_places(hellos: list[list[tuple[str | None, str | None]]]) -> None:
    cards, kept = Cards(), {index: object() for index in range(4)}
    for hello in hellos:
        kept = moved(kept, cards.name(infos(*hello)))
        assert len(set(map(id, kept.values()))) == len(kept)


def test_another_card_in_the_place_of_a_gpu_has_a_history_and_states_of_its_own() -> None:
    watch = Watch(10.0, live=False)
    put(watch, "a", Hello(t=0.0, gpus=tuple(infos(*OLD))))
    for second in range(60):
        put(watch, "a", gpus(float(second), number=2))
    kept = watch.history("a", 1)
    put(watch, "a", Hello(t=60.0, gpus=tuple(infos(OLD[1], ("GPU-c", "A100")))))
    put(watch, "a", gpus(61.0, number=2))
    history, trail = watch.history("a", 1), watch.states("a", 1)
    assert history is not None and trail is not None
    assert (len(history), history.first_t, trail.at(30.0)) == (1, 61.0, None)
    followed, states = watch.history("a", 0), watch.states("a", 0)
    assert followed is kept and states is not None and states.at(30.0) is not None
