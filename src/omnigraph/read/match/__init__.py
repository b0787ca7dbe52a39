"""Match operators: scan, expand, filter, join and count, over arrays of entity numbers."""
