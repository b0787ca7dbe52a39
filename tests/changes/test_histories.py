"""Diffs and feeds of random histories agree with the full states of their commits."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from tests.changes.histories import SCHEMA, History, Key, State, expected_changes, records, same, state_of
from tests.sampling import every_nth
from tests.thresholds import Thresholds

import omnigraph
from omnigraph.changes import commit_page, count_changes, row_images
from omnigraph.changes.aligned_types import aligned_types
from omnigraph.changes.candidates import candidates
from omnigraph.changes.feed import ChangeBlock
from omnigraph.changes.hash_parts import hash_part
from omnigraph.graph import Graph
from omnigraph.storage import difference, row_changes, row_pairs
from omnigraph.storage.files import scratch

STEPS = 14
HISTORIES = range(int(os.environ.get("OMNIGRAPH_HISTORIES", "12")))


@pytest.fixture
def history(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[History]:
    with omnigraph.init(tmp_path / "g", SCHEMA) as graph:
        made = History(graph, Random(request.param))
        made.graph.load(made.rows({}, 8), mode="merge")
        made.remember()
        for _ in range(STEPS):
            made.step()
        yield made


def few_rows_at_a_time(thresholds: Thresholds, number: int) -> None:
    """Odd histories use the paths for many rows."""
    if number % 2:
        thresholds(row_images, BATCH_ROWS=3)
        thresholds(count_changes, CHUNK_ROWS=5)
        thresholds(row_pairs, SCAN_ROWS=1, SCAN_RATIO=1_000_000, GATHER_ROWS=2)
        thresholds(scratch, SPILL_BYTES=1)
        thresholds(row_changes, LOOKUP_LIMIT=1)
        thresholds(difference, LOOKUP_LIMIT=1)


@pytest.mark.slow
@pytest.mark.parametrize(("history", "number"), every_nth([(i, i) for i in HISTORIES], 2), indirect=["history"])
def test_the_diff_of_any_two_commits_is_the_difference_of_their_states(
    history: History, number: int, thresholds: Thresholds
) -> None:
    few_rows_at_a_time(thresholds, number)
    graph, commits = history.graph, sorted(history.states)
    pairs = [(commits[0], commits[-1]), (commits[-1], commits[0])]
    pairs += [tuple(history.random.choices(commits, k=2)) for _ in range(12)]  # type: ignore[misc]
    for before, after in pairs[:4]:
        check_parts(graph, before, after)
    for before, after in pairs:
        old, new = history.states[before], history.states[after]
        wanted = expected_changes(old, new)
        diff = graph.diff(before, after)
        found: dict[Key, tuple[str, set[str]]] = {}
        for one in diff:
            counts = {"insert": 0, "update": 0, "delete": 0}
            ids: list[str] = []
            for batch in one.batches():
                for row in batch.to_pylist():
                    found[one.key, row["id"]] = row["op"], set(row["changed"] or ())
                    counts[row["op"]] += 1
                    ids.append(row["id"])
            assert ids == sorted(ids, key=str.encode)
            assert (one.counts.inserts, one.counts.updates, one.counts.deletes) == tuple(counts.values())
            assert one.inserted()["id"].to_pylist() == [i for i in ids if found[one.key, i][0] == "insert"]
            assert one.deleted()["id"].to_pylist() == [i for i in ids if found[one.key, i][0] == "delete"]
            assert one.updated()["id"].to_pylist() == [i for i in ids if found[one.key, i][0] == "update"]
        assert found == wanted
        check_images(diff.to_json(), old, new)
        check_filters(graph, before, after, wanted, history.random)


def check_images(document: dict[str, Any], old: State, new: State) -> None:
    """The images of a change set are the entities of the states."""
    for change in document["changes"]:
        key = f"{change['kind']}:{change['type_name']}", change["id"]
        for name, state in (("before", old), ("after", new)):
            image = change.get(name)
            assert (image is None) == (key not in state)
            if image is not None:
                assert same_entity(flat(image), state[key])


def check_parts(graph: Graph, before: str, after: str) -> None:
    """The parts of the rows to compare are disjoint, and they are all rows to compare."""
    states = [graph.session.graph_state(graph.snapshot(commit=commit).manifest) for commit in (before, after)]
    tables = graph.session.store.tables
    for pair in aligned_types(*states):
        parts = [candidates(tables, pair, part=hash_part(number, 3)) for number in range(3)]
        assert pa.concat_tables(parts).sort_by("id") == candidates(tables, pair).combine_chunks()


def flat(image: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = image["properties"] | image.get("endpoints", {})
    return found


def same_entity(left: dict[str, Any], right: dict[str, Any]) -> bool:
    return left.keys() == right.keys() and all(same(left[name], right[name]) for name in left)


def check_filters(
    graph: Graph, before: str, after: str, wanted: dict[Key, tuple[str, set[str]]], random: Random
) -> None:
    """Filters select changes."""
    op = random.choice(["insert", "update", "delete"])
    names = random.sample(["A", "B", "AB", "Same"], 2)
    ids = random.sample(sorted({key[1] for key in wanted} | {"k1"}), 1)
    for options, kept in (
        ({"ops": op}, {k for k, (o, _) in wanted.items() if o == op}),
        ({"types": names}, {k for k in wanted if k[0].partition(":")[2] in names}),
        ({"ids": ids}, {k for k in wanted if k[1] in ids}),
    ):
        diff = graph.diff(before, after, **options)
        found = {(one.key, name) for one in diff for batch in one.batches() for name in batch["id"].to_pylist()}
        assert found == kept
        assert diff.stat().total.total == len(kept)


def apply(graph: Graph, block: ChangeBlock) -> None:
    """Apply a block to a replica: deletes of edges first, then upserts, then deletes of nodes."""
    upserts = {(f"{c.kind}:{c.type_name}", c.id): flat(c.after) for c in block.changes if c.after is not None}
    gone = [c for c in block.changes if c.op == "delete"]
    for change in sorted(gone, key=lambda c: c.kind):
        if change.kind == "edge":
            graph.mutate(f"query q($id: String) {{ delete {change.type_name} where id = $id }}", {"id": change.id})
    if upserts:
        graph.load(records(upserts), mode="merge")
    for change in gone:
        if change.kind == "node":
            graph.mutate(f"query q($id: String) {{ delete {change.type_name} where id = $id }}", {"id": change.id})


@pytest.mark.slow
@pytest.mark.parametrize(("history", "number"), [(i, i) for i in HISTORIES], indirect=["history"])
def test_a_feed_replayed_from_the_beginning_gives_the_same_graph(
    history: History, number: int, thresholds: Thresholds, tmp_path: Path
) -> None:
    few_rows_at_a_time(thresholds, number)
    for branch in history.branches():
        replica: State = {}
        order = [commit.id for commit in history.graph.commits.list(branch=branch).commits][::-1]
        delivered = []
        for block in history.graph.changes.follow(branch=branch, start="beginning", timeout=0):
            delivered.append(block.cause.commit.id)
            before = dict(replica)
            for change in block.changes:
                key = f"{change.kind}:{change.type_name}", change.id
                assert (change.before is None) == (key not in replica)
                if change.before is not None:
                    assert same_entity(flat(change.before), replica[key])
                if change.after is None:
                    del replica[key]
                else:
                    replica[key] = flat(change.after)
            assert len(block.changes) == len(expected_changes(before, replica)), "each change is a change"
            check_order(block)
            state = history.states[block.cause.commit.id]
            assert replica.keys() == state.keys()
            assert all(same_entity(replica[key], state[key]) for key in state)
        assert delivered == order[1:]
    with omnigraph.init(tmp_path / "replica", SCHEMA) as copy:
        for block in history.graph.changes.follow(start="beginning", timeout=0):
            apply(copy, block)
        assert b"".join(copy.export()) == b"".join(history.graph.export())


def check_order(block: ChangeBlock) -> None:
    """Nodes come before edges, then changes are sorted by opaque type id, id and operation."""
    places = [(c.kind == "edge", c.type_id, c.id.encode()) for c in block.changes]
    assert places == sorted(places)
    assert len(set(places)) == len(places)


@pytest.mark.slow
@pytest.mark.parametrize(("history", "number"), [(i, i) for i in list(HISTORIES)[:6]], indirect=["history"])
def test_a_consumer_that_stops_anywhere_resumes_without_loss_or_repetition(history: History, number: int) -> None:
    """It continues with the page token of a part of a block, or with the cursor of a complete block."""
    random = Random(number)
    everything = [
        (block.cause.commit.id, change.text)
        for block in history.graph.changes.follow(start="beginning", timeout=0)
        for change in block.changes
    ]
    found: list[tuple[str, str]] = []
    position: dict[str, str] = {"start": "beginning"}
    while True:
        # Each consumer opens the graph anew, and stops after some blocks.
        with omnigraph.open(history.graph.uri, read_only=True) as graph:
            page = graph.changes.poll(
                **position,  # type: ignore[arg-type]
                limit=random.choice([1, 2, 5]),
                max_bytes=random.choice([1, 300, 1 << 20]),
                max_commits=random.choice([1, 2, 100]),
            )
        blocks = page.blocks[: random.randrange(1, 4)]
        for block in blocks:
            found += [(block.cause.commit.id, change.text) for change in block.changes]
            position = {"page_token": block.page_token} if block.page_token else {"cursor": block.cursor or ""}
        if not blocks:
            assert page.caught_up
            break
    assert found == everything


@pytest.mark.slow
@pytest.mark.parametrize(("history", "number"), [(i, i) for i in list(HISTORIES)[:6]], indirect=["history"])
def test_pages_of_a_commit_have_its_changes_once(history: History, number: int, thresholds: Thresholds) -> None:
    random = Random(number)
    thresholds(commit_page, MAX_CHANGES=3)
    for block in history.graph.changes.follow(start="beginning", timeout=0, limit=3):
        if not block.is_complete:
            continue
        commit = block.cause.commit.id
        wanted = expected_changes(history.states[block.cause.commit.parent or ""], history.states[commit])
        kinds = random.choice([None, ["node"], ["edge"], ["edge", "node", "node"]])
        ops = random.choice([None, ["insert"], ["update", "delete"], ["insert", "update", "delete"]])
        found: list[Key] = []
        token = None
        while True:
            page = history.graph.changes.of(commit, kinds=kinds, ops=ops, limit=2, page_token=token)
            assert len(page.changes) <= 2
            found += [(f"{c.kind}:{c.type_name}", c.id) for c in page.changes]
            token = page.next_page_token
            if token is None:
                break
            assert page.changes
        kept = [k for k, (op, _) in wanted.items() if (ops is None or op in ops)]
        assert len(set(found)) == len(found)
        assert set(found) == {k for k in kept if kinds is None or k[0].partition(":")[0] in kinds}


@pytest.mark.slow
@pytest.mark.parametrize(("history", "number"), [(i, i) for i in list(HISTORIES)[:4]], indirect=["history"])
def test_a_baseline_and_the_feed_after_it_give_the_same_graph(history: History, number: int) -> None:
    graph = history.graph
    *lines, last = b"".join(graph.changes.baseline()).splitlines()
    replica = state_of(line + b"\n" for line in lines)
    position = json.loads(last)["baseline"]
    assert position["snapshot_commit_id"] == graph.snapshot().commit.id
    assert replica.keys() == history.state("main").keys()
    for _ in range(5):
        history.step()
    for block in graph.changes.follow(cursor=position["resume_cursor"], timeout=0):
        for change in block.changes:
            key = f"{change.kind}:{change.type_name}", change.id
            if change.after is None:
                del replica[key]
            else:
                replica[key] = flat(change.after)
    wanted = history.state("main")
    assert replica.keys() == wanted.keys()
    assert all(same_entity(replica[key], wanted[key]) for key in wanted)
