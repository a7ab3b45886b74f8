"""Links that die in every way, over a real sshd: what the fleet says, that it comes back, that nothing stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import moetop.fleet as fleet_module
from moetop import heartbeat
from moetop.fleet import Fleet
from moetop.model import Hello, LinkPhase
from moetop.transport import open_transport
from moetop.transport.base import HostTarget, ProbeOptions
from moetop.transport.local import LocalTransport
from tests.rig.proxy_rig import Proxy
from tests.rig.sshd_rig import Client, Sshd, is_running, until
from tests.rig.test_fleet import Ear

pytestmark = pytest.mark.usefixtures("tiny_probe", "quick")
LOST, WATCHING = LinkPhase.LOST, LinkPhase.WATCHING


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_module, "BACKOFF_FIRST_S", 0.1)
    monkeypatch.setattr(heartbeat, "SILENT_MIN_S", 1.0)


@pytest.fixture
def ear() -> Ear:
    return Ear()


@pytest.fixture
def watch(ear: Ear) -> Iterator[Callable[..., Fleet]]:
    started: list[Fleet] = []

    def start(*targets: HostTarget) -> Fleet:
        fleet = Fleet([open_transport(target) for target in targets], ear, ProbeOptions(interval_s=0.1))
        started.append(fleet)
        fleet.start()
        return fleet

    yield start
    for fleet in started:
        fleet.stop()


def probe_pids(ear: Ear) -> list[int]:
    """Process ids of the probes that said hello."""
    return [int(frame.hostname or 0) for _, frame, _ in list(ear.frames) if isinstance(frame, Hello)]


def back(ear: Ear, host: str = "rig") -> Callable[[], bool]:
    """Whether the host was lost and is watched again."""
    return lambda: LOST in [link.phase for link in ear.of(host)] and ear.phase(host) is WATCHING


def through(client: Client, sshd: Sshd, proxy: Proxy) -> HostTarget:
    with client.known_hosts.open("a") as file:
        file.write(sshd.keyscan_line(name=f"[127.0.0.1]:{proxy.port}"))
    return client.target("127.0.0.1", port=proxy.port, name="rig")


def test_a_cut_line_is_lost_and_mended(
    sshd: Sshd, client: Client, make_proxy: Callable[[int], Proxy], ear: Ear, watch: Callable[..., Fleet]
) -> None:
    proxy = make_proxy(sshd.port)
    watch(through(client, sshd, proxy))
    ear.until(lambda: bool(probe_pids(ear)))
    proxy.cut()
    ear.until(lambda: back(ear)() and len(probe_pids(ear)) == 2)
    assert ear.link_with(LOST).code == "lost"
    first, second = probe_pids(ear)
    until(lambda: not is_running(first))
    assert is_running(second)


def test_a_line_that_swallows_everything_is_noticed_by_its_silence_and_mended(
    sshd: Sshd, client: Client, make_proxy: Callable[[int], Proxy], ear: Ear, watch: Callable[..., Fleet]
) -> None:
    proxy = make_proxy(sshd.port)
    watch(through(client, sshd, proxy))
    ear.until(lambda: ear.phase("rig") is WATCHING)
    proxy.swallow()
    begun = time.monotonic()
    ear.until(ear.saw(LOST, "silent"))
    assert time.monotonic() - begun < 8
    proxy.restore()
    ear.until(back(ear), 40)


def test_a_slow_line_is_watched_without_a_word(
    sshd: Sshd, client: Client, make_proxy: Callable[[int], Proxy], ear: Ear, watch: Callable[..., Fleet]
) -> None:
    proxy = make_proxy(sshd.port)
    proxy.delay_s = 0.2
    watch(through(client, sshd, proxy))
    ear.until(lambda: len(ear.frames) > 4, 30)
    assert not ear.saw(LOST)()


def test_sshd_killed_with_its_sessions_is_refused_until_it_is_back(
    sshd: Sshd, client: Client, ear: Ear, watch: Callable[..., Fleet]
) -> None:
    watch(client.target(sshd))
    ear.until(lambda: ear.phase("rig") is WATCHING)
    sshd.kill()
    ear.until(ear.saw(LOST, "refused"))
    sshd.start()
    ear.until(back(ear))


def test_a_restarted_sshd_keeps_the_session_as_openssh_does(
    sshd: Sshd, client: Client, ear: Ear, watch: Callable[..., Fleet]
) -> None:
    watch(client.target(sshd))
    ear.until(lambda: ear.phase("rig") is WATCHING)
    sshd.kill(sessions=False)
    sshd.start()
    heard = len(ear.frames)
    ear.until(lambda: len(ear.frames) > heard + 5)
    assert not ear.saw(LOST)()
    for pid in probe_pids(ear):
        os.kill(pid, signal.SIGKILL)


def test_a_killed_probe_is_started_again_over_a_new_connection(
    sshd: Sshd, client: Client, ear: Ear, watch: Callable[..., Fleet]
) -> None:
    watch(client.target(sshd))
    ear.until(lambda: bool(probe_pids(ear)))
    os.kill(probe_pids(ear)[0], signal.SIGKILL)
    ear.until(back(ear))
    lost = ear.link_with(LOST)
    assert lost.code == "probe_ended"
    assert "by a signal" in (lost.reason or "")


def test_a_stopped_probe_is_silent_and_replaced(
    sshd: Sshd, client: Client, ear: Ear, watch: Callable[..., Fleet]
) -> None:
    watch(client.target(sshd))
    ear.until(lambda: bool(probe_pids(ear)))
    os.kill(probe_pids(ear)[0], signal.SIGSTOP)
    ear.until(back(ear))
    assert ear.link_with(LOST).code == "silent"
    os.kill(probe_pids(ear)[0], signal.SIGCONT)
    until(lambda: not is_running(probe_pids(ear)[0]))


def test_stopping_the_fleet_leaves_no_session_and_no_probe(
    sshd: Sshd, client: Client, ear: Ear, watch: Callable[..., Fleet]
) -> None:
    fleet = watch(*[client.target(sshd, name=f"h{n}") for n in range(6)], client.target(sshd, name="o", kind="openssh"))
    ear.until(lambda: len(probe_pids(ear)) == 7, 30)
    begun = time.monotonic()
    fleet.stop()
    assert time.monotonic() - begun < 5
    until(lambda: not sshd.session_pids())
    until(lambda: not any(is_running(pid) for pid in probe_pids(ear)))


def test_a_killed_moetop_leaves_nothing_on_the_host(sshd: Sshd, client: Client, tmp_path: Path) -> None:
    program = textwrap.dedent(f"""
        import sys, time
        sys.path.insert(0, {str(Path(__file__).parents[2])!r})
        from moetop.fleet import Fleet
        from moetop.transport import HostTarget, ProbeOptions, open_transport
        from moetop.transport.local import LocalTransport
        class Sink:
            def frame(self, host, frame, raw): print(host, flush=True)
            def link(self, host, link): pass
        target = dict(address="127.0.0.1", port={sshd.port}, user={client.target(sshd).user!r})
        target["ssh_config_file"] = {str(client.config)!r}
        hosts = [HostTarget(name="a", **target), HostTarget(name="b", kind="openssh", **target)]
        Fleet([*map(open_transport, hosts), LocalTransport()], Sink(), ProbeOptions(discover=False)).start()
        time.sleep(60)
    """)
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    heard: set[str] = set()
    assert process.stdout is not None
    for line in process.stdout:
        heard.add(line.strip())
        if len(heard) == 3:
            break
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    process.kill()
    process.wait(5)
    process.stdout.close()
    until(lambda: not sshd.session_pids())
    until(lambda: not any(is_running(int(pid)) for pid in children))


def test_a_moetop_that_was_stopped_itself_blames_no_host() -> None:
    program = textwrap.dedent(f"""
        import sys, time
        sys.path.insert(0, {str(Path(__file__).parents[2])!r})
        from moetop import fleet, heartbeat
        from moetop.transport import ProbeOptions
        from moetop.transport.local import LocalTransport
        heartbeat.SILENT_MIN_S = 1.0
        class Sink:
            def frame(self, host, frame, raw): print("frame", flush=True)
            def link(self, host, link): print(link.phase, flush=True)
        fleet.Fleet([LocalTransport()], Sink(), ProbeOptions(interval_s=0.2, discover=False)).start()
        time.sleep(60)
    """)
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    said: list[str] = []

    def hear(frames: int) -> None:
        while said.count("frame") < frames:
            said.append(next(process.stdout).strip())  # type: ignore[arg-type]

    hear(3)
    process.send_signal(signal.SIGSTOP)
    time.sleep(2.5)  # longer than the silence that would be too long
    process.send_signal(signal.SIGCONT)
    hear(said.count("frame") + 16)
    process.kill()
    process.wait(5)
    process.stdout.close()
    assert "lost" not in said


def test_this_machine_is_watched_and_its_probe_dies_with_the_fleet(ear: Ear) -> None:
    fleet = Fleet([LocalTransport("here", python=sys.executable)], ear, ProbeOptions(interval_s=0.1))
    fleet.start()
    ear.until(lambda: ear.phase("here") is WATCHING and bool(probe_pids(ear)))
    fleet.stop()
    assert not is_running(probe_pids(ear)[0])
