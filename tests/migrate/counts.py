"""The numbers of changed entities of a commit: as recorded, and as a diff finds them."""

from __future__ import annotations

from omnigraph.commit.manifest import Commit
from omnigraph.graph import Graph

Counts = dict[str, tuple[int, int, int]]
"""Inserted, updated and deleted entities, by type key."""


def shown_counts(commit: Commit) -> Counts:
    """The numbers that `commit list` shows."""
    return {one.key: (one.inserted, one.updated, one.deleted) for one in commit.counts or ()}


def diff_counts(graph: Graph, commit: Commit) -> Counts:
    """The numbers of a diff between a commit and its parent."""
    found: Counts = {}
    for key, one in graph.diff(str(commit.parent), commit.id).stat().types:
        before = found.get(key, (0, 0, 0))
        found[key] = (before[0] + one.inserts, before[1] + one.updates, before[2] + one.deletes)
    return found
