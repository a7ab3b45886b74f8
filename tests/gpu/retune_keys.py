"""A retune from the keyboard against a real server: `python3 -m tests.gpu.retune_keys HOST FOLDER`.

Drives the whole app through Textual's pilot with the keys that a person would press, from the fleet over the why, the
server and the log to the plan, the typed word and the proof, and keeps each screen as text and SVG in FOLDER. Exit
status 0 when the job says retuned. `retune_loop.sh` calls it with KEYS=1.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path

from textual.pilot import Pilot

from moetop.cli import build_parser
from moetop.screen import SessionActions
from moetop.session import load_config, open_session
from moetop.ui.app import MoetopApp
from moetop.ui.screens.plan import PlanScreen
from moetop.ui.svg import steady
from tests.ui.driving import shown

SIZE = (120, 40)
JUDGED_S = 60.0
RETUNED_S = 240.0


class Walk:
    """The app, its pilot and where its screens are kept."""

    def __init__(self, app: MoetopApp, pilot: Pilot[int], folder: Path) -> None:
        self.app, self.pilot, self.folder = app, pilot, folder
        self.begun = time.monotonic()

    async def until(self, words: str, holds: Callable[[str], bool], limit_s: float) -> bool:
        """Wait until the screen's text holds; say when it did."""
        end = time.monotonic() + limit_s
        while not holds(shown(self.app)):
            if time.monotonic() > end:
                print(f"{time.monotonic() - self.begun:6.1f} s  NOT SEEN within {limit_s:.0f} s: {words}", flush=True)
                return False
            await self.pilot.pause(0.2)
        print(f"{time.monotonic() - self.begun:6.1f} s  {words}", flush=True)
        return True

    async def keep(self, name: str, *keys: str) -> None:
        """Press keys, let the screen settle, and keep it."""
        await self.pilot.press(*keys)
        await self.pilot.pause(1.5)
        (self.folder / f"{name}.svg").write_text(steady(self.app.export_screenshot(title="moetop")), "utf-8")
        (self.folder / f"{name}.txt").write_text(shown(self.app), "utf-8")


async def walk(host: str, folder: Path) -> bool:
    args = build_parser().parse_args([*(["--host", host] if host != "localhost" else []), "--accept-new-host-keys"])
    config = load_config(args)
    session = open_session(args, config)
    actions = SessionActions(session, config)
    app = MoetopApp(session.watch, actions=actions, no_color=False, ascii_only=False, few_colors=False)
    with session.running():
        async with app.run_test(size=SIZE) as pilot:
            steps = Walk(app, pilot, folder)
            await steps.until("first sample", lambda text: " W" in text and "H200" in text, JUDGED_S)
            named = await steps.until("the cause is named", lambda text: "untuned" in text.lower(), JUDGED_S)
            await steps.keep("1-fleet")
            await steps.keep("2-why", "w")
            await steps.keep("3-server", "v")
            await steps.keep("4-log", "l")
            await steps.keep("5-plan", "r")
            ready = await steps.until("the plan", lambda text: "nothing has been touched yet" in text, 30.0)
            await steps.keep("5-plan")
            plan = app.screen
            if not (named and ready and isinstance(plan, PlanScreen)):
                return False
            await pilot.press(*plan.wanted, "enter")
            if not await steps.until("the job runs", lambda text: "◔ running" in text, 30.0):
                return False
            await pilot.pause(20.0)
            await steps.keep("6-job")
            done = await steps.until("retuned", lambda text: "● retuned" in text, RETUNED_S)
            await steps.until("before and after", lambda text: "Before and after" in text, 60.0)
            await steps.keep("7-proof")
            await steps.keep("8-findings", "f")
            await steps.keep("9-fleet", "escape", "escape")
            print("\n".join(line.rstrip() for line in (folder / "7-proof.txt").read_text("utf-8").splitlines()))
    return done


def main() -> None:
    folder = Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    sys.exit(0 if asyncio.run(walk(sys.argv[1], folder)) else 1)


if __name__ == "__main__":
    main()
