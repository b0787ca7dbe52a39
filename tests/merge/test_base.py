"""The best common ancestors of two branches after merges and deletions, and the cost of finding them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from tests.thresholds import Thresholds

import omnigraph
from omnigraph.commit import ancestors, manifest_rows, manifest_successor
from omnigraph.commit.ancestors import CommonAncestors, History, lineage_of
from omnigraph.commit.lineage import commits, find_in
from omnigraph.commit.manifest_rows import RowKind
from omnigraph.errors import DamagedFileError, InputError, MergeConflictsError
from omnigraph.graph import Graph
from omnigraph.storage.ledger import LedgerVersion
from omnigraph.storage.table_ref import manifest_name


@pytest.fixture
def graph(place: Path) -> Graph:
    return omnigraph.init(place, "node Person { name: String @key  age: I64? }")


def _add(graph: Graph, name: str, branch: str = "main") -> str:
    graph.mutate(f'query q() {{ insert Person {{ name: "{name}" }} }}', branch=branch)
    return graph.branch(branch).head.id


def _common(graph: Graph, source: str, target: str = "main") -> CommonAncestors:
    store = graph.session.store
    return History(store, store.capture(source), store.capture(target)).common()


def _best(graph: Graph, source: str, target: str = "main") -> tuple[str, ...]:
    found = _common(graph, source, target)
    assert found.is_certain
    assert found.best == _common(graph, target, source).best
    return found.best


def test_the_base_of_a_new_branch_is_the_commit_it_was_created_from(graph: Graph) -> None:
    begun = _add(graph, "a")
    graph.branches.create("side")
    _add(graph, "b")
    assert _best(graph, "side") == (begun,)
    _add(graph, "c", "side")
    assert _best(graph, "side") == (begun,)


def test_the_merged_commit_is_the_base_of_the_next_merge(graph: Graph) -> None:
    graph.branches.create("side")
    _add(graph, "a")
    first = _add(graph, "b", "side")
    graph.merge("side")
    assert _best(graph, "side") == (first,)
    _add(graph, "c", "side")
    assert _best(graph, "side") == (first,)
    _add(graph, "d")
    second = graph.merge("main", into="side").commit
    assert second is not None
    assert _best(graph, "side") == (graph.branch("main").head.id,)
    assert graph.merge("side").outcome == "fast_forward"


def test_a_branch_merged_into_two_others_is_their_base(graph: Graph) -> None:
    graph.branches.create("one")
    graph.branches.create("two")
    graph.branches.create("shared")
    _add(graph, "a", "one")
    _add(graph, "b", "two")
    shared = _add(graph, "c", "shared")
    graph.merge("shared", into="one")
    graph.merge("shared", into="two")
    assert _best(graph, "one", "two") == (shared,)
    assert graph.merge("one", into="two").outcome == "merged"


def test_the_base_is_not_an_older_ancestor_at_a_shorter_distance(graph: Graph) -> None:
    """By distance, the start of two short branches is nearer than the commit at which the long ones diverged."""
    graph.branches.create("old")
    graph.branches.create("older")
    _add(graph, "o", "old")
    _add(graph, "p", "older")
    for name in "abcdef":
        parted = _add(graph, name)
    graph.branches.create("release")
    for name in "ghij":
        _add(graph, name)
        _add(graph, f"{name}{name}", "release")
    graph.merge("old", into="main")
    graph.merge("older", into="release")
    assert _best(graph, "release") == (parted,)


def test_criss_cross_merges_have_two_bases(graph: Graph) -> None:
    graph.branches.create("dev")
    one, two = _add(graph, "a"), _add(graph, "b", "dev")
    graph.branches.create("was", commit=one)
    graph.merge("dev")
    graph.merge("was", into="dev")
    assert _best(graph, "dev") == tuple(sorted((one, two)))


def test_a_deleted_branch_is_still_a_common_ancestor(graph: Graph) -> None:
    graph.branches.create("keeps")
    graph.branches.create("goes")
    merged = _add(graph, "a", "goes")
    _add(graph, "b")
    _add(graph, "c", "keeps")
    graph.merge("goes", into="keeps")
    assert graph.merge("goes", delete_branch=True).branch_deleted is True
    assert _best(graph, "keeps") == (merged,)


def test_a_merge_adds_the_whole_lineage_of_the_source(graph: Graph, thresholds: Thresholds) -> None:
    """Every branch stores all ancestors of its head, and lists only its own commits."""
    thresholds(manifest_successor, TAIL_COMMITS=4)
    graph.branches.create("one")
    graph.branches.create("two")
    made = [_add(graph, f"one{i}", "one") for i in range(7)]
    made += [_add(graph, f"two{i}", "two") for i in range(3)]
    _add(graph, "m")
    one = graph.merge("one", into="two", delete_branch=True).commit
    assert one is not None
    two = graph.merge("two", delete_branch=True).commit
    assert two is not None
    view = graph.session.store.capture("main")
    rows = {row["id"]: row for row in lineage_of(view).to_pylist()}
    assert rows.keys() == {*made, one.id, *(commit.id for commit in commits(view))}
    assert {name for name, row in rows.items() if row["is_ancestor"]} == {*made, one.id}
    for row in rows.values():
        parents = [parent for parent in (row["parent"], row["merged_parent"]) if parent is not None]
        assert row["generation"] == 1 + max((rows[parent]["generation"] for parent in parents), default=0)
    assert [commit.id for commit in graph.commits] == [commit.id for commit in commits(view)]
    assert not {commit.id for commit in commits(view)} & {*made, one.id}
    assert all(find_in(view, name) is None for name in made)
    parts = [view.ledger.read_part(i)["object_type"].to_pylist() for i in range(len(view.ledger.parts))]
    assert parts[-1].count(RowKind.ANCESTOR) + parts[-1].count(RowKind.GRAPH_COMMIT) <= 4


def test_a_merge_does_not_copy_idempotency_keys(graph: Graph) -> None:
    graph.branches.create("side")
    graph.mutate('query q() { insert Person { name: "a" } }', branch="side", idempotency_key="k")
    graph.merge("side")
    made = graph.mutate('query q() { insert Person { name: "b" } }', idempotency_key="k").commit
    assert made is not None
    assert made.branch == "main"
    assert graph.entity("Person", "b") is not None


@pytest.mark.slow
def test_a_long_history_is_read_only_back_to_the_base(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, thresholds: Thresholds
) -> None:
    thresholds(manifest_successor, TAIL_COMMITS=2, FAN_IN=8)
    for i in range(30):
        begun = _add(graph, f"p{i}")
    graph.branches.create("side")
    for name in "klmno":
        _add(graph, name)
        _add(graph, f"{name}{name}", "side")
    read: list[int] = []
    plain = LedgerVersion.read_parts

    def counted(self: LedgerVersion, indexes: list[int], columns: list[str]) -> pa.Table:
        read.extend(self.parts[i] for i in indexes)
        return plain(self, indexes, columns)

    monkeypatch.setattr(LedgerVersion, "read_parts", counted)
    assert _common(graph, "side").best == (begun,)
    assert sum(read) <= 20
    monkeypatch.undo()
    assert graph.merge("side").outcome == "merged"


def _as_an_older_release(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on, commits have no generation number, and merges publish no ancestors."""
    monkeypatch.setattr("omnigraph.commit.publish.generation_of", lambda *_: 0)
    plain = manifest_rows._commit_json
    monkeypatch.setattr(
        manifest_rows, "_commit_json", lambda commit: {k: v for k, v in plain(commit).items() if k != "generation"}
    )
    monkeypatch.setattr(History, "missing_in_target", lambda *_: None)


def test_a_base_is_found_among_commits_without_a_generation(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as older:
        _as_an_older_release(graph, older)
        begun = _add(graph, "a")
        graph.branches.create("side")
        merged = _add(graph, "c", "side")
        _add(graph, "b")
        graph.merge("side")
    graph = omnigraph.open(graph.uri)
    assert graph.branch("side").head.generation is None
    assert _best(graph, "side") == (merged,)
    _add(graph, "d")
    assert graph.branch("main").head.generation == 5  # the first commit, a, b or c, the merge, and d
    graph.branches.create("third", commit=begun)
    _add(graph, "e", "third")
    # Only the other branch has the second parent of the old merge. The next merge adds it.
    graph.merge("third")
    graph.branches.delete("side")
    ids = set(lineage_of(graph.session.store.capture("main"))["id"].to_pylist())
    assert merged in ids


def test_a_merged_parent_missing_from_an_older_release_leaves_the_base_uncertain(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        _as_an_older_release(graph, older)
        graph.branches.create("keeps")
        graph.branches.create("goes")
        _add(graph, "a", "goes")
        _add(graph, "b", "keeps")
        graph.merge("goes", delete_branch=True)
    graph = omnigraph.open(graph.uri)
    _add(graph, "c")
    assert not _common(graph, "keeps").is_certain


def test_a_branch_is_not_merged_into_itself(graph: Graph) -> None:
    with pytest.raises(InputError, match="cannot be merged into itself"):
        graph.merge("main", into=" main ")


def test_the_lineage_lists_every_commit_once(graph: Graph) -> None:
    """The head of a new branch is also in the history of its source, and is listed once."""
    _add(graph, "a")
    graph.branches.create("side")
    rows = lineage_of(graph.session.store.capture("side"))
    assert len(set(rows["id"].to_pylist())) == rows.num_rows
    assert rows.schema == ancestors.LINEAGE


def test_a_damaged_base_does_not_drop_rows(tmp_path: Path) -> None:
    """With a strategy, rows that only the target has would become conflicts and be deleted."""
    with omnigraph.init(tmp_path / "g", "node A { k: String @key }") as graph:
        graph.load({"A": [{"k": "1"}]}, mode="append")
        base = graph.snapshot().manifest_version
        graph.branches.create("dev")
        graph.load({"A": [{"k": "dev"}]}, mode="append", branch="dev")
        for name in ("main2", "main3"):
            graph.load({"A": [{"k": name}]}, mode="append")
    file = tmp_path / "g" / "__manifest" / "_versions" / manifest_name(base)
    file.rename(tmp_path / "aside")
    with omnigraph.open(tmp_path / "g") as graph:
        with pytest.raises(MergeConflictsError):
            graph.merge("dev")
        with pytest.raises(DamagedFileError, match=file.name):
            graph.merge("dev", strategy="theirs")
        assert [damage.path.rpartition("/")[2] for damage in graph.verify().files.damages] == [file.name]
    (tmp_path / "aside").rename(file)
    with omnigraph.open(tmp_path / "g") as graph:
        graph.merge("dev", strategy="theirs")
        assert sorted(graph.snapshot().scan("node:A")["k"].to_pylist()) == ["1", "dev", "main2", "main3"]
        assert graph.verify().ok
