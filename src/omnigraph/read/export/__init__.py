"""Export of a whole snapshot to files."""
