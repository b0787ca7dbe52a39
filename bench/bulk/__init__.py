"""Loading in bulk: the data, and the contenders, each of which runs in a process of its own."""
