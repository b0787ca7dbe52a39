"""Schema changes of graphs in S3 and in memory have the same effect as on a local disk."""

from __future__ import annotations

import pytest
from tests.commit.graphs import assert_whole
from tests.migrate.cases import CASES
from tests.migrate.garden import SCHEMA, content, create, modelled
from tests.s3_server import S3Root

from omnigraph.graph import open

CASE = CASES["everything at once"]


@pytest.mark.s3
@pytest.mark.slow
def test_a_schema_change_in_s3(s3_root: S3Root) -> None:
    graph = create(s3_root.uri, options=s3_root.options)
    before, busy, head = content(graph), content(graph, branch="busy"), graph.snapshot().commit.id
    new = CASE.schema(SCHEMA)
    assert graph.schema.apply(new).applied
    assert content(graph) == modelled(before, CASE.model)
    assert content(graph, branch="busy") == busy
    assert content(graph, at=head) == before
    assert graph.schema.apply(new).applied is False
    graph.optimize()
    assert_whole(graph)
    for name in ("idle", "busy"):
        graph.branches.delete(name)
    gone = graph.schema.apply(new.replace("    moods: [enum(happy, sad, odd)]?\n", ""), allow="data_loss")
    assert [(drop.error, drop.versions_kept) for drop in gone.hard_drops] == [(None, 0)]
    with open(s3_root.uri, storage_options=s3_root.options) as reopened:
        assert "moods" not in content(reopened)["Tree"]["p01"]


def test_a_schema_change_in_memory() -> None:
    with create("memory://migrated-garden") as graph:
        before, head = content(graph), graph.snapshot().commit.id
        assert graph.schema.apply(CASE.schema(SCHEMA)).applied
        assert content(graph) == modelled(before, CASE.model)
        assert content(graph, at=head) == before
        gone = graph.schema.apply(CASE.schema(SCHEMA).replace("    planted: Date?\n", ""), allow="data_loss")
        assert "in memory" in str(gone.hard_drops[0].error), "cleanup does not work there"
        assert "planted" not in content(graph)["Tree"]["p01"]
