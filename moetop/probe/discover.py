"""Finds the serving processes of a host in /proc, without configuration and without asking them anything."""

from __future__ import annotations

import os
import re
from typing import Any, Iterable

from . import asroot, procfs
from .launch import DEFAULT_PORTS, Launch, flat_settings, launch_of, parse_arguments, title_engine
from .logplace import Place, find_place, manager_of
from .redact import redact_argv, redact_env
from .versions import Packages, package_folders, read_packages, view_of

# A process may become a server by executing another program, so none is passed over for good. Looking costs 15
# microseconds a process, and big hosts have thousands, most of them kernel threads.
FRESH_PASSES = 12  # a process seen so often and still no engine becomes boring:
BORING_PASSES = 6  # it is looked at again only after so many passes
OLD_S = 60.0  # one that was this old when first seen is boring at once
KERNEL_PASSES = 60  # and one without a command line (a kernel thread, a zombie) for longer,
KERNEL_SEEN = 3  # once that was seen so often: a process in the middle of its start has none either
PORT_PASSES = 12  # the kernel's table of sockets is slow to read (8 ms): once a server listens, seldom
MAX_SETTINGS_BYTES = 256 * 1024

# Environment that decides what an engine does or where it reads and writes; anything else stays on the host.
ENV_PREFIXES = ("FLASHINFER_", "SGLANG_", "SGL_", "VLLM_", "TLLM_", "TRTLLM_", "TRITON_", "NCCL_", "DG_", "CUTLASS_")
ENV_NAMES = (
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING",
    "CUDA_HOME",
    "NVIDIA_VISIBLE_DEVICES",
    "OMP_NUM_THREADS",
    "PYTHONUNBUFFERED",
    "PYTHONPATH",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "HOME",
    "XDG_CACHE_HOME",
    "HF_HOME",
    "HF_HUB_CACHE",
    "TORCHINDUCTOR_CACHE_DIR",
    "TORCH_CUDA_ARCH_LIST",
    "TORCH_NCCL_AVOID_RECORD_STREAMS",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
    "INVOCATION_ID",
)
SECRET_NAME = re.compile(r"(?i)key|token|secret|passw|credential|auth(?!orit)")
# Arguments that name a settings file in which further arguments stand.
SETTINGS_ARGUMENTS = {"vllm": "config", "sglang": "config", "tensorrt_llm": "extra_llm_api_options"}


class Found:
    """One serving process, as far as it may be looked into."""

    def __init__(self, pid: int, start_ticks: int, engine: str, launch: Launch | None, argv: list[str]) -> None:
        self.pid = pid
        self.start_ticks = start_ticks
        self.engine = engine
        self.launch = launch
        self.argv = argv
        self.name = ""
        self.args: dict[str, Any] = {}
        self.env: dict[str, str] = {}
        self.cwd: str | None = None
        self.user: str | None = None
        self.uid: int | None = None
        self.home: str | None = None
        self.started: float | None = None
        self.manager = "plain"
        self.place: Place = Place({"kind": "none"}, None, [])
        self.port: int | None = None
        self.address: str | None = None
        self.listens = False
        self.port_again = 0
        self.view: str | None = ""
        self.packages = Packages({}, {}, [])
        self.gpus: tuple[int, ...] = ()
        self.family: set[int] = set()
        self.notes: list[str] = []

    @property
    def key(self) -> tuple[int, int]:
        """What names a process for ever."""
        return (self.pid, self.start_ticks)


class Finder:
    """Looks through /proc again and again; remembers what it knows of processes that go on."""

    def __init__(self, sudo: bool = False) -> None:
        self._sudo = sudo
        self._known: dict[tuple[int, int], Found] = {}
        self._boring: dict[int, tuple[int, int]] = {}
        self._pass = 0
        self._stats: dict[int, procfs.Stat | None] = {}  # of this pass
        self._places: dict[tuple[int, int], tuple[object, Place]] = {}

    def find(self, gpu_pids: dict[int, list[int]]) -> list[Found]:
        """The serving processes there are now, oldest first."""
        launches, titled = self._look_through()
        roots = self._roots(launches, titled)
        found = []
        for pid, (engine, launch, argv) in roots.items():
            entry = self._stats.get(pid) or procfs.stat(pid)
            if entry is None or entry.state in "ZX":
                continue
            known = self._known.get((pid, entry.start_ticks))
            if known is None or known.argv != redact_argv(argv):
                known = _describe(pid, entry.start_ticks, engine, launch, argv, self._sudo)
            found.append(known)
        self._families(found, launches, titled, gpu_pids)
        sockets: dict[object, list[procfs.Listen]] = {}
        for server in found:
            self._refresh(server, sockets)
        self._known = {server.key: server for server in found}
        return sorted(found, key=lambda server: server.key[1])

    def _look_through(self) -> tuple[dict[int, tuple[Launch, list[str]]], dict[int, str]]:
        self._pass += 1
        self._stats = {}
        launches: dict[int, tuple[Launch, list[str]]] = {}
        titled: dict[int, str] = {}
        present = procfs.pids()
        for pid in present:
            seen, again = self._boring.get(pid, (0, 0))
            if again > self._pass:
                continue
            argv = procfs.argv(pid)
            launch = launch_of(argv)
            title = title_engine(argv) if launch is None else None
            if launch is not None and (launch.interpreter is not None or _is_python(pid)):
                launches[pid] = (launch, argv)
            elif title is not None:
                titled[pid] = title
            else:
                self._leave(pid, argv, seen)
        alive = set(present)
        self._boring = {pid: kept for pid, kept in self._boring.items() if pid in alive}
        return launches, titled

    def _leave(self, pid: int, argv: list[str], seen: int) -> None:
        """Leave a process alone for some passes that was no engine, now and `seen` times before."""
        seen += 1
        if not argv:
            rest = KERNEL_PASSES if seen >= KERNEL_SEEN else 1
        else:
            entry = procfs.stat(pid) if seen == 1 else None
            if entry is not None and procfs.age_s(entry) > OLD_S:
                seen = FRESH_PASSES + 1
            rest = BORING_PASSES if seen > FRESH_PASSES else 1
        self._boring[pid] = (seen, self._pass + rest)

    def _roots(
        self, launches: dict[int, tuple[Launch, list[str]]], titled: dict[int, str]
    ) -> dict[int, tuple[str, Launch | None, list[str]]]:
        """Serving parents: a forked copy is a child of the process whose command line it still carries."""
        roots: dict[int, tuple[str, Launch | None, list[str]]] = {}
        for pid, (launch, argv) in launches.items():
            above = [entry.pid for entry in procfs.ancestors(pid, self._stats)[1:]]
            if not any(up in launches and launches[up][1] == argv for up in above):
                roots[pid] = (launch.engine, launch, argv)
        for pid, engine in titled.items():
            chain = procfs.ancestors(pid, self._stats)
            if not chain or any(entry.pid in launches for entry in chain):
                continue
            parent = next((entry for entry in chain if entry.pid not in titled), None)
            if parent is not None and _is_python(parent.pid):
                roots[parent.pid] = (engine, None, procfs.argv(parent.pid))
            else:
                top = [entry.pid for entry in chain if entry.pid in titled][-1]
                roots[top] = (engine, None, procfs.argv(top))
        return roots

    def _families(
        self,
        found: list[Found],
        launches: dict[int, tuple[Launch, list[str]]],
        titled: dict[int, str],
        gpu_pids: dict[int, list[int]],
    ) -> None:
        """Which processes and GPUs belong to which server."""
        by_pid = {server.pid: server for server in found}
        for server in found:
            server.family = {server.pid}
        groups = {server.pid: procfs.cgroup(server.pid)[:1] for server in found}
        users: dict[int, set[int]] = {server.pid: set() for server in found}
        for pid in {*launches, *titled, *(pid for pids in gpu_pids.values() for pid in pids)}:
            root = next((entry.pid for entry in procfs.ancestors(pid, self._stats) if entry.pid in by_pid), None)
            if root is None:
                root = _same_container(pid, groups)
            if root is not None:
                by_pid[root].family.add(pid)
                users[root] |= {gpu for gpu, pids in gpu_pids.items() if pid in pids}
        for server in found:
            server.gpus = tuple(sorted(users[server.pid]))

    def _refresh(self, server: Found, sockets: dict[object, list[procfs.Listen]]) -> None:
        """What can change while a server runs: its sockets and where its output goes."""
        if not server.listens or self._pass >= server.port_again:
            space = procfs.link(server.pid, "ns/net")
            if space not in sockets:
                sockets[space] = procfs.listening(server.pid)
            _find_port(server, sockets[space])
            server.port_again = self._pass + PORT_PASSES
        links = tuple(procfs.link(server.pid, "fd/%d" % number) for number in (1, 2))
        kept = self._places.get(server.key)
        if kept is None or kept[0] != links:
            place = find_place(server.pid, server.engine, server.manager, server.user, self._sudo)
            self._places[server.key] = (links, place)
        server.place = self._places[server.key][1]


def _is_python(pid: int) -> bool:
    """Whether a process runs a Python; when its program may not be seen, the benefit of the doubt."""
    exe = procfs.link(pid, "exe")
    return exe is None or os.path.basename(exe).startswith(("python", "pypy"))


def _same_container(pid: int, groups: dict[int, list[str]]) -> int | None:
    """A worker that is no descendant (mpirun, Ray) but lives in the one container of a server."""
    mine = procfs.cgroup(pid)[:1]
    if not mine or manager_of(mine).split(":", maxsplit=1)[0] not in ("docker", "podman", "containerd"):
        return None
    owners = [root for root, group in groups.items() if group == mine]
    return owners[0] if len(owners) == 1 else None


def _describe(
    pid: int, start_ticks: int, engine: str, launch: Launch | None, argv: list[str], sudo: bool = False
) -> Found:
    """Everything that stays the same while a process lives."""
    server = Found(pid, start_ticks, engine, launch, redact_argv(argv))
    server.uid = procfs.owner(pid)
    server.user = procfs.user_name(server.uid)
    server.started = procfs.started_at(start_ticks)
    server.manager = manager_of(procfs.cgroup(pid))
    server.cwd = procfs.link(pid, "cwd")
    server.view = view_of(pid)
    full = procfs.environ(pid)
    if full is None and sudo:
        full = asroot.environ(pid)
        server.cwd = server.cwd or asroot.link(pid, "cwd")
    if full is None:
        server.notes.append(
            "it runs as %s; its environment and files may not be read by this user" % (server.user or "another user")
        )
    env = full or {}
    server.env = relevant_env(env)
    server.home = env.get("HOME") or procfs.home_of(server.uid)
    server.args = parse_arguments(engine, launch.rest) if launch else {}
    _read_settings(server)
    _read_versions(server, env, launch)
    if launch is None and title_engine(argv) is not None:
        server.notes.append(
            "its serving parent is gone: a left-over engine process that may still hold GPU memory (pid %d)" % pid
        )
    elif launch is None:
        server.notes.append("the engine runs inside another program; its arguments are not known from outside")
    return server


def relevant_env(env: dict[str, str]) -> dict[str, str]:
    """The variables that matter, never a secret."""
    wanted = {
        name: value[:4096]
        for name, value in env.items()
        if (name in ENV_NAMES or name.startswith(ENV_PREFIXES)) and not SECRET_NAME.search(name)
    }
    return redact_env(wanted)


def _read_settings(server: Found) -> None:
    """Arguments that stand in a settings file; the command line wins over them."""
    name = SETTINGS_ARGUMENTS.get(server.engine)
    path = server.args.get(name) if name else None
    if not isinstance(path, str):
        return
    full = os.path.join(server.cwd or "/", path)
    text = procfs.read_text((server.view or "") + full, MAX_SETTINGS_BYTES)
    if text is None:
        server.notes.append("its settings file %s could not be read" % full)
        return
    for key, value in flat_settings(text).items():
        server.args.setdefault(key, value)


def _read_versions(server: Found, env: dict[str, str], launch: Launch | None) -> None:
    if server.view is None and server.manager.split(":", maxsplit=1)[0] in ("docker", "podman", "containerd"):
        server.notes.append("versions are unknown: the container's files may not be read by this user")
        return
    view = server.view or ""
    interpreter = launch.interpreter if launch else None
    script = launch.script if launch else None
    folders = package_folders(server.pid, view, interpreter, script, env, server.home)
    server.packages = read_packages(folders, view)
    if server.engine not in server.packages.versions:
        server.notes.append("the version of %s was not found in the packages of its Python" % server.engine)


def _find_port(server: Found, sockets: list[procfs.Listen]) -> None:
    """The port from the arguments or the engine's default, and whether a socket of the server listens on it.

    Other sockets of an engine (rendezvous, message queues) are never taken for its HTTP port.
    """
    told = server.args.get("port")
    wanted = told if isinstance(told, int) and told > 0 else DEFAULT_PORTS.get(server.engine)
    inodes: set[int] = set()
    readable = False
    for pid in sorted(server.family)[:64]:
        mine = procfs.socket_inodes(pid)
        readable = readable or mine is not None
        inodes |= mine or set()
    own = [entry for entry in sockets if entry.inode in inodes] if readable else sockets
    exact = [entry for entry in own if entry.port == wanted]
    server.listens = bool(exact)
    server.port = wanted if server.launch is not None else None
    server.address = exact[0].address if exact else None


def name_servers(found: Iterable[Found], taken: dict[tuple[int, int], str]) -> dict[tuple[int, int], str]:
    """Names, unique and the same after a restart on the same port: `sglang:8000`, `vllm:8000/3f2a...`."""
    names: dict[tuple[int, int], str] = {}
    for server in found:
        if server.key in taken and taken[server.key] not in names.values():
            names[server.key] = taken[server.key]
    for server in found:
        if server.key in names:
            continue
        base = "%s:%d" % (server.engine, server.port) if server.port else server.engine
        name, number = base, 1
        while name in names.values():
            number += 1
            name = "%s#%d" % (base, number)
        names[server.key] = name
    return names
