"""docs/events.md is the table, written out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from moetop.engines.doc import render
from moetop.engines.rules import RULES

PAGE = Path(__file__).parents[2] / "docs" / "events.md"


def test_the_page_in_docs_is_current() -> None:
    assert PAGE.read_text() == render(), "run: python -m moetop.engines.doc > docs/events.md"


def test_the_module_prints_the_page() -> None:
    done = subprocess.run([sys.executable, "-m", "moetop.engines.doc"], capture_output=True, text=True, check=True)
    assert done.stdout == render()


def test_every_row_is_on_the_page() -> None:
    page = render()
    assert all(f"### `{rule.id}`" in page for rule in RULES)
