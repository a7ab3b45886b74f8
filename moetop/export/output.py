"""Where snapshots go: standard output or a private file, replaced as a whole. Checked before anything is sampled."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

from moetop.errors import UsageError
from moetop.model import Snapshot
from moetop.stdout import unwritable_stdout
from moetop.text import plain

if TYPE_CHECKING:
    from moetop.export.sparks import SeriesSource

FORMATS = ("json", "csv", "md", "svg")


class Writer(Protocol):
    """Writes a snapshot in one format. `series` has the course of its values, for those formats that show it."""

    def __call__(self, snapshot: Snapshot, series: SeriesSource | None = None) -> bytes: ...


def _momentary(write: Callable[[Snapshot], bytes]) -> Writer:
    """A writer of a format that shows one moment."""
    return lambda snapshot, series=None: write(snapshot)


def writer_for(form: str) -> Writer:
    """The function that writes `form`; loads only what it needs."""
    if form == "json":
        from moetop.export.json_writer import write_json

        return _momentary(write_json)
    if form == "csv":
        from moetop.export.csv_writer import write_csv

        return _momentary(write_csv)
    if form == "md":
        from moetop.export.md_writer import write_md

        return write_md
    if form == "svg":
        from moetop.export.svg_writer import write_svg

        return _momentary(write_svg)
    raise UsageError(f"unknown format {plain(form, 40)!r}", f"use one of {', '.join(FORMATS)}")


class Output(Protocol):
    """A place for snapshots in one format."""

    def write(self, snapshot: Snapshot, series: SeriesSource | None = None) -> None:
        """Write one snapshot as the whole content."""

    def write_line(self, snapshot: Snapshot) -> None:
        """Add one snapshot as a line of JSON."""


class _Stream:
    """Standard output. A reader that went away raises BrokenPipeError, which the caller takes as a normal end."""

    def __init__(self, stream: BinaryIO, form: str) -> None:
        self._stream = stream
        self._write = writer_for(form)

    def _put(self, data: bytes) -> None:
        try:
            self._stream.write(data)
            self._stream.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise unwritable_stdout(error) from None

    def write(self, snapshot: Snapshot, series: SeriesSource | None = None) -> None:
        self._put(self._write(snapshot, series))

    def write_line(self, snapshot: Snapshot) -> None:
        from moetop.export.json_writer import write_json_line

        self._put(write_json_line(snapshot))


class _File:
    """A regular file: `write` replaces it in one step, `write_line` adds to it. Both leave mode 0600."""

    def __init__(self, path: Path, form: str) -> None:
        self._path = path
        self._write = writer_for(form)

    def write(self, snapshot: Snapshot, series: SeriesSource | None = None) -> None:
        replace_file(self._path, self._write(snapshot, series))

    def write_line(self, snapshot: Snapshot) -> None:
        from moetop.export.json_writer import write_json_line

        try:
            append_private(self._path, write_json_line(snapshot))
        except OSError as error:
            raise unwritable(self._path, error) from None


class _Device:
    """Something that is not a regular file (a pipe, /dev/null): opened at the first write, never replaced."""

    def __init__(self, path: Path, form: str) -> None:
        self._path = path
        self._form = form
        self._stream: _Stream | None = None

    def _opened(self) -> _Stream:
        if self._stream is None:
            try:
                self._stream = _Stream(self._path.open("wb"), self._form)
            except OSError as error:
                raise unwritable(self._path, error) from None
        return self._stream

    def write(self, snapshot: Snapshot, series: SeriesSource | None = None) -> None:
        self._opened().write(snapshot, series)

    def write_line(self, snapshot: Snapshot) -> None:
        self._opened().write_line(snapshot)


def unwritable(path: Path, error: OSError) -> UsageError:
    """The error for a path that cannot be written."""
    return UsageError(f"{plain(str(path), 300)} cannot be written: {error.strerror or error}")


def replace_file(path: Path, data: bytes) -> None:
    """Write `data` to `path` in one step with mode 0600: a reader sees the old content or the new, never half.

    Raises UsageError; the old content then stands and nothing is left beside it.
    """
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name[:100]}.", suffix=".part", dir=path.parent)
    except OSError as error:
        raise unwritable(path, error) from None
    part = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise unwritable(path, error) from None
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def append_private(path: Path, data: bytes) -> None:
    """Add `data` to `path`, created with mode 0600; a line that an earlier writer left unfinished is ended first."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "r+b", buffering=0) as file:
        os.fchmod(file.fileno(), 0o600)
        if file.seek(0, os.SEEK_END) > 0:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                data = b"\n" + data
        view = memoryview(data)
        while view:
            view = view[file.write(view) :]


def open_output(target: str, form: str = "json") -> Output:
    """The place that `target` names; `-` is standard output. Raises UsageError where it cannot be written."""
    if target == "-":
        if sys.stdout is None or sys.stdout.closed:
            raise UsageError("standard output is closed", "name a file instead of -")
        return _Stream(sys.stdout.buffer, form)
    if not target or "\0" in target:
        raise UsageError("the output file's name is empty or holds NUL")
    path = Path(target).expanduser()
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        mode = None
    except OSError as error:
        raise unwritable(path, error) from None
    if mode is not None and stat.S_ISDIR(mode):
        raise UsageError(f"{plain(target, 300)} is a folder", "name a file")
    if mode is not None and not stat.S_ISREG(mode):
        if not os.access(path, os.W_OK):
            raise UsageError(f"{plain(target, 300)} cannot be written: Permission denied")
        return _Device(path, form)
    path = path.resolve()
    _try_folder(path, target)
    return _File(path, form)


def _try_folder(path: Path, shown: str) -> None:
    """Make and drop a file beside `path`: the only sure sign that it can be written later."""
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except FileNotFoundError:
        raise UsageError(f"{plain(shown, 300)} cannot be written: its folder does not exist") from None
    except OSError as error:
        raise UsageError(f"{plain(shown, 300)} cannot be written: {error.strerror}") from None
