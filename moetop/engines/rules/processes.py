"""Lines of web servers, signals and process managers. A table, no code."""

from __future__ import annotations

from moetop.engines import fields_system as system
from moetop.engines.rule import ANY, VLLM_TRT, Rule
from moetop.model import EventKind as K
from moetop.model import EventSeverity as S

RULES: tuple[Rule, ...] = (
    Rule(
        id="g.bind",
        kind=K.ENGINE_START_FAILED,
        severity=S.FATAL,
        engines=ANY,
        pattern=r"(?P<error>\[Errno 98\] .{0,200})",
        literals=("[errno 98]",),
        meaning="the port is taken: the HTTP server cannot start",
        source="CPython asyncio, uvicorn",
        example=(
            "[2026-06-28 13:38:07] ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 30000): "
            "address already in use"
        ),
        error_only=True,
    ),
    Rule(
        id="g.argparse",
        kind=K.ENGINE_START_FAILED,
        severity=S.FATAL,
        engines=ANY,
        pattern=(
            r"^[\w./-]{1,80}(?: [\w./-]{1,40}){0,3}: (?P<error>error: (?:argument |unrecognized arguments: |"
            r"the following arguments are required: |ambiguous option: |expected ).{0,400})"
        ),
        literals=(
            ": error: argument ",
            ": error: unrecognized arguments: ",
            ": error: the following arguments are required: ",
            ": error: ambiguous option: ",
            ": error: expected ",
        ),
        meaning="the command line was not understood: the program ended at once",
        source="CPython argparse",
        example="vllm serve: error: unrecognized arguments: --enable-foo",
    ),
    Rule(
        id="g.health",
        kind=K.HEALTH_FAILED,
        severity=S.ERROR,
        engines=ANY,
        pattern=r"(?:[Hh]ealth ?check failed|(?P<probe>Readiness|Liveness|Startup) probe failed)",
        literals=(
            "health check failed",
            "healthcheck failed",
            "readiness probe failed",
            "liveness probe failed",
            "startup probe failed",
        ),
        meaning="a health check or probe failed",
        source="docker, kubelet",
        example="Warning  Unhealthy  kubelet  Readiness probe failed: HTTP probe failed with statuscode: 503",
    ),
    Rule(
        id="g.uvicorn",
        kind=K.READY,
        severity=S.GOOD,
        engines=VLLM_TRT,
        pattern=r"Uvicorn running on (?:https?://|socket )(?P<address>\S{1,120})",
        literals=("uvicorn running on",),
        meaning="the HTTP server listens (after start-up is complete)",
        source="uvicorn",
        example="INFO:     Uvicorn running on http://0.0.0.0:8355 (Press CTRL+C to quit)",
        parse=system.listen_address,
        own_only=True,
    ),
    Rule(
        id="g.sigterm",
        kind=K.SHUTDOWN,
        severity=S.INFO,
        engines=ANY,
        pattern=r"[Rr]eceived (?:signal (?P<signal>SIGTERM|SIGINT|15|2)\b|SIGTERM|SIGINT)",
        literals=(
            "received signal sigterm",
            "received sigterm",
            "received signal sigint",
            "received sigint",
            "received signal 15",
            "received signal 2",
        ),
        meaning="the process was asked to end",
        source="servers and launchers",
        example="2026-01-01 launcher: Received signal SIGTERM, stopping",
    ),
    Rule(
        id="g.down",
        kind=K.SHUTDOWN,
        severity=S.INFO,
        engines=ANY,
        pattern=r"(?:^|INFO: +)(?P<what>Shutting down|Waiting for application shutdown)\.?\s{0,20}$",
        literals=(
            "shutting down",
            "waiting for application shutdown",
        ),
        meaning="the HTTP server is going down",
        source="uvicorn",
        example="(APIServer pid=92) INFO:     Shutting down",
    ),
    Rule(
        id="g.down.done",
        kind=K.SHUTDOWN,
        severity=S.INFO,
        engines=ANY,
        pattern=r"(?P<what>Application shutdown complete|Finished server process \[\d+\])",
        literals=(
            "application shutdown complete",
            "finished server process [",
        ),
        meaning="the HTTP server is down",
        source="uvicorn",
        example="INFO:     Application shutdown complete.",
    ),
    Rule(
        id="g.exit.shell",
        kind=K.EXIT,
        severity=S.ERROR,
        engines=ANY,
        pattern=r"line \d+: +(?P<pid>\d+) (?P<how>Killed|Aborted|Segmentation fault)",
        literals=(
            " killed",
            " aborted",
            " segmentation fault",
        ),
        meaning="the shell saw the process killed",
        source="bash",
        example="./run.sh: line 12: 12345 Killed                  python -m sglang.launch_server",
    ),
    Rule(
        id="g.exit.bare",
        kind=K.EXIT,
        severity=S.ERROR,
        engines=ANY,
        pattern=(
            r"^(?:zsh: |\[\d+\][+-]? +(?:\d+ )?)?(?P<how>[Kk]illed|Aborted|Segmentation fault|Bus error)"
            r"(?: \(core dumped\))?(?:\s{2,60}\S.{0,300})?\s{0,20}$"
        ),
        literals=(
            "killed",
            "aborted",
            "segmentation fault",
            "bus error",
        ),
        meaning="the shell that started the process saw it killed",
        source="bash, zsh",
        example="Killed",
    ),
    Rule(
        id="g.exit.systemd",
        kind=K.EXIT,
        severity=S.ERROR,
        engines=ANY,
        pattern=r"(?P<unit>[\w@.\\-]{1,120}\.service): Main process exited, code=(?P<code>\w+), status=(?P<status>\d+)",
        literals=("main process exited, code=",),
        meaning="systemd saw the main process end",
        source="systemd",
        example="Aug 19 18:34:31 host-a systemd[1]: vllm.service: Main process exited, code=exited, status=1/FAILURE",
    ),
    Rule(
        id="g.exit.compose",
        kind=K.EXIT,
        severity=S.NOTICE,
        engines=ANY,
        pattern=r"(?P<unit>[\w.-]{1,120}) exited with code (?P<status>\d+)",
        literals=(" exited with code ",),
        meaning="a container ended",
        source="docker compose",
        example="sglang-1 exited with code 137",
    ),
    Rule(
        id="g.exit.mpi",
        kind=K.EXIT,
        severity=S.ERROR,
        engines=ANY,
        pattern=r"(?:exited on signal (?P<signal>\d+)|failed \(exitcode: (?P<status>-?\d+)\))",
        literals=(
            "exited on signal ",
            "failed (exitcode: ",
        ),
        meaning="mpirun saw a process end",
        source="Open MPI, torchrun",
        example="mpirun noticed that process rank 3 with PID 0 on node a exited on signal 9 (Killed).",
    ),
)
