"""What `ssh HOST` would use is what is used; names that a shell would read are refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from moetop.errors import LinkError, UsageError
from moetop.transport.base import HostTarget
from moetop.transport.hops import find_route
from moetop.transport.ssh_config import Tokens, hop_target, proxy_command_line, resolve


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config"
    path.write_text("")
    return path


def settle(config: Path, text: str, address: str = "gpu1", ssh: str | None = None, **target: object):
    config.write_text(text)
    return resolve(HostTarget(address=address, ssh_config_file=str(config), **target), ssh)  # type: ignore[arg-type]


def test_an_alias_is_resolved_with_include_match_and_trailing_comments(config: Path, tmp_path: Path) -> None:
    (tmp_path / "more").write_text("Host gpu*\n  User worker\n  Port 2222 # not 22\n")
    found = settle(
        config,
        f"Include {tmp_path}/more\nHost gpu1\n  HostName 10.0.0.1\n  Port 22\nMatch host elsewhere\n  User nobody\n",
    )
    assert (found.hostname, found.user, found.port, found.original) == ("10.0.0.1", "worker", 2222, "gpu1")
    assert found.shown == "worker@10.0.0.1:2222"


def test_what_the_target_says_goes_before_the_file(config: Path) -> None:
    text = "Host *\n  User worker\n  Port 2222\n"
    found = settle(config, text, user="me", port=23, identity_file="/k", options={"HostKeyAlias": "box"})
    assert (found.user, found.port, found.host_key_alias) == ("me", 23, "box")
    assert found.identity_files[0] == Path("/k")


def test_paths_are_expanded_as_ssh_expands_them(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEYS", "/keys")
    found = settle(
        config,
        "Host gpu1\n HostName h.lab\n User u\n IdentityFile ~/.ssh/%r_at_%h\n IdentityFile ${KEYS}/k\n"
        ' UserKnownHostsFile "/a b/kh" ~/kh\n IdentityAgent $MY_AGENT\n CertificateFile /c/%n\n',
    )
    assert found.identity_files == (Path.home() / ".ssh/u_at_h.lab", Path("/keys/k"))
    assert found.user_known_hosts[-1] == Path.home() / "kh"
    assert found.certificate_files == (Path("/c/gpu1"),)


@pytest.mark.parametrize(
    ("text", "agent"),
    [("", None), ("IdentityAgent none", "none"), ("IdentityAgent SSH_AUTH_SOCK", None), ("IdentityAgent /a", "/a")],
)
def test_the_agent_is_the_usual_one_another_or_none(config: Path, text: str, agent: str | None) -> None:
    assert settle(config, text + "\n").identity_agent == agent


@pytest.mark.parametrize(("word", "accept"), [("yes", False), ("ask", False), ("accept-new", True), ("no", True)])
def test_new_keys_are_taken_where_the_users_own_configuration_says_so(config: Path, word: str, accept: bool) -> None:
    assert settle(config, f"StrictHostKeyChecking {word}\n").accept_new is accept
    assert settle(config, "", accept_new_host_keys=True).accept_new is True


def test_without_ssh_the_small_reader_gives_the_basics(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moetop.transport.ssh_config.find_ssh", lambda: None)
    text = "Host gpu1\n  HostName 10.0.0.1  # the one\n  Port 2222 # c\n  User u\n  ProxyJump j\n"
    found = settle(config, text)
    assert (found.hostname, found.port, found.user, found.proxy_jump) == ("10.0.0.1", 2222, "u", ("j",))
    found = settle(config, text, user="me", port=7)
    assert (found.user, found.port) == ("me", 7)
    with pytest.raises(LinkError, match="cannot read"):
        settle(config, "Match wrong\n")


def test_routes_follow_proxy_jump_of_the_first_hop_only(config: Path) -> None:
    config.write_text(
        "Host last\n ProxyJump me@a:2201,[::1]:2202\nHost a\n ProxyJump gate\nHost gate\n HostName g.lab\n"
    )
    route = find_route(HostTarget(address="last", ssh_config_file=str(config)))
    assert [(s.hostname, s.port) for _, s in route] == [("g.lab", 22), ("a", 2201), ("::1", 2202), ("last", 22)]
    assert route[1][1].user == "me"


@pytest.mark.parametrize(
    ("hop", "parts"),
    [
        ("gate", ("gate", None, None)),
        ("me@gate:2222", ("gate", "me", 2222)),
        ("ssh://me@gate:2222/", ("gate", "me", 2222)),
        ("[fe80::1]:22", ("fe80::1", None, 22)),
        ("fe80::1", ("fe80::1", None, None)),
    ],
)
def test_jump_hosts_are_read_as_ssh_reads_them(hop: str, parts: tuple[str, str | None, int | None]) -> None:
    found = hop_target(HostTarget(address="x"), hop)
    assert (found.address, found.user, found.port) == parts


HOSTILE = [
    "-oProxyCommand=id",
    "a;id",
    "a b",
    "$(id)",
    "`id`",
    "a|b",
    "a&b",
    "a\nb",
    "a'b",
    'a"b',
    "",
    "x" * 300,
    "a\x1b[31m",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_that_a_shell_or_ssh_would_misread_is_refused(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        HostTarget(address=name)
    assert "\x1b" not in str(caught.value)
    with pytest.raises(UsageError):
        HostTarget(address="ok", user=name)


@pytest.mark.parametrize("hostname", ["-oX", "a;id", "$(id)"])
def test_a_hostname_from_the_file_is_held_to_the_same_rule(config: Path, hostname: str) -> None:
    with pytest.raises(LinkError) as caught:
        settle(config, f"Host gpu1\n  HostName {hostname}\n")
    assert caught.value.code == "config"


def test_a_proxy_command_gets_its_tokens_and_nothing_else(config: Path) -> None:
    found = settle(config, "Host gpu1\n HostName h.lab\n Port 23\n User u\n ProxyCommand nc %h %p # %r %n 100%%\n")
    assert proxy_command_line(found) == "nc h.lab 23 # u gpu1 100%"


def test_tokens_that_are_not_known_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = Tokens("n", "h", "r", 22, None, "")
    assert tokens.text("%h-%Z-%%-%k-%i") == f"h-%Z-%-n-{os.getuid()}"


def test_a_user_of_a_windows_domain_is_passed_on_as_it_is(config: Path) -> None:
    target = HostTarget(address="win", user="CORP\\alice", ssh_config_file=str(config))
    assert resolve(target).user == "CORP\\alice"
    assert target.label == "'CORP\\alice@win'"
    assert (
        resolve(HostTarget(address="win", user="CORP\\alice", ssh_config_file=str(config)), ssh="").user
        == "CORP\\alice"
    )


@pytest.mark.parametrize("user", ["alice\\", "CORP\\al ice", "CORP\\$(id)", "-l\\x"])
def test_a_backslash_does_not_let_more_into_a_user_name(user: str) -> None:
    with pytest.raises(UsageError):
        HostTarget(address="win", user=user)
