"""Starts a far process behind a local one. Loads next to nothing, so that it can come first. Uses no shell."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence

from moetop.errors import LinkError


def spawn(argv: Sequence[str], env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Start `argv` in a session of its own, all three streams piped. Raises LinkError."""
    try:
        return subprocess.Popen(
            list(argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=dict(env) if env is not None else None,
            start_new_session=True,
        )
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise LinkError(f"cannot start {argv[0]}: {why}", code="no_program", retry=False) from error
