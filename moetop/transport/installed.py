"""This machine's own probe: the installed modules, byte-compiled, in another process of this interpreter.

Can start it ahead of the transport that will ask for it, so that it starts while the rest is loaded.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from moetop.transport.spawn import spawn

BINDING = "pynvml"

# Says the marker of bootstrap.LOADER and reads the same length line, but of options alone.
_PROGRAM = """\
import sys
sys.path += sys.argv[1:]
print("MOETOP-READY %d.%d" % sys.version_info[:2], flush=True)
import json
from moetop.probe.main import run
stdin = sys.stdin.buffer
length = int(stdin.readline(32) or 0)
options = stdin.read(length)
if 0 < length == len(options):
    run(json.loads(options))
"""


def installed_argv() -> list[str]:
    """Arguments that start the probe: without `site` and the environment's wishes, which take as long as a sample.

    What `site` would have found is named: where moetop lies, and the NVML binding.
    """
    folders = [str(Path(__file__).resolve().parents[2])]
    binding = importlib.util.find_spec(BINDING)  # found, not imported: this process never calls NVML
    if binding is not None and binding.origin is not None:
        is_package = binding.submodule_search_locations is not None  # as old releases were
        folders.append(str(Path(binding.origin).parents[1 if is_package else 0]))
    flags = ["-I", "-S"]
    if sys.dont_write_bytecode:
        flags.append("-B")
    if sys.pycache_prefix is not None:
        flags += ["-X", f"pycache_prefix={sys.pycache_prefix}"]
    return [sys.executable, *flags, "-c", _PROGRAM, *folders]


def program(options: Mapping[str, object]) -> bytes:
    """What the probe reads from standard input."""
    packed = json.dumps(dict(options), sort_keys=True).encode()
    return b"%d\n" % len(packed) + packed


_ahead: tuple[bytes, subprocess.Popen[bytes]] | None = None


@contextmanager
def started_ahead(options: Callable[[], Mapping[str, object]]) -> Iterator[None]:
    """Inside, a probe with `options` is on its way; one that nobody took is ended on leaving.

    The options must fit a pipe's buffer: without literals they do. Raises LinkError.
    """
    global _ahead  # noqa: PLW0603 - one command line has one head start; a transport finds it here
    process = spawn(installed_argv())
    _ahead = (b"", process)
    try:
        sent = program(options())
        _ahead = (sent, process)
        if process.stdin is not None:
            with suppress(BrokenPipeError):  # who takes it will hear of its end
                os.write(process.stdin.fileno(), sent)
        yield
    finally:
        taken, _ahead = _ahead is None, None
        if not taken:
            process.kill()
            process.communicate()


def take(options: Mapping[str, object]) -> subprocess.Popen[bytes] | None:
    """The probe that was started ahead, with its options already sent, where it was started with these."""
    global _ahead
    if _ahead is None or _ahead[0] != program(options):
        return None
    process, _ahead = _ahead[1], None
    return process
