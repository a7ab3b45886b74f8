"""Hosts that stand elsewhere: in a list of one's own, or as aliases in ssh_config. Reads files, resolves nothing."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from moetop.errors import UsageError
from moetop.text import plain

MAX_BYTES = 1 << 20
"""Largest file read (judgement: 4,000 names of the greatest length take it)."""

MAX_FILES = 64
MAX_INCLUDE_DEPTH = 16
"""As in OpenSSH (readconf.c, READCONF_MAX_DEPTH 16)."""

_COMMENT = re.compile(r"(?:^|\s)#.*")
_WORDS = re.compile(r'"([^"]*)"|(\S+)')


@dataclass(frozen=True)
class Named:
    """A host as it stands somewhere: the text and where, as `file:line`."""

    text: str
    where: str


def read_hosts_file(path: Path) -> list[Named]:
    """The hosts of a list: one or more a line, `#` begins a comment. Raises UsageError."""
    shown = plain(str(path), 300)
    found = [
        Named(word, f"{shown}:{number}")
        for number, line in enumerate(_read(path, shown).splitlines(), 1)
        for word in _COMMENT.sub("", line).split()
    ]
    if not found:
        raise UsageError(f"{shown} names no host", "write one host a line")
    return found


def ssh_config_path() -> Path:
    """The user's ssh_config; MOETOP_SSH_CONFIG names another one."""
    return Path(os.environ.get("MOETOP_SSH_CONFIG") or "~/.ssh/config").expanduser()


def ssh_aliases(pattern: str, path: Path | None = None) -> list[Named]:
    """The `Host` aliases of ssh_config that match `pattern` (as in ssh_config: `*`, `?`, `!` and commas), in the
    order of the file, each once. Raises UsageError."""
    path = ssh_config_path() if path is None else path
    shown = plain(str(path), 300)
    wanted = [word for word in re.split(r"[\s,]+", pattern) if word]
    seen: dict[str, Named] = {}
    for alias in _aliases(path, _Budget(), 0):
        if alias.text not in seen and _matches(alias.text, wanted):
            seen[alias.text] = alias
    if not seen:
        raise UsageError(f"no Host in {shown} matches {plain(pattern, 80)!r}", "names with * or ? are not counted")
    return list(seen.values())


def _matches(name: str, wanted: list[str]) -> bool:
    """OpenSSH's pattern list: any that fits, none negated that fits."""
    fits = {word: fnmatch.fnmatchcase(name, word.lstrip("!").replace("[", "[[]")) for word in wanted}
    return any(hit for word, hit in fits.items() if not word.startswith("!")) and not any(
        hit for word, hit in fits.items() if word.startswith("!")
    )


class _Budget:
    """How many files are still read: Include may name the same file again and again."""

    def __init__(self) -> None:
        self.left = MAX_FILES


def _aliases(path: Path, budget: _Budget, depth: int) -> Iterator[Named]:
    """Aliases of one file and of those it includes, where they are included."""
    shown = plain(str(path), 300)
    budget.left -= 1
    if budget.left < 0 or depth > MAX_INCLUDE_DEPTH:
        raise UsageError(f"{shown}: Include names too many files", f"at most {MAX_FILES}")
    for number, line in enumerate(_read(path, shown).splitlines(), 1):
        key, _, rest = line.strip().replace("\t", " ").replace("=", " ", 1).partition(" ")
        words = [quoted or bare for quoted, bare in _WORDS.findall(_COMMENT.sub("", rest))]
        if key.lower() == "host":
            for word in words:
                if not set("*?!") & set(word):
                    yield Named(word, f"{shown}:{number}")
        elif key.lower() == "include":
            for word in words:
                for included in _included(word):
                    yield from _aliases(included, budget, depth + 1)


def _included(word: str) -> list[Path]:
    """Files an Include names: from ~/.ssh where it is relative, with wildcards."""
    path = Path(word).expanduser()
    whole = path if path.is_absolute() else Path("~/.ssh").expanduser() / path
    pattern = str(whole.relative_to(whole.anchor))
    return sorted(found for found in Path(whole.anchor).glob(pattern) if found.is_file())[: MAX_FILES + 1]


def _read(path: Path, shown: str) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{shown} cannot be read: {(error.strerror or str(error)).lower()}") from None
    if len(data) > MAX_BYTES:
        raise UsageError(f"{shown} is larger than {MAX_BYTES >> 20} MiB")
    return data.decode("utf-8", "replace")
