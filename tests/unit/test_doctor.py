"""What `--doctor` says of a host without GPU or server: each thing once, and only advice that can be followed."""

from __future__ import annotations

import pytest

from moetop.doctor import Check, examine
from moetop.model import HostReport, HostStatus, Link, LinkPhase, Status

NO_DRIVER = "no NVIDIA driver library (libnvidia-ml.so.1) on this host"


def checks(user: str | None, *notes: str) -> list[Check]:
    """A host without driver and server, watched by `user`."""
    report = HostReport(name="a", headline="no_data", status=HostStatus.UNREACHABLE, error=NO_DRIVER, notes=notes)
    statuses = {"no_nvml": Status(t=0.0, code="no_nvml", message=NO_DRIVER, level="error", fatal=True)}
    return list(examine(Link(phase=LinkPhase.WATCHING), report, statuses, {"user": user} if user else {}))


def test_what_the_driver_said_is_not_said_again_as_a_matter_of_rights() -> None:
    said = checks("ops", NO_DRIVER, "the kernel log may not be read")
    assert [check.words for check in said if check.step == "nvml"] == [NO_DRIVER]
    assert [check.words for check in said if check.step == "rights"] == ["the kernel log may not be read"]


@pytest.mark.parametrize(
    ("user", "advice"),
    [
        ("root", "where one runs: name its log with --log-path"),
        ("ops", "where one runs: watch as the server's user or as root, or name its log with --log-path"),
        (None, "where one runs: watch as the server's user or as root, or name its log with --log-path"),
    ],
)
def test_root_is_not_sent_to_become_another_user_to_see_a_server(user: str | None, advice: str) -> None:
    assert [check.fix for check in checks(user) if check.step == "server"] == [advice]
