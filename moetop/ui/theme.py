"""Themes: one YAML file each, built in or the user's, read into checked colours. No drawing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

import yaml
from textual.theme import Theme as TextualTheme

from moetop.errors import UsageError
from moetop.places import config_folder

ROLES: dict[str, str] = {
    "background": "ground of the screen",
    "surface": "ground of windows over the screen",
    "selection": "ground of the selected row",
    "text": "what needs reading",
    "quiet": "healthy rows, labels, absent values",
    "faint": "rules, empty part of bars, axes",
    "accent": "keys, the cursor, links",
    "good": "what is well and worth saying",
    "notice": "something is under way",
    "warning": "findings of severity warning",
    "critical": "findings of severity critical",
    "tensor_starved": "state tensor_starved",
    "sm_underused": "state sm_underused",
    "transfer_bound": "state transfer_bound",
    "host_bound": "state host_bound",
    "vector_bound": "state vector_bound",
    "unknown": "state unknown",
    "balanced": "state balanced",
    "memory_bound": "state memory_bound",
    "tensor_busy": "state tensor_busy",
    "idle": "state idle",
    "series_util": "utilization in charts and bars",
    "series_power": "power in charts and bars",
    "series_limit": "the power limit in charts",
    "series_tensor": "tensor activity in charts",
    "series_dram": "memory activity in charts",
    "series_tokens": "tokens a second in charts",
    "mark": "log events on a time axis",
}
"""Every colour a theme gives, with what it colours."""

DEFAULT_THEME = "dark"
_COLOUR = re.compile(r"#[0-9a-fA-F]{6}\Z")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}\Z")
_KEYS = {"name", "title", "dark", "extends", "colors"}


@dataclass(frozen=True)
class Theme:
    """A checked theme. `colors` has every role of ROLES as `#rrggbb`."""

    name: str
    title: str
    dark: bool
    colors: Mapping[str, str]
    origin: str

    def for_textual(self) -> TextualTheme:
        """The same theme for Textual's own widgets (inputs, toasts, the palette)."""
        colors = self.colors
        return TextualTheme(
            name=f"moetop-{self.name}",
            primary=colors["accent"],
            secondary=colors["notice"],
            accent=colors["accent"],
            warning=colors["warning"],
            error=colors["critical"],
            success=colors["good"],
            foreground=colors["text"],
            background=colors["background"],
            surface=colors["surface"],
            panel=colors["surface"],
            dark=self.dark,
            variables={"faint": colors["faint"], "quiet": colors["quiet"], "selection": colors["selection"]},
        )


class ThemeError(UsageError):
    """A theme file that cannot be used; the sentence names file, line and key."""


def read_theme(text: str, origin: str, known: Mapping[str, Theme]) -> Theme:
    """Parse and check one theme file. `known` are the themes that `extends` may name."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark is not None else ""
        raise ThemeError(f"{origin}{line}: not YAML: {getattr(error, 'problem', None) or error}") from error
    fields = _mapping(node, origin, "the theme")
    for key, (at, _value) in fields.items():
        if key not in _KEYS:
            raise ThemeError(f"{origin}:{at}: unknown key {key!r}", f"known keys: {', '.join(sorted(_KEYS))}")
    name = _scalar(fields, "name", origin)
    if name is None or not _NAME.match(name):
        raise ThemeError(f"{origin}:1: name must be a word of letters, digits, - or _")
    base = _base(fields, origin, known)
    dark = _scalar(fields, "dark", origin)
    if dark is not None and dark not in ("true", "false"):
        raise ThemeError(f"{origin}:{fields['dark'][0]}: dark must be true or false, not {dark!r}")
    colors = dict(base.colors) if base is not None else {}
    if "colors" in fields:
        colors.update(_colors(fields["colors"][1], origin))
    missing = [role for role in ROLES if role not in colors]
    if missing:
        raise ThemeError(f"{origin}: colors lacks {', '.join(missing)}", "add them, or `extends: dark`")
    is_dark = dark == "true" if dark is not None else base.dark if base is not None else True
    return Theme(name, _scalar(fields, "title", origin) or name, is_dark, colors, origin)


def _base(fields: Mapping[str, tuple[int, yaml.Node]], origin: str, known: Mapping[str, Theme]) -> Theme | None:
    wanted = _scalar(fields, "extends", origin)
    if wanted is None:
        return None
    if wanted not in known:
        raise ThemeError(
            f"{origin}:{fields['extends'][0]}: extends unknown theme {wanted!r}", f"known: {', '.join(known)}"
        )
    return known[wanted]


def _mapping(node: yaml.Node | None, origin: str, what: str) -> dict[str, tuple[int, yaml.Node]]:
    if not isinstance(node, yaml.MappingNode):
        line = node.start_mark.line + 1 if node is not None else 1
        raise ThemeError(f"{origin}:{line}: {what} must be a list of `key: value`")
    found: dict[str, tuple[int, yaml.Node]] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            raise ThemeError(f"{origin}:{line}: a key must be a word")
        if key.value in found:
            raise ThemeError(f"{origin}:{line}: {key.value!r} stands twice")
        found[key.value] = (line, value)
    return found


def _scalar(fields: Mapping[str, tuple[int, yaml.Node]], key: str, origin: str) -> str | None:
    if key not in fields:
        return None
    line, node = fields[key]
    if not isinstance(node, yaml.ScalarNode):
        raise ThemeError(f"{origin}:{line}: {key} must be a single value")
    return str(node.value)


def _colors(node: yaml.Node, origin: str) -> dict[str, str]:
    colors: dict[str, str] = {}
    for role, (line, value) in _mapping(node, origin, "colors").items():
        if role not in ROLES:
            raise ThemeError(f"{origin}:{line}: unknown colour role {role!r}", "docs/themes.md lists the roles")
        if not isinstance(value, yaml.ScalarNode) or not _COLOUR.match(value.value):
            shown = value.value if isinstance(value, yaml.ScalarNode) else "a list"
            raise ThemeError(
                f'{origin}:{line}: {role} must be a colour like "#1f2d3d" (in quotes), not {str(shown)[:40]!r}'
            )
        colors[role] = value.value
    return colors


def builtin_themes() -> dict[str, Theme]:
    """Themes packaged with moetop, by name, the default first."""
    return dict(_read_builtin_themes())


@cache
def _read_builtin_themes() -> dict[str, Theme]:
    folder = resources.files("moetop").joinpath("themes")
    texts = {entry.name: entry.read_text("utf-8") for entry in folder.iterdir() if entry.name.endswith(".yaml")}
    themes: dict[str, Theme] = {}
    for file in sorted(texts, key=lambda name: (name != f"{DEFAULT_THEME}.yaml", name)):
        theme = read_theme(texts[file], file, themes)
        themes[theme.name] = theme
    return themes


def user_folder() -> Path:
    """Where the user's own themes lie."""
    return config_folder() / "themes"


def load_themes(folders: Iterable[Path] | None = None) -> tuple[dict[str, Theme], list[ThemeError]]:
    """Built-in themes and those of `folders` (default: the user's), and what was wrong with the rest."""
    themes = builtin_themes()
    errors: list[ThemeError] = []
    for folder in (user_folder(),) if folders is None else folders:
        for path in sorted(folder.glob("*.y*ml")) if folder.is_dir() else ():
            try:
                theme = read_theme(path.read_text("utf-8"), str(path), themes)
                themes[theme.name] = theme
            except ThemeError as error:
                errors.append(error)
            except (OSError, UnicodeDecodeError) as error:
                errors.append(ThemeError(f"{path}: cannot be read: {error}"))
    return themes, errors


def choose_theme(name: str | None, themes: Mapping[str, Theme], errors: Iterable[ThemeError] = ()) -> Theme:
    """The theme called `name` (None: the default). A name that failed to load raises its own error."""
    if name is None:
        return themes[DEFAULT_THEME]
    if name in themes:
        return themes[name]
    for error in errors:
        if Path(str(error).split(":", 1)[0]).stem == name:
            raise error
    raise ThemeError(f"no theme is called {name!r}", f"there are: {', '.join(themes)}")
