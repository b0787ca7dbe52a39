"""The embedded API: handles to read and write a graph from this process."""

from omnigraph.engine.opening import relocate, repair, restore
from omnigraph.graph.graph import Graph, init, open
from omnigraph.read.budget import Budget, Cancellation

__all__ = ["Budget", "Cancellation", "Graph", "init", "open", "relocate", "repair", "restore"]
