"""Reads /proc and nothing else: every failure is a value (None or empty), never an exception; it judges nothing."""

from __future__ import annotations

import os
import pwd
import socket
import stat as stat_bits
import struct
import time
from typing import NamedTuple

PROC = "/proc"
MAX_ARGV_BYTES = 256 * 1024
MAX_ENVIRON_BYTES = 512 * 1024
MAX_TABLE_BYTES = 4 * 1024 * 1024
TCP_LISTEN = "0A"


class Stat(NamedTuple):
    """What /proc/PID/stat says. `start_ticks` with the pid names a process for ever."""

    pid: int
    ppid: int
    comm: str
    state: str
    start_ticks: int


class Listen(NamedTuple):
    """A listening TCP socket."""

    address: str
    port: int
    inode: int


def read_bytes(path: str, limit: int) -> bytes | None:
    """At most `limit` bytes of a file, None when it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return None
    try:
        if stat_bits.S_ISFIFO(os.fstat(fd).st_mode):
            return None
        chunks = []
        while limit > 0:
            chunk = os.read(fd, min(limit, 1 << 16))
            if not chunk:
                break
            chunks.append(chunk)
            limit -= len(chunk)
        return b"".join(chunks)
    except OSError:
        return None
    finally:
        os.close(fd)


def read_text(path: str, limit: int = 65536) -> str | None:
    """Like `read_bytes`, decoded; broken UTF-8 becomes U+FFFD."""
    data = read_bytes(path, limit)
    return None if data is None else data.decode("utf-8", "replace")


def pids() -> list[int]:
    """Every process this user can see."""
    try:
        return [int(name) for name in os.listdir(PROC) if name.isdigit()]
    except OSError:
        return []


def stat(pid: int) -> Stat | None:
    """The process's line of /proc/PID/stat."""
    text = read_text(f"{PROC}/{pid}/stat", 4096)
    if not text or ")" not in text:
        return None
    comm = text[text.find("(") + 1 : text.rfind(")")]
    rest = text[text.rfind(")") + 2 :].split()
    try:
        return Stat(pid, int(rest[1]), comm, rest[0], int(rest[19]))
    except (IndexError, ValueError):
        return None


def start_of(pid: int) -> int | None:
    """Start ticks of a process that lives, None when it ended (a zombie has ended)."""
    entry = stat(pid)
    return None if entry is None or entry.state in "ZX" else entry.start_ticks


def age_s(entry: Stat) -> float:
    """Seconds since a process started."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - entry.start_ticks / float(os.sysconf("SC_CLK_TCK"))


def ancestors(pid: int, known: dict[int, Stat | None] | None = None) -> list[Stat]:
    """The process and its parents, nearest first, without process 1. What is in `known` is not read again."""
    chain: list[Stat] = []
    known = {} if known is None else known
    while pid > 1 and len(chain) < 64:
        if pid not in known:
            known[pid] = stat(pid)
        entry = known[pid]
        if entry is None or any(entry.pid == seen.pid for seen in chain):
            break
        chain.append(entry)
        pid = entry.ppid
    return chain


def argv(pid: int) -> list[str]:
    """The argument vector; a process title is one element. Empty for kernel threads and the vanished."""
    data = read_bytes(f"{PROC}/{pid}/cmdline", MAX_ARGV_BYTES)
    if not data:
        return []
    text = data.decode("utf-8", "replace").rstrip("\0")
    return text.split("\0") if text else []


def environ(pid: int) -> dict[str, str] | None:
    """The environment a process was started with, None where not permitted."""
    data = read_bytes(f"{PROC}/{pid}/environ", MAX_ENVIRON_BYTES)
    return None if data is None else parse_environ(data)


def parse_environ(data: bytes) -> dict[str, str]:
    """`NAME=value` entries between zero bytes."""
    found: dict[str, str] = {}
    for item in data.decode("utf-8", "replace").split("\0"):
        name, equals, value = item.partition("=")
        if equals and name:
            found[name] = value
    return found


def link(pid: int, name: str) -> str | None:
    """Target of /proc/PID/NAME (`exe`, `cwd`, `fd/1`, `ns/net`), None where not permitted."""
    try:
        return os.readlink(f"{PROC}/{pid}/{name}")
    except OSError:
        return None


def fd_stat(pid: int, number: int) -> os.stat_result | None:
    """What an open file descriptor of a process refers to."""
    try:
        return os.stat(f"{PROC}/{pid}/fd/{number}")
    except OSError:
        return None


def same_namespace(pid: int, kind: str) -> bool | None:
    """Whether a process shares this one's `mnt`, `net` or `pid` namespace; None when it cannot be told."""
    theirs = link(pid, f"ns/{kind}")
    ours = link(os.getpid(), f"ns/{kind}")
    return None if theirs is None or ours is None else theirs == ours


def owner(pid: int) -> int | None:
    """User id that a process runs as."""
    try:
        return os.stat(f"{PROC}/{pid}").st_uid
    except OSError:
        return None


def user_name(uid: int | None) -> str | None:
    """Login name of a user id, the number where there is none."""
    if uid is None:
        return None
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def home_of(uid: int | None) -> str | None:
    """Home directory of a user id."""
    try:
        return None if uid is None else pwd.getpwuid(uid).pw_dir
    except KeyError:
        return None


def started_at(start_ticks: int) -> float | None:
    """Epoch seconds of a process's start."""
    text = read_text(f"{PROC}/stat", MAX_TABLE_BYTES) or ""
    for line in text.splitlines():
        if line.startswith("btime "):
            return float(line.split()[1]) + start_ticks / float(os.sysconf("SC_CLK_TCK"))
    return None


def cgroup(pid: int) -> list[str]:
    """Paths of a process's control groups, the unified hierarchy first."""
    text = read_text(f"{PROC}/{pid}/cgroup") or ""
    rows = [line.split(":", 2) for line in text.splitlines() if line.count(":") >= 2]
    rows.sort(key=lambda row: (row[0] != "0", "systemd" not in row[1]))
    return [row[2] for row in rows]


def file_descriptors(pid: int) -> dict[int, str] | None:
    """Open file descriptors and what they link to, None where not permitted."""
    folder = f"{PROC}/{pid}/fd"
    try:
        names = os.listdir(folder)
    except OSError:
        return None
    found: dict[int, str] = {}
    for name in names[:65536]:
        try:
            found[int(name)] = os.readlink(f"{folder}/{name}")
        except (OSError, ValueError):
            continue
    return found


def open_for_writing(pid: int, number: int) -> bool | None:
    """Whether a descriptor is open for writing."""
    text = read_text(f"{PROC}/{pid}/fdinfo/{number}", 4096)
    for line in (text or "").splitlines():
        if line.startswith("flags:"):
            return bool(int(line.split()[1], 8) & (os.O_WRONLY | os.O_RDWR))
    return None


def listening(pid: int) -> list[Listen]:
    """TCP sockets in state LISTEN in the process's network namespace, whoever owns them."""
    found = []
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        text = read_text(f"{PROC}/{pid}/net/{table}", MAX_TABLE_BYTES) or ""
        for line in text.splitlines()[1:]:
            fields = line.split()
            if len(fields) > 9 and fields[3] == TCP_LISTEN:
                host, _, port = fields[1].partition(":")
                found.append(Listen(_address(host, family), int(port, 16), int(fields[9])))
    return found


def _address(text: str, family: socket.AddressFamily) -> str:
    words = [int(text[at : at + 8], 16) for at in range(0, len(text), 8)]
    return socket.inet_ntop(family, b"".join(struct.pack("=I", word) for word in words))


def socket_inodes(pid: int) -> set[int] | None:
    """Inodes of the sockets a process holds, None where not permitted."""
    table = file_descriptors(pid)
    if table is None:
        return None
    return {int(target[8:-1]) for target in table.values() if target.startswith("socket:[")}


def local_addresses(pid: int) -> list[str]:
    """IPv4 addresses of the process's network namespace, loopback left out."""
    text = read_text(f"{PROC}/{pid}/net/fib_trie", MAX_TABLE_BYTES) or ""
    found: list[str] = []
    address = ""
    for line in text.splitlines():
        words = line.split()
        if len(words) == 2 and words[0] == "|--":
            address = words[1]
        elif "host LOCAL" in line and not address.startswith("127.") and address not in found:
            found.append(address)
    return found


def mapped_folders(pid: int, marks: tuple[str, ...] = ("/site-packages/", "/dist-packages/")) -> list[str]:
    """Package folders that a process has shared libraries mapped from; empty where not permitted."""
    text = read_text(f"{PROC}/{pid}/maps", MAX_TABLE_BYTES) or ""
    found: list[str] = []
    for line in text.splitlines():
        for mark in marks:
            at = line.find(mark)
            if at > 0:
                folder = line[line.find("/") : at + len(mark) - 1]
                if folder not in found:
                    found.append(folder)
    return found
