"""Bytes become lines whatever their pieces, with bounded memory; last words are harmless."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from moetop.transport.stream import STDERR_TAIL_BYTES, LineSplitter, Tail, last_words


@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(max_size=30).map(lambda data: data.replace(b"x", b"\n")), max_size=12))
def test_lines_do_not_depend_on_how_the_bytes_were_cut(pieces: list[bytes]) -> None:
    splitter = LineSplitter()
    lines = [line for piece in pieces for line in splitter.feed(piece)]
    assert lines == [line.rstrip(b"\r") for line in b"".join(pieces).split(b"\n")[:-1]]


def test_a_line_without_end_is_counted_but_not_kept() -> None:
    splitter = LineSplitter(limit=1000)
    for _ in range(100):
        assert splitter.feed(b"y" * 999) == []
    assert splitter.pending == 99_900
    (line,) = splitter.feed(b"\n")
    assert len(line) == 1001
    assert splitter.feed(b"next\n") == [b"next"]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(max_size=3000), max_size=20))
def test_a_tail_keeps_the_end_and_little_more(pieces: list[bytes]) -> None:
    tail = Tail()
    for piece in pieces:
        tail.add(piece)
    whole = b"".join(pieces).decode("utf-8", "replace").strip()
    assert len(tail.text().encode()) <= 3 * 2 * STDERR_TAIL_BYTES
    assert whole.endswith(tail.text()[-100:].lstrip("\ufffd").strip())


def test_last_words_are_one_line_without_escape_sequences() -> None:
    assert last_words("first\n\x1b[31mbad\x07 \u202eend\x1b[0m\n\n") == "bad␇ <U+202E>end"
    assert last_words("\n \n") == ""
