"""Where moetop's own files lie on this machine. Reads and makes none of them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def config_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the user's configuration is looked for: `$XDG_CONFIG_HOME/moetop/config.yaml`."""
    base = environ.get("XDG_CONFIG_HOME", "")
    root = Path(base) if base.startswith("/") else Path("~/.config").expanduser()
    return root / "moetop" / "config.yaml"


def has_config() -> bool:
    """Whether the user has a configuration there."""
    try:
        return config_path().is_file()
    except OSError:
        return False
