"""Records of the kernel and of NVIDIA's tools. A table, no code."""

from __future__ import annotations

from moetop.engines import fields_system as system
from moetop.engines.rule import ANY, Rule
from moetop.model import EventKind as K
from moetop.model import EventSeverity as S

_OTHERS = ("sglang", "vllm", "trt", "trtcpp", "flashinfer", "uvicorn")
"""Heads of an engine's own records: the kernel's words inside one are quoted."""

RULES: tuple[Rule, ...] = (
    Rule(
        id="k.xid",
        kind=K.XID,
        severity=S.FATAL,
        engines=ANY,
        pattern=r"NVRM: Xid \(PCI:(?P<pci>[0-9a-fA-F:.]{7,20})\)?(?: GPU-[\w-]+)?\)?: (?P<code>\d{1,4})",
        literals=("nvrm: xid (",),
        meaning="an error the GPU reported to the driver",
        source="NVIDIA driver, dmesg",
        example=(
            "[Wed Jun 24 15:44:42 2026] NVRM: Xid (PCI:0000:70:00): 31, pid=684430, name=python3, channel "
            "0x00000002, intr 00000000. MMU Fault"
        ),
        parse=system.xid,
        not_heads=_OTHERS,
    ),
    Rule(
        id="k.lost",
        kind=K.GPU_LOST,
        severity=S.FATAL,
        engines=ANY,
        pattern=r"(?:GPU has )?fallen off the bus",
        literals=("fallen off the bus",),
        meaning="the GPU fell off the bus",
        source="NVIDIA driver, dmesg",
        example="NVRM: GPU 0000:b3:00.0: GPU has fallen off the bus.",
        parse=system.pci_address,
        not_heads=_OTHERS,
    ),
    Rule(
        id="k.handle",
        kind=K.GPU_LOST,
        severity=S.FATAL,
        engines=ANY,
        pattern=(
            r"(?:Unable to determine the device handle for (?:gpu|GPU) ?(?P<pci>[0-9a-fA-F:.]{7,20})|GPU is "
            r"lost\b)"
        ),
        literals=(
            "unable to determine the device handle for gpu",
            "gpu is lost",
        ),
        meaning="a tool cannot reach one GPU",
        source="nvidia-smi, NVML",
        example="Unable to determine the device handle for GPU 0000:06:00.0: Unknown Error",
    ),
    Rule(
        id="k.mismatch",
        kind=K.DRIVER_MISMATCH,
        severity=S.FATAL,
        engines=ANY,
        pattern=r"API mismatch: ",
        literals=("api mismatch: ",),
        meaning="user library and loaded kernel module have different versions",
        source="NVIDIA driver, dmesg",
        example="NVRM: API mismatch: the client has the version 550.76, but",
        parse=system.api_mismatch,
        needs="kernel_module",
    ),
    Rule(
        id="k.mismatch.nvml",
        kind=K.DRIVER_MISMATCH,
        severity=S.FATAL,
        engines=ANY,
        pattern=r"Driver/library version mismatch",
        literals=("driver/library version mismatch",),
        meaning="user library and loaded kernel module have different versions",
        source="NVML",
        example="Failed to initialize NVML: Driver/library version mismatch",
    ),
    Rule(
        id="k.ecc",
        kind=K.ECC_ERROR,
        severity=S.FATAL,
        engines=ANY,
        pattern=r"NVRM: GPU .{0,200}?(?:[Uu]ncorrectable|[Dd]ouble.bit)",
        literals=("nvrm: gpu",),
        meaning="the kernel reports an uncorrectable memory error",
        source="NVIDIA driver, dmesg",
        example="NVRM: GPU at 0000:06:00 has encountered an uncorrectable ECC error",
        parse=system.pci_address,
        not_heads=_OTHERS,
    ),
    Rule(
        id="k.oomkill",
        kind=K.OOM,
        severity=S.FATAL,
        engines=ANY,
        pattern=r"Out of memory: Killed process (?P<pid>\d+) \((?P<name>[^)]{1,80})\)",
        literals=("out of memory: killed process ",),
        meaning="the kernel killed a process because host memory ran out",
        source="Linux, dmesg",
        example="kernel: Out of memory: Killed process 1234 (python3) total-vm:1kB",
        not_heads=_OTHERS,
    ),
    Rule(
        id="k.dcgm.gap",
        kind=K.MONITORING_GAP,
        severity=S.NOTICE,
        engines=ANY,
        pattern=(
            r"Skipping line \d+ \(\'?(?P<metric>DCGM_FI_\w{1,80})\'?\): metric not enabled|(?P<why>Not collecting "
            r'\w{1,20} metrics: [^"\n]{0,200})'
        ),
        literals=(
            "metric not enabled",
            "not collecting ",
        ),
        meaning="an exporter does not collect a metric",
        source="dcgm-exporter",
        example=(
            'nvidia-dcgm-exporter time="2024-04-08T10:37:52Z" level=warning msg="Skipping line 26 '
            "('DCGM_FI_PROF_GR_ENGINE_ACTIVE'): metric not enabled\""
        ),
        parse=system.metric_gap,
    ),
    Rule(
        id="k.monitor",
        kind=K.MONITOR_ERROR,
        severity=S.ERROR,
        engines=ANY,
        pattern=(
            r"(?P<error>Failed to (?:watch metrics|collect metrics|initialize NVML|transform "
            r'metrics)[^"\n]{0,200}|NVIDIA-SMI has failed[^"\n]{0,200}|[Ee]rror (?:retrieving|getting) DCGM '
            r'[^"\n]{0,200})'
        ),
        literals=(
            "failed to watch metrics",
            "failed to collect metrics",
            "failed to initialize nvml",
            "nvidia-smi has failed",
            "error retrieving dcgm",
            "error getting dcgm",
            "failed to transform metrics",
        ),
        meaning="a monitoring tool failed",
        source="dcgm-exporter, nvidia-smi",
        example=(
            'time="2024-04-08T10:37:52Z" level=error msg="Failed to watch metrics: Error watching fields: The '
            'third-party Profiling module returned an unrecoverable error"'
        ),
    ),
    Rule(
        id="k.rminit",
        kind=K.GPU_LOST,
        severity=S.FATAL,
        engines=ANY,
        pattern=r"NVRM: GPU (?P<pci>[0-9a-fA-F:.]{7,20}): RmInitAdapter failed",
        literals=("rminitadapter failed",),
        meaning="the driver could not start a GPU",
        source="NVIDIA driver, dmesg",
        example="NVRM: GPU 0000:06:00.0: RmInitAdapter failed! (0x24:0xffff:1417)",
        not_heads=_OTHERS,
    ),
    Rule(
        id="k.sxid",
        kind=K.NOTE,
        severity=S.ERROR,
        engines=ANY,
        pattern=r"SXid \(PCI:(?P<pci>[0-9a-fA-F:.]{7,20})\): (?P<code>\d{1,6}), (?P<text>[^\n]{0,120})",
        literals=("sxid (pci:",),
        meaning="an error an NVSwitch reported",
        source="NVIDIA fabric manager, dmesg",
        example="nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error",
        not_heads=_OTHERS,
    ),
)
