#!/bin/sh
# Writes requirements.lock: exact versions and hashes of everything a developer installs.
# Run through `make lock`. Pins that still fit are kept; `make lock ARGS=--upgrade` renews them.
set -eu
cd "$(dirname "$0")/.."

# --no-config and --default-index: hashes of the files on PyPI, whatever mirror this machine prefers.
exec .venv/bin/uv pip compile pyproject.toml \
    --quiet --no-config --default-index https://pypi.org/simple \
    --all-extras --group dev \
    --universal --python-version 3.11 --generate-hashes \
    --custom-compile-command "make lock" \
    --output-file requirements.lock "$@"
