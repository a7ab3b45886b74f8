"""Every status code that the probe or a transport says is explained in docs/architecture.md."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SAID = re.compile(
    r"(?:\b_?(?:say|tell|status|trouble|Failure)\(\s*|\"code\":\s*|_send_status\(\s*)\"([a-z]+_[a-z_]+|bye|searched)\"(?!\s*%)"
)
DESCRIBED = re.compile(r"`([a-z_]+)`")


def test_every_status_code_is_described() -> None:
    sources = [*(ROOT / "moetop/probe").glob("*.py"), *(ROOT / "moetop/transport").glob("*.py")]
    said = {code for path in sources for code in SAID.findall(path.read_text("utf-8"))}
    text = (ROOT / "docs/architecture.md").read_text("utf-8")
    table = text[text.index("Status codes.") : text.index("## The seams, as code")]
    described = {
        code for line in table.splitlines() for code in DESCRIBED.findall(line.partition("|")[2].split("|")[0])
    }
    assert len(said) > 12
    assert said <= described, f"not described: {sorted(said - described)}"
