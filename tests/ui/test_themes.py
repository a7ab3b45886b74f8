"""Themes: readable, checked, and refused with the line."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.color import Color

from moetop.errors import UsageError
from moetop.ui.theme import ROLES, Theme, ThemeError, builtin_themes, choose_theme, load_themes, read_theme
from tests.ui import scenes
from tests.ui.driving import opened

THEMES = builtin_themes()
READ = [role for role in ROLES if role not in ("background", "surface", "selection", "faint", "series_limit")]


def contrast(a: str, b: str) -> float:
    def light(value: str) -> float:
        parts = [part / 255 for part in Color.parse(value).rgb]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((light(a), light(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_four_themes_come_with_moetop_the_default_first() -> None:
    assert list(THEMES) == ["dark", "colour-blind", "high-contrast", "light"]


@pytest.mark.parametrize("theme", THEMES.values(), ids=list(THEMES))
def test_every_word_is_readable_on_its_ground_and_on_the_selected_row(theme: Theme) -> None:
    least = 7.0 if theme.name == "high-contrast" else 4.5
    for role in READ:
        assert contrast(theme.colors[role], theme.colors["background"]) >= least, role
        assert contrast(theme.colors[role], theme.colors["selection"]) >= 3.0, role
        assert contrast(theme.colors[role], theme.colors["surface"]) >= least * 0.85, role


def test_warning_and_good_differ_in_lightness_or_blue_for_the_colour_blind() -> None:
    colors = THEMES["colour-blind"].colors
    for first, second in (("warning", "good"), ("critical", "good"), ("tensor_starved", "tensor_busy")):
        a, b = Color.parse(colors[first]), Color.parse(colors[second])
        assert abs(a.b - b.b) > 60


def base(extra: str = "", name: str = "mine") -> str:
    return f"name: {name}\nextends: dark\n{extra}"


def test_a_theme_may_extend_another() -> None:
    theme = read_theme(base('colors:\n  text: "#ffffff"\n'), "mine.yaml", THEMES)
    assert theme.colors["text"] == "#ffffff"
    assert theme.colors["quiet"] == THEMES["dark"].colors["quiet"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: [", "mine.yaml:1: not YAML"),
        ("- a\n", "mine.yaml:1: the theme must be"),
        ("", "mine.yaml:1: the theme must be"),
        ("title: x\n", "mine.yaml:1: name must be"),
        (base("colour: red\n"), "mine.yaml:3: unknown key 'colour'"),
        (base("colors:\n  text: red\n"), "mine.yaml:4: text must be a colour like"),
        (base("colors:\n  txt: '#ffffff'\n"), "mine.yaml:4: unknown colour role 'txt'"),
        (base("colors:\n  text: '#ffffff'\n  text: '#000000'\n"), "mine.yaml:5: 'text' stands twice"),
        (base("colors: none\n"), "mine.yaml:3: colors must be"),
        (base("dark: maybe\n"), "mine.yaml:3: dark must be true or false"),
        ("name: mine\nextends: nothing\n", "mine.yaml:2: extends unknown theme 'nothing'"),
        ("name: mine\ncolors:\n  text: '#ffffff'\n", "mine.yaml: colors lacks background"),
    ],
)
def test_bad_theme_files_are_refused_with_file_and_line(text: str, message: str) -> None:
    with pytest.raises(ThemeError) as caught:
        read_theme(text, "mine.yaml", THEMES)
    assert message in str(caught.value)
    assert caught.value.exit_code == 2


def test_user_themes_are_read_and_bad_ones_leave_the_others_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(base())
    (tmp_path / "broken.yaml").write_text("name: [")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    themes, errors = load_themes([tmp_path])
    assert "mine" in themes and "dark" in themes
    assert sorted(Path(str(error).split(":")[0]).name for error in errors) == ["binary.yaml", "broken.yaml"]


def test_choosing_a_broken_or_unknown_theme_says_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text("name: [")
    themes, errors = load_themes([tmp_path])
    with pytest.raises(UsageError, match=r"broken\.yaml:1: not YAML"):
        choose_theme("broken", themes, errors)
    with pytest.raises(UsageError, match="no theme is called 'pink'"):
        choose_theme("pink", themes, errors)
    assert choose_theme(None, themes).name == "dark"


async def test_the_theme_key_steps_through_all_and_draws_in_their_colours() -> None:
    async with opened(scenes.sixteen()) as screen:
        seen = []
        for _ in THEMES:
            await screen.press("t")
            seen.append(screen.app.paint.theme.name)
            ground = screen.app.paint.theme.colors["background"]
            grounds = {
                segment.style.bgcolor.get_truecolor().hex
                for strip in screen.app.screen._compositor.render_strips()
                for segment in strip
                if segment.style is not None and segment.style.bgcolor is not None
            }
            assert ground in grounds
        assert sorted(seen) == sorted(THEMES)


async def test_a_broken_user_theme_is_told_at_start_and_the_rest_works() -> None:
    from moetop.ui.theme import user_folder

    user_folder().mkdir(parents=True)
    (user_folder() / "broken.yaml").write_text("name: [")
    async with opened(scenes.sixteen()) as screen:
        assert any("broken.yaml:1" in toast for toast in screen.toasts())


async def test_no_color_sends_no_colour_and_keeps_state_readable() -> None:
    async with opened(scenes.reference_fleet(), no_color=True) as screen:
        for strip in screen.app.screen._compositor.render_strips():
            for segment in strip:
                style = segment.style
                assert style is None or style.color is None or style.color.is_default
                assert style is None or style.bgcolor is None or style.bgcolor.is_default
        assert "▲ starved?" in screen.text() and "✕ lost" in screen.text()


async def test_no_color_from_the_environment_is_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with opened(scenes.sixteen(), no_color=None) as screen:
        assert screen.app.bare


async def test_without_utf8_everything_is_ascii() -> None:
    async with opened(scenes.reference_fleet(), ascii_only=True) as screen:
        for keys in ((), ("w",), ("escape", "M"), ("escape", "l"), ("escape", "question_mark")):
            await screen.press(*keys)
            assert screen.text().isascii()
        await screen.press("escape")
        assert "! starved?" in screen.text() and "X lost" in screen.text()


def test_the_documentation_lists_every_role_and_the_example_is_a_theme() -> None:
    top = Path(__file__).resolve().parents[2]
    page = (top / "docs" / "themes.md").read_text("utf-8")
    assert all(f"| `{role}` | {text} |" in page for role, text in ROLES.items())
    example = top / "examples" / "themes" / "solarized.yaml"
    theme = read_theme(example.read_text("utf-8"), example.name, THEMES)
    assert contrast(theme.colors["quiet"], theme.colors["background"]) >= 4.5
