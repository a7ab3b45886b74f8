"""known_hosts is read as OpenSSH reads it, and no line of it can break the reading."""

from __future__ import annotations

import base64
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moetop.errors import LinkError
from moetop.transport.known_hosts import (
    Entry,
    KnownHosts,
    Standing,
    append_key,
    fingerprint,
    host_key_name,
    parse_line,
    wildcard_matches,
)


def make_blob(kind: str = "ssh-ed25519", body: bytes = b"k" * 32) -> bytes:
    name = kind.encode()
    return struct.pack(">I", len(name)) + name + struct.pack(">I", len(body)) + body


KEY, OTHER = make_blob(), make_blob(body=b"o" * 32)
RSA = make_blob("ssh-rsa", b"r" * 64)


def line(names: str, blob: bytes = KEY, kind: str = "ssh-ed25519", marker: str = "") -> str:
    return f"{marker} {names} {kind} {base64.b64encode(blob).decode()} a comment".strip()


def judge(tmp_path: Path, text: str, name: str = "gpu1", blob: bytes = KEY, plain_name: str | None = None) -> Standing:
    path = tmp_path / "known_hosts"
    path.write_text(text + "\n")
    kind = "ssh-rsa" if blob == RSA else "ssh-ed25519"
    return KnownHosts([path]).judge(name, kind, blob, plain_name=plain_name).standing


@pytest.mark.parametrize(
    ("names", "name", "known"),
    [
        ("gpu1", "gpu1", True),
        ("GPU1", "gpu1", True),
        ("gpu1,10.0.0.1", "10.0.0.1", True),
        ("gpu*", "gpu17", True),
        ("gpu?", "gpu17", False),
        ("*.lab,!bad.lab", "good.lab", True),
        ("*.lab,!bad.lab", "bad.lab", False),
        ("!bad.lab,*.lab", "bad.lab", False),
        ("[gpu1]:2222", "[gpu1]:2222", True),
        ("[gpu1]:2222", "gpu1", False),
        ("gpu1", "[gpu1]:2222", False),
        ("[gpu*]:*", "[gpu9]:2222", True),
        ("gpu.1", "gpux1", False),
        ("", "gpu1", False),
    ],
)
def test_names_lists_wildcards_and_negations(tmp_path: Path, names: str, name: str, known: bool) -> None:
    assert (judge(tmp_path, line(names), name) is Standing.KNOWN) is known


def test_hashed_names_made_by_ssh_keygen_are_known(tmp_path: Path) -> None:
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    kind, encoded = key.with_name("key.pub").read_text().split()[:2]
    path = tmp_path / "known_hosts"
    path.write_text(f"[gpu1.lab]:2222 {kind} {encoded}\n")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", path], check=True, capture_output=True)
    known, blob = KnownHosts([path]), base64.b64decode(encoded)
    assert known.judge("[gpu1.lab]:2222", kind, blob).standing is Standing.KNOWN
    assert known.judge("gpu1.lab", kind, blob).standing is Standing.UNKNOWN
    printed = subprocess.run(["ssh-keygen", "-l", "-f", key], check=True, capture_output=True, text=True).stdout
    assert fingerprint(blob) in printed


def test_another_key_for_the_same_name_is_a_change(tmp_path: Path) -> None:
    assert judge(tmp_path, line("gpu1", OTHER)) is Standing.CHANGED
    assert judge(tmp_path, line("gpu1", RSA, "ssh-rsa")) is Standing.CHANGED, "its known key is no longer shown"
    assert judge(tmp_path, line("gpu1", OTHER) + "\n" + line("gpu1")) is Standing.KNOWN, "any of several will do"


def test_a_known_key_of_a_kind_that_is_no_longer_spoken_says_nothing(tmp_path: Path) -> None:
    old = make_blob("ssh-dss", b"d" * 40)
    assert judge(tmp_path, line("gpu1", old, "ssh-dss")) is Standing.UNKNOWN


def test_a_key_kept_without_its_port_is_good_and_another_one_there_is_no_change(tmp_path: Path) -> None:
    assert judge(tmp_path, line("gpu1"), "[gpu1]:2222", plain_name="gpu1") is Standing.KNOWN
    assert judge(tmp_path, line("gpu1", OTHER), "[gpu1]:2222", plain_name="gpu1") is Standing.UNKNOWN


def test_a_revoked_key_is_revoked_even_where_another_line_knows_it(tmp_path: Path) -> None:
    text = line("gpu1") + "\n" + line("*", marker="@revoked")
    assert judge(tmp_path, text) is Standing.REVOKED
    assert judge(tmp_path, line("gpu1") + "\n" + line("gpu2", marker="@revoked")) is Standing.KNOWN


def test_a_host_known_by_an_authority_only_is_told_from_an_unknown_one(tmp_path: Path) -> None:
    authority = line("*.lab", OTHER, marker="@cert-authority")
    assert judge(tmp_path, authority, "gpu1.lab") is Standing.CERTIFIED
    assert judge(tmp_path, authority, "gpu1.home") is Standing.UNKNOWN
    assert judge(tmp_path, authority, "gpu1.lab", OTHER) is Standing.CERTIFIED, "an authority is no host"


def test_bad_lines_are_named_and_hide_nothing(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    path.write_bytes(
        b"# comment\n\nonly-a-name\n@wrong gpu1 ssh-ed25519 AAAA\ngpu1 ssh-ed25519 !!!\n"
        b"gpu1 ssh-rsa " + base64.b64encode(KEY) + b"\n\xff\xfe\x00 x y\n" + line("gpu1").encode() + b"\r\n"
    )
    known = KnownHosts([tmp_path / "absent", path, tmp_path])
    assert known.judge("gpu1", "ssh-ed25519", KEY).standing is Standing.KNOWN
    assert [warning.rsplit(":", 2)[1] for warning in known.warnings] == ["3", "4", "5", "6", "7"]


def test_the_deciding_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    path.write_text("# first\n" + line("gpu1", OTHER) + "\n")
    entry = KnownHosts([path]).judge("gpu1", "ssh-ed25519", KEY).entry
    assert entry is not None
    assert (entry.path, entry.line) == (str(path), 2)


def test_kinds_of_known_keys_come_in_the_order_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    path.write_text("\n".join([line("gpu1", RSA, "ssh-rsa"), line("gpu*"), line("x", marker="@cert-authority")]))
    assert KnownHosts([path]).key_types(["gpu1"]) == ["ssh-rsa", "ssh-ed25519"]


@pytest.mark.parametrize("hashed", [False, True])
def test_an_added_key_stands_on_its_own_line_and_is_known(tmp_path: Path, hashed: bool) -> None:
    path = tmp_path / "new" / "known_hosts"
    append_key(path, "gpu0", "ssh-ed25519", OTHER)
    path.write_text(path.read_text().rstrip("\n"))
    append_key(path, "[gpu1]:2222", "ssh-ed25519", KEY, hashed=hashed)
    assert ("gpu1" in path.read_text()) is not hashed
    known = KnownHosts([path])
    assert known.judge("[gpu1]:2222", "ssh-ed25519", KEY).standing is Standing.KNOWN
    assert known.judge("gpu0", "ssh-ed25519", OTHER).standing is Standing.KNOWN
    assert not known.warnings


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LinkError, match="cannot be kept"):
        append_key(tmp_path / "file" / "known_hosts", "gpu1", "ssh-ed25519", KEY)


def test_names_carry_their_port_unless_it_is_the_usual_one() -> None:
    assert host_key_name("GPU1", 22) == "gpu1"
    assert host_key_name("fe80::1", 2222) == "[fe80::1]:2222"


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=200))
def test_any_line_is_an_entry_a_sentence_or_nothing(text: str) -> None:
    parsed = parse_line(text, "f", 1)
    assert parsed is None or isinstance(parsed, (str, Entry))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300))
def test_any_file_can_be_asked_about_any_name(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed_known_hosts"
    path.write_bytes(content + b"\n|1|a|b ssh-ed25519 " + base64.b64encode(KEY) + b"\n" + line("gpu1").encode())
    assert KnownHosts([path]).judge("gpu1", "ssh-ed25519", KEY).standing is Standing.KNOWN


def test_a_pattern_of_many_stars_is_matched_in_no_time() -> None:
    assert not wildcard_matches("*a" * 40 + "b", "a" * 200)
