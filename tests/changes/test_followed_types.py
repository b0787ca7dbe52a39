"""A feed with a filter by type follows the types themselves, not their names."""

from __future__ import annotations

import hashlib
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import omnigraph
from omnigraph.changes.followed_types import MAX_BYTES, MAX_SEALED_BYTES, from_member, sealed, to_member
from omnigraph.changes.tokens import MAX_CHARACTERS, Binding, Position, TokenKind, digest_of, encode
from omnigraph.cli.main import cli
from omnigraph.commit.manifest import TableId
from omnigraph.errors import ChangeCursorError, InputError, ResourceLimitError
from omnigraph.graph import Graph

SHIP, PORT = "node Ship { k: String @key }", "node Port { k: String @key }"
VESSEL = 'node Vessel @rename_from("Ship") { k: String @key }'


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with omnigraph.init(tmp_path / "g", f"{SHIP} {PORT}") as graph:
        yield graph


def insert(graph: Graph, type_: str, *keys: str) -> str:
    graph.load([{"type": type_, "data": {"k": key}} for key in keys], mode="append")
    return graph.snapshot().commit.id


def swap(graph: Graph) -> None:
    """Swap the names of Ship and Port. A name that exists keeps its type, so this takes three steps."""
    for schema in (
        'node Old @rename_from("Ship") { k: String @key } node Port { k: String @key }',
        'node Old { k: String @key } node Ship @rename_from("Port") { k: String @key }',
        'node Port @rename_from("Old") { k: String @key } node Ship { k: String @key }',
    ):
        graph.schema.apply(schema)


def ids(page: Any) -> list[str]:
    return [change.id for block in page.blocks for change in block.changes]


def content_of(token: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(urlsafe_b64decode(token + "=" * (-len(token) % 4))[:-32])
    return found


def encoded(content: dict[str, Any]) -> str:
    data = json.dumps(content).encode()
    return urlsafe_b64encode(data + hashlib.sha256(data).digest()).decode().rstrip("=")


def test_a_renamed_type_stays_followed_and_its_old_name_is_another_type(graph: Graph) -> None:
    cursor = graph.changes.poll(types=["Ship"]).cursor
    graph.schema.apply(f"{VESSEL} {PORT}")
    insert(graph, "Vessel", "argo")
    page = graph.changes.poll(cursor=cursor, types=["Ship"])
    assert ids(page) == ["argo"]
    graph.schema.apply(f"{VESSEL} {PORT} {SHIP}")
    insert(graph, "Ship", "other")
    insert(graph, "Vessel", "beagle")
    page = graph.changes.poll(cursor=page.cursor, types=["Ship"])
    assert ids(page) == ["beagle"]
    assert [change.type_name for block in page.blocks for change in block.changes] == ["Vessel"]
    assert ids(graph.changes.poll(cursor=cursor, types=["Ship"])) == ["argo", "beagle"]


@pytest.mark.slow
def test_every_position_delivers_the_changes_of_the_same_type(graph: Graph) -> None:
    """All cursors of a feed with a filter agree with the whole feed, filtered by the id of the type."""
    start = graph.changes.poll(types="Ship").cursor
    whole = graph.changes.poll().cursor
    insert(graph, "Ship", "a")
    insert(graph, "Port", "b")
    swap(graph)
    insert(graph, "Ship", "c")  # this is the former Port
    insert(graph, "Port", "d")
    swap(graph)
    insert(graph, "Ship", "e")
    graph.schema.apply(f'{VESSEL} node Harbour @rename_from("Port") {{ k: String @key }}')
    insert(graph, "Vessel", "f")
    insert(graph, "Harbour", "g")
    graph.schema.apply('node Vessel { k: String @key } node Ship @rename_from("Harbour") { k: String @key }')
    insert(graph, "Vessel", "h")
    insert(graph, "Ship", "i")
    blocks = graph.changes.poll(cursor=whole).blocks
    first = blocks[0].changes[0].type_id
    model = [[change.id for change in block.changes if change.type_id == first] for block in blocks]
    assert [one for block in model for one in block] == ["a", "d", "e", "f", "h"]
    page = graph.changes.poll(cursor=start, types="Ship")
    assert [[change.id for change in block.changes] for block in page.blocks] == model
    for place, block in enumerate(page.blocks):
        rest = graph.changes.poll(cursor=block.cursor, types="Ship")
        assert [[change.id for change in one.changes] for one in rest.blocks] == model[place + 1 :]
    followed = list(graph.changes.follow(cursor=start, types="Ship", timeout=0, max_commits=2))
    assert [[change.id for change in block.changes] for block in followed] == model


def test_a_page_token_keeps_the_types(graph: Graph) -> None:
    cursor = graph.changes.poll(types="Ship").cursor
    insert(graph, "Ship", *"abc")
    swap(graph)
    insert(graph, "Port", *"de")
    insert(graph, "Ship", *"xy")
    found, page = [], graph.changes.poll(cursor=cursor, types="Ship", limit=2)
    found += ids(page)
    insert(graph, "Port", "later")  # after the cut of the poll
    while page.next_page_token is not None or not page.caught_up:
        position: dict[str, Any] = {"page_token": page.next_page_token, "cursor": page.cursor}
        page = graph.changes.poll(**position, types="Ship", limit=2)
        found += ids(page)
    assert found == [*"abcde"]
    assert ids(graph.changes.poll(cursor=page.cursor, types="Ship")) == ["later"]


def test_a_baseline_and_its_cursor_follow_the_same_type(graph: Graph) -> None:
    insert(graph, "Ship", "a")
    insert(graph, "Port", "p")
    *lines, last = b"".join(graph.changes.baseline(types=["Ship"])).splitlines()
    assert [json.loads(line)["data"]["id"] for line in lines] == ["a"]
    swap(graph)
    insert(graph, "Port", "b")
    insert(graph, "Ship", "q")
    cursor = json.loads(last)["baseline"]["resume_cursor"]
    assert ids(graph.changes.poll(cursor=cursor, types=["Ship"])) == ["b"]
    *lines, last = b"".join(graph.changes.baseline(types=["Ship"])).splitlines()
    assert [json.loads(line)["data"]["id"] for line in lines] == ["p", "q"]


def test_a_new_type_with_the_name_of_a_dropped_one_is_refused(graph: Graph) -> None:
    """An empty type can be dropped without a boundary, so the feed must not go on with nothing."""
    cursor = graph.changes.poll(types=["Ship", "Port"]).cursor
    only = graph.changes.poll(types="Ship").cursor
    graph.schema.apply(PORT)
    insert(graph, "Port", "p")
    page = graph.changes.poll(cursor=cursor, types=["Ship", "Port"])
    assert ids(page) == ["p"]
    assert ids(graph.changes.poll(cursor=only, types="Ship")) == []
    graph.schema.apply(f"{PORT} {SHIP}")
    insert(graph, "Ship", "new")
    for token, types in ((page.cursor, ["Ship", "Port"]), (cursor, ["Ship", "Port"]), (only, ["Ship"])):
        with pytest.raises(ChangeCursorError, match="was dropped, and 'Ship' is another type now"):
            graph.changes.poll(cursor=token, types=types)
    fresh = graph.changes.poll(types="Ship").cursor
    insert(graph, "Ship", "newer")
    assert ids(graph.changes.poll(cursor=fresh, types="Ship")) == ["newer"]


def test_a_name_is_looked_up_at_the_head_then_at_the_start_then_between(graph: Graph) -> None:
    start = insert(graph, "Ship", "a")
    graph.schema.apply(f'node Boat @rename_from("Ship") {{ k: String @key }} {PORT}')
    insert(graph, "Boat", "b")
    graph.schema.apply(f'node Vessel @rename_from("Boat") {{ k: String @key }} {PORT}')
    insert(graph, "Vessel", "c")
    for position, wanted in (("beginning", ["a", "b", "c"]), (f"after:{start}", ["b", "c"])):
        for name in ("Vessel", "Ship", "Boat"):
            page = graph.changes.poll(start=position, types=name)
            assert ids(page) == wanted
            assert graph.changes.poll(cursor=page.cursor, types=name).caught_up
    with pytest.raises(InputError, match="no type 'Ship'"):
        graph.changes.poll(types="Ship")  # the range begins at the head
    for position in ("now", "beginning"):
        with pytest.raises(InputError, match="no type 'Shop'"):
            graph.changes.poll(start=position, types="Shop")
    graph.schema.apply(f"node Vessel {{ k: String @key }} {PORT} {SHIP}")
    insert(graph, "Ship", "other")
    assert ids(graph.changes.poll(start="beginning", types="Ship")) == ["other"]
    assert ids(graph.changes.poll(start="beginning", types="Vessel")) == ["a", "b", "c"]


def test_the_changes_of_a_commit_are_selected_by_both_names(graph: Graph) -> None:
    """`of` has no earlier state than the parent of the commit, so each name in either state counts."""
    graph.branches.create("side")
    graph.schema.apply(f"{VESSEL} {PORT}")
    insert(graph, "Vessel", "a")
    graph.branches.update("side")
    commit = graph.snapshot(branch="side").commit.id
    assert [change.id for change in graph.changes.of(commit, types="Vessel").changes] == ["a"]
    assert [change.id for change in graph.changes.of(commit, types="Ship").changes] == ["a"]


def test_a_token_without_ids_is_resolved_at_its_position_or_rejected(graph: Graph) -> None:
    before = graph.changes.poll(types="Ship").cursor
    assert before is not None
    graph.schema.apply(f"{VESSEL} {PORT}")
    insert(graph, "Vessel", "a")
    after = graph.changes.poll(cursor=before, types="Ship").cursor
    assert after is not None
    old = [{name: value for name, value in content_of(one).items() if name != "types"} for one in (before, after)]
    assert ids(graph.changes.poll(cursor=encoded(old[0]), types="Ship")) == ["a"]
    with pytest.raises(ChangeCursorError, match="does not identify the types"):
        graph.changes.poll(cursor=encoded(old[1]), types="Ship")
    for damaged in ([1], [1, "2"], "1", [1, True]):
        with pytest.raises(ChangeCursorError, match="damaged"):
            graph.changes.poll(cursor=encoded(content_of(after) | {"types": damaged}), types="Ship")


def test_a_token_without_type_filter_is_as_before(graph: Graph) -> None:
    cursor = graph.changes.poll(kinds="node").cursor
    assert cursor is not None
    members = ["v", "kind", "graph", "genesis", "filter", "branch", "incarnation", "commit"]
    assert list(content_of(cursor)) == members


def test_the_ids_of_a_token_return_and_always_fit() -> None:
    wanted = frozenset(TableId(number * 7, number * 11 % 97) for number in range(1, 60))
    assert from_member({"types": to_member(wanted)}, "key") == wanted
    assert from_member({"types": sealed(wanted, "key")}, "key") == wanted
    for types in ((1,) * (MAX_BYTES // 2), "x" * (4 * -(-MAX_SEALED_BYTES // 3))):
        _check_length(types)


def _check_length(types: tuple[int, ...] | str) -> None:
    largest = Binding("x" * 24, "0" * 26, "x" * 24, "x" * 24, "x" * 24, types)
    position = Position.of("node", "x" * 43, "\x01" * 256)
    members = {"commit": "0" * 26, "row": 10**12, "cut": "0" * 26, "left": 512}
    token = encode(TokenKind.FEED_PAGE, largest, position=position, **members)
    assert len(digest_of("x")) == 24
    assert len(token) <= MAX_CHARACTERS


def test_too_many_types_for_a_token_are_refused_at_the_start(tmp_path: Path) -> None:
    names = [f"T{number}" for number in range(400)]
    with omnigraph.init(tmp_path / "many", "\n".join(f"node {name} {{ k: String @key }}" for name in names)) as graph:
        assert graph.changes.poll(types=names[:150]).caught_up
        with pytest.raises(ResourceLimitError):
            graph.changes.poll(types=names)
        assert graph.changes.poll().caught_up


def test_the_command_line_follows_a_renamed_type(graph: Graph) -> None:
    def poll(*options: str) -> dict[str, Any]:
        result = CliRunner().invoke(cli, ["changes", "poll", graph.uri, "--type", "Ship", "--json", *options])
        assert result.exit_code == 0, result.output
        found: dict[str, Any] = json.loads(result.output)
        return found

    cursor = poll()["cursor"]
    graph.schema.apply(f"{VESSEL} {PORT}")
    insert(graph, "Vessel", "argo")
    page = poll("--cursor", cursor)
    assert [one["id"] for block in page["blocks"] for one in block["changes"]] == ["argo"]
    graph.schema.apply(f"{VESSEL} {PORT} {SHIP}")
    insert(graph, "Ship", "other")
    assert [block["changes"] for block in poll("--cursor", page["cursor"])["blocks"]] == [[], []]
