"""A newest version that a power failure tore is quarantined if it was not acknowledged, and an error otherwise."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.commit import raw
from tests.commit.child import Children
from tests.commit.graphs import SEED, assert_whole, ids, put

from omnigraph.commit.audit import RecoveryKind
from omnigraph.errors import ConflictError, DamagedFileError
from omnigraph.graph import Graph, open
from omnigraph.storage.lance_manifest import version_of
from omnigraph.storage.latest_version import HINT, TORN
from omnigraph.storage.table_ref import table_directory

TEARS: dict[str, Callable[[bytes], bytes | None]] = {
    "empty": lambda data: b"",
    "cut": lambda data: data[: len(data) // 2],
    "zeroed": lambda data: bytes(len(data)),
    "tail zeroed": lambda data: data[:-30] + bytes(30),
    "never written": lambda data: None,
}


def newest(directory: Path) -> Path:
    files = [file for file in (directory / "_versions").iterdir() if version_of(file.name) is not None]
    return max(files, key=lambda file: version_of(file.name) or 0)


def tear(file: Path, how: str) -> None:
    torn = TEARS[how](file.read_bytes())
    file.unlink()
    if torn is not None:
        file.write_bytes(torn)


@pytest.fixture(params=["main", pytest.param("dev", marks=pytest.mark.slow)])
def branch(request: pytest.FixtureRequest, graph: Graph) -> str:
    if request.param != "main":
        graph.branches.create("dev")
        put(graph, ["own"], ["node:A", "node:B"], branch="dev")
    return str(request.param)


def manifest_directory(graph: Graph, branch: str) -> Path:
    return Path(graph.uri) / table_directory("__manifest", graph.session.store.ledger_of(branch))


def kill(children: Children, place: Path, branch: str, failpoint: str) -> None:
    job = {"uri": str(place), "branch": branch, "actor": "act-kim"}
    job["writes"] = [(key, "append", ["half"]) for key in ("node:A", "node:B")]  # type: ignore[assignment]
    assert children.run("write", failpoint=f"{failpoint}=kill", **job).signal == signal.SIGKILL


@pytest.mark.parametrize("how", TEARS)
def test_a_torn_manifest_of_an_unacknowledged_write_is_quarantined(
    children: Children, graph: Graph, place: Path, branch: str, how: str
) -> None:
    """Readers see the previous state, and the next opener completes the write."""
    before = ids(graph, branch=branch)
    kill(children, place, branch, "published")
    file = newest(manifest_directory(graph, branch))
    tear(file, how)
    with open(place, read_only=True) as reader:
        assert ids(reader, branch=branch) == before
    with open(place) as fresh:
        assert ids(fresh, branch=branch) == sorted([*before, "half"])
        assert file.with_name(file.name + TORN).exists() is (how != "never written")
        kinds = [record.kind for record in fresh.recovery.list()]
        aside = [] if how == "never written" else [RecoveryKind.TORN_FILE_SET_ASIDE]
        assert kinds == [*aside, RecoveryKind.ROLLED_FORWARD]
        put(fresh, ["next"], branch=branch)
        assert_whole(fresh)
    with open(place, read_only=True) as reader:
        assert ids(reader, branch=branch) == sorted([*before, "half", "next"])


@pytest.mark.parametrize("how", [how for how in TEARS if how != "never written"])
def test_a_torn_table_of_an_unacknowledged_write_is_quarantined(
    children: Children, graph: Graph, place: Path, branch: str, how: str
) -> None:
    """The write is undone, because the content of the table is unknown."""
    before = ids(graph, branch=branch)
    pin = graph.snapshot(branch=branch).pin("node:B")
    kill(children, place, branch, "tables_committed")
    file = newest(raw.directory(graph, pin))
    tear(file, how)
    put(graph, ["next"], ["node:A", "node:B"], branch=branch)
    assert ids(graph, branch=branch) == sorted([*before, "next"])
    assert ids(graph, "node:B", branch) == sorted([*before, "next"])
    assert file.with_name(file.name + TORN).exists()
    kinds = [record.kind for record in graph.recovery.list()]
    assert kinds == [RecoveryKind.TORN_FILE_SET_ASIDE, RecoveryKind.ROLLED_BACK]
    assert_whole(graph)


@pytest.mark.parametrize("how", TEARS)
def test_a_torn_acknowledged_manifest_is_an_error(graph: Graph, place: Path, branch: str, how: str) -> None:
    """The graph does not continue from the previous state. Older states can be read."""
    commit = put(graph, ["kept"], branch=branch)
    version = graph.snapshot(branch=branch).manifest_version
    file = newest(manifest_directory(graph, branch))
    data = file.read_bytes()
    tear(file, how)
    with pytest.raises(DamagedFileError, match=file.name):
        open(place, read_only=True, branch=branch)
    with pytest.raises(DamagedFileError, match=file.name):
        open(place, branch=branch)
    if how == "never written":
        with pytest.raises(DamagedFileError, match=file.name):
            graph.snapshot(branch=branch)
    if branch != "main":
        with open(place) as fresh:
            assert ids(fresh) == sorted(SEED), "other branches are not concerned"
            with pytest.raises(DamagedFileError, match=file.name):
                put(fresh, ["blocked"], branch=branch)
            older = fresh.snapshot(branch=branch, version=version - 1)
            assert "kept" not in older.scan("node:A")["id"].to_pylist()
    file.write_bytes(data)
    with open(place) as fresh:
        assert fresh.snapshot(branch=branch).commit.id == commit.id, "put back, it is as it was"


def test_an_invalid_version_hint_is_ignored(graph: Graph, place: Path) -> None:
    hint = place / "__manifest" / "_versions" / HINT
    for text in (b"", b"{", b"[]", b'{"version": "x"}', b'{"version": 1}', b'{"version": 99999999999999999999999}'):
        hint.write_bytes(text)
        with open(place) as fresh:
            assert ids(fresh) == sorted(SEED)


STRAY = [".DS_Store", "x~", ".og-tmp-1-2", "Thumbs.db", "01M7GDDPW2K0HTRE3NN9SQ12JJ.json.bak", "note.json"]


@pytest.mark.parametrize("name", STRAY)
def test_stray_files_in_any_directory_are_ignored(graph: Graph, place: Path, name: str) -> None:
    graph.branches.create("dev")
    put(graph, ["own"], branch="dev")
    graph.tags.create("t")
    for directory in [place, *(each for each in place.rglob("*") if each.is_dir())]:
        if not {"_refs", "__refs", "__tags"} & set(directory.parts) or not name.endswith(".json"):
            (directory / name).write_bytes(b"\x00\x01 not of ours")
    with open(place) as fresh:
        assert ids(fresh) == sorted(SEED)
        put(fresh, ["more"], branch="dev")
        put(fresh, ["more"])
        assert fresh.verify().ok
        assert fresh.repair().ok
        assert fresh.recovery.pending() == []
        fresh.cleanup(keep=1)
        assert_whole_but(fresh, name)
    assert (place / name).exists()


def assert_whole_but(graph: Graph, name: str) -> None:
    assert ids(graph) == sorted([*SEED, "more"])
    assert ids(graph, branch="dev") == sorted([*SEED, "own", "more"])


def test_a_branch_without_a_manifest_is_damaged_and_can_be_deleted(graph: Graph, place: Path) -> None:
    graph.branches.create("dev")
    put(graph, ["own"], branch="dev")
    shutil.rmtree(manifest_directory(graph, "dev"))
    with open(place) as fresh:
        acts = (
            lambda: fresh.snapshot(branch="dev"),
            lambda: put(fresh, ["x"], branch="dev"),
            lambda: fresh.cleanup(keep=1),
        )
        for act in acts:
            with pytest.raises(DamagedFileError, match="the manifest of branch 'dev' is missing"):
                act()
        with pytest.raises(ConflictError, match="exists already"):
            fresh.branches.create("dev")
        fresh.branches.delete("dev")
        fresh.branches.create("dev")
        assert ids(fresh, branch="dev") == sorted(SEED)
        fresh.cleanup(keep=1)
        assert_whole(fresh)
