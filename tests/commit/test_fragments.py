"""Fragments that other processes wrote can be committed, if they lie in the directory of the branch's table."""

from __future__ import annotations

import json
from pathlib import Path

import lance
import pytest
from lance.fragment import write_fragments
from tests.commit.graphs import SEED, assert_whole, ids, put, rows

from omnigraph.commit.manifest import Commit
from omnigraph.commit.table_writes import AppendFragments
from omnigraph.commit.write_request import WriteRequest
from omnigraph.errors import InputError
from omnigraph.graph import Graph
from omnigraph.storage.table_ref import table_directory


def adopt(graph: Graph, place: Path, names: list[str], branch: str) -> Commit | None:
    """Write fragments in the current directory of the branch's table, and commit them."""
    ref = graph.snapshot(branch=branch).pin("node:A").ref
    table = lance.dataset(str(place / table_directory(ref.path, ref.branch)), version=ref.version)
    written = write_fragments(rows("node:A", names).cast(table.schema), table)
    fragments = tuple(json.dumps(fragment.to_json()) for fragment in written)
    writes = [AppendFragments("node:A", fragments)]
    return graph.write_tables(WriteRequest(branch=branch), lambda view: writes)


@pytest.mark.parametrize("branch", ["main", "dev"])
def test_committed_fragments_are_visible_as_rows(graph: Graph, place: Path, branch: str) -> None:
    if branch != "main":
        graph.branches.create(branch)
        put(graph, ["own"], branch=branch)
    before = ids(graph, branch=branch)
    assert adopt(graph, place, ["x", "y"], branch) is not None
    assert ids(graph, branch=branch) == sorted([*before, "x", "y"])
    assert_whole(graph)


def test_fragments_for_a_table_that_is_not_forked_yet_are_refused(graph: Graph, place: Path) -> None:
    """They lie in the directory of `main`, where the fork would not find them, and the table would be unreadable."""
    graph.branches.create("dev")
    with pytest.raises(InputError, match="fragments"):
        adopt(graph, place, ["x"], "dev")
    assert ids(graph, branch="dev") == sorted(SEED)
    assert_whole(graph)
