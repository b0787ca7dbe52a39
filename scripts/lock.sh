#!/bin/sh
# Writes requirements.lock: exact versions and hashes of everything a developer installs,
# requirements-s3.lock: the same for the S3 server of the tests, which has an environment of its own,
# and requirements-bench.lock: what benchmarks compare with, likewise.
# Run through `make lock`. Pins that still fit are kept; `make lock ARGS=--upgrade` renews them.
# See docs/decisions/0001-lock-file.md
set -eu
cd "$(dirname "$0")/.."

lock() {
    # --no-config and --default-index: hashes of the files on PyPI, whatever mirror this machine prefers.
    .venv/bin/uv pip compile \
        --quiet --no-config --default-index https://pypi.org/simple \
        --universal --python-version 3.11 --generate-hashes \
        --custom-compile-command "make lock" "$@"
}

lock pyproject.toml --all-extras --group dev --output-file requirements.lock "$@"
lock --group pyproject.toml:s3-server --output-file requirements-s3.lock "$@"
lock --group pyproject.toml:bench-peers --output-file requirements-bench.lock "$@"
