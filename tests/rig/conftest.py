"""Fixtures of the rig, each from its own module."""

from tests.rig.cli_kit import gpu_host, moetop
from tests.rig.nvml_rig import nvml_lib, scenario
from tests.rig.proxy_rig import make_proxy
from tests.rig.sshd_rig import client, make_sshd, sshd, tiny_probe

__all__ = ["client", "gpu_host", "make_proxy", "make_sshd", "moetop", "nvml_lib", "scenario", "sshd", "tiny_probe"]
