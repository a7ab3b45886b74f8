"""What is sent to a host to make it run the probe: the loader's text and the packed program. Opens nothing."""

from __future__ import annotations

import functools
import importlib.resources
import importlib.util
import json
import threading
import zlib
from collections.abc import Mapping
from pathlib import Path

from moetop.transport.binding import cut

PACKAGE = "moetop_probe"
BINDING = "pynvml"
# Modules are compiled as they are imported: the first sample needs a third of them.
# Parses on Python 2.7 and every 3. No single quote, exclamation mark or newline in the final text, so that
# every login shell (csh too) passes it on. `json` and the like must not come from the current directory.
_LOADER_BODY = r"""
import sys
w = sys.stdout
v = tuple(sys.version_info)[:2]
if v < (3, 8):
    w.write("MOETOP-OLD %d.%d\n" % v)
    w.flush()
    sys.exit(3)
sys.path[:] = [p for p in sys.path if p not in ("", ".")]
import json, zlib, importlib.abc, importlib.util
w.write("MOETOP-READY %d.%d\n" % v)
w.flush()
b = sys.stdin.buffer
n = int(b.readline(32) or 0)
d = b.read(n)
if n == 0 or len(d) < n:
    sys.exit(0)
d = json.loads(zlib.decompress(d).decode("utf-8"))
m = d["modules"]
class F(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name in m:
            return importlib.util.spec_from_loader(name, self, is_package=name == "moetop_probe")
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        n = module.__name__
        exec(compile(m.pop(n), "<" + n + ">", "exec", dont_inherit=True), module.__dict__)
sys.meta_path.insert(0, F())
importlib.import_module("moetop_probe.main").run(d["options"])
"""


def _one_line(body: str) -> str:
    text = json.dumps(body.strip() + "\n")
    if "'" in text or "!" in text or "\n" in text:
        raise ValueError("the loader must pass through every shell")
    return f"exec({text})"


LOADER = _one_line(_LOADER_BODY)


def loader_argv(python: str = "python3") -> list[str]:
    """Arguments that start the loader."""
    return [python, "-u", "-c", LOADER]


_packing = threading.Lock()
"""Hosts that come up together would each pack the same program (measured: 23 ms of processor a host, of 42)."""


@functools.lru_cache(maxsize=1)
def _modules() -> str:
    """JSON of `{module: source}`: the probe's files and what they reach of the installed binding."""
    sources: dict[str, str] = {}
    for entry in importlib.resources.files("moetop.probe").iterdir():
        if entry.name.endswith(".py"):
            stem = entry.name[:-3]
            sources[PACKAGE if stem == "__init__" else f"{PACKAGE}.{stem}"] = entry.read_text(encoding="utf-8")
    # found, not imported: importing it takes 40 ms and this process never calls NVML
    spec = importlib.util.find_spec(BINDING)
    if spec is not None and spec.origin is not None and spec.origin.endswith(".py"):
        # whole it would take ten times as long to compile and 18 MiB that stay (pynvml 13.580)
        sources[BINDING] = cut(Path(spec.origin).read_text(encoding="utf-8"), sources.values())
    return json.dumps(sources)


@functools.lru_cache(maxsize=32)
def _pack(options: str) -> bytes:
    program = f'{{"modules": {_modules()}, "options": {options}}}'
    packed = zlib.compress(program.encode("utf-8"), 6)
    return b"%d\n" % len(packed) + packed


def payload(options: Mapping[str, object]) -> bytes:
    """What is written to the loader's standard input once it is ready: a length line and the program."""
    wanted = json.dumps(dict(options), sort_keys=True)
    with _packing:
        return _pack(wanted)
