"""The parts of the benchmark of changes."""
