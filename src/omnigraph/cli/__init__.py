"""The command line: parse input, call the engine, render output."""
