"""Runs commands on a terminal of a given size."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios

from tests.patience import PATIENCE

_RUN = """
import json, sys
from omnigraph.cli.main import cli
for args in json.loads(sys.argv[1]):
    try:
        cli.main(args, prog_name="omnigraph")
    except SystemExit as ended:
        print(f"\\x1f{ended.code or 0}\\x1f", flush=True)
"""

COLORS = re.compile(r"\x1b\[[0-9;]*m")


def on_terminal(*commands: list[str], columns: int, rows: int = 40, **environment: str) -> list[str]:
    """The output of commands, one after another, on one terminal. stdout and stderr are mixed, as a user sees them."""
    terminal, other = pty.openpty()
    fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    settings = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    settings |= {"TERM": "xterm-256color", "OMNIGRAPH_FSYNC": "0"} | environment
    program = [sys.executable, "-c", _RUN, json.dumps(commands)]
    with subprocess.Popen(program, stdin=other, stdout=other, stderr=other, env=settings) as process:
        os.close(other)
        shown = b""
        while True:
            try:
                read = os.read(terminal, 65_536)
            except OSError:  # Linux reports an error when the last writer has closed the terminal
                break
            if not read:
                break
            shown += read
        process.wait(PATIENCE)
    os.close(terminal)
    parts = shown.decode().replace("\r\n", "\n").split("\x1f")
    assert parts[1::2] == ["0"] * len(commands), shown.decode()
    return [part.removeprefix("\n") for part in parts[:-1:2]]
