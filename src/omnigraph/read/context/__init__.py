"""The state of one read: its snapshot, parameters, budget and trace."""

from omnigraph.read.context.context import Context

__all__ = ["Context"]
