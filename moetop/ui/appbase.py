"""State shared by the screens and the clockwork that fetches scenes. Knows no single screen."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.filter import LineFilter
from textual.message import Message

from moetop.errors import MoetopError
from moetop.model import LinkPhase
from moetop.ui import fmt
from moetop.ui.attention import FindingsLog, is_loud, toasts
from moetop.ui.feed import AT_WORK, Actions, NoActions, Playback, WatchFeed
from moetop.ui.gather import gather
from moetop.ui.paint import AsciiOnly, Colourless, Paint
from moetop.ui.palette import MoeCommands
from moetop.ui.past import past_scene
from moetop.ui.rows import Filter
from moetop.ui.scene import HostView, Scene, text_time
from moetop.ui.screens.base import MoeScreen
from moetop.ui.screens.question import QuestionScreen
from moetop.ui.settling import Pace, Settling
from moetop.ui.telling import TellingApp
from moetop.ui.terminal import terminal_has_utf8
from moetop.ui.theme import DEFAULT_THEME, Theme, choose_theme, load_themes

TICK_S = 0.2
"""How often the app looks whether the feed has something new."""

SCENE_S = 0.95
"""Least time between two scenes once the hosts have answered: numbers that change faster cannot be read."""

RANGES_S = (60.0, 300.0, 900.0, 3600.0)
"""Time ranges of the charts, by the number keys."""


HURRY_S = 15.0
"""While hosts answer for the first time scenes come as fast as there is news, for at most this long."""


class SceneReady(Message):
    """A scene gathered by the worker."""

    def __init__(self, scene: Scene) -> None:
        super().__init__()
        self.scene = scene


class BaseApp(TellingApp):
    """State shared by the screens. It reads a feed and calls actions; it owns no connection."""

    CSS_PATH = "moetop.tcss"
    TITLE = "moetop"
    ENABLE_COMMAND_PALETTE = True
    COMMANDS: ClassVar = {MoeCommands}
    COMMAND_PALETTE_BINDING = "ctrl+p"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+c", "interrupt", show=False, priority=True)]

    def __init__(
        self,
        feed: WatchFeed,
        *,
        actions: Actions | None = None,
        theme: str | None = None,
        readonly: bool = False,
        demo_note: str | None = None,
        interval_s: float = 1.0,
        clock: Callable[[], float] = time.time,
        ascii_only: bool | None = None,
        no_color: bool | None = None,
        few_colors: bool | None = None,
        bell: bool = False,
        ticking: bool = True,
        mode: str | None = None,
        kind: str = "live",
        on_shown: Callable[[], None] | None = None,
    ) -> None:
        super().__init__()
        self.feed = feed
        self.actions = actions or NoActions()
        self.readonly = readonly
        self.demo_note = demo_note
        self.interval_s = interval_s
        self.clock = clock
        self.bell_on = bell
        self.ticking = ticking
        self.mode = mode
        self.kind = kind
        self.on_shown = on_shown
        self.bare = (self.no_color or bool(os.environ.get("NO_COLOR"))) if no_color is None else no_color
        self.ascii_only = not terminal_has_utf8() if ascii_only is None else ascii_only
        self.themes, self.theme_errors = load_themes()
        self._few = self.console.color_system == "standard" if few_colors is None else few_colors
        self.paint = Paint(choose_theme(theme, self.themes, self.theme_errors), self.bare, self._few)
        self.scene = Scene(t=clock())
        self.findings = FindingsLog()
        self.paused = False
        self.paused_at = 0.0
        self.range_chosen: float | None = None
        self.map_kind = "power"
        self.row_filter: Filter | None = None
        self.cursor_t: float | None = None
        self._sought: float | None = None
        self._seeking = False
        self._present = Scene(t=clock())
        self.chosen: tuple[str, int | None] | None = None
        self.chosen_server: tuple[str, str] | None = None
        self.picked_log: tuple[str, str] | None = None
        self._started_at = clock()
        self._settling = Settling()
        self._held = 0
        self._gathering = False
        self._gathered_at = float("-inf")
        self._own_filters: list[LineFilter] = []
        if self.bare:
            self._own_filters.append(Colourless())
        if self.ascii_only:
            self._own_filters.append(AsciiOnly())

    # ── set-up ───────────────────────────────────────────────────────────────────────────────────

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Without colours Textual's own filters go too: they would send greys."""
        return self._own_filters if self.bare else [*super().get_line_filters(), *self._own_filters]

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Variables of moetop.tcss before a theme of ours is in force."""
        colors = self.themes[DEFAULT_THEME].colors if hasattr(self, "themes") else {}
        return {name: colors.get(name, "#808080") for name in ("faint", "quiet", "selection")}

    def use_theme(self, theme: Theme) -> None:
        """Draw everything in `theme`."""
        self.paint = Paint(theme, self.bare, self._few)
        self.theme = f"moetop-{theme.name}"
        for screen in self.screen_stack:
            if isinstance(screen, MoeScreen):
                screen.repaint()

    # ── scenes ───────────────────────────────────────────────────────────────────────────────────

    def tick(self) -> None:
        """Fetch a scene in a worker when something is new and the last one is through."""
        self._heed_question()
        for notice in self.actions.take_notices():
            self.say(notice, title="hosts")
        if self._gathering:
            return
        now = self.clock()
        pace = self._settling.look(self.feed, now, self._speed_of_replay())
        if pace is Pace.HOLDING:
            self._held += 1
            if self._held > 1:  # a live host is settled at the second look
                self._say_reading()
            return
        self._held = 0
        settled = bool(self.scene.hosts) and all(host.report.gpus or host.lost for host in self.scene.hosts)
        settled = settled or now - self._started_at > HURRY_S
        fresh = self.feed.generation != self.scene.generation
        due = now - self._gathered_at >= SCENE_S
        if due or (fresh and not settled):
            self._gathering = True
            self._gathered_at = now
            reading = pace is Pace.READING
            self.run_worker(lambda: self._gather(reading), thread=True, group="gather", name="gather")

    def _speed_of_replay(self) -> float:
        playback = self.playback()
        return playback.speed if playback is not None else 1.0

    def _say_reading(self) -> None:
        """While the past is being read the screen says so; rows come with the first true scene."""
        if not self.scene.reading:
            self.scene = replace(self.scene, reading=True)
            self.show_top()

    def begin_anew(self) -> None:
        """What the feed has is another time now (a replay jumped): nothing that differs is news."""
        self._settling.begin()
        self.findings = FindingsLog()

    def _heed_question(self) -> None:
        """Show what a host asks, and take it away when nobody waits for the answer any more."""
        asked = self.actions.question()
        shown = next((one for one in self.screen_stack if isinstance(one, QuestionScreen) and one.asked), None)
        if shown is not None:
            if (asked is None or asked.id != shown.asked) and self.screen is shown:
                shown.dismiss(None)
        elif asked is not None:
            screen = QuestionScreen(asked.text, secret=not asked.visible, asked=asked.id)
            self.push_screen(screen, lambda answer, number=asked.id: self.actions.answer_question(number, answer))

    def _gather(self, reading: bool) -> None:
        self.post_message(SceneReady(replace(gather(self.feed, self.clock()), reading=reading)))

    def gather_now(self) -> None:
        """Fetch and show a scene at once (pictures, tests)."""
        self.take_scene(gather(self.feed, self.clock()))

    def on_scene_ready(self, message: SceneReady) -> None:
        self._gathering = False
        self.take_scene(message.scene)

    def take_scene(self, scene: Scene) -> None:
        """Show a scene, unless paused; attention is paid in any case."""
        self._attend(scene)
        if self.paused:
            self._show_header_only()
            return
        self._present = scene
        self._set_scene()
        self.show_top()

    def _set_scene(self) -> None:
        """The scene shown: the present one, or that of the time cursor."""
        scene = self._present
        if self.cursor_t is not None:
            scene = past_scene(scene, self.feed, self.cursor_t)
        self.scene = scene

    def show_top(self) -> None:
        """Draw the screen on top; while the app starts or ends there is none."""
        screen = self.screen if self.screen_stack else None
        if isinstance(screen, MoeScreen):
            screen.show()

    def _show_header_only(self) -> None:
        screen = self.screen
        if isinstance(screen, MoeScreen):
            screen.show_header()

    def _attend(self, scene: Scene) -> None:
        if scene.reading:
            return
        came, gone = self.findings.update(scene)
        if came or gone:
            at_work = {job.host for job in self.actions.jobs() if job.state in AT_WORK}
            came, gone = ([noted for noted in some if is_loud(noted, at_work)] for some in (came, gone))
        for title, text, severity in toasts(came, gone):
            self.say(text, severity, title=title)
        if self.bell_on and any(noted.finding.severity.value != "info" for noted in came):
            self.bell()

    # ── what the screens ask ─────────────────────────────────────────────────────────────────────

    def chosen_host(self) -> HostView | None:
        """The host under the cursor of the fleet."""
        return self.scene.host(self.chosen[0]) if self.chosen is not None else None

    @property
    def range_s(self) -> float:
        """Length of the charts, seconds: as chosen, else one minute until there is more to show, then five."""
        if self.range_chosen is not None:
            return self.range_chosen
        host = self.chosen_host()
        for gpu in host.report.gpus if host is not None else ():
            history = self.feed.history(host.name, gpu.index) if host is not None else None
            if history is not None and history.first_t is not None and history.last_t is not None:
                return RANGES_S[0] if history.last_t - history.first_t < RANGES_S[0] else RANGES_S[1]
        return RANGES_S[1]

    def playback(self) -> Playback | None:
        """Where a replay stands; while it is on its way to another time, that time."""
        there = self.actions.playback()
        if there is None or self._sought is None:
            return there
        if not self._seeking and there.t is not None and there.t >= self._sought:
            self._sought = None
            return there
        return replace(there, t=self._sought, finished=False)

    def seek_to(self, t: float) -> None:
        """Bring a replay to `t` recording seconds, one jump after the other; of several asked for the last counts."""
        self._sought = t
        if not self._seeking:
            self._seeking = True
            self.perform(self._seek, "replay")
        self.show_top()

    def _seek(self) -> str:
        done = None
        try:
            while (t := self._sought) is not None and t != done:
                self.actions.seek(t)
                done = t
        except MoetopError:
            self._sought = done = None
            raise
        finally:
            self.call_from_thread(self._sought_to, done)
        return ""

    def _sought_to(self, done: float | None) -> None:
        self._seeking = False
        self.begin_anew()
        if self._sought is not None and self._sought != done:
            self.seek_to(self._sought)

    def shown_t(self) -> float:
        """The time the screen shows: of the cursor, of a replay, else of this machine."""
        if self.cursor_t is not None:
            return self.cursor_t
        playback = self.playback()
        if playback is not None and playback.t is not None:
            return playback.t
        return self.scene.t

    def time_words(self) -> str:
        """That time for the header; of pasted text what it says itself, nothing where it does not."""
        return text_time(self.scene) if self.kind == "pasted" else fmt.clock_time(self.shown_t())

    def mode_words(self) -> list[tuple[str, str]]:
        """Live, paused, replay or demo, for the header."""
        if self.mode is not None:
            return [(self.mode, "quiet")]
        if self.cursor_t is not None:
            return [(f"◂ {fmt.span(self._present.t - self.cursor_t)} ago", "notice!")]
        if self.paused:
            return [(f"▌ paused {fmt.span(self.clock() - self.paused_at)}", "warning")]
        playback = self.playback()
        if playback is not None:
            if playback.finished:
                return [("■ replay finished", "notice")]
            if playback.speed == 0:
                return [("▌ replay halted", "notice")]
            return [(f"▸ {'demo' if self.demo_note else 'replay'} ×{playback.speed:g}", "notice")]
        hosts = self.scene.hosts
        if hosts and all(host.link.phase is LinkPhase.FINISHED for host in hosts):
            return [("■ pasted text" if self.kind == "pasted" else "■ finished", "notice")]
        rate = f"{1 / self.interval_s:g} Hz" if self.interval_s <= 1 else f"every {self.interval_s:g} s"
        return [("● ", "good"), (f"{'demo' if self.demo_note else 'live'} {rate}", "quiet")]

    # ── time ─────────────────────────────────────────────────────────────────────────────────────

    def host_cursor(self, host: HostView) -> float | None:
        """The time cursor on a host's own clock; None: the present."""
        now = host.now if host.now is not None else host.last_t
        if self.cursor_t is None or now is None:
            return None
        return now - (self.scene.t - self.cursor_t)

    @property
    def present_t(self) -> float:
        """The present of the newest scene, epoch seconds of this machine."""
        return self._present.t

    def go_to_time(self, t: float) -> None:
        """Show the fleet as it was at `t` (epoch seconds of this machine), as far back as is kept."""
        wanted = max(t, self.present_t - self._history_s())
        self.cursor_t = wanted if wanted < self.present_t else None
        self._set_scene()
        self.show_top()

    def _history_s(self) -> float:
        """How far back any history goes, seconds."""
        reach = 0.0
        for host in self._present.hosts:
            now = host.now if host.now is not None else host.last_t
            for gpu in host.report.gpus:
                history = self.feed.history(host.name, gpu.index)
                if history is not None and history.first_t is not None and now is not None:
                    reach = max(reach, now - history.first_t)
        return reach
