"""Where moetop's own files lie on this machine. Reads and makes none of them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def _folder(variable: str, default: str, environ: Mapping[str, str]) -> Path:
    """`moetop` under the folder that an XDG variable names; a relative one does not count (XDG base directories)."""
    base = environ.get(variable, "")
    return (Path(base) if base.startswith("/") else Path(default).expanduser()) / "moetop"


def config_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the user's configuration and themes lie: `$XDG_CONFIG_HOME/moetop`."""
    return _folder("XDG_CONFIG_HOME", "~/.config", environ)


def state_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Where what moetop keeps lies (the log of actions, files that a key wrote): `$XDG_STATE_HOME/moetop`."""
    return _folder("XDG_STATE_HOME", "~/.local/state", environ)


def config_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the user's configuration is looked for: `$XDG_CONFIG_HOME/moetop/config.yaml`."""
    return config_folder(environ) / "config.yaml"


def has_config() -> bool:
    """Whether the user has a configuration there."""
    try:
        return config_path().is_file()
    except OSError:
        return False
