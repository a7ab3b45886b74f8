"""Runs the screen over a session: what its keys do besides looking. Draws nothing itself."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from pathlib import Path

from moetop.asking import Question, person
from moetop.config import Config
from moetop.errors import ExitCode, UsageError
from moetop.export.output import open_output, replace_file
from moetop.jobdesk import JobDesk
from moetop.places import state_folder
from moetop.reload import Reloader
from moetop.session import Session
from moetop.ui.app import run
from moetop.ui.feed import JobView, NoActions, Playback, RetunePlan

TEXT_SUFFIXES = ("txt", "log")
"""Endings of a name that stay its file's ending."""


def _free_path(stem: str, suffix: str) -> Path:
    """A file name that is not taken, in the working folder or else in the state folder."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    folder = Path.cwd()
    if not os.access(folder, os.W_OK):
        folder = state_folder()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for number in range(100):
        path = folder / f"{stem}-{stamp}{f'-{number}' if number else ''}.{suffix}"
        if not path.exists():
            return path
    raise UsageError(f"too many files named {stem}-{stamp} in {folder}")


def desk_of(session: Session, config: Config) -> JobDesk:
    """The jobs of a session; the demo plays a recorded one."""
    if session.retune is None:
        return JobDesk(session, config)
    from moetop.demodesk import DemoDesk

    return DemoDesk(session, config, session.retune)


class SessionActions(NoActions):
    """The acting keys of a session."""

    def __init__(self, session: Session, config: Config, desk: JobDesk | None = None) -> None:
        self._session = session
        self._config = config
        self._desk = desk or desk_of(session, config)

    def retune_refusal(self, host: str, server: str | None) -> str | None:
        return self._desk.refusal(host, server)

    def plan_retune(self, host: str, server: str | None) -> RetunePlan:
        return self._desk.plan(host, server)

    def start_retune(self, plan: RetunePlan) -> str:
        return self._desk.start(plan)

    def cancel_job(self, job: str) -> None:
        self._desk.cancel(job)

    def answer_job(self, job: str, option: str) -> None:
        self._desk.answer(job, option)

    def jobs(self) -> Sequence[JobView]:
        return self._desk.views()

    def asking_jobs(self) -> bool:
        return self._desk.asking()

    def question(self) -> Question | None:
        return person.question()

    def answer_question(self, question: int, text: str | None) -> None:
        person.answer(question, text)

    def close(self) -> None:
        """Follow no job any longer, answer no question."""
        self._desk.close()
        person.leave()

    def playback(self) -> Playback | None:
        player = self._session.player
        if player is None:
            return None
        at = player.position(self._session.watch)
        return Playback(at.t, at.start, at.end, at.speed, at.finished, can_seek=True)

    def seek(self, t: float) -> None:
        if self._session.player is not None:
            self._session.player.seek(t, self._session.fleet, self._session.watch)

    def set_speed(self, speed: float) -> None:
        if self._session.player is not None:
            self._session.player.set_speed(speed, self._session.fleet, self._session.watch)

    def hosts_refusal(self) -> str | None:
        return None if self._session.reloader is not None else "the hosts of a recording or of the demo are fixed"

    def _reloader(self) -> Reloader:
        if self._session.reloader is None:
            raise UsageError(self.hosts_refusal() or "the hosts are fixed")
        return self._session.reloader

    def add_host(self, text: str) -> str:
        """Watch one more host, as --host takes it; its name on screen. Raises MoetopError."""
        return self._reloader().add_host(text)

    def remove_host(self, name: str) -> None:
        """Stop watching a host. Raises MoetopError."""
        self._reloader().remove_host(name)

    def reconnect(self, host: str) -> str:
        """Try a lost host now; what was asked and not answered is asked again. Raises MoetopError."""
        return self._session.reconnect(host)

    def take_notices(self) -> list[str]:
        """Sentences that came up since the last call (the configuration was read anew), oldest first."""
        return [] if self._session.reloader is None else self._session.reloader.take_notices()

    def write_snapshot(self) -> str:
        path = _free_path("moetop", "json")
        open_output(str(path), "json").write(self._session.watch.snapshot(self._session.taken_at()))
        return str(path)

    def write_picture(self, svg: str) -> str:
        path = _free_path("moetop", "svg")
        replace_file(path, svg.encode())
        return str(path)

    def write_text(self, name: str, text: str) -> str:
        safe = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in name)[:60] or "text"
        stem, dot, suffix = safe.rpartition(".")
        named = bool(dot) and suffix in TEXT_SUFFIXES and bool(stem)
        path = _free_path(f"moetop-{stem}", suffix) if named else _free_path(f"moetop-{safe}", "txt")
        replace_file(path, text.encode("utf-8", "backslashreplace"))
        return str(path)


def run_screen(args: argparse.Namespace, session: Session, config: Config) -> ExitCode:
    """Show the app until it is left. Raises UsageError for a theme that cannot be used."""
    actions = SessionActions(session, config)
    with person.on_screen(), session.running(begun=False):
        try:
            code = run(
                session.watch,
                actions=actions,
                theme=config.theme,
                readonly=config.readonly,
                demo_note=session.notes[0] if session.notes else None,
                interval_s=config.interval_s,
                kind=session.kind,
                on_shown=session.begin,
            )
        finally:
            actions.close()  # before the fleet stops: its threads may be waiting for an answer
    if session.recorder is not None and session.recorder.error is not None:
        raise session.recorder.error
    return ExitCode(code)
