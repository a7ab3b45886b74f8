"""Snapshots written: JSON other programs rely on, CSV, Markdown, and the places they go to."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from moetop.errors import ExitCode, UsageError
from moetop.export.csv_writer import COLUMNS, write_csv
from moetop.export.json_writer import write_json, write_json_line
from moetop.export.md_writer import write_md
from moetop.export.output import FORMATS, open_output, writer_for
from moetop.export.schema import snapshot_schema
from moetop.model import (
    Confidence,
    Engine,
    EventKind,
    EventSeverity,
    Finding,
    FindingKind,
    Gpm,
    GpuProcess,
    GpuReport,
    GpuState,
    HostReport,
    HostStatus,
    Limit,
    LogEvent,
    LogPlace,
    ServerMetrics,
    ServerReport,
    ServerRun,
    Severity,
    Snapshot,
    Tuning,
    TuningFile,
    Verdict,
)

ROOT = Path(__file__).parents[2]
SECRET = "sk-Pl4nt3dS3cr3tPl4nt3dS3cr3t"


def full_snapshot() -> Snapshot:
    gpu = GpuReport(
        index=0, name="NVIDIA H200", uuid="GPU-1", pci_bus_id="00000000:06:00.0", state=GpuState.TENSOR_STARVED,
        confidence=Confidence.MEASURED, evidence=("tensor 9 %",), limits=(Limit.SW_POWER_CAP,), util_gpu_pct=100.0,
        power_w=694.1, power_limit_w=700.0, power_pct=99.2, gpm=Gpm(tensor_pct=8.9, dram_pct=29.3),
        processes=(GpuProcess(pid=7, user="bob", name="python"),),
    )  # fmt: skip
    server = ServerReport(
        name="glm5", engine=Engine.SGLANG, version="0.5.9", pid=7, argv=("python3", "--api-key", SECRET),
        args={"api_key": SECRET, "tp_size": 8, "max_total_num_tokens": 212345, "odd": math.inf, "big": 10**30},
        env={"HF_TOKEN": "plain-looking-value"}, log=LogPlace(kind="file", target="/root/x.log"),
        metrics=ServerMetrics(running=16.0, generation_tokens_s=float("nan")),
        tuning=Tuning(verdict=Verdict.NEVER_RAN, evidence=("0.5.9 leaves it out",), remedy=("upgrade",)),
        files=(TuningFile(path="/c.json", role="cache", exists=False),), runs=(ServerRun(n=1), ServerRun(n=2)),
        events=(
            LogEvent(kind=EventKind.READY, rule="x", severity=EventSeverity.GOOD, line="ready | `x` <b>", run=2),
            LogEvent(kind=EventKind.NOTE, rule="x", severity=EventSeverity.INFO, line=f"Bearer {SECRET}\x1b[31m"),
        ),
        counts={"http_access": 12431},
    )  # fmt: skip
    finding = Finding(
        kind=FindingKind.UNTUNED_KERNELS, severity=Severity.WARNING, confidence=Confidence.INFERRED, gpus=(0,),
        server="glm5", summary="kernels never tuned", evidence=("a | b",),
        remedy=("upgrade to 0.5.16", "$ nvidia-smi topo -m"),
    )  # fmt: skip
    return Snapshot(
        moetop="0.1.0", taken_at=1771463370.5, window_s=2.0, headline="untuned_kernels",
        hosts=(
            HostReport(
                name="glm5-sm120", headline="untuned_kernels", driver="580.1", source="nvml", gpus=(gpu, GpuReport(
                    index=1, error="gpu_lost")), servers=(server,), findings=(finding,), notes=("=cmd|' /C calc'!A0",),
            ),
            HostReport(
                name="=HYPERLINK(1)", headline="unreachable", status=HostStatus.UNREACHABLE,
                error="+no route\x1b]0;x\x07",
            ),
        ),
    )  # fmt: skip


DESIGN = {
    "$": "schema moetop taken_at window_s headline hosts",
    "$.hosts": "name headline status error driver source gpus servers events findings",
    "$.hosts.gpus": "index uuid pci_bus_id name state confidence evidence limits util_gpu_pct util_mem_pct power_w "
    "power_limit_w power_limit_default_w power_pct temp_c memory_used_mib memory_total_mib sm_clock_mhz gpm processes",
    "$.hosts.gpus.processes": "pid user name memory_used_mib",
    "$.hosts.servers": "name engine version pid args phase ready metrics tuning runs events counts",
    "$.hosts.servers.tuning": "verdict evidence",
    "$.hosts.servers.runs": "n start phase",
    "$.hosts.servers.events": "t t_text run kind rule severity engine ranks count fields line",
    "$.hosts.findings": "kind severity confidence gpus server summary evidence remedy",
}


@pytest.mark.parametrize("path", DESIGN)
def test_json_keys_stand_in_the_documented_order_and_new_ones_follow(path: str) -> None:
    node: Any = json.loads(write_json(full_snapshot()))
    for step in path.split(".")[1:]:
        node = node[step]
        node = node[0] if isinstance(node, list) else node
    wanted = DESIGN[path].split()
    assert list(node)[: len(wanted)] == wanted


def test_json_keeps_the_schema_of_the_docs_and_the_docs_keep_the_model() -> None:
    kept = json.loads((ROOT / "docs/snapshot.schema.json").read_text())
    assert kept == json.loads(json.dumps(snapshot_schema())), "run `make schema`"
    jsonschema.Draft202012Validator.check_schema(kept)
    validator = jsonschema.Draft202012Validator(kept)
    snapshot = json.loads(write_json(full_snapshot()))
    validator.validate(snapshot)
    validator.validate(json.loads(write_json(Snapshot())))
    for spoil in (
        lambda s: s.update(schema="moetop.snapshot/2"),
        lambda s: s["hosts"][0].pop("error"),
        lambda s: s["hosts"][0]["gpus"][0].update(state="sleepy"),
        lambda s: s["hosts"][0]["gpus"][0].update(power_w="331 W"),
        lambda s: s["hosts"][0]["gpus"][0].update(power_w=-2),
        lambda s: s["hosts"][0].update(headline="fine"),
    ):
        bad = json.loads(write_json(full_snapshot()))
        spoil(bad)
        assert not validator.is_valid(bad)


def test_numbers_that_are_none_become_null_and_nothing_is_not_json() -> None:
    data = write_json(full_snapshot())
    server = json.loads(data, parse_constant=pytest.fail)["hosts"][0]["servers"][0]
    assert server["metrics"]["generation_tokens_s"] is None and server["args"]["odd"] is None
    assert server["args"]["big"] == str(10**30) and server["args"]["tp_size"] == 8
    line = write_json_line(full_snapshot())
    assert line.count(b"\n") == 1 and line.endswith(b"}\n") and json.loads(line) == json.loads(data)


ANYTHING = st.recursive(
    st.none() | st.floats() | st.integers() | st.text() | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=8,
)


@given(ANYTHING)
def test_whatever_a_host_puts_into_free_fields_every_writer_lives(value: Any) -> None:
    server = ServerReport(name=str(value)[:50], args={"x": value}, notes=(str(value),))
    snapshot = Snapshot(hosts=(HostReport(name=repr(value)[:50], headline="idle", servers=(server,)),))
    json.loads(write_json(snapshot), parse_constant=pytest.fail)
    assert len(list(csv.reader(io.StringIO(write_csv(snapshot).decode())))) == 2
    assert not re.search(rb"[\x00-\x09\x0b-\x1f\x7f]", write_md(snapshot))


def test_nesting_without_end_is_cut() -> None:
    value: Any = "x"
    for _ in range(500):
        value = [value]
    json.loads(write_json(Snapshot(hosts=(HostReport(name="a", headline="idle", servers=(
        ServerReport(name="s", args={"x": value}),)),))))  # fmt: skip


@pytest.mark.parametrize("form", FORMATS)
def test_no_format_carries_a_secret(form: str) -> None:
    data = writer_for(form)(full_snapshot())
    assert SECRET.encode() not in data and b"plain-looking-value" not in data
    assert b"212345" in data or form != "json"


def test_csv_has_a_row_for_every_gpu_and_for_a_host_without_any() -> None:
    rows = list(csv.DictReader(io.StringIO(write_csv(full_snapshot()).decode())))
    assert [(row["host"], row["index"]) for row in rows] == [
        ("glm5-sm120", "0"), ("glm5-sm120", "1"), ("'=HYPERLINK(1)", ""),
    ]  # fmt: skip
    first, lost, unreachable = rows
    assert (first["state"], first["power_w"], first["temp_c"], first["limits"]) == (
        "tensor_starved", "694.1", "", "sw_power_cap",
    )  # fmt: skip
    assert first["gpm_tensor_pct"] == "8.9" and first["taken_at"] == "1771463370.5"
    assert lost["error"] == "gpu_lost" and lost["host_error"] == ""
    assert unreachable["status"] == "unreachable" and unreachable["host_error"].startswith("'+no route")


def test_csv_columns_are_stable() -> None:
    assert " ".join(COLUMNS) == (
        "host headline status host_error driver source index uuid pci_bus_id name state confidence util_gpu_pct "
        "util_mem_pct power_w power_limit_w power_limit_default_w power_pct temp_c memory_used_mib memory_total_mib "
        "sm_clock_mhz memory_temp_c sm_clock_max_mhz mem_clock_mhz pcie_gen pcie_width pcie_gen_max pcie_width_max "
        "ecc_uncorrected mig error limits gpm_sm_active_pct gpm_sm_occupancy_pct gpm_tensor_pct gpm_dram_pct "
        "gpm_fp16_pct gpm_fp32_pct gpm_fp64_pct gpm_int_pct gpm_pcie_rx_mib_s gpm_pcie_tx_mib_s gpm_nvlink_rx_mib_s "
        "gpm_nvlink_tx_mib_s taken_at window_s"
    )


def test_csv_runs_no_formula_and_no_escape_sequence() -> None:
    data = write_csv(full_snapshot()).decode()
    for row in csv.reader(io.StringIO(data)):
        assert not any(cell[:1] in ("=", "+", "@", "\t", "\r") for cell in row)
    assert "\x1b" not in data and "\x07" not in data


def test_markdown_says_what_is_wrong_and_keeps_foreign_text_inert() -> None:
    text = write_md(full_snapshot()).decode()
    assert text.startswith("# moetop: untuned_kernels\n")
    assert "- **warning, inferred**: kernels never tuned (GPU 0; server glm5)" in text
    assert (
        "**do:** upgrade to 0.5.16" in text
        and "**do:** `nvidia-smi topo -m`" in text
        and "2026-02-19 01:09:30 UTC" in text
    )
    assert "| 0 | NVIDIA H200 |" in text and "a \\| b" in text and "gpu_lost" in text
    assert "utilization %" in text and "A glm5-sm120" in text
    assert "\x1b" not in text and "<b>" not in text.split("```")[0]


def parser() -> MarkdownIt:
    """One that links what GitHub links: no bare name with a dot."""
    made = MarkdownIt("gfm-like")
    assert made.linkify is not None
    made.linkify.set({"fuzzy_link": False})
    return made


def rendered(text: str) -> list[Token]:
    """Inline tokens of a report in which a finding says `text`."""
    finding = Finding(
        kind=FindingKind.UNTUNED_KERNELS, severity=Severity.WARNING, confidence=Confidence.REPORTED, summary=text
    )
    report = write_md(Snapshot(hosts=(HostReport(name="a", headline="idle", findings=(finding,)),))).decode()
    blocks = parser().parse(report)
    return next(b.children or [] for b in blocks if b.type == "inline" and b.content.startswith("**warning"))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("make /x/E=8,block_shape=[128,128].json, then", "/x/E=8,block_shape=[128,128].json"),
        ("make /x/E=8,block_shape=[128, 128].json", "/x/E=8,block_shape=[128, 128].json"),
        ("move (~/.cache/vllm/_x_) away", "~/.cache/vllm/_x_"),
        ("expect `Using configuration from`", "Using configuration from"),
        ("see https://a.de/b.", "https://a.de/b"),
        ("at www.a.de (old)", "www.a.de"),
    ],
)
def test_a_path_in_a_report_is_code_and_copied_as_it_is(text: str, code: str) -> None:
    tokens = rendered(text)
    assert code in [token.content for token in tokens if token.type == "code_inline"]


@pytest.mark.parametrize("text", ["see https://a.de/b.", "(http://10.0.0.1:30000)", "ask a@b.de now"])
def test_an_address_that_a_host_tells_is_no_link(text: str) -> None:
    assert "link_open" not in {token.type for token in rendered(text)}
    named = write_md(Snapshot(hosts=(HostReport(name=text, headline="idle"),))).decode()
    tokens = [token.type for block in parser().parse(named) for token in block.children or []]
    assert "text" in tokens and "link_open" not in tokens


@settings(deadline=None)  # the first example loads the parser
@given(st.text("ab_*`[]<>()#|~&$@!\\ -+.:,/1", max_size=40))
def test_whatever_a_report_quotes_is_shown_as_it_is(text: str) -> None:
    tokens = rendered(f"x {text} y")
    tokens = tokens[[token.type for token in tokens].index("strong_close") + 1 :]
    assert {token.type for token in tokens} <= {"text", "text_special", "code_inline"}
    shown = "".join(token.content for token in tokens).replace("`", "")
    assert shown.split() == f": x {text} y".replace("`", "").split()


def test_a_report_without_gpus_speaks_of_no_window() -> None:
    hosts = (HostReport(name="a", headline="no_finding"),)
    assert "states over" not in write_md(Snapshot(window_s=2.0, hosts=hosts)).decode()
    assert "states over 2 s" in write_md(full_snapshot()).decode()


def test_a_fence_in_a_log_line_does_not_end_the_block() -> None:
    event = LogEvent(kind=EventKind.NOTE, rule="x", severity=EventSeverity.INFO, line="```` <script>")
    snapshot = Snapshot(hosts=(HostReport(name="a", headline="idle", events=(event,)),))
    assert "`````text\n```` <script>\n`````" in write_md(snapshot).decode()


def test_a_file_is_replaced_whole_and_private(tmp_path: Path) -> None:
    target = tmp_path / "snap.json"
    target.write_text("old")
    target.chmod(0o644)
    output = open_output(str(target))
    assert target.read_text() == "old", "checking must not touch it"
    output.write(full_snapshot())
    assert json.loads(target.read_bytes())["schema"] == "moetop.snapshot/1"
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["snap.json"]


def test_a_link_keeps_pointing_where_it_pointed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "snap.json"
    link.symlink_to(tmp_path / "real" / "x.json")
    open_output(str(link)).write(Snapshot())
    assert link.is_symlink() and (tmp_path / "real" / "x.json").stat().st_size > 0


def test_lines_are_added_and_an_unfinished_one_is_ended_first(tmp_path: Path) -> None:
    target = tmp_path / "snap.jsonl"
    target.write_bytes(b'{"half":')
    for _ in range(2):
        output = open_output(str(target))
        output.write_line(Snapshot())
        output.write_line(Snapshot())
    lines = target.read_bytes().splitlines()
    assert lines[0] == b'{"half":' and [json.loads(line)["schema"] for line in lines[1:]] == ["moetop.snapshot/1"] * 4
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_a_place_that_cannot_be_written_is_refused_before_anything_is_sampled(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for target, words in (
        (str(tmp_path), "is a folder; name a file"),
        (str(tmp_path / "no/such/x.json"), "its folder does not exist"),
        (str(tmp_path / "file" / "x.json"), "Not a directory"),
        ("/proc/moetop.json", "cannot be written"),
        ("", "empty"),
        ("a\0b", "NUL"),
        (str(tmp_path / ("x" * 300)), "too long"),
    ):
        with pytest.raises(UsageError) as caught:
            open_output(target)
        assert words in caught.value.sentence() and caught.value.exit_code is ExitCode.USAGE
    with pytest.raises(UsageError, match="unknown format 'xml'"):
        open_output(str(tmp_path / "x"), "xml")


def test_a_full_disk_is_said_and_leaves_nothing_behind(tmp_path: Path) -> None:
    output = open_output("/dev/full")
    with pytest.raises(UsageError, match="No space left"):
        output.write(full_snapshot())
    code = f"""
import resource
from tests.unit.test_export import full_snapshot
from moetop.export.output import open_output
import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
try:
    open_output({str(tmp_path / "x.json")!r}).write(full_snapshot())
except Exception as error:
    print(type(error).__name__, error)
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True).stdout
    assert said.startswith("UsageError") and "File too large" in said
    assert list(tmp_path.iterdir()) == []


def test_a_named_pipe_gets_every_line_through_one_opening(tmp_path: Path) -> None:
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.extend(fifo.open("rb")))
    reader.start()
    output = open_output(str(fifo))
    output.write_line(Snapshot())
    output.write_line(Snapshot())
    del output
    reader.join(10)
    assert len(got) == 2 and fifo.is_fifo()


def test_a_closed_standard_output_is_said() -> None:
    code = "from moetop.export.output import open_output; open_output('-')"
    run = subprocess.run(
        ["sh", "-c", 'exec "$0" -c "$1" >&-', sys.executable, code], capture_output=True, text=True, check=False
    )
    assert "standard output is closed" in run.stderr


def test_a_reader_that_left_raises_broken_pipe() -> None:
    code = (
        "import time\nfrom moetop.export.output import open_output\nfrom moetop.model import Snapshot\n"
        "output = open_output('-')\ntry:\n    while True: output.write_line(Snapshot())\n"
        "except BrokenPipeError:\n    import os; os._exit(42)"
    )
    run = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert run.stdout is not None and run.stdout.readline().startswith(b"{")
    run.stdout.close()
    assert run.wait(20) == 42


@pytest.mark.parametrize("form", [form for form in FORMATS if form != "svg"])
def test_only_svg_loads_textual_and_only_md_and_svg_load_plotext(form: str) -> None:
    code = (
        "import sys\nfrom tests.unit.test_export import full_snapshot\nfrom moetop.export.output import writer_for\n"
        f"writer_for({form!r})(full_snapshot())\nprint('textual' in sys.modules, 'plotext' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert run.stdout.split() == ["False", str(form == "md")]
