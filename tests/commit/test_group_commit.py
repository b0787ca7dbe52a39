"""Writers that wait together are committed together. Each gets the answer that it would get alone."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from threading import TIMEOUT_MAX, Thread
from typing import Any

import pytest
from tests.commit.graphs import assert_whole
from tests.commit.together import queue, together, turn_taken
from tests.patience import PATIENCE, until

import omnigraph
from omnigraph.commit import attempts
from omnigraph.commit.attempts import _Write
from omnigraph.commit.group import Waiting
from omnigraph.commit.manifest import Commit, commit_json
from omnigraph.commit.signal import Signal
from omnigraph.commit.turns import WriterQueue
from omnigraph.engine.prepare import PrepareMutation
from omnigraph.errors import (
    CancelledError,
    ConstraintError,
    InputError,
    KeyConflictError,
    NotFoundError,
    OmnigraphError,
    PickConflictsError,
    PreconditionFailedError,
    RecoveryRequiredError,
)
from omnigraph.graph import Graph, open
from omnigraph.read.budget import Cancellation, Spending
from omnigraph.write.mutation import MutationReceipt

SCHEMA = """
node P { name: String @key  age: I32?  mail: String? @unique }
node Q { name: String @key }
edge Knows: P -> P { weight: I32? }
edge Owns: P -> Q @card(0..1)
"""
PUT = "query put($name: String, $age: I32) { insert P { name: $name, age: $age } }"
NEW = "query new($name: String, $mail: String) { create P { name: $name, mail: $mail } }"
SET = "query set($name: String, $age: I32) { update P set { age: $age } where name = $name }"
DROP = "query drop($name: String) { delete P where name = $name }"
LINK = "query link($a: String, $b: String) { insert Knows { from: $a, to: $b } }"
OWN = "query own($a: String, $b: String) { insert Owns { from: $a, to: $b } }"
OLDER = "query older($age: I32) { update P set { age: 0 } where age > $age }"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "graph"


@pytest.fixture
def graph(place: Path) -> Iterator[Graph]:
    with omnigraph.init(place, SCHEMA, actor="ann") as graph:
        for name in ("a", "b", "c"):
            graph.mutate(PUT, {"name": name, "age": 10})
        graph.mutate('query q() { insert Q { name: "x" } insert Q { name: "y" } }')
        yield graph


def mutation(graph: Graph, text: str, key: str | None = None, **params: Any) -> Callable[[], MutationReceipt]:
    return partial(graph.mutate, text, params, idempotency_key=key)


def receipts(outcomes: Sequence[object]) -> list[MutationReceipt]:
    for outcome in outcomes:
        assert isinstance(outcome, MutationReceipt), outcome
    return outcomes  # type: ignore[return-value]


def commits_of(outcomes: Sequence[object]) -> list[Commit]:
    found = [one.commit for one in receipts(outcomes)]
    assert None not in found
    return found  # type: ignore[return-value]


def content(graph: Graph, branch: str = "main") -> dict[str, list[Any]]:
    snapshot = graph.snapshot(branch=branch)
    columns = {"node:P": ["name", "age", "mail"], "node:Q": ["name"], "edge:Knows": ["src", "dst"]}
    columns["edge:Owns"] = ["src", "dst"]
    found = {key: snapshot.scan(key, columns=names).to_pylist() for key, names in columns.items()}
    return {key: sorted(tuple(map(str, row.values())) for row in rows) for key, rows in found.items()}


def names(graph: Graph, branch: str = "main") -> list[str]:
    return sorted(graph.snapshot(branch=branch).scan("node:P", columns=["id"])["id"].to_pylist())


# The commit and its members


def test_waiting_writers_share_a_commit(graph: Graph) -> None:
    before = graph.snapshot().commit
    made = commits_of(together(graph, [mutation(graph, PUT, name=f"p{i}", age=i) for i in range(8)]))
    head = graph.snapshot().commit
    assert {commit.id for commit in made} == {head.id}
    assert head.parent == before.id
    assert [commit.member for commit in made] == [member.id for member in head.members]
    assert [dict(member.changed) for member in head.members] == [{"node:P": (f"p{i}",)} for i in range(8)]
    assert {(one.key, one.inserted) for member in head.members for one in member.counts} == {("node:P", 1)}
    assert head.counts is not None
    assert [(one.key, one.inserted) for one in head.counts] == [("node:P", 8)]
    assert names(graph) == ["a", "b", "c", *(f"p{i}" for i in range(8))]
    assert_whole(graph)


def test_a_member_answers_as_if_it_was_alone(graph: Graph, place: Path) -> None:
    with open(place, actor="bob") as other:
        writes = [mutation(graph, PUT, name="d", age=1), mutation(other, SET, name="a", age=2)]
        writes.append(mutation(graph, DROP, name="b"))
        mine, theirs, gone = receipts(together(graph, writes))
    assert (mine.actor, mine.affected_nodes, mine.query_name) == ("ann", 1, "put")
    assert (theirs.actor, theirs.affected_nodes, theirs.query_name) == ("bob", 1, "set")
    assert (gone.actor, gone.affected_nodes, gone.query_name) == ("ann", 1, "drop")
    counts = [one.commit and one.commit.counts for one in (mine, theirs, gone)]
    assert [[(c.inserted, c.updated, c.deleted) for c in one or ()] for one in counts] == [
        [(1, 0, 0)],
        [(0, 1, 0)],
        [(0, 0, 1)],
    ]
    assert graph.snapshot().commit.actor is None, "the actors differ"
    assert names(graph) == ["a", "c", "d"]
    assert graph.entity("P", "a")["age"] == 2  # type: ignore[index]
    assert_whole(graph)


def test_members_with_one_actor_have_a_commit_of_that_actor(graph: Graph) -> None:
    together(graph, [mutation(graph, PUT, name=f"p{i}", age=i) for i in range(2)])
    head = graph.snapshot().commit
    assert (head.actor, len(head.members)) == ("ann", 2)


def test_a_lone_writer_has_an_ordinary_commit(graph: Graph) -> None:
    (made,) = commits_of(together(graph, [mutation(graph, PUT, name="p", age=1)]))
    assert made == graph.snapshot().commit
    assert (made.members, made.member) == ((), None)


def test_the_only_member_that_is_left_has_an_ordinary_commit(graph: Graph) -> None:
    writes = [mutation(graph, NEW, "key", name="p", mail="p@x"), mutation(graph, NEW, name="a", mail="a@x")]
    made, error = together(graph, writes)
    assert isinstance(error, KeyConflictError)
    assert isinstance(made, MutationReceipt)
    assert made.commit == graph.snapshot().commit
    assert (made.commit.members, made.commit.idempotency_key, made.commit.actor) == ((), "key", "ann")


def test_commits_are_found_by_the_actors_of_members(graph: Graph, place: Path) -> None:
    with open(place, actor="bob") as other:
        together(graph, [mutation(graph, PUT, name="d", age=1), mutation(other, PUT, name="e", age=2)])
    head = graph.snapshot().commit.id
    assert [commit.id for commit in graph.commits.list(actor="bob").commits] == [head]
    assert graph.commits.list(actor="ann").commits[0].id == head
    assert graph.commits.list(actor="eve").commits == ()


def test_history_and_feed_name_the_member(graph: Graph, place: Path) -> None:
    before = graph.snapshot().commit.id
    with open(place, actor="bob") as other:
        together(graph, [mutation(graph, PUT, name="d", age=1), mutation(other, SET, name="a", age=2)])
    head = graph.snapshot().commit
    assert {value.actor for value in graph.blame("P", "d")} == {"ann"}
    assert [value.actor for value in graph.blame("P", "a", "age")] == ["bob"]
    (logged,) = [change for change in graph.log("P", "a") if change.operation == "update"]
    assert logged.commit is not None
    assert (logged.commit.id, logged.commit.actor, logged.commit.member) == (head.id, "bob", head.members[1].id)
    stats = graph.diff(before, head.id).stat()
    assert (stats.inserts, stats.updates) == (1, 1)
    page = graph.changes.of(head.id).to_json()
    assert [(one["actor_id"], one["changed"]) for one in page["cause"]["members"]] == [
        ("ann", {"node:P": ["d"]}),
        ("bob", {"node:P": ["a"]}),
    ]
    assert [one["actor_id"] for one in commit_json(head)["members"]] == ["ann", "bob"]


def test_a_group_can_be_reverted_as_a_whole(graph: Graph) -> None:
    before = content(graph)
    made = commits_of(together(graph, [mutation(graph, PUT, name="d", age=1), mutation(graph, SET, name="a", age=2)]))
    assert graph.revert(made[0].id).commit is not None
    assert content(graph) == before


def test_one_member_can_be_reverted(graph: Graph) -> None:
    writes = [mutation(graph, PUT, name="d", age=1), mutation(graph, SET, name="a", age=2)]
    made = commits_of(together(graph, [*writes, mutation(graph, DROP, name="c")]))
    head = graph.snapshot().commit
    assert made[1].member is not None
    preview = graph.revert(head.id, member=made[1].member, preview=True)
    assert {key: (one.inserted, one.updated, one.deleted) for key, one in preview.changes.items()} == {
        "node:P": (0, 1, 0)
    }
    done = graph.revert(head.id, member=made[1].member, idempotency_key="undo")
    assert done.member_id == made[1].member
    assert dict(done.commit.labels)["reverted_member"] == made[1].member  # type: ignore[union-attr]
    assert graph.entity("P", "a")["age"] == 10  # type: ignore[index]
    assert names(graph) == ["a", "b", "d"], "the other members stay"
    assert graph.revert(head.id, member=made[1].member, idempotency_key="undo") == done
    with pytest.raises(InputError, match="undo"):
        graph.revert(head.id, member=made[0].member, idempotency_key="undo")
    graph.branch().revert(head.id, member=made[0].member)
    graph.revert(head.id, member=made[2].member)
    assert content(graph)["node:P"] == [(name, "10", "None") for name in "abc"]
    assert graph.verify().total == 0


def test_a_reverted_member_conflicts_with_later_changes_of_its_rows_only(graph: Graph) -> None:
    writes = [mutation(graph, SET, name="a", age=1), mutation(graph, SET, name="b", age=2)]
    made = commits_of(together(graph, writes))
    graph.mutate(SET, {"name": "a", "age": 3})
    with pytest.raises(PickConflictsError):
        graph.revert(made[0].id, member=made[0].member)
    assert graph.revert(made[1].id, member=made[1].member).is_clean
    assert [graph.entity("P", name)["age"] for name in "ab"] == [3, 10]  # type: ignore[index]


def test_an_unknown_member_is_not_reverted(graph: Graph) -> None:
    made = commits_of(together(graph, [mutation(graph, PUT, name=f"p{i}", age=i) for i in range(2)]))
    with pytest.raises(NotFoundError, match="no member 'nobody'"):
        graph.revert(made[0].id, member="nobody")
    with pytest.raises(InputError, match="2 members"):
        graph.revert(made[0].id, member="01")
    alone = graph.mutate(PUT, {"name": "p", "age": 1}).commit
    assert alone is not None
    with pytest.raises(NotFoundError, match="no member"):
        graph.revert(alone.id, member=made[0].member)


# Members that fail, and members that would see each other


def test_a_member_that_fails_leaves_the_others_whole(graph: Graph) -> None:
    writes = [
        mutation(graph, PUT, name="d", age=1),
        mutation(graph, NEW, name="a", mail="a@x"),
        mutation(graph, LINK, a="a", b="nobody"),
        mutation(graph, SET, name="nobody", age=1),
        mutation(graph, PUT, name="e", age=2),
    ]
    outcomes = together(graph, writes)
    assert isinstance(outcomes[1], KeyConflictError)
    assert isinstance(outcomes[2], ConstraintError)
    nothing = outcomes[3]
    assert isinstance(nothing, MutationReceipt)
    assert (nothing.commit, nothing.affected_nodes) == (None, 0)
    first, last = commits_of([outcomes[0], outcomes[4]])
    assert first.id == last.id
    assert names(graph) == ["a", "b", "c", "d", "e"]
    assert_whole(graph)


def test_members_of_the_same_row_are_committed_one_after_the_other(graph: Graph) -> None:
    writes = [mutation(graph, SET, name="a", age=age) for age in (1, 2, 3)]
    made = commits_of(together(graph, [*writes, mutation(graph, PUT, name="d", age=4)]))
    assert len({commit.id for commit in made}) == 3
    assert made[0].id == made[3].id, "only writers of the same row wait"
    assert graph.entity("P", "a")["age"] == 3  # type: ignore[index]
    assert [change.after["age"] for change in graph.log("P", "a")][:3] == [3, 2, 1]  # type: ignore[index]


PAIRS = {
    "an edge beside the deletion of its node": [(DROP, {"name": "b"}), (LINK, {"a": "a", "b": "b"})],
    "a deletion beside a new edge": [(LINK, {"a": "a", "b": "b"}), (DROP, {"name": "b"})],
    "an edge to a new node": [(PUT, {"name": "d", "age": 1}), (LINK, {"a": "a", "b": "d"})],
    "two equal unique values": [(NEW, {"name": "d", "mail": "m"}), (NEW, {"name": "e", "mail": "m"})],
    "two edges of a node that may have one": [(OWN, {"a": "a", "b": "x"}), (OWN, {"a": "a", "b": "y"})],
    "a condition that a new row matches": [(PUT, {"name": "d", "age": 90}), (OLDER, {"age": 50})],
    "a condition that a row matches no more": [(SET, {"name": "a", "age": 1}), (OLDER, {"age": 5})],
    "a row that is deleted and created": [(DROP, {"name": "a"}), (NEW, {"name": "a", "mail": "m"})],
    "a row that is created and deleted": [(NEW, {"name": "d", "mail": "m"}), (DROP, {"name": "d"})],
    "a row that is deleted twice": [(DROP, {"name": "a"}), (DROP, {"name": "a"})],
}


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_members_give_the_result_of_one_after_the_other(graph: Graph, tmp_path: Path, pair: list[Any]) -> None:
    graph.branches.create("serial")
    expected = [outcome_of(partial(graph.mutate, text, params, branch="serial")) for text, params in pair]
    outcomes = together(graph, [partial(graph.mutate, text, params) for text, params in pair])
    assert [summary(one) for one in outcomes] == [summary(one) for one in expected]
    assert content(graph) == content(graph, "serial")
    assert graph.verify().total == 0


def outcome_of(write: Callable[[], object]) -> object:
    try:
        return write()
    except OmnigraphError as error:
        return error


def summary(outcome: object) -> object:
    if isinstance(outcome, MutationReceipt):
        return outcome.query_name, outcome.affected_nodes, outcome.affected_edges, outcome.commit is None
    assert isinstance(outcome, OmnigraphError), outcome
    return type(outcome)


def _random_write(chance: random.Random) -> tuple[str, dict[str, Any]]:
    name, other = chance.choice("abcd"), chance.choice("abcd")
    choices: list[tuple[str, dict[str, Any]]] = [
        (PUT, {"name": name, "age": chance.choice([1, 10, 90])}),
        (NEW, {"name": name, "mail": chance.choice(["m", "n"])}),
        (SET, {"name": name, "age": chance.choice([1, 90])}),
        (DROP, {"name": name}),
        (LINK, {"a": name, "b": other}),
        (OWN, {"a": name, "b": chance.choice("xy")}),
        (OLDER, {"age": 50}),
    ]
    return chance.choice(choices)


def _inversions(order: Sequence[int]) -> int:
    """How much an order differs from that of the requests. Most groups need none."""
    return sum(one > other for one, other in itertools.combinations(order, 2))


@pytest.mark.parametrize("seed", range(12))
def test_random_groups_have_the_result_of_some_order(graph: Graph, seed: int) -> None:
    """Four writes about the same few rows: their answers and the content are those of one of the 24 orders."""
    chance = random.Random(seed)
    writes = [_random_write(chance) for _ in range(4)]
    start = graph.snapshot().commit.id
    outcomes = [summary(one) for one in together(graph, [partial(graph.mutate, *write) for write in writes])]
    after = content(graph)
    assert graph.verify().total == 0
    orders = sorted(
        itertools.permutations(range(4)), key=lambda order: sum(a > b for a, b in itertools.combinations(order, 2))
    )
    for number, order in enumerate(orders):
        branch = graph.branches.create(f"order-{number}", commit=start).name
        answers = {place: summary(outcome_of(partial(graph.mutate, *writes[place], branch=branch))) for place in order}
        if [answers[place] for place in range(4)] == outcomes and content(graph, branch) == after:
            return
    pytest.fail(f"no order of {writes} gives {outcomes}")


# Writes that are not grouped


def test_writes_with_a_precondition_or_a_message_are_commits_of_their_own(graph: Graph) -> None:
    head = graph.snapshot().commit.id
    options: list[dict[str, Any]] = [
        {"expect_head": head},
        {"message": "mine"},
        {"unchanged_since": head},
        {"timeout": 30},
    ]
    writes = [partial(graph.mutate, PUT, {"name": f"p{i}", "age": 1}, **said) for i, said in enumerate(options)]
    made = commits_of(together(graph, writes))
    assert len({commit.id for commit in made}) == len(options)
    assert {commit.members for commit in made} == {()}


def test_a_precondition_on_the_head_fails_after_a_group(graph: Graph) -> None:
    head = graph.snapshot().commit.id
    writes = [mutation(graph, PUT, name=f"p{i}", age=1) for i in range(2)]
    outcomes = together(graph, [*writes, partial(graph.mutate, PUT, {"name": "late", "age": 1}, expect_head=head)])
    assert isinstance(outcomes[2], PreconditionFailedError)
    assert names(graph) == ["a", "b", "c", "p0", "p1"]


def test_a_large_write_is_a_commit_of_its_own(graph: Graph) -> None:
    body = " ".join(f'insert P {{ name: "many-{i}" }}' for i in range(100))
    writes = [mutation(graph, PUT, name="d", age=1), mutation(graph, f"query many() {{ {body} }}")]
    first, many = commits_of(together(graph, [*writes, mutation(graph, PUT, name="e", age=1)]))[:2]
    assert first.id != many.id
    assert many.members == ()
    assert len(names(graph)) == 105


def test_branches_have_groups_of_their_own(graph: Graph) -> None:
    graph.branches.create("dev")
    writes = [partial(graph.mutate, PUT, {"name": f"d{i}", "age": 1}, branch="dev") for i in range(3)]
    with turn_taken(graph):
        made = commits_of(together(graph, writes, "dev"))
    assert len({commit.id for commit in made}) == 1
    assert made[0].branch == "dev"
    assert names(graph, "dev") == ["a", "b", "c", "d0", "d1", "d2"]
    assert names(graph) == ["a", "b", "c"]
    assert_whole(graph)


# Idempotency keys


def test_a_member_can_be_repeated_by_its_key(graph: Graph, place: Path) -> None:
    first = receipts(together(graph, [mutation(graph, PUT, f"key-{i}", name=f"p{i}", age=i) for i in range(3)]))
    head = graph.snapshot().commit
    assert graph.mutate(PUT, {"name": "p1", "age": 1}, idempotency_key="key-1") == first[1]
    with open(place, actor="ann") as again:
        assert again.mutate(PUT, {"name": "p2", "age": 2}, idempotency_key="key-2") == first[2]
        with pytest.raises(InputError, match="key-2"):
            again.mutate(PUT, {"name": "p2", "age": 3}, idempotency_key="key-2")
        for _ in range(80):  # the commit moves to an older part of the manifest
            again.mutate(PUT, {"name": "z", "age": 1})
        assert again.mutate(PUT, {"name": "p2", "age": 2}, idempotency_key="key-2") == first[2]
    graph.refresh()
    assert [commit.id for commit in graph.commits.list().commits].count(head.id) == 1


def test_a_key_is_used_once_in_a_group(graph: Graph) -> None:
    made = receipts(together(graph, [mutation(graph, PUT, "key", name="p", age=1) for _ in range(3)]))
    assert made[0] == made[1] == made[2]
    assert len(list(graph.log("P", "p"))) == 1


def test_a_request_that_waits_has_the_parameters_that_its_key_stands_for(graph: Graph) -> None:
    """The caller uses the same dictionary for its next request, on another thread."""
    params = {"name": "p", "age": 1}
    thread = Thread(target=partial(graph.mutate, PUT, params, idempotency_key="key"))
    with turn_taken(graph) as waiting:
        thread.start()
        until(lambda: len(waiting) == 1)
        params["name"] = "q"
    thread.join(PATIENCE)
    assert graph.mutate(PUT, {"name": "p", "age": 1}, idempotency_key="key").affected_nodes == 1
    assert names(graph) == ["a", "b", "c", "p"]


def test_a_repeated_request_is_answered_beside_new_members(graph: Graph) -> None:
    first = graph.mutate(PUT, {"name": "p", "age": 1}, idempotency_key="key")
    writes = [mutation(graph, PUT, "key", name="p", age=1), mutation(graph, PUT, name="q", age=1)]
    again, other = receipts(together(graph, writes))
    assert again == first
    assert other.commit is not None
    assert other.commit.id != first.commit.id  # type: ignore[union-attr]


def test_a_fork_does_not_inherit_the_keys_of_members(graph: Graph) -> None:
    together(graph, [mutation(graph, PUT, f"key-{i}", name=f"p{i}", age=i) for i in range(2)])
    graph.branches.create("dev")
    made = graph.mutate(PUT, {"name": "p0", "age": 0}, branch="dev", idempotency_key="key-0").commit
    assert made is not None
    assert made.branch == "dev"


# Errors and interruptions of a group


def test_an_error_before_the_publish_is_found_by_each_member_alone(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    staged = _Write._staged
    failed: list[bool] = []

    def staged_once(self: _Write, view: Any) -> Any:
        found = staged(self, view)
        if not failed:
            failed.append(True)
            raise InputError("this attempt")
        return found

    monkeypatch.setattr(_Write, "_staged", staged_once)
    made = commits_of(together(graph, [mutation(graph, PUT, name=f"p{i}", age=i) for i in range(3)]))
    assert len({commit.id for commit in made}) == 3
    assert names(graph) == ["a", "b", "c", "p0", "p1", "p2"]


def test_an_interrupted_caller_does_not_stop_the_others(graph: Graph) -> None:
    """The write of a caller that leaves while it waits is not made. The queue goes on without it."""
    with turn_taken(graph) as waiting:
        leaving = mutation(graph, PUT, name="gone", age=1)
        interrupted = pytest.MonkeyPatch()
        interrupted.setattr("omnigraph.commit.turns.Waiting", partial(Waiting, woken=_InterruptedSignal()))
        with pytest.raises(KeyboardInterrupt):
            leaving()
        interrupted.undo()
        assert len(waiting) == 0
    until(lambda: not queue(graph)._taken)
    made = commits_of(together(graph, [mutation(graph, PUT, name=f"p{i}", age=i) for i in range(2)]))
    assert len({commit.id for commit in made}) == 1
    assert names(graph) == ["a", "b", "c", "p0", "p1"]


def test_an_interrupted_caller_is_not_written_by_a_later_group(graph: Graph) -> None:
    """Its neighbours in the queue become a group without it."""
    outcomes: list[object] = []

    def start(write: Callable[[], object], waiting: WriterQueue, count: int) -> Thread:
        thread = Thread(target=lambda: outcomes.append(write()))
        thread.start()
        until(lambda: len(waiting) == count)
        return thread

    with turn_taken(graph) as waiting:
        first = start(mutation(graph, PUT, name="first", age=1), waiting, 1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("omnigraph.commit.turns.Waiting", partial(Waiting, woken=_InterruptedSignal()))
            with pytest.raises(KeyboardInterrupt):
                graph.mutate(PUT, {"name": "gone", "age": 1})
        last = start(mutation(graph, PUT, name="last", age=1), waiting, 2)
    for thread in (first, last):
        thread.join(PATIENCE)
    assert len({commit.id for commit in commits_of(outcomes)}) == 1
    assert names(graph) == ["a", "b", "c", "first", "last"]


@pytest.mark.parametrize("staying", [0, 2])
def test_writers_that_left_take_no_turns_of_their_own(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, staying: int
) -> None:
    """Their group goes on without them, in its one turn. Each caller gets its own error."""
    turns: list[object] = []
    write = attempts.write

    def counted(store: Any, request: Any, prepare: Any) -> Any:
        turns.append(prepare)
        return write(store, request, prepare)

    monkeypatch.setattr(attempts, "write", counted)
    before = graph.snapshot().commit
    cancel = Cancellation()

    def leaving(name: str) -> object:
        with Spending(cancel=cancel).running():
            return graph.mutate(PUT, {"name": name, "age": 1})

    def last() -> object:
        cancel.cancel()  # the others wait now
        return mutation(graph, DROP, name="none")()

    writes = [partial(leaving, f"gone{i}") for i in range(6)]
    stays = [mutation(graph, PUT, name=f"p{i}", age=i) for i in range(staying)]
    outcomes = together(graph, [*writes[:3], *stays, *writes[3:], last])
    assert len(turns) == 1
    left = [one for one in outcomes if isinstance(one, CancelledError)]
    assert len({id(error) for error in left}) == 6
    made = [one.commit for one in receipts([one for one in outcomes if one not in left])]
    assert len(made) == staying + 1
    assert {commit.id for commit in made if commit is not None} == ({graph.snapshot().commit.id} if staying else set())
    assert (graph.snapshot().commit.id != before.id) is bool(staying)
    assert names(graph) == ["a", "b", "c", *(f"p{i}" for i in range(staying))]
    assert len(queue(graph)) == 0
    graph.mutate(PUT, {"name": "after", "age": 1})
    assert_whole(graph)


class _InterruptedSignal(Signal):
    """A signal whose waiter is interrupted."""

    def wait(self, timeout: float = TIMEOUT_MAX) -> bool:
        raise KeyboardInterrupt


class _Panic(BaseException):
    """As the panic of a native library: no `except Exception` catches it."""


def test_a_panic_in_one_member_leaves_the_others_whole(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes before anything is written, so each member is written alone, and only its own caller gets the panic."""
    prepare = PrepareMutation.__call__

    def panics(self: PrepareMutation, view: Any) -> Any:
        if self.params["name"] == "bad":
            raise _Panic("at prepare")
        return prepare(self, view)

    monkeypatch.setattr(PrepareMutation, "__call__", panics)
    caught: list[BaseException] = []

    def panicking() -> None:
        try:
            graph.mutate(PUT, {"name": "bad", "age": 1}, idempotency_key="bad")
        except _Panic as panic:
            caught.append(panic)

    writes = [mutation(graph, PUT, f"key {i}", name=f"p{i}", age=i) for i in range(2)]
    outcomes = together(graph, [writes[0], panicking, writes[1]])
    commits_of([outcomes[0], outcomes[2]])
    assert len(caught) == 1
    assert names(graph) == ["a", "b", "c", "p0", "p1"]


@pytest.mark.parametrize("is_late", [False, True])
def test_the_queue_goes_on_without_memory(graph: Graph, monkeypatch: pytest.MonkeyPatch, is_late: bool) -> None:
    """The thread of a group fails between two steps. Its members get an answer, and later writers their turn."""
    put_back, failures = WriterQueue._put_back, iter([MemoryError(), MemoryError()])

    def fails(self: WriterQueue, members: Sequence[Waiting]) -> None:
        if is_late:
            put_back(self, members)
        for failure in failures:
            raise failure
        if not is_late:
            put_back(self, members)

    monkeypatch.setattr(WriterQueue, "_put_back", fails)
    same = mutation(graph, SET, name="a", age=5)  # the second member waits for the next group
    outcomes = together(graph, [same, mutation(graph, SET, name="a", age=6), mutation(graph, PUT, name="p", age=1)])
    commits_of([outcomes[0], outcomes[2]])
    if is_late:
        commits_of(outcomes)
    else:
        assert isinstance(outcomes[1], RecoveryRequiredError)
    graph.mutate(PUT, {"name": "after", "age": 1})
    assert names(graph) == ["a", "after", "b", "c", "p"]


def test_a_process_without_threads_writes_one_after_the_other(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    start = Thread.start

    def refused(self: Thread) -> None:
        if self.name == "omnigraph group commit":
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(Thread, "start", refused)
    made = commits_of(together(graph, [mutation(graph, PUT, name=f"p{i}", age=i) for i in range(3)]))
    assert len({commit.id for commit in made}) == 3
    assert names(graph) == ["a", "b", "c", "p0", "p1", "p2"]
