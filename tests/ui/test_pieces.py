"""Filters, numbers, painting and words without an app."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.strip import Strip

from moetop.errors import UsageError
from moetop.model import (
    Calm,
    Confidence,
    EventKind,
    EventSeverity,
    Finding,
    FindingKind,
    GpuState,
    HostReport,
    Limit,
    Link,
    LinkPhase,
    Phase,
    ServerReport,
    Severity,
    Tuning,
    Verdict,
)
from moetop.ui import fmt, keys, words
from moetop.ui.attention import retune_may_help
from moetop.ui.gather import gather
from moetop.ui.loglines import LogLines
from moetop.ui.paint import AsciiOnly, Colourless, Paint, Row, changed_span, fit
from moetop.ui.rows import SORTS, build_rows, parse_filter
from moetop.ui.scene import HostView, Scene
from moetop.ui.theme import builtin_themes
from tests.ui import scenes


def scene_of(feed: scenes.StillFeed) -> Scene:
    return gather(feed, scenes.NOW)


def names(scene: Scene, text: str) -> list[tuple[str, int | None]]:
    return [row.key for row in build_rows(scene, (), parse_filter(text))]


# ── filter ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("state:starved", {"glm5-sm120"}),
        ("state:tensor_starved", {"glm5-sm120"}),
        ("host:h2*", {"h200-lab"}),
        ("!host:h2*", {"glm5-sm120", "node-07"}),
        ("model:*glm*", {"glm5-sm120"}),
        ("engine:sglang confidence:inferred", {"glm5-sm120"}),
        ("finding:unreachable", {"node-07"}),
        ("gpu:h200", {"h200-lab"}),
        ("lab", {"h200-lab"}),
        ("state:starved host:h200-lab", set()),
        ("", {"glm5-sm120", "h200-lab", "node-07"}),
    ],
)
def test_filters_pick_rows(text: str, hosts: set[str]) -> None:
    assert {host for host, _gpu in names(scene_of(scenes.reference_fleet()), text)} == hosts


def test_a_filter_looks_at_the_labels_that_the_configuration_gives() -> None:
    feed = scenes.reference_fleet()
    feed.put(msgspec.structs.replace(feed.reports["h200-lab"], labels={"rack": "b7", "site": "lab-2"}))
    for text in ("label:b7", "label:rack=b7", "label:lab*", "b7"):
        assert {host for host, _gpu in names(scene_of(feed), text)} == {"h200-lab"}, text
    assert not names(scene_of(feed), "label:rack=lab-2")


def test_a_filter_on_an_index_keeps_one_row_and_counts_the_hidden() -> None:
    rows = build_rows(scene_of(scenes.sixteen()), (), parse_filter("gpu:15"))
    assert [row.key for row in rows] == [("node-00", None), ("node-00", 15)]
    assert rows[0].hidden == 15


def test_unknown_filter_keys_are_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="unknown filter key 'colour'") as caught:
        parse_filter("colour:red")
    assert "state" in caught.value.sentence()


def test_hostnames_with_colons_are_no_filter_keys() -> None:
    assert parse_filter("10.0.0.1:2222").terms == ((None, "10.0.0.1:2222", False),)


@pytest.mark.parametrize("sort", SORTS)
def test_every_order_keeps_all_rows_and_hosts_together(sort: str) -> None:
    scene = scene_of(scenes.big_fleet(4, 3))
    rows = build_rows(scene, (), None, sort)
    assert sorted(row.key for row in rows if row.gpu) == sorted(row.key for row in build_rows(scene) if row.gpu)
    hosts = [row.host.name for row in rows]
    assert len({host for n, host in enumerate(hosts) if n == 0 or hosts[n - 1] != host}) == 4
    assert sum(n == 0 or hosts[n - 1] != host for n, host in enumerate(hosts)) == 4


def test_worst_first_puts_lost_before_warned_before_quiet() -> None:
    rows = build_rows(scene_of(scenes.reference_fleet()), ("glm5-sm120", "h200-lab"), None, "worst")
    assert [row.host.name for row in rows] == ["node-07", "glm5-sm120", "h200-lab"]


# ── numbers ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.9, "59 s"), (65, "1 m 05 s"), (3600, "1 h 00 m"), (90061, "1 d 1 h"), (None, "—"), (-3, "0 s")],
)
def test_spans(seconds: float | None, text: str) -> None:
    assert fmt.span(seconds) == text


@pytest.mark.parametrize(
    ("value", "bar"),
    [(0, ("", "────")), (100, ("━━━━", "")), (62.5, ("━━╸", "─")), (250, ("━━━━", "")), (None, ("", "    "))],
)
def test_bars(value: float | None, bar: tuple[str, str]) -> None:
    assert fmt.bar(value, 4) == bar


def test_pairs_are_one_dash_when_both_are_absent() -> None:
    assert fmt.pair(None, None) == "—"
    assert fmt.pair(331.4, None) == "331 / —"
    assert fmt.big_pair(11160, 11200) == "11.2k/11.2k"


def test_times_of_recordings_count_from_their_start() -> None:
    assert fmt.clock_time(75.0) == "00:01:15"
    assert fmt.clock_time(scenes.NOW) == "08:09:33"
    assert fmt.clock_time(None) == "--:--:--"


@pytest.mark.parametrize(
    ("line", "rest"),
    [
        ("[2026-01-31 01:04:33 TP0] Load weight begin.", "Load weight begin."),
        ("(EngineCore_DP0 pid=123) INFO 01-31 01:04:33 [core.py:77] init engine", "init engine"),
        ("2026-01-31T01:04:33.123Z INFO ready", "ready"),
        ("INFO:     Uvicorn running", "Uvicorn running"),
        ("[01/31/2026-01:04:33] [TRT-LLM] [I] x", "[01/31/2026-01:04:33] [TRT-LLM] [I] x"),
        ("plain words", "plain words"),
    ],
)
def test_heads_of_log_lines_are_left_out(line: str, rest: str) -> None:
    assert fmt.headless(line) == rest


def test_gpu_names_lose_what_all_share() -> None:
    assert fmt.gpu_name("NVIDIA RTX PRO 6000 Blackwell Server Edition") == "RTX PRO 6000"
    assert fmt.gpu_name("NVIDIA H200") == "H200"
    assert fmt.gpu_name(None) == "GPU"


# ── painting ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "width", "align", "fitted"),
    [
        ("abc", 5, "left", "abc  "),
        ("abc", 5, "right", "  abc"),
        ("abcdef", 4, "left", "abc…"),
        ("日本語", 4, "left", "日 …"),
        ("x", 0, "left", ""),
        ("日本", 5, "right", " 日本"),
    ],
)
def test_fit_makes_exact_widths(text: str, width: int, align: str, fitted: str) -> None:
    assert fit(text, width, align) == fitted


def test_rows_never_exceed_their_width_and_join_equal_styles() -> None:
    style = Style(bold=True)
    row = Row(10, Style())
    strip = row.add("hello", style).add(" ", style).add("日本語 and more", style).strip()
    assert strip.cell_length == 10
    assert len(list(strip)) == 1


def test_only_the_columns_that_differ_are_repainted() -> None:
    one, two = Style(bold=True), Style(dim=True)

    def line(middle: str) -> Strip:
        return Strip([Segment("head", one), Segment(middle, two), Segment("tail", one)])

    assert changed_span(line("aa"), line("aa")) is None
    assert changed_span(line("aa"), line("bb")) == (4, 6)


def test_without_colours_there_are_attributes_only() -> None:
    paint = Paint(builtin_themes()["dark"], bare=True)
    for role in ("text", "quiet", "warning", "critical", "tensor_starved"):
        style = paint(role, on="selection")
        assert style.color is None and style.bgcolor is None
        assert style.reverse
    assert paint("warning").bold and paint("quiet").dim and paint("critical").reverse


def test_the_colourless_filter_takes_every_colour_away() -> None:
    segments = [Segment("x", Style.parse("bold red on blue"))]
    (shown,) = Colourless().apply(segments, Color.parse("black"))
    assert shown.style is not None and shown.style.bold
    assert shown.style.color is not None and shown.style.color.is_default
    assert shown.style.bgcolor is not None and shown.style.bgcolor.is_default
    assert not shown.style.reverse


def test_ascii_keeps_every_width() -> None:
    text = "▲ starved ━━╸─ 日本 ⠉⠒ — … é 🎉"
    (shown,) = AsciiOnly().apply([Segment(text, None)], Color.parse("black"))
    assert shown.text.isascii()
    assert len(shown.text) == Strip([Segment(text)]).cell_length


# ── words ────────────────────────────────────────────────────────────────────────────────────────


def test_every_closed_set_has_its_words() -> None:
    assert set(words.STATE_SIGNS) == set(GpuState) == set(words.STATE_ORDER)
    assert set(words.FINDING_TITLES) == set(FindingKind)
    assert set(words.CALM_SIGNS) == set(Calm)
    assert set(words.LIMIT_WORDS) == set(Limit) == set(words.LIMIT_ORDER)
    assert set(words.LINK_WORDS) == set(LinkPhase)
    assert set(words.PHASE_SIGNS) == set(Phase)
    assert set(words.VERDICT_SIGNS) == set(Verdict)
    assert set(words.EVENT_WORDS) == set(EventKind)
    assert set(words.EVENT_ROLES) == set(EventSeverity) == set(words.EVENT_GLYPHS)
    assert set(words.SEVERITY_SIGNS) == set(Severity)


def test_states_differ_by_glyph_and_word_not_only_by_colour() -> None:
    signs = list(words.STATE_SIGNS.values())
    assert len({sign.glyph for sign in signs}) == len({sign.word for sign in signs}) == len(signs)
    from moetop.ui.paint import ASCII_GLYPHS

    assert len({ASCII_GLYPHS[sign.glyph] for sign in signs}) == len(signs)


def test_event_words_fit_their_column() -> None:
    assert max(len(word) for word in words.EVENT_WORDS.values()) <= 9


def test_keys_page_is_generated_from_the_registry() -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "keys.md"
    assert page.read_text("utf-8") == keys.markdown()


def test_a_hundred_thousand_lines_are_taken_over_piece_by_piece() -> None:
    from moetop.model import LogLine

    lines = [LogLine(n=n, text=f"line {n}") for n in range(100_000)]
    state = LogLines("all")
    state.update(lines)
    assert len(state.shown) == 100_000 and state.cursor == 99_999
    moved = [*lines[1000:], *(LogLine(n=100_000 + n, text="new") for n in range(1000))]
    state.go(500)
    state.update(moved)
    assert state.new == 1000 and len(state.shown) == 100_000
    assert state.selected is not None and state.selected.n == 1000


@pytest.mark.parametrize(
    ("environment", "glyphs"),
    [
        ({"LANG": "C.UTF-8"}, True),
        ({"LANG": "en_US.utf8"}, True),
        ({"LANG": "de_DE.UTF-8", "LC_ALL": "C"}, False),
        ({"LANG": "C", "LC_CTYPE": "en_US.UTF-8"}, True),
        ({"LANG": "POSIX"}, False),
        ({}, False),
    ],
)
def test_the_locale_decides_about_glyphs(environment: dict[str, str], glyphs: bool) -> None:
    from moetop.ui.terminal import has_utf8

    assert has_utf8(environment) is glyphs


@pytest.mark.parametrize(("value", "glyphs"), [("1", False), ("0", True)])
def test_glyphs_can_be_asked_for(monkeypatch: pytest.MonkeyPatch, value: str, glyphs: bool) -> None:
    from moetop.ui.terminal import terminal_has_utf8

    monkeypatch.setenv("MOETOP_ASCII", value)
    assert terminal_has_utf8() is glyphs


def test_long_host_names_on_a_map_keep_both_ends() -> None:
    from moetop.ui.series import NAME_CELLS, short_name

    assert short_name("127.0.0.1:22871") == "127.0.0.1:22871"
    long = short_name("gpu-cluster-b.example.org:22871")
    assert long == "gpu-clu….org:22871" and len(long) == NAME_CELLS


def test_files_written_by_keys_end_once_and_are_told_with_their_whole_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from moetop.config import Config
    from moetop.fleet import Fleet
    from moetop.screen import SessionActions
    from moetop.session import Session
    from moetop.transport.base import ProbeOptions
    from moetop.watch import Watch

    monkeypatch.chdir(tmp_path)
    watch = Watch(10.0)
    actions = SessionActions(Session(watch, Fleet([], watch, ProbeOptions())), Config())
    for name, begin, end in (
        ("table.txt", "moetop-table-2", ".txt"),
        ("h-sglang.log", "moetop-h-sglang-2", ".log"),
        ("host-/var/x.out", "moetop-host--var-x.out-2", ".txt"),
    ):
        path = Path(actions.write_text(name, "words"))
        assert path.parent == tmp_path and path.read_text() == "words"
        assert path.name.startswith(begin) and path.name.endswith(end) and path.name.count(".txt") <= 1


def test_the_retune_key_is_not_named_beside_tuned_kernels() -> None:
    finding = Finding(
        kind=FindingKind.TENSOR_STARVED, severity=Severity.WARNING, confidence=Confidence.MEASURED, summary="starved"
    )
    for verdict, helps in ((Verdict.TUNED, False), (Verdict.UNTUNED, True), (Verdict.UNKNOWN, True)):
        server = ServerReport(name="s", tuning=Tuning(verdict=verdict))
        view = HostView("h", HostReport(name="h", headline="tensor_starved", servers=(server,)), Link())
        assert retune_may_help(view, finding) is helps
