"""Runs the command line: `python -m omnigraph`."""

from omnigraph.cli.entry import main

if __name__ == "__main__":
    main()
