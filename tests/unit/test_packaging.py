"""The wheel: installed elsewhere it is a whole moetop, with themes and demo data inside."""

from __future__ import annotations

import json
import os
import re
import shutil
import site
import subprocess
import sys
import sysconfig
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ("moetop", "themes", "pyproject.toml", "README.md", "LICENSE")


def run(*argv: str | Path, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """A program with its output; the checkout is not on its path."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "XDG_"))}
    clean["HOME"] = str(cwd)
    return subprocess.run(
        [str(word) for word in argv],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**clean, **env},
        check=False,
        timeout=300,
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy so that the checkout stays clean."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, source / name)
    built = run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, source, cwd=folder)
    assert built.returncode == 0, built.stderr[-2000:]
    (made,) = folder.glob("*.whl")
    return made


def install_beside(wheel: Path, home: Path) -> Path:
    """A new environment with only the wheel in it that borrows this one's dependencies; its bin folder."""
    venv.create(home / "venv", with_pip=False)
    bin_folder = home / "venv" / "bin"
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(home / "venv"), "platbase": str(home / "venv")}))
    pip = (sys.executable, "-m", "pip", "--python", bin_folder / "python", "install", "-q", "--no-deps", "--no-index")
    done = run(*pip, wheel, cwd=home)
    assert done.returncode == 0, done.stderr
    (packages / "borrowed.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    return bin_folder


def check_works(bin_folder: Path, home: Path) -> None:
    """The installed command runs the demo headless, and every packaged file is found."""
    where = run(bin_folder / "python", "-c", "import moetop; print(moetop.__file__)", cwd=home)
    assert str(home) in where.stdout, where
    version = run(bin_folder / "moetop", "--version", cwd=home)
    assert re.fullmatch(r"moetop \d+\.\d+\.\d+\n", version.stdout), version
    demo = run(bin_folder / "moetop", "--demo", "--snapshot", "-", cwd=home)
    assert (demo.returncode, demo.stderr) == (0, "")
    hosts = {host["name"]: host for host in json.loads(demo.stdout)["hosts"]}
    assert set(hosts) == {"glm5-sm120", "h200-lab"} and len(hosts["glm5-sm120"]["gpus"]) == 8
    themes = run(
        bin_folder / "python", "-c", "from moetop.ui.theme import builtin_themes; print(*builtin_themes())", cwd=home
    )
    assert {"dark", "light"} <= set(themes.stdout.split()), themes.stderr


def test_the_wheel_installed_elsewhere_runs_the_demo(wheel: Path, tmp_path: Path) -> None:
    check_works(install_beside(wheel, tmp_path), tmp_path)


def test_the_wheel_holds_what_is_needed_and_nothing_of_the_tests(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for theme in (ROOT / "themes").glob("*.yaml"):
        assert f"moetop/themes/{theme.name}" in names
    for data in (ROOT / "moetop/demo/data").iterdir():
        assert f"moetop/demo/data/{data.name}" in names
    for source in (ROOT / "moetop").rglob("*"):
        if source.suffix in (".py", ".tcss"):
            assert source.relative_to(ROOT).as_posix() in names
    assert not [name for name in names if not name.startswith(("moetop/", "moetop-"))]
    assert [name for name in names if name.endswith("dist-info/licenses/LICENSE")]


PIN = re.compile(r'(?P<name>[A-Za-z0-9][\w.-]*)==(?P<version>[\w.+!]+)(?:; python_version (?:<|>=) "3\.11")?')


def plain_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_constraints_pin_everything_exactly_and_name_no_registry() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [PIN.fullmatch(line) for line in lines if line and not line.startswith("#")]
    assert all(pins) and not re.search(r"https?:|--", "\n".join(lines))
    names = {plain_name(pin["name"]) for pin in pins if pin}
    wanted = [re.split(r"[<>=!~\[; ]", name)[0] for name in metadata.requires("moetop") or ()]
    assert len(wanted) > 10 and {plain_name(name) for name in wanted} - names == set()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_empty_environment_gets_everything_from_the_wheel_and_the_constraints(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv/bin/python"
    done = run(python, "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt", wheel, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    frozen = run(python, "-m", "pip", "freeze", cwd=tmp_path).stdout.splitlines()
    pins = {(plain_name(pin["name"]), pin["version"]) for pin in PIN.finditer((ROOT / "constraints.txt").read_text())}
    freed = [line.partition("==") for line in frozen if not line.startswith("moetop")]
    loose = {(plain_name(name), version) for name, _, version in freed} - pins
    assert loose == set(), "these are not pinned"
    check_works(tmp_path / "venv/bin", tmp_path)
