"""One job as its runner sees it: plan, state on disk, output, waiting. Knows nothing of what the steps do."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from . import procs, store
from .redact import redact_text

TICK_S = 0.2
FATAL_GRACE_S = 20.0
"""A line that looks fatal is believed when the server is not ready this long after it (judgement)."""

RUNNING, RETUNED, ROLLED_BACK, DOWN, REFUSED = "running", "retuned", "rolled_back", "down", "refused"


class StepFailed(Exception):
    """A step cannot reach its goal; `str()` is the sentence for people."""


class Cancelled(Exception):
    """Someone asked to stop; `str()` says who."""


class Job:
    """Plan and state of one job. `save` writes the state before and after everything that changes the host."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.spec = store.read_json(folder / "spec.json")
        self.state = store.read_json(folder / "state.json")
        self.output = store.Output(folder / "output.jsonl")
        self.cancellable = True
        self.must_save = True

    @property
    def id(self) -> str:
        return self.folder.name

    def timeout(self, name: str) -> float:
        return float(self.spec["timeouts"][name])

    def save(self) -> None:
        """Write the state. Before anything is touched a full disk is a failure; afterwards going on matters more."""
        self.state["updated"] = round(time.time(), 3)
        try:
            store.write_json(self.folder / "state.json", self.state)
        except OSError as error:
            if self.must_save:
                raise StepFailed(f"the job's state cannot be written: {error.strerror}") from None
            if store.use_reserve(self.folder):
                self.save()
                return
            print(f"state not written: {error}", flush=True)  # noqa: T201 - goes to runner.log

    def say(self, text: str, source: str = "moetop") -> None:
        self.output.add(source, redact_text(text))

    def act(self, what: str, result: str) -> None:
        """Append to the host's action log and to the job's output."""
        self.say(f"{what}: {result}")
        store.log_action(self.state["operator"], f"{self.state['server']}: {what}", redact_text(result), self.id)

    def remember(self, entry: dict[str, Any]) -> None:
        """Note how to undo a change before it is made."""
        self.state["undo"].append(entry)
        self.save()

    def check_cancel(self) -> None:
        """Raises Cancelled once, if someone asked for it."""
        if not self.cancellable or not (self.folder / "cancel.json").exists():
            return
        try:
            who = str(store.read_json(self.folder / "cancel.json").get("who", "someone"))
        except (OSError, ValueError):
            who = "someone"
        raise Cancelled(f"cancelled by {who}")

    def wait(self, done: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until `done()`; False after `timeout_s`. Raises Cancelled."""
        deadline = time.monotonic() + timeout_s
        while True:
            if done():
                return True
            self.check_cancel()
            if time.monotonic() >= deadline:
                return False
            time.sleep(TICK_S)

    def ask(self, question: str, options: dict[str, str], default: str, timeout_s: float) -> str:
        """Put a question to whoever is attached; the default after `timeout_s`. Raises Cancelled."""
        answer_file = self.folder / "answer.json"
        if answer_file.exists():
            answer_file.unlink()
        deadline = time.time() + timeout_s
        self.state["asks"] = {"question": question, "options": options, "default": default, "deadline": deadline}
        self.save()
        self.say(f"{question} (answer: {', '.join(options)}; {default} after {timeout_s:.0f} s)")
        got = self.wait(answer_file.exists, timeout_s)
        self.state["asks"] = None
        answer = default
        if got:
            try:
                answer = str(store.read_json(answer_file).get("answer", default))
            except (OSError, ValueError):
                answer = default
            answer_file.unlink()
        if answer not in options:
            answer = default
        self.act("asked", f"{question} -> {answer}{'' if got else ' (nobody answered)'}")
        self.save()
        return answer

    @contextmanager
    def step(self, entry: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """State of one step, on disk before and after."""
        entry.update(state="running", started=round(time.time(), 3), ended=None, detail="")
        self.save()
        self.say(f"{entry['title']} ...")
        try:
            yield entry
        except Cancelled as reason:
            self._end(entry, "cancelled", str(reason))
            raise
        except Exception as error:
            self._end(entry, "failed", str(error) or type(error).__name__)
            raise
        self._end(entry, "done", entry["detail"])

    def _end(self, entry: dict[str, Any], word: str, detail: str) -> None:
        entry.update(state=word, ended=round(time.time(), 3), detail=redact_text(detail)[:500])
        self.act(entry["title"], f"{word}{': ' + detail if detail else ''}")
        self.save()

    def finish(self, status: str, message: str, advice: list[str]) -> None:
        self.state.update(status=status, message=message, advice=advice, ended=round(time.time(), 3), asks=None)
        self.act("end", f"{status}: {message}")
        self.save()


class LineWatch:
    """Sorts the server's new lines into failure, tuned and untuned ones and copies them to the output."""

    def __init__(self, job: Job) -> None:
        lines = job.spec["lines"]
        self._job = job
        self._patterns = {
            kind: [re.compile(one) for one in lines.get(kind, [])] for kind in ("failed", "tuned", "untuned", "ready")
        }
        self.first: dict[str, str] = {}
        self.failed_at: float | None = None
        self.named: dict[str, list[str]] = {"tuned": [], "untuned": []}

    def feed(self, lines: list[str]) -> None:
        for line in lines:
            self._job.say(line, "server")
            for kind, patterns in self._patterns.items():
                if not any(pattern.search(line[:65536]) for pattern in patterns):
                    continue
                self.first.setdefault(kind, redact_text(line.strip())[:300])
                if kind in self.named:
                    self.named[kind].append(line[:4096])
                if kind == "failed" and self.failed_at is None:
                    self.failed_at = time.monotonic()


def prepare_process(folder: Path) -> None:
    """Note on disk that this process works on the job."""
    state = store.read_json(folder / "state.json")
    state["runner"] = procs.identity(os.getpid())
    store.write_json(folder / "state.json", state)
