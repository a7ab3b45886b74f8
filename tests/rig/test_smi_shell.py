"""Hosts without Python: a plain shell runs `nvidia-smi` in a loop, and its lines become frames on this side."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from moetop.errors import LinkError
from moetop.model import AnyFrame, Gpus, Hello, Status
from moetop.probe.smi_stream import FIELDS
from moetop.transport import fallback, smi_shell
from moetop.transport.base import Channel
from moetop.transport.fallback import open_fallback
from moetop.transport.process import ProcessPipe
from moetop.transport.smi_shell import loop_argv, loop_command, run_line
from moetop.transport.spawn import spawn
from tests.rig.probe_kit import children_of
from tests.rig.smi_kit import Smi, wait_until_gone

NO_PYTHON = LinkError("the host has no python3", "install it", code="no_python", retry=False)
DECODER = msgspec.json.Decoder(AnyFrame)
PATIENCE_S = 15.0


@pytest.fixture
def smi(tmp_path: Path) -> Smi:
    return Smi(tmp_path)


class Host:
    """A host reached by a subprocess; `pid` is its shell's. Frames are checked as they are read."""

    def __init__(self, environment: dict[str, str], **options: object) -> None:
        self.pid = 0
        self._environment = {**os.environ, **environment}
        self.channel: Channel = open_fallback(self._start, {"interval_s": 0.5, **options}, NO_PYTHON)
        self._lines = self.channel.lines()
        self._done = threading.Event()
        threading.Thread(target=self._ping, daemon=True).start()

    def _start(self, command: str) -> tuple[ProcessPipe, tuple[bytes, ...]]:
        process = spawn(["/bin/sh", "-c", command], self._environment)
        self.pid = process.pid
        return ProcessPipe(process), ()

    def _ping(self) -> None:
        while not self._done.wait(0.2):
            try:
                self.channel.send(b'{"cmd": "ping"}')
            except LinkError:
                return

    def next(self, kind: type, wanted: Callable[..., bool] = lambda frame: True) -> AnyFrame:
        end = time.monotonic() + PATIENCE_S
        for line in self._lines:
            assert time.monotonic() < end, "no such frame came"
            if json.loads(line)["type"] == "pong":
                continue
            frame = DECODER.decode(line)
            if isinstance(frame, kind) and wanted(frame):
                return frame
        raise AssertionError("the stream ended")

    def rest(self) -> list[AnyFrame]:
        return [DECODER.decode(line) for line in self._lines if b'"pong"' not in line]

    def close(self) -> None:
        self._done.set()
        self.channel.close()


@pytest.fixture
def host(smi: Smi) -> Iterator[Callable[..., Host]]:
    made: list[Host] = []

    def make(mode: str = "ok", **options: object) -> Host:
        made.append(Host(smi.mode(mode).environment, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def coded(code: str, level: str = "error") -> Callable[[Status], bool]:
    return lambda status: status.code == code and status.level == level


def test_samples_come_with_a_word_on_where_from_and_end_without_orphans(host: Callable[..., Host]) -> None:
    watched = host()
    told = watched.next(Status)
    hello = watched.next(Hello)
    samples = [watched.next(Gpus) for _ in range(3)]
    children = children_of(watched.pid)
    watched.close()
    assert watched.rest() == []
    wait_until_gone([watched.pid, *children])
    assert (told.code, told.level, told.fatal) == ("fallback_smi", "warning", False)
    assert "no python3" in told.message
    assert (hello.source, hello.driver) == ("nvidia-smi", "580.159.04")
    assert [gpu.name for gpu in hello.gpus] == ["NVIDIA H200", "NVIDIA GB10"]
    assert [[gpu.index for gpu in sample.gpus] for sample in samples] == [[0, 1]] * 3
    assert samples[0].gpus[0].power_w == 412.5
    assert samples[0].gpus[1].absent["util_mem_pct"] == "not_supported"
    assert len(children) >= 2


def test_one_sample_and_the_end(host: Callable[..., Host]) -> None:
    watched = host(once=True)
    kinds = [type(frame) for frame in watched.rest()]
    assert kinds == [Status, Hello, Gpus]
    wait_until_gone([watched.pid])


def test_fields_that_an_old_nvidia_smi_lacks_are_left_out(host: Callable[..., Host]) -> None:
    watched = host("missing-field compute_cap")
    hello = watched.next(Hello)
    assert (hello.gpus[0].compute_capability, hello.gpus[0].memory_total_mib) == (None, 143771)
    assert watched.next(Gpus).gpus[0].power_w == 412.5


def test_an_nvidia_smi_that_hangs_is_said_and_taken_back_when_it_goes_on(
    host: Callable[..., Host], smi: Smi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fallback, "PATIENCE_S", 1.0)
    monkeypatch.setattr(fallback, "PATIENCE_INTERVALS", 1)
    watched = host()
    watched.next(Gpus)
    smi.mode("hang")
    told = watched.next(Status, coded("smi_hang"))
    smi.mode("ok")
    watched.next(Status, coded("smi_hang", "info"))
    assert told.fatal
    assert watched.next(Gpus).gpus[0].power_w == 412.5


def test_an_nvidia_smi_that_hangs_from_the_start_is_said(
    host: Callable[..., Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fallback, "PATIENCE_S", 1.0)
    monkeypatch.setattr(fallback, "PATIENCE_INTERVALS", 1)
    watched = host("hang", once=True)
    (told,) = watched.rest()
    assert (told.code, told.fatal) == ("smi_hang", True)
    wait_until_gone([watched.pid])


def test_what_nvidia_smi_says_instead_of_figures_stands_until_it_answers(
    host: Callable[..., Host], smi: Smi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fallback, "RESTART_S", 0.5)
    watched = host("mismatch")
    told = watched.next(Status)
    smi.mode("ok")
    over = watched.next(Status, coded("driver_mismatch", "info"))
    assert (told.code, told.fatal, told.detail) == ("driver_mismatch", True, {"library": "570.86"})
    assert not over.fatal
    assert watched.next(Gpus)


def test_an_nvidia_smi_that_knows_no_loop_is_run_again_and_again(host: Callable[..., Host]) -> None:
    watched = host("ends")
    seen: list[AnyFrame] = []
    while sum(isinstance(frame, Gpus) for frame in seen) < 2:
        seen.append(watched.next(object))
    assert not [frame for frame in seen if isinstance(frame, Status) and frame.fatal]


def test_another_interval_starts_the_loop_anew(host: Callable[..., Host]) -> None:
    watched = host(interval_s=3600)
    watched.next(Gpus)
    watched.channel.send(b'{"cmd": "interval", "interval_s": 0.5}')
    watched.next(Gpus)
    watched.next(Gpus)


def test_pings_are_answered_while_nvidia_smi_has_nothing_to_say(host: Callable[..., Host]) -> None:
    watched = host("hang")
    assert json.loads(next(watched._lines)) == {"type": "pong"}


# ── the shell alone ──────────────────────────────────────────────────────────────────────────────


def shell(smi: Smi) -> subprocess.Popen[bytes]:
    """The loop in a plain shell, started and giving samples."""
    process = subprocess.Popen(
        loop_argv(0.5),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **smi.environment},
    )
    assert process.stdin and process.stdout
    process.stdin.write(run_line(1, 0.5, FIELDS))
    process.stdin.flush()
    while not process.stdout.readline().startswith(b"1, "):
        assert process.poll() is None
    return process


@pytest.mark.parametrize("how", ["input closed", "asked to", "killed"])
def test_the_shell_leaves_nothing_however_it_ends(smi: Smi, how: str) -> None:
    process = shell(smi)
    children = children_of(process.pid)
    assert process.stdin
    if how == "asked to":
        process.stdin.write(b'{"cmd": "ping"}\n{"cmd": "quit"}\n')
        process.stdin.flush()
    elif how == "killed":
        process.kill()
    else:
        process.stdin.close()
    process.wait(5.0)
    wait_until_gone(children)
    assert len(children) >= 2


def test_a_shell_that_hears_nothing_ends_and_one_that_is_pinged_goes_on(
    smi: Smi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smi_shell, "SILENCE_S", 2)
    process = shell(smi)
    assert process.stdin
    children = children_of(process.pid)
    end = time.monotonic() + 4.0
    while time.monotonic() < end:
        process.stdin.write(b"ping\n")
        process.stdin.flush()
        assert process.poll() is None, "it ended though it was pinged"
        time.sleep(0.2)
    process.wait(10.0)
    wait_until_gone(children)


def test_without_nvidia_smi_both_lacks_are_named() -> None:
    with pytest.raises(LinkError) as caught:
        Host({"PATH": "/nowhere"})
    assert (caught.value.code, caught.value.retry) == ("no_python", False)
    assert "no nvidia-smi either" in str(caught.value)


def test_the_command_holds_nothing_that_a_login_shell_reads_otherwise() -> None:
    text = loop_command()
    assert text.count("'") == 2
    assert not set(text.replace("! ", "")) & set("\\!\n")  # csh reads `!` unless a blank follows
