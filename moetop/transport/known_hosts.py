"""known_hosts as OpenSSH reads it, line by line and forgivingly; says what a host key is, asks nobody.

Format: sshd(8), "SSH_KNOWN_HOSTS FILE FORMAT". A bad line is skipped with a warning and never hides
the lines after it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import struct
import threading
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from pathlib import Path

from moetop.errors import LinkError

NEGOTIABLE = frozenset({"ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "ssh-rsa"})
"""Key types (as known_hosts spells them) that paramiko 5.1 can verify."""

MAX_FILE_BYTES = 64 * 1024 * 1024
MAX_LINE_CHARS = 64 * 1024

_append_lock = threading.Lock()


class Marker(Enum):
    """What a line's first word may say."""

    NONE = ""
    CERT_AUTHORITY = "@cert-authority"
    REVOKED = "@revoked"


class Standing(Enum):
    """What known_hosts says of a key."""

    KNOWN = "known"
    UNKNOWN = "unknown"
    CHANGED = "changed"
    REVOKED = "revoked"
    CERTIFIED = "certified"  # only a certificate authority is known for this host


@dataclass(frozen=True, slots=True)
class Entry:
    """One line: for which names, which key. `path` and `line` say where it stands."""

    names: str
    key_type: str
    blob: bytes
    marker: Marker
    path: str
    line: int

    def covers(self, name: str) -> bool:
        """Whether the line speaks of `name` (`host` or `[host]:port`)."""
        if self.names.startswith("|1|"):
            return _hash_matches(self.names, name)
        matched = False
        for pattern in self.names.lower().split(","):
            negated = pattern.startswith("!")
            if pattern and wildcard_matches(pattern.lstrip("!"), name.lower()):
                if negated:
                    return False
                matched = True
        return matched


def wildcard_matches(pattern: str, name: str) -> bool:
    """OpenSSH's pattern: `*` any run, `?` any one letter, nothing else is special.

    Goes back to the last star only, so that no pattern takes long.
    """
    at, star, marked = 0, -1, 0
    place = 0
    while place < len(name):
        if at < len(pattern) and pattern[at] == "*":
            star, marked = at, place
            at += 1
        elif at < len(pattern) and pattern[at] in ("?", name[place]):
            at += 1
            place += 1
        elif star >= 0:
            at = star + 1
            marked += 1
            place = marked
        else:
            return False
    return not pattern[at:].strip("*")


def _hash_matches(hashed: str, name: str) -> bool:
    parts = hashed.split("|")
    if len(parts) != 4:
        return False
    try:
        salt, wanted = base64.b64decode(parts[2]), base64.b64decode(parts[3])
    except (binascii.Error, ValueError):
        return False
    return hmac.compare_digest(hmac.new(salt, name.encode("utf-8", "replace"), hashlib.sha1).digest(), wanted)


def hash_name(name: str) -> str:
    """`name` as HashKnownHosts writes it."""
    salt = os.urandom(20)
    digest = hmac.new(salt, name.encode(), hashlib.sha1).digest()
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"


def host_key_name(host: str, port: int) -> str:
    """The name under which a host's key is kept."""
    return host.lower() if port == 22 else f"[{host.lower()}]:{port}"


def fingerprint(blob: bytes) -> str:
    """A key's fingerprint as `ssh-keygen -l` prints it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def parse_line(text: str, path: str, number: int) -> Entry | str | None:
    """One line of the file: an Entry, None for a comment, or a sentence on what is wrong with it."""
    text = text.strip()
    if not text or text.startswith("#"):
        return None
    where = f"{path}:{number}"
    if len(text) > MAX_LINE_CHARS:
        return f"{where}: line too long"
    fields = text.split()
    marker = Marker.NONE
    if fields[0].startswith("@"):
        found = [known for known in Marker if known.value == fields[0]]
        if not found:
            return f"{where}: unknown marker"
        marker = found[0]
        fields = fields[1:]
    if len(fields) < 3:
        return f"{where}: not a host key"
    names, key_type, encoded = fields[:3]
    try:
        blob = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return f"{where}: the key is not base64"
    if _type_of(blob) != key_type:
        return f"{where}: the key is not of the type it says"
    return Entry(names, key_type, blob, marker, path, number)


def _type_of(blob: bytes) -> str | None:
    """The algorithm name inside a public key."""
    if len(blob) < 4:
        return None
    (length,) = struct.unpack(">I", blob[:4])
    return blob[4 : 4 + length].decode("ascii", "replace") if 4 + length <= len(blob) else None


@dataclass(frozen=True, slots=True)
class Judged:
    """The standing of a key and the line that decided."""

    standing: Standing
    entry: Entry | None = None


@lru_cache(maxsize=16)
def _read_file(path: Path, mtime_ns: int, size: int) -> tuple[tuple[Entry, ...], tuple[str, ...]]:
    """Entries and warnings of one file; the arguments beside the path make a changed file a new one."""
    text = path.read_bytes().decode("utf-8", "replace")
    parsed = [parse_line(line, str(path), number) for number, line in enumerate(text.split("\n"), start=1)]
    entries = tuple(entry for entry in parsed if isinstance(entry, Entry))
    return entries, tuple(entry for entry in parsed if isinstance(entry, str))


class KnownHosts:
    """The entries of several files, read once. `warnings` are sentences about skipped lines."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self.entries: list[Entry] = []
        self.warnings: list[str] = []
        for path in paths:
            self._load(path)

    def _load(self, path: Path) -> None:
        try:
            if not path.is_file():
                return
            stat = path.stat()
            if stat.st_size > MAX_FILE_BYTES:
                self.warnings.append(f"{path} is too large to be read")
                return
            entries, warnings = _read_file(path, stat.st_mtime_ns, stat.st_size)
        except OSError as error:
            self.warnings.append(f"{path} cannot be read: {(error.strerror or str(error)).lower()}")
            return
        self.entries.extend(entries)
        self.warnings.extend(warnings)

    def key_types(self, names: Sequence[str]) -> list[str]:
        """Types of the keys known for any of `names`, first seen first."""
        found: dict[str, None] = {}
        for entry in self.entries:
            if entry.marker is Marker.NONE and any(entry.covers(name) for name in names):
                found[entry.key_type] = None
        return list(found)

    def judge(
        self,
        name: str,
        key_type: str,
        blob: bytes,
        *,
        plain_name: str | None = None,
        negotiable: Collection[str] = NEGOTIABLE,
    ) -> Judged:
        """What is known of this key for `name`.

        `plain_name` is the name without its port: a key kept under it is accepted too, as OpenSSH
        does. A host of which only keys of other types are known counts as changed: the key types
        were negotiated in the order of the known ones, so the host no longer has them. Types that
        cannot be negotiated (not in `negotiable`) say nothing.
        """
        for entry in self.entries:
            named = entry.covers(name) or (plain_name is not None and entry.covers(plain_name))
            if entry.marker is Marker.REVOKED and entry.blob == blob and named:
                return Judged(Standing.REVOKED, entry)
        own = [
            entry
            for entry in self.entries
            if entry.marker is Marker.NONE and entry.key_type in negotiable and entry.covers(name)
        ]
        for entry in own:
            if entry.blob == blob:
                return Judged(Standing.KNOWN, entry)
        if not own and plain_name is not None and plain_name != name:
            for entry in self.entries:
                if entry.marker is Marker.NONE and entry.blob == blob and entry.covers(plain_name):
                    return Judged(Standing.KNOWN, entry)
        if own:
            same_type = [entry for entry in own if entry.key_type == key_type]
            return Judged(Standing.CHANGED, (same_type or own)[0])
        for entry in self.entries:
            if entry.marker is Marker.CERT_AUTHORITY and entry.covers(name):
                return Judged(Standing.CERTIFIED, entry)
        return Judged(Standing.UNKNOWN)


def append_key(path: Path, name: str, key_type: str, blob: bytes, *, hashed: bool = False) -> None:
    """Add a key in one write to the end of the file, made private where it is new. Raises LinkError."""
    line = f"{hash_name(name) if hashed else name} {key_type} {base64.b64encode(blob).decode()}\n".encode()
    with _append_lock:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            number = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                size = os.lseek(number, 0, os.SEEK_END)
                if size and os.pread(number, 1, size - 1) != b"\n":
                    line = b"\n" + line
                os.write(number, line)
            finally:
                os.close(number)
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise LinkError(
                f"the new host key cannot be kept in {path}: {why}", code="known_hosts", retry=False
            ) from error
