"""Renders the pictures of the documentation from the app on its demo: `python docs/make_pictures.py [FOLDER]`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from moetop.cli import build_parser
from moetop.screen import SessionActions
from moetop.session import load_config, open_session
from moetop.ui.app import MoetopApp
from moetop.ui.svg import steady

SETTLE_S = 14.0
"""A window of samples and a little, so that states and findings stand."""

PICTURES: tuple[tuple[str, tuple[int, int], str, tuple[str, ...]], ...] = (
    ("fleet", (120, 40), "dark", ()),
    ("why", (120, 40), "dark", ("w",)),
    ("map", (120, 32), "dark", ("M",)),
    ("log", (120, 30), "dark", ("l", "x")),
)
"""Name, size, theme and the keys that lead there from the fleet."""


async def render(folder: Path) -> None:
    args = build_parser().parse_args(["--demo"])
    config = load_config(args)
    session = open_session(args, config)
    with session.running():
        await asyncio.sleep(SETTLE_S)
        for name, size, theme, keys in PICTURES:
            app = MoetopApp(
                session.watch,
                actions=SessionActions(session, config),
                theme=theme,
                demo_note=session.notes[0],
                ticking=False,
                no_color=False,
                ascii_only=False,
                few_colors=False,
            )
            async with app.run_test(size=size) as pilot:
                for key in ("", *keys):
                    app.gather_now()
                    await pilot.pause()
                    if key:
                        await pilot.press(key)
                        await pilot.pause()
                app.show_top()  # once more now that every widget has its size
                await pilot.pause()
                (folder / f"{name}.svg").write_text(steady(app.export_screenshot(title="moetop --demo")), "utf-8")


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "img"
    folder.mkdir(parents=True, exist_ok=True)
    asyncio.run(render(folder))


if __name__ == "__main__":
    main()
