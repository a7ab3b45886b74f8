"""docs/recording.md: every example is a frame, every key of the model is named."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from moetop import model
from moetop.recording import Malformed, Unknown, decode

TEXT = (Path(__file__).parents[2] / "docs/recording.md").read_text()
EXAMPLES = re.findall(r"```json\n(.+)\n```", TEXT)


@pytest.mark.parametrize("line", EXAMPLES, ids=lambda line: line[:24])
def test_an_example_is_a_frame_whose_keys_are_known(line: str) -> None:
    frame = decode(line.encode())
    assert not isinstance(frame, (Malformed, Unknown)), frame
    given = msgspec.json.decode(line)
    assert set(given) - {"type"} <= set(type(frame).__struct_fields__)


def test_there_is_an_example_of_every_type() -> None:
    shown = {type(decode(line.encode())) for line in EXAMPLES}
    assert shown == set(model.Frame.__subclasses__())


def test_every_key_is_named() -> None:
    structs = [
        *model.Frame.__subclasses__(),
        model.GpuInfo,
        model.GpuSample,
        model.Gpm,
        model.GpuProcess,
        model.HostLoad,
    ]
    structs += [model.LogPlace, model.ServerMetrics, model.TuningFile]
    missing = {key for struct in structs for key in struct.__struct_fields__ if f"`{key}`" not in TEXT}
    assert missing == set()
