"""Which screens are kept as pictures: scene, size, keys that lead there, and how the app is started."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.ui import odd_scenes, scenes
from tests.ui.scenes import Deeds, StillFeed

SMALL, MIDDLE, LARGE = SIZES = (80, 24), (120, 40), (200, 60)


@dataclass(frozen=True)
class Case:
    """One picture. `few_colours`: as a terminal of 16 colours gets it."""

    name: str
    feed: Callable[[], StillFeed]
    size: tuple[int, int]
    keys: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    actions: Callable[[], Deeds] = Deeds
    few_colours: bool = False

    @property
    def file(self) -> str:
        """The name of its picture."""
        return f"{self.name}-{self.size[0]}x{self.size[1]}.svg"


SCREENS: dict[str, tuple[Callable[[], StillFeed], tuple[str, ...]]] = {
    "fleet": (scenes.reference_fleet, ()),
    "host": (scenes.reference_fleet, ("home", "enter")),
    "gpu": (scenes.reference_fleet, ("home", "down", "enter")),
    "charts": (scenes.reference_fleet, ("end", "up", "enter", "3")),
    "why": (odd_scenes.mixed_findings, ("w", "w")),
    "server": (scenes.reference_fleet, ("home", "v")),
    "log": (scenes.reference_fleet, ("home", "l", "x", "x")),
    "map": (scenes.reference_fleet, ("M",)),
    "activity-map": (scenes.big_fleet, ("M", "p")),
    "findings": (odd_scenes.mixed_findings, ("f", "down", "down")),
    "jobs": (scenes.reference_fleet, ("j",)),
    "plan": (scenes.reference_fleet, ("home", "r")),
    "help": (scenes.reference_fleet, ("question_mark",)),
}
"""Kept at every size in the default theme."""

LOOKS: dict[str, dict[str, Any]] = {
    "light": {"theme": "light"},
    "high-contrast": {"theme": "high-contrast"},
    "colour-blind": {"theme": "colour-blind"},
    "no-color": {"no_color": True},
    "ascii": {"ascii_only": True},
}
"""The other ways of looking, each of them for the screens of IN_EVERY_LOOK; 16 colours come beside them."""

IN_EVERY_LOOK = ("fleet", "gpu", "map", "log")

ODD: tuple[Case, ...] = (
    Case("lost-host", scenes.reference_fleet, MIDDLE, ("enter",)),
    Case("lost-gpu", scenes.lost_gpu, MIDDLE),
    Case("lost-gpu-detail", scenes.lost_gpu, SMALL, ("down", "down", "down", "enter")),
    Case("no-values", scenes.no_values, SMALL),
    Case("no-values-detail", scenes.no_values, MIDDLE, ("down", "enter")),
    Case("no-values-server", odd_scenes.without_numbers, MIDDLE, ("v",)),
    Case("empty", scenes.empty, SMALL),
    Case("empty-map", scenes.empty, SMALL, ("M",)),
    Case("empty-findings", scenes.empty, SMALL, ("f",)),
    Case("empty-jobs", scenes.empty, SMALL, ("j",)),
    Case("connecting", scenes.connecting, SMALL),
    Case("64-gpus", scenes.big_fleet, SMALL),
    Case("64-gpus", scenes.big_fleet, LARGE),
    Case("64-gpus-folded", scenes.big_fleet, SMALL, ("underscore",)),
    Case("16-gpus", scenes.sixteen, SMALL),
    Case("long-names", odd_scenes.long_names, SMALL),
    Case("long-names", odd_scenes.long_names, MIDDLE),
    Case("long-names-detail", odd_scenes.long_names, SMALL, ("down", "enter")),
    Case("long-names-server", odd_scenes.long_names, SMALL, ("v",)),
    Case("long-names-map", odd_scenes.long_names, MIDDLE, ("M",)),
    Case("hostile", scenes.hostile, MIDDLE),
    Case("hostile-why", scenes.hostile, MIDDLE, ("w",)),
    Case("strange-log", odd_scenes.strange_log, SMALL, ("l",)),
    Case("strange-log", odd_scenes.strange_log, MIDDLE, ("l",)),
    Case("strange-log-ascii", odd_scenes.strange_log, MIDDLE, ("l",), {"ascii_only": True}),
    Case("demo", scenes.big_fleet, MIDDLE, (), {"demo_note": "recorded H200, scripted server"}),
    Case("replay", scenes.sixteen, SMALL, (), {"kind": "recording"}, odd_scenes.playing),
    Case("replay-finished", odd_scenes.finished, SMALL, (), {"kind": "recording"}, odd_scenes.replay_finished),
    Case("paused", scenes.reference_fleet, SMALL, ("space",)),
    Case("past", scenes.reference_fleet, MIDDLE, ("home", "3", *["left_square_bracket"] * 3)),
    Case("readonly-help", scenes.reference_fleet, MIDDLE, ("home", "question_mark"), {"readonly": True}),
    Case("filtering", scenes.reference_fleet, SMALL, ("slash", *"state:starved")),
    Case("filter-mistake", scenes.reference_fleet, SMALL, ("slash", *"colour:red")),
    Case("removing", scenes.big_fleet, SMALL, ("d",)),
    Case("searching", scenes.reference_fleet, MIDDLE, ("home", "l", "slash", *"mem", "enter", "m")),
    Case("palette", scenes.reference_fleet, SMALL, ("ctrl+p",)),
    Case("palette-no-color", scenes.reference_fleet, MIDDLE, ("ctrl+p", "down"), {"no_color": True}),
    Case("message", scenes.reference_fleet, SMALL, ("home", "s"), {"show_toasts": True}),
    Case("answering", scenes.reference_fleet, SMALL, ("j", "down", "a"), {}, odd_scenes.with_jobs),
    Case("too-small", scenes.reference_fleet, (39, 9)),
)

CASES: tuple[Case, ...] = (
    *(
        Case(name, feed, size, keys, {}, odd_scenes.with_jobs if name == "jobs" else Deeds)
        for name, (feed, keys) in SCREENS.items()
        for size in SIZES
    ),
    *(
        Case(f"{name}-{look}", SCREENS[name][0], MIDDLE, SCREENS[name][1], options)
        for look, options in LOOKS.items()
        for name in IN_EVERY_LOOK
    ),
    *(Case(f"{name}-16-colours", *SCREENS[name][:1], MIDDLE, SCREENS[name][1], few_colours=True)
      for name in IN_EVERY_LOOK),
    *ODD,
)  # fmt: skip
