"""Make `.venv-bench` match requirements-bench.lock: what benchmarks compare with.

Run through `make bench`, after `make setup`. Where it cannot be installed, say for want of a network, the benchmarks
run without it and say so: this is no reason to fail.
"""

from __future__ import annotations

import hashlib
import os
import sys
import venv
from pathlib import Path

from setup import PYTHON, ROOT, UV, runs, say

LOCK = ROOT / "requirements-bench.lock"
VENV = ROOT / ".venv-bench"
STAMP = VENV / "installed.sha256"


def main(environment: Path = VENV, lock: Path = LOCK) -> int:
    python, stamp = environment / "bin" / "python", environment / STAMP.name
    wanted = hashlib.sha256(os.fsencode(environment) + lock.read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted and runs(python, "-c", ""):
        return 0
    say("installing requirements-bench.lock: what benchmarks compare with")
    venv.create(environment, clear=True, with_pip=False, symlinks=True)
    uv = (UV, "pip", "sync", "--quiet", "--require-hashes", "--python", python, lock)
    pip = (PYTHON, "-m", "pip", "--python", python, "install", "--quiet", "--require-hashes", "-r", lock)
    if any(runs(*command) for command in (uv, pip)):
        stamp.write_text(wanted)
    else:
        say("could not install requirements-bench.lock; benchmarks run without what it lists")
    return 0


if __name__ == "__main__":
    sys.exit(main())
