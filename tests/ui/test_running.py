"""The clockwork: scenes come by themselves, slow feeds hold nothing back, a real terminal is left as it was."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import sys
import termios
import threading
import time

import pytest

from moetop.model import HostReport
from moetop.ui.app import MoetopApp
from tests.ui import scenes
from tests.ui.driving import PATIENCE_S, shown, until


async def test_scenes_come_without_being_asked_and_show_what_changed() -> None:
    feed = scenes.sixteen()
    app = MoetopApp(feed, actions=scenes.Deeds(), no_color=False, ascii_only=False)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: "15 H200" in shown(app))
        feed.put(scenes.glm5_host())
        await until(pilot, lambda: "0 RTX PRO 6000" in shown(app))


async def test_what_waits_for_the_first_picture_is_called_once_with_the_picture_there() -> None:
    seen: list[str] = []
    app = MoetopApp(scenes.sixteen(), actions=scenes.Deeds(), ticking=False, on_shown=lambda: seen.append(shown(app)))
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: seen)
        await pilot.press("question_mark", "escape")
        assert len(seen) == 1 and "moetop" in seen[0] and "quit" in seen[0]


async def test_a_feed_that_takes_long_holds_no_key_back() -> None:
    class Slow(scenes.StillFeed):
        gate = threading.Event()

        def report(self, host: str) -> HostReport:
            self.gate.wait(PATIENCE_S)
            return super().report(host)

    feed = Slow()
    feed.put(scenes.glm5_host())
    app = MoetopApp(feed, actions=scenes.Deeds(), no_color=False, ascii_only=False)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        assert "starting" in shown(app)
        await pilot.press("question_mark")
        assert "Keys on this screen" in shown(app)
        await pilot.press("escape")
        feed.gate.set()
        await until(pilot, lambda: "0 RTX PRO 6000" in shown(app))


CHILD = """
import sys
import termios
from moetop.ui.app import run
from tests.ui import scenes
from tests.ui.driving import PATIENCE_S, shown, until
sys.exit(run(scenes.reference_fleet(), actions=scenes.Deeds()))
"""


@pytest.mark.parametrize(("key", "code"), [(b"q", 0), (b"\x03", 130)])
def test_in_a_real_terminal_it_paints_answers_keys_and_leaves_clean(key: bytes, code: int) -> None:
    pid, fd = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm-256color", LANG="C.UTF-8", NO_COLOR="1")
        os.execv(sys.executable, [sys.executable, "-c", CHILD])
    got = b""
    pressed = False
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if not select.select([fd], [], [], 0.2)[0]:
            continue
        try:
            more = os.read(fd, 65536)
        except OSError:
            break
        if not more:
            break
        got += more
        if not pressed and b"glm5-sm120" in got:
            pressed = True
            os.write(fd, key)
    _pid, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == code
    assert b"\x1b[?1049h" in got and b"\x1b[?1049l" in got, "the alternate screen is entered and left"
    assert b"Traceback" not in got
    assert b"\x1b[38;" not in got and b"\x1b[48;" not in got, "NO_COLOR sends no colour"


@pytest.mark.parametrize("burst", [b"aqq/q", b"/q&d"])
def test_what_is_typed_or_pasted_after_a_prompts_key_goes_into_the_prompt(burst: bytes) -> None:
    pid, fd = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm-256color", LANG="C.UTF-8", NO_COLOR="1")
        os.execv(sys.executable, [sys.executable, "-c", CHILD])
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 32, 120, 0, 0))
    assert b"glm5-sm120" in read_until(fd, b"glm5-sm120")
    os.write(fd, burst)
    typed = burst[1:]
    assert typed in read_until(fd, typed), "the letters stand in the prompt; q did not quit"
    os.write(fd, b"\x03")
    read_until(fd, None)
    _pid, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 130


def read_until(fd: int, wanted: bytes | None) -> bytes:
    """What the terminal gets until `wanted` is in it, or until it closes."""
    got, end = b"", time.monotonic() + PATIENCE_S
    while time.monotonic() < end and (wanted is None or wanted not in got):
        if select.select([fd], [], [], 0.2)[0]:
            try:
                more = os.read(fd, 65536)
            except OSError:
                break
            got += more
    return got
