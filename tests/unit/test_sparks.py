"""The charts over time of the Markdown report: what they show, what they leave out, how large they become."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moetop.cli import main
from moetop.export.md_writer import write_md
from moetop.export.sparks import BLOCKS, COLUMNS, MAX_GPUS, MAX_SERVERS, nice_top, spark
from moetop.history import GpuHistory, ServerHistory
from moetop.model import Gpm, GpuReport, GpuSample, HostReport, ServerMetrics, ServerReport, Snapshot

CSV = "timestamp, index, utilization.gpu [%], power.draw [W], power.limit [W]\n" + "".join(
    f"2026/03/05 14:02:{second:02d}.123, 0, {second} %, 331.00 W, 600.00 W\n" for second in range(60)
)
UNTIMED = "index, utilization.gpu [%], power.draw [W], power.limit [W]\n" + "0, 98 %, 331.00 W, 600.00 W\n" * 9


class Course:
    """Series that a test puts in."""

    def __init__(self) -> None:
        self.gpus: dict[int, GpuHistory] = {}
        self.servers: dict[str, ServerHistory] = {}

    def history(self, host: str, gpu: int) -> GpuHistory | None:
        return self.gpus.get(gpu)

    def server_history(self, host: str, server: str) -> ServerHistory | None:
        return self.servers.get(server)

    def report(self, source: str = "nvml") -> str:
        host = HostReport(
            name="a",
            headline="idle",
            source=source,
            gpus=tuple(GpuReport(index=index) for index in self.gpus),
            servers=tuple(ServerReport(name=name) for name in self.servers),
        )
        return write_md(Snapshot(hosts=(host,)), self).decode()


def gpu(seconds: int = 60, step_s: int = 1, gap: range = range(0), **values: object) -> GpuHistory:
    history = GpuHistory()
    given_values = {"util_gpu_pct": 100.0, "power_w": 300.0, "power_limit_w": 600.0, **values}
    for second in range(0, seconds, step_s):
        if second not in gap:
            history.add(float(second), GpuSample(index=0, **given_values))  # type: ignore[arg-type]
    return history


def server(seconds: int = 60, speed: float = 700.0) -> ServerHistory:
    history = ServerHistory()
    for second in range(0, seconds, 5):
        history.add(float(second), ServerMetrics(generation_tokens_s=speed))
    return history


def line_of(text: str, words: str) -> str:
    return next(line for line in text.splitlines() if words in line and re.search(f"[{BLOCKS}]", line))


def drawn(line: str) -> str:
    """The blocks of a line, gaps within them kept."""
    found = re.search(f"[{BLOCKS}][{BLOCKS} ]*[{BLOCKS}]", line)
    assert found is not None, line
    return found.group()


def test_every_gpu_has_utilization_power_and_tensor_and_every_server_its_tokens() -> None:
    course = Course()
    course.gpus[0] = gpu(gpm=Gpm(tensor_pct=9.0))
    course.servers["sglang:8000"] = server()
    text = course.report()
    block = text.split("```text\n")[1].split("\n```")[0].splitlines()
    assert block[0] == "last 59 s, 0.983 s a column, the newest at the right; blank: no value"
    assert [re.split(rf"\s+[{BLOCKS}]", line)[0] for line in block[1:]] == [
        "GPU 0            util %", f"{'':16} power %", f"{'':16} tensor %", "sglang:8000      tok/s",
    ]  # fmt: skip
    assert drawn(block[1]) == "█" * COLUMNS and block[1].endswith("  0-100, newest 100")
    assert drawn(block[2]) == "▅" * COLUMNS and drawn(block[3]) == "▁" * COLUMNS
    assert block[4].endswith("  0-1,000, newest 700") and set(drawn(block[4])) == {"▆"}


def test_absent_values_are_gaps_and_what_no_sample_has_is_no_line() -> None:
    course = Course()
    course.gpus[0] = gpu(gap=range(20, 40))
    assert drawn(line_of(course.report(), "util %")) == "█" * 13 + " " * 14 + "█" * 13, "a third"
    assert "tensor %" not in course.report().split("```text")[1]
    course.gpus[0] = gpu(power_limit_w=None)
    assert "power W" in line_of(course.report(), "power") and "power %" not in course.report().split("```text")[1]


def test_a_chart_is_bounded_in_lines_and_in_time() -> None:
    course = Course()
    course.gpus = {index: gpu(3 * 3600, 10) for index in range(MAX_GPUS + 3)}
    course.servers = {f"server {n} with a name that is long": server() for n in range(MAX_SERVERS + 2)}
    text = course.report()
    assert f"GPU {MAX_GPUS - 1} " in text and f"GPU {MAX_GPUS} " not in text
    assert "\n3 more GPUs\n" in text and "last 60 min, 60 s a column" in text
    assert not re.search(rf"server \d[^\n]*[{BLOCKS}]", text), "numbers from before that hour are not drawn"
    course.gpus = {0: gpu()}
    text = course.report()
    assert "\n2 more servers\n" in text and "server 0 with a…" in text
    assert max(len(line) for line in text.split("```text")[1].splitlines()) < 112


def test_one_moment_has_no_course() -> None:
    course = Course()
    course.gpus[0] = gpu(1)
    assert "a column" not in course.report()
    assert "a column" not in write_md(Snapshot(hosts=(HostReport(name="a", headline="idle"),))).decode()


def test_a_servers_name_stays_in_its_line_and_keeps_no_secret() -> None:
    course = Course()
    course.servers["x\n```\n--api-key sk-abcdefghijklmnop1234"] = server()
    block = course.report().split("```text\n")[1].split("\n```")[0]
    assert "sk-abcdefghijklmnop1234" not in block and len(block.splitlines()) == 2


@settings(deadline=None)
@given(st.lists(st.none() | st.floats(0, 1e12), min_size=1, max_size=80))
def test_a_line_has_a_block_or_a_blank_for_each_value(values: list[float | None]) -> None:
    top = nice_top(max((value for value in values if value is not None), default=0.0))
    text = spark(values, top)
    assert len(text) == len(values)
    assert [char == " " for char in text] == [value is None for value in values]
    assert set(text) <= {" ", *BLOCKS} and str(top)[0] in "125"


@pytest.mark.parametrize(("text", "charted"), [(CSV, True), (UNTIMED, False)])
def test_pasted_samples_have_a_course_where_the_text_has_times(
    text: str, charted: bool, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    pasted = tmp_path / "smi.csv"
    pasted.write_text(text)
    assert main(["--smi-log", str(pasted), "--snapshot", "-", "--format", "md"]) == 0
    assert ("a column" in capsysbinary.readouterr().out.decode()) == charted


def test_the_demos_report_shows_the_course_of_both_hosts(tmp_path: Path) -> None:
    assert main(["--demo", "--snapshot", str(tmp_path / "report.md")]) == 0
    text = (tmp_path / "report.md").read_text()
    assert drawn(line_of(text, "sglang:30000")) == "▆" * COLUMNS
    starting = drawn(line_of(text, "GPU 7"))
    assert starting.startswith("▁▁▁▁") and starting.endswith("████")
