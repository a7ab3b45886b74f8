"""What every screen shares: header, footer, keys from the registry, words when the terminal is too small."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, cast

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input

from moetop.model import LinkPhase, ServerReport
from moetop.ui import keys
from moetop.ui.layout import ROOMY_LINES, SMALLEST
from moetop.ui.logtext import server_of
from moetop.ui.paint import fit, line_of
from moetop.ui.scene import HostView, Scene, counts_words, no_server_words
from moetop.ui.widgets.bars import FooterBar, FooterKey, HeaderBar
from moetop.ui.widgets.lines import LineWidget
from moetop.ui.widgets.notices import NoticeLines
from moetop.ui.widgets.prompt import YesNo

if TYPE_CHECKING:
    from moetop.ui.app import MoetopApp

READONLY_WORDS = "moetop runs with --readonly: nothing that changes a host can be started"


def bindings_for(screen: str) -> list[BindingType]:
    """Textual bindings of every deed that works on `screen`.

    Those that open a prompt have priority: they are done before the next key is looked at, so that a word typed
    or pasted right after goes into the prompt and not to the keys of the screen.
    """
    found: list[BindingType] = []
    for deed in keys.deeds_of(screen):
        if deed.prompts:
            for key in deed.keys:
                found.append(Binding(key, f"prompt('{deed.name}', '{key}')", deed.title, show=False, priority=True))
        else:
            found.append(Binding(",".join(deed.keys), f"deed('{deed.name}')", deed.title, show=False))
    return found


class TooSmall(LineWidget):
    """Says how large the terminal must be."""

    DEFAULT_CSS = "TooSmall { display: none; height: 1fr; }"

    def make_lines(self, width: int, height: int) -> list[Strip]:
        size = self.app.size
        words = [
            "moetop needs",
            f"{SMALLEST[0]}x{SMALLEST[1]} cells;",
            f"this is {size.width}x{size.height}.",
            "q quits",
        ]
        style = self.paint("text")
        return [line_of([(fit(text, width), style)], width, style) for text in words[:height]]


class MoeScreen(Screen[None]):
    """Base of the screens. Subclasses give `where`, `body` and `show_scene`."""

    where: ClassVar[str] = keys.HELP
    BINDINGS: ClassVar[list[BindingType]] = []

    def __init_subclass__(cls, **kwargs: object) -> None:
        cls.BINDINGS = [*bindings_for(cls.where), *cls.__dict__.get("BINDINGS", [])]
        super().__init_subclass__()

    @property
    def moetop(self) -> MoetopApp:
        """The app, by its own type."""
        return cast("MoetopApp", self.app)

    @property
    def scene(self) -> Scene:
        """The fleet as shown now."""
        return self.moetop.scene

    def compose(self) -> ComposeResult:
        yield HeaderBar()
        yield from self.body()
        yield NoticeLines()
        yield FooterBar()
        yield TooSmall()

    def body(self) -> Iterable[Widget]:
        """Widgets between header and footer."""
        return ()

    def show_scene(self) -> None:
        """Draw the body from `self.scene`."""

    def crumbs(self) -> tuple[str, ...]:
        """Where this screen is, after `moetop`."""
        return ()

    def host(self) -> HostView | None:
        """The host this screen is about."""
        return self.moetop.chosen_host()

    def server(self) -> ServerReport | None:
        """The server that is shown and that acting keys mean."""
        host, chosen = self.host(), self.moetop.chosen
        if host is None:
            return None
        gpu = chosen[1] if chosen is not None and chosen[0] == host.name else None
        return server_of(host, self.moetop.chosen_server, gpu)

    def server_name(self) -> str | None:
        """Its name."""
        server = self.server()
        return server.name if server is not None else None

    # ── drawing ──────────────────────────────────────────────────────────────────────────────────

    def on_screen_resume(self) -> None:
        self.show()

    def on_resize(self, event: events.Resize) -> None:
        self.set_class(event.size.width < SMALLEST[0] or event.size.height < SMALLEST[1], "-too-small")
        self.set_class(event.size.height < ROOMY_LINES, "-low")
        self.call_after_refresh(self.show)

    def show(self) -> None:
        """Draw everything from the app's state."""
        if not self.is_mounted or not self.query("HeaderBar"):
            return
        self.moetop.heed_place(self)
        with self.app.batch_update():
            notices = self.query_one(NoticeLines)
            notices.settle()
            notices.redraw()
            self.show_header()
            self.show_scene()
            self.show_footer()
            small = self.query_one(TooSmall)
            if small.display:
                small.redraw()

    def repaint(self) -> None:
        """Draw everything anew after a change of theme."""
        for widget in self.query(LineWidget):
            widget.repaint()
        self.show()

    def show_header(self) -> None:
        app = self.moetop
        header = self.query_one(HeaderBar)
        crumbs = self.crumbs()
        header.crumbs = crumbs
        header.left = "" if crumbs else self.header_words()
        header.right_pieces = [
            *self._worst_words(),
            (f"   {app.time_words()}  ", "quiet"),
            *app.mode_words(),
        ]
        header.redraw()

    def header_words(self) -> str:
        """What the header says beside the name."""
        return counts_words(self.scene)

    def _worst_words(self) -> list[tuple[str, str]]:
        grave = [finding for _host, finding in self.scene.grave()]
        critical = sum(finding.severity.value == "critical" for finding in grave)
        warning = len(grave) - critical
        pieces: list[tuple[str, str]] = []
        if critical:
            pieces.append((f"✕ {critical} critical ", "critical"))
        if warning:
            pieces.append((f"▲ {warning} warning{'' if warning == 1 else 's'}", "warning"))
        return pieces

    def show_footer(self) -> None:
        """Draw the footer with the words that fit the state."""
        footer = self.query_one(FooterBar)
        footer.keys = [
            FooterKey(self._face(deed), self.footer_word(deed), deed.name, self.refusal(deed.name) is None)
            for deed in keys.footer_of(self.where)
            if self.applies(deed.name)
        ]
        footer.redraw()

    def _face(self, deed: keys.Deed) -> str:
        key = deed.keys[0]
        return "enter" if key == "enter" and self.moetop.ascii_only else keys.face(key)

    def footer_word(self, deed: keys.Deed) -> str:
        """The footer's word for a deed in the present state."""
        if deed.name == "pause":
            return "resume" if self.moetop.paused else "pause"
        if deed.name == "map_kind":
            return "tensor map" if self.moetop.map_kind == "power" else "power map"
        return deed.footer

    # ── deeds ────────────────────────────────────────────────────────────────────────────────────

    def applies(self, name: str) -> bool:
        """Whether a deed makes sense here and now at all (else it is not offered)."""
        if name == "back":
            return len(self.app.screen_stack) > 1 and self.where != keys.FLEET
        if name == "reconnect":
            host = self.host()
            return host is not None and host.link.phase is LinkPhase.LOST
        if name in ("slower", "faster"):
            return self.moetop.playback() is not None
        if name == "now":
            return self.moetop.cursor_t is not None
        return True

    def refusal(self, name: str) -> str | None:
        """Why a deed cannot be done now, in words; None where it can."""
        if keys.deed(name).acts and self.moetop.readonly:
            return READONLY_WORDS
        if name == "retune":
            host = self.host()
            return self.retune_why(host, self.server_name()) if host is not None else "no host is selected"
        return None

    def retune_why(self, host: HostView, server: str | None) -> str | None:
        """Why a server of `host` cannot be retuned now; None where it can."""
        if self.moetop.readonly:
            return READONLY_WORDS
        if host.lost:
            return f"{host.name} is lost: nothing can be started there now"
        if not host.report.servers:
            return f"{host.name}: {no_server_words(host)}"
        return self.moetop.actions.retune_refusal(host.name, server)

    def action_deed(self, name: str) -> None:
        """Do a deed, or say why not."""
        if not self.applies(name):
            return
        why = self.refusal(name)
        if why is not None:
            self.moetop.say(why, "warning", title=f"{keys.deed(name).title}: not now", here=True)
            return
        doer = getattr(self, f"do_{name}", None) or getattr(self.moetop, f"do_{name}")
        doer()

    def action_prompt(self, name: str, key: str) -> None:
        """Open a prompt; while one is open its key is a letter."""
        field = self.focused
        if isinstance(field, YesNo):
            return
        if isinstance(field, Input):
            field.post_message(events.Key(key, keys.LETTERS.get(key, key)))  # behind what was typed before it
        else:
            self.action_deed(name)

    def on_footer_bar_pressed(self, message: FooterBar.Pressed) -> None:
        self.action_deed(message.action)

    def do_back(self) -> None:
        """To the screen before."""
        if len(self.app.screen_stack) > 1:
            self.app.pop_screen()
