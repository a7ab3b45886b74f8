"""Tells from an argument vector whether a process is a serving engine, and reads its arguments; pure, no I/O."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

PYTHON = re.compile(r"^(?:python|pypy)[\d.]*t?$")
OPTIONS_WITH_VALUE = ("-X", "-W", "--check-hash-based-pycs")
NUMBER = re.compile(r"^-?\d+$")
FLOAT = re.compile(r"^-?\d*\.\d+(?:[eE][-+]?\d+)?$")


class Launch(NamedTuple):
    """A recognised start: engine, the arguments after the command, and the interpreter and script as started."""

    engine: str
    rest: list[str]
    interpreter: str | None
    script: str | None


# (module or script, engine, word that must follow, source)
MODULES = (
    ("sglang.launch_server", "sglang", None, "SGLang docs: python -m sglang.launch_server"),
    ("sglang.cli.main", "sglang", "serve", "SGLang 0.5.6+ console script"),
    ("sglang", "sglang", "serve", "SGLang 0.5.6+ console script"),
    ("vllm.entrypoints.openai.api_server", "vllm", None, "vLLM docs"),
    ("vllm.entrypoints.api_server", "vllm", None, "vLLM demo server"),
    ("vllm.entrypoints.cli.main", "vllm", "serve", "vLLM console script"),
    ("vllm", "vllm", "serve", "vLLM console script"),
    ("tensorrt_llm.commands.serve", "tensorrt_llm", None, "TensorRT-LLM console script"),
)
SCRIPTS = (
    ("sglang", "sglang", "serve", "SGLang console script"),
    ("vllm", "vllm", "serve", "vLLM console script"),
    ("trtllm-serve", "tensorrt_llm", None, "TensorRT-LLM console script"),
    ("sglang/launch_server.py", "sglang", None, "SGLang source tree"),
    ("vllm/entrypoints/openai/api_server.py", "vllm", None, "vLLM source tree"),
    ("tensorrt_llm/commands/serve.py", "tensorrt_llm", None, "TensorRT-LLM source tree"),
)
# Process titles of an engine's own children (setproctitle): SGLang `sglang::scheduler_TP0`,
# vLLM `VLLM::EngineCore`, `VLLM::Worker_TP0` (prefix VLLM_PROCESS_NAME_PREFIX).
TITLES = (("sglang::", "sglang"), ("VLLM::", "vllm"))
# trtllm-serve has further subcommands that proxy or only embed; they serve no model by themselves.
TRTLLM_SUBCOMMANDS = ("disaggregated", "disaggregated_mpi_worker", "mm_embedding_serve")

DEFAULT_PORTS = {"sglang": 30000, "vllm": 8000, "tensorrt_llm": 8000}

# One name for each argument: short form or older spelling -> the engine's own destination name.
ALIASES: dict[str, dict[str, str]] = {
    "sglang": {
        "tp": "tp_size",
        "tensor_parallel_size": "tp_size",
        "dp": "dp_size",
        "data_parallel_size": "dp_size",
        "pp": "pp_size",
        "pipeline_parallel_size": "pp_size",
        "ep": "ep_size",
        "expert_parallel_size": "ep_size",
        "model": "model_path",
    },
    "vllm": {
        "tp": "tensor_parallel_size",
        "pp": "pipeline_parallel_size",
        "dp": "data_parallel_size",
        "dpn": "data_parallel_rank",
        "dpl": "data_parallel_size_local",
        "q": "quantization",
        "O": "optimization_level",
        "cc": "compilation_config",
        "ep": "enable_expert_parallel",
        "asc": "api_server_count",
        "model_tag": "model",
    },
    "tensorrt_llm": {"config": "extra_llm_api_options"},
}
POSITIONAL = {"vllm": "model", "tensorrt_llm": "model", "sglang": "model_path"}
SECRET_ARGUMENT = re.compile(r"(?i)(?:^|_)(?:api_?keys?|token|password|passwd|secret|credential)s?$")


def _base(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def _module_of(argv: list[str]) -> tuple[str | None, str | None, list[str]]:
    """(module, script, rest) of a Python command line."""
    at = 1
    while at < len(argv) and argv[at].startswith("-") and argv[at] != "-":
        word = argv[at]
        if word in OPTIONS_WITH_VALUE:
            at += 2
        elif re.match(r"^-[bBdEiIOPqsSuvx]*m$", word):
            return (argv[at + 1], None, argv[at + 2 :]) if at + 1 < len(argv) else (None, None, [])
        elif word.startswith("-m") and len(word) > 2:
            return word[2:], None, argv[at + 1 :]
        elif re.match(r"^-[bBdEiIOPqsSuvx]*c", word):
            return None, None, []
        else:
            at += 1
    return (None, argv[at], argv[at + 1 :]) if at < len(argv) else (None, None, [])


def launch_of(argv: list[str]) -> Launch | None:
    """The engine that this argument vector starts, None when it starts none.

    Only the started program decides; an engine's name inside an argument (a shell's -c, a docker
    client, a grep) is none.
    """
    if not argv:
        return None
    interpreter: str | None = None
    if PYTHON.match(_base(argv[0])):
        interpreter = argv[0]
        module, script, rest = _module_of(argv)
    else:
        module, script, rest = None, argv[0], argv[1:]
    for name, engine, word, _source in MODULES if module else SCRIPTS:
        if module == name or (script is not None and (_base(script) == name or script.endswith("/" + name))):
            if word is not None:
                if not rest or rest[0] != word:
                    return None
                rest = rest[1:]
            if engine == "tensorrt_llm":
                if rest and rest[0] in TRTLLM_SUBCOMMANDS:
                    return None
                rest = rest[1:] if rest and rest[0] == "serve" else rest
            return Launch(engine, rest, interpreter, script)
    return None


def title_engine(argv: list[str]) -> str | None:
    """Engine of a child process that carries the engine's own process title."""
    if len(argv) != 1 and any(argv[1:]):
        return None
    return next((engine for prefix, engine in TITLES if argv and argv[0].startswith(prefix)), None)


def _value(text: str) -> Any:
    if NUMBER.match(text) and len(text) < 19:
        return int(text)
    if FLOAT.match(text):
        return float(text)
    return text


def _is_option(word: str) -> bool:
    return word.startswith("-") and len(word) > 1 and not NUMBER.match(word) and not FLOAT.match(word)


def parse_arguments(engine: str, rest: list[str]) -> dict[str, Any]:
    """Arguments as a mapping of destination names: `--a-b X` -> a_b, a bare flag True, `--no-x` -> x False.

    Several values make a list; a repeated option keeps its last value; secrets become `***`.
    """
    aliases = ALIASES.get(engine, {})
    found: dict[str, Any] = {}
    at = 0
    while at < len(rest):
        word = rest[at]
        at += 1
        if not _is_option(word):
            found.setdefault(POSITIONAL.get(engine, "model"), word)
            continue
        name, equals, inline = word.partition("=")
        if engine == "vllm" and re.match(r"^-O[\d.]", name):  # -O3, -O.mode=...
            name, equals, inline = ("-O", "=", name[2:]) if name[2].isdigit() else ("-cc" + name[2:], equals, inline)
        key = name.lstrip("-").replace("-", "_")
        values: list[str] = [inline] if equals else []
        while not equals and at < len(rest) and not _is_option(rest[at]):
            values.append(rest[at])
            at += 1
        _store(found, aliases.get(key, key), values)
    return found


def _store(found: dict[str, Any], key: str, values: list[str]) -> None:
    if not values and key.startswith("no_"):
        found[key[3:]] = False
    elif SECRET_ARGUMENT.search(key):
        found[key] = "***"
    elif not values:
        found[key] = True
    elif len(values) == 1:
        found[key] = _value(values[0])
    else:
        found[key] = [_value(item) for item in values]


def flat_settings(text: str) -> dict[str, Any]:
    """Top-level `key: scalar` lines of a settings file that an engine is started with (YAML's plainest part)."""
    found: dict[str, Any] = {}
    for line in text.splitlines()[:2000]:
        match = re.match(r"^([A-Za-z_][\w-]*)\s*:\s+(?P<value>[^#\s][^#]*?)\s*(?:#.*)?$", line)
        if match and match.group("value")[0] not in "[{|>&*!":
            word = match.group("value").strip("\"'")
            truth = {"true": True, "false": False, "null": None, "~": None}
            key = match.group(1).replace("-", "_")
            found[key] = "***" if SECRET_ARGUMENT.search(key) else truth.get(word.lower(), _value(word))
    return found
