"""The one registry of actions: keys, footer, help, palette and docs/keys.md all come from it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

FLEET, DETAIL, SERVER, LOG, JOBS, FINDINGS, HELP, MAP, PLAN = (
    "fleet", "detail", "server", "log", "jobs", "findings", "help", "map", "plan",
)  # fmt: skip
LOOKING = (FLEET, DETAIL, SERVER, LOG, FINDINGS, MAP, JOBS)
CHARTED = (FLEET, DETAIL, SERVER)


@dataclass(frozen=True)
class Deed:
    """Something a key does. `acts` marks what changes a host: greyed with --readonly.

    `footer` is the short word of the footer (empty: not shown there), `weight` its order there.
    `area` and `title` make the palette's `area: Action`. `prompts`: what is typed next goes into its prompt.
    """

    name: str
    keys: tuple[str, ...]
    area: str
    title: str
    help: str
    where: tuple[str, ...]
    footer: str = ""
    weight: int = 50
    acts: bool = False
    prompts: bool = False


DEEDS: tuple[Deed, ...] = (
    Deed("quit", ("q",), "app", "Quit", "leave moetop; retune jobs continue on their hosts",
         (*LOOKING, HELP), "quit", 0),
    Deed("help", ("question_mark", "f1"), "app", "Keys", "the keys that work here and now", LOOKING, "keys", 1),
    Deed("back", ("escape",), "view", "Back", "back to the screen before; clear a filter or a search",
         (*LOOKING, HELP, PLAN), "back", 2),
    Deed("open", ("enter",), "view", "Detail of the selected row", "detail of the selected GPU or host, with the why",
         (FLEET, FINDINGS, MAP), "detail", 3),
    Deed("why", ("w",), "view", "Why: the gravest finding", "why of the gravest finding; again: of the next host's",
         (FLEET, MAP, DETAIL), "why", 4),
    Deed("log", ("l",), "view", "Log", "the log of the selected host's server", (FLEET, DETAIL, SERVER, MAP, FINDINGS),
         "log", 5),
    Deed("server", ("v",), "view", "Server", "the selected host's server: arguments, verdict, files, runs",
         (FLEET, DETAIL, LOG, MAP, FINDINGS), "server", 6),
    Deed("retune", ("r",), "server", "Retune and restart", "plan a retune of the selected host's server",
         (FLEET, DETAIL, SERVER, LOG, FINDINGS), "retune", 7, acts=True),
    Deed("filter", ("slash",), "table", "Filter rows", "filter rows: state:starved host:a* !model:*glm*",
         (FLEET,), "filter", 8, prompts=True),
    Deed("search", ("slash",), "log", "Search", "search the log; n and N go on", (LOG,), "search", 8,
         prompts=True),
    Deed("log_filter", ("ampersand",), "log", "Filter lines",
         "only lines with: kind:ready severity:warn rank:TP3 words", (LOG,), prompts=True),
    Deed("pause", ("space",), "view", "Pause or resume", "freeze the screen; what comes in meanwhile is kept",
         LOOKING, "pause", 9),
    Deed("next_event", ("e",), "log", "Next event", "next event of the log", (FLEET, LOG), "event", 10),
    Deed("previous_event", ("E", "upper_e"), "log", "Previous event", "previous event of the log", (FLEET, LOG)),
    Deed("findings", ("f",), "view", "Findings", "all findings with the times they came and went",
         (FLEET, DETAIL, SERVER, LOG, MAP, JOBS), "findings", 12),
    Deed("jobs", ("j",), "view", "Jobs", "retune jobs, running and done",
         (FLEET, DETAIL, SERVER, LOG, FINDINGS, MAP), "jobs", 13),
    Deed("snapshot", ("s",), "export", "Write a snapshot", "write the fleet as JSON to a file", LOOKING, "snapshot",
         14),
    Deed("picture", ("S", "upper_s"), "export", "Write a picture", "write this screen as SVG to a file", LOOKING),
    Deed("theme", ("t",), "app", "Next theme", "next colour theme", LOOKING, "theme", 15),
    Deed("map_screen", ("M", "upper_m"), "view", "Map of all GPUs", "the map of utilization against power, full size",
         (FLEET, DETAIL)),
    Deed("map_kind", ("p",), "chart", "Other map", "switch the map: utilization/power, tensor/DRAM", (FLEET, MAP),
         "map kind", 16),
    Deed("sort", ("o",), "table", "Next order", "order of the rows: given, worst, name, util, power, temp, memory",
         (FLEET,), "order", 17),
    Deed("fold", ("minus", "left"), "table", "Fold the host", "fold the host to one row", (FLEET,)),
    Deed("unfold", ("plus", "equals_sign", "right"), "table", "Unfold the host", "show the host's GPUs", (FLEET,)),
    Deed("fold_all", ("underscore",), "table", "Fold or unfold all hosts", "fold all hosts, or unfold them again",
         (FLEET,)),
    Deed("range_1m", ("1",), "chart", "Last minute", "charts: the last minute", CHARTED),
    Deed("range_5m", ("2",), "chart", "Last 5 minutes", "charts: the last 5 minutes", CHARTED),
    Deed("range_15m", ("3",), "chart", "Last 15 minutes", "charts: the last 15 minutes", CHARTED),
    Deed("range_1h", ("4",), "chart", "Last hour", "charts: the last hour", CHARTED),
    Deed("earlier", ("left_square_bracket",), "time", "Go back in time",
         "charts, table and log at an earlier time (a replay seeks)", (FLEET, DETAIL, LOG, MAP)),
    Deed("later", ("right_square_bracket",), "time", "Go on in time", "the other way", (FLEET, DETAIL, LOG, MAP)),
    Deed("now", ("0",), "time", "Back to now", "leave the past", (FLEET, DETAIL, LOG, MAP), "now", 3),
    Deed("slower", ("less_than_sign",), "time", "Replay slower", "replay at half the speed", LOOKING),
    Deed("faster", ("greater_than_sign",), "time", "Replay faster", "replay at twice the speed", LOOKING),
    Deed("next_match", ("n",), "log", "Next match", "next match of the search", (LOG,)),
    Deed("previous_match", ("N", "upper_n"), "log", "Previous match", "previous match of the search", (LOG,)),
    Deed("level", ("x",), "log", "Hide or show noise", "which lines show: all, without noise, events only", (LOG,),
         "lines", 11),
    Deed("kind", ("k",), "log", "Only this kind", "only lines of the selected line's kind, and back", (LOG,)),
    Deed("source", ("tab",), "log", "Next log", "next log of this host (server logs, the kernel's)", (LOG,)),
    Deed("next_server", ("tab",), "server", "Next server", "next server of this host", (SERVER,)),
    Deed("mark", ("m",), "log", "Drop a mark", "a mark with the time, between the lines", (LOG,), "mark", 18),
    Deed("follow", ("G", "upper_g"), "log", "Follow the end", "to the end, and follow it", (LOG,), "follow", 9),
    Deed("save_log", ("W", "upper_w"), "log", "Save the lines", "save the lines shown to a file", (LOG,)),
    Deed("copy", ("c",), "export", "Copy", "copy: the selected line, or the commands of the remedy",
         (FLEET, DETAIL, SERVER, LOG, FINDINGS, JOBS), "copy", 19),
    Deed("add_host", ("a",), "host", "Watch another host", "watch one more host: NAME, USER@NAME:PORT or an ssh alias",
         (FLEET,), "add", 20, prompts=True),
    Deed("reconnect", ("R", "upper_r"), "host", "Connect again",
         "try the selected lost host now, asking again what was left unanswered",
         (FLEET, DETAIL, SERVER, LOG), "reconnect", 3),
    Deed("remove_host", ("d",), "host", "Stop watching the host", "stop watching the selected host (asks first)",
         (FLEET,), "remove", 21, prompts=True),
    Deed("cancel_job", ("X", "upper_x"), "job", "Cancel the job", "stop the job and put back what it moved", (JOBS,),
         "cancel", 4, acts=True),
    Deed("answer_job", ("a",), "job", "Answer the job", "answer what the job asks", (JOBS,), "answer", 3, acts=True),
    Deed("bell", ("b",), "app", "Bell on or off", "ring the terminal's bell when a finding appears", (FLEET, FINDINGS)),
    Deed("palette", ("ctrl+p", "colon"), "app", "Command palette", "every action by name", LOOKING),
)  # fmt: skip

MOVES: tuple[tuple[str, str], ...] = (
    ("↑ ↓  page up/down  home end", "move; the mouse wheel scrolls"),
    ("click", "select a row; a click on the answer line, a title or the footer does what it says"),
    ("double click", "detail of a row"),
    ("shift + drag", "select text with the terminal's own mouse (most terminals)"),
    ("ctrl+c", "stop moetop at once (exit code 130)"),
)
"""Keys and mouse that are no deeds."""

LETTERS: dict[str, str] = {"slash": "/", "ampersand": "&"}
"""What the named keys of deeds with a prompt type."""

KEY_FACES: dict[str, str] = {
    "question_mark": "?", "ampersand": "&",
    "slash": "/", "escape": "esc", "enter": "⏎", "minus": "-", "plus": "+", "equals_sign": "=",
    "underscore": "_", "left_square_bracket": "[", "right_square_bracket": "]", "less_than_sign": "<",
    "greater_than_sign": ">", "left": "←", "right": "→", "colon": ":", "f1": "F1",
}  # fmt: skip
"""How Textual's key names are written for people."""


def face(key: str) -> str:
    """A key as people write it; empty for the second spelling of a capital."""
    if key.startswith("upper_"):
        return ""
    return KEY_FACES.get(key, key)


def faces(deed: Deed) -> str:
    """All keys of a deed."""
    return " ".join(filter(None, (face(key) for key in deed.keys)))


def deeds_of(screen: str) -> list[Deed]:
    """Deeds whose keys work on a screen."""
    return [deed for deed in DEEDS if screen in deed.where]


def footer_of(screen: str) -> list[Deed]:
    """Deeds in the footer of a screen, in order."""
    return sorted((deed for deed in deeds_of(screen) if deed.footer), key=lambda deed: deed.weight)


def deed(name: str) -> Deed:
    """The deed called `name`."""
    return next(deed for deed in DEEDS if deed.name == name)


def markdown(screens: Iterable[tuple[str, str]] | None = None) -> str:
    """docs/keys.md."""
    chosen = SCREEN_TITLES.items() if screens is None else screens
    lines = [
        "# Keys",
        "",
        "Generated from `moetop/ui/keys.py` by `python -m moetop.ui.keys`. `?` in the app lists the keys that",
        "work where you are. Keys marked with † change something on a host; `--readonly` greys them.",
        "",
    ]
    lines += ["## Everywhere", "", "| key | what it does |", "|---|---|"]
    lines += [f"| {keys} | {text} |" for keys, text in MOVES]
    for screen, title in chosen:
        lines += ["", f"## {title}", "", "| key | what it does | palette |", "|---|---|---|"]
        for item in deeds_of(screen):
            keys = " ".join(f"`{face(key)}`" for key in item.keys if face(key))
            lines.append(f"| {keys}{' †' if item.acts else ''} | {item.help} | {item.area}: {item.title} |")
    return "\n".join([*lines, "", *_small_terminals(), *_filters()]) + "\n"


def _small_terminals() -> list[str]:
    """Which columns and panes give way, from the table of columns."""
    from moetop.ui.columns import COLUMNS, fit_columns

    order = sorted((column for column in COLUMNS if column.drop is not None), key=lambda column: column.drop or 0)
    names = [COLUMN_NAMES.get(column.key, column.title) for column in order]
    needs = {width: len(fit_columns(width).dropped) for width in (80, 120, 150)}
    return [
        "## What gives way in a small terminal",
        "",
        "Columns of the fleet leave in this order as the terminal gets narrower, and come back when it widens:",
        "",
        *(f"{number}. {name}" for number, name in enumerate(names, 1)),
        "",
        f"At 150 columns all are there, at 120 the first {needs[120]} are gone, at 80 the first {needs[80]}.",
        "Host, state and power in percent of the limit never leave. Below 30 lines the rules between the parts and all",
        "answers but the first go, below 32 lines the charts; the map needs 100 columns. The answer line and newest",
        "event never go. Rows that do not fit are counted beside the title (`▲3 ▼12 more`). Below 40x10 moetop only",
        "says how much it needs.",
        "",
    ]


def _filters() -> list[str]:
    """The two filter languages."""
    from moetop.ui.rows import FILTER_KEYS

    return [
        "## Filters",
        "",
        "Rows (`/` on the fleet): words that must all hold. `!` before a word: must not. `*` stands for anything.",
        "",
        "| word | looks at |",
        "|---|---|",
        *(f"| `{key}:` | {text} |" for key, text in FILTER_KEYS.items()),
        "| no key | all of these |",
        "",
        "Lines (`&` in the log): `kind:ready`, `severity:warn`, `rank:TP3`, `engine:sglang`; other words as text.",
    ]


COLUMN_NAMES: dict[str, str] = {
    "util_bar": "bar of utilization",
    "power_bar": "bar of power",
    "limit": "what holds the GPU back",
    "power": "power / limit in watts",
    "memory": "memory",
    "temp": "temperature",
    "tensor": "tensor activity",
    "dram": "DRAM activity",
    "clock": "SM clock",
    "util": "utilization",
    "sm_active": "SM activity",
    "util_mem": "memory utilization",
}
"""Columns by name in the documentation."""


SCREEN_TITLES: dict[str, str] = {
    FLEET: "Fleet",
    DETAIL: "Detail of a host or GPU",
    SERVER: "Server",
    LOG: "Log",
    FINDINGS: "Findings",
    JOBS: "Jobs",
    MAP: "Map",
    HELP: "Help",
    PLAN: "Plan of a retune (type its word and enter)",
}


if __name__ == "__main__":
    import sys

    sys.stdout.write(markdown())
