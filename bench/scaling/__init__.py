"""Graphs that grow: the data, and what is measured about it, each in a process of its own."""
