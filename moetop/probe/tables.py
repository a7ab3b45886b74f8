"""Names of Triton MoE tables: which lie there for a GPU, and which one a model would need; reads names, no contents."""

from __future__ import annotations

import glob
import json
import os
import re
from typing import Any, NamedTuple

from . import procfs

MAX_NAMES = 20000
MAX_MATCHED = 60
NAME = re.compile(
    r"^E=(?P<E>\d+),N=(?P<N>\d+),device_name=(?P<device>[^,]+?)(?:,dtype=(?P<dtype>\w+?))?"
    r"(?:,block_shape=\[(?P<block>[\d, ]+)\])?(?:,per_channel_quant=(?P<channel>\w+?))?(?P<down>_down)?\.json$"
)
# Keys of a model's config.json. Sources: SGLang and vLLM model files (deepseek, qwen, mixtral, gpt-oss, glm).
EXPERT_KEYS = ("n_routed_experts", "num_experts", "num_local_experts")
WIDTH_KEYS = ("moe_intermediate_size", "intermediate_size")
SHARED_KEYS = ("n_shared_experts", "num_shared_experts")


class Wanted(NamedTuple):
    """The table a server would look for, and what that was computed from."""

    name: str
    basis: str


def device_part(engine: str, gpu: str) -> str:
    """A GPU's name as the engine writes it into file names (SGLang: blanks; vLLM: also `/`, any H200 is one)."""
    if engine == "vllm":
        if "H200" in gpu.split() or "_H200" in gpu:
            return "NVIDIA_H200"
        return re.sub(r"[\s/]+", "_", gpu)
    return gpu.replace(" ", "_")


def table_names(folder: str, engine: str, gpus: list[str]) -> list[tuple[str, dict[str, Any]]]:
    """Tables in a folder for exactly these GPUs, with what their names say."""
    devices = {device_part(engine, gpu) for gpu in gpus}
    try:
        names = sorted(os.listdir(folder)[:MAX_NAMES])
    except OSError:
        return []
    found = []
    for name in names:
        match = NAME.match(name)
        if match and match.group("device") in devices:
            parts: dict[str, Any] = {"E": int(match.group("E")), "N": int(match.group("N"))}
            parts.update((key, match.group(key)) for key in ("dtype", "block") if match.group(key))
            if match.group("down"):
                parts["down"] = True
            found.append((name, parts))
    return found[:MAX_MATCHED]


def _model_config(args: dict[str, Any], env: dict[str, str], home: str, view: str) -> dict[str, Any]:
    """The model's config.json, from a local folder or the Hugging Face cache."""
    model = args.get("model_path") or args.get("model")
    if not isinstance(model, str):
        return {}
    paths = [os.path.join(view + model, "config.json")] if model.startswith("/") else []
    hub = env.get("HF_HUB_CACHE") or os.path.join(env.get("HF_HOME") or home + "/.cache/huggingface", "hub")
    folder = "%s%s/models--%s/snapshots" % (view, hub, model.replace("/", "--"))
    paths += sorted(glob.glob(glob.escape(folder) + "/*/config.json"))
    for path in paths:
        try:
            told = json.loads(procfs.read_text(path, 4 * 1024 * 1024) or "")
        except ValueError:
            continue
        if isinstance(told, dict):
            nested = told.get("text_config")
            return nested if isinstance(nested, dict) and not any(key in told for key in EXPERT_KEYS) else told
    return {}


def wanted_table(
    engine: str, args: dict[str, Any], env: dict[str, str], home: str, view: str, gpu: str
) -> Wanted | None:
    """The exact name of the up-projection table, only where nothing has to be guessed.

    Shared experts may be fused into the routed ones and expert parallelism divides them: then None.
    """
    config = _model_config(args, env, home, view)
    experts = next((config[key] for key in EXPERT_KEYS if isinstance(config.get(key), int)), None)
    width = next((config[key] for key in WIDTH_KEYS if isinstance(config.get(key), int)), None)
    tp = args.get("tp_size", args.get("tensor_parallel_size", 1))
    spread = args.get("ep_size", 1) not in (1, None) or args.get("enable_expert_parallel")
    if not experts or not width or not isinstance(tp, int) or tp < 1 or width % tp or spread:
        return None
    if any(config.get(key) for key in SHARED_KEYS) or args.get("data_parallel_size", args.get("dp_size", 1)) != 1:
        return None
    suffix = _suffix(engine, args, config)
    if suffix is None:
        return None
    name = "E=%d,N=%d,device_name=%s%s.json" % (experts, width // tp, device_part(engine, gpu), suffix)
    return Wanted(name, "config.json of the model, tensor parallel %d" % tp)


def _suffix(engine: str, args: dict[str, Any], config: dict[str, Any]) -> str | None:
    """The dtype and block part of a table's name; None for a quantization whose name is not sure."""
    quant = config.get("quantization_config")
    asked = args.get("quantization")
    if not isinstance(quant, dict):
        return "" if asked in (None, "None") else None
    block = quant.get("weight_block_size")
    if quant.get("quant_method") == "fp8" and isinstance(block, list) and len(block) == 2:
        text = ("[%s, %s]" if engine == "sglang" else "[%s,%s]") % (block[0], block[1])
        return ",dtype=fp8_w8a8,block_shape=" + text
    return None
