"""What runs on the watched host during a retune: standard library only, Python >= 3.8; imports nothing else of ours."""
