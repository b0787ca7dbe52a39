"""`log` and `blame` name the commits that changed an entity, compared with all states of the graph."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from tests.commit.conftest import _no_fsync
from tests.commit.graphs import evolve_to

from omnigraph.commit.failpoints import Failpoint, SimulatedCrashError, armed
from omnigraph.errors import InputError, NotFoundError, OmnigraphError, TypeCheckError, VersionReclaimedError
from omnigraph.graph import Graph, init, open
from omnigraph.history import rows as rows_module

__all__ = ["_no_fsync"]

SCHEMA = """
node Person { name: String @key  age: I64?  town: String?  photo: Blob? }
edge Knows: Person -> Person { since: I64? }
"""
NOW = timedelta(0)


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with init(tmp_path / "g", SCHEMA, actor="kim") as made:
        yield made


def put(graph: Graph, name: str, branch: str = "main", mode: str = "merge", **values: object) -> str:
    rows = pa.table({"name": [name], **{key: [value] for key, value in values.items()}})
    commit = graph.load({"Person": rows}, mode=mode, branch=branch).commit
    assert commit is not None
    return commit.id


def delete(graph: Graph, name: str, branch: str = "main") -> str:
    made = graph.mutate("query q($n: String) { delete Person where name = $n }", {"n": name}, branch=branch)
    assert made.commit is not None
    return made.commit.id


# The oracle: every state of the branch, read one by one


def expected_log(graph: Graph, name: str, branch: str = "main") -> list[tuple[str, str, set[str]]]:
    made = graph.commits.list(branch=branch).commits
    states = [graph.entity("Person", name, at=commit.id) for commit in made]
    found = []
    for commit, after, before in zip(made, states, [*states[1:], None], strict=True):
        if after == before:
            continue
        operation = "insert" if before is None else "delete" if after is None else "update"
        whole = after or before or {}
        changed = {
            key
            for key in whole
            if (whole[key] is not None if None in (after, before) else after[key] != before[key])  # type: ignore[index]
        }
        found.append((commit.id, operation, changed))
    return found


def expected_blame(graph: Graph, name: str, branch: str = "main") -> dict[str, str]:
    found: dict[str, str] = {}
    state = graph.entity("Person", name, at=graph.snapshot(branch=branch).commit.id)
    assert state is not None
    for commit, operation, changed in expected_log(graph, name, branch):
        for key in state if operation == "insert" else changed:
            found.setdefault(key, commit)
        if operation == "insert":
            break
    return found


def log_of(graph: Graph, name: str, branch: str = "main", **more: Any) -> list[tuple[str, str, set[str]]]:
    return [
        ("?" if change.commit is None else change.commit.id, change.operation.value, set(change.properties))
        for change in graph.log("Person", name, branch=branch, **more)
    ]


def blame_of(graph: Graph, name: str, branch: str = "main", **more: Any) -> dict[str, str | None]:
    found = graph.blame("Person", name, branch=branch, **more)
    return {value.property: None if value.commit is None else value.commit.id for value in found}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_log_and_blame_agree_with_all_states_of_a_random_history(graph: Graph, seed: int) -> None:
    chance = Random(seed)
    names = ["ann", "ben", "cas"]
    branches = ["main"]
    for step in range(30):
        branch, name, act = chance.choice(branches), chance.choice(names), chance.randrange(14)
        if act < 6:
            values: dict[str, Any] = {"age": chance.randrange(3)} if chance.random() < 0.7 else {}
            values |= {"town": chance.choice(["x", "y", None])} if chance.random() < 0.6 else {}
            put(graph, name, branch, **values)
        elif act == 6:
            graph.mutate("query q($n: String) { delete Person where name = $n }", {"n": name}, branch=branch)
        elif act == 7:
            rows = pa.table(
                {
                    "name": chance.sample(names, chance.randrange(1, 4)),
                }
            )
            graph.load({"Person": rows}, mode="overwrite", branch=branch)
        elif act == 8:
            graph.optimize()
        elif act == 9 and len(branches) < 3:
            branches.append(f"b{step}")
            graph.branches.create(branches[-1], source=branch)
        elif act in (10, 11) and branch != "main":
            into = chance.choice([each for each in branches if each != branch])
            graph.merge(branch, into=into, strategy=chance.choice(["ours", "theirs"]))
        elif act == 12:
            graph.ensure_indexes(branch=branch)
        else:
            with armed(Failpoint.TABLE_COMMITTED, "crash"), pytest.raises(SimulatedCrashError):
                put(graph, name, branch, age=99)
            graph.refresh()
    for branch in branches:
        for name in names:
            wanted = expected_log(graph, name, branch)
            if not wanted:
                with pytest.raises(NotFoundError):
                    graph.log("Person", name, branch=branch)
                continue
            assert log_of(graph, name, branch, follow=False) == wanted
            if graph.entity("Person", name, at=graph.snapshot(branch=branch).commit.id) is not None:
                assert blame_of(graph, name, branch, follow=False) == expected_blame(graph, name, branch)
            # With merges followed, every named commit exists, and the newest change is the same.
            followed = log_of(graph, name, branch)
            assert followed[0] == wanted[0]
            assert {one[0] for one in wanted} <= {one[0] for one in followed}


def test_the_life_of_an_entity_has_values_before_and_after(graph: Graph) -> None:
    first = put(graph, "ann", age=1, town="x")
    put(graph, "ben", age=5)
    second = put(graph, "ann", age=2, town="x")
    third = delete(graph, "ann")
    fourth = put(graph, "ann", age=7)
    found = graph.log("Person", "ann")
    assert [(c.commit.id, c.operation.value) for c in found if c.commit] == [
        (fourth, "insert"),
        (third, "delete"),
        (second, "update"),
        (first, "insert"),
    ]
    assert found.changes[2].properties == ("age",)
    assert (found.changes[2].before or {})["age"] == 1
    assert (found.changes[2].after or {})["age"] == 2
    assert (found.changes[1].after, found.changes[0].before) == (None, None)
    assert found.kept_from is None
    assert blame_of(graph, "ann")["age"] == fourth
    assert graph.blame("Person", "ann", "age")[0].actor == "kim"


def test_values_are_followed_into_merged_branches(graph: Graph) -> None:
    put(graph, "ann", age=1, town="x")
    graph.branches.create("dev")
    with open(graph.uri, actor="bob") as bob:
        older = put(bob, "ann", branch="dev", age=2, town="x")
        newer = put(bob, "ann", branch="dev", age=2, town="y")
    put(graph, "ben")
    merged = graph.merge("dev").commit
    assert merged is not None
    found = {value.property: value for value in graph.blame("Person", "ann")}
    ids = {name: None if value.commit is None else value.commit.id for name, value in found.items()}
    assert (ids["age"], found["age"].actor, found["age"].merged_by) == (older, "bob", merged.id)
    assert (ids["town"], found["town"].actor) == (newer, "bob")
    assert found["name"].actor == "kim"
    assert [(c.commit.id, c.merged_by) for c in graph.log("Person", "ann") if c.commit][:3] == [
        (merged.id, None),
        (newer, merged.id),
        (older, merged.id),
    ]
    assert len(graph.log("Person", "ann")) == 4
    assert blame_of(graph, "ann", follow=False)["age"] == merged.id
    graph.branches.delete("dev")
    assert blame_of(graph, "ann")["age"] == older, "lineage travels with a merge"


def test_a_resolution_of_a_conflict_is_made_by_the_merge(graph: Graph) -> None:
    put(graph, "ann", age=1)
    graph.branches.create("dev")
    theirs = put(graph, "ann", branch="dev", age=2)
    put(graph, "ann", age=3)
    graph.merge("dev", strategy="theirs")
    assert blame_of(graph, "ann")["age"] == theirs


def test_removed_commits_are_reported_as_not_kept(graph: Graph) -> None:
    made = [put(graph, "ann", age=number) for number in range(6)]
    graph.tags.create("v", commit=made[1])
    graph.cleanup(keep=2, orphans_older_than=NOW)
    with open(graph.uri) as fresh:
        found = fresh.log("Person", "ann")
        assert [c.commit and c.commit.id for c in found] == [made[5], None]
        assert (found.changes[1].after_commit, found.changes[1].until_commit) == (made[1], made[4])
        assert found.kept_from == made[1]
        (age,) = fresh.blame("Person", "ann", "age")
        assert age.commit is not None
        assert age.commit.id == made[5]
        (name,) = fresh.blame("Person", "ann", "name")
        # The removed commits have deleted nothing, and a key is never updated. So the tagged commit has set it, or
        # an earlier one.
        assert (name.commit, name.after_commit, name.until_commit) == (None, None, made[1])


def test_blame_continues_before_removed_commits(graph: Graph) -> None:
    """Equal values before and after removed commits: the range starts at the newest state with another value."""
    put(graph, "bob")
    first = put(graph, "ann", age=1, town="x")
    graph.tags.create("t1")
    for age in (2, 3, 4):
        put(graph, "ann", age=age, town="x")
    fourth = graph.branch("main").head.id
    graph.tags.create("t2")
    for town in ("y", "z"):
        put(graph, "ann", age=4, town=town)
    last = graph.branch("main").head.id
    graph.cleanup(keep=1, orphans_older_than=NOW)
    with open(graph.uri) as fresh:
        ranges = {
            one.property: (one.commit, one.after_commit, one.until_commit) for one in fresh.blame("Person", "ann")
        }
    assert ranges["age"] == (None, first, last), "town or age: the removed commits may have set the age to 4 again"
    assert ranges["town"] == (None, fourth, last)
    assert ranges["id"] == ranges["name"] == (None, None, first)


def test_removed_commits_may_have_inserted_an_entity_again(graph: Graph) -> None:
    first = put(graph, "ann", age=1)
    graph.tags.create("v", commit=first)
    graph.mutate('query q() { delete Person where name = "ann" }')
    put(graph, "ann", age=1)
    last = put(graph, "ann", age=2)
    graph.cleanup(keep=1, orphans_older_than=NOW)
    with open(graph.uri) as fresh:
        (name,) = fresh.blame("Person", "ann", "name")
        assert (name.commit, name.until_commit) == (None, last)


def test_the_history_of_a_removed_state_cannot_be_read(graph: Graph) -> None:
    """The manifest version before the head stays after cleanup, but its tables do not."""
    made = [put(graph, "ann", age=number) for number in range(3)]
    graph.cleanup(keep=1, orphans_older_than=NOW)
    with open(graph.uri) as fresh:
        for read in (fresh.log, fresh.blame):
            with pytest.raises(VersionReclaimedError, match=f"the state at commit {made[1]} no longer exists"):
                read("Person", "ann", at=made[1])


def test_a_change_between_kept_commits_is_assigned_by_the_recorded_counts(graph: Graph) -> None:
    first = put(graph, "ann", age=1)
    graph.tags.create("v", commit=first)
    second = put(graph, "ann", age=2)
    for _ in range(4):
        graph.load({"Knows": pa.table({"from": ["ann"], "to": ["ann"], "since": [1]})}, mode="append")
    graph.cleanup(keep=1, orphans_older_than=NOW)
    with open(graph.uri) as fresh:
        assert blame_of(fresh, "ann")["age"] == second


def test_an_undone_change_is_in_the_log(graph: Graph) -> None:
    """Recovery restores the table. The change was visible, so both the change and its undo are listed."""
    first = put(graph, "ann", age=1)
    put(graph, "ann", age=2)
    graph.optimize()
    third = put(graph, "ann", age=1)
    assert log_of(graph, "ann")[0][0] == third
    assert log_of(graph, "ann")[-1][0] == first
    assert log_of(graph, "ann") == expected_log(graph, "ann")


def test_blobs_are_compared_by_their_content(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "_BLOB_CHUNK", 3)
    first = put(graph, "ann", photo=b"a picture", age=1)
    second = put(graph, "ann", photo=b"a picturE", age=1)
    put(graph, "ann", photo=b"a picturE", age=2)
    graph.optimize()
    found = blame_of(graph, "ann")
    assert (found["photo"], found["name"]) == (second, first)
    assert [change.properties for change in graph.log("Person", "ann")][:2] == [("age",), ("photo",)]


def test_a_state_in_the_past_has_its_own_history(graph: Graph) -> None:
    first = put(graph, "ann", age=1)
    second = put(graph, "ann", age=2)
    assert [value.commit.id for value in graph.blame("Person", "ann", "age", at=first) if value.commit] == [first]
    assert [value.commit.id for value in graph.blame("Person", "ann", "age", at=second[:26]) if value.commit] == [
        second
    ]
    assert len(graph.log("Person", "ann", at=first)) == 1


def test_edges_have_a_history(graph: Graph) -> None:
    put(graph, "ann")
    made = graph.mutate('query q() { insert Knows { from: "ann", to: "ann", since: 3 } }').commit
    assert made is not None
    edge = graph.snapshot().scan("edge:Knows")["id"][0].as_py()
    found = {value.property: value for value in graph.blame("Knows", edge)}
    assert found["since"].commit == made
    assert list(found)[:3] == ["id", "from", "to"]
    assert found["from"].value == "ann"
    for name in ("from", "src"):
        [end] = graph.blame("Knows", edge, name)
        assert (end.property, end.value, end.commit) == ("from", "ann", made)
    [inserted] = graph.log("Knows", edge)
    assert inserted.properties == ("id", "from", "to", "since")
    assert inserted.after == {"id": edge, "from": "ann", "to": "ann", "since": 3}
    with pytest.raises(InputError, match="no property 'from'"):
        graph.blame("Person", "ann", "from")
    delete(graph, "ann")
    assert [change.operation.value for change in graph.log("edge:Knows", edge)] == ["delete", "insert"]


def test_schema_changes_do_not_hide_changes(graph: Graph) -> None:
    put(graph, "ann", age=1)
    second = put(graph, "ann", age=2)
    delete(graph, "ann")
    evolve_to(graph, SCHEMA + "node Extra { name: String @key }\n", [])
    last = put(graph, "ann", age=4)
    assert log_of(graph, "ann")[0][0] == last
    assert log_of(graph, "ann") == expected_log(graph, "ann")
    assert second in [one[0] for one in log_of(graph, "ann")]


@pytest.mark.slow
def test_the_cost_depends_on_the_changes_of_the_entity(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not on the number of commits: they are searched by bisection."""
    put(graph, "ann", age=1)
    for number in range(60):
        put(graph, f"p{number}")
    put(graph, "ann", age=2)
    for number in range(60):
        put(graph, f"q{number}")
    reads: list[object] = []
    original = type(graph.session.store).manifest_of

    def counted(self: object, commit: object) -> object:
        reads.append(commit)
        return original(self, commit)  # type: ignore[arg-type]

    monkeypatch.setattr(type(graph.session.store), "manifest_of", counted)
    assert len(graph.log("Person", "ann")) == 2
    assert len(reads) < 30


def test_wrong_names_are_reported(graph: Graph) -> None:
    put(graph, "ann")
    for call in (graph.log, graph.blame):
        with pytest.raises(NotFoundError):
            call("Person", "nobody")
        with pytest.raises(NotFoundError) as error:
            call("node:Persom", "ann")
        assert "did you mean 'node:Person'" in str(error.value.hint)
        with pytest.raises(InputError):
            call("Person", 3)  # type: ignore[arg-type]
    with pytest.raises(InputError) as wrong:
        graph.blame("Person", "ann", "agee")
    assert "did you mean 'age'" in str(wrong.value.hint)
    delete(graph, "ann")
    with pytest.raises(NotFoundError, match="no entity"):
        graph.blame("Person", "ann")
    assert issubclass(InputError, OmnigraphError)


# Schema changes, merges and branch updates


def _messages(graph: Graph, entity: str, branch: str = "main", **more: Any) -> list[str | None]:
    return [None if one.commit is None else one.commit.message for one in graph.log("T", entity, branch=branch, **more)]


def _setters(graph: Graph, entity: str, branch: str = "main") -> dict[str, str | None]:
    return {
        one.property: None if one.commit is None else one.commit.message
        for one in graph.blame("T", entity, branch=branch)
    }


def _set(graph: Graph, entity: str, values: str, message: str, branch: str = "main") -> None:
    text = f'query q() {{ update T set {{ {values} }} where k = "{entity}" }}'
    assert graph.mutate(text, branch=branch, message=message).commit


@pytest.fixture
def items(tmp_path: Path) -> Iterator[Graph]:
    with init(tmp_path / "t", "node T { k: String @key  n: I32?  s: String? }", actor="kim") as made:
        rows = [{"k": "x", "n": 1, "s": "a"}, {"k": "y", "n": 2, "s": "b"}]
        made.load({"T": rows}, mode="append", message="jan")
        made.branches.create("b")
        yield made


WIDER = "node T { k: String @key  n: I32?  s: String?  colour: String?  w: I32 @default(7) }"


def test_no_value_is_older_than_its_property(items: Graph) -> None:
    items.schema.apply(WIDER, message="feb")
    _set(items, "x", 'colour: "red"', "paint")
    _set(items, "x", "n: 5", "five", "b")
    items.branches.update("b", message="up")
    for branch in ("main", "b"):
        assert _setters(items, "y", branch) == {"id": "jan", "k": "jan", "n": "jan", "s": "jan"} | dict.fromkeys(
            ("colour", "w"), "feb"
        )
    assert _setters(items, "x", "b") == {
        "id": "jan",
        "k": "jan",
        "n": "five",
        "s": "jan",
        "colour": "paint",
        "w": "feb",
    }
    assert _messages(items, "y", "b") == ["up", "feb", "jan"]
    assert _messages(items, "x", "b") == ["up", "paint", "feb", "five", "jan"]
    assert _messages(items, "x", "b", follow=False) == ["up", "five", "jan"]
    assert _messages(items, "y") == ["feb", "jan"]


def test_a_log_has_the_commits_of_a_branch_after_a_merge_by_property(items: Graph) -> None:
    _set(items, "x", "n: 10", "ten", "b")
    _set(items, "x", 's: "S"', "upper")
    items.merge("b", level="property", message="merge")
    assert _messages(items, "x") == ["merge", "ten", "upper", "jan"]
    assert _setters(items, "x") == {"id": "jan", "k": "jan", "n": "ten", "s": "upper"}


def test_a_log_has_the_commits_of_a_branch_with_an_older_schema(items: Graph) -> None:
    _set(items, "x", "n: 10", "ten", "b")
    items.mutate('query q() { insert T { k: "z", n: 1 } }', branch="b", message="zed")
    items.schema.apply(WIDER, message="feb")
    items.merge("b", message="merge")
    assert _messages(items, "x") == ["merge", "ten", "feb", "jan"]
    assert _messages(items, "z") == ["merge", "zed"]
    assert _setters(items, "z")["n"] == "zed"
    assert _setters(items, "z")["w"] == "merge", "the merge filled in the default"


def test_commits_that_came_with_an_update_are_listed_once_after_the_merge_back(items: Graph) -> None:
    items.schema.apply(WIDER, message="feb")
    _set(items, "x", "n: 5", "five", "b")
    items.branches.update("b", message="up")
    items.merge("b", message="merge")
    assert _messages(items, "x") == ["merge", "up", "five", "feb", "jan"]


def test_a_property_with_the_name_of_a_dropped_one_keeps_its_own_history(items: Graph) -> None:
    _set(items, "x", "n: null", "none")
    items.schema.apply("node T { k: String @key  n: I32? }", message="drop s")
    items.schema.apply('node T { k: String @key  s: I32? @rename_from("n") }', message="rename n")
    assert _setters(items, "x") == {"id": "jan", "k": "jan", "s": "none"}
    items.branches.update("b", message="up")
    assert _setters(items, "x", "b") == {"id": "jan", "k": "jan", "s": "none"}
    assert _setters(items, "y", "b") == {"id": "jan", "k": "jan", "s": "jan"}
    assert _messages(items, "x") == ["drop s", "none", "jan"]
    items.schema.apply("node T { k: String @key  s: I32?  n: I32 @default(3) }", message="another n")
    assert _setters(items, "x")["n"] == "another n"
    assert _setters(items, "y")["s"] == "jan"


def test_a_widened_value_keeps_its_commit(items: Graph) -> None:
    _set(items, "x", "n: 10", "ten", "b")
    items.schema.apply("node T { k: String @key  n: I64?  s: String? }", message="feb")
    items.merge("b", message="merge")
    assert (_setters(items, "x")["n"], _setters(items, "y")["n"]) == ("ten", "jan")


def test_a_value_that_removed_commits_changed_and_changed_back_is_not_assigned_to_an_older_commit(graph: Graph) -> None:
    first = put(graph, "ann", age=1, town="x")
    for age in (2, 1):
        put(graph, "ann", age=age, town="x")
    last = put(graph, "ben")
    graph.tags.create("v", commit=first)
    graph.cleanup(keep=1, orphans_older_than=NOW)
    with open(graph.uri) as fresh:
        (blamed,) = fresh.blame("Person", "ann", "age")
        assert (blamed.commit, blamed.after_commit, blamed.until_commit) == (None, None, last)
        [change] = fresh.log("Person", "ann")
        assert (change.commit, change.properties, change.after_commit, change.until_commit) == (None, (), first, last)


def test_a_value_of_a_merged_branch_that_is_not_kept_is_unknown(graph: Graph) -> None:
    put(graph, "ann", age=1)
    graph.branches.create("dev")
    put(graph, "ann", branch="dev", age=2)
    put(graph, "ben")
    merged = graph.merge("dev", delete_branch=True).commit
    assert merged is not None
    graph.cleanup(keep=3, orphans_older_than=NOW)
    with open(graph.uri) as fresh:
        (age,) = fresh.blame("Person", "ann", "age")
        assert (age.commit, age.until_commit, age.merged_by) == (None, merged.id, merged.id)
        log = fresh.log("Person", "ann")
        assert (next(one.commit for one in log), log.incomplete_merges) == (merged, (merged.id,))
        assert fresh.log("Person", "ben").incomplete_merges == ()


def test_removed_commits_that_may_have_inserted_and_deleted_an_entity_are_reported(graph: Graph) -> None:
    first = put(graph, "ben")
    put(graph, "ann", age=1)
    delete(graph, "ann")
    second = put(graph, "cas")
    with pytest.raises(NotFoundError, match=r"has never had an entity 'dan' on branch 'main'$"):
        graph.log("Person", "dan")
    last = put(graph, "ann", age=2)
    genesis = graph.commits.list().commits[-1].id
    for name, commit in (("v0", genesis), ("v1", first), ("v2", second)):
        graph.tags.create(name, commit=commit)
    graph.cleanup(keep=1, orphans_older_than=NOW)
    with open(graph.uri) as fresh:
        for follow in (True, False):
            log = fresh.log("Person", "ann", follow=follow)
            assert [one.commit and one.commit.id for one in log] == [last]
            assert (log.kept_from, log.incomplete_ranges) == (None, ((first, second),))
        assert log.to_json()["incomplete_ranges"] == [{"after_commit_id": first, "until_commit_id": second}]
        for name, commit in (("ben", first), ("cas", second)):
            log = fresh.log("Person", name)
            assert [one.commit and one.commit.id for one in log] == [commit if name == "ben" else None]
            assert log.incomplete_ranges == ()
        for name in ("ann", "dan"):
            with pytest.raises(NotFoundError) as missing:
                fresh.log("Person", name, at=second)
            assert "never" not in str(missing.value)
            removed = f"after {first}, in or before {second}"
            assert missing.value.hint == f"removed commits may have inserted and deleted it: {removed}"
        with pytest.raises(NotFoundError, match=r"edge:Knows has never had an entity 'x' on branch 'main'$"):
            fresh.log("Knows", "x")


@pytest.mark.parametrize("removed", ["insertions", "deletions", "a deletion before an insertion", "a schema change"])
def test_removed_commits_that_cannot_have_inserted_and_deleted_an_entity_are_not_reported(
    graph: Graph, removed: str
) -> None:
    first = put(graph, "ben", age=1)
    put(graph, "cas")
    graph.tags.create("v1", commit=put(graph, "dan"))
    if removed.startswith(("deletion", "a deletion")):
        delete(graph, "ben")
        delete(graph, "cas")
    if removed.startswith(("insertion", "a deletion", "a schema")):
        put(graph, "eve")
    if removed == "a schema change":
        graph.schema.apply(SCHEMA.replace("town: String?", "town: String?  zip: I64?"))
    graph.load({"Knows": pa.table({"from": ["dan"], "to": ["dan"]})}, mode="append")
    graph.tags.create("v0", commit=graph.commits.get(first).parent)
    graph.cleanup(keep=1, orphans_older_than=NOW)
    with open(graph.uri) as fresh, pytest.raises(NotFoundError, match=r"never had an entity 'ann' on branch 'main'$"):
        fresh.log("Person", "ann")


def test_a_merge_of_removed_commits_that_may_have_changed_the_entity_is_incomplete(graph: Graph) -> None:
    kept = [graph.commits.list().commits[-1].id, put(graph, "zoe")]
    graph.branches.create("dev")
    kept.append(put(graph, "ben", branch="dev"))
    put(graph, "ann", branch="dev", age=1)
    delete(graph, "ann", branch="dev")
    kept.append(put(graph, "cas", branch="dev"))
    last = put(graph, "ann", branch="dev", age=2)
    kept += [last, put(graph, "eve")]
    for i, commit in enumerate(kept):
        graph.tags.create(f"v{i}", commit=commit)
    merged = graph.merge("dev").commit
    assert merged is not None
    graph.cleanup(keep=1, orphans_older_than=NOW)
    with open(graph.uri) as fresh:
        log = fresh.log("Person", "ann")
        assert [one.commit and one.commit.id for one in log] == [merged.id, last]
        assert (log.kept_from, log.incomplete_merges, log.incomplete_ranges) == (None, (merged.id,), ())


def test_former_names_lead_to_the_present_ones(items: Graph) -> None:
    items.schema.apply('node U @rename_from("T") { k: String @key  m: I32? @rename_from("n")  s: String? }')
    with pytest.raises(NotFoundError) as renamed:
        items.log("T", "x")
    assert renamed.value.hint == "it is now named U"
    with pytest.raises(InputError) as column:
        items.blame("U", "x", "n")
    assert column.value.hint == "it is now named m"
    dropped = items.schema.apply("node V { k: String @key }")
    with pytest.raises(NotFoundError) as gone:
        items.log("U", "x")
    assert dropped.commit is not None
    assert gone.value.hint == f"commit {dropped.commit.id} dropped it; give an earlier state"


def test_former_names_of_edge_types_lead_to_the_present_ones(tmp_path: Path) -> None:
    nodes = "node T { k: String @key }\n"
    with init(tmp_path / "g", nodes + "edge By: T -> T\nedge Of: T -> T") as graph:
        graph.tags.create("first")
        dropped = graph.schema.apply(nodes + 'edge PlayedBy: T -> T @rename_from("By")')
        assert dropped.commit is not None
        with pytest.raises(NotFoundError, match="the graph has no type edge:By") as renamed:
            graph.log("By", "x")
        assert renamed.value.hint == "it is now named PlayedBy"
        with pytest.raises(NotFoundError, match="the graph has no type edge:Of") as gone:
            graph.blame("Of", "x")
        assert gone.value.hint == f"commit {dropped.commit.id} dropped it; give an earlier state"
        with pytest.raises(NotFoundError, match="branch 'main' has no type edge:By") as restored:
            graph.restore("By", "x", "first")
        assert restored.value.hint == "it is now named PlayedBy"
        with pytest.raises(NotFoundError, match="the graph has no type node:Never"):
            graph.log("Never", "x")


def test_former_names_in_queries_lead_to_the_present_ones(tmp_path: Path) -> None:
    with init(tmp_path / "g", "node T { k: String @key }\nnode Old { k: String @key }") as graph:
        graph.tags.create("first")
        done = graph.schema.apply('node U @rename_from("T") { k: String @key }').commit
        assert done is not None
        reads = "query q() { match { $t: %s } return { $t.k } }"
        writes = 'query q() { insert %s { k: "x" } }'
        for name, hint in (("T", "it is now named U"), ("Old", f"commit {done.id} dropped it"), ("V", "known: U")):
            for call in (
                lambda name=name: graph.query(reads % name),
                lambda name=name: graph.mutate(writes % name),
                lambda name=name: graph.changes.baseline(types=[name]),
            ):
                with pytest.raises((TypeCheckError, InputError)) as raised:
                    call()
                assert raised.value.hint == hint
                assert raised.value.span is None or "-->" in raised.value.render()
        assert graph.query(reads % "T", at="first").to_pylist() == []


def test_a_time_as_a_text_leads_to_a_datetime(items: Graph) -> None:
    for call in (
        lambda: items.entity("T", "x", at="2026-11-16T17:00:00Z"),
        lambda: items.restore("T", "x", "2020-01-01"),
    ):
        with pytest.raises(NotFoundError, match="there is no commit or tag '20") as raised:
            call()
        assert raised.value.hint == "for a time, give a datetime"
