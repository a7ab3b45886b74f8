"""moetop: live monitor and doctor for GPU hosts that serve Mixture-of-Experts models."""

__version__ = "0.1.0"
