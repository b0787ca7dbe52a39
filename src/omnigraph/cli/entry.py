"""Start of the `omnigraph` command. It handles Ctrl-C before it imports the commands, which takes a moment."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

_INTERRUPTED = 130


def serve() -> None:
    """Run `omnigraph serve`, for the script `omnigraph-server`."""
    main(["serve", *sys.argv[1:]])


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, _stop)
    from omnigraph.cli.main import main as run

    signal.signal(signal.SIGINT, before)
    run(args)


def _stop(number: int, frame: FrameType | None) -> None:
    """End the process at once. It has only imported modules so far, and some of them replace an interrupt by errors."""
    os.write(2, b"stopped\n")
    os._exit(_INTERRUPTED)
