"""Hosts that come and go while moetop runs: SIGHUP with real sessions, hosts added and removed by hand."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from moetop.config import Config, HostSpec, read_config
from moetop.errors import MoetopError, UsageError
from moetop.fleet import Fleet
from moetop.model import LinkPhase
from moetop.reload import Reloader, Wiring
from moetop.session import target_of
from moetop.transport.base import ProbeOptions
from moetop.transport.replay import FrameTransport
from moetop.watch import Watch
from tests.rig.cli_kit import Lines, Moetop
from tests.rig.sshd_rig import Client, Sshd, descendants, is_running, until
from tests.rig.terminal_kit import Terminal, needs_tmux


def aliases(client: Client, server: Sshd, *names: str) -> None:
    client.configure("".join(f"Host {name}\n  HostName 127.0.0.1\n  Port {server.port}\n" for name in names))


def probes(server: Sshd) -> set[int]:
    found = set()
    for pid in server.session_pids():
        try:
            if b"MOETOP-READY" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.add(pid)
        except OSError:
            continue
    return found


def names(line: str) -> list[str]:
    return [host["name"] for host in json.loads(line)["hosts"]]


def test_hangup_reads_the_configuration_anew_and_keeps_what_did_not_change(
    gpu_host: Sshd, client: Client, moetop: Moetop, tmp_path: Path
) -> None:
    aliases(client, gpu_host, "a", "b", "c")
    config, listed = tmp_path / "c.yaml", tmp_path / "list"
    config.write_text("hosts: [a]\ngroups: [{name: g, hosts_file: list}]\n")
    listed.write_text("b\n")
    process = moetop.start(
        "--config", str(config), "--snapshot", "-", "--every", "0.2", "--window", "0.3", "--interval", "0.1",
        start_new_session=True,
    )  # fmt: skip
    assert process.stdout and process.stderr
    out, err = Lines(process.stdout), Lines(process.stderr)
    out.until(lambda line: set(names(line)) == {"a", "b"})
    first = probes(gpu_host)
    assert len(first) == 2
    listed.write_text("c\n")
    process.send_signal(signal.SIGHUP)
    out.until(lambda line: set(names(line)) == {"a", "c"})
    assert err.until(lambda line: "c added; b dropped" in line)
    until(lambda: len(probes(gpu_host)) == 2 and len(first & probes(gpu_host)) == 1)

    config.write_text("hosts: [a]\nhosts: [b]\n")
    process.send_signal(signal.SIGHUP)
    assert err.until(lambda line: f"not read anew: {config}:2: the key 'hosts' stands twice" in line)
    config.write_text("hosts: [{name: a, labels: {x: y}}, {name: c, discover: false}]\n")
    kept = first & probes(gpu_host)
    process.send_signal(signal.SIGHUP)
    assert err.until(lambda line: line.endswith("configuration read anew: c connected anew\n"))
    until(lambda: len(probes(gpu_host)) == 2 and probes(gpu_host) & first == kept)
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 130
    until(lambda: not gpu_host.session_pids())


@needs_tmux
def test_a_terminal_that_closes_still_ends_moetop(sshd: Sshd, client: Client, moetop: Moetop, tmp_path: Path) -> None:
    aliases(client, sshd, "first-host", "second-host")
    config = tmp_path / "c.yaml"
    config.write_text("hosts: [first-host]\n")
    terminal = Terminal(moetop, tmp_path, 100, 30, "--config", str(config))
    try:
        until(lambda: "first-host" in terminal.text() and probes(sshd))
        config.write_text("hosts: [first-host, second-host]\n")
        os.kill(descendants(int(terminal.tmux("display-message", "-p", "#{pane_pid}")))[0], signal.SIGHUP)
        until(lambda: "second-host" in terminal.text())
        pane = int(terminal.tmux("display-message", "-p", "#{pane_pid}"))
        ours = descendants(pane)
        assert ours
    finally:
        terminal.close()
    until(lambda: not any(is_running(pid) for pid in ours))
    until(lambda: not sshd.session_pids())


# ── without any process ──────────────────────────────────────────────────────────────────────────


class Bench:
    """A fleet whose hosts are endless generators of frames; `read` is what the configuration says next."""

    def __init__(self, text: str) -> None:
        self.config = read_config(text)
        self.opened: list[str] = []
        self.watch = Watch(1.0)
        self.fleet = Fleet([], self.watch, ProbeOptions())
        wiring = Wiring(target_of, lambda config, host: ProbeOptions(interval_s=config.interval_of(host)), self._open)
        self.reloader = Reloader(replace(self.config, hosts=()), self.fleet, self.watch, wiring, lambda: self.config)
        self.fleet.start()
        self.reloader.reload()

    def _open(self, config: Config, host: HostSpec) -> FrameTransport:
        self.opened.append(host.name)
        frames = [{"type": "gpus", "t": n, "gpus": [{"index": 0, "util_gpu_pct": 5}]} for n in range(2)]
        return FrameTransport(host.name, lambda: iter(frames), loop=True, speed=20)

    def become(self, text: str) -> str:
        self.config = read_config(text)
        return self.reloader.reload().sentence()

    def watching(self, name: str) -> Callable[[], bool]:
        return lambda: self.watch.link_of(name).phase is LinkPhase.WATCHING


@pytest.fixture
def bench() -> Iterator[Bench]:
    started = Bench("hosts: [a, b]")
    yield started
    started.fleet.stop()


def test_a_host_added_by_hand_stays_when_the_configuration_is_read_anew(bench: Bench) -> None:
    assert bench.reloader.add_host("me@extra:2222") == "extra:2222"
    bench.watch.wait(bench.watching("extra:2222"), 5)
    assert bench.become("hosts: [a, b]") == "configuration read anew: the hosts are the same"
    assert bench.watch.names() == ["a", "b", "extra:2222"]
    assert "b dropped" in bench.become("hosts: [a]")
    bench.reloader.remove_host("extra:2222")
    assert bench.watch.names() == ["a"]
    assert "extra:2222 added" in bench.become("hosts: [a, 'extra:2222']"), "now it is the configuration that wants it"
    assert bench.opened == ["a", "b", "extra:2222", "extra:2222"]


def test_a_host_removed_by_hand_stays_away_until_what_is_said_of_it_changes(bench: Bench) -> None:
    bench.reloader.remove_host("a")
    stays = "configuration read anew: the hosts are the same; a removed by hand, not watched"
    assert [bench.become("hosts: [a, b]"), bench.become("theme: dark\nhosts: [a, b]")] == [stays, stays]
    assert "c added; a removed by hand" in bench.become("hosts: [a, b, c]")
    assert bench.watch.names() == ["b", "c"]
    assert bench.become("hosts: [{name: a, user: me}, b, c]") == "configuration read anew: a added"
    bench.reloader.remove_host("a")
    assert bench.become("hosts: [b, c]") == "configuration read anew: the hosts are the same"
    assert bench.become("hosts: [a, b, c]") == "configuration read anew: a added", "taken out and put in again"


def test_a_host_removed_by_hand_and_added_again_is_the_one_of_the_configuration(bench: Bench) -> None:
    bench.become("hosts: [{name: a, address: elsewhere, port: 2222}, b]")
    bench.reloader.remove_host("a")
    assert bench.reloader.add_host("a") == "a"
    again = next(host for host in bench.reloader.config.hosts if host.name == "a")
    assert (again.address, again.port) == ("elsewhere", 2222)
    assert bench.become("hosts: [b]") == "configuration read anew: a dropped"


def test_a_configuration_that_cannot_be_followed_forgets_nobody_who_was_removed(bench: Bench) -> None:
    bench.reloader.remove_host("a")
    with pytest.raises(UsageError):
        bench.become("theme: dark")
    assert "a removed by hand" in bench.become("hosts: [a, b]")
    bench.reloader.remove_host("b")
    assert bench.become("hosts: [a, b]").endswith("the hosts are the same; a, b removed by hand, not watched")
    assert bench.watch.names() == []


@pytest.mark.parametrize("text", ["a", "-oProxyCommand=x", "$(touch x)", "", "a:port"])
def test_a_host_that_cannot_be_added_is_refused_and_nothing_changes(bench: Bench, text: str) -> None:
    with pytest.raises(MoetopError):
        bench.reloader.add_host(text)
    with pytest.raises(UsageError, match="is not watched"):
        bench.reloader.remove_host("nobody")
    assert bench.watch.names() == ["a", "b"]


def test_labels_are_in_the_snapshot_and_changing_them_connects_nobody_anew(bench: Bench) -> None:
    assert "same" in bench.become("defaults: {labels: {site: lab}}\nhosts: [{name: a, labels: {rack: '7'}}, b]")
    bench.watch.wait(bench.watching("a"), 5)
    labels = {host.name: host.labels for host in bench.watch.snapshot(0.0).hosts}
    assert labels == {"a": {"site": "lab", "rack": "7"}, "b": {"site": "lab"}}
    assert "same" in bench.become("hosts: [a, b]")
    assert [host.labels for host in bench.watch.snapshot(0.0).hosts] == [{}, {}]
    assert bench.opened == ["a", "b"]


def test_history_stays_with_a_machine_and_not_with_a_name(bench: Bench) -> None:
    bench.watch.wait(lambda: bench.watch.history("a", 0) is not None, 5)
    kept = bench.watch.history("a", 0)
    assert "a connected anew" in bench.become("hosts: [{name: a, interval_s: 2}, b]")
    assert bench.watch.history("a", 0) is kept
    assert "a connected anew" in bench.become("hosts: [{name: a, address: other, interval_s: 2}, b]")
    assert bench.watch.history("a", 0) is not kept


def test_a_configuration_without_hosts_changes_nothing(bench: Bench) -> None:
    with pytest.raises(UsageError, match="names no host any more"):
        bench.become("theme: dark")
    assert bench.watch.names() == ["a", "b"]


def test_a_host_removed_while_it_is_read_is_no_fault(bench: Bench) -> None:
    stop = threading.Event()
    faults: list[BaseException] = []

    def look() -> None:
        while not stop.is_set():
            try:
                for name in bench.watch.names():
                    bench.watch.report(name)
                    bench.watch.link_of(name)
                    bench.watch.tail(name, "x")
                    bench.watch.host_now(name)
                bench.watch.snapshot(0.0)
            except Exception as error:
                faults.append(error)
                return

    looker = threading.Thread(target=look)
    looker.start()
    for n in range(20):
        bench.become("hosts: [a, b]" if n % 2 else "hosts: [a, c, d]")
    stop.set()
    looker.join(5)
    assert not faults
