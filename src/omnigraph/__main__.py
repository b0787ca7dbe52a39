"""Runs the command line: `python -m omnigraph`."""

from omnigraph.cli.main import main

if __name__ == "__main__":
    main()
