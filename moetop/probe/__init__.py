"""What runs on the watched host: standard library and pynvml only, Python >= 3.8; imports nothing of the rest."""
