"""docs/verdicts.md explains every state and every finding, with its evidence and its limits."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from moetop.model import FINDING_RANK, GpuState, Limit

DOC = (Path(__file__).parents[2] / "docs" / "verdicts.md").read_text()
STATES, FINDINGS = DOC.split("## Findings")


def section(text: str, name: str) -> str:
    found = re.search(rf"^### {name}\n(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, name
    return found[1].strip()


@pytest.mark.parametrize("state", list(GpuState))
def test_every_state_is_explained(state: GpuState) -> None:
    text = section(STATES, state)
    assert "Evidence:" in text
    assert "Limits:" in text


@pytest.mark.parametrize("kind", list(FINDING_RANK))
def test_every_finding_is_explained(kind: str) -> None:
    text = section(FINDINGS, kind)
    assert "Evidence:" in text
    assert "Limits:" in text
    assert 4 <= len(text.splitlines()) <= 8


@pytest.mark.parametrize("limit", list(Limit))
def test_every_limit_is_named(limit: Limit) -> None:
    assert f"`{limit}`" in STATES
