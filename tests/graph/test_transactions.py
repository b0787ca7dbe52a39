"""A transaction is one commit or nothing, sees its own writes, and leaves nothing behind."""

from __future__ import annotations

import inspect
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from tests.patience import until
from ulid_transform import ulid_at_time

import omnigraph
from omnigraph.commit import table_writes, transaction_branches
from omnigraph.commit.failpoints import Failpoint, SimulatedCrashError, armed
from omnigraph.commit.lease import Owner
from omnigraph.commit.ref_names import SystemBranch
from omnigraph.commit.refs import list_branch_refs
from omnigraph.commit.sidecar import WriterKind
from omnigraph.engine import request_options
from omnigraph.errors import (
    BranchNotFoundError,
    ConflictError,
    ConstraintError,
    InputError,
    KeyConflictError,
    NotFoundError,
    PreconditionFailedError,
    ReadOnlyError,
    TransactionConflictError,
    TransactionEndedError,
)
from omnigraph.graph import Graph
from omnigraph.graph.branch import BranchHandle
from omnigraph.graph.transaction import Transaction

SCHEMA = """
node Person { name: String @key age: I64? photo: Blob? }
node City { name: String @key }
edge Knows: Person -> Person { @key(src, dst) since: I64? }
edge Lives: Person -> City @card(0..1)
"""
QUERIES = """
query add($name: String) { insert Person { name: $name } }
query aged($name: String, $age: I64) { insert Person { name: $name, age: $age } }
query create($name: String) { create Person { name: $name } }
query remove($name: String) { delete Person where name = $name }
query age($name: String, $age: I64) { update Person set { age: $age } where name = $name }
query city($name: String) { insert City { name: $name } }
query move_in($person: String, $city: String) { insert Lives { from: $person, to: $city } }
query move_out($person: String) { delete Lives where from = $person }
query knows($a: String, $b: String) { insert Knows { from: $a, to: $b } }
query forget($a: String) { delete Knows where from = $a }
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "people"


@pytest.fixture
def graph(place: Path) -> Iterator[Graph]:
    with omnigraph.init(place, SCHEMA, actor="act-kim") as made:
        for name in ("ann", "bob", "cas"):
            made.mutate(QUERIES, {"name": name}, name="add")
        yield made


def run(on: Graph | BranchHandle | Transaction, query: str, **params: object) -> None:
    on.mutate(QUERIES, params, name=query)


def names(graph: Graph, branch: str = "main") -> list[str]:
    return sorted(graph.snapshot(branch=branch).scan("node:Person", columns=["id"])["id"].to_pylist())


def ages(graph: Graph, branch: str = "main") -> dict[str, int | None]:
    rows = graph.snapshot(branch=branch).scan("node:Person", columns=["id", "age"]).to_pylist()
    return {row["id"]: row["age"] for row in rows}


def edges(graph: Graph, key: str) -> set[tuple[str, str]]:
    rows = graph.snapshot().scan(key, columns=["src", "dst"]).to_pylist()
    return {(row["src"], row["dst"]) for row in rows}


def left(graph: Graph) -> list[object]:
    """Leftovers of transaction branches: records, references, forks, leases and sidecars."""
    store = graph.session.store
    forks = [fork for pin in graph.snapshot().tables.values() for fork in store.tables.forks(pin.ref.path)]
    refs = list_branch_refs(store.objects)
    own = {ref.incarnation for ref in refs.values() if not ref.is_hidden}
    return [
        *transaction_branches.list_all(store),
        *(name for name, ref in refs.items() if ref.is_hidden),
        *(name for name in store.manifest.branches() if name not in own),
        *(fork for fork in forks if fork.partition("-")[0] not in own),
        *(info.path for info in store.objects.list("__lease") if "__tx" in info.path),
        *(info.path for info in store.objects.list("__recovery")),
    ]


# One commit


def test_a_transaction_is_one_commit(graph: Graph) -> None:
    before = graph.branch().head
    with graph.branch("main").transaction(message="moving", labels={"ticket": "7"}) as tx:
        run(tx, "city", name="Oslo")
        run(tx, "add", name="dan")
        run(tx, "move_in", person="dan", city="Oslo")
        run(tx, "age", name="ann", age=40)
        run(tx, "remove", name="bob")
    commit = tx.commit
    assert commit is not None
    assert graph.branch().head == commit == graph.commits.get(commit.id)
    assert (commit.parent, commit.message, commit.actor) == (before.id, "moving", "act-kim")
    assert (commit.labels, commit.writer, commit.branch) == ((("ticket", "7"),), WriterKind.BRANCH_MERGE, "main")
    assert commit.merged_parent is None, "the branch that it came from is gone, and its commits with it"
    assert len(list(graph.commits)) == 5
    assert ages(graph) == {"ann": 40, "cas": None, "dan": None}
    assert edges(graph, "edge:Lives") == {("dan", "Oslo")}
    assert not tx.repeated
    assert left(graph) == []


def test_a_transaction_sees_its_own_writes_and_others_do_not(graph: Graph, place: Path) -> None:
    with omnigraph.open(place, read_only=True) as reader:
        with graph.branch("main").transaction() as tx:
            run(tx, "aged", name="ann", age=1)
            run(tx, "remove", name="bob")
            assert tx.entity("Person", "bob") is None
            assert tx.entity("Person", "ann") == {"id": "ann", "name": "ann", "age": 1, "photo": None}
            assert tx.snapshot().pin("node:Person").row_count == 2
            for other in (graph, reader):
                assert names(other) == ["ann", "bob", "cas"]
                assert other.entity("Person", "ann") == {"id": "ann", "name": "ann", "age": None, "photo": None}
        assert ages(reader) == ages(graph) == {"ann": 1, "cas": None}


def test_writes_and_deletes_may_be_mixed(graph: Graph) -> None:
    """Several queries in one transaction can replace the edges of a node, which a single query cannot."""
    run(graph, "knows", a="ann", b="bob")
    run(graph, "knows", a="bob", b="ann")
    with graph.branch().transaction(message="new friends") as tx:
        run(tx, "forget", a="ann")
        run(tx, "knows", a="ann", b="cas")
    assert edges(graph, "edge:Knows") == {("ann", "cas"), ("bob", "ann")}


def test_replacing_an_edge_does_not_violate_cardinality(graph: Graph) -> None:
    run(graph, "city", name="Oslo")
    run(graph, "city", name="Rome")
    run(graph, "move_in", person="ann", city="Oslo")
    with pytest.raises(ConstraintError), graph.branch().transaction() as tx:
        run(tx, "move_in", person="ann", city="Rome")
    assert edges(graph, "edge:Lives") == {("ann", "Oslo")}
    with graph.branch().transaction() as tx:
        run(tx, "move_out", person="ann")
        run(tx, "move_in", person="ann", city="Rome")
    assert edges(graph, "edge:Lives") == {("ann", "Rome")}


def test_a_transaction_supports_every_load_mode(graph: Graph) -> None:
    photo = b"x" * 100_000
    with graph.branch().transaction() as tx:
        rows = pa.table({"name": ["dan"], "photo": pa.array([photo], pa.large_binary())})
        receipt = tx.load({"Person": rows}, mode="append")
        assert (receipt.branch, receipt.total, receipt.commit) == ("main", 1, None)
        tx.load({"Person": pa.table({"name": ["ann"], "age": [5]})}, mode="merge")
        tx.load({"City": pa.table({"name": ["Oslo"]})}, mode="overwrite")
    assert ages(graph) == {"ann": 5, "bob": None, "cas": None, "dan": None}
    with graph.branch().transaction() as tx:
        tx.load({"Person": pa.table({"name": ["dan", "eve"], "age": [1, 2]})}, mode="overwrite")
        run(tx, "remove", name="dan")
    assert ages(graph) == {"eve": 2}
    assert graph.snapshot().pin("node:Person").row_count == 1


def test_a_transaction_can_write_blobs(graph: Graph) -> None:
    photos = {"small": b"s", "empty": b"", "none": None, "large": bytes(range(256)) * 20_000}
    rows = pa.table({"name": list(photos), "photo": pa.array(photos.values(), pa.large_binary())})
    with graph.branch().transaction() as tx:
        tx.load({"Person": rows}, mode="append")
        run(tx, "age", name="large", age=3)
    stored = graph.session.store.tables.at(graph.snapshot().pin("node:Person").ref).dataset
    found = stored.scanner(columns=["id", "photo"], blob_handling="all_binary").to_table().to_pylist()
    assert {row["id"]: row["photo"] for row in found} == photos | {"ann": None, "bob": None, "cas": None}


def test_a_transaction_can_write_to_a_branch(graph: Graph) -> None:
    graph.branches.create("draft")
    for number in range(2):
        with graph.branch("draft").transaction() as tx:
            run(tx, "add", name=f"new{number}")
            run(tx, "remove", name="ann")
    assert names(graph, "draft") == ["bob", "cas", "new0", "new1"]
    assert names(graph) == ["ann", "bob", "cas"]
    assert left(graph) == []
    graph.branches.delete("draft")


def test_updates_in_a_transaction_keep_row_ids(graph: Graph) -> None:
    """Readers of stable row ids see an update, not a deletion and an insertion."""

    def row_ids() -> dict[str, int]:
        rows = graph.snapshot().scan("node:Person", columns=["id", "_rowid"]).to_pylist()
        return {row["id"]: row["_rowid"] for row in rows}

    before = row_ids()
    with graph.branch().transaction() as tx:
        run(tx, "age", name="ann", age=3)
        run(tx, "age", name="ann", age=4)
        run(tx, "add", name="dan")
    assert {name: row_id for name, row_id in row_ids().items() if name in before} == before


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["memory", pytest.param("s3", marks=pytest.mark.s3)])
def test_transactions_work_in_memory_and_in_s3(kind: str, request: pytest.FixtureRequest) -> None:
    if kind == "s3":
        root = request.getfixturevalue("s3_root")
        uri, options = root.uri, root.options
    else:
        uri, options = f"memory://transactions/{uuid4().hex}", None
    with omnigraph.init(uri, SCHEMA, storage_options=options) as graph:
        for name in ("ann", "bob"):
            run(graph, "add", name=name)
        graph.branches.create("draft")
        for branch in ("main", "draft"):
            with graph.branch(branch).transaction() as tx:
                run(tx, "remove", name="ann")
                run(tx, "age", name="bob", age=3)
                run(tx, "add", name=branch)
            assert ages(graph, branch) == {"bob": 3, branch: None}
        assert left(graph) == []


# No commit


def test_a_transaction_without_changes_makes_no_commit(graph: Graph) -> None:
    head = graph.branch().head
    with graph.branch().transaction() as tx:
        pass
    assert tx.commit is None
    with graph.branch().transaction() as tx:
        run(tx, "remove", name="nobody")
    assert tx.commit is None
    with graph.branch().transaction() as tx:
        run(tx, "add", name="dan")
        run(tx, "remove", name="dan")
    assert tx.commit is None
    assert graph.branch().head == head
    assert left(graph) == []


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_a_failed_block_leaves_no_commit_and_no_files(graph: Graph, error: type[BaseException]) -> None:
    head = graph.branch().head

    def block() -> None:
        with graph.branch().transaction() as tx:
            run(tx, "add", name="dan")
            raise error

    with pytest.raises(error):
        block()
    assert graph.branch().head == head
    assert names(graph) == ["ann", "bob", "cas"]
    assert left(graph) == []


def test_a_handled_error_does_not_end_the_transaction(graph: Graph) -> None:
    """A failed statement changes nothing, and the block can continue."""
    with graph.branch().transaction() as tx:
        run(tx, "add", name="dan")
        with pytest.raises(KeyConflictError):
            run(tx, "create", name="dan")
        run(tx, "add", name="eve")
    assert names(graph) == ["ann", "bob", "cas", "dan", "eve"]


POINTS = [Failpoint.CAPTURED, Failpoint.STAGED, Failpoint.SIDECAR_WRITTEN, Failpoint.PUBLISHED]


@pytest.mark.parametrize("point", POINTS)
def test_a_crash_during_commit_is_recovered_by_the_next_opener(graph: Graph, place: Path, point: Failpoint) -> None:
    """The process does not end. The next opener recovers the transaction, and no files are left."""

    def block() -> None:
        with ExitStack() as stack:
            tx = stack.enter_context(graph.branch().transaction())
            run(tx, "add", name="dan")
            run(tx, "city", name="Oslo")
            ending = stack.pop_all()
            with armed(point, "crash"):
                ending.close()

    with pytest.raises(SimulatedCrashError):
        block()
    with omnigraph.open(place) as other:
        assert (names(other) == ["ann", "bob", "cas", "dan"]) is (point is Failpoint.PUBLISHED)
        assert left(other) == []
        with other.branch().transaction() as again:
            run(again, "add", name="eve")
        assert "eve" in names(other)


# Concurrent writers


def test_a_concurrent_change_of_the_same_rows_is_a_conflict(graph: Graph) -> None:
    begun = graph.branch().head

    def block() -> None:
        with graph.branch().transaction() as tx:
            run(tx, "age", name="ann", age=1)
            run(graph, "age", name="ann", age=2)

    with pytest.raises(TransactionConflictError, match="cannot be committed to 'main'") as raised:
        block()
    error = raised.value
    assert (error.branch, error.expected, error.actual) == ("main", begun.id, graph.branch().head.id)
    assert error.table_key == "node:Person"
    assert [(one.type_name, one.entity_id, one.kind.value) for one in error.merge_conflicts] == [
        ("Person", "ann", "divergent_update")
    ]
    assert ages(graph) == {"ann": 2, "bob": None, "cas": None}
    assert left(graph) == []


@pytest.mark.parametrize(
    ("query", "params", "type_name"),
    [
        ("age", {"name": "ann", "age": 1}, "Person"),
        ("add", {"name": "dan"}, "Person"),
        ("remove", {"name": "bob"}, "Person"),
    ],
)
@pytest.mark.parametrize("reads", [False, True])
def test_the_same_change_of_a_concurrent_commit_is_a_conflict(
    graph: Graph, query: str, params: dict[str, object], type_name: str, reads: bool
) -> None:
    """Both have decided by the same state. One after the other, the second would have seen the change of the first."""

    def block() -> None:
        with graph.branch().transaction() as tx:
            run(tx, query, **params)
            run(graph, query, **params)
            if reads:
                tx.snapshot()

    with pytest.raises(TransactionConflictError) as raised:
        block()
    assert [(one.type_name, one.entity_id, one.kind.value) for one in raised.value.merge_conflicts] == [
        (type_name, params["name"], "same_change")
    ]
    assert left(graph) == []


def test_no_increment_of_a_counter_is_lost(graph: Graph) -> None:
    run(graph, "age", name="ann", age=0)
    threads, increments = 4, 3

    def count(_: int) -> None:
        done = 0
        while done < increments:
            with suppress(TransactionConflictError), graph.branch().transaction() as tx:
                ann = tx.entity("Person", "ann")
                assert ann is not None
                assert isinstance(ann["age"], int)
                run(tx, "age", name="ann", age=ann["age"] + 1)
            done += tx.commit is not None

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(count, range(threads)))
    assert ages(graph)["ann"] == threads * increments
    assert left(graph) == []


def test_concurrent_changes_of_other_rows_cause_no_conflict(graph: Graph) -> None:
    """Also between preparation and the lease."""
    with graph.branch().transaction() as tx:
        run(tx, "age", name="ann", age=1)
        run(tx, "add", name="dan")
        run(tx, "remove", name="bob")
        run(graph, "age", name="cas", age=3)
        run(graph, "add", name="eve")
    assert tx.commit == graph.branch().head
    assert ages(graph) == {"ann": 1, "cas": 3, "dan": None, "eve": None}
    assert left(graph) == []


def test_a_commit_between_preparation_and_lease_is_kept(
    graph: Graph, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit changes other rows, so both changes are kept."""
    stage = table_writes.Change.stage

    def overtaken(*arguments: Any) -> object:
        monkeypatch.undo()
        staged = stage(*arguments)
        with omnigraph.open(place) as other:
            run(other, "add", name="eve")
        return staged

    with graph.branch().transaction() as tx:
        run(tx, "age", name="ann", age=1)
        monkeypatch.setattr(table_writes.Change, "stage", overtaken)
    assert ages(graph) == {"ann": 1, "bob": None, "cas": None, "eve": None}
    assert left(graph) == []


@pytest.mark.parametrize("deletes", ["transaction", "other"])
def test_a_new_edge_and_the_deletion_of_its_node_conflict(graph: Graph, deletes: str) -> None:
    def block() -> None:
        with graph.branch().transaction() as tx:
            one, other = (tx, graph) if deletes == "transaction" else (graph, tx)
            run(one, "remove", name="ann")
            run(other, "knows", a="ann", b="bob")

    with pytest.raises(TransactionConflictError) as raised:
        block()
    assert {one.kind.value for one in raised.value.merge_conflicts} == {"orphan_edge"}
    assert edges(graph, "edge:Knows") == ({("ann", "bob")} if deletes == "transaction" else set())
    assert graph.verify().total == 0


def test_two_new_edges_that_together_violate_cardinality_conflict(graph: Graph) -> None:
    for name in ("Oslo", "Rome"):
        run(graph, "city", name=name)

    def block() -> None:
        with graph.branch().transaction() as tx:
            run(tx, "move_in", person="ann", city="Oslo")
            run(graph, "move_in", person="ann", city="Rome")

    with pytest.raises(TransactionConflictError) as raised:
        block()
    assert {one.kind.value for one in raised.value.merge_conflicts} == {"cardinality_violation"}
    assert edges(graph, "edge:Lives") == {("ann", "Rome")}


def test_a_commit_on_another_branch_causes_no_conflict(graph: Graph) -> None:
    graph.branches.create("draft")
    with graph.branch().transaction() as tx:
        run(tx, "add", name="dan")
        run(graph.branch("draft"), "add", name="eve")
    assert names(graph) == ["ann", "bob", "cas", "dan"]


def test_two_concurrent_transactions_with_different_rows_both_commit(graph: Graph) -> None:
    with graph.branch().transaction() as first:
        run(first, "add", name="dan")
        with graph.branch().transaction() as second:
            run(second, "add", name="eve")
            assert second.entity("Person", "dan") is None
        assert second.commit == graph.branch().head
        assert first.entity("Person", "eve") is None, "it goes on seeing the snapshot that it began from"
    assert names(graph) == ["ann", "bob", "cas", "dan", "eve"]
    assert left(graph) == []


def test_one_of_two_transactions_with_the_same_new_row_commits(graph: Graph) -> None:
    def block() -> None:
        with graph.branch().transaction() as first:
            run(first, "add", name="dan")
            run(first, "age", name="dan", age=1)
            with graph.branch().transaction() as second:
                run(second, "add", name="dan")
                run(second, "age", name="dan", age=2)

    with pytest.raises(TransactionConflictError) as raised:
        block()
    assert [one.kind.value for one in raised.value.merge_conflicts] == ["divergent_insert"]
    assert ages(graph)["dan"] == 2
    assert left(graph) == []


def test_many_concurrent_transactions_with_different_rows_all_commit(graph: Graph) -> None:
    """No block is retried, because all write different rows."""

    def work(number: int) -> None:
        with graph.branch().transaction() as tx:
            run(tx, "add", name=f"n{number}")
            run(tx, "city", name=f"c{number}")
        assert tx.commit is not None

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(8)))
    assert names(graph) == sorted(["ann", "bob", "cas", *(f"n{number}" for number in range(8))])
    assert len(list(graph.commits)) == 4 + 8
    assert left(graph) == []


def test_a_transaction_with_a_wrong_expected_head_is_refused(graph: Graph) -> None:
    head = graph.branch().head.id
    with graph.branch().transaction(expect_head=head) as tx:
        run(tx, "add", name="dan")
    with pytest.raises(PreconditionFailedError), graph.branch().transaction(expect_head=head):
        raise AssertionError("the block does not run")

    def block() -> None:
        with graph.branch().transaction(expect_head=graph.branch().head.id) as tx:
            run(tx, "add", name="eve")
            run(graph, "add", name="fay")

    with pytest.raises(PreconditionFailedError):
        block()
    assert names(graph) == ["ann", "bob", "cas", "dan", "fay"]
    assert left(graph) == []


# Idempotency keys


def test_a_repeated_transaction_with_the_same_key_returns_the_first_commit(graph: Graph) -> None:
    """A repeated block stops at its first write, without an error, and returns the first commit."""
    ran: list[str] = []
    commits = []
    for _ in range(2):
        with graph.branch().transaction(idempotency_key="import-7") as tx:
            ran.append("before")
            assert tx.entity("Person", "ann") is not None
            run(tx, "create", name="dan")
            ran.append("after")
        commits.append(tx.commit)
    assert ran == ["before", "after", "before"]
    assert tx.repeated
    assert commits[0] == commits[1]
    assert commits[0] is not None
    assert commits[0].idempotency_key == "import-7"
    assert left(graph) == []


def test_errors_in_a_repeated_block_are_raised(graph: Graph) -> None:
    def block() -> None:
        with graph.branch().transaction(idempotency_key="k") as tx:
            if tx.repeated:
                raise ZeroDivisionError
            run(tx, "add", name="dan")

    block()
    with pytest.raises(ZeroDivisionError):
        block()


def test_two_concurrent_transactions_with_the_same_key_make_one_commit(graph: Graph) -> None:
    with graph.branch().transaction(idempotency_key="k") as first:
        run(first, "add", name="dan")
        with graph.branch().transaction(idempotency_key="k") as second:
            run(second, "add", name="dan")
    assert first.commit == second.commit
    assert len(list(graph.commits)) == 5


def test_a_repeated_outer_transaction_does_not_silently_skip_an_inner_one(graph: Graph) -> None:
    def block(key: str | None) -> None:
        main, dev = graph.branch(), graph.branch("dev")
        with main.transaction(idempotency_key="outer") as outer, dev.transaction(idempotency_key=key) as inner:
            run(inner, "age", name="ann", age=len(list(dev.commits)))
            run(outer, "add", name="dan")

    graph.branches.create("dev")
    block("inner")
    before = ages(graph, "dev")
    with pytest.raises(InputError, match="nothing of the inner transaction was written"):
        block(None)
    assert ages(graph, "dev") == before
    block("inner")
    assert ages(graph, "dev") == before
    assert left(graph) == []


def test_a_key_of_a_mutation_cannot_be_reused_by_a_transaction(graph: Graph) -> None:
    graph.mutate(QUERIES, {"name": "dan"}, name="add", idempotency_key="k")
    with pytest.raises(InputError, match="belongs to commit"), graph.branch().transaction(idempotency_key="k"):
        pass


def test_a_key_that_another_kind_of_write_uses_meanwhile_is_an_error(graph: Graph) -> None:
    """The transaction must not return the commit of the mutation as its own: its rows are not in it."""

    def block() -> None:
        with graph.branch().transaction(idempotency_key="k") as tx:
            run(tx, "add", name="dan")
            graph.mutate(QUERIES, {"name": "eve"}, name="add", idempotency_key="k")

    with pytest.raises(InputError, match="made by a write of kind Mutation"):
        block()
    assert graph.entity("Person", "dan") is None
    assert graph.entity("Person", "eve") is not None
    assert left(graph) == []


def test_the_key_of_a_merge_cannot_be_reused_by_a_transaction(graph: Graph) -> None:
    graph.branches.create("dev")
    graph.mutate(QUERIES, {"name": "dan"}, name="add", branch="dev")
    graph.merge("dev", idempotency_key="k")
    with (
        pytest.raises(InputError, match="made by a write of kind Merge"),
        graph.branch().transaction(idempotency_key="k"),
    ):
        pass


def test_a_transaction_says_whether_its_commit_is_that_of_another(graph: Graph) -> None:
    with graph.branch().transaction(idempotency_key="k") as first:
        run(first, "add", name="dan")
        with graph.branch().transaction(idempotency_key="k") as second:
            run(second, "add", name="eve")
    assert (first.repeated, second.repeated) == (True, False)
    assert first.commit == second.commit
    assert graph.entity("Person", "dan") is None


def test_a_label_of_a_receipt_on_another_kind_of_write_is_not_read(graph: Graph) -> None:
    """A user may give any label to a write. A later write with the same key must not read it as a receipt."""
    names = {"load": "by hand", "merge": "later", "restore": "[1]", "revert": "{}"}
    head = graph.mutate(QUERIES, {"name": "dan"}, name="add", idempotency_key="k", labels=names).commit
    assert head is not None
    graph.branches.create("dev")
    rows = {"Person": pa.table({"name": ["eve"], "age": pa.array([1], pa.int32())})}
    writes: list[Callable[[], object]] = [
        lambda: graph.load(rows, mode="merge", idempotency_key="k"),
        lambda: graph.merge("dev", idempotency_key="k"),
        lambda: graph.revert(head.id, idempotency_key="k"),
        lambda: graph.restore("Person", ["dan"], at=head.id, idempotency_key="k"),
    ]
    for write in writes:
        with pytest.raises(InputError, match="made by a write of kind Mutation"):
            write()


# Invalid use


def test_a_transaction_cannot_be_used_outside_of_its_block(graph: Graph) -> None:
    with graph.branch().transaction() as tx:
        run(tx, "add", name="dan")
    for use in (
        lambda: run(tx, "add", name="eve"),
        lambda: tx.load({"City": pa.table({"name": ["Oslo"]})}, mode="append"),
        tx.snapshot,
        lambda: tx.entity("Person", "ann"),
        tx.__enter__,
    ):
        with pytest.raises(TransactionEndedError):
            use()
    with pytest.raises(TransactionEndedError, match="not begun"):
        run(graph.branch().transaction(), "add", name="eve")
    assert names(graph) == ["ann", "bob", "cas", "dan"]


def test_a_read_only_handle_refuses_transactions(graph: Graph, place: Path) -> None:
    with (
        omnigraph.open(place, read_only=True) as reader,
        pytest.raises(ReadOnlyError),
        reader.branch().transaction(),
    ):
        pass


def test_a_transaction_on_a_missing_branch_is_refused(graph: Graph) -> None:
    with pytest.raises(BranchNotFoundError), graph.branch("nowhere").transaction():
        pass
    with pytest.raises(InputError):
        graph.branch("__tx-mine")


# Transaction branches


def test_transaction_branches_cannot_be_named_by_users(graph: Graph) -> None:
    with graph.branch().transaction() as tx:
        run(tx, "add", name="dan")
        (found,) = transaction_branches.list_all(graph.session.store)
        name = str(found.name)
        assert [branch.name for branch in graph.branches] == ["main"]
        assert name not in graph.branches
        inner = tx.snapshot().commit
        for refused in (
            lambda: graph.snapshot(branch=name),
            lambda: graph.branch(name),
            lambda: graph.branches.create("mine", source=name),
            lambda: graph.branches.create(name),
            lambda: graph.branches.delete(name),
            lambda: graph.commits.list(branch=name),
            lambda: graph.tags.create("mine", branch=name),
            lambda: graph.mutate(QUERIES, {"name": "eve"}, name="add", branch=name),
            lambda: graph.load({"City": pa.table({"name": ["Oslo"]})}, mode="append", branch=name),
            lambda: omnigraph.open(graph.uri, branch=name),
        ):
            with pytest.raises(InputError, match="are reserved"):
                refused()
        for unknown in (
            lambda: graph.commits.get(inner.id),
            lambda: graph.snapshot(commit=inner.id),
            lambda: graph.branches.create("mine", commit=inner.id),
            lambda: graph.tags.create("mine", commit=inner.id),
        ):
            with pytest.raises(NotFoundError):
                unknown()
    assert names(graph) == ["ann", "bob", "cas", "dan"]


def test_a_branch_with_a_running_transaction_cannot_be_deleted(graph: Graph) -> None:
    graph.branches.create("draft")
    with graph.branch("draft").transaction() as tx:
        run(tx, "add", name="dan")
        with pytest.raises(ConflictError, match="a transaction is running"):
            graph.branches.delete("draft")
    graph.branches.delete("draft")


def test_transaction_branches_left_by_this_process_are_removed(
    graph: Graph, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The removal may fail or be interrupted. The next check removes the rest, even though the process is alive."""
    graph.branches.create("draft")
    with monkeypatch.context() as patch:
        patch.setattr(transaction_branches, "_remove", lambda *_, **__: None)
        with graph.branch("draft").transaction() as tx:
            run(tx, "add", name="dan")
            assert tx.entity("Person", "dan") is not None, "a read of a written row needs the branch"
    assert left(graph)
    assert [branch.name for branch in graph.branches] == ["main", "draft"]
    transaction_branches.reclaim(graph.session.store)
    assert left(graph) == []
    graph.branches.delete("draft")


def test_abandoned_transaction_branches_are_removed_from_a_copied_graph(
    graph: Graph, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An abandoned transaction branch does not prevent opening a copied graph."""

    def block() -> None:
        with graph.branch().transaction() as tx:
            run(tx, "add", name="dan")
            assert tx.entity("Person", "dan") is not None, "a read of a written row needs the branch"
            raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(transaction_branches, "_remove", lambda *_, **__: None)
        with pytest.raises(ZeroDivisionError):
            block()
    copy = place.with_name("copy")
    shutil.copytree(place, copy)
    with omnigraph.open(copy, read_only=True) as reader:
        assert names(reader) == ["ann", "bob", "cas"]
    with omnigraph.open(copy) as moved:
        assert names(moved) == ["ann", "bob", "cas"]
        assert left(moved) == []
        with moved.branch().transaction() as tx:
            run(tx, "add", name="eve")
        assert names(moved) == ["ann", "bob", "cas", "eve"]
    assert left(graph), "the original is as it was"
    graph.refresh()
    assert left(graph) == []
    assert names(graph) == ["ann", "bob", "cas"]


def test_a_transaction_whose_branch_was_removed_fails(graph: Graph) -> None:
    """Another machine, which cannot see our process, has removed the transaction branch as abandoned."""

    def block() -> None:
        with graph.branch().transaction() as tx:
            run(tx, "add", name="dan")
            (found,) = transaction_branches.list_all(graph.session.store)
            transaction_branches._remove(graph.session.store, found.name, forks=None)
            run(tx, "add", name="eve")

    with pytest.raises(TransactionEndedError, match="expired"):
        block()
    assert names(graph) == ["ann", "bob", "cas"]
    assert left(graph) == []


def test_a_transaction_branch_without_a_heartbeat_counts_as_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of another machine: when its heartbeat has not changed for too long, independent of the age in its name."""
    here = Owner.here()
    elsewhere = Owner("another machine", 1, "1")
    dead = Owner(here.host, here.pid, "0")
    alive = Owner(here.host, 1, here.started)
    monkeypatch.setattr(Owner, "is_dead", lambda owner: owner == dead)
    owners = (elsewhere, dead, alive, None)
    names = [SystemBranch(f"__tx-{ulid_at_time(1).lower()}{number}") for number in range(len(owners))]

    def abandoned(content: bytes, silence: float) -> list[bool]:
        pairs = zip(names, owners, strict=True)
        return [
            transaction_branches.TransactionBranch(name, owner, content).is_abandoned(silence) for name, owner in pairs
        ]

    assert abandoned(b"1", 0.05) == [False, True, False, False]
    time.sleep(0.06)
    assert abandoned(b"2", 0.05) == [False, True, False, False], "it has beaten"
    time.sleep(0.06)
    assert abandoned(b"2", 0.05) == [True, True, False, True]


def test_a_transaction_renews_its_heartbeat(graph: Graph) -> None:
    """Other machines see its record change as long as it runs."""
    graph.session.store.timeouts.ttl = 0.15
    with graph.branch().transaction() as tx:
        run(tx, "add", name="dan")
        (before,) = transaction_branches.list_all(graph.session.store)
        until(lambda: transaction_branches.list_all(graph.session.store)[0].content != before.content)
    assert left(graph) == []


def test_an_unreadable_transaction_record_is_ignored(graph: Graph, place: Path) -> None:
    graph.session.store.objects.put("__transactions/01kx0000000000000000000000.json", b"{")
    graph.refresh()
    with omnigraph.open(place) as other, other.branch().transaction() as tx:
        run(tx, "add", name="dan")


# The handle


def test_a_branch_handle_reads_and_writes_its_branch(graph: Graph) -> None:
    graph.branches.create("draft")
    draft = graph.branch("draft")
    assert (draft.name, graph.branch().name) == ("draft", "main")
    run(draft, "add", name="dan")
    draft.load({"City": pa.table({"name": ["Oslo"]})}, mode="append")
    assert draft.entity("Person", "dan") is not None
    assert graph.branch("main").entity("Person", "dan") is None
    assert draft.head.branch == draft.snapshot().branch == "draft"
    assert next(iter(draft.commits)) == draft.head
    assert b"".join(draft.export(types=["City"])) == b'{"type":"City","data":{"id":"Oslo","name":"Oslo"}}\n'
    assert draft.snapshot(version=draft.head.manifest_version - 1).entity("node:City", "Oslo") is None


@pytest.mark.parametrize("method", ["mutate", "load"])
def test_handles_take_the_same_arguments_as_the_graph(method: str) -> None:
    """The same arguments, except those that the handle provides."""
    whole, branch, transaction = (_arguments(getattr(handle, method)) for handle in (Graph, BranchHandle, Transaction))
    of_the_commit = {"branch", "base", "expect_head", "idempotency_key", "message", "labels", "check"}
    of_the_commit |= {"unchanged_since", "reads", "timeout"}
    of_the_engine = {"engine", "spark", "chosen", "cancel"}
    assert branch == whole - {"branch"}
    assert transaction == whole - of_the_commit - of_the_engine


def _arguments(method: Callable[..., object]) -> set[str]:
    """The names of all arguments, with those of the options."""
    names = set(inspect.signature(method).parameters) - {"options"}
    options = method.__annotations__.get("options", "").removeprefix("Unpack[").removesuffix("]")
    return names | (set(getattr(request_options, options).__annotations__) if options else set())
