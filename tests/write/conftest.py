"""Other processes that use a graph, as the tests of commits have them."""

from __future__ import annotations

from tests.commit.conftest import _no_fsync, children, parent, place

__all__ = ["_no_fsync", "children", "parent", "place"]
