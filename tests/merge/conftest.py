"""Fixtures of the merge tests: child processes, and no fsync."""

from __future__ import annotations

from tests.commit.conftest import _no_fsync, children, parent, place

__all__ = ["_no_fsync", "children", "parent", "place"]
