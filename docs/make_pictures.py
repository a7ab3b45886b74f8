"""Renders the pictures of the documentation from the app on its demo: `python docs/make_pictures.py [FOLDER]`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from moetop.cli import build_parser
from moetop.session import load_config, open_session
from moetop.ui.app import MoetopApp
from moetop.ui.svg import steady

SETTLE_S = 12.0
"""A window of samples, so that states and findings stand."""

PICTURES: tuple[tuple[str, tuple[int, int], str, tuple[str, ...]], ...] = (
    ("fleet", (120, 40), "dark", ()),
    ("fleet-small", (80, 24), "dark", ()),
    ("fleet-light", (120, 40), "light", ()),
    ("why", (120, 44), "dark", ("w",)),
    ("server", (120, 44), "dark", ("v",)),
    ("log", (120, 30), "dark", ("l",)),
    ("map", (120, 40), "dark", ("M",)),
)


async def render(folder: Path) -> None:
    args = build_parser().parse_args(["--demo"])
    session = open_session(args, load_config(args))
    note = session.notes[0] if session.notes else None
    with session.running():
        await asyncio.sleep(SETTLE_S)
        for name, size, theme, keys in PICTURES:
            app = MoetopApp(session.watch, theme=theme, demo_note=note, ticking=False, no_color=False, ascii_only=False)
            async with app.run_test(size=size) as pilot:
                for key in ("", *keys):
                    app.gather_now()
                    await pilot.pause()
                    if key:
                        await pilot.press(key)
                        await pilot.pause()
                app.clear_notifications()
                await pilot.pause()
                (folder / f"{name}.svg").write_text(steady(app.export_screenshot(title="moetop --demo")), "utf-8")


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "pictures"
    folder.mkdir(parents=True, exist_ok=True)
    asyncio.run(render(folder))


if __name__ == "__main__":
    main()
