"""Frames and log events -> GPU states, findings, headline. Pure: no I/O, no clock, no threads."""
