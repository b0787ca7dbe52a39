"""`make setup` is quick when nothing has changed, and prints one clear line when something is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import setup

SCRIPT = Path(setup.__file__).with_name("setup.sh")


def run_with_path(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run setup.sh on a machine where only the programs in `folder` exist."""
    return subprocess.run(
        ["/bin/sh", str(SCRIPT)], env={"PATH": str(folder)}, capture_output=True, text=True, check=False
    )


def install_python(folder: Path, name: str, body: str) -> None:
    program = folder / name
    program.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    program.chmod(0o755)


def test_a_missing_python_is_reported(tmp_path: Path) -> None:
    done = run_with_path(tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("setup: no Python 3.11 or newer found; install one")
    assert done.stderr.count("\n") == 1


def test_an_old_python_is_reported(tmp_path: Path) -> None:
    install_python(tmp_path, "python3", 'case "$2" in *version_info*) exit 1;; esac')
    done = run_with_path(tmp_path)
    assert done.returncode == 1
    assert "no Python 3.11 or newer" in done.stderr


def test_a_python_without_venv_is_reported(tmp_path: Path) -> None:
    install_python(tmp_path, "python3", 'case "$2" in *ensurepip*) exit 1;; esac')
    done = run_with_path(tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("setup: python3 has no venv module; install it")
    assert done.stderr.count("\n") == 1


def test_a_python_shim_that_does_not_work_is_skipped(tmp_path: Path) -> None:
    install_python(tmp_path, "python3.13", "echo 'version not installed' >&2; exit 127")
    install_python(tmp_path, "python3", '[ "$1" = -c ] || echo "chosen: python3"')
    install_python(tmp_path, "dirname", "echo .")
    done = run_with_path(tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "chosen: python3\n", "")


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose `.venv` is up to date, where any installation is an error."""
    venv = tmp_path / ".venv"
    s3_venv = tmp_path / ".venv-s3"
    for place in (venv, s3_venv):
        (place / "bin").mkdir(parents=True)
        (place / "bin" / "python").symlink_to(sys.executable)
    for name in ("requirements.lock", "requirements-s3.lock", "pyproject.toml"):
        (tmp_path / name).write_text("as it was\n", encoding="utf-8")
    for name, path in {
        "ROOT": tmp_path,
        "LOCK": tmp_path / "requirements.lock",
        "VENV": venv,
        "PYTHON": venv / "bin" / "python",
        "STAMP": venv / "installed.sha256",
        "S3_LOCK": tmp_path / "requirements-s3.lock",
        "S3_VENV": s3_venv,
        "S3_PYTHON": s3_venv / "bin" / "python",
    }.items():
        monkeypatch.setattr(setup, name, path)
    setup.STAMP.write_text(setup.fingerprint(), encoding="utf-8")

    def install() -> None:
        raise setup.SetupError("installing")

    monkeypatch.setattr(setup, "create_venv", install)
    return tmp_path


def test_a_second_run_does_nothing(tree: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert setup.main() == 0
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-s3.lock", "pyproject.toml"])
def test_a_changed_lock_or_project_file_starts_an_installation(
    tree: Path, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    (tree / name).write_text("changed\n", encoding="utf-8")
    assert setup.main() == 1
    assert capfd.readouterr().err == "setup: installing\n"


@pytest.mark.parametrize("name", ["PYTHON", "S3_PYTHON"])
def test_a_missing_virtual_environment_starts_an_installation(tree: Path, name: str) -> None:
    getattr(setup, name).unlink()
    assert setup.main() == 1
