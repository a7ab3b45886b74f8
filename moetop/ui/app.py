"""The Textual app: its screens and what the keys of every screen do."""

from __future__ import annotations

from collections.abc import Callable

from textual.widgets import Input

from moetop.errors import ExitCode, MoetopError
from moetop.model import Snapshot
from moetop.ui import keys
from moetop.ui.appbase import RANGES_S, TICK_S, BaseApp
from moetop.ui.feed import Actions, RetunePlan, WatchFeed
from moetop.ui.paint import clean
from moetop.ui.screens.base import MoeScreen
from moetop.ui.screens.detail import DetailScreen
from moetop.ui.screens.findings import FindingsScreen
from moetop.ui.screens.fleet import FleetScreen
from moetop.ui.screens.help import HelpScreen
from moetop.ui.screens.jobs import JobsScreen
from moetop.ui.screens.log import LogScreen
from moetop.ui.screens.map import MapScreen
from moetop.ui.screens.plan import PlanScreen
from moetop.ui.screens.server import ServerScreen
from moetop.ui.svg import steady
from moetop.ui.telling import words_of
from moetop.ui.widgets.prompt import YesNo

PLANNING_S = 0.3
"""A plan that takes longer is said to be on its way (judgement)."""


class MoetopApp(BaseApp):
    """moetop's screen."""

    _planned_for: str | None = None

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
        if self.ticking:
            self.set_interval(TICK_S, self.tick)
            self.tick()
        if self.on_shown is not None:
            self.call_after_refresh(self.on_shown)

    def action_interrupt(self) -> None:
        """Leave at once with the exit code of an interrupt (ctrl+c)."""
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
        """Plan a retune in a worker, then show the plan, unless a person went on to something else."""
        screen = self.screen
        host = screen.host() if isinstance(screen, MoeScreen) else None
        if host is None or not isinstance(screen, MoeScreen):
            return
        name, server = host.name, screen.server_name()
        if self._planned_for is not None:
            self.say(f"the plan for {self._planned_for} is being made", here=True)
            return
        self._planned_for = clean(name, 60)
        self.set_timer(PLANNING_S, self._tell_planning)

        def work() -> None:
            try:
                plan = self.actions.plan_retune(name, server)
            except (MoetopError, OSError) as error:
                self.call_from_thread(self._plan_failed, words_of(error))
            else:
                self.call_from_thread(self._show_plan, plan, screen)

        self.run_worker(work, thread=True, group="actions", name="plan")

    def _tell_planning(self) -> None:
        if self._planned_for is not None:
            self.say(f"planning the retune on {self._planned_for}", here=True)

    def _plan_failed(self, words: str) -> None:
        self._planned_for = None
        self.say(words, "error", "no plan", here=True)

    def _show_plan(self, plan: RetunePlan, asked_on: MoeScreen) -> None:
        """What is being typed or looked at meanwhile must not end in the prompt of a plan."""
        self._planned_for = None
        if self.screen is asked_on and not isinstance(asked_on.focused, (Input, YesNo)):
            self.push_screen(PlanScreen(plan))
        else:
            self.say(f"the plan for {clean(plan.host, 60)} is made: r on its host shows it")

    def do_reconnect(self) -> None:
        host = self.screen.host() if isinstance(self.screen, MoeScreen) else None
        if host is not None:
            name = host.name
            self.perform(lambda: self.actions.reconnect(name), "connect", here=True)

    def do_log(self) -> None:
        self.picked_log = None
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
        svg = steady(self.export_screenshot(title="moetop"))
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
            self.seek_to(target)
            return
        self.go_to_time((self.cursor_t if self.cursor_t is not None else self.present_t) + step_s)

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
        return ""


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
    kind: str = "live",
    on_shown: Callable[[], None] | None = None,
) -> int:
    """Show the app until it is left; the exit code. `on_shown` is called once, when its first picture stands.
    Raises UsageError for a theme that cannot be used."""
    app = MoetopApp(
        feed,
        actions=actions,
        theme=theme,
        readonly=readonly,
        demo_note=demo_note,
        interval_s=interval_s,
        bell=bell,
        kind=kind,
        on_shown=on_shown,
    )
    result = app.run()
    return result if result is not None else int(app.return_code or ExitCode.OK)
