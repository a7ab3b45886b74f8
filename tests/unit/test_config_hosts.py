"""Host names as people type them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetop.config import expand_hosts, parse_host
from moetop.errors import ExitCode, UsageError


@pytest.mark.parametrize(
    ("text", "name", "address", "user", "port"),
    [
        ("node-07", "node-07", "node-07", None, None),
        ("10.1.230.175", "10.1.230.175", "10.1.230.175", None, None),
        ("alice@node", "node", "node", "alice", None),
        ("alice@node:2222", "node:2222", "node", "alice", 2222),
        ("ssh://alice@node:2222/", "node:2222", "node", "alice", 2222),
        ("alice@corp.example@jump", "jump", "jump", "alice@corp.example", None),
        ("CORP\\alice@win", "win", "win", "CORP\\alice", None),
        ("[::1]:2222", "[::1]:2222", "::1", None, 2222),
        ("root@[fe80::1%eth0]:22", "[fe80::1%eth0]:22", "fe80::1%eth0", "root", 22),
        ("fe80::1", "fe80::1", "fe80::1", None, None),
        ("[fe80::1]", "fe80::1", "fe80::1", None, None),
        ("  node  ", "node", "node", None, None),
        ("gpu_node.cluster", "gpu_node.cluster", "gpu_node.cluster", None, None),
    ],
)
def test_a_host_is_read_as_ssh_reads_it(text: str, name: str, address: str, user: str | None, port: int | None) -> None:
    host = parse_host(text)
    assert (host.name, host.address, host.user, host.port) == (name, address, user, port)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty host name"),
        ("   ", "empty host name"),
        ("-oProxyCommand=touch /tmp/x", "cannot begin with '-'"),
        ("user@-oProxyCommand", "cannot begin with '-'"),
        ("-l@node", "user cannot begin with '-'"),
        ("@node", "nothing before the @"),
        ("user@", "no host name"),
        ("node:", "not a port"),
        ("node:0", "not a port"),
        ("node:65536", "not a port"),
        ("node:22a", "not a port"),
        ("node:٢٢", "not a port"),
        ("[::1", "bracket is not closed"),
        ("[::1]22", "bracket is not closed"),
        ("[node]:22", "not an IPv6 address"),
        ("a:b:c", "neither host:port nor an IPv6 address"),
        ("no de", "letters, digits"),
        ("node\n", None),
        ("no\x1b[31mde", "letters, digits"),
        ("no\u202ede", "letters, digits"),
        ("$(reboot)", "letters, digits"),
        ("a`b`", "letters, digits"),
        ("us er@node", "user holds characters"),
        ("a;b@node", "user holds characters"),
        ("x" * 300, "longer than"),
    ],
)
def test_a_hostile_or_mistyped_host_is_refused_with_words(text: str, words: str | None) -> None:
    if words is None:
        assert parse_host(text).name == "node"
        return
    with pytest.raises(UsageError) as caught:
        parse_host(text)
    assert words in str(caught.value)
    assert caught.value.exit_code is ExitCode.USAGE
    assert "\x1b" not in caught.value.sentence() and "\n" not in caught.value.sentence()


@given(st.text(max_size=60))
def test_no_text_makes_an_address_that_a_program_could_take_for_an_option(text: str) -> None:
    try:
        host = parse_host(text)
    except UsageError:
        return
    assert not host.address.startswith("-") and not (host.user or "").startswith("-")
    assert host.address.isprintable() and not any(letter in host.address for letter in " '\"`$;&|<>()\\")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("gpu07", ["gpu07"]),
        ("gpu[01-03]", ["gpu01", "gpu02", "gpu03"]),
        ("gpu[9-11]", ["gpu9", "gpu10", "gpu11"]),
        ("gpu[1,4,7-8].lan", ["gpu1", "gpu4", "gpu7", "gpu8"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("root@n[1-2]:2222", ["root@n1:2222", "root@n2:2222"]),
        ("[::1]:22", ["[::1]:22"]),
    ],
)
def test_a_range_stands_for_its_names(text: str, names: list[str]) -> None:
    tail = ".lan" if text.endswith(".lan") else ""
    assert expand_hosts(text) == [name + tail for name in names]


@pytest.mark.parametrize("text", ["gpu[3-1]", "gpu[1-]", "gpu[-3]", "gpu[1--2]", "gpu[,]", "gpu[0-99999999]"])
def test_a_bad_range_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        expand_hosts(text)


def test_ranges_cannot_multiply_without_bound() -> None:
    with pytest.raises(UsageError, match="more than 4096 hosts"):
        expand_hosts("a[0-999]b[0-999]c[0-999]d[0-999]")
