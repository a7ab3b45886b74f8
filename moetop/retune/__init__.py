"""Retune and restart a server: plan, run (detached on the host), verify, roll back; never a restart for nothing."""
