"""A topology has the edges of the edge table: after it is built, read from disk, updated incrementally, or damaged."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import traceback
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from random import Random
from threading import Event

import lance
import pyarrow as pa
import pytest
from tests.patience import PATIENCE, until
from tests.read.storage_requests import View, asked, follows, stored_edges, topology_edges
from tests.thresholds import Thresholds

import omnigraph
from omnigraph.commit.snapshots import Snapshot
from omnigraph.errors import CancelledError
from omnigraph.graph import Graph
from omnigraph.read.budget import Budget, Cancellation, Spending
from omnigraph.read.columns import derived_files, sorting
from omnigraph.read.columns.cache import ColumnCache
from omnigraph.read.columns.derived_files import DerivedFiles, Stored
from omnigraph.read.columns.entity_table import EntityTables
from omnigraph.read.context.views import Views
from omnigraph.read.topology.topologies import Topologies
from omnigraph.storage.files.cache_directory import cache_directory

SCHEMA = """
node Person { name: String @key age: I64? }
node City { number: I64 @key }
edge Follows: Person -> Person { since: I64? }
edge LivesIn: Person -> City
"""
PEOPLE = [f"p{i}" for i in range(60)]


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with omnigraph.init(tmp_path / "graph", SCHEMA) as made:
        random = Random(7)
        pairs = [(random.choice(PEOPLE), random.choice(PEOPLE)) for _ in range(300)]
        made.load(
            {
                "Person": pa.table({"name": PEOPLE, "age": list(range(60))}),
                "City": pa.table({"number": [10, 20, 35_000, -4]}),
                "Follows": follows([*pairs, *pairs[:20], ("p1", "p1")]),
                "LivesIn": follows([(name, random.choice(["10", "35000", "-4"])) for name in PEOPLE]),
            },
            mode="append",
        )
        yield made


@pytest.fixture
def files(tmp_path: Path) -> Path:
    return tmp_path / "topologies"


def assert_right(view: View) -> None:
    """Check that both directions of all topologies have the edges of the tables."""
    for edge, target in (("Follows", "Person"), ("LivesIn", "City")):
        expected = stored_edges(view, edge)
        assert topology_edges(view, edge, "Person", target) == expected
        assert topology_edges(view, edge, "Person", target, inward=True) == expected


def end_scans(calls: list[tuple[str, str, tuple[str, ...]]]) -> list[str]:
    """The scans over the endpoints of all edges."""
    some = ("take_rows", "new parts")
    return [name for name, kind, columns in calls if kind == "edges" and name not in some and "src" in columns]


def test_a_topology_has_every_edge_in_both_directions(graph: Graph) -> None:
    assert_right(View(graph, None))


def test_a_second_reader_does_not_scan_the_edges(graph: Graph, files: Path) -> None:
    with asked() as first:
        View(graph, files).topology("Follows")
    assert len(end_scans(first)) == 1
    view = View(graph, files)
    with asked() as second:
        adjacency = view.topology("Follows").out
        adjacency.far(adjacency.walk(view.tables.nodes("Person").all_numbers())[1])
    assert [call for call in second if call[1] == "edges"] == []
    assert_right(view)


@pytest.mark.slow
def test_a_second_process_does_not_scan_the_edges(graph: Graph, files: Path) -> None:
    View(graph, files).topology("Follows")
    program = """
import sys
from pathlib import Path
from tests.read.storage_requests import View, asked
import omnigraph
graph = omnigraph.open(sys.argv[1], read_only=True)
with asked() as calls:
    view = View(graph, Path(sys.argv[2]))
    adjacency = view.topology("Follows").into
    degree, places = adjacency.walk(view.tables.nodes("Person").find(__import__("pyarrow").array(["p3"])))
    sources = view.tables.nodes("Person").take("name", adjacency.far(places)).to_pylist()
assert not [call for call in calls if call[1] == "edges"], calls
print(" ".join(sorted(sources)))
"""
    found = subprocess.run(
        [sys.executable, "-c", program, str(graph.uri), str(files)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    edges = stored_edges(View(graph, None), "Follows")
    assert found.stdout.split() == sorted(source for source, target, _ in edges if target == "p3")


@pytest.mark.slow
def test_the_first_traversal_after_ensure_indexes_scans_no_edges(
    graph: Graph, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ensure_indexes` builds topologies; a later process traverses edges without reading their table."""
    monkeypatch.setattr("omnigraph.read.topology.topologies.process_files", lambda: DerivedFiles(files))
    graph.ensure_indexes()
    assert len(headers(files)) == 2
    program = """
import json, sys
from pathlib import Path
from tests.read.storage_requests import asked
import omnigraph
from omnigraph.read.columns.derived_files import DerivedFiles
from omnigraph.read.topology import topologies
topologies.process_files = lambda: DerivedFiles(Path(sys.argv[2]))
query = "query q() { match { $a: Person { name: \\"p3\\" } $a follows{1,2} $b } return { $b.name as name } }"
with omnigraph.open(sys.argv[1], read_only=True) as graph, asked() as calls:
    found = sorted(row["name"] for row in graph.query(query).to_pylist())
print(json.dumps([found, [call for call in calls if call[1] == "edges"]]))
"""
    found, calls = json.loads(in_another_process(program, graph.uri, files))
    edges = {(source, target) for source, target, _ in stored_edges(View(graph, None), "Follows")}
    near = {target for source, target in edges if source == "p3"}
    far = {target for source, target in edges if source in near}
    assert found == sorted((near | far) - ({"p3"} if ("p3", "p3") not in edges else set()))
    assert calls == []


def test_ensure_indexes_builds_no_topology_without_a_cache_directory(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("omnigraph.read.topology.topologies.process_files", lambda: DerivedFiles(None))
    with asked() as calls:
        graph.ensure_indexes()
    assert end_scans(calls) == []


# Changes of a graph

Change = Callable[[Graph], object]


def _new_edges(graph: Graph) -> object:
    return graph.load({"Follows": follows([("p0", "p59"), ("p59", "p0"), ("p7", "p7")])}, mode="append")


def _new_nodes(graph: Graph) -> object:
    rows = {"Person": pa.table({"name": ["new", "newer"]}), "Follows": follows([("new", "p1"), ("p2", "newer")])}
    return graph.load(rows, mode="append")


def _edges_go(graph: Graph) -> object:
    return graph.mutate('query q() { delete Follows where from = "p5" }')


def _nodes_go(graph: Graph) -> object:
    return graph.mutate("query q() { delete Person where age < 7 }")


def _last_nodes_go(graph: Graph) -> object:
    return graph.mutate("query q() { delete Person where age > 50 }")


def _nodes_are_written(graph: Graph) -> object:
    return graph.mutate("query q() { update Person set { age: 100 } where age > 30 }")


def _all_nodes_are_written(graph: Graph) -> object:
    return graph.mutate("query q() { update Person set { age: 1 } where age is not null }")


def _edges_are_written(graph: Graph) -> object:
    return graph.mutate('query q() { update Follows set { since: 4 } where from = "p9" }')


def _edges_turn(graph: Graph) -> object:
    rows = graph.snapshot().scan("edge:Follows").slice(0, 5)
    turned = pa.table({"id": rows["id"], "from": rows["dst"], "to": rows["src"]})
    return graph.load({"Follows": turned}, mode="merge")


def _edges_are_replaced(graph: Graph) -> object:
    return graph.load({"Follows": follows([("p3", "p4"), ("p4", "p3")])}, mode="overwrite")


def _nodes_are_replaced(graph: Graph) -> object:
    rows = {"Person": pa.table({"name": [*PEOPLE[::-1], "another"]})}
    return graph.load(rows, mode="overwrite")


CHANGES = [
    _new_edges,
    _new_nodes,
    _edges_go,
    _nodes_go,
    _last_nodes_go,
    _nodes_are_written,
    _all_nodes_are_written,
    _edges_are_written,
    _edges_turn,
    _edges_are_replaced,
    _nodes_are_replaced,
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_topology_is_correct_after_each_kind_of_change(graph: Graph, files: Path, change: Change) -> None:
    before = View(graph, files)
    assert_right(before)
    change(graph)
    assert_right(View(graph, files))
    assert_right(View(graph, files))
    assert_right(View(graph, files, before.snapshot))


@pytest.mark.parametrize("seed", range(6))
def test_a_topology_is_correct_after_random_changes(graph: Graph, files: Path, seed: int) -> None:
    random = Random(seed)
    views = [View(graph, files)]
    for change in random.sample(CHANGES, len(CHANGES)):
        assert_right(views[-1])
        try:
            change(graph)
        except omnigraph.errors.OmnigraphError:
            continue  # some edges have endpoints that an earlier change deleted
        views.append(View(graph, files))
    for view in views:
        assert_right(View(graph, files, view.snapshot))


@pytest.mark.parametrize("change", [_new_edges, _new_nodes, _edges_go, _nodes_go, _edges_are_written, _edges_turn])
def test_a_small_change_does_not_read_all_edges_again(graph: Graph, files: Path, change: Change) -> None:
    View(graph, files).topology("Follows")
    change(graph)
    view = View(graph, files)
    with asked() as calls:
        view.topology("Follows")
    assert end_scans(calls) == []
    assert_right(view)


@pytest.mark.parametrize("change", [_nodes_are_written, _all_nodes_are_written])
def test_updated_nodes_do_not_change_the_topology(graph: Graph, files: Path, change: Change) -> None:
    View(graph, files).topology("Follows")
    arrays = sorted(path.name for path in files.glob("*.arrays"))
    change(graph)
    with asked() as calls:
        View(graph, files).topology("Follows")
    assert [call for call in calls if call[1] == "edges"] == []
    assert sorted(path.name for path in files.glob("*.arrays")) == arrays
    # The next reader does not have to compare the nodes again.
    with asked() as calls:
        View(graph, files).topology("Follows")
    assert calls == []


def test_only_new_edges_are_read_after_an_append(graph: Graph, files: Path) -> None:
    View(graph, files).topology("Follows")
    _new_edges(graph)
    with asked() as calls:
        View(graph, files).topology("Follows")
    assert [call for call in calls if call[1] == "edges"] == [("new parts", "edges", ("src", "dst", "_rowid"))]


def test_a_topology_in_memory_is_updated_after_each_change(graph: Graph) -> None:
    view = View(graph, None)
    assert_right(view)
    for change in (_new_edges, _nodes_are_written, _edges_go, _new_nodes, _nodes_go, _edges_turn):
        change(graph)
        snapshot = graph.snapshot()
        next_ = View(graph, None, snapshot)
        next_.tables = EntityTables(snapshot, view.tables.cache)
        next_.topologies = Topologies(next_.tables, graph.catalog, DerivedFiles(None))
        with asked() as calls:
            next_.topology("Follows")
        assert end_scans(calls) == []
        assert_right(next_)
        view = next_


def test_only_the_view_in_use_holds_a_topology_in_memory(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """A handle keeps many snapshots. The edges of each would take too much memory."""
    monkeypatch.setattr("omnigraph.read.topology.topologies.process_files", lambda: DerivedFiles(None))
    views = Views(ColumnCache(0))
    snapshots, held = [], []
    for _ in range(4):
        snapshots.append(graph.snapshot())
        held.append(weakref.ref(views.of(snapshots[-1], graph.accepted_schema).topologies.of("Follows")))
        _new_edges(graph)
    gc.collect()
    assert [topology() is not None for topology in held] == [False, False, False, True]
    for snapshot in snapshots:
        found = views.of(snapshot, graph.accepted_schema).topologies.of("Follows")
        assert found.out.size == snapshot.pin("edge:Follows").row_count


def test_a_branch_shares_the_topology_of_unchanged_edges(graph: Graph, files: Path) -> None:
    View(graph, files).topology("Follows")
    graph.branches.create("other")
    branch = View(graph, files, graph.snapshot(branch="other"))
    with asked() as calls:
        branch.topology("Follows")
    assert calls == []
    assert_right(branch)


def test_diverged_branches_have_different_topologies(graph: Graph, files: Path) -> None:
    assert_right(View(graph, files))
    graph.branches.create("other")
    graph.load({"Follows": follows([("p1", "p2")] * 3)}, mode="append", branch="other")
    assert_right(View(graph, files, graph.snapshot(branch="other")))
    # The new edges of both branches have the same row ids and versions.
    graph.load({"Follows": follows([("p30", "p40")] * 3)}, mode="append")
    assert_right(View(graph, files))
    assert_right(View(graph, files, graph.snapshot(branch="other")))
    graph.mutate('query q() { delete Follows where from = "p8" }', branch="other")
    graph.mutate('query q() { delete Follows where from = "p9" }')
    assert_right(View(graph, files))
    assert_right(View(graph, files, graph.snapshot(branch="other")))


def test_compaction_does_not_change_the_topology(graph: Graph, files: Path) -> None:
    for _ in range(3):
        _new_edges(graph)
    _edges_go(graph)
    View(graph, files).topology("Follows")
    pin = graph.snapshot().pin("edge:Follows")
    table = lance.dataset(str(Path(str(graph.uri)) / pin.ref.path))
    table.optimize.compact_files()
    packed = replace(pin, ref=pin.ref.at(table.latest_version))
    manifest = graph.snapshot().manifest
    view = View(
        graph,
        files,
        Snapshot(graph.session.store, replace(manifest, tables={**manifest.tables, "edge:Follows": packed})),
    )
    assert view.tables.edges("Follows").fingerprint != graph.snapshot().table("edge:Follows").fingerprint()
    with asked() as calls:
        view.topology("Follows")
    assert end_scans(calls) == []
    assert [call for call in calls if call[0] == "take_rows"] == []
    assert_right(view)


def test_a_recreated_graph_does_not_reuse_a_topology_in_memory(tmp_path: Path, files: Path) -> None:
    """The cached topology of the previous table is not a base for an incremental update."""
    cache = None
    for pairs in ([("a", "b"), ("b", "c")], [("c", "a"), ("c", "b"), ("a", "a")]):
        place = tmp_path / "again"
        with omnigraph.init(place, "node N { k: String @key }\nedge E: N -> N") as graph:
            graph.load({"N": pa.table({"k": ["a", "b", "c"]}), "E": follows(pairs)}, mode="append")
            view = View(graph, files)
            if cache is not None:
                view.tables = EntityTables(view.snapshot, cache)
                view.topologies = Topologies(view.tables, graph.catalog, DerivedFiles(files))
            cache = view.tables.cache
            assert topology_edges(view, "E", "N", "N") == stored_edges(view, "E")
        place.rename(tmp_path / f"gone-{pairs[0][0]}")


def test_a_recreated_table_does_not_reuse_stored_topologies(tmp_path: Path, files: Path) -> None:
    """Same location, path and version number, other edges."""
    for pairs in ([("a", "b"), ("b", "c")], [("c", "a"), ("c", "b")]):
        place = tmp_path / "again"
        with omnigraph.init(place, "node N { k: String @key }\nedge E: N -> N") as graph:
            graph.load({"N": pa.table({"k": ["a", "b", "c"]}), "E": follows(pairs)}, mode="append")
            view = View(graph, files)
            assert topology_edges(view, "E", "N", "N") == stored_edges(view, "E")
        place.rename(tmp_path / f"gone-{pairs[0][0]}")


# Files


def headers(files: Path) -> list[Path]:
    return sorted(files.glob("*.json"))


def arrays(files: Path) -> list[Path]:
    return sorted(files.glob("*.arrays"))


def _put(path: Path, content: bytes) -> None:
    """Replace a file that may be mapped."""
    path.unlink()
    path.write_bytes(content)


def _cut(path: Path) -> None:
    _put(path, path.read_bytes()[:-7])


def _emptied(path: Path) -> None:
    _put(path, b"")


def _flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 16
    _put(path, bytes(content))


def _longer(path: Path) -> None:
    _put(path, path.read_bytes() + b"\0")


def _other_text(path: Path) -> None:
    _put(path, b"17\n[1, 2]")


def _gone(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("damage", [_cut, _emptied, _flipped, _longer, _gone])
@pytest.mark.parametrize("which", [headers, arrays])
def test_a_damaged_topology_file_is_rebuilt(
    graph: Graph, files: Path, which: Callable[[Path], list[Path]], damage: Callable[[Path], None]
) -> None:
    assert_right(View(graph, files))
    for path in which(files):
        damage(path)
    assert_right(View(graph, files))
    with asked() as calls:
        view = View(graph, files)
        assert_right(view)
    assert end_scans(calls) == ["scan", "scan"]  # the scans of this test


@pytest.mark.slow
def test_damage_at_any_byte_of_the_arrays_is_detected(graph: Graph, files: Path) -> None:
    """A topology with damaged arrays is not used, even if the damage is found late."""
    View(graph, files).topology("Follows")
    (path,) = arrays(files)
    whole = path.read_bytes()
    for place in range(0, len(whole), 97):
        _put(path, whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert_right(View(graph, files))


def test_a_header_of_another_format_is_ignored(graph: Graph, files: Path) -> None:
    assert_right(View(graph, files))
    for path in headers(files):
        _other_text(path)
    assert_right(View(graph, files))


def test_a_header_that_does_not_match_its_arrays_is_ignored(graph: Graph, files: Path) -> None:
    assert_right(View(graph, files))
    one, other = arrays(files)
    content = one.read_bytes()
    _put(one, other.read_bytes())
    _put(other, content)
    assert_right(View(graph, files))


def in_another_process(program: str, *arguments: object) -> str:
    """The output of a program, which must end by itself."""
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


_CUT = """
import os, sys
from pathlib import Path
from tests.read.test_topology import arrays, assert_right
from tests.read.storage_requests import View
import omnigraph
graph, files = omnigraph.open(sys.argv[1], read_only=True), Path(sys.argv[2])
view = View(graph, files)
for edge in ("Follows", "LivesIn"):
    topology = view.topology(edge)
    assert sys.argv[3] == "mapped" or len(topology.out.neighbour)
for path in arrays(files):
    path.chmod(0o600)
    os.truncate(path, 100)
assert_right(view)
assert_right(View(graph, files))
print("alive")
"""


@pytest.mark.slow
@pytest.mark.parametrize("state", ["mapped", "used"])
def test_a_file_truncated_while_it_is_mapped_does_not_crash_the_process(graph: Graph, files: Path, state: str) -> None:
    """An access to a mapped page beyond the end of a file kills the process."""
    # Large enough that its pages do not all fit in a page that still exists.
    graph.load({"Follows": follows([(PEOPLE[i % 60], PEOPLE[i * 7 % 60]) for i in range(20_000)])}, mode="append")
    assert_right(View(graph, files))
    assert in_another_process(_CUT, graph.uri, files, state) == "alive\n"


def test_mapped_files_are_read_only(graph: Graph, files: Path) -> None:
    assert_right(View(graph, files))
    assert {path.stat().st_mode & 0o777 for path in files.iterdir()} == {0o400}


_FULL = """
import resource, sys
from pathlib import Path
from tests.read.test_topology import assert_right
from tests.read.storage_requests import View
import omnigraph
graph = omnigraph.open(sys.argv[1], read_only=True)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), int(sys.argv[3])))
assert_right(View(graph, Path(sys.argv[2])))
print("right")
"""


@pytest.mark.slow
@pytest.mark.parametrize("room", [0, 700])
def test_a_full_disk_leaves_no_partial_topology_file(graph: Graph, files: Path, room: int) -> None:
    """The file size is limited: writing fails at once, or in the middle."""
    assert in_another_process(_FULL, graph.uri, files, room) == "right\n"
    assert list(files.iterdir()) == [], "nothing half done is left"
    assert_right(View(graph, files))
    assert len(headers(files)) == 2


def test_a_topology_works_without_a_writable_cache_directory(graph: Graph, tmp_path: Path) -> None:
    blocked = tmp_path / "a file"
    blocked.write_text("not a directory")
    assert_right(View(graph, blocked / "below"))
    assert_right(View(graph, blocked))
    assert_right(View(graph, None))
    assert blocked.read_text() == "not a directory"


def test_reading_writes_no_files_into_the_graph(graph: Graph, files: Path, tmp_path: Path) -> None:
    def listing() -> list[str]:
        return sorted(str(path) for path in (tmp_path / "graph").rglob("*"))

    before = listing()
    assert_right(View(graph, files))
    assert listing() == before


def size_of(files: Path) -> int:
    return sum(max(path.stat().st_size, 4096) for path in files.iterdir())


def test_least_recently_used_topologies_are_evicted(tmp_path: Path, files: Path) -> None:
    kept = DerivedFiles(files, 200_000)
    graphs = []
    for i in range(6):
        graph = omnigraph.init(tmp_path / f"g{i}", "node N { k: I64 @key }\nedge E: N -> N")
        pairs = [(str(n % 500), str((n * 7 + i) % 500)) for n in range(3_000)]
        graph.load({"N": pa.table({"k": list(range(500))}), "E": follows(pairs)}, mode="append")
        graphs.append(graph)
    for i, graph in enumerate(graphs):
        View(graph, kept).topology("E")
        assert size_of(files) <= 200_000
        for path in files.iterdir():  # the file system clock may be coarse
            os.utime(path, ns=(path.stat().st_atime_ns - 10**9, path.stat().st_mtime_ns - 10**9))
        if i >= 1:
            with asked() as calls:
                View(graphs[0], kept).topology("E")
            assert calls == [], "the first is used all the time, and stays"
    with asked() as calls:
        View(graphs[2], kept).topology("E")
    assert end_scans(calls) != [], "this one had to go"


def test_a_topology_beyond_the_cache_size_is_not_stored(graph: Graph, files: Path) -> None:
    assert_right(View(graph, DerivedFiles(files, 1_000)))
    assert not files.exists() or list(files.iterdir()) == []


def test_the_number_of_headers_is_bounded(graph: Graph, files: Path, thresholds: Thresholds) -> None:
    """Commits that only update nodes add a header each, and no arrays."""
    thresholds(derived_files, MAX_ENTRIES=6)
    for _ in range(8):
        assert_right(View(graph, files))
        _nodes_are_written(graph)
    assert len(list(files.iterdir())) <= 6
    assert_right(View(graph, files))


def test_temporary_files_of_crashed_writers_are_removed(graph: Graph, files: Path) -> None:
    files.mkdir()
    for name in ("dead.arrays", "dead.json.1.part"):
        (files / name).write_bytes(b"x")
        os.utime(files / name, (1_000, 1_000))
    (files / "alive.arrays").write_bytes(b"x")
    View(graph, files).topology("Follows")
    names = {path.name for path in files.iterdir()}
    assert "dead.arrays" not in names
    assert "dead.json.1.part" not in names
    assert "alive.arrays" in names


def test_a_header_names_the_table_versions_of_its_topology(graph: Graph, files: Path) -> None:
    view = View(graph, files)
    view.topology("Follows")
    (header,) = headers(files)
    said = json.loads(header.read_bytes().partition(b"\n")[2])
    assert said["edges"]["fingerprint"] == view.snapshot.table("edge:Follows").fingerprint()
    assert said["sources"]["version"] == view.snapshot.pin("node:Person").ref.version
    assert {name for name, *_ in said["members"].items()} == {
        f"{side}.{part}" for side in ("out", "into") for part in ("first", "neighbour", "edge")
    }


def test_the_environment_sets_the_cache_directory() -> None:
    assert cache_directory({"OMNIGRAPH_CACHE_DIR": "/x"}) == Path("/x")
    assert cache_directory({"OMNIGRAPH_CACHE_DIR": ""}) is None
    if sys.platform == "linux":
        assert cache_directory({"XDG_CACHE_HOME": "/y"}) == Path("/y/omnigraph")
        assert cache_directory({}) == Path.home() / ".cache/omnigraph"


# Concurrency


def test_eight_threads_read_one_topology(graph: Graph, files: Path) -> None:
    view = View(graph, files)
    expected = stored_edges(view, "Follows")

    def read(n: int) -> bool:
        return topology_edges(view, "Follows", "Person", "Person", inward=n % 2 == 1) == expected

    with ThreadPoolExecutor(8) as threads, asked() as calls:
        assert all(threads.map(read, range(32)))
    assert len(end_scans(calls)) == 1, "one of them makes it, and the others wait"


class _Stopped(Cancellation):
    """Cancels a read while it sorts edges, on request."""

    def __init__(self) -> None:
        super().__init__()
        self.sorting, self.stop = Event(), Event()

    @property
    def cancelled(self) -> bool:
        if not any(frame.name == "in_order" for frame in traceback.extract_stack()):
            return False
        self.sorting.set()
        return self.stop.wait(PATIENCE)


class _Asked(Cancellation):
    def __init__(self) -> None:
        super().__init__()
        self.asked = Event()

    @property
    def cancelled(self) -> bool:
        self.asked.set()
        return False


def test_a_waiting_reader_builds_the_topology_if_the_builder_is_cancelled(graph: Graph, thresholds: Thresholds) -> None:
    thresholds(sorting, SORT_CHUNK_ROWS=16)
    view, first, second = View(graph, None), _Stopped(), _Asked()

    def reads(cancel: Cancellation) -> object:
        with Spending(Budget(seconds=None), cancel).running():
            return view.topology("Follows")

    with ThreadPoolExecutor(2) as pool:
        stopped = pool.submit(reads, first)
        until(lambda: first.sorting.is_set() or stopped.done())
        assert first.sorting.is_set()
        waits = pool.submit(reads, second)
        assert second.asked.wait(PATIENCE)
        first.stop.set()
        with pytest.raises(CancelledError):
            stopped.result(PATIENCE)
        waits.result(PATIENCE)
    assert_right(view)


def test_eight_threads_store_topologies_concurrently(graph: Graph, files: Path) -> None:
    def read(_: int) -> None:
        assert_right(View(graph, files))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(read, range(24)))
    assert len(headers(files)) == 2
    assert len(arrays(files)) == 2


@pytest.mark.slow
def test_processes_build_one_topology_concurrently(graph: Graph, files: Path) -> None:
    program = """
import sys
from pathlib import Path
from tests.read.storage_requests import View, stored_edges, topology_edges
import omnigraph
graph = omnigraph.open(sys.argv[1], read_only=True)
print("ready", flush=True)
sys.stdin.readline()
for _ in range(5):
    view = View(graph, Path(sys.argv[2]))
    assert topology_edges(view, "Follows", "Person", "Person") == stored_edges(view, "Follows")
"""
    started = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(graph.uri), str(files)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.close()
    for process in started:
        with process:
            assert process.wait() == 0
    assert sorted(path.suffix for path in files.iterdir()) == [".arrays", ".json"]


@pytest.mark.slow
def test_processes_build_and_evict_topologies_concurrently(tmp_path: Path, files: Path) -> None:
    """Several graphs and processes, and space for two topologies: processes evict files that others need."""
    places = []
    for i in range(4):
        with omnigraph.init(tmp_path / f"g{i}", "node N { k: I64 @key }\nedge E: N -> N") as made:
            pairs = [(str(n % 300), str((n * 7 + i) % 300)) for n in range(2_000)]
            made.load({"N": pa.table({"k": list(range(300))}), "E": follows(pairs)}, mode="append")
        places.append(tmp_path / f"g{i}")
    program = """
import sys
from pathlib import Path
from random import Random
from tests.read.storage_requests import View, stored_edges, topology_edges
import omnigraph
from omnigraph.read.columns.derived_files import DerivedFiles
seed, files, *places = sys.argv[1:]
graphs = [omnigraph.open(place, read_only=True) for place in places]
expected = [stored_edges(View(graph, None), "E") for graph in graphs]
random = Random(int(seed))
for _ in range(40):
    which = random.randrange(len(graphs))
    view = View(graphs[which], DerivedFiles(Path(files), 100_000))
    assert topology_edges(view, "E", "N", "N", inward=random.random() < 0.5) == expected[which]
"""
    started = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(seed), str(files), *map(str, places)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        for seed in range(3)
    ]
    for process in started:
        assert process.wait() == 0
    left = {path.name: path for path in files.iterdir()}
    assert not [name for name in left if name.endswith(".part")]
    # Each process enforces the limit for the files it sees; together they may exceed it by their concurrent writes.
    assert size_of(files) <= 100_000 + 2 * 60_000


def test_a_topology_in_use_survives_the_removal_of_its_files(graph: Graph, files: Path) -> None:
    View(graph, files).topology("Follows")
    view = View(graph, files)
    view.topology("Follows")
    assert isinstance(view.topology("Follows").arrays, Stored)
    for path in files.iterdir():
        path.unlink()
    assert_right(view)
