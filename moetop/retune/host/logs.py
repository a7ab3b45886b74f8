"""Reading what the server writes after a point: a file, its unit's journal or its container's log; bounded."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path
from typing import Any

MAX_BYTES_A_READ = 1 << 20
READ_TIMEOUT_S = 20.0
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class LogTail:
    """New lines of one log since it was opened here. `place` is `{kind, target, user?}`."""

    def __init__(self, place: dict[str, Any], mark: dict[str, Any] | None = None) -> None:
        self._place = place
        self._rest = b""
        self._cursor = ""
        self._offset, self._seen_at = 0, None  # type: int, tuple[int, int] | None
        self._since = mark["since"] if mark else time.time()
        facts = self._stat() if place.get("kind") == "file" else None
        if facts is not None:
            self._seen_at, self._offset = facts
            if mark and mark.get("offset", 0) <= facts[1]:
                self._offset = mark.get("offset", 0)

    def mark(self) -> dict[str, Any]:
        """Where reading goes on, for a runner that takes over."""
        return {"offset": self._offset, "since": self._since}

    def _stat(self) -> tuple[tuple[int, int], int] | None:
        try:
            facts = Path(self._place["target"]).stat()
        except OSError:
            return None
        return (facts.st_dev, facts.st_ino), facts.st_size

    def lines(self) -> list[str]:
        """What was written since the last call, without colours; a bar's steps count as lines."""
        kind = self._place.get("kind")
        if kind == "file":
            raw = self._read_file()
        elif kind == "journal":
            raw = self._read_journal()
        elif kind == "container":
            raw = self._read_container()
        else:
            return []
        parts = re.split(rb"[\r\n]+", self._rest + raw)
        self._rest = parts.pop()[-65536:]
        return [_ANSI.sub("", part.decode("utf-8", "replace")) for part in parts if part]

    def _read_file(self) -> bytes:
        facts = self._stat()
        if facts is None:
            return b""
        if (self._seen_at is not None and facts[0] != self._seen_at) or facts[1] < self._offset:
            self._offset = 0
        self._seen_at = facts[0]
        try:
            with Path(self._place["target"]).open("rb") as stream:
                if facts[1] - self._offset > MAX_BYTES_A_READ:
                    self._offset = facts[1] - MAX_BYTES_A_READ
                stream.seek(self._offset)
                raw = stream.read(MAX_BYTES_A_READ)
        except OSError:
            return b""
        self._offset += len(raw)
        return raw

    def _command(self, argv: list[str]) -> bytes:
        try:
            done = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=READ_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return b""
        return done.stdout[-MAX_BYTES_A_READ:]

    def _read_journal(self) -> bytes:
        argv = ["journalctl", "--no-pager", "-o", "cat", "--show-cursor", "-n", "4000"]
        argv += ["--user-unit" if self._place.get("user") else "-u", self._place["target"]]
        argv += ["--after-cursor=" + self._cursor] if self._cursor else [f"--since=@{self._since:.0f}"]
        raw = self._command(argv)
        body, mark, cursor = raw.rpartition(b"-- cursor: ")
        if mark:
            self._cursor = cursor.decode("ascii", "replace").strip()
            return body
        return b""

    def _read_container(self) -> bytes:
        now = time.time()
        engine, _, name = self._place["target"].partition(":")
        raw = self._command([engine, "logs", "--since", f"{self._since:.3f}", "--until", f"{now:.3f}", name])
        self._since = now
        return raw
