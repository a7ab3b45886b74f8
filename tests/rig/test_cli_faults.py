"""What goes wrong, seen from the `moetop` command: one clear sentence, the right exit code, nothing lost or left."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.rig.cli_kit import FAST, Lines, Moetop, ended, interrupt, place, sentence
from tests.rig.nvml_rig import Scenario
from tests.rig.sshd_rig import Client, Sshd, descendants, free_port, is_running, keygen, until
from tests.rig.terminal_kit import Terminal, needs_tmux
from tests.rig.test_ssh import full_listener

ROOT = Path(__file__).parents[2]
STAND_IN_SMI = Path(__file__).parent / "stand_in_smi.py"
RECORDING = Path(__file__).parents[1] / "data" / "recordings" / "h200-dense_gemm.jsonl"


# ── hosts that cannot be watched ─────────────────────────────────────────────────────────────────


def test_every_way_not_to_reach_a_host_is_one_sentence_with_what_to_do_and_exit_code_4(
    sshd: Sshd, client: Client, moetop: Moetop, tmp_path: Path
) -> None:
    wrong_key = keygen(tmp_path / "wrong_key")
    other_known = tmp_path / "other_known_hosts"
    other_known.write_text(f"[127.0.0.1]:{sshd.port} " + (client.key.with_suffix(".pub")).read_text())
    here = f"HostName 127.0.0.1\n  Port {sshd.port}\n"
    client.configure(
        f"Host strange\n  {here}  UserKnownHostsFile /dev/null\n"
        f"Host changed\n  {here}  UserKnownHostsFile {other_known}\n"
        f"Host locked\n  {here}  IdentityFile {wrong_key}\n",
        identity="Compression no",
    )
    with full_listener() as full:
        cases = {
            "no-such-host.invalid": ("", ("cannot be looked up", "check the spelling")),
            f"127.0.0.1:{(closed := free_port())}": ("", (f"port {closed} refused the connection", "sshd runs there")),
            f"127.0.0.1:{full}": ("connect_timeout_s: 1", ("did not answer within 1 s", "firewall")),
            "locked": ("", ("authentication", "key")),
            "strange": ("", ("host key of 127.0.0.1 is unknown", "ssh-keyscan")),
            "changed": ("", ("has changed", "ssh-keygen -R")),
            place(sshd): (
                f"identity_file: {client.key}\n  python: /nowhere/python3",
                ("no /nowhere/python3", "no nvidia-smi either"),
            ),
        }
        running = {}
        for number, (host, (settings, _)) in enumerate(cases.items()):
            config = tmp_path / f"{number}.yaml"
            config.write_text(f"hosts:\n- name: {host!r}\n  {settings}\n")
            running[host] = moetop.start("--config", str(config), "--snapshot", "-", *FAST)
        for host, process in running.items():
            said = ended(process)
            line = sentence(said)
            assert said.code == 4, said.err
            assert line.startswith(f"moetop: {host}: ")
            assert all(word in line for word in cases[host][1]), line
            assert said.hosts()[host]["headline"] == "unreachable"
    until(lambda: not sshd.session_pids())


def test_a_python_too_old_is_named_and_a_banner_of_the_login_shell_does_no_harm(
    make_sshd: Callable[..., Sshd], client: Client, moetop: Moetop, scenario: Scenario
) -> None:
    old = make_sshd("ForceCommand echo Welcome to the cluster; echo MOETOP-OLD 3.6")
    chatty = make_sshd(
        """ForceCommand printf 'Welcome\\nto the cluster> '; eval "$SSH_ORIGINAL_COMMAND" """, env=scenario.environment
    )
    for server in (old, chatty):
        client.admit(server)
    processes = [moetop.start("--host", place(server), "--snapshot", "-", *FAST) for server in (old, chatty)]
    refused, fine = (ended(process) for process in processes)
    assert refused.code == 4
    assert "3.6" in sentence(refused) and "python" in sentence(refused)
    assert (fine.code, fine.err) == (0, "")
    assert fine.hosts()[place(chatty)]["gpus"][0]["state"] == "tensor_busy"


# ── GPUs that cannot be read ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("code", "headline", "words"),
    [
        (9, "no_data", ("driver", "load or install the driver")),
        (18, "driver_mismatch", ("differ", "reboot")),
    ],
)
def test_a_driver_that_does_not_answer_is_one_sentence_and_exit_code_4(
    gpu_host: Sshd, scenario: Scenario, moetop: Moetop, code: int, headline: str, words: tuple[str, ...]
) -> None:
    scenario.write(f"init {code}")
    said = moetop("--host", place(gpu_host), "--snapshot", "-", *FAST)
    assert said.code == 4
    assert all(word in sentence(said) for word in words), said.err
    assert said.hosts()[place(gpu_host)]["headline"] == headline


def test_a_gpu_lost_while_watching_keeps_its_row_and_the_stream_goes_on(
    gpu_host: Sshd, scenario: Scenario, moetop: Moetop
) -> None:
    scenario.write("count 2")
    process = moetop.start("--host", place(gpu_host), "--snapshot", "-", "--every", "0.2", *FAST)
    assert process.stdout is not None
    lines = Lines(process.stdout)
    lines.until(lambda line: json.loads(line)["hosts"][0]["gpus"][1:])
    scenario.add("error.nvmlDeviceGetUtilizationRates.1 15", "error.nvmlDeviceGetPowerUsage.1 15")
    lost = json.loads(lines.until(lambda line: any(gpu["error"] for gpu in json.loads(line)["hosts"][0]["gpus"])))
    healthy, gone = lost["hosts"][0]["gpus"]
    assert (healthy["error"], healthy["util_gpu_pct"]) == (None, 100)
    assert (gone["index"], gone["error"], gone["state"]) == (1, "gpu_lost", "unknown")
    finding = next(one for one in lost["hosts"][0]["findings"] if one["kind"] == "gpu_lost")
    assert finding["gpus"] == [1] and finding["remedy"]
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 130
    assert process.stderr is not None and process.stderr.read() == ""
    until(lambda: not gpu_host.session_pids())


def test_values_that_are_not_supported_are_null_and_never_zero(
    gpu_host: Sshd, scenario: Scenario, moetop: Moetop
) -> None:
    scenario.write(
        "error.nvmlDeviceGetEnforcedPowerLimit 3",
        "error.nvmlDeviceGetPowerManagementLimit 3",
        "error.nvmlDeviceGetMemoryInfo 3",
        "error.nvmlGpmQueryDeviceSupport 3",
    )
    said = moetop("--host", place(gpu_host), "--snapshot", "-", *FAST)
    gpu = said.hosts()[place(gpu_host)]["gpus"][0]
    assert (said.code, said.err) == (0, "")
    assert gpu["power_w"] == 694.1
    assert (gpu["power_limit_w"], gpu["power_pct"], gpu["gpm"]) == (None, None, None)
    assert gpu["confidence"] == "inferred"


STARVED = ("gpm.sm 97", "gpm.tensor 9", "gpm.dram 11", "power 590", "reasons 0", "gpm.wrong_processes 1")


def test_a_probe_that_gets_wrong_activity_values_is_replaced_within_one_snapshot(
    make_sshd: Callable[..., Sshd], client: Client, scenario: Scenario, moetop: Moetop
) -> None:
    scenario.write(*(f"gpu.0.{line}" for line in STARVED))
    slow = make_sshd("""ForceCommand sleep 2; eval "$SSH_ORIGINAL_COMMAND" """, env=scenario.environment)
    client.admit(slow)
    said = moetop("--host", place(slow), "--snapshot", "-", "--window", "4", "--interval", "0.4")
    host = said.hosts()[place(slow)]
    assert (said.code, said.err, host["status"]) == (0, "", "ok")
    assert (host["gpus"][0]["state"], host["gpus"][0]["confidence"]) == ("tensor_starved", "measured")
    assert host["gpus"][0]["gpm"]["sm_active_pct"] == 97.0
    assert not [note for note in host["notes"] if "activity" in note]


@pytest.mark.faults
def test_activity_values_that_stay_wrong_are_left_out_and_that_is_said(
    gpu_host: Sshd, scenario: Scenario, moetop: Moetop
) -> None:
    scenario.write(*(f"gpu.0.{line}" for line in STARVED), "gpu.0.gpm.wrong_processes 9")
    said = moetop("--host", place(gpu_host), "--snapshot", "-", "--window", "3", "--interval", "0.4")
    host = said.hosts()[place(gpu_host)]
    assert (said.code, host["status"], host["gpus"][0]["gpm"]) == (0, "ok", None)
    assert (host["gpus"][0]["confidence"], host["gpus"][0]["absent"]["gpm"]) == ("inferred", "contradicted")
    assert any("activity values are left out" in note for note in host["notes"])


@pytest.mark.faults
@pytest.mark.timeout(90)
def test_an_nvidia_smi_that_hangs_is_said(
    make_sshd: Callable[..., Sshd], client: Client, moetop: Moetop, tmp_path: Path
) -> None:
    folder = tmp_path / "smi"
    folder.mkdir()
    (folder / "smi.py").write_text(STAND_IN_SMI.read_text())
    (folder / "MODE").write_text("hang")
    program = folder / "nvidia-smi"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E {folder}/smi.py "$@"\n')
    program.chmod(0o755)
    server = make_sshd(
        env={"PATH": f"{folder}:{Path(sys.executable).parent}:/usr/bin:/bin", "LD_LIBRARY_PATH": str(folder)}
    )
    client.admit(server)
    said = moetop("--host", place(server), "--snapshot", "-", *FAST)
    assert said.code == 4
    assert "nvidia-smi gave nothing for 20 s" in sentence(said) and "look at the kernel log" in sentence(said)
    until(lambda: not server.session_pids())


# ── files and arguments ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "configuration {file} does not exist; see config.example.yaml"),
        ("hosts: [a\n", "{file}:2: not YAML"),
        ("hosts:\n- name: a\n  prot: 22\n", "{file}:3: hosts[0].prot: unknown key; did you mean port?"),
        ("interval_s: fast\n", "{file}:1: interval_s: expected a number, found text"),
        ("hosts:\n- a\n- b\n- a\n", "{file}:4: hosts[2]: the host 'a' stands twice (also in line 2)"),
        ("groups:\n- {name: g, hosts_file: list}\n", "list:2: the host 'n1' stands twice (also in {folder}/list:1)"),
        ("groups:\n- name: g\n  ssh_config: nothing-*\n", "{file}:3: groups[0].ssh_config: no Host in"),
    ],
)  # fmt: skip
def test_a_bad_configuration_is_one_sentence_with_file_and_line(
    moetop: Moetop, tmp_path: Path, text: str | None, words: str
) -> None:
    file = tmp_path / "fleet.yaml"
    (tmp_path / "list").write_text("n[1-3]\nn1\n")
    if text is not None:
        file.write_text(text)
    said = moetop("--config", str(file), "--snapshot", "-")
    assert (said.code, said.out) == (2, "")
    assert words.format(file=file, folder=tmp_path) in sentence(said)


def test_a_recording_that_is_none_is_one_sentence(moetop: Moetop, tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "words.jsonl").write_text("these are\nwords\n")
    for name, words in (
        ("missing.jsonl", "no such file"),
        ("empty.jsonl", "is empty"),
        ("words.jsonl", "is not a recording"),
    ):
        said = moetop("--replay", str(tmp_path / name), "--snapshot", "-")
        assert said.code == 2
        assert words in sentence(said) and name in sentence(said)


@pytest.mark.parametrize("packed", [False, True])
def test_a_recording_cut_in_the_middle_of_a_line_gives_what_it_has(
    moetop: Moetop, tmp_path: Path, packed: bool
) -> None:
    text = RECORDING.read_bytes()
    file = tmp_path / "cut.jsonl"
    if packed:
        data = gzip.compress(text)
        file.write_bytes(data[: len(data) // 2])
    else:
        file.write_bytes(text[: len(text) // 2].rstrip(b"\n") + b'\n{"type":"gpus","t":9,"gp')
    said = moetop("--replay", str(file), "--snapshot", "-")
    faults = ["the recording ends in the middle of a line"]
    faults += [] if packed else ["1 line of the recording is no frame"]
    assert (said.code, said.err) == (0, "".join(f"moetop: {fault}\n" for fault in faults))
    assert next(iter(said.hosts().values()))["gpus"][0]["state"] == "tensor_busy"


def test_an_output_that_cannot_be_written_is_said_before_anything_is_watched(
    sshd: Sshd, moetop: Moetop, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    log = tmp_path / "server.log"
    log.write_text("hello\n")
    for arguments in (
        ("--snapshot", str(tmp_path / "nowhere" / "x.json")),
        ("--snapshot", str(tmp_path)),
        ("--record", str(tmp_path / "file" / "x.jsonl"), "--duration", "1"),
        ("--record", str(log), "--duration", "1"),
        ("--debug", str(tmp_path / "nowhere" / "debug.log"), "--snapshot", "-"),
    ):
        said = moetop("--host", place(sshd), *arguments)
        assert (said.code, said.out) == (2, ""), arguments
        sentence(said)
    assert log.read_text() == "hello\n"
    assert sshd.logins() == 0


def test_a_disk_that_fills_up_stops_the_recording_in_words_and_the_snapshot_is_whole(
    gpu_host: Sshd, moetop: Moetop
) -> None:
    said = moetop("--host", place(gpu_host), "--snapshot", "-", "--record", "/dev/full", *FAST)
    assert said.code == 2
    assert "no space left on device" in sentence(said)
    assert said.hosts()[place(gpu_host)]["gpus"]


# ── standard output and the terminal ─────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "arguments", [("--demo", "--snapshot", "-"), ("--help",), ("--doctor",)], ids=["snapshot", "help", "doctor"]
)
def test_a_reader_that_left_is_a_normal_end(moetop: Moetop, arguments: tuple[str, ...]) -> None:
    read, write = os.pipe()
    os.close(read)
    process = moetop.start(*arguments, stdout=write)
    os.close(write)
    said = ended(process)
    assert (said.code, said.err) == (0, "")


def test_a_reader_that_leaves_in_the_middle_ends_the_watching_of_a_host(gpu_host: Sshd, moetop: Moetop) -> None:
    process = moetop.start("--host", place(gpu_host), "--snapshot", "-", "--every", "0.1", *FAST)
    assert process.stdout is not None and process.stderr is not None
    assert json.loads(process.stdout.readline())["headline"]
    process.stdout.close()
    assert process.wait(10) == 0
    assert process.stderr.read() == ""
    until(lambda: not gpu_host.session_pids())


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_closed_and_full_streams_are_no_traceback(moetop: Moetop, unbuffered: str) -> None:
    command = f"exec {sys.executable} -m moetop"

    def shell(words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["/bin/sh", "-c", f"{command} {words}"],
            env={**moetop.environment, "PYTHONUNBUFFERED": unbuffered},
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )

    for words, code in (
        ("--version >&-", 2),
        ("--version >/dev/full", 2),
        ("--help >/dev/full", 2),
        ("--demo --snapshot - --every 0.2 >/dev/full", 2),
        ("--retune h --dry-run >&-", 2),
        ("--demo --snapshot - >&-", 2),
        ("--demo --snapshot - >/dev/full", 2),
        ("--doctor >&-", 2),
        ("--doctor >/dev/full", 2),
        ("--demo --snapshot - 2>&-", 0),
        ("--nonsense 2>&-", 2),
        ("--demo <&- >&-", 2),
    ):
        done = shell(words)
        assert done.returncode == code, (words, done.stderr)
        assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr
        assert "unexpected fault" not in done.stderr
        if code and "2>&-" not in words:
            assert done.stderr.startswith("moetop: ") and done.stderr.count("\n") == 1, words


def test_the_screen_without_a_terminal_says_what_to_do(moetop: Moetop) -> None:
    said = moetop("--demo")
    assert said.code == 2
    assert "--snapshot" in sentence(said)


@needs_tmux
def test_a_terminal_too_small_says_how_much_it_needs_and_control_c_leaves_with_130(
    moetop: Moetop, tmp_path: Path
) -> None:
    terminal = Terminal(moetop, tmp_path, 20, 5, "--demo")
    try:
        until(lambda: "40x10 cells;\nthis is 20x5" in terminal.text())
        terminal.tmux("resize-window", "-x", "100", "-y", "30")
        until(lambda: "RTX PRO 6000" in terminal.text())
        terminal.press("C-c")
        until(terminal.ended)
        assert terminal.status.read_text().strip() == "130"
        assert "Traceback" not in terminal.text()
    finally:
        terminal.close()


# ── control-C ────────────────────────────────────────────────────────────────────────────────────


def test_control_c_at_any_moment_ends_with_130_and_leaves_nothing_on_the_host(
    gpu_host: Sshd, moetop: Moetop, tmp_path: Path
) -> None:
    moments_s = (0.1, 0.2, 0.3, 0.5, 0.8, 1.2, 2.0)
    record = tmp_path / "r.jsonl"
    for moment_s in moments_s:
        process = moetop.start("--host", place(gpu_host), "--snapshot", "-", "--window", "20", "--record", str(record))
        time.sleep(moment_s)  # the moment itself is what is tried
        said = interrupt(process)
        unborn = moment_s <= 0.3 and f"{ROOT}/moetop" not in said.err  # Python itself was not up yet
        assert (said.code, said.err) == (130, "") or unborn, (moment_s, said)
        until(lambda: not gpu_host.session_pids())
    if record.exists() and record.stat().st_size:
        assert all(json.loads(line) for line in record.read_text().splitlines())


def test_control_c_while_watching_this_machine_leaves_no_process(moetop: Moetop) -> None:
    process = moetop.start("--snapshot", "-", "--window", "20")
    until(lambda: descendants(process.pid))
    children = descendants(process.pid)
    said = interrupt(process)
    assert (said.code, said.err) == (130, "")
    until(lambda: not any(is_running(pid) for pid in children))


def test_a_second_control_c_changes_nothing(gpu_host: Sshd, moetop: Moetop) -> None:
    process = moetop.start("--host", place(gpu_host), "--snapshot", "-", "--window", "20")
    until(lambda: gpu_host.logins() == 1)
    process.send_signal(signal.SIGINT)
    time.sleep(0.05)
    said = interrupt(process)
    assert said.code == 130
    assert "Traceback" not in said.err and "Exception ignored" not in said.err
    until(lambda: not gpu_host.session_pids())
