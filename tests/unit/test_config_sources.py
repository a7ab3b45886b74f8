"""Hosts from lists and from ssh_config: which names are read, in which order, and how faults are said."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moetop.config import read_config
from moetop.config.sources import MAX_BYTES, read_hosts_file, ssh_aliases
from moetop.errors import UsageError

SSH_CONFIG = """\
# everything
Host gpu1 gpu2   # two at once
  HostName 10.0.0.1
Host gpu* !gpu9
  User ops
HOST=login
Include more/*.conf
Host gpu1
Match host gpu7 user me
  Port 1
Host "gpu 3"
"""


@pytest.fixture
def ssh_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("MOETOP_SSH_CONFIG", raising=False)
    folder = tmp_path / ".ssh"
    (folder / "more").mkdir(parents=True)
    (folder / "config").write_text(SSH_CONFIG)
    (folder / "more" / "b.conf").write_text("Host gpu-b\n")
    (folder / "more" / "a.conf").write_text("Host gpu-old gpu-a\n  Include ~/.ssh/more/deep\n")
    (folder / "more" / "deep").write_text("host gpu-deep\n")
    return folder / "config"


def test_aliases_are_read_in_the_order_of_the_file_with_what_it_includes(ssh_config: Path) -> None:
    found = ssh_aliases("gpu?,gpu-*,!gpu-old")
    assert [one.text for one in found] == ["gpu1", "gpu2", "gpu-a", "gpu-deep", "gpu-b"]
    assert found[0].where == f"{ssh_config}:2"
    assert found[2].where.endswith("more/a.conf:1")
    assert [one.text for one in ssh_aliases("login")] == ["login"]


def test_a_pattern_without_any_alias_and_a_file_that_is_not_there_are_said(ssh_config: Path) -> None:
    with pytest.raises(UsageError, match=r"no Host in .* matches 'cpu\*'"):
        ssh_aliases("cpu*")
    with pytest.raises(UsageError, match="no Host in"):
        ssh_aliases("!gpu1")
    ssh_config.unlink()
    with pytest.raises(UsageError, match="cannot be read: no such file"):
        ssh_aliases("*")


def test_includes_that_name_each_other_end(ssh_config: Path) -> None:
    ssh_config.write_text("Include config\nInclude config\n")
    with pytest.raises(UsageError, match="too many files"):
        ssh_aliases("*")


def test_a_list_is_one_or_more_hosts_a_line_with_comments(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("# rack 1\nn[1-2]  me@n7:2222 # borrowed\n\n\tn8\r\n")
    assert [(one.text, one.where) for one in read_hosts_file(file)] == [
        ("n[1-2]", f"{file}:2"),
        ("me@n7:2222", f"{file}:2"),
        ("n8", f"{file}:4"),
    ]
    file.write_text("# nothing\n")
    with pytest.raises(UsageError, match="names no host"):
        read_hosts_file(file)
    file.write_bytes(b"x" * (MAX_BYTES + 1))
    with pytest.raises(UsageError, match="larger than 1 MiB"):
        read_hosts_file(file)


def test_a_group_takes_its_settings_to_hosts_from_anywhere(ssh_config: Path, tmp_path: Path) -> None:
    (tmp_path / "list").write_text("n[01-02]\n")
    text = (
        "groups:\n- {name: far, hosts_file: list, ssh_config: 'gpu?', hosts: [x], user: ops}\n"
        "hosts: [{name: n02, user: me}]\n"
    )
    config = read_config(text, str(tmp_path / "c.yaml"))
    assert [(host.name, host.user, host.group) for host in config.hosts] == [
        ("x", "ops", "far"),
        ("n01", "ops", "far"),
        ("n02", "me", "far"),
        ("gpu1", "ops", "far"),
        ("gpu2", "ops", "far"),
    ]


@pytest.mark.parametrize(
    ("listed", "group", "words"),
    [
        ("a\nb\na\n", "hosts_file: list", "list:3: the host 'a' stands twice (also in {folder}/list:1)"),
        ("a\n", "{hosts_file: list, hosts: [a]}", "list:1: the host 'a' stands twice (also in line 2)"),
        ("ok\n$(touch x)\n", "hosts_file: list", "list:2: host '$(touch': a host name holds"),
        ("n[1-9999]\n", "hosts_file: list", "list:1: 'n[1-9999]': '1-9999' runs backwards or names more"),
        ("", "hosts_file: list", "c.yaml:2: groups[0].hosts_file: {folder}/list names no host"),
        ("", "hosts_file: none", "c.yaml:2: groups[0].hosts_file: {folder}/none cannot be read: no such file"),
        ("", "ssh_config: 'a;b'", "c.yaml:2: groups[0].ssh_config: expected a pattern of Host aliases"),
        ("", "user: me", "c.yaml:2: groups[0]: a group needs hosts, hosts_file or ssh_config"),
    ],
)
def test_a_fault_names_the_file_and_the_line_it_is_on(tmp_path: Path, listed: str, group: str, words: str) -> None:
    (tmp_path / "list").write_text(listed)
    inner = group.strip("{}")
    with pytest.raises(UsageError) as caught:
        read_config(f"groups:\n- {{name: g, {inner}}}\n", str(tmp_path / "c.yaml"))
    assert words.format(folder=tmp_path) in str(caught.value)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.binary(max_size=300), st.text(min_size=1, max_size=30))
def test_any_file_and_any_pattern_give_names_or_one_refusal(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, pattern: str
) -> None:
    file = tmp_path_factory.getbasetemp() / "any"
    for data in (content, b"Host a" + content.replace(b"\n", b" ") + b"\nInclude any" + content[:3]):
        file.write_bytes(data)
        for read in (lambda: ssh_aliases(pattern, file), lambda: read_hosts_file(file)):
            try:
                assert all(one.text and one.where for one in read())
            except UsageError as error:
                assert error.sentence().isprintable()
