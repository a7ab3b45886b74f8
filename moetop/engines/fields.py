"""Reads the values out of matched log lines: configuration file names, arguments, bars. Pure functions."""

from __future__ import annotations

import re

from moetop.engines.pyrepr import parse_call, parse_dict
from moetop.engines.rule import Fields, number

MAX_LIST = 64
"""Lists in an event's fields are bounded; more of the same says nothing new."""

_CONFIG_NAME = re.compile(
    r"(?:E=(?P<E>\d+),)?N=(?P<N>\d+)(?:,K=(?P<K>\d+))?,device_name=(?P<device_name>[^,\[\]/]+?)"
    r"(?:,dtype=(?P<dtype>[A-Za-z0-9_]+?))?(?:,block_shape=\[(?P<block>[\d, ]+)\])?"
    r"(?:,per_channel_quant=\w+?)?(?P<down>_down)?\.json"
)
_TRITON_DIR = re.compile(r"/triton_(\d+(?:_\d+)*)/")
_JSON_PATHS = re.compile(r"(?:(?<=[\s'\"\[,])|^)(?:/|~/|\.{1,2}/|[A-Za-z]:\\)[^'\"]{0,2000}?\.json(?!\w)")


def config_fields(path: str) -> Fields:
    """The parts of a Triton configuration file's name (`E=..,N=..,device_name=...json`)."""
    found: Fields = {"path": path, "file": path.rsplit("/", 1)[-1]}
    name = _CONFIG_NAME.search(found["file"])
    if name is None:
        return found
    for key in ("E", "N", "K"):
        if name[key] is not None:
            found[key] = int(name[key])
    found["device_name"] = name["device_name"]
    found["dtype"] = name["dtype"]
    found["block_shape"] = [int(part) for part in name["block"].split(",") if part.strip()] if name["block"] else None
    if name["down"]:
        found["down"] = True
    triton = _TRITON_DIR.search(path)
    if triton:
        found["triton"] = triton[1].replace("_", ".")
    return found


def json_paths(text: str) -> list[str]:
    """Paths ending in .json in `text`, printed plain, as a Python list, or joined by commas."""
    return [found[0] for found in _JSON_PATHS.finditer(text)][:MAX_LIST]


def missing_config(match: re.Match[str]) -> Fields:
    """The configuration file a warning says it did not find; of several, the last is the built-in place."""
    rest = match.string[match.end() : match.end() + 8192]
    paths = json_paths(rest)
    if not paths:
        return {}
    fields = config_fields(paths[-1])
    if len(paths) > 1:
        fields["searched"] = paths
    return fields


def used_config(match: re.Match[str]) -> Fields:
    """The configuration file a line says is in use."""
    return config_fields(match["path"])


def fallback_config(match: re.Match[str]) -> Fields:
    """A configuration of another Triton version was taken."""
    fields = config_fields(match["got"])
    wanted = _TRITON_DIR.search(match["want"])
    fields["wanted"] = match["want"]
    fields["wanted_triton"] = wanted[1].replace("_", ".") if wanted else None
    fields["used_triton"] = match["ver"].rstrip(".")
    return fields


_SGL_CACHE = re.compile(r"/flashinfer/autotune/(?P<flashinfer>[\w.]+)/(?P<arch>sm\w+)/")
_VLLM_CACHE = re.compile(r"/flashinfer_autotune_cache/(?P<flashinfer>[\w.]+)/(?P<arch>\w+)/")


def cache_path(match: re.Match[str]) -> Fields:
    """A tuning cache's path, with the FlashInfer version and architecture that it names."""
    path = match["path"].rstrip(".,;")
    fields: Fields = {"path": path}
    where = _SGL_CACHE.search(path) or _VLLM_CACHE.search(path)
    if where:
        fields |= where.groupdict()
    for name, value in match.groupdict().items():
        if name != "path" and value is not None:
            fields[name] = number(value)
    return fields


def saved_cache(match: re.Match[str]) -> Fields:
    """How many configurations a tuner saved."""
    fields: Fields = {"path": match["path"], "configs": int(match["n"])}
    if match["new"] is not None:
        fields["new"] = int(match["new"])
        fields["previous"] = int(match["old"])
    return fields


def loaded_cache(match: re.Match[str]) -> Fields:
    """How many configurations a tuner loaded."""
    return {"path": match["path"], "configs": int(match["n"])}


_DIFF = re.compile(r"(\w+): saved=(.{0,200}?) vs current=(.{0,200}?)(?=, \w+: saved=|$)")


def cache_mismatch(match: re.Match[str]) -> Fields:
    """Which parts of a cache's environment differ, as `{name: [saved, current]}`."""
    diff = (match["diff"] or "")[:4096]
    return {"path": match["path"], "mismatch": {key: [old, new] for key, old, new in _DIFF.findall(diff)}}


_BAR = re.compile(r"(?P<pct>\d{1,3})%\D[^/]{0,300}?(?P<n>\d+)/(?P<tot>\d+) \[(?P<el>[\d:?]+)(?:<(?P<eta>[\d:?]+))?")


def bar(match: re.Match[str]) -> Fields:
    """A progress bar's value: done, total, percent."""
    named = {key: number(value) for key, value in match.groupdict().items() if value is not None}
    fields: Fields = {}
    for source, target in (("n", "done"), ("tot", "total"), ("pct", "pct")):
        if source in named:
            fields[target] = named.pop(source)
    return named | fields


def tuning_bar(match: re.Match[str]) -> Fields:
    """FlashInfer's bar for one operator."""
    return {
        "op": match["op"],
        "done": int(match["n"]),
        "total": int(match["tot"]),
        "pct": int(match["pct"]),
        "rate": f"{match['rate']} {match['unit']}" if match["rate"] else None,
        "eta": match["eta"],
    }


_TACTIC_ERROR = re.compile(r"(?:Assertion failed: )?(?P<why>[^(\n]{1,300}?)(?:\. Error: | \(/|\.? *$|\()")


def skipped_tactic(match: re.Match[str]) -> Fields:
    """A tactic the tuner could not use, and why."""
    fields: Fields = {"tactics": [number(match["tac"])] if match["tac"] else []}
    runner = re.search(r"(\w+) object at", match["runner"] or "")
    if runner:
        fields["runner"] = runner[1]
    error = re.sub(r"\[TensorRT-LLM\]\[\w+\] ?", "", (match["err"] or "")[:2048])
    why = _TACTIC_ERROR.search(error)
    if why:
        fields["reason"] = why["why"].strip()
    return fields


_WANTED_ARGS = (
    "model",
    "model_path",
    "served_model_name",
    "tp_size",
    "pp_size",
    "dp_size",
    "ep_size",
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "data_parallel_size",
    "enable_expert_parallel",
    "quantization",
    "moe_runner_backend",
    "moe_backend",
    "moe_a2a_backend",
    "attention_backend",
    "fp4_gemm_runner_backend",
    "disable_flashinfer_autotune",
    "enable_flashinfer_autotune",
    "disable_cuda_graph",
    "enforce_eager",
    "max_num_seqs",
    "max_model_len",
    "host",
    "port",
    "log_level",
    "enable_metrics",
    "disable_custom_all_reduce",
    "enable_deterministic_inference",
    "kernel_config",
    "optimization_level",
    "mem_fraction_static",
    "gpu_memory_utilization",
    "chunked_prefill_size",
    "max_num_batched_tokens",
    "kv_cache_dtype",
)


def args_summary(args: Fields) -> Fields:
    """The arguments worth showing on the event's line."""
    fields = {name: args[name] for name in _WANTED_ARGS if args.get(name) is not None}
    fields["tp"] = args.get("tp_size", args.get("tensor_parallel_size"))
    return {name: value for name, value in fields.items() if value is not None} | {"args": args}


def sglang_args(match: re.Match[str]) -> Fields:
    """`ServerArgs(...)` as values."""
    return args_summary(parse_call(match.string, match.end()))


def vllm_args(match: re.Match[str]) -> Fields:
    """`{...}` after `non-default args:` as values."""
    return args_summary(parse_dict(match.string, match.end() - 1))


_PAIR = re.compile(r"(#?[A-Za-z][\w /#().-]{0,40}?): ([^,]{1,40})")


def decode_batch(match: re.Match[str]) -> Fields:
    """SGLang's decode line by its `key: value` pairs, whatever their order."""
    pairs = dict(_PAIR.findall(match.string[match.end() : match.end() + 1500]))
    fields: Fields = {}
    for key, name in (
        ("#running-req", "running"),
        ("#queue-req", "waiting"),
        ("gen throughput (token/s)", "gen_tok_s"),
    ):
        if key in pairs:
            fields[name] = number(pairs[key].strip())
    usage = pairs.get("token usage", pairs.get("full token usage"))
    if usage is not None:
        value = number(usage.strip())
        fields["kv_pct"] = round(value * 100, 2) if isinstance(value, int | float) else None
    graph = next((value for key, value in pairs.items() if key.endswith(" graph")), None)
    if graph is not None:
        fields["cuda_graph"] = graph.strip() == "True"
    return fields


def prefill_batch(match: re.Match[str]) -> Fields:
    """SGLang's prefill line by its pairs."""
    pairs = dict(_PAIR.findall(match.string[match.end() : match.end() + 1500]))
    fields: Fields = {}
    for key, name in (
        ("#new-seq", "new_seq"),
        ("#new-token", "new_tokens"),
        ("#queue-req", "waiting"),
        ("input throughput (token/s)", "prompt_tok_s"),
    ):
        if key in pairs:
            fields[name] = number(pairs[key].strip())
    return fields


def vllm_stats(match: re.Match[str]) -> Fields:
    """vLLM's periodic line."""
    return {
        "engine": match["e"],
        "prompt_tok_s": float(match["pp"]),
        "gen_tok_s": float(match["tg"]),
        "running": int(match["run"]),
        "waiting": int(match["wait"]),
        "kv_pct": float(match["kv"]) if match["kv"] else None,
    }


_ITER_PAIR = re.compile(r"(\w+) = ([^,{]{1,60})")


def trt_iteration(match: re.Match[str]) -> Fields:
    """TensorRT-LLM's iteration line by its pairs; the order changed between releases."""
    pairs = dict(_ITER_PAIR.findall(match.string[match.start() : match.start() + 2000]))
    fields: Fields = {"iter": int(match["it"])}
    for key, name in (("num_scheduled_requests", "running"), ("host_step_time", "host_step_ms")):
        if key in pairs:
            fields[name] = number(pairs[key].removesuffix("ms").strip())
    device = pairs.get("prev_device_step_time", "").removesuffix("ms").strip()
    if device and device != "N/A":
        fields["device_step_ms"] = number(device)
    usage = number(pairs.get("kv_cache_util", "").strip())
    if isinstance(usage, int | float):
        fields["kv_pct"] = round(usage * 100, 2)
    return fields


def child_failed(match: re.Match[str]) -> Fields:
    """SGLang's parent heard that a child died; the cause is an earlier record."""
    return {"cause": "child failed"}


def marlin(match: re.Match[str]) -> Fields:
    """A layer was given the weight-only Marlin path."""
    bits = match["bits"] or match["bits2"]
    return {"to": "marlin", "quant": f"fp{bits}"}


def named_backend(match: re.Match[str]) -> Fields:
    """A backend named in words, in the engine's own spelling of its option."""
    return {"backend": match["backend"].strip().lower().replace(" ", "_")}


def kv_tokens(match: re.Match[str]) -> Fields:
    """KV cache capacity."""
    return {"tokens": int(match["tokens"].replace(",", ""))}


def trt_saved(match: re.Match[str]) -> Fields:
    """TensorRT-LLM's cache file, from either wording."""
    return {"path": match["path"] or match["path2"]}


def vllm_engine(match: re.Match[str]) -> Fields:
    """vLLM's own version and the parts of its configuration that decide kernels."""
    fields: Fields = {"version": match["version"]}
    rest = match.string[match.end() : match.end() + 4096]
    for name in ("model", "tensor_parallel_size", "quantization", "enforce_eager"):
        found = re.search(rf"\b{name}='?([^,' ]{{1,300}})", rest)
        if found and found[1] != "None":
            fields[name] = {"True": True, "False": False}.get(found[1], number(found[1]))
    return fields
