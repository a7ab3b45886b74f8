"""Builds a Python prefix in which the engines' usual start commands start the stand-in."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
VERSIONS: dict[str, dict[str, str]] = {
    "sglang": {"sglang": "0.5.9", "flashinfer_python": "0.6.3", "triton": "3.5.1", "torch": "2.9.1"},
    "vllm": {"vllm": "0.19.0", "flashinfer_python": "0.6.8.post1", "triton": "3.5.1", "torch": "2.9.1+cu129"},
    "tensorrt_llm": {"tensorrt_llm": "1.2.0", "flashinfer_python": "0.6.3", "triton": "3.5.1", "torch": "2.9.1"},
}
_MODULES = {
    "sglang": ("sglang/launch_server.py",),
    "vllm": ("vllm/entrypoints/openai/api_server.py",),
    "tensorrt_llm": ("tensorrt_llm/commands/serve.py",),
}
_SCRIPTS = {"sglang": "sglang", "vllm": "vllm", "tensorrt_llm": "trtllm-serve"}
_START = "import sys\nsys.path.insert(0, {here!r})\nimport fake_server\nfake_server.main({engine!r}, sys.argv[1:])\n"


def make_prefix(root: Path, engine: str, versions: Mapping[str, str] | None = None) -> Path:
    """A virtual environment's skeleton under `root` with the engine's packages; returns it."""
    lib = root / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    lib.mkdir(parents=True, exist_ok=True)
    (root / "bin").mkdir(exist_ok=True)
    base = Path(os.path.realpath(sys.executable))
    python = root / "bin" / "python"
    if not python.exists():
        python.symlink_to(base)
        (root / "pyvenv.cfg").write_text(f"home = {base.parent}\ninclude-system-site-packages = false\n")
    for name, version in (VERSIONS[engine] if versions is None else versions).items():
        (lib / f"{name}-{version}.dist-info").mkdir(exist_ok=True)
    start = _START.format(here=str(HERE), engine=engine)
    for module in _MODULES[engine]:
        path = lib / module
        path.parent.mkdir(parents=True, exist_ok=True)
        for folder in path.parent.relative_to(lib).parents:
            (lib / folder / "__init__.py").touch()
        (path.parent / "__init__.py").touch()
        _write(path, start)
    script = root / "bin" / _SCRIPTS[engine]
    _write(script, f"#!{python}\n{start}")
    script.chmod(0o755)
    return root


def _write(path: Path, text: str) -> None:
    """Leave a file alone that is right already: a server may be starting from it."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def command(prefix: Path, engine: str, arguments: Sequence[str]) -> list[str]:
    """The usual start command of an engine in that prefix."""
    python = str(prefix / "bin" / "python")
    if engine == "sglang":
        return [python, "-m", "sglang.launch_server", *arguments]
    if engine == "vllm":
        return [str(prefix / "bin" / "vllm"), "serve", *arguments]
    return [str(prefix / "bin" / "trtllm-serve"), *arguments]
