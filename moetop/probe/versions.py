"""Finds the packages of a foreign process's own Python and their versions, by reading folders; never runs it."""

from __future__ import annotations

import glob
import json
import os
import re
from typing import NamedTuple

from . import procfs

# Distribution name (normalised) -> key under which its version travels.
PACKAGES = {
    "sglang": "sglang",
    "vllm": "vllm",
    "tensorrt_llm": "tensorrt_llm",
    "flashinfer_python": "flashinfer",
    "flashinfer": "flashinfer",
    "flashinfer_cubin": "flashinfer_cubin",
    "flashinfer_jit_cache": "flashinfer_jit_cache",
    "triton": "triton",
    "torch": "torch",
    "sgl_kernel": "sgl_kernel",
    "sglang_kernel": "sgl_kernel",
    "deep_gemm": "deep_gemm",
    "nvidia_cublas_cu12": "cublas",
    "nvidia_cublas_cu13": "cublas",
    "nvidia_cublas": "cublas",
    "nvidia_cudnn_cu12": "cudnn",
    "nvidia_cudnn_cu13": "cudnn",
    "nvidia_cudnn_frontend": "cudnn_frontend",
}
# Below a prefix, where packages lie: venv and conda, Debian's system and local (docker images of engines).
LAYOUTS = (
    "lib/python3*/site-packages",
    "lib64/python3*/site-packages",
    "lib/python3*/dist-packages",
    "local/lib/python3*/dist-packages",
    "local/lib/python3*/site-packages",
)
METADATA = re.compile(r"^(?P<name>[A-Za-z0-9_.-]+?)-(?P<version>\d[^-]*)(?:-py[\d.]+)?\.(?:dist|egg)-info$")
MAX_FOLDERS = 24
MAX_ENTRIES = 20000


class Packages(NamedTuple):
    """Versions by key, and where each package's code lies as this process can open it."""

    versions: dict[str, str]
    homes: dict[str, str]
    folders: list[str]


def view_of(pid: int) -> str | None:
    """Prefix under which a process's files are seen from here: empty, /proc/PID/root, or None if not permitted."""
    same = procfs.same_namespace(pid, "mnt")
    if same is None:
        return None
    return "" if same else "%s/%d/root" % (procfs.PROC, pid)


def _prefixes(interpreter: str | None, script: str | None, env: dict[str, str], exe: str | None, cwd: str) -> list[str]:
    found: list[str] = []
    for path in (interpreter, script):
        if path is None:
            continue
        if "/" in path:
            found.append(os.path.join(cwd, path))
        else:
            found.extend(os.path.join(folder, path) for folder in env.get("PATH", "").split(":") if folder)
    found = [os.path.dirname(os.path.dirname(os.path.normpath(path))) for path in found if "/bin/" in path]
    found += [env[name] for name in ("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONHOME") if env.get(name)]
    if exe and exe.startswith("/"):
        found.append(os.path.dirname(os.path.dirname(exe)))
    return list(dict.fromkeys(found))


def _base_prefix(view: str, prefix: str) -> list[str]:
    """The prefix behind a virtual environment that lets the system's packages in."""
    text = procfs.read_text("%s%s/pyvenv.cfg" % (view, prefix), 8192) or ""
    settings = dict(part.split(" = ", 1) for part in text.splitlines() if " = " in part)
    if settings.get("include-system-site-packages", "").strip().lower() == "true" and settings.get("home"):
        return [os.path.dirname(settings["home"].strip())]
    return []


def package_folders(
    pid: int, view: str, interpreter: str | None, script: str | None, env: dict[str, str], home: str | None
) -> list[str]:
    """Folders with packages of the process, most certain first, as paths that can be opened from here."""
    exe = (procfs.link(pid, "exe") or "").replace(" (deleted)", "")
    cwd = procfs.link(pid, "cwd") or "/"
    minor = re.search(r"python(3\.\d+)", os.path.basename(exe)) if exe else None
    folders = [view + folder for folder in procfs.mapped_folders(pid)]
    prefixes = _prefixes(interpreter, script, env, exe, cwd)
    for prefix in prefixes[:]:
        prefixes += _base_prefix(view, prefix)
    for prefix in prefixes:
        for layout in LAYOUTS:
            folders += sorted(glob.glob("%s%s/%s" % (glob.escape(view), glob.escape(prefix), layout)), reverse=True)
    folders += [view + os.path.join(cwd, part) for part in env.get("PYTHONPATH", "").split(":") if part]
    if home:
        folders += sorted(glob.glob("%s%s/.local/lib/python3*/site-packages" % (glob.escape(view), glob.escape(home))))
    if minor:
        wanted = "/python%s/" % minor.group(1)
        folders = [f for f in folders if wanted in f + "/" or not re.search(r"/python3\.\d+/", f + "/")]
    seen: set[str] = set()
    unique = []
    for folder in folders:
        real = os.path.realpath(folder) if not view else folder
        if real not in seen and os.path.isdir(folder):
            seen.add(real)
            unique.append(folder)
    return unique[:MAX_FOLDERS]


def read_packages(folders: list[str], view: str) -> Packages:
    """Versions from the names of dist-info folders; the first folder that has a package wins."""
    versions: dict[str, str] = {}
    homes: dict[str, str] = {}
    for folder in folders:
        try:
            names = os.listdir(folder)[:MAX_ENTRIES]
        except OSError:
            continue
        for name in names:
            match = METADATA.match(name) if name.endswith("-info") else None
            key = PACKAGES.get(re.sub(r"[-.]+", "_", match.group("name")).lower()) if match else None
            if match is None or key is None or key in versions:
                continue
            versions[key] = match.group("version")
            homes[key] = _home(folder, name, key, view)
    return Packages(versions, homes, folders)


def _home(folder: str, metadata: str, key: str, view: str) -> str:
    """The package's own folder; of an editable install, the one in its source tree."""
    text = procfs.read_text("%s/%s/direct_url.json" % (folder, metadata), 65536)
    if text:
        try:
            told = json.loads(text)
        except ValueError:
            told = {}
        url = told.get("url") if isinstance(told, dict) and isinstance(told.get("dir_info"), dict) else None
        if isinstance(url, str) and url.startswith("file:///") and told["dir_info"].get("editable"):
            for part in ("", "/python", "/src"):
                if os.path.isdir(view + url[7:] + part + "/" + key):
                    return view + url[7:] + part + "/" + key
    return folder + "/" + key
