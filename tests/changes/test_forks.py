"""States on forks of forks are compared with states from before the forks."""

from __future__ import annotations

from pathlib import Path

import omnigraph


def test_a_fork_of_a_fork_is_compared_with_a_state_before_both(tmp_path: Path) -> None:
    """The fork does not have the older version of the table, so removed rows are found without Lance's records."""
    with omnigraph.init(tmp_path / "g", "node P { k: String @key  n: I64? }") as graph:
        for name in "abcd":
            graph.load([{"type": "P", "data": {"k": name, "n": 1}}], mode="append")
        first = [commit.id for commit in graph.commits][1]
        for parent, branch, gone in (("main", "dev", "a"), ("dev", "topic", "b")):
            graph.branches.create(branch, source=parent)
            graph.mutate(f'query q() {{ delete P where k = "{gone}" }}', branch=branch)
        graph.load([{"type": "P", "data": {"k": "c", "n": 2}}], mode="merge", branch="topic")
        diff = graph.diff(first, "topic")["P"]
        assert diff.deleted()["id"].to_pylist() == ["a", "b"]
        assert diff.inserted()["id"].to_pylist() == ["d"]
        assert diff.updated()["id"].to_pylist() == ["c"]
        back = graph.diff("topic", first)["P"]
        assert back.inserted()["id"].to_pylist() == ["a", "b"]
        assert back.deleted()["id"].to_pylist() == ["d"]
