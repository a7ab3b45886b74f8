"""The real screen over real sessions: a retune by keys, and what a host asks while it is being connected to."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from moetop.asking import Person, person
from moetop.errors import LinkError
from moetop.jobdesk import JobDesk
from moetop.model import LinkPhase
from moetop.screen import SessionActions
from moetop.session import Session
from moetop.transport.auth import MAX_PASSWORD_TRIES, KeyRing
from moetop.ui.app import MoetopApp
from moetop.ui.screens.question import QuestionScreen
from tests.rig.jobdesk_kit import WatchedRig, server_seen, session_of, watched
from tests.rig.nvml_rig import Scenario
from tests.rig.sshd_rig import USER, Client, Sshd, keygen
from tests.rig.sshd_rig import until as eventually

__all__ = ["watched"]

pytestmark = pytest.mark.timeout(120)

PASSPHRASE = "correct horse"


@pytest.fixture(autouse=True)
def own_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moetop.transport.auth.shared_keys", KeyRing())


def shown(app: MoetopApp) -> str:
    return "\n".join("".join(part.text for part in strip) for strip in app.screen._compositor.render_strips())


async def until(app: MoetopApp, holds: Callable[[], object], what: str, timeout_s: float = 40.0) -> None:
    """Wait while the app goes on."""
    end = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < end, f"never came: {what}\n{shown(app)}"
        await asyncio.sleep(0.05)


async def test_r_and_the_typed_word_retune_a_server_and_the_steps_are_watched(
    watched: tuple[WatchedRig, Path],
) -> None:
    rig, path = watched
    session, config = session_of(path)
    desk = JobDesk(session, config, window_s=0.5, settle_s=0.2, poll_s=0.1, list_s=0.5)
    app = MoetopApp(session.watch, actions=SessionActions(session, config, desk), no_color=False, ascii_only=False)
    before = rig.pids()
    with session.running():
        async with app.run_test(size=(120, 80)) as pilot:
            await until(app, lambda: server_seen(session, rig) and app.scene.hosts, "the server is found")
            await pilot.press("v")
            while f"{rig.server} " not in shown(app).splitlines()[0]:
                await pilot.press("tab")  # past servers that other tests run on this machine
                await pilot.pause(0.1)
            await pilot.press("r")
            await until(app, lambda: "nothing has been touched yet" in shown(app), "the plan")
            assert "undo" in shown(app) and "type yes" in shown(app)
            await pilot.press(*"no", "enter")
            assert "nothing was started" in shown(app)
            await pilot.press("backspace", "backspace", *"yes", "enter")
            await until(app, lambda: "◔ running" in shown(app), "the job is shown")
            seen: set[str] = set()

            def over() -> bool:
                screen = shown(app)
                seen.update(word for word in ("planned", "running", "waiting", "done") if word in screen)
                return "● retuned" in screen

            await until(app, over, "the job ends well", 60.0)
            await until(app, lambda: "Before and after" in shown(app), "the proof")
            assert {"running", "waiting", "done"} <= seen
            await until(app, lambda: "retuned" in rig.kept("report.md"), "the report on the host")
    desk.close()
    assert rig.healthy() and rig.pids() != before and rig.table.exists()


# ── what a host asks ─────────────────────────────────────────────────────────────────────────────

CONFIG = "hosts:\n  - {{name: rig, address: 127.0.0.1, port: {port}, user: {user}, transport: ssh}}\n"


@pytest.fixture
def locked(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make_sshd: Callable[..., Sshd],
    client: Client,
    scenario: Scenario,
) -> Iterator[tuple[Session, SessionActions]]:
    """A session with a host that takes one key, which wants a passphrase."""
    sshd = make_sshd(env=scenario.environment)
    key = keygen(tmp_path / "locked_key", passphrase=PASSPHRASE)
    client.admit(sshd, key)
    client.configure("", identity=f"IdentityFile {key}")
    monkeypatch.setenv("MOETOP_SSH_CONFIG", str(client.config))
    path = tmp_path / "moetop.yaml"
    path.write_text(CONFIG.format(port=sshd.port, user=USER))
    session, config = session_of(path)
    yield session, SessionActions(session, config)


def phase(session: Session) -> LinkPhase:
    return session.watch.link_of("rig").phase


async def test_a_passphrase_is_asked_for_on_the_screen_and_the_host_is_watched(
    locked: tuple[Session, SessionActions],
) -> None:
    session, actions = locked
    app = MoetopApp(session.watch, actions=actions, no_color=False, ascii_only=False)
    with person.on_screen(), session.running():
        try:
            async with app.run_test(size=(100, 30)) as pilot:
                await until(app, lambda: "Passphrase for" in shown(app), "the question")
                await pilot.press(*"wrong", "enter")
                await until(app, lambda: isinstance(app.screen, QuestionScreen) and "•••••" not in shown(app), "again")
                await until(app, lambda: person.question() is not None, "the second question")
                await pilot.press(*PASSPHRASE.replace(" ", "\t").split("\t")[0], "space", *PASSPHRASE.split()[1])
                assert PASSPHRASE not in shown(app) and "•" * len(PASSPHRASE) in shown(app)
                await pilot.press("enter")
                await until(app, lambda: "H200" in shown(app), "the host")
                assert not isinstance(app.screen, QuestionScreen)
        finally:
            actions.close()


async def test_a_question_that_is_left_makes_the_host_lost_with_the_way_out(
    locked: tuple[Session, SessionActions],
) -> None:
    session, actions = locked
    app = MoetopApp(session.watch, actions=actions, no_color=False, ascii_only=False)
    with person.on_screen(), session.running():
        try:
            async with app.run_test(size=(120, 30)) as pilot:
                await until(app, lambda: "Passphrase for" in shown(app), "the question")
                await pilot.press("escape")
                await until(app, lambda: phase(session) is LinkPhase.LOST, "lost")
                link = session.watch.link_of("rig")
                assert link.code == "auth" and "ssh-add" in (link.advice or "")
                await until(app, lambda: not isinstance(app.screen, QuestionScreen), "the question is gone")
        finally:
            actions.close()


def test_who_left_a_question_or_answered_it_wrongly_is_asked_again_on_reconnecting(
    locked: tuple[Session, SessionActions],
) -> None:
    session, actions = locked

    def lost() -> bool:
        return phase(session) is LinkPhase.LOST and session.watch.link_of("rig").code == "auth"

    def answer(text: str | None) -> None:
        eventually(lambda: person.question() is not None)
        asked = person.question()
        assert asked is not None and "Passphrase" in asked.text
        actions.answer_question(asked.id, text)

    with person.on_screen(), session.running():
        try:
            eventually(lambda: phase(session) is LinkPhase.CONNECTING)
            assert actions.reconnect("rig") == "rig: being tried already"
            answer(None)
            eventually(lost)
            assert actions.reconnect("rig") == "rig: trying again now"
            for _ in range(MAX_PASSWORD_TRIES):
                answer("wrong")
            eventually(lost)
            assert actions.reconnect("rig") == "rig: trying again now"
            answer(PASSPHRASE)
            eventually(lambda: phase(session) is LinkPhase.WATCHING)
            assert actions.reconnect("rig") == "rig: connected already"
            with pytest.raises(LinkError, match="is not watched"):
                actions.reconnect("nobody")
        finally:
            actions.close()


async def test_leaving_the_screen_leaves_no_thread_waiting_for_an_answer(
    locked: tuple[Session, SessionActions],
) -> None:
    session, actions = locked
    app = MoetopApp(session.watch, actions=actions, no_color=False, ascii_only=False)
    with person.on_screen():
        with session.running():
            async with app.run_test(size=(100, 30)) as pilot:
                await until(app, lambda: "Passphrase for" in shown(app), "the question")
                await pilot.press("ctrl+c")
            began = time.monotonic()
            actions.close()
        assert time.monotonic() - began < 10.0
        assert person.ask("anything else?", True) is None


def test_a_question_without_an_answer_is_given_up_and_withdrawn() -> None:
    asked = Person()
    with asked.on_screen():
        assert asked.ask("code?", True, timeout_s=0.05) is None
        assert asked.question() is None
        asked.answer(1, "too late")


def test_without_a_screen_or_a_terminal_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    assert Person().ask("code?", True) is None


def in_terminal(arguments: list[str], steps: list[tuple[bytes, bytes]], patience_s: float = 30.0) -> tuple[int, bytes]:
    """(exit code, everything painted) of moetop in a terminal of its own; each step is what to wait for and type."""
    pid, fd = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm-256color", LANG="C.UTF-8", COLUMNS="110", LINES="30")
        os.execv(sys.executable, [sys.executable, "-m", "moetop", *arguments])
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 110, 0, 0))
    got, since, left = b"", 0, list(steps)
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        if not select.select([fd], [], [], 0.2)[0]:
            continue
        try:
            got += os.read(fd, 65536)
        except OSError:
            break
        while left and left[0][0] in got[since:]:
            since = len(got)
            os.write(fd, left.pop(0)[1])
    else:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    os.close(fd)
    assert not left, (left, got[-2000:])
    return os.waitstatus_to_exitcode(status), got


def test_in_a_real_terminal_the_screen_and_the_question_do_not_clash(
    locked: tuple[Session, SessionActions], tmp_path: Path
) -> None:
    config = str(tmp_path / "moetop.yaml")
    steps = [(b"Passphrase for", PASSPHRASE.encode() + b"\r"), (b"H200", b"q")]
    code, painted = in_terminal(["--config", config], steps)
    assert code == 0 and PASSPHRASE.encode() not in painted and b"Traceback" not in painted
    assert painted.count(b"\x1b[?1049h") == painted.count(b"\x1b[?1049l") == 1
