"""The contract of the change feed: shapes, order, positions, tokens and refusals."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.commit.graphs import evolve_to

import omnigraph
from omnigraph.changes.feed import FeedPage
from omnigraph.errors import (
    BranchNotFoundError,
    ChangeCursorError,
    ChangeFeedGapError,
    InputError,
    NotFoundError,
    ParentlessCommitError,
    ResourceLimitError,
    SchemaBoundaryError,
    report_for,
)
from omnigraph.graph import Graph

SCHEMA = """
node Ship { name: String @key  crew: I64? }
node Port { name: String @key }
node Crate { name: String @key }
edge Docked: Ship -> Port { since: Date? }
"""


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with omnigraph.init(tmp_path / "g", SCHEMA, actor="act-kim") as graph:
        yield graph


def ship(graph: Graph, name: str, crew: int | None = None, branch: str | None = None) -> str:
    graph.load([{"type": "Ship", "data": {"name": name, "crew": crew}}], mode="merge", branch=branch)
    return graph.snapshot(branch=branch).commit.id


def delivered(page: Any) -> list[list[tuple[str, str]]]:
    return [[(change.op.value, change.id) for change in block.changes] for block in page.blocks]


# Changes of a commit


def test_changes_of_a_commit_have_the_documented_shape(graph: Graph) -> None:
    parent = ship(graph, "argo", 50)
    graph.load(
        [
            {"type": "Ship", "data": {"name": "argo", "crew": 51}},
            {"type": "Port", "data": {"name": "iolcus"}},
            {"edge": "Docked", "from": "argo", "to": "iolcus", "data": {"id": "e", "since": "2024-03-01"}},
        ],
        mode="merge",
    )
    head = graph.snapshot().commit
    page = graph.changes.of(head.id).to_json()
    assert page["cause"] == {
        "graph_commit_id": head.id,
        "parent_commit_id": parent,
        "merged_parent_commit_id": None,
        "authored_branch": "main",
        "actor_id": "act-kim",
        "authored_at": head.created_at,
    }  # a message is added if there is one
    assert "next_page_token" not in page
    by_id = {change["id"]: change for change in page["changes"]}
    assert [change["kind"] for change in page["changes"]] == ["node", "node", "edge"]
    assert by_id["argo"] == {
        "kind": "node",
        "type": {"id": type_id(graph, "node:Ship"), "name": "Ship"},
        "id": "argo",
        "op": "update",
        "before": {"properties": {"id": "argo", "crew": 50, "name": "argo"}},
        "after": {"properties": {"id": "argo", "crew": 51, "name": "argo"}},
    }
    assert by_id["e"] == {
        "kind": "edge",
        "type": {"id": type_id(graph, "edge:Docked"), "name": "Docked"},
        "id": "e",
        "op": "insert",
        "after": {"properties": {"id": "e", "since": 19783}, "endpoints": {"from": "argo", "to": "iolcus"}},
    }
    nodes = [change["type"]["id"] for change in page["changes"] if change["kind"] == "node"]
    assert nodes == sorted(nodes)


def type_id(graph: Graph, key: str) -> str:
    """The opaque id of a type, computed from its definition."""
    found = graph.snapshot().tables[key].id
    parts = [
        graph.accepted_schema.domain.encode(),
        *(n.to_bytes(8, "little") for n in (found.type_id, found.incarnation)),
    ]
    return urlsafe_b64encode(hashlib.sha256(b"\x1f".join(parts)).digest()).decode().rstrip("=")


def test_a_delete_has_only_the_old_entity(graph: Graph) -> None:
    ship(graph, "argo", 50)
    graph.mutate('query q() { delete Ship where name = "argo" }')
    (change,) = graph.changes.of(graph.snapshot().commit.id).changes
    assert (change.op, change.after) == ("delete", None)
    assert change.before == {"properties": {"id": "argo", "crew": 50, "name": "argo"}}


def test_the_first_commit_has_no_changes(graph: Graph) -> None:
    with pytest.raises(ParentlessCommitError) as caught:
        graph.changes.of(graph.snapshot().commit.id)
    assert report_for(caught.value).http_status == 409
    assert caught.value.to_json()["reason"] == "parentless_commit"
    with pytest.raises(NotFoundError):
        graph.changes.of("nothing")


def test_a_commit_that_moves_rows_has_an_empty_block(graph: Graph) -> None:
    for name in "abc":
        ship(graph, name)
    head = graph.snapshot().commit.id
    graph.optimize()
    assert graph.snapshot().commit.id != head
    page = graph.changes.poll(start=f"after:{head}")
    assert delivered(page) == [[]]
    assert page.caught_up


def test_a_row_that_is_written_with_equal_values_is_no_change(graph: Graph) -> None:
    start = ship(graph, "argo", 50)
    ship(graph, "argo", 50)
    page = graph.changes.poll(start=f"after:{start}")
    assert [change for block in page.blocks for change in block.changes] == []


def test_pages_are_packed_by_number_and_bytes(graph: Graph) -> None:
    names = [f"s{i:03d}" + "x" * 100 for i in range(50)]
    graph.load([{"type": "Ship", "data": {"name": name}} for name in names], mode="append")
    head = graph.snapshot().commit.id
    size = len(graph.changes.of(head).changes[0].text)
    cases: list[tuple[dict[str, Any], int]] = [({"limit": 7}, 7), ({"max_bytes": 3 * size}, 3), ({"max_bytes": 1}, 1)]
    for options, wanted in cases:
        token, found, lengths = None, [], []
        while True:
            page = graph.changes.of(head, page_token=token, **options)
            found += [change.id for change in page.changes]
            lengths.append(len(page.changes))
            token = page.next_page_token
            if token is None:
                break
        assert found == names
        assert max(lengths) == wanted
        assert all(length == wanted for length in lengths[:-1])


def test_limits_are_checked(graph: Graph) -> None:
    head = ship(graph, "argo")

    def poll(**options: Any) -> FeedPage:
        return graph.changes.poll(**options)

    for name, limit in (("limit", 8_192), ("max_bytes", 32 << 20), ("max_commits", 512)):
        with pytest.raises(ResourceLimitError) as caught:
            poll(**{name: limit + 1})
        assert caught.value.limit == limit
        with pytest.raises(InputError, match="at least 1"):
            poll(**{name: 0})
        assert poll(**{name: limit}).caught_up
    with pytest.raises(ResourceLimitError):
        graph.changes.of(head, limit=10_000)


def test_long_ids_are_positions(graph: Graph) -> None:
    names = sorted(["x" * 300 + f"{i}ü" for i in range(4)] + ["ü" * 200, "x" * 299, "y"], key=str.encode)
    graph.load([{"type": "Ship", "data": {"name": name}} for name in names], mode="append")
    head = graph.snapshot().commit.id
    token, found = None, []
    while True:
        page = graph.changes.of(head, limit=1, page_token=token)
        found += [change.id for change in page.changes]
        token = page.next_page_token
        if token is None:
            break
        assert len(token) <= 4096
    assert found == names


# Polls


def test_a_poll_from_now_returns_only_the_cursor(graph: Graph) -> None:
    ship(graph, "argo")
    page = graph.changes.poll()
    assert (page.blocks, page.next_page_token, page.caught_up) == ((), None, True)
    ship(graph, "beagle")
    assert delivered(graph.changes.poll(cursor=page.cursor)) == [[("insert", "beagle")]]
    assert set(page.to_json()) == {"blocks", "cursor", "caught_up"}


def test_a_poll_begins_after_a_commit_of_the_branch(graph: Graph) -> None:
    first = ship(graph, "a")
    graph.branches.create("side")
    ship(graph, "b", branch="side")
    ship(graph, "c")
    assert delivered(graph.changes.poll(start=f"after:{first}", branch="side")) == [[("insert", "b")]]
    assert delivered(graph.changes.poll(start="beginning", branch="side")) == [[("insert", "a")], [("insert", "b")]]
    other = graph.snapshot(branch="side").commit.id
    with pytest.raises(NotFoundError, match="not in the history of branch 'main'"):
        graph.changes.poll(start=f"after:{other}")
    with pytest.raises(InputError, match="not a position"):
        graph.changes.poll(start="yesterday")
    with pytest.raises(BranchNotFoundError):
        graph.changes.poll(branch="nowhere")


def test_a_merge_is_one_block(graph: Graph) -> None:
    start = ship(graph, "a")
    graph.branches.create("side")
    ship(graph, "b", branch="side")
    source = ship(graph, "c", branch="side")
    ship(graph, "d")
    graph.merge("side")
    page = graph.changes.poll(start=f"after:{start}")
    assert delivered(page) == [[("insert", "d")], [("insert", "b"), ("insert", "c")]]
    assert page.blocks[-1].cause.to_json()["merged_parent_commit_id"] == source


def test_positions_exclude_each_other(graph: Graph) -> None:
    page = graph.changes.poll()
    with pytest.raises(InputError, match="only one of"):
        graph.changes.poll(cursor=page.cursor, start="now")


def test_a_poll_has_a_limited_number_of_commits(graph: Graph) -> None:
    for name in "abcde":
        ship(graph, name)
    page = graph.changes.poll(start="beginning", max_commits=3)
    assert delivered(page) == [[("insert", name)] for name in "abc"]
    assert page.caught_up is False
    page = graph.changes.poll(cursor=page.cursor, max_commits=2)
    assert delivered(page) == [[("insert", name)] for name in "de"]
    assert page.caught_up is True


def test_later_commits_are_not_in_the_pages_of_a_poll(graph: Graph) -> None:
    """The head at the first page is the cut."""
    graph.load([{"type": "Ship", "data": {"name": name}} for name in "abc"], mode="append")
    first = graph.changes.poll(start="beginning", limit=2)
    assert first.cursor is None
    assert first.caught_up is None
    ship(graph, "d")
    second = graph.changes.poll(page_token=first.next_page_token, limit=100)
    assert delivered(second) == [[("insert", "c")]]
    assert second.caught_up is True
    assert delivered(graph.changes.poll(cursor=second.cursor)) == [[("insert", "d")]]


def test_filters_select_changes_and_keep_empty_blocks(graph: Graph) -> None:
    graph.load(
        [
            {"type": "Ship", "data": {"name": "a"}},
            {"type": "Port", "data": {"name": "p"}},
            {"edge": "Docked", "from": "a", "to": "p", "data": {"id": "e"}},
        ],
        mode="append",
    )
    ship(graph, "a", 2)
    cases: list[tuple[dict[str, Any], list[list[tuple[str, str]]]]] = [
        ({"kinds": "edge"}, [[("insert", "e")], []]),
        ({"types": ["Ship"]}, [[("insert", "a")], [("update", "a")]]),
        ({"ops": ["update"]}, [[], [("update", "a")]]),
        ({"kinds": ["node"], "types": "Port", "ops": "insert"}, [[("insert", "p")], []]),
    ]
    for options, wanted in cases:
        assert delivered(graph.changes.poll(start="beginning", **options)) == wanted
    wrong: list[dict[str, Any]] = [{"kinds": "thing"}, {"types": "Shop"}, {"ops": "upsert"}]
    for refused in wrong:
        with pytest.raises(InputError):
            graph.changes.poll(start="beginning", **refused)


def test_the_order_of_filters_does_not_matter(graph: Graph) -> None:
    page = graph.changes.poll(
        types=["Ship", "Port", "Ship"], kinds=["edge", "node"], ops=["update", "insert", "delete"]
    )
    assert graph.changes.poll(cursor=page.cursor, types=["Port", "Ship"]).caught_up
    with pytest.raises(ChangeCursorError, match="other filters"):
        graph.changes.poll(cursor=page.cursor, types=["Port"])


def test_a_poll_waits_for_a_commit(graph: Graph) -> None:
    cursor = graph.changes.poll().cursor
    began = time.monotonic()
    assert graph.changes.poll(cursor=cursor, wait=0.1).blocks == ()
    assert time.monotonic() - began >= 0.1
    writer = threading.Timer(0.2, lambda: ship(graph, "argo"))
    writer.start()
    page = graph.changes.poll(cursor=cursor, wait=60)
    writer.join()
    assert delivered(page) == [[("insert", "argo")]]
    for wait in (-1, "soon", True):
        with pytest.raises(InputError, match="seconds"):
            graph.changes.poll(cursor=cursor, wait=wait)  # type: ignore[arg-type]


def test_following_ends_after_a_timeout_and_continues_from_a_cursor(graph: Graph) -> None:
    ship(graph, "a")
    ship(graph, "b")
    blocks = list(graph.changes.follow(start="beginning", timeout=0))
    assert [change.id for block in blocks for change in block.changes] == ["a", "b"]
    again = graph.changes.follow(cursor=blocks[0].cursor, timeout=0.05)
    assert [change.id for block in again for change in block.changes] == ["b"]
    with pytest.raises(InputError, match="seconds"):
        graph.changes.follow(timeout=-1)


def test_a_branch_can_be_followed_in_a_task(graph: Graph) -> None:
    async def consume() -> list[str]:
        found = []
        async for block in graph.changes.follow(start="beginning"):
            found += [change.id for change in block.changes]
            if "c" in found:
                return found
            if "b" in found:
                await asyncio.to_thread(ship, graph, "c")
        return found

    ship(graph, "a")
    ship(graph, "b")
    assert asyncio.run(asyncio.wait_for(consume(), 60)) == ["a", "b", "c"]


# Tokens


def tokens(graph: Graph) -> dict[str, tuple[str, Callable[[str], object]]]:
    """A token of each kind, and the request that takes it."""
    graph.load([{"type": "Ship", "data": {"name": name}} for name in "abc"], mode="append")
    head = graph.snapshot().commit.id
    page = graph.changes.poll(start="beginning", limit=1)
    cursor = graph.changes.poll().cursor
    commit_page = graph.changes.of(head, limit=1).next_page_token
    assert cursor is not None
    assert commit_page is not None
    assert page.next_page_token is not None
    return {
        "feed-cursor": (cursor, lambda token: graph.changes.poll(cursor=token)),
        "feed-page": (page.next_page_token, lambda token: graph.changes.poll(page_token=token)),
        "commit-page": (commit_page, lambda token: graph.changes.of(head, page_token=token)),
    }


def test_every_changed_token_is_rejected(graph: Graph) -> None:
    for token, use in tokens(graph).values():
        use(token)
        changed = [token[:i] + ("A" if token[i] != "A" else "B") + token[i + 1 :] for i in range(0, len(token), 7)]
        for text in [*changed, token[:-1], token + "A", token + "=", "x" + token, "", "ü", "A" * 5000, token + "\n"]:
            with pytest.raises(ChangeCursorError, match="change cursor rejected: ") as caught:
                use(text)
            assert report_for(caught.value).http_status == 400


def test_a_token_of_another_kind_is_rejected(graph: Graph) -> None:
    found = tokens(graph)
    for kind, (token, _) in found.items():
        for other, (_, use) in found.items():
            if other != kind:
                with pytest.raises(ChangeCursorError, match=f"not a {other} token"):
                    use(token)


def test_a_token_has_the_documented_encoding(graph: Graph) -> None:
    for kind, (token, use) in tokens(graph).items():
        raw = urlsafe_b64decode(token + "=" * (-len(token) % 4))
        data, digest = raw[:-32], raw[-32:]
        assert hashlib.sha256(data).digest() == digest
        content = json.loads(data)
        assert (content["v"], content["kind"]) == (1, kind)
        for members in ({"v": 2}, {"commit": 3}, {"position": ["node"]}, {"left": 0}, {"filter": "x"}, {"cut": None}):
            if members.keys() <= content.keys():
                with pytest.raises(ChangeCursorError):
                    use(encoded(content | members))
        for data in (b"[]", b"{", b"null"):
            with pytest.raises(ChangeCursorError):
                use(urlsafe_b64encode(data + hashlib.sha256(data).digest()).decode().rstrip("="))


def encoded(content: dict[str, Any]) -> str:
    data = json.dumps(content).encode()
    return urlsafe_b64encode(data + hashlib.sha256(data).digest()).decode().rstrip("=")


def test_a_cursor_belongs_to_its_graph_and_branch(graph: Graph, tmp_path: Path) -> None:
    cursor = graph.changes.poll().cursor
    graph.branches.create("side")
    with pytest.raises(ChangeCursorError, match="another branch"):
        graph.changes.poll(cursor=cursor, branch="side")
    with omnigraph.init(tmp_path / "other", SCHEMA) as other, pytest.raises(ChangeCursorError, match="another graph"):
        other.changes.poll(cursor=cursor)
    side = graph.changes.poll(branch="side").cursor
    graph.branches.delete("side")
    graph.branches.create("side")
    with pytest.raises(ChangeCursorError, match="reset, or deleted and created again"):
        graph.changes.poll(cursor=side, branch="side")
    ship(graph, "later", branch="side")
    side = graph.changes.poll(branch="side").cursor
    graph.branches.reset("side", graph.snapshot().commit.id)
    with pytest.raises(ChangeCursorError, match="reset, or deleted and created again"):
        graph.changes.poll(cursor=side, branch="side")


def test_a_position_that_the_commit_does_not_have_is_rejected(graph: Graph) -> None:
    token, use = tokens(graph)["commit-page"]
    content = json.loads(urlsafe_b64decode(token + "=" * (-len(token) % 4))[:-32])
    kind, type_id, _, _ = content["position"]
    for position in (["node", "nothing", "a", None], [kind, type_id, "zz", None], [kind, type_id, "a", "00"]):
        with pytest.raises(ChangeCursorError, match="position"):
            use(encoded(content | {"position": position}))


# Gaps and schema boundaries


def test_cleanup_makes_a_gap(graph: Graph) -> None:
    begin = graph.changes.poll().cursor
    for name in "abcd":
        ship(graph, name)
    commits = [commit.id for commit in graph.commits][::-1]
    graph.cleanup(keep=1)
    with pytest.raises(ChangeFeedGapError) as caught:
        graph.changes.poll(cursor=begin)
    assert caught.value.first_unreadable_commit_id == commits[1]
    assert caught.value.cursor == begin
    assert report_for(caught.value).http_status == 410
    with pytest.raises(ChangeFeedGapError) as caught:
        graph.changes.of(commits[1])
    assert caught.value.cursor is None
    *lines, last = b"".join(graph.changes.baseline()).splitlines()
    assert len(lines) == 4
    ship(graph, "e")
    page = graph.changes.poll(cursor=json.loads(last)["baseline"]["resume_cursor"])
    assert delivered(page) == [[("insert", "e")]]


def test_a_page_ends_before_a_later_gap(graph: Graph) -> None:
    first = ship(graph, "a")
    graph.tags.create("one", commit=first)
    second = ship(graph, "b")
    graph.tags.create("two", commit=second)
    third = ship(graph, "c")
    ship(graph, "d")
    graph.cleanup(keep=1)
    page = graph.changes.poll(start=f"after:{first}")
    assert delivered(page) == [[("insert", "b")]]
    assert page.caught_up is False
    with pytest.raises(ChangeFeedGapError) as caught:
        graph.changes.poll(cursor=page.cursor)
    assert caught.value.first_unreadable_commit_id == third


def test_a_change_of_the_schema_is_a_boundary(graph: Graph) -> None:
    graph.load([{"type": "Crate", "data": {"name": "c"}}], mode="append")
    start = ship(graph, "a")
    ship(graph, "b")
    commit = evolve_to(graph, SCHEMA.replace("node Crate { name: String @key }", ""), [])
    assert commit is not None
    page = graph.changes.poll(start=f"after:{start}")
    assert delivered(page) == [[("insert", "b")]]
    assert page.caught_up is False
    for use in (
        lambda: graph.changes.poll(cursor=page.cursor),
        lambda: graph.changes.of(commit.id),
        lambda: graph.changes.of(commit.id, types="Ship"),
    ):
        with pytest.raises(SchemaBoundaryError) as caught:
            use()
        assert report_for(caught.value).http_status == 409
        assert caught.value.to_json() == {
            "reason": "schema_boundary",
            "graph_commit_id": commit.id,
            "type_name": "Crate",
        }


def test_renames_and_empty_types_are_no_boundary(graph: Graph) -> None:
    start = ship(graph, "a")
    before = type_id(graph, "node:Ship")
    renamed = SCHEMA.replace("node Ship {", 'node Boat @rename_from("Ship") {').replace("Ship ->", "Boat ->")
    assert evolve_to(graph, renamed.replace("node Crate", "node Box"), []) is not None
    graph.load([{"type": "Boat", "data": {"name": "a", "crew": 5}}], mode="merge")
    page = graph.changes.poll(start=f"after:{start}")
    assert delivered(page) == [[], [("update", "a")]]
    (change,) = page.blocks[-1].changes
    assert (change.type_id, change.type_name) == (before, "Boat")


# Baselines


def test_a_baseline_is_filtered_by_kind_and_type(graph: Graph) -> None:
    graph.load(
        [
            {"type": "Ship", "data": {"name": "a"}},
            {"type": "Port", "data": {"name": "p"}},
            {"edge": "Docked", "from": "a", "to": "p", "data": {"id": "e"}},
        ],
        mode="append",
    )

    def entities(**options: Any) -> list[str]:
        *lines, last = b"".join(graph.changes.baseline(**options)).splitlines()
        cursor = json.loads(last)["baseline"]["resume_cursor"]
        assert graph.changes.poll(cursor=cursor, **options).caught_up
        return [json.loads(line)["data"]["id"] for line in lines]

    assert entities() == ["e", "p", "a"]
    assert entities(kinds="node") == ["p", "a"]
    assert entities(types="Docked") == ["e"]
    assert entities(ops="delete") == ["e", "p", "a"]
    with pytest.raises(InputError):
        entities(types="Shop")


def test_the_feed_can_be_read_without_write_permission(graph: Graph) -> None:
    ship(graph, "a")
    with omnigraph.open(graph.uri, read_only=True) as reader:
        assert delivered(reader.changes.poll(start="beginning")) == [[("insert", "a")]]
        assert len(list(reader.changes.baseline())) > 0
