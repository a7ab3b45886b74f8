"""Stands where the source of `moetop/probe/redact.py` travels to the host under this name; this file never travels."""

from moetop.probe.redact import redact_argv, redact_env, redact_text

__all__ = ["redact_argv", "redact_env", "redact_text"]
