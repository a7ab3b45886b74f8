"""Model shape, and the tuned tiles: which file is read, by which name, and what is used without it. Needs no torch."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent

DEFAULT_TILES = {
    "BLOCK_SIZE_M": 16,
    "BLOCK_SIZE_N": 32,
    "BLOCK_SIZE_K": 32,
    "GROUP_SIZE_M": 1,
    "num_warps": 4,
    "num_stages": 1,
}
"""Tiles without a tuned table: correct everywhere, fast nowhere (58 of 411 TFLOP/s on an H200)."""


@dataclass(frozen=True)
class Shape:
    """A model's dimensions; `block_tokens` is how many tokens one step adds to each running request."""

    num_experts: int
    num_experts_per_tok: int
    hidden_size: int
    moe_intermediate_size: int
    num_hidden_layers: int
    vocab_size: int
    block_tokens: int


def load_shape(model: str) -> Shape:
    """The shape in MODEL/config.json."""
    values = json.loads((Path(model) / "config.json").read_text())
    return Shape(**{name: int(values[name]) for name in Shape.__dataclass_fields__})


def is_standin() -> bool:
    """Whether the CPU stand-in was asked for: it computes nothing and only behaves like a server."""
    return os.environ.get("MINIMOE_CPU_STANDIN") == "1"


def device_name() -> str:
    """Name of the GPU as file names spell it."""
    if is_standin():
        return "CPU_standin"
    import torch

    return torch.cuda.get_device_name(0).replace(" ", "_")


def triton_version() -> str:
    if is_standin():
        return "0.0.0"
    import triton

    return triton.__version__


def config_name(shape: Shape) -> str:
    return f"E={shape.num_experts},N={shape.moe_intermediate_size},device_name={device_name()}.json"


def config_path(shape: Shape) -> Path:
    """Where the tuned table is read from: below $SGLANG_MOE_CONFIG_DIR, else beside this file."""
    root = Path(os.environ.get("SGLANG_MOE_CONFIG_DIR") or HERE)
    return root / "configs" / f"triton_{triton_version().replace('.', '_')}" / config_name(shape)


def load_tiles(shape: Shape) -> dict[int, dict[str, int]] | None:
    """Tuned tiles by number of tokens; None where there is no file. Raises ValueError for a broken one."""
    path = config_path(shape)
    if not path.exists():
        return None
    table = json.loads(path.read_text())
    return {int(key): value for key, value in table.items() if key.isdigit()}


def pick_tiles(table: dict[int, dict[str, int]] | None, tokens: int) -> dict[str, int]:
    """The entry of the nearest batch size; the default without a table."""
    if not table:
        return DEFAULT_TILES
    return table[min(table, key=lambda size: abs(size - tokens))]
