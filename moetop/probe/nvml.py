"""The one gate to pynvml: every NVML failure becomes (None, reason); nothing raises past it.

Knows how the library is found and started. Knows nothing of frames, threads or intervals.
"""

from __future__ import annotations

import ctypes
import os
import re
import warnings
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

# nvml.h nvmlReturn_t -> the reason as it travels in `absent` and `error`.
REASONS: Dict[int, str] = {
    1: "uninitialized",
    2: "invalid_argument",
    3: "not_supported",
    4: "no_permission",
    6: "not_found",
    7: "insufficient_size",
    8: "insufficient_power",
    9: "no_driver",
    10: "timeout",
    11: "irq_issue",
    12: "no_library",
    13: "function_not_found",
    14: "corrupted_inforom",
    15: "gpu_lost",
    16: "reset_required",
    17: "operating_system",
    18: "driver_mismatch",
    19: "in_use",
    20: "out_of_memory",
    21: "no_data",
    22: "not_supported",
    23: "insufficient_resources",
    25: "version_mismatch",
    26: "not_supported",
    27: "not_ready",
    28: "gpu_lost",
    29: "invalid_state",
    999: "unknown_error",
}
NEVER_AGAIN = ("function_not_found", "missing_in_binding")

# Where the library lives when the loader's own path does not have it.
LIBRARY_PLACES = (
    "/usr/lib/wsl/lib",  # WSL2
    "/usr/local/nvidia/lib64",  # GKE and older container toolkits
    "/usr/lib/x86_64-linux-gnu/nvidia/current",  # Debian alternatives
    "/usr/lib/aarch64-linux-gnu/nvidia/current",
    "/run/opengl-driver/lib",  # NixOS
    "/opt/bin/nvidia/lib64",
)
LIBRARY = "libnvidia-ml.so.1"


class Failure(NamedTuple):
    """Why NVML did not start: a Status code, a sentence, and details such as both driver versions."""

    code: str
    message: str
    detail: Dict[str, str]


class Nvml:
    """Calls pynvml by function name and answers (value, None) or (None, reason)."""

    def __init__(self) -> None:
        self._lib: Any = None
        self._missing: Set[str] = set()

    def start(self) -> Optional[Failure]:
        """Load the binding and the library and initialise; None when NVML answers."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the old `pynvml` package announces its end on import
                import pynvml
        except Exception as error:  # any fault of a foreign module means: no binding
            return Failure("no_nvml", "the NVML binding cannot be loaded: %s" % error, {})
        self._lib = pynvml
        _preload()
        _, reason = self.call("nvmlInit")
        return None if reason is None else _start_failure(reason)

    def call(self, name: str, *args: Any, **kwargs: Any) -> Tuple[Any, Optional[str]]:
        """One NVML call. Symbols that driver or binding lack are not tried again."""
        if name in self._missing:
            return None, "function_not_found"
        lib = self._lib
        function = getattr(lib, name, None)
        if function is None:
            self._missing.add(name)
            return None, "missing_in_binding"
        try:
            return function(*args, **kwargs), None
        except lib.NVMLError as error:
            code = getattr(error, "value", None)
            reason = REASONS.get(code, "error_%s" % code) if isinstance(code, int) else "unknown_error"
        except (AttributeError, NameError):
            reason = "missing_in_binding"
        except Exception as error:
            # The binding has more kinds: NVMLLibraryMismatchError for a symbol an old driver lacks, ctypes
            # errors, a name that is not UTF-8. None of them may end the reading of the other values.
            name_of = type(error).__name__
            reason = "function_not_found" if "Mismatch" in name_of else "binding_error_%s" % name_of
        if reason in NEVER_AGAIN and not kwargs:
            self._missing.add(name)
        return None, reason

    def first(self, names: Sequence[str], *args: Any) -> Tuple[Any, Optional[str]]:
        """The first of several spellings of a call that this driver has."""
        value, reason = None, "function_not_found"
        for name in names:
            value, why = self.call(name, *args)
            if why is None:
                return value, None
            reason = why
            if why not in NEVER_AGAIN and why != "not_supported":
                break
        return value, reason

    def constant(self, name: str, default: int) -> int:
        """A number of nvml.h, which an old binding may lack."""
        value = getattr(self._lib, name, default)
        return value if isinstance(value, int) else default

    def structure(self, name: str) -> Any:
        """A structure class of the binding, or None."""
        return getattr(self._lib, name, None)

    def text(self, name: str, *args: Any) -> Tuple[Optional[str], Optional[str]]:
        """A call that answers a string."""
        value, reason = self.call(name, *args)
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        return (str(value), None) if value is not None else (None, reason)

    def field(self, handle: Any, field_id: int) -> Tuple[Optional[float], Optional[str]]:
        """One value of nvmlDeviceGetFieldValues (unsigned int or double)."""
        values, reason = self.call("nvmlDeviceGetFieldValues", handle, [field_id])
        if reason is not None:
            return None, reason
        try:
            item = values[0]
            if item.nvmlReturn != 0:
                return None, REASONS.get(item.nvmlReturn, "error_%d" % item.nvmlReturn)
            # nvmlValueType_t: 0 double, 1 unsigned int, 2 unsigned long, 3 unsigned long long, 4 signed long long
            member = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal")[item.valueType]
            return float(getattr(item.value, member)), None
        except (AttributeError, IndexError, TypeError):
            return None, "missing_in_binding"


def _preload() -> None:
    """Load the library by full path where the loader would not find it; later loads by name then hit it."""
    try:
        ctypes.CDLL(LIBRARY)
        return
    except OSError:
        pass
    for place in LIBRARY_PLACES:
        path = os.path.join(place, LIBRARY)
        if os.path.exists(path):
            try:
                ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
                return
            except OSError:
                continue


def _start_failure(reason: str) -> Failure:
    kernel = kernel_driver_version()
    if reason == "driver_mismatch":
        library = _library_version()
        detail = {key: value for key, value in (("kernel", kernel), ("library", library)) if value}
        versions = " (kernel module %s, library %s)" % (kernel or "unknown", library or "unknown")
        return Failure(
            "driver_mismatch",
            "the NVIDIA library and kernel module differ in version%s: reboot, or stop GPU work and reload the module; "
            "servers started before may still be serving" % versions,
            detail,
        )
    if reason == "no_library":
        if kernel:
            return Failure(
                "no_nvml", "driver %s is loaded but %s was not found" % (kernel, LIBRARY), {"kernel": kernel}
            )
        return Failure("no_nvml", "no NVIDIA driver library (%s) on this host" % LIBRARY, {})
    if reason == "no_driver":
        return Failure("no_driver", "the NVIDIA driver is not loaded (nvidia-smi would fail too)", {})
    if reason == "no_permission":
        return Failure("not_permitted", "not permitted to open the NVIDIA devices (/dev/nvidia*)", {})
    if reason == "gpu_lost":
        return Failure("gpu_lost", "NVML does not start because a GPU is lost: reboot the host to recover it", {})
    return Failure("no_nvml", "NVML does not start: %s" % reason.replace("_", " "), {"reason": reason})


def kernel_driver_version() -> Optional[str]:
    """Version of the loaded kernel module, or None."""
    for path in ("/sys/module/nvidia/version", "/proc/driver/nvidia/version"):
        try:
            with open(path, encoding="utf-8", errors="replace") as stream:
                text = stream.read(4096)
        except OSError:
            continue
        match = re.search(r"\b(\d{3}\.\d+(?:\.\d+)?)\b", text)
        if match:
            return match.group(1)
    return None


def _library_version() -> Optional[str]:
    """Version in the file name of the loaded library (libnvidia-ml.so.580.82.07)."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as stream:
            text = stream.read(4 << 20)
    except OSError:
        return None
    match = re.search(r"libnvidia-ml\.so\.(\d{3}\.[0-9.]+)", text)
    return match.group(1) if match else None


def lost_pci_addresses(known: Sequence[str]) -> List[str]:
    """PCI addresses the driver lists in /proc that NVML does not show (a lost card can hide there)."""
    try:
        listed = os.listdir("/proc/driver/nvidia/gpus")
    except OSError:
        return []
    tails = {address.lower()[-10:] for address in known}
    return sorted(address for address in listed if address.lower()[-10:] not in tails)
