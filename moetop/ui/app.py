"""The Textual app: state shared by the screens, the clockwork that fetches scenes, and what keys do."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.app import App
from textual.binding import Binding, BindingType
from textual.filter import LineFilter
from textual.message import Message

from moetop.errors import ExitCode, MoetopError
from moetop.model import LinkPhase, Snapshot
from moetop.ui import fmt, keys
from moetop.ui.attention import FindingsLog, toast
from moetop.ui.feed import Actions, NoActions, Playback, WatchFeed
from moetop.ui.gather import gather
from moetop.ui.paint import AsciiOnly, Colourless, Paint, clean
from moetop.ui.palette import MoeCommands
from moetop.ui.past import StateTrail, past_scene
from moetop.ui.scene import HostView, Scene
from moetop.ui.screens.base import MoeScreen
from moetop.ui.screens.detail import DetailScreen
from moetop.ui.screens.findings import FindingsScreen
from moetop.ui.screens.fleet import ROOMY_LINES, FleetScreen
from moetop.ui.screens.help import HelpScreen
from moetop.ui.screens.jobs import JobsScreen
from moetop.ui.screens.log import LogScreen
from moetop.ui.screens.map import MapScreen
from moetop.ui.screens.plan import PlanScreen
from moetop.ui.screens.server import ServerScreen
from moetop.ui.terminal import terminal_has_utf8
from moetop.ui.theme import DEFAULT_THEME, Theme, choose_theme, load_themes

TICK_S = 0.2
"""How often the app looks whether the feed has something new."""

SCENE_S = 0.95
"""Least time between two scenes once every host has answered: numbers that change faster cannot be read."""

RANGES_S = (60.0, 300.0, 900.0, 3600.0)
"""Time ranges of the charts, by the number keys."""


class SceneReady(Message):
    """A scene gathered by the worker."""

    def __init__(self, scene: Scene) -> None:
        super().__init__()
        self.scene = scene


class MoetopApp(App[int]):
    """moetop's screen. It reads a feed and calls actions; it owns no connection."""

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
        bell: bool = False,
        ticking: bool = True,
        mode: str | None = None,
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
        self.bare = (self.no_color or bool(os.environ.get("NO_COLOR"))) if no_color is None else no_color
        self.ascii_only = not terminal_has_utf8() if ascii_only is None else ascii_only
        self.themes, self.theme_errors = load_themes()
        self.paint = Paint(choose_theme(theme, self.themes, self.theme_errors), self.bare)
        self.scene = Scene(t=clock())
        self.findings = FindingsLog()
        self.paused = False
        self.paused_at = 0.0
        self.range_chosen: float | None = None
        self.map_kind = "power"
        self.cursor_t: float | None = None
        self.trail = StateTrail()
        self._present = Scene(t=clock())
        self._aimed = False
        self.chosen: tuple[str, int | None] | None = None
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

    def on_mount(self) -> None:
        for theme in self.themes.values():
            self.register_theme(theme.for_textual())
        self.use_theme(self.paint.theme)
        self.set_class(self.bare, "-bare")
        for screen in (FleetScreen, DetailScreen, ServerScreen, LogScreen, FindingsScreen, JobsScreen, MapScreen):
            self.install_screen(screen(), screen.where)
        self.push_screen(keys.FLEET)
        for error in self.theme_errors:
            self.say(error.sentence(), "warning", title="theme not used")
        if self.demo_note and self.size.height < ROOMY_LINES:
            self.say(self.demo_note, title="demo")
        if self.ticking:
            self.set_interval(TICK_S, self.tick)
            self.tick()

    def use_theme(self, theme: Theme) -> None:
        """Draw everything in `theme`."""
        self.paint = Paint(theme, self.bare)
        self.theme = f"moetop-{theme.name}"
        for screen in self.screen_stack:
            if isinstance(screen, MoeScreen):
                screen.repaint()

    # ── scenes ───────────────────────────────────────────────────────────────────────────────────

    def tick(self) -> None:
        """Fetch a scene in a worker when something is new and the last one is through."""
        if self._gathering:
            return
        now = self.clock()
        settled = all(host.report.gpus or host.lost for host in self.scene.hosts) and self.scene.hosts
        fresh = self.feed.generation != self.scene.generation
        due = now - self._gathered_at >= SCENE_S
        if due or (fresh and not settled):
            self._gathering = True
            self._gathered_at = now
            self.run_worker(self._gather, thread=True, group="gather", name="gather")

    def _gather(self) -> None:
        scene = gather(self.feed, self.clock())
        self.post_message(SceneReady(scene))

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
            scene = past_scene(scene, self.feed, self.trail, self.cursor_t)
        self.scene = scene

    def show_top(self) -> None:
        """Draw the screen on top."""
        screen = self.screen
        if isinstance(screen, MoeScreen):
            screen.show()

    def _show_header_only(self) -> None:
        screen = self.screen
        if isinstance(screen, MoeScreen):
            screen.show_header()

    def _attend(self, scene: Scene) -> None:
        self.trail.note(scene)
        came, gone = self.findings.update(scene)
        for noted in [*came, *gone]:
            title, text, severity = toast(noted)
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
        """Where a replay stands."""
        return self.actions.playback()

    def shown_t(self) -> float:
        """The time the screen shows: of the cursor, of a replay, else of this machine."""
        if self.cursor_t is not None:
            return self.cursor_t
        playback = self.playback()
        if playback is not None and playback.t is not None:
            return playback.t
        return self.scene.t

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
            return [("■ finished", "notice")]
        rate = f"{1 / self.interval_s:g} Hz" if self.interval_s <= 1 else f"every {self.interval_s:g} s"
        return [("● ", "good"), (f"{'demo' if self.demo_note else 'live'} {rate}", "quiet")]

    def say(self, text: str, severity: str = "information", title: str = "") -> None:
        """A toast; foreign text in it is made harmless."""
        level = severity if severity in ("information", "warning", "error") else "information"
        self.notify(
            clean(text, 600),
            title=clean(title, 120),
            severity=level,  # type: ignore[arg-type]
            timeout=6 if level == "information" else 10,
            markup=False,
        )

    def perform(self, deed: Callable[[], str], done: str) -> None:
        """Run a blocking action in a worker; say what came of it."""

        def work() -> None:
            try:
                result = deed()
            except MoetopError as error:
                self.call_from_thread(self.say, error.sentence(), "error", "not done")
            except OSError as error:
                self.call_from_thread(self.say, str(error), "error", "not done")
            else:
                self.call_from_thread(self.say, result, "information", done)

        self.run_worker(work, thread=True, group="actions", name=done)

    # ── deeds of every screen ────────────────────────────────────────────────────────────────────

    def action_interrupt(self) -> None:
        """ctrl+c."""
        self.exit(int(ExitCode.INTERRUPTED), return_code=int(ExitCode.INTERRUPTED))

    def do_quit(self) -> None:
        self.exit(int(ExitCode.OK), return_code=0)

    def do_help(self) -> None:
        if not isinstance(self.screen, HelpScreen):
            where = self.screen.where if isinstance(self.screen, MoeScreen) else keys.FLEET
            self.push_screen(HelpScreen(where))

    def open_screen(self, where: str) -> None:
        """Go to an installed screen: back to it if it is on the stack already."""
        target = self.get_screen(where)
        if target in self.screen_stack:
            while self.screen is not target:
                self.pop_screen()
        else:
            self.push_screen(target)

    def do_open(self) -> None:
        self.open_screen(keys.DETAIL)

    def do_why(self) -> None:
        """To the gravest finding's host."""
        names = [host.name for host, _finding in self.scene.worst_per_host()]
        if not names:
            self.say("no finding stands")
            return
        at = 0
        if isinstance(self.screen, DetailScreen) and self.chosen is not None and self.chosen[0] in names:
            at = (names.index(self.chosen[0]) + 1) % len(names)
        self.open_why(names[at])

    def open_why(self, host: str) -> None:
        """Detail of a host, at its findings."""
        self.chosen = (host, None)
        if isinstance(self.screen, DetailScreen):
            self.screen.show()
        else:
            self.open_screen(keys.DETAIL)

    def do_retune(self) -> None:
        """Plan a retune in a worker, then show the plan."""
        screen = self.screen
        host = screen.host() if isinstance(screen, MoeScreen) else None
        if host is None or not isinstance(screen, MoeScreen):
            return
        name, server = host.name, screen.server_name()

        def work() -> None:
            try:
                plan = self.actions.plan_retune(name, server)
            except MoetopError as error:
                self.call_from_thread(self.say, error.sentence(), "error", "no plan")
            else:
                self.call_from_thread(self.push_screen, PlanScreen(plan))

        self.run_worker(work, thread=True, group="actions", name="plan")

    def do_log(self) -> None:
        self.open_screen(keys.LOG)

    def do_server(self) -> None:
        self.open_screen(keys.SERVER)

    def do_findings(self) -> None:
        self.open_screen(keys.FINDINGS)

    def do_jobs(self) -> None:
        self.open_screen(keys.JOBS)

    def do_map_screen(self) -> None:
        self.open_screen(keys.MAP)

    def do_palette(self) -> None:
        self.action_command_palette()

    def do_pause(self) -> None:
        self.paused = not self.paused
        self.paused_at = self.clock()
        if not self.paused:
            self.gather_now()
        self.show_top()

    def do_theme(self) -> None:
        names = list(self.themes)
        at = names.index(self.paint.theme.name) if self.paint.theme.name in names else -1
        theme = self.themes[names[(at + 1) % len(names)]]
        self.use_theme(theme)
        self.say(f"theme: {theme.title}" + (" (NO_COLOR is set: no colours are shown)" if self.bare else ""))

    def do_snapshot(self) -> None:
        self.perform(self.actions.write_snapshot, "snapshot written")

    def do_picture(self) -> None:
        svg = self.export_screenshot(title="moetop")
        self.perform(lambda: self.actions.write_picture(svg), "picture written")

    def do_bell(self) -> None:
        self.bell_on = not self.bell_on
        self.say(f"bell {'on: it rings when a finding appears' if self.bell_on else 'off'}")

    def do_map_kind(self) -> None:
        self.map_kind = "activity" if self.map_kind == "power" else "power"
        self.show_top()

    def _set_range(self, at: int) -> None:
        self.range_chosen = RANGES_S[at]
        self.show_top()

    def do_range_1m(self) -> None:
        self._set_range(0)

    def do_range_5m(self) -> None:
        self._set_range(1)

    def do_range_15m(self) -> None:
        self._set_range(2)

    def do_range_1h(self) -> None:
        self._set_range(3)

    # ── time ─────────────────────────────────────────────────────────────────────────────────────

    def host_cursor(self, host: HostView) -> float | None:
        """The time cursor on a host's own clock; None: the present."""
        now = host.now if host.now is not None else host.last_t
        if self.cursor_t is None or now is None:
            return None
        return now - (self.scene.t - self.cursor_t)

    def do_earlier(self) -> None:
        self._step_time(-self.range_s / 10)

    def do_later(self) -> None:
        self._step_time(self.range_s / 10)

    def _step_time(self, step_s: float) -> None:
        playback = self.playback()
        if playback is not None and playback.can_seek and playback.t is not None:
            start, end = playback.start or 0.0, playback.end
            target = max(start, playback.t + step_s)
            target = target if end is None else min(end, target)
            self.perform(lambda: self._seek(target), "replay")
            return
        self.go_to_time((self.cursor_t if self.cursor_t is not None else self.present_t) + step_s)

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

    def _seek(self, t: float) -> str:
        self.actions.seek(t)
        return f"at {fmt.clock_time(t)}"

    def do_now(self) -> None:
        self.cursor_t = None
        self._set_scene()
        self.show_top()

    def do_slower(self) -> None:
        self._speed(0.5)

    def do_faster(self) -> None:
        self._speed(2.0)

    def _speed(self, factor: float) -> None:
        playback = self.playback()
        if playback is not None and not playback.finished:
            speed = min(64.0, max(0.125, (playback.speed or 1.0) * factor))
            self.perform(lambda: self._set_speed(speed), "replay")

    def _set_speed(self, speed: float) -> str:
        self.actions.set_speed(speed)
        return f"speed ×{speed:g}"

    def copy_text(self, text: str, what: str, file_name: str) -> None:
        """Copy by OSC 52 and keep a file beside it, since not every terminal takes the sequence."""
        self.copy_to_clipboard(text)

        def write() -> str:
            path = self.actions.write_text(file_name, text)
            return f"{what} sent to the terminal's clipboard (OSC 52); if yours does not take it: {path}"

        self.perform(write, "copied")


def render_svg(snapshot: Snapshot) -> str:
    """An SVG of the fleet screen with a snapshot on it."""
    from moetop.ui.still import render_svg as draw

    return draw(snapshot)


def run(
    feed: WatchFeed,
    *,
    actions: Actions | None = None,
    theme: str | None = None,
    readonly: bool = False,
    demo_note: str | None = None,
    interval_s: float = 1.0,
    bell: bool = False,
) -> int:
    """Show the app until it is left; the exit code. Raises UsageError for a theme that cannot be used."""
    app = MoetopApp(
        feed,
        actions=actions,
        theme=theme,
        readonly=readonly,
        demo_note=demo_note,
        interval_s=interval_s,
        bell=bell,
    )
    result = app.run()
    return result if result is not None else int(app.return_code or ExitCode.OK)
