"""Messages of commits that nobody wrote name no types to actors who may not see them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import omnigraph
from omnigraph.engine.row_scope import RowRules, Rows
from omnigraph.graph import Graph
from omnigraph.restricted.commits import visible_commit

SCHEMA = "node Person { key: String @key }\nnode Vault { code: String @key  worth: I64? }"


def test_default_messages_name_no_types(tmp_path: Path) -> None:
    with omnigraph.init(tmp_path / "graph", SCHEMA) as whole:
        whole.load({"Vault": [{"code": "v", "worth": 1}]}, mode="append")
        start = whole.branch().head.id
        whole.mutate("query q() { update Vault set { worth: 2 } where true }")
        done = whole.restore("Vault", "v", start)
        assert done.commit is not None
        assert "Vault" in str(done.commit.message)
        whole.revert(done.commit.id)
        rules = RowRules({"node:Vault": Rows.HIDDEN})
        shown = Graph(whole.session.restricted(rules.scope_of(whole.session.accepted)))
        restored = f"Restore entities from commit {start}"
        messages = [commit.message for commit in shown.commits.list(limit=2).commits]
        assert messages == [f'Revert "{restored}"', restored]


def test_messages_of_repairs_name_no_types_and_those_of_callers_stay(tmp_path: Path) -> None:
    with omnigraph.init(tmp_path / "graph", SCHEMA) as whole:
        head = whole.branch().head
    repaired = replace(head, message="repair: node:Vault, edge:Opens")
    assert visible_commit(repaired).message == "repair"
    assert visible_commit(replace(head, message=f'Revert "{repaired.message}"')).message == 'Revert "repair"'
    for message in (None, "Restore the old order", "repair: the roof"):
        assert visible_commit(replace(head, message=message)).message == message
