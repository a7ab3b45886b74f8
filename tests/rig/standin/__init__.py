"""A stand-in serving engine: real processes, a real log, real HTTP; no GPU, no model."""
