"""The embedded API: open a graph and work with it in this process."""

from omnigraph.graph.graph import Graph, init, open

__all__ = ["Graph", "init", "open"]
