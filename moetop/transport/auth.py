"""Logging in as OpenSSH does: agent, key files, then questions if allowed. Keeps secrets in memory only."""

from __future__ import annotations

import base64
import binascii
import copy
import os
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import paramiko
from paramiko.agent import AgentSSH

from moetop.errors import LinkError
from moetop.text import plain
from moetop.transport.base import HostTarget
from moetop.transport.known_hosts import fingerprint
from moetop.transport.ssh_config import Settings

Prompt = Callable[[str, bool], "str | None"]

AGENT_TIMEOUT_S = 30.0
"""How long an agent may take (it may itself be asking somebody)."""

AUTH_TIMEOUT_S = 30.0
PROMPT_TIMEOUT_S = 180.0
"""How long a login may take while a person types."""

MAX_PASSWORD_TRIES = 3
ENCRYPTED = "encrypted"
"""Why a key is not to be had, or how that begins."""

MAX_PROMPT_CHARS = 300
DEFAULT_METHODS = ("publickey", "keyboard-interactive", "password")


class _Agent(AgentSSH):
    """An agent at a given socket; paramiko's own class knows SSH_AUTH_SOCK only."""

    def __init__(self, path: str) -> None:
        super().__init__()
        conn = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            conn.settimeout(AGENT_TIMEOUT_S)
            conn.connect(path)
            self._connect(conn)  # type: ignore[attr-defined]  # missing from the stubs
        except (OSError, paramiko.SSHException):
            conn.close()
            raise

    def close(self) -> None:
        self._close()  # type: ignore[attr-defined]


class KeyRing:
    """Decrypted keys and accepted passwords of this process, so that each is asked for once."""

    def __init__(self) -> None:
        self.asking = threading.Lock()  # one question at a time; nobody who needs no answer waits for it
        self._keys: dict[tuple[str, int], paramiko.PKey | str] = {}
        self.passwords: dict[tuple[str, str, int], str] = {}
        self.declined: set[tuple[str, str, int]] = set()  # where a question was left unanswered

    def ask_again(self) -> None:
        """Somebody is there after all: what was left unanswered, or wrongly, may be asked once more."""
        self.declined.clear()
        for stamp, key in list(self._keys.items()):
            if isinstance(key, str) and key.startswith(ENCRYPTED):
                self._keys[stamp] = ENCRYPTED

    def load(self, path: Path, prompt: Prompt | None) -> paramiko.PKey | str:
        """The key in `path`, or why there is none. With `prompt`, an encrypted key is asked for, once."""
        try:
            stamp = (str(path), path.stat().st_mtime_ns)
        except OSError as error:
            return (error.strerror or str(error)).lower()
        if stamp not in self._keys:
            self._keys[stamp] = _load_key(path, None)
        if self._keys[stamp] == ENCRYPTED and prompt is not None:
            with self.asking:
                if self._keys[stamp] == ENCRYPTED:
                    self._keys[stamp] = self._ask(path, prompt)
        return self._keys[stamp]

    @staticmethod
    def _ask(path: Path, prompt: Prompt) -> paramiko.PKey | str:
        for _ in range(MAX_PASSWORD_TRIES):
            answer = prompt(f"Passphrase for {path}:", False)
            if not answer:
                return f"{ENCRYPTED}, no passphrase given"
            loaded = _load_key(path, answer)
            if not isinstance(loaded, str):
                return loaded
        return f"{ENCRYPTED}, wrong passphrase"


shared_keys = KeyRing()
"""The key ring of this process."""


def _load_key(path: Path, passphrase: str | None) -> paramiko.PKey | str:
    try:
        return paramiko.PKey.from_path(path, passphrase.encode() if passphrase is not None else None)  # type: ignore[arg-type, unused-ignore]
    except (paramiko.PasswordRequiredException, TypeError):
        return ENCRYPTED
    except OSError as error:
        return (error.strerror or str(error)).lower()
    except (paramiko.SSHException, paramiko.pkey.UnknownKeyType, ValueError) as error:
        return f"not usable ({plain(str(error), 80)})"


def public_blob(path: Path) -> bytes | None:
    """The public half beside a key file, if it is there."""
    try:
        fields = path.with_name(path.name + ".pub").read_text(errors="replace").split()
        return base64.b64decode(fields[1], validate=True)
    except (OSError, IndexError, binascii.Error, ValueError):
        return None


@dataclass(slots=True)
class _Candidate:
    """A key to offer and how it is called in messages."""

    words: str
    key: Callable[[], paramiko.PKey | str]


@dataclass(slots=True)
class Login:
    """One login on an open, verified session. `run` returns when it is through or raises LinkError.

    `on_question` is called before a person may be asked, who may take minutes.
    """

    session: paramiko.Transport
    settings: Settings
    target: HostTarget
    prompt: Prompt | None = None
    keys: KeyRing = field(default_factory=lambda: shared_keys)
    on_question: Callable[[], None] = lambda: None
    tried: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    allowed: list[str] = field(default_factory=list)
    has_security_key: bool = False
    _agents: list[_Agent] = field(default_factory=list)

    def run(self) -> None:
        self.session.auth_timeout = AUTH_TIMEOUT_S
        try:
            if self._attempt(lambda: self.session.auth_none(self.settings.user)):
                return
            candidates = self._candidates()
            while True:
                before = list(self.allowed)
                if any(self._try_method(method, candidates) for method in self._methods()):
                    return
                if self.allowed == before:
                    raise self._refused()
        except paramiko.SSHException as error:
            raise self._broken(error) from error
        except (EOFError, OSError) as error:
            raise self._broken(error) from error
        finally:
            for agent in self._agents:
                agent.close()

    def _methods(self) -> list[str]:
        """Methods to try now, in the user's order."""
        raw = self.settings.raw
        wanted = raw.get("preferredauthentications", "").split(",") if raw.get("preferredauthentications") else None
        switched_off = {
            method
            for method, key in (
                ("publickey", "pubkeyauthentication"),
                ("keyboard-interactive", "kbdinteractiveauthentication"),
                ("password", "passwordauthentication"),
            )
            if raw.get(key, "yes") in ("no", "false")
        }
        order = [method for method in (wanted or DEFAULT_METHODS) if method in DEFAULT_METHODS]
        return [method for method in order if method in self.allowed and method not in switched_off]

    def _try_method(self, method: str, candidates: Iterator[_Candidate]) -> bool:
        if method not in self.allowed:
            return False
        if method == "publickey":
            return self._try_keys(candidates)
        if self.prompt is None or not self.target.ask_password:
            return False
        self._await_person()
        return self._try_password() if method == "password" else self._try_questions()

    def _attempt(self, call: Callable[[], list[str]]) -> bool:
        """Make one attempt; whether the login is complete. Learns which methods may follow."""
        try:
            left = call()
        except paramiko.BadAuthenticationType as error:
            self.allowed = list(error.allowed_types)
            return False
        except paramiko.AuthenticationException:
            if not self.session.is_active():
                raise
            return False
        if left:
            self.allowed = list(left)
        return not left

    # ── keys ─────────────────────────────────────────────────────────────────────────────────────

    def _try_keys(self, candidates: Iterator[_Candidate]) -> bool:
        for candidate in candidates:
            before = list(self.allowed)
            key = candidate.key()
            if isinstance(key, str):
                self.notes.append(f"{candidate.words}: {key}")
                continue
            self.tried.append(candidate.words)
            if self._attempt(lambda key=key: self.session.auth_publickey(self.settings.user, key)):  # type: ignore[misc]
                return True
            if self.allowed != before:  # a key was accepted and more is wanted
                return False
        return False

    def _candidates(self) -> Iterator[_Candidate]:
        """Agent keys that files name, other agent keys, files; those that need a passphrase last."""
        named_file = self.target.identity_file
        if named_file is not None and not Path(named_file).expanduser().is_file():
            self.notes.append(f"{named_file}: no such file")
        files = [path for path in self.settings.identity_files if path.is_file() or public_blob(path) is not None]
        blobs = {blob: path for path in files if (blob := public_blob(path)) is not None}
        agent_keys = self._agent_keys()
        in_agent = {key.asbytes() for key in agent_keys}
        ranked = sorted(agent_keys, key=lambda key: key.asbytes() not in blobs)
        for key in ranked:
            named = blobs.get(key.asbytes())
            if named is None and self.settings.identities_only:
                continue
            words = f"agent key {named or plain(key.comment, 60) or fingerprint(key.asbytes())}"
            yield _Candidate(words, lambda key=key: key)  # type: ignore[misc]
        encrypted = []
        for path in files:
            if path.name.endswith("_sk") or _is_security_key(public_blob(path)):
                self.has_security_key = True
                continue
            if not path.is_file() or public_blob(path) in in_agent:
                continue
            if self.keys.load(path, None) == ENCRYPTED:
                encrypted.append(path)
            else:
                yield _Candidate(str(path), lambda path=path: self._with_certificate(path, None))  # type: ignore[misc]
        for path in encrypted:
            yield _Candidate(str(path), lambda path=path: self._with_certificate(path, self.prompt))  # type: ignore[misc]

    def _with_certificate(self, path: Path, prompt: Prompt | None) -> paramiko.PKey | str:
        """The key of `path`, carrying the CertificateFile made for it, if there is one."""
        if prompt is not None:
            self._await_person()
        key = self.keys.load(path, prompt)
        if isinstance(key, str):
            return key
        for certificate in self.settings.certificate_files:
            if certificate.is_file() and certificate.name.startswith(path.name):
                key = copy.copy(key)  # the key ring's own stays bare
                try:
                    key.load_certificate(str(certificate))
                except (ValueError, OSError, paramiko.SSHException) as error:
                    self.notes.append(f"{certificate}: {plain(str(error), 80)}")
        return key

    def _agent_keys(self) -> list[paramiko.AgentKey]:
        path = self.settings.identity_agent or os.environ.get("SSH_AUTH_SOCK", "none")
        if path == "none":
            return []
        try:
            agent = _Agent(path)
        except (OSError, paramiko.SSHException) as error:
            self.notes.append(f"agent at {path}: {plain(str(error), 80)}")
            return []
        self._agents.append(agent)
        keys = list(agent.get_keys())
        self.has_security_key |= any(key.get_name().startswith("sk-") for key in keys)
        return [key for key in keys if not key.get_name().startswith("sk-")]

    # ── questions ────────────────────────────────────────────────────────────────────────────────

    def _await_person(self) -> None:
        self.session.auth_timeout = PROMPT_TIMEOUT_S
        self.on_question()

    def _place(self) -> tuple[str, str, int]:
        return (self.settings.user, self.settings.hostname, self.settings.port)

    def _try_password(self) -> bool:
        for _ in range(MAX_PASSWORD_TRIES):
            known = self.keys.passwords.pop(self._place(), None)
            answer = known or self._ask(f"Password for {self.settings.shown}:", False)
            if not answer:
                self.keys.declined.add(self._place())
                return False
            if "password" not in self.tried:
                self.tried.append("password")
            before = list(self.allowed)
            done = self._attempt(
                lambda answer=answer: self.session.auth_password(self.settings.user, answer, fallback=False)  # type: ignore[misc]
            )
            if done or self.allowed != before:
                self.keys.passwords[self._place()] = answer
                return done
        return False

    def _try_questions(self) -> bool:
        given_up = False

        def answer(title: str, instructions: str, prompts: list[tuple[str, bool]]) -> list[str]:
            nonlocal given_up
            answers = []
            for question, visible in prompts:
                shown = plain(question, MAX_PROMPT_CHARS).strip()
                said = self._ask(f"{self.settings.shown} asks: {shown}", visible)
                given_up |= said is None
                answers.append(said or "")
            return answers

        self.tried.append("keyboard-interactive")
        for _ in range(MAX_PASSWORD_TRIES):
            before = list(self.allowed)
            if self._attempt(lambda: self.session.auth_interactive(self.settings.user, answer)):
                return True
            if given_up or self.allowed != before:
                return False
        return False

    def _ask(self, question: str, visible: bool) -> str | None:
        """The answer; None where there is none, and from then on without asking, until somebody wants it again."""
        with self.keys.asking:
            if self.prompt is None or self._place() in self.keys.declined:
                return None
            answer = self.prompt(question, visible)
            if answer is None:
                self.keys.declined.add(self._place())
            return answer

    # ── how it failed ────────────────────────────────────────────────────────────────────────────

    def _refused(self) -> LinkError:
        shown = self.settings.shown
        takes = ", ".join(plain(method, 40) for method in self.allowed) or "nothing"
        if self.settings.flag("gssapiauthentication") and "gssapi-with-mic" in self.allowed:
            return LinkError(
                f"{shown} wants Kerberos, which paramiko cannot do",
                "set `transport: openssh` for this host",
                code="needs_openssh",
                retry=False,
            )
        if self.has_security_key:
            return LinkError(
                f"{shown} did not take the plain keys, and the key that is left is a security key, "
                "which paramiko cannot use",
                "set `transport: openssh` for this host",
                code="needs_openssh",
                retry=False,
            )
        offered = f"did not accept {', '.join(self.tried[:8])}" if self.tried else "was offered no key"
        if self._place() in self.keys.declined:
            self.notes.insert(0, "its question was not answered")
        notes = f" ({'; '.join(self.notes[:4])})" if self.notes else ""
        return LinkError(
            f"authentication failed: {shown} {offered}{notes}; it takes {takes}",
            self._advice(),
            code="auth",
            retry=False,
        )

    def _advice(self) -> str:
        locked = [note for note in self.notes if ENCRYPTED in note]
        if locked:
            return f"add the key to an agent with `ssh-add {locked[0].partition(':')[0]}`"
        if self._place() in self.keys.declined:
            return f"try again and answer, or have it accept keys (`ssh-copy-id {self.target.label}`)"
        if "publickey" not in self.allowed and not self.target.ask_password:
            return "set `ask_password: true` for this host, or have it accept keys"
        return f"see `ssh -v {self.target.label}`; `ssh-copy-id {self.target.label}` installs a key"

    def _broken(self, error: Exception) -> LinkError:
        """The session ended in the middle of the login."""
        said = str(error) or type(error).__name__
        # sshd's reason does not reach us; a line that goes after several keys is MaxAuthTries as a rule
        if len(self.tried) > 1 and not self.session.is_active():
            return LinkError(
                f"{self.settings.shown} ended the login after {len(self.tried)} keys (MaxAuthTries)",
                "name the right key with IdentityFile and set IdentitiesOnly yes in ~/.ssh/config",
                code="auth",
                retry=False,
            )
        return LinkError(f"{self.settings.shown} ended the login: {plain(said, 200)}", code="lost")


def _is_security_key(blob: bytes | None) -> bool:
    return blob is not None and blob[4:7] == b"sk-"
