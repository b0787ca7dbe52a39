"""Make `.venv` match requirements.lock, with OmniGraph itself installed in editable mode.

Beside it, `.venv-s3` gets what requirements-s3.lock lists: the S3 server that the tests talk to.
Run through `make setup`. Standard library only: this runs before anything is installed.
A stamp inside `.venv` remembers what was installed, so that a run with nothing to do
returns at once and touches no network.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.lock"
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
UV = VENV / "bin" / "uv"
STAMP = VENV / "installed.sha256"
S3_LOCK = ROOT / "requirements-s3.lock"
S3_VENV = ROOT / ".venv-s3"
S3_PYTHON = S3_VENV / "bin" / "python"
JAVA_NEEDED = 17


class SetupError(Exception):
    """One line for the user: what is missing and how to get it."""


def main() -> int:
    VENV.mkdir(exist_ok=True)
    with open(VENV / "setup.flock", "w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)  # two `make`s in one tree: the second waits for the first
        wanted = fingerprint()
        if STAMP.exists() and STAMP.read_text() == wanted and runs(PYTHON, "-c", "") and runs(S3_PYTHON, "-c", ""):
            return 0
        try:
            create_venv()
            install_locked()
            install_omnigraph()
            install_s3_server()
        except SetupError as error:
            print(f"setup: {error}", file=sys.stderr)
            return 1
        STAMP.write_text(wanted)
    say("ready")
    if not has_java():
        say(
            f"note: no Java {JAVA_NEEDED}+; only Spark needs it (Debian, Ubuntu: sudo apt install default-jre-headless)"
        )
    return 0


def fingerprint() -> str:
    """Change when a lock, the project metadata or the place of the tree changes (a venv cannot be moved)."""
    digest = hashlib.sha256(os.fsencode(VENV))
    for file in (LOCK, S3_LOCK, ROOT / "pyproject.toml"):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def create_venv() -> None:
    """Make `.venv` afresh, unless the one at hand works and was made at this place."""
    config = VENV / "pyvenv.cfg"
    made_here = config.exists() and f" {VENV}\n" in config.read_text()
    if made_here and runs(PYTHON, "-m", "pip", "--version"):
        return
    say(f"making .venv with Python {sys.version.split()[0]}")
    for old in ("bin", "lib", "lib64", "include", "share", STAMP.name):
        path = VENV / old
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    venv.create(VENV, with_pip=True, symlinks=True)


def install_locked() -> None:
    """Install exactly what the lock lists, with uv if it can be had, else with pip."""
    say("installing requirements.lock (a first run downloads several hundred megabytes)")
    if install_uv() and runs(UV, "pip", "sync", "--require-hashes", "--python", PYTHON, LOCK, show=True):
        return
    say("uv could not do it; trying pip")
    if not runs(PYTHON, "-m", "pip", "install", "--quiet", "--require-hashes", "-r", LOCK, show=True):
        raise SetupError(
            "could not install requirements.lock (see above); check the network or proxy and run this again."
        )


def install_uv() -> bool:
    """Put the locked uv into `.venv`, checked against its hashes like everything else."""
    entry = re.search(r"^uv==.*(?:\n +--hash=.*)*", LOCK.read_text(), re.MULTILINE)
    if entry is None:
        raise SetupError("requirements.lock does not list uv; regenerate it with: make lock")
    if runs(UV, "--version") and entry[0].split()[0].removeprefix("uv==") in output(UV, "--version").split():
        return True
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as only_uv:
        only_uv.write(entry[0])
        only_uv.flush()
        return runs(PYTHON, "-m", "pip", "install", "--quiet", "--require-hashes", "-r", only_uv.name, show=True)


def install_omnigraph() -> None:
    """Install the package in editable mode; its build backend is in the lock, so no network is needed."""
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--editable", ROOT)
    if UV.exists() and runs(UV, "pip", "install", "--offline", "--python", PYTHON, *options, show=True):
        return
    if not runs(PYTHON, "-m", "pip", "install", *options, show=True):
        raise SetupError("could not install omnigraph itself (see above).")


def install_s3_server() -> None:
    """Make `.venv-s3` afresh; what installs into it is the uv or pip of `.venv`."""
    venv.create(S3_VENV, clear=True, with_pip=False, symlinks=True)
    if UV.exists() and runs(
        UV, "pip", "sync", "--quiet", "--require-hashes", "--python", S3_PYTHON, S3_LOCK, show=True
    ):
        return
    pip = (PYTHON, "-m", "pip", "--python", S3_PYTHON, "install")
    if not runs(*pip, "--quiet", "--require-hashes", "-r", S3_LOCK, show=True):
        raise SetupError(
            "could not install requirements-s3.lock (see above); check the network or proxy and run this again."
        )


def has_java() -> bool:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else "java"
    version = re.search(r'version "(\d+)', output(java, "-version"))
    return version is not None and int(version[1]) >= JAVA_NEEDED


def runs(*command: str | Path, show: bool = False) -> bool:
    """Whether the command exists and succeeds; its output is shown only on request."""
    sink = None if show else subprocess.DEVNULL
    try:
        return subprocess.run([str(part) for part in command], cwd=ROOT, stdout=sink, stderr=sink).returncode == 0
    except OSError:
        return False


def output(*command: str | Path) -> str:
    """Everything the command prints, or nothing when it does not exist."""
    try:
        done = subprocess.run(
            [str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
    except OSError:
        return ""
    return done.stdout


def say(message: str) -> None:
    print(f"setup: {message}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
