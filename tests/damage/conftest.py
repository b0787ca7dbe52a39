"""A small graph in a directory, and other processes that use it."""

from __future__ import annotations

from tests.commit.conftest import _no_fsync, children, graph, parent, place

__all__ = ["_no_fsync", "children", "graph", "parent", "place"]
