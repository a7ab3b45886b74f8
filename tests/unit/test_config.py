"""The configuration file: what it may say, and what is said about a bad one."""

from __future__ import annotations

import dataclasses
import re
import time
import typing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moetop.cli import main
from moetop.config import Config, Overrides, default_path, load_config, merge, read_config
from moetop.config.schema import Document
from moetop.errors import ExitCode, UsageError

ROOT = Path(__file__).parents[2]


def refused(text: str) -> str:
    with pytest.raises(UsageError) as caught:
        read_config(text, "fleet.yaml")
    assert caught.value.exit_code is ExitCode.USAGE
    sentence = caught.value.sentence()
    assert "\n" not in sentence
    return sentence


def test_an_empty_file_is_an_empty_configuration() -> None:
    for text in ("", "# nothing yet\n", "---\n", "~\n"):
        config = read_config(text)
        assert config.hosts == () and config.interval_s == 1.0 and not config.readonly


def test_a_host_takes_defaults_then_its_group_then_its_own() -> None:
    config = read_config(
        """
defaults: {user: ops, interval_s: 5, labels: {site: a, rack: none}}
groups:
  - name: farm
    user: gpu
    sudo: true
    discover: false
    labels: {rack: r1}
    hosts:
      - gpu[01-03]
      - root@other:2222
hosts:
  - name: gpu02
    interval_s: 2
    sudo: false
    discover: true
    labels: {tier: prod}
  - plain
  - bob@special
""",
    )
    hosts = {host.name: host for host in config.hosts}
    assert list(hosts) == ["gpu01", "gpu02", "gpu03", "other:2222", "plain", "special"]
    assert hosts["gpu01"].user == "gpu" and hosts["gpu01"].interval_s == 5 and hosts["gpu01"].group == "farm"
    assert hosts["gpu01"].labels == {"site": "a", "rack": "r1"} and hosts["gpu01"].sudo and not hosts["gpu01"].discover
    own = hosts["gpu02"]
    assert (own.user, own.interval_s, own.sudo, own.discover, own.group) == ("gpu", 2, False, True, "farm")
    assert own.labels == {"site": "a", "rack": "r1", "tier": "prod"}
    assert (hosts["other:2222"].user, hosts["other:2222"].port) == ("root", 2222)
    assert hosts["plain"].user == "ops" and hosts["special"].user == "bob" and hosts["plain"].group is None


def test_a_name_may_stand_for_another_address() -> None:
    host = read_config("hosts:\n  - {name: glm5, address: 'root@10.1.230.175:2200', transport: openssh}\n").hosts[0]
    assert (host.name, host.address, host.user, host.port, host.transport) == (
        "glm5", "10.1.230.175", "root", 2200, "openssh",
    )  # fmt: skip


def test_every_kind_of_log_becomes_a_probe_option() -> None:
    host = read_config(
        """
hosts:
  - name: a
    logs:
      - /var/log/sglang.log
      - {unit: vllm.service}
      - {source: box, container: 3f2a}
      - {source: kube, command: [kubectl, logs, -f, pod]}
    servers:
      - match: {port: 8000}
        log: ~/sglang-glm5.log
""",
    ).hosts[0]
    assert host.probe_logs() == [
        {"source": "sglang.log", "kind": "file", "target": "/var/log/sglang.log"},
        {"source": "vllm.service", "kind": "journal", "target": "vllm.service"},
        {"source": "box", "kind": "container", "target": "3f2a"},
        {"source": "kube", "kind": "command", "argv": ["kubectl", "logs", "-f", "pod"]},
        {"source": "sglang-glm5.log", "kind": "file", "target": "~/sglang-glm5.log"},
    ]


def test_a_server_override_is_read_whole() -> None:
    text = """
hosts:
  - name: a
    servers:
      - match: launch_server
        name: glm
        stop: [systemctl, stop, glm]
        start: {argv: [systemctl, start, glm], cwd: /srv}
        tune: {argv: [python3, tune.py], output: /srv/out.json}
        health: http://127.0.0.1:8000/health
        env: {CUDA_VISIBLE_DEVICES: 0, NCCL_DEBUG: INFO}
        timeouts: {start_s: 3600}
"""
    server = read_config(text).hosts[0].servers[0]
    assert server.match.argv == "launch_server" and server.name == "glm"
    assert server.stop is not None and server.stop.argv == ("systemctl", "stop", "glm")
    assert server.start is not None and server.start.cwd == "/srv"
    assert server.env == {"CUDA_VISIBLE_DEVICES": "0", "NCCL_DEBUG": "INFO"}
    assert server.timeouts is not None and server.timeouts.start_s == 3600


def keys_of(cls: type) -> set[str]:
    """Every key of the schema, walked through its tables."""
    found = set()
    for field in dataclasses.fields(cls):
        found.add(field.name)
        hints = [typing.get_type_hints(cls)[field.name]]
        while hints:
            hint = hints.pop()
            hints.extend(typing.get_args(hint))
            if dataclasses.is_dataclass(hint):
                found |= keys_of(hint)
    return found


def test_the_example_file_is_right_and_every_key_is_in_it_and_documented() -> None:
    text = (ROOT / "config.example.yaml").read_text()
    manual = (ROOT / "docs/configuration.md").read_text()
    config = read_config(text, "config.example.yaml")
    hosts = {host.name: host for host in config.hosts}
    assert len(hosts) == 36 and hosts["glm5-sm120"].servers[0].match.port == 8000
    assert hosts["gpu07"].group == "farm" and set(hosts["gpu07"].labels) == {"site", "note"}
    keys = keys_of(Document)
    assert {"hosts", "identity_file", "drain_s", "output"} <= keys
    assert {key for key in keys if not re.search(rf"\b{key}:", text)} == set()
    assert {key for key in keys if f"`{key}`" not in manual} == set()


BAD = [
    ("hosts:\n  - name: a\n    prot: 22\n", "fleet.yaml:3: hosts[0].prot: unknown key; did you mean port?"),
    ("host:\n  - a\n", "fleet.yaml:1: host: unknown key; did you mean hosts?"),
    ("xyzzy: 1\n", "fleet.yaml:1: xyzzy: unknown key; known here: hosts, groups"),
    ("hosts:\n  - name: a\n    port: ssh\n", "fleet.yaml:3: hosts[0].port: expected a whole number, found text"),
    ("hosts:\n- {name: a, port: 70000}\n", "fleet.yaml:2: hosts[0].port: expected a number from 1 to 65535"),
    ("hosts: a\n", "fleet.yaml:1: hosts: expected a list, found text"),
    ("- a\n", "fleet.yaml:1: expected a table of keys, found a list"),
    ("just words\n", "fleet.yaml:1: expected a table of keys, found text"),
    ("readonly: 1\n", "fleet.yaml:1: readonly: expected true or false, found a whole number"),
    ("theme: yes\n", "fleet.yaml:1: theme: expected text, found true or false; put it in quotes"),
    ("interval_s: 0.01\n", "fleet.yaml:1: interval_s: expected a number from 0.1 to 3600, found 0.01"),
    ("interval_s: .inf\n", "fleet.yaml:1: interval_s: expected a number that can be counted with"),
    ("interval_s: .nan\n", "fleet.yaml:1: interval_s: expected a number that can be counted with"),
    ("window_s: 0.05\n", "fleet.yaml:1: window_s: expected 0, or a number from 0.1 to 3600, found 0.05"),
    ("window_s: '5'\n", "fleet.yaml:1: window_s: expected a number, found text"),
    ("hosts:\n  - a\n  - b\n  - a\n", "fleet.yaml:4: hosts[2]: the host 'a' stands twice (also in line 2)"),
    (
        "groups:\n  - name: g\n    hosts:\n    - n[1-3]\n    - n2\n",
        "fleet.yaml:5: groups[0].hosts[1]: the host 'n2' stands twice (also in line 4)",
    ),
    (
        "hosts:\n  - {name: a, address: 10.0.0.1}\n  - {name: b, address: 10.0.0.1}\n",
        "fleet.yaml:3: hosts[1]: 'b' and 'a' have the same address 10.0.0.1",
    ),
    ("theme: dark\nhosts: []\ntheme: light\n", "fleet.yaml:3: the key 'theme' stands twice (also in line 1)"),
    (
        "hosts:\n  - name: -oProxyCommand=x\n",
        "fleet.yaml:2: hosts[0]: host '-oProxyCommand=x': a host name cannot begin",
    ),
    ("hosts:\n  - address: a\n", "fleet.yaml:2: hosts[0]: name is missing"),
    ("hosts:\n  - name: a\n    transport: telnet\n", "hosts[0].transport: expected one of auto, ssh, openssh, local"),
    ("hosts:\n  - name: a\n    logs: [relative/x]\n", "hosts[0].logs[0]: expected a path on the host"),
    (
        "hosts:\n  - name: a\n    logs: [{path: /a, unit: b}]\n",
        "exactly one of path, unit, container, command; found path",
    ),
    ("hosts:\n  - name: a\n    logs: [{source: b}]\n", "found none"),
    ("hosts:\n  - name: a\n    logs: [{command: [x]}]\n", "needs a source"),
    ("hosts:\n  - name: a\n    logs: [{unit: -x}]\n", "expected a systemd unit's name"),
    ("hosts:\n  - name: a\n    servers: [{match: {}}]\n", "match needs at least one of"),
    (
        "hosts:\n  - name: a\n    servers: [{match: x, start: 'sh -c x'}]\n",
        "start: expected a table of keys, found text",
    ),
    ("hosts:\n  - name: a\n    servers: [{match: x, env: {'A B': c}}]\n", "expected a variable's name"),
    ("hosts:\n  - name: a\n    servers: [{match: x, health: 'http://u:p@h/'}]\n", "http URL without a password"),
    ("a: [\n", "fleet.yaml:2: not YAML"),
    ("a: b: c\n", "fleet.yaml:1: not YAML"),
    ("hosts:\n\t- a\n", "fleet.yaml:2: not YAML"),
    ("hosts:\n  - a\x01\n", "fleet.yaml:2: not YAML"),
    ("theme: !!python/object/apply:os.system [id]\n", "tag:yaml.org,2002:python/object/apply:os.system is not allowed"),
    ("theme: !!binary aGVsbG8=\n", "is not allowed"),
    ("x: &a {b: 1}\nhosts:\n- <<: *a\n", "fleet.yaml:3: '<<' is not supported"),
    ("? [a]\n: b\n", "a key must be a word"),
    ("interval_s: 1" + "0" * 400 + "\n", "expected a number"),
    ("window_s: 1" + "0" * 5000 + "\n", "expected a number"),
]


@pytest.mark.parametrize(("text", "words"), BAD, ids=[words[:60] for _, words in BAD])
def test_a_bad_file_is_refused_naming_file_line_and_key(text: str, words: str) -> None:
    assert words in refused(text)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 20_000,
        "a: " + "{b: " * 5_000,
        "a: &a [x]\n"
        + "\n".join(f"b{n}: &b{n} [" + ", ".join([f"*b{n - 1}" if n else "*a"] * 10) + "]" for n in range(9)),
        "a: &a [*a]\n",
        "hosts:\n" + "- a\n" * 150_000,
    ],
    ids=["deep list", "deep table", "alias bomb", "alias of itself", "very long list"],
)
def test_a_bomb_costs_little_and_is_refused(text: str) -> None:
    begun = time.process_time()
    assert refused(text).startswith("fleet.yaml:")
    assert time.process_time() - begun < 5


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=200))
@settings(max_examples=150)
def test_no_text_does_anything_but_load_or_be_refused(text: str) -> None:
    try:
        assert isinstance(read_config(text), Config)
    except UsageError as error:
        assert "\n" not in error.sentence()


def test_a_missing_unreadable_huge_or_binary_file_is_said(tmp_path: Path) -> None:
    cases = {
        "missing.yaml": (None, "does not exist; see config.example.yaml"),
        "binary.yaml": (b"a: 1\nb: \xff\xfe\n", "binary.yaml:2: not YAML: the text is not UTF-8"),
        "huge.yaml": (b"# x\n" * 300_000, "larger than 1 MiB"),
    }
    for name, (data, words) in cases.items():
        path = tmp_path / name
        if data is not None:
            path.write_bytes(data)
        with pytest.raises(UsageError) as caught:
            load_config(str(path))
        assert words in caught.value.sentence() and str(path) in caught.value.sentence()
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        load_config(str(tmp_path))


def test_the_users_own_file_is_read_when_none_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert load_config(None) == Config()
    default_path().parent.mkdir()
    default_path().write_text("hosts: [mine]\n")
    config = load_config(None)
    assert [host.name for host in config.hosts] == ["mine"] and config.path == str(tmp_path / "moetop/config.yaml")
    default_path().write_text("hots: [mine]\n")
    with pytest.raises(UsageError, match=r"moetop/config\.yaml:1: hots"):
        load_config(None)


def test_the_command_line_overrides_the_file() -> None:
    config = read_config(
        "interval_s: 5\nwindow_s: 30\ntheme: dark\ndefaults: {user: ops}\n"
        "hosts:\n  - {name: glm5, address: 10.1.230.175, interval_s: 9, logs: [/a.log]}\n  - other\n"
    )
    merged = merge(
        config,
        Overrides(hosts=("glm5", "root@new:2222"), window_s=0, interval_s=0.5, readonly=True, log_path="~/b.log"),
    )
    assert [host.name for host in merged.hosts] == ["glm5", "new:2222"]
    glm5, new = merged.hosts
    assert glm5.address == "10.1.230.175" and [log.name() for log in glm5.logs] == ["a.log", "b.log"]
    assert (new.user, new.port) == ("root", 2222)
    assert merged.window_s == 0 and merged.theme == "dark" and merged.readonly
    assert {merged.interval_of(host) for host in merged.hosts} == {0.5}
    assert merge(config, Overrides()) == config
    assert merge(config, Overrides(hosts=("x",))).hosts[0].user == "ops"
    assert merge(config, Overrides(hosts=("root@glm5",))).hosts[0] == replace(config.hosts[0], user="root")


def test_hosts_on_the_command_line_are_checked_too() -> None:
    with pytest.raises(UsageError, match="'a' is given twice"):
        merge(Config(), Overrides(hosts=("a", "root@a")))
    with pytest.raises(UsageError, match="cannot begin with '-'"):
        merge(Config(), Overrides(hosts=("-oProxyCommand=x",)))
    with pytest.raises(UsageError, match="is not a path on the host"):
        merge(Config(), Overrides(hosts=("a",), log_path="x.log"))
    assert [host.name for host in merge(Config(), Overrides(hosts=("n[1-3]",))).hosts] == ["n1", "n2", "n3"]


@pytest.mark.parametrize(
    ("text", "argv", "words"),
    [
        (None, ["--config", "{file}"], "configuration {file} does not exist; see config.example.yaml"),
        ("hosts: [a, a]\n", ["--config", "{file}"], "{file}:1: hosts[1]: the host 'a' stands twice (also in line 1)"),
        ("", ["--config", "{file}", "--host=-oProxyCommand=x"], "a host name cannot begin with '-'"),
        ("hosts: [a]\n", ["--config", "{file}", "--host=a:b"], "'b' is not a port"),
    ],
)
def test_a_fault_is_one_line_on_standard_error_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None, argv: list[str], words: str
) -> None:
    file = tmp_path / "fleet.yaml"
    if text is not None:
        file.write_text(text)
    assert main([*(word.format(file=file) for word in argv), "--snapshot", "-"]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("moetop: ") and said.err.count("\n") == 1
    assert words.format(file=file) in said.err
