"""The embedded API: opening, reading and closing a graph."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.graph.people import SCHEMA, add, names
from tests.patience import PATIENCE

import omnigraph
from omnigraph.commit.failpoints import Failpoint, SimulatedCrashError, armed
from omnigraph.commit.schema_files import CONTRACT
from omnigraph.commit.write_request import WriteRequest
from omnigraph.errors import (
    BranchNotFoundError,
    InputError,
    NotFoundError,
    OmnigraphError,
    ReadOnlyError,
)
from omnigraph.graph import Graph


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "graph"


@pytest.fixture
def graph(place: Path) -> Graph:
    return omnigraph.init(place, SCHEMA)


def files(place: Path) -> dict[str, tuple[int, int]]:
    """Every file with its size and times, to detect changes."""
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in place.rglob("*")}


# ---- opening


def test_importing_loads_no_engine() -> None:
    code = "import omnigraph, sys; assert 'pyarrow' not in sys.modules; omnigraph.open; assert 'pyarrow' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="nothing"):
        omnigraph.nothing  # noqa: B018


def test_a_handle_shows_its_location_branch_and_schema(place: Path, graph: Graph) -> None:
    assert graph.uri == str(place)
    assert graph.default_branch == "main"
    assert graph.actor is None
    assert not graph.read_only
    assert graph.schema_source == SCHEMA
    assert sorted(graph.catalog.nodes) == ["City", "Person"]
    assert list(graph.snapshot().tables) == ["edge:Lives", "node:City", "node:Person"]


def test_two_handles_see_the_same_state(place: Path, graph: Graph) -> None:
    with omnigraph.open(place) as other, omnigraph.open(str(place), read_only=True) as reader:
        add(graph, "Ann")
        assert names(other) == names(reader) == ["Ann"]
        add(other, "Ben")
        assert names(graph) == names(reader) == ["Ann", "Ben"]


def test_a_handle_is_bound_to_a_branch(place: Path, graph: Graph) -> None:
    graph.branches.create("draft")
    add(graph, "Ann", branch="draft")
    with omnigraph.open(place, branch="draft", actor="kim") as draft:
        assert draft.entity("Person", "Ann") == {"id": "Ann", "name": "Ann"}
        assert draft.snapshot().branch == "draft"
        assert draft.snapshot(branch="main").branch == "main"
        assert next(iter(draft.commits)).branch == "draft"
        assert add(draft, "Ben", branch="draft").actor == "kim"
        assert add(draft, "Cas", branch="draft", actor="lee").actor == "lee"
    assert graph.entity("Person", "Ann") is None


def test_a_missing_graph_or_branch_is_reported(tmp_path: Path, place: Path, graph: Graph) -> None:
    with pytest.raises(NotFoundError, match="there is no graph at"):
        omnigraph.open(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
    with pytest.raises(BranchNotFoundError, match="there is no branch 'mian'") as error:
        omnigraph.open(place, branch="mian")
    assert error.value.hint == "did you mean 'main'?"


@pytest.mark.parametrize("missing", CONTRACT)
def test_a_missing_schema_file_is_reported_and_not_recreated(place: Path, graph: Graph, missing: str) -> None:
    (place / missing).unlink()
    for read_only in (False, True):
        with pytest.raises(NotFoundError, match=missing) as error:
            omnigraph.open(place, read_only=read_only)
        assert error.value.hint is not None
        assert "backup" in error.value.hint
    assert not (place / missing).exists()


@pytest.mark.parametrize("damaged", CONTRACT)
def test_schema_files_that_do_not_match_are_refused(place: Path, graph: Graph, damaged: str) -> None:
    (place / damaged).write_text("{}" if damaged.endswith("json") else "node Other { x: String @key }")
    with pytest.raises(OmnigraphError):
        omnigraph.open(place)


@pytest.mark.parametrize("damaged", CONTRACT)
def test_an_open_handle_notices_that_schema_files_were_changed(place: Path, graph: Graph, damaged: str) -> None:
    """Every write checks the files and fails. When they are restored, the handle works again."""
    add(graph, "Ann")
    file = place / damaged
    before, head = file.read_text(), graph.snapshot().commit
    for wrong in ("{}" if damaged.endswith("json") else "node Other { x: String @key }", None):
        file.write_text(wrong) if wrong is not None else file.unlink()
        with pytest.raises(OmnigraphError) as error:
            add(graph, "Ben")
        assert error.value.hint is not None
        assert graph.snapshot().commit == head
    file.write_text(before)
    add(graph, "Ben")


@pytest.mark.parametrize("damaged", CONTRACT)
def test_a_write_to_a_branch_notices_changed_schema_files(place: Path, graph: Graph, damaged: str) -> None:
    """The schema of the branch is in the archive, but the files are checked, too."""
    graph.branches.create("dev")
    file = place / damaged
    before = file.read_text()
    file.write_text("{}" if damaged.endswith("json") else "node Other { x: String @key }")
    for branch in ("dev", "main", "dev", "main"):
        with pytest.raises(OmnigraphError, match="schema"):
            add(graph, "Ben", branch=branch)
    file.write_text(before)
    for branch in ("dev", "main"):
        add(graph, "Ben", branch=branch)


def test_a_comment_in_the_schema_file_is_accepted(place: Path, graph: Graph) -> None:
    (place / "_schema.pg").write_text((place / "_schema.pg").read_text() + "\n// a remark\n")
    add(graph, "Ann")


def test_a_closed_handle_refuses_every_call(place: Path) -> None:
    with omnigraph.init(place, SCHEMA) as graph:
        add(graph, "Ann")
        before = graph.snapshot()
    graph.close()  # closing twice is harmless
    uses: list[Callable[[], object]] = [
        lambda: add(graph, "Ben"),
        lambda: graph.load({"Person": []}, mode="append"),
        lambda: graph.branch().transaction().__enter__(),
        lambda: graph.branches.create("dev"),
        lambda: graph.tags.create("v1"),
        graph.snapshot,
        graph.refresh,
        lambda: list(graph.branches),
        lambda: list(graph.commits),
        lambda: graph.commits.get(before.commit.id),
        lambda: graph.snapshot(version=1),
    ]
    for use in uses:
        with pytest.raises(InputError, match="this graph is closed"):
            use()
    assert before.scan("node:Person").num_rows == 1, "what was captured stays readable"
    with omnigraph.open(place) as again:
        assert names(again) == ["Ann"]


# ---- reading


def test_a_snapshot_never_changes(graph: Graph) -> None:
    before = graph.snapshot()
    first = add(graph, "Ann")
    after = graph.snapshot()
    add(graph, "Ben")
    assert before.scan("node:Person").num_rows == 0
    assert after.scan("node:Person", columns=["name"]).to_pydict() == {"name": ["Ann"]}
    assert after.commit.id == first.id
    assert after.manifest_version == first.manifest_version


def test_snapshots_by_commit_version_tag_and_time(graph: Graph) -> None:
    made = [add(graph, name) for name in ("Ann", "Ben", "Cas")]
    graph.tags.create("two", commit=made[1].id)
    moment = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=made[1].created_at)
    zone = moment.astimezone(datetime.now().astimezone().tzinfo)
    views = [
        graph.snapshot(commit=made[1].id),
        graph.snapshot(commit="two"),
        graph.snapshot(version=made[1].manifest_version),
        graph.snapshot(branch="main", at=moment),
        graph.snapshot(at=moment.replace(tzinfo=None)),
        graph.snapshot(at=zone),
        graph.snapshot(at=moment.isoformat()),
        graph.snapshot(at=moment + timedelta(microseconds=max(0, made[2].created_at - made[1].created_at - 1))),
    ]
    assert {view.commit.id for view in views} == {made[1].id}
    assert {view.scan("node:Person").num_rows for view in views} == {2}


def test_invalid_snapshot_arguments_are_refused(graph: Graph) -> None:
    commit = add(graph, "Ann").id
    now = datetime.now(UTC)
    with pytest.raises(InputError, match="one of commit, version and at"):
        graph.snapshot(commit=commit, version=1)
    with pytest.raises(InputError, match="one of commit, version and at"):
        graph.snapshot(version=1, at=now)
    with pytest.raises(InputError, match="give commit or branch, not both"):
        graph.snapshot(branch="main", commit=commit)
    with pytest.raises(InputError, match="count from 1"):
        graph.snapshot(version=0)
    with pytest.raises(NotFoundError, match="branch 'main' has no version 99") as error:
        graph.snapshot(version=99)
    assert error.value.hint == "its newest is 2"
    for wrong in ("soon", "2020-13-01", now.date(), 3):
        with pytest.raises(InputError, match="is not a time"):
            graph.snapshot(at=wrong)  # type: ignore[arg-type]  # what people try
    with pytest.raises(BranchNotFoundError):
        graph.snapshot(branch="nope")
    with pytest.raises(NotFoundError):
        graph.snapshot(commit="nope")
    with pytest.raises(NotFoundError, match="no commit before that time"):
        graph.snapshot(at=now - timedelta(days=1))


def test_entities_are_read_by_type_and_id(graph: Graph) -> None:
    first = add(graph, "Ann")
    graph.tags.create("v1")
    add(graph, "Ben")
    assert graph.entity("Person", "Ann") == {"id": "Ann", "name": "Ann"}
    assert graph.entity("node:Person", "Ben") == {"id": "Ben", "name": "Ben"}
    assert graph.entity("Lives", "Ann") is None
    assert graph.entity("Person", "Ben", at=first.id) is None
    assert graph.entity("Person", "Ben", at="v1") is None
    assert graph.entity("Person", "Ann", at=graph.snapshot(version=1)) is None
    with pytest.raises(NotFoundError, match="the graph has no type node:Persn") as error:
        graph.entity("Persn", "Ann")
    assert error.value.hint == "did you mean 'node:Person'?"
    with pytest.raises(InputError, match="an id must be a text, not 10"):
        graph.entity("Person", 10)  # type: ignore[arg-type]  # what people try when the key is a number


def test_the_repr_of_a_graph_shows_uri_and_branch(graph: Graph) -> None:
    assert repr(graph) == f"<Graph '{graph.uri}' on main>"


def test_quotes_in_an_id_are_escaped(graph: Graph) -> None:
    add(graph, "o'Hara", "x' OR '1'='1")
    assert graph.entity("Person", "o'Hara") is not None
    assert graph.entity("Person", "' OR '1'='1") is None


def test_commits_are_listed_in_pages(graph: Graph) -> None:
    made = [add(graph, f"p{i}", actor="even" if i % 2 == 0 else "odd") for i in range(6)]
    page = graph.commits.list(actor="even", limit=2)
    assert [commit.id for commit in page.commits] == [made[4].id, made[2].id]
    rest = graph.commits.list(actor="even", limit=2, cursor=page.cursor)
    assert [commit.id for commit in rest.commits] == [made[0].id]
    assert rest.cursor is None
    with pytest.raises(InputError, match="at least 1"):
        graph.commits.list(limit=0)
    with pytest.raises(InputError, match="does not belong to this history"):
        graph.commits.list(cursor="nope")


# ---- read-only handles


def test_a_read_only_handle_refuses_every_write(place: Path, graph: Graph) -> None:
    graph.branches.create("draft")
    graph.tags.create("v1")
    with omnigraph.open(place, read_only=True) as reader:
        for attempt in (
            lambda: reader.write_tables(WriteRequest(), lambda _: []),
            lambda: reader.branches.create("x"),
            lambda: reader.branches.delete("draft"),
            lambda: reader.tags.create("x"),
            lambda: reader.tags.delete("v1"),
        ):
            with pytest.raises(ReadOnlyError, match="opened read-only"):
                attempt()


def test_reading_changes_no_file(place: Path, graph: Graph) -> None:
    graph.branches.create("draft")
    with armed(Failpoint.TABLES_COMMITTED, "crash"), pytest.raises(SimulatedCrashError):
        add(graph, "Ann")
    before = files(place)
    with omnigraph.open(place, read_only=True) as reader:
        assert names(reader) == []
        reader.refresh()
        assert [branch.name for branch in reader.branches] == ["main", "draft"]
        assert len(reader.recovery.pending()) == 1
        assert reader.recovery.list() == []
    assert files(place) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_graph_without_write_permission_can_be_read(place: Path, graph: Graph) -> None:
    add(graph, "Ann")
    for path in [place, *place.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        with omnigraph.open(place, read_only=True) as reader:
            assert names(reader) == ["Ann"]
        with pytest.raises(OmnigraphError):
            omnigraph.open(place)
    finally:
        for path in [place, *place.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)


# ---- recovery and links


def test_opening_for_writing_recovers_interrupted_writes(place: Path, graph: Graph) -> None:
    with armed(Failpoint.TABLES_COMMITTED, "crash"), pytest.raises(SimulatedCrashError):
        add(graph, "Ann")
    assert names(graph) == []
    with omnigraph.open(place) as other:
        assert names(other) == ["Ann"]
        assert other.recovery.pending() == []
        (record,) = other.recovery.list()
        assert record.commit_id == next(iter(other.commits)).id
    assert names(graph) == ["Ann"]


def test_refresh_recovers_interrupted_writes(graph: Graph) -> None:
    with armed(Failpoint.TABLES_COMMITTED, "crash"), pytest.raises(SimulatedCrashError):
        add(graph, "Ann")
    assert graph.refresh().commit.id == next(iter(graph.commits)).id
    assert names(graph) == ["Ann"]


def test_a_symbolic_link_to_a_graph_opens_the_same_graph(place: Path, graph: Graph) -> None:
    graph.branches.create("draft")
    link = place.with_name("link")
    link.symlink_to(place)
    with omnigraph.open(link) as there:
        add(there, "Ann", branch="draft")
    assert names(graph, "draft") == ["Ann"]


# ---- threads


def test_many_threads_can_share_a_handle(graph: Graph) -> None:
    """Writers on two branches, with readers and refreshes: no write is lost or torn."""
    graph.branches.create("draft")
    graph.session.store.timeouts.wait = PATIENCE
    done = threading.Event()

    def read() -> int:
        looks = 0
        while not (looks and done.is_set()):
            for branch in ("main", "draft"):
                view = graph.snapshot(branch=branch)
                assert view.scan("node:Person").num_rows == view.pin("node:Person").row_count
            graph.refresh()
            looks += 1
        return looks

    def write(thread: int) -> list[str]:
        branch = "main" if thread % 2 == 0 else "draft"
        added = [f"t{thread}-{i}" for i in range(8)]
        for name in added:
            add(graph, name, branch=branch)
        return added

    with ThreadPoolExecutor(6) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        try:
            written = list(pool.map(write, range(4)))
        finally:
            done.set()
        assert all(reader.result() > 0 for reader in readers)
    assert names(graph) == sorted(written[0] + written[2])
    assert names(graph, "draft") == sorted(written[1] + written[3])
    assert graph.recovery.list() == []
