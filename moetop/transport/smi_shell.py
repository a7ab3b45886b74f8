"""The shell text that runs `nvidia-smi` in a loop on a host without Python, and its protocol. Runs nothing itself.

It needs `sh` and nothing newer than POSIX, writes no file, and is tied to its standard input: each line that
comes in pushes the end away, end of input or silence ends it and its `nvidia-smi`. Lines in: `run N MS FIELDS`
(run the loop anew, as number N), anything with `quit`, anything else is a ping. Lines out: MARKER, what
`nvidia-smi` prints, and after a ping PONG, before it `MOETOP-END N` once the loop of that number has ended.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

MARKER = b"MOETOP-SMI"
PONG = b"MOETOP-PONG"
END = b"MOETOP-END"

MIN_INTERVAL_S = 0.5
"""Faster than this nvidia-smi itself becomes a load on the host (5 ms CPU a loop and more)."""

SILENCE_S = 30
SILENT_INTERVALS = 3

# $1 is the silence in seconds. No quote but double ones, no backslash, no newline, and a blank after an exclamation
# mark: sh, bash, dash, ksh, tcsh and fish hand it on alike. USR1 is ignored first since a ping may come before the
# watcher has set its trap. `jobs` makes a shell take note of children that ended; the watcher is a process of its own
# since `read` has no time-out in a plain sh.
_TEXT = (
    'PATH="$PATH:/usr/bin:/usr/lib/wsl/lib:/opt/bin:/usr/local/nvidia/bin:/run/current-system/sw/bin"; export PATH; '
    "LC_ALL=C; export LC_ALL; "
    'command -v nvidia-smi >/dev/null 2>&1 || { echo "nvidia-smi: command not found"; exit 127; }; '
    'exec 2>/dev/null; trap "" USR1; p=; w=; k=; '
    "guard() { "
    '( n=0; trap "n=0" USR1; exec >/dev/null </dev/null; '
    'while [ $n -lt "$1" ] && kill -0 $$; do sleep 1; n=$((n+1)); done; kill -9 $p $$ ) & w=$! ; }; '
    'guard "$1"; echo MOETOP-SMI; '
    'while read -r c a b d; do case "$c $a" in '
    "*quit*) break;; "
    '"run "*) kill -9 $p $w; k=$a; '
    'nice -n 10 nvidia-smi "--query-gpu=$d" --format=csv,nounits -lms "$b" 2>&1 </dev/null & p=$! ; guard "$1"; '
    "continue;; esac; "
    'kill -USR1 $w; jobs >/dev/null; [ -z "$p" ] || kill -0 $p || echo MOETOP-END $k; '
    "echo MOETOP-PONG; done; kill -9 $p $w; exit 0"
)


def loop_argv(interval_s: float = 1.0) -> list[str]:
    """Arguments of the shell; it ends after 30 s, or three intervals, without a line."""
    return ["sh", "-c", _TEXT, "moetop", str(int(max(SILENCE_S, SILENT_INTERVALS * interval_s)))]


def loop_command(interval_s: float = 1.0) -> str:
    """The same as a command line that every login shell reads alike."""
    return f"exec {shlex.join(loop_argv(interval_s))}"


def run_line(number: int, interval_s: float, fields: Sequence[str]) -> bytes:
    """The line that starts the loop, in place of one that runs."""
    milliseconds = int(max(MIN_INTERVAL_S, interval_s) * 1000)
    return f"run {number} {milliseconds} {','.join(fields)}\n".encode("ascii")
