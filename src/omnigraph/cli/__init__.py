"""The command line: parses input, calls the engine and prints the result."""
