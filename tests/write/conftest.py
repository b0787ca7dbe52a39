"""Child processes that use a graph, as in the tests of commits."""

from __future__ import annotations

from tests.commit.conftest import _no_fsync, children, parent, place

__all__ = ["_no_fsync", "children", "parent", "place"]
