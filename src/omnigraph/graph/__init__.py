"""The embedded API: open a graph and work with it in this process."""

from omnigraph.graph.graph import Graph, init, open, repair
from omnigraph.graph.places import relocate, restore
from omnigraph.read.budget import Budget, Cancellation

__all__ = ["Budget", "Cancellation", "Graph", "init", "open", "relocate", "repair", "restore"]
