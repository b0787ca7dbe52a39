"""Actors with different rules do not displace what the cache has for each other."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph
from omnigraph.engine.row_scope import RowRules
from omnigraph.read.context.views import KEPT
from omnigraph.read.topology import topologies
from omnigraph.restricted.table_view import RestrictedView

SCHEMA = "node P { name: String @key  owner: String }\nnode Idle { name: String @key }\nedge Knows: P -> P"
READ = "query q() { match { $p: P  $p knows $q } return { $q.name as name } }"


def test_edges_that_only_their_ends_limit_stay_cached_for_many_actors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "0")
    actors = [f"a{number}" for number in range(KEPT + 4)]
    with omnigraph.init(tmp_path / "graph", SCHEMA) as graph:
        rows: list[dict[str, object]] = [
            {"type": "P", "data": {"name": f"{a}{n}", "owner": a}} for a in actors for n in range(2)
        ]
        rows += [{"edge": "Knows", "from": f"{a}0", "to": f"{a}1"} for a in actors]
        graph.load(rows, mode="append")
        rules = [RowRules({"node:P": "$.owner = $actor"}, actor=actor) for actor in actors]
        shown = {actor: graph.restricted(one) for actor, one in zip(actors, rules, strict=True)}
        for actor, limited in shown.items():
            assert limited.query(READ).to_pylist() == [{"name": f"{actor}1"}]
        graph.mutate('query q() { insert Idle { name: "x" } }')  # the tables that are read stay the same
        monkeypatch.setattr(RestrictedView, "_read_visible", None)
        monkeypatch.setattr(topologies, "_load", None)
        for actor, limited in shown.items():
            assert limited.query(READ).to_pylist() == [{"name": f"{actor}1"}]
