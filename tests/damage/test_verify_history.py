"""`verify` names every damaged file with a checksum, and others with visible damage, not only files of tables."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.commit.child import Children
from tests.commit.graphs import SCHEMA, evolve_to, put
from tests.thresholds import Thresholds

from omnigraph.commit import ancestor_files, manifest_successor, removal_list
from omnigraph.commit.manifest_rows import commit_rows
from omnigraph.commit.removal_list import RemovalList
from omnigraph.commit.work_records import WorkKind, at_work
from omnigraph.graph import Graph, open
from omnigraph.storage.ledger_files import verify_ledger
from omnigraph.storage.table_ref import table_directory

COMMITS = 12
"""The minimum number of commits of each branch: enough for older parts of the history."""


@pytest.fixture
def long(graph: Graph, thresholds: Thresholds, children: Children, place: Path) -> Graph:
    """A graph with all kinds of files: a long history, a branch, tags, an audit, and archived schemas."""
    thresholds(manifest_successor, TAIL_COMMITS=4)
    for i in range(COMMITS):
        put(graph, [f"m{i}"])
    graph.branches.create("side")
    for i in range(COMMITS):
        put(graph, [f"own{i}"], branch="side")
    graph.merge("side")
    graph.tags.create("first")
    graph.branches.create("old")
    evolve_to(graph, SCHEMA.replace("node C {", "node C { more: String?"), [])
    job = {"uri": str(place), "branch": "main", "actor": "act-kim", "writes": [("node:A", "append", ["half"])]}
    assert children.run("write", failpoint="table_committed=kill", **job).signal == signal.SIGKILL
    put(graph, ["after"])
    assert len(graph.recovery.list()) == 1
    return graph


def flipped(file: Path, seed: int = 3) -> bytes:
    data = bytearray(file.read_bytes())
    place = random.Random(seed).randrange(len(data) * 8)
    data[place // 8] ^= 1 << place % 8
    return bytes(data)


def assert_found(place: Path, path: str, data: bytes | None, branch: str = "main") -> None:
    """Damage a file while a handle is open that has read everything before. `verify` must name the file."""
    file = place / path
    before = file.read_bytes()
    with open(place, read_only=True, branch=branch) as graph:
        assert graph.verify().files.damages == ()
        file.unlink()
        if data is not None:
            file.write_bytes(data)
        found = graph.verify()
        assert path in [damage.path for damage in found.files.damages]
        assert not found.ok
        file.write_bytes(before)
        assert graph.verify().ok


def test_verify_finds_no_damage_in_an_undamaged_graph(long: Graph) -> None:
    for branch in ("main", "side", "old"):
        report = long.verify(branch=branch)
        assert report.ok, report.files.damages
        assert report.files.unsummed == 0
    assert long.verify(commit="first").ok


@pytest.mark.slow
@pytest.mark.parametrize("branch", ["main", "side"])
def test_verify_reports_damaged_parts_and_versions_of_the_history(long: Graph, place: Path, branch: str) -> None:
    view = long.session.store.capture(branch)
    assert len(view.ledger.parts) > 2
    directory = table_directory("__manifest", view.ledger.branch)
    versions = sorted((place / directory / "_versions").glob("*.manifest"))
    data = sorted((place / directory / "data").glob("*.lance"))
    for file in (versions[0], versions[-1], versions[len(versions) // 2]):
        assert_found(place, str(file.relative_to(place)), bytes(file.stat().st_size), branch)
    for file in random.Random(1).sample(data, 3):
        assert_found(place, str(file.relative_to(place)), flipped(file), branch)
    assert_found(place, view.ledger._files[0][0], None, branch)


def test_verify_reports_damage_in_the_history_before_a_branch(long: Graph, place: Path) -> None:
    (first, *_) = sorted((place / "__manifest" / "_versions").glob("*.manifest"), reverse=True)[1:]
    assert_found(place, str(first.relative_to(place)), b"", "side")


def test_verify_reports_a_version_without_its_list_of_parts(long: Graph, place: Path) -> None:
    """One flipped bit removes the list of parts from a version, and with it all their checksums."""
    files = sorted((place / "__manifest" / "_versions").glob("*.manifest"))
    file = files[0]
    data = bytearray(file.read_bytes())
    data[data.rindex(b"omnigraph:parts")] ^= 1
    assert_found(place, str(file.relative_to(place)), bytes(data))


OTHERS: dict[str, tuple[str, Callable[[Path], bytes | None]]] = {
    "reference of a branch": ("__refs/side.json", flipped),
    "reference of a tag": ("__tags/first.json", flipped),
    "audit": ("_graph_commit_recoveries.lance/data/*.lance", flipped),
    "version of the audit": ("_graph_commit_recoveries.lance/_versions/*.manifest", lambda file: b""),
    "schema": ("_schema.ir.json", lambda file: file.read_bytes()[:-40]),
    "source of the schema": ("_schema.pg", lambda file: None),
    "archived schema": ("__schemas/*.ir.json", lambda file: file.read_bytes().replace(b'"n"', b'"m"')),
    "source of an archived schema": ("__schemas/*.pg", lambda file: file.read_bytes().replace(b"n: I64", b"m: I64")),
}


@pytest.mark.parametrize("what", OTHERS)
def test_verify_reports_damaged_references_audits_and_schemas(long: Graph, place: Path, what: str) -> None:
    pattern, damage = OTHERS[what]
    file = sorted(place.glob(pattern))[0]
    assert_found(place, str(file.relative_to(place)), damage(file))


def test_verify_reports_a_damaged_sidecar(children: Children, graph: Graph, place: Path) -> None:
    job = {"uri": str(place), "branch": "main", "actor": "act-kim", "writes": [("node:A", "append", ["half"])]}
    assert children.run("write", failpoint="table_committed=kill", **job).signal == signal.SIGKILL
    (file,) = (place / "__recovery").glob("*.json")
    assert_found(place, str(file.relative_to(place)), flipped(file))


def test_verify_reports_a_damaged_ancestors_file_of_a_merge(
    graph: Graph, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph.branches.create("side")
    put(graph, ["s"], branch="side")
    put(graph, ["m"])

    class Stop(BaseException):
        pass

    def stop(*_: object, **__: object) -> None:
        raise Stop

    monkeypatch.setattr(type(graph.session.store), "publish", stop)
    with pytest.raises(Stop):
        graph.merge("side")
    monkeypatch.undo()
    (file,) = place.glob("__staging/*/ancestors-*.arrow")
    assert_found(place, str(file.relative_to(place)), flipped(file))


def test_verify_reports_damaged_removal_lists_and_work_records(graph: Graph, place: Path) -> None:
    objects = graph.session.store.objects
    removal_list.finish(objects, removal_list.propose(objects, RemovalList(), {}))
    assert_found(place, removal_list.PATH, b"{")
    with at_work(objects, WorkKind.EXPORT, graph.session.store.capture("main")) as work:
        assert_found(place, f"__work/{work.name}.json", b"{")


def test_verify_ignores_stray_files(long: Graph, place: Path) -> None:
    for directory in ("__manifest/_versions", "__manifest/data", "__schemas", "__refs", "__tags", "__recovery"):
        (place / directory / ".DS_Store").write_bytes(b"x")
        (place / directory / "note.txt~").write_bytes(b"x")
    assert long.verify().ok


def test_verify_reads_each_file_of_the_history_once(long: Graph) -> None:
    """Each file is checked once, even if many versions need it."""
    looked = verify_ledger(long.session.store.objects, "__manifest", {None: None})
    root = Path(long.uri) / "__manifest"
    files = len([*root.glob("_versions/*.manifest"), *root.glob("data/*.lance")])
    assert looked.files == files
    assert looked.damages == {}


def test_verify_ignores_a_damaged_ancestors_file_without_a_sidecar(graph: Graph) -> None:
    """It is left over, and no recovery reads it."""
    rows = commit_rows([graph.snapshot().commit])
    path = ancestor_files.write_ancestors(graph.session.store.objects, "01M7GDDPW2K0HTRE3NN9SQ12JJ", rows)
    graph.session.store.objects.put(path, b"")
    assert graph.verify().ok
