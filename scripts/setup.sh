#!/bin/sh
# Finds a Python that can make virtual environments and hands over to setup.py.
# PYTHON=... names one explicitly.
set -eu

too_bare=
for python in ${PYTHON:-python3.13 python3.12 python3.11 python3}; do
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
    if "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        exec "$python" "$(dirname "$0")/setup.py" "$@"
    fi
    too_bare=$python
done

if [ -n "$too_bare" ]; then
    echo "setup: $too_bare has no venv module; install it (Debian, Ubuntu: sudo apt install python3-venv) and run this again." >&2
else
    echo "setup: no Python 3.11 or newer found; install one (https://www.python.org/downloads/) or name it: make setup PYTHON=/path/to/python3" >&2
fi
exit 1
