"""What a process left behind does not speak of the one that took its place; nor do numbers that are old or absurd."""

from __future__ import annotations

from typing import Any

import pytest

from moetop.diagnose.host import HostEvidence
from moetop.model import Calm, Gpus, Hello, HostReport, Log, LogPlace, Phase, Server, Status
from tests.unit.diagnose_kit import SPIN, gpm, host, info, kinds, make_server, sample

ARGS = "[2026-02-19 01:04:33] server_args=ServerArgs(model_path='/m', tp_size=8, moe_runner_backend='triton')"
READY = "[2026-02-19 01:06:58] The server is fired up and ready to roll!"
WEIGHTS = "[2026-02-19 01:04:51 TP0] Load weight begin. avail mem=93.10 GB"
DEFAULT = (
    "[2026-02-19 01:05:42 TP1] Using default MoE kernel config. Performance might be sub-optimal! Config file not "
    "found at /s/configs/triton_3_4_0/E=256,N=768,device_name=NVIDIA_H200.json, you can create them with https://x"
)
DECODE = (
    "[2026-02-19 01:09:30 TP0] Decode batch, #running-req: 12, #token: 9000, token usage: 0.30, "
    "cuda graph: True, gen throughput (token/s): 812.00, #queue-req: 0"
)
CRASH = (
    "[2026-02-19 02:00:00 TP3] Scheduler hit an exception: Traceback (most recent call last):",
    "RuntimeError: boom",
    "",
    "[2026-02-19 02:00:01] Received sigquit from a child process. It usually means the child failed.",
)
TERM = "[2026-02-19 02:00:00] SIGTERM received. signum=None frame=None. Draining requests and shutting down..."
WORKS = {"running": 5.0, "waiting": 0.0, "generation_tokens_s": 500.0}
PIPE = LogPlace(kind="pipe", why="standard output goes to tee", fix="redirect to a file")


class Story:
    """A host on which pid 100 writes `log`, at second 3 is gone (or not) and at second 60 has a successor."""

    def __init__(self, *log: str, told_gone: bool = True, **first: Any) -> None:
        self.evidence = HostEvidence("h", 10.0)
        self.evidence.apply(Hello(t=0.0, source="nvml", gpus=(info(0), info(1))))
        self.evidence.apply(make_server(t=0.0, port=30000, gpus=(0, 1), **first))
        self.say(0.1, *log)
        if told_gone:
            self.evidence.apply(Server(t=3.0, name="sglang", pid=100, gone=True))

    def say(self, t: float, *lines: str, history: bool = False) -> None:
        for line in lines:
            self.evidence.apply(Log(t=t, source="serve.log", line=line, history=history))

    def successor(self, **values: Any) -> HostReport:
        known = {"pid": 200, "port": 30000, "gpus": (0, 1), "started": 60.0, "healthy": True, "metrics": WORKS}
        self.evidence.apply(make_server(t=60.0, **{**known, **values}))
        return self.works()

    def works(self) -> HostReport:
        for t in range(61, 75):
            gpus = tuple(sample(i, gpm=gpm(tensor_pct=70.0)) for i in range(2))
            self.evidence.apply(Gpus(t=float(t), gpus=gpus))
        return self.evidence.report()


LEFT = pytest.mark.parametrize(
    "log", [(ARGS, READY, *CRASH), (ARGS, WEIGHTS, DEFAULT, READY, DECODE)], ids=["crashed", "untuned"]
)


@LEFT
@pytest.mark.parametrize("told_gone", [True, False], ids=["gone", "only-another-pid"])
@pytest.mark.parametrize(
    "values",
    [{}, {"source": None, "log": PIPE}, {"source": "new.log"}, {"pid": 100}],
    ids=["same-log", "into-a-pipe", "another-log", "same-pid"],
)
def test_what_a_dead_process_left_in_its_log_says_nothing_of_its_successor(
    log: tuple[str, ...], told_gone: bool, values: dict[str, Any]
) -> None:
    report = Story(*log, told_gone=told_gone, started=-50.0).successor(**values)
    assert (report.headline, kinds(report)) == (Calm.HEALTHY, [])
    server = report.servers[0]
    assert [s.name for s in report.servers] == ["sglang"]
    assert (server.phase, server.ready, server.gone) == (Phase.READY, True, False)
    assert server.metrics is not None
    assert server.metrics.running == 5.0


@LEFT
@pytest.mark.parametrize("values", [{"source": None}, {"source": "new.log"}, {}], ids=["no-log", "new-log", "same-log"])
def test_a_successor_of_another_name_takes_the_place_as_well(log: tuple[str, ...], values: dict[str, Any]) -> None:
    report = Story(*log).successor(name="sglang-2", **values)
    assert (report.headline, [s.name for s in report.servers]) == (Calm.HEALTHY, ["sglang-2"])


def test_what_happened_stays_among_the_events() -> None:
    server = Story(ARGS, READY, *CRASH).successor().servers[0]
    assert "crash" in [str(e.kind) for e in server.events]
    assert [str(r.phase) for r in server.runs] == ["crashed"]


def test_the_successors_own_lines_are_its_own_whether_or_not_they_begin_a_run() -> None:
    begun = Story(ARGS, READY, *CRASH)
    begun.successor()
    begun.say(61.0, ARGS, WEIGHTS, DEFAULT, READY)
    assert begun.works().headline == "untuned_kernels"
    crashes = Story(ARGS, READY, DECODE)
    crashes.successor()
    crashes.say(61.0, *CRASH)
    assert crashes.works().headline == "crashed"


def test_lines_that_come_before_the_process_is_found_are_its_own() -> None:
    story = Story(ARGS, READY, DECODE)
    story.say(62.0, ARGS, WEIGHTS, *CRASH)
    report = story.successor(started=61.0, healthy=None, metrics=None)
    assert report.headline == "crashed"


def test_the_same_process_told_again_keeps_its_crash() -> None:
    story = Story(ARGS, READY, *CRASH, told_gone=False, started=-50.0)
    report = story.successor(pid=100, started=-49.0)
    assert report.headline == "crashed"


def test_a_crash_that_nothing_replaced_stands() -> None:
    report = Story(ARGS, READY, *CRASH).works()
    assert report.headline == "crashed"
    assert [(s.name, s.gone) for s in report.servers] == [("sglang", True)]


def test_another_server_that_was_there_all_along_replaces_nothing() -> None:
    story = Story(ARGS, READY, *CRASH)
    other = {"name": "other", "port": 30000, "gpus": (2,), "source": "o.log", "started": -500.0, "argv": ("python",)}
    assert story.successor(**other).headline == "crashed"


def test_requests_in_the_log_of_a_process_that_is_gone_run_no_more() -> None:
    story = Story(ARGS, READY, DECODE)
    assert story.works().servers[0].metrics is None
    assert story.evidence._servers.running(4.0) == {}


def test_a_start_in_the_log_of_a_process_that_is_gone_is_no_crash_while_the_new_one_may_not_be_found_yet() -> None:
    story = Story(ARGS, READY, DECODE)
    assert story.evidence.report(4.0).headline == "crashed"
    story.say(20.0, ARGS, WEIGHTS)
    report = story.evidence.report(21.0)
    server = report.servers[0]
    assert (kinds(report), server.phase, server.gone, server.pid) == ([], Phase.LOADING, False, None)
    story.say(22.0, READY)
    server = story.evidence.report(23.0).servers[0]
    assert (server.phase, server.ready) == (Phase.UNKNOWN, False), "not without its process"
    assert story.evidence.report(40.0).headline == "crashed"
    assert story.successor().headline == Calm.HEALTHY


def test_starts_whose_process_is_never_found_hide_a_crash_for_a_moment_only() -> None:
    story = Story(ARGS, READY, DECODE)
    told = []
    for t in range(10, 130, 6):
        story.say(float(t), ARGS, READY)
        told += [story.evidence.report(t + after).headline for after in (1.0, 3.0, 5.0)]
    assert told[9:] == ["crashed"] * len(told[9:])


def test_a_start_that_is_only_read_now_is_no_start_of_now() -> None:
    story = Story(told_gone=False)
    story.say(2.0, ARGS, READY, DECODE, history=True)
    story.evidence.apply(Server(t=3.0, name="sglang", pid=100, gone=True))
    assert story.evidence.report(4.0).headline == "crashed"
    late = Story()
    late.say(6.0, ARGS, READY, DECODE, history=True)
    assert late.evidence.report(7.0).headline == "crashed"


def test_a_clock_that_was_set_back_hides_no_crash() -> None:
    story = Story(ARGS, READY, DECODE)
    story.say(5000.0, ARGS, WEIGHTS)
    assert story.evidence.report(1400.0).headline == "crashed"


def test_a_start_that_is_logged_just_before_the_end_of_the_process_is_told_is_the_next_ones() -> None:
    story = Story(ARGS, READY, DECODE, told_gone=False)
    story.say(2.5, ARGS, WEIGHTS)
    story.evidence.apply(Server(t=3.0, name="sglang", pid=100, gone=True))
    assert kinds(story.evidence.report(4.0)) == []
    assert story.evidence.report(40.0).headline == "crashed"


@pytest.mark.parametrize("detail", [{"servers": ["sglang"]}, {"ports": [30000]}], ids=["own", "of-another-user"])
def test_a_process_that_a_retune_job_stopped_did_not_crash(detail: dict[str, Any]) -> None:
    story = Story(ARGS, READY, DECODE)
    story.evidence.apply(Status(t=3.0, code="retune_job", message="at work", level="warning", detail=detail))
    assert kinds(story.evidence.report(4.0)) == []
    story.evidence.apply(Status(t=9.0, code="retune_job", message="no more", level="info"))
    assert story.evidence.report(10.0).headline == "crashed"


def test_a_job_of_another_user_is_known_by_its_port_where_only_one_server_has_that() -> None:
    story = Story(ARGS, READY, DECODE)
    story.evidence.apply(make_server(name="twin", t=2.0, pid=7, port=30000, gpus=(2,), source="twin.log"))
    job = Status(t=3.0, code="retune_job", message="at work", level="warning", detail={"ports": [30000]})
    story.evidence.apply(job)
    assert story.evidence.report(4.0).headline == "crashed"


@pytest.mark.parametrize("detail", [{}, {"servers": ["other"], "ports": [1]}, {"servers": "sglang", "ports": None}])
def test_a_retune_job_elsewhere_explains_no_end(detail: dict[str, Any]) -> None:
    story = Story(ARGS, READY, DECODE)
    story.evidence.apply(Status(t=3.0, code="retune_job", message="at work", level="warning", detail=detail))
    assert story.evidence.report(4.0).headline == "crashed"


def test_what_the_window_still_holds_of_a_server_that_was_stopped_is_no_starvation_of_now() -> None:
    starved = gpm(sm_active_pct=96.0, tensor_pct=9.0, dram_pct=11.0)
    story = Story(ARGS, READY, TERM, told_gone=False)

    def work(t: float, util_gpu_pct: float | None) -> list[str]:
        gpus = tuple(sample(i, util_gpu_pct=util_gpu_pct, gpm=starved) for i in range(2))
        story.evidence.apply(Gpus(t=t, gpus=gpus))
        return kinds(story.evidence.report(t))

    for t in range(10):
        found = work(float(t), 100.0)
    assert found == ["tensor_starved"]
    story.evidence.apply(Server(t=10.0, name="sglang", pid=100, gone=True))
    assert work(10.0, 0.0) == []
    assert work(11.0, 100.0) == ["tensor_starved"], "others work there now"
    assert work(12.0, None) == ["tensor_starved"], "nothing says that it is idle"


# ── numbers ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("log", [(ARGS, READY, *CRASH), (ARGS, READY, DECODE, *CRASH)])
def test_a_server_that_crashed_has_no_numbers_of_now(log: tuple[str, ...]) -> None:
    assert Story(*log, told_gone=False, metrics=WORKS).works().servers[0].metrics is None


def test_a_count_is_as_old_as_it_says_whenever_it_was_sent() -> None:
    def spins(said_t: float) -> list[str]:
        metrics = {"running": 0.0, "waiting": 0.0, "t": said_t}
        return kinds(host(SPIN, SPIN, server={"gpus": (0, 1), "metrics": metrics}).report())

    assert "idle_spin" in spins(0.0)
    assert "idle_spin" not in spins(-3000.0)


@pytest.mark.parametrize(
    ("metrics", "kept"),
    [
        ({"running": -5.0, "waiting": 3.0}, (None, 3.0, None)),
        ({"running": 2.0, "waiting": 1e18}, (2.0, None, None)),
        ({"running": 2.0, "kv_usage_pct": 300.0}, (2.0, None, None)),
        ({"running": 2.0, "kv_usage_pct": 100.0}, (2.0, None, 100.0)),
    ],
)
def test_numbers_that_cannot_be_are_absent(metrics: dict[str, float], kept: tuple[float | None, ...]) -> None:
    evidence = host({"gpm": gpm(tensor_pct=70.0)}, server={"metrics": metrics})
    evidence.apply(make_server(t=5.0, metrics=metrics))
    report = evidence.report()
    found = report.servers[0].metrics
    assert found is not None
    assert (found.running, found.waiting, found.kv_usage_pct) == kept
    assert ("overloaded" in kinds(report)) is (kept[2] == 100.0)
