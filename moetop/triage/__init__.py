"""Pasted text (nvidia-smi, dmon, tables, Prometheus) -> frames -> one host named `offline`. Pure."""
