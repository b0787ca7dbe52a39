"""What the tests of merging share: other processes, and no waiting for the disk."""

from __future__ import annotations

from tests.commit.conftest import _no_fsync, children, parent, place

__all__ = ["_no_fsync", "children", "parent", "place"]
