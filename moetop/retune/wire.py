"""Sends the program of `retune/host` to a host with one request and reads its reply; decides nothing."""

from __future__ import annotations

import json
import zlib
from functools import cache
from importlib.resources import files
from typing import Any

from moetop.errors import LinkError, MoetopError
from moetop.retune.types import harmless
from moetop.transport.base import Transport

MARK = "MOETOP-RETUNE:"
REPLY_TIMEOUT_S = 60.0
"""A survey may wait for a hung nvidia-smi (20 s) and a slow /metrics."""

LOADER = """\
import sys
if sys.version_info < (3, 8):
    print('\\nMOETOP-RETUNE:{"error":"the Python of the host is older than 3.8"}'); sys.exit(0)
import json, zlib
from importlib.util import spec_from_loader
i = sys.stdin.buffer
d = json.loads(zlib.decompress(i.read(int(i.readline()))))
m = d["modules"]
class L:
    def find_spec(self, n, path=None, target=None):
        if n == "moetop_retune" or (n.startswith("moetop_retune.") and n[14:] in m):
            return spec_from_loader(n, self, is_package=n == "moetop_retune")
    def create_module(self, spec): return None
    def exec_module(self, x): exec(compile(m[x.__name__[14:] or "__init__"], "<%s>" % x.__name__, "exec"), x.__dict__)
sys.meta_path.insert(0, L())
from moetop_retune.main import serve
serve(d["request"], m)
"""


class HostError(MoetopError):
    """The host did not carry a request out; the words are the host's."""

    def __init__(self, message: str, advice: str | None = None, *, refused: bool = False) -> None:
        super().__init__(message, advice)
        self.refused = refused


@cache
def program() -> dict[str, str]:
    """Sources that travel: module name -> text."""
    folder = files("moetop.retune") / "host"
    sources = {
        entry.name[:-3]: entry.read_text(encoding="utf-8") for entry in folder.iterdir() if entry.name.endswith(".py")
    }
    sources["redact"] = (files("moetop.probe") / "redact.py").read_text(encoding="utf-8")
    return sources


def ask(
    transport: Transport, request: dict[str, Any], *, python: str = "python3", timeout_s: float = REPLY_TIMEOUT_S
) -> dict[str, Any]:
    """Send one request; the reply, its text made harmless. Raises LinkError, HostError."""
    body = zlib.compress(json.dumps({"modules": program(), "request": request}).encode(), 6)
    done = transport.run([python, "-c", LOADER], stdin=b"%d\n" % len(body) + body, timeout_s=timeout_s)
    text = done.stdout.decode("utf-8", "replace")
    _, mark, rest = text.rpartition(MARK)
    if not mark:
        said = " ".join(done.stderr.decode("utf-8", "replace").split())[-300:]
        raise LinkError(
            f"{transport.name} gave no answer to a retune request: {harmless(said) or f'exit code {done.returncode}'}",
            "it needs Python 3.8 or newer as python3",
            code="no_reply",
            retry=False,
        )
    try:
        reply = json.loads(rest)
    except ValueError:
        raise LinkError(f"the answer of {transport.name} was cut off", "try again", code="cut_off") from None
    if not isinstance(reply, dict):
        raise LinkError(f"the answer of {transport.name} makes no sense", code="no_reply", retry=False)
    if reply.get("error"):
        raise HostError(harmless(str(reply["error"])), refused=bool(reply.get("refused")))
    return reply
