"""A poll reads the commits that it returns, however long the history is."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.commit.conftest import _no_fsync

import omnigraph
from omnigraph.commit import lineage, manifest_successor
from omnigraph.commit.lineage import commits, find_place, first_commit, places_from
from omnigraph.commit.manifest import Change, Commit
from omnigraph.commit.store import now_micros
from omnigraph.graph import Graph
from omnigraph.storage.ledger import LedgerVersion

__all__ = ["_no_fsync"]

INSERT = "query q($k: String) { insert P { k: $k } }"
TAIL = 4


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Graph]:
    """A graph whose history soon has many parts, since a part begins after a few commits."""
    monkeypatch.setattr(manifest_successor, "TAIL_COMMITS", TAIL)
    monkeypatch.setattr(manifest_successor, "FAN_IN", 3)
    monkeypatch.setattr(lineage, "_FIRST_READ", 2)
    monkeypatch.setattr(lineage, "_NEAR", 8)
    with omnigraph.init(tmp_path / "g", "node P { k: String @key }") as made:
        yield made


def grow(graph: Graph, count: int, prefix: str = "p", branch: str = "main") -> list[str]:
    """The ids of new commits, oldest first."""
    made = [graph.mutate(INSERT, {"k": f"{prefix}{number}"}, branch=branch).commit for number in range(count)]
    return [commit.id for commit in made if commit is not None]


def ids_of(page: Any) -> list[str]:
    return [block.cause.commit.id for block in page.blocks]


class Rows:
    """The number of rows of older parts of the manifest that were read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        read = LedgerVersion._rows

        def rows(view: LedgerVersion, indexes: Any, *arguments: Any, **options: Any) -> Any:
            found = read(view, indexes, *arguments, **options)
            if indexes is None or list(indexes) != [len(view.parts) - 1]:
                self.count += found.num_rows
            return found

        monkeypatch.setattr(LedgerVersion, "_rows", rows)

    def taken(self) -> int:
        found, self.count = self.count, 0
        return found


def test_a_poll_reads_only_its_commits(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = grow(graph, 40)
    with omnigraph.open(graph.uri) as reader:
        rows = Rows(monkeypatch)
        assert reader.changes.poll(start="now").blocks == ()
        assert rows.taken() == 0, "the manifest has the first commit of the graph"
        page = reader.changes.poll(start="beginning", max_commits=1)
        assert ids_of(page) == expected[:1]
        delivered, costs = ids_of(page), [rows.taken()]
        while not page.caught_up:
            page = reader.changes.poll(cursor=page.cursor, max_commits=1)
            delivered += ids_of(page)
            costs.append(rows.taken())
    assert delivered == expected
    assert max(costs) <= 16, "the cost of a poll does not depend on the length of the history"


@pytest.mark.slow
def test_every_cursor_is_found_in_every_later_history(graph: Graph) -> None:
    """With merges, whose commits are also rows of the manifest, and parts that are merged meanwhile."""
    random = Random(7)
    expected: list[str] = []
    cursors: list[tuple[int, str]] = []
    for step in range(14):
        expected += grow(graph, random.randint(1, 3), f"m{step}-")
        if step % 4 == 2:
            graph.branches.create(f"side{step}")
            grow(graph, 3, f"s{step}-", f"side{step}")
            merged = graph.merge(f"side{step}", "main").commit
            assert merged is not None
            expected.append(merged.id)
        cursor = graph.changes.poll(kinds="edge").cursor
        assert cursor is not None
        cursors.append((len(expected), cursor))
    for position, cursor in cursors:
        for row in ("own", None, 0, 3, 10_000):
            token = cursor if row == "own" else with_row(cursor, row)
            page = graph.changes.poll(cursor=token, max_commits=2, kinds="edge")
            assert ids_of(page) == expected[position : position + 2], row
    for position, commit in enumerate(expected[::5]):
        page = graph.changes.poll(start=f"after:{commit}", max_commits=1)
        assert ids_of(page) == expected[position * 5 + 1 : position * 5 + 2]
    view = graph.session.store.capture("main")
    genesis = view.genesis
    assert genesis is not None
    assert [one.id for one in commits(view)] == [*reversed(expected), genesis]
    assert [place.commit.id for place in places_from(view)] == [genesis, *expected]
    assert first_commit(view).id == genesis
    places = [find_place(view, commit) for commit in [genesis, *expected]]
    numbers = [-1 if place is None else place.number for place in places]
    assert numbers == sorted(set(numbers))
    assert find_place(view, "0" * 26) is None
    for rejected in (True, -1, "3", 1.5):
        with pytest.raises(omnigraph.ChangeCursorError, match="damaged"):
            graph.changes.poll(cursor=with_row(cursors[0][1], rejected), kinds="edge")


def with_row(cursor: str, row: object) -> str:
    """The cursor with another row; without a row for None, as older releases write it."""
    content = json.loads(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))[:-32])
    content.pop("row", None)
    data = json.dumps(content | ({} if row is None else {"row": row})).encode()
    return urlsafe_b64encode(data + sha256(data).digest()).decode().rstrip("=")


def test_pages_of_a_poll_end_at_its_first_head(graph: Graph) -> None:
    expected = grow(graph, 6)
    graph.load([{"type": "P", "data": {"k": f"many{number}"}} for number in range(4)], mode="append")
    expected.append(graph.snapshot().commit.id)
    page = graph.changes.poll(start=f"after:{expected[4]}", limit=3)
    delivered = ids_of(page)
    grow(graph, 12, "later")
    while page.next_page_token is not None:
        page = graph.changes.poll(page_token=page.next_page_token, limit=3)
        delivered += ids_of(page)
    assert list(dict.fromkeys(delivered)) == expected[5:]
    assert page.caught_up


def test_a_manifest_of_an_older_release_has_no_first_commit(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    grow(graph, 9)
    cursor = graph.changes.poll().cursor
    store = graph.session.store
    genesis = list(graph.commits)[-1].id
    with store.exclusive("main") as held:
        view = store.capture("main")
        commit = Commit("0" * 26, "main", 0, view.head.id, None, None, now_micros(), generation=11, writer="mutation")
        made = store.publish(replace(view, genesis=None), Change(), commit, held)
    assert made.genesis is None
    with omnigraph.open(graph.uri) as reader:
        rows = Rows(monkeypatch)
        assert ids_of(reader.changes.poll(cursor=cursor)) == ["0" * 26]
        assert rows.taken() <= 16
        token = reader.changes.poll().cursor
    assert token is not None
    assert json.loads(urlsafe_b64decode(token + "=" * (-len(token) % 4))[:-32])["genesis"] == genesis
