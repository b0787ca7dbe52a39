"""Control objects contain a checksum, so a flipped bit is always detected."""

from __future__ import annotations

import random
import signal
from pathlib import Path

import orjson
import pytest
from tests.commit.child import Children
from tests.commit.graphs import SCHEMA as SOURCE
from tests.commit.graphs import SEED, evolve_to, ids, put

from omnigraph.commit import ancestor_files, removal_list
from omnigraph.commit.manifest import SCHEMA
from omnigraph.commit.manifest_rows import commit_rows
from omnigraph.commit.removal_list import PATH, ListState, RemovalList, TableRemovals, files_token
from omnigraph.commit.schema_files import CONTRACT
from omnigraph.commit.work_records import WorkKind, at_work, read_records
from omnigraph.errors import CorruptionError, DamagedFileError, OmnigraphError
from omnigraph.graph import Graph, init, open

FLIPS = 60


def flips(data: bytes, seed: int = 0) -> list[bytes]:
    """Copies of the bytes with one flipped bit each."""
    found = []
    for place in random.Random(seed).sample(range(len(data) * 8), FLIPS):
        changed = bytearray(data)
        changed[place // 8] ^= 1 << place % 8
        found.append(bytes(changed))
    return found


# The removal list of cleanup


def a_list() -> dict[str, TableRemovals]:
    return {"nodes/x": TableRemovals(versions={None: [(3, 7)]}, forks=frozenset({"gone"}))}


def test_a_flipped_bit_in_the_removal_list_removes_no_other_version(graph: Graph, place: Path) -> None:
    objects = graph.session.store.objects
    final = removal_list.decide(objects, removal_list.propose(objects, RemovalList(), a_list()), a_list())
    assert removal_list.read(objects) == final
    data = (place / PATH).read_bytes()
    for changed in flips(data):
        (place / PATH).write_bytes(changed)
        read = removal_list.read(objects)
        assert not read.readable or read.tables == final.tables


def test_the_token_of_the_removal_list_never_repeats(graph: Graph, place: Path) -> None:
    """A write that reads the object twice notices a proposal in between, even if the object was damaged."""
    objects = graph.session.store.objects
    seen = {files_token(objects)}
    for damage in (b"", b"", b"{", b"\x00" * 100, None, b"[]", b'{"number":1}', b""):
        before = removal_list.read(objects)
        removal_list.finish(objects, removal_list.propose(objects, before, {}))
        token = files_token(objects)
        assert token not in seen
        seen.add(token)
        if damage is None:
            (place / PATH).unlink()
        else:
            (place / PATH).write_bytes(damage)
            token = files_token(objects)
            assert token not in seen
            assert files_token(objects) == token, "a write goes through meanwhile"
            seen.add(token)


def test_a_removal_list_of_an_older_release_is_read(graph: Graph, place: Path) -> None:
    text = {"version": 1, "number": 4, "state": "proposed", "tables": {}}
    (place / "__cleanup").mkdir(exist_ok=True)
    (place / PATH).write_bytes(orjson.dumps(text))
    listed = removal_list.read(graph.session.store.objects)
    assert (listed.number, listed.state, listed.readable) == (4, ListState.PROPOSED, True)
    assert files_token(graph.session.store.objects) == "4"


# Work records


def test_a_damaged_work_record_is_unreadable(graph: Graph, place: Path) -> None:
    view = graph.session.store.capture("main")
    with at_work(graph.session.store.objects, WorkKind.EXPORT, view) as work:
        (record,) = read_records(graph.session.store.objects)
        assert record.kind is WorkKind.EXPORT
        file = place / record.path
        data = file.read_bytes()
        for changed in flips(data):
            file.write_bytes(changed)
            (read,) = read_records(graph.session.store.objects)
            assert read.kind is None or (read.needs, read.owner) == (record.needs, record.owner)
        work.renew()
        work.renew()
        (read,) = read_records(graph.session.store.objects)
        assert read.needs == record.needs, "its work puts it right"


# Sidecars and their ancestor files


def test_a_sidecar_with_a_flipped_bit_is_an_error(children: Children, graph: Graph, place: Path) -> None:
    job = {"uri": str(place), "branch": "main", "actor": "act-kim", "writes": [("node:A", "append", ["half"])]}
    assert children.run("write", failpoint="tables_committed=kill", **job).signal == signal.SIGKILL
    (file,) = (place / "__recovery").glob("*.json")
    data = file.read_bytes()
    for changed in flips(data)[:20]:
        file.write_bytes(changed)
        with pytest.raises(CorruptionError, match=file.name):
            graph.recovery.pending()
    file.write_bytes(data)
    with open(place) as fresh:
        assert ids(fresh) == sorted([*SEED, "half"])


def test_a_damaged_ancestors_file_is_not_published(graph: Graph, place: Path) -> None:
    commit = graph.snapshot().commit
    rows = commit_rows([commit]).cast(SCHEMA)
    path = ancestor_files.write_ancestors(graph.session.store.objects, "01M7GDDPW2K0HTRE3NN9SQ12JJ", rows)
    assert ancestor_files.read_ancestors(graph.session.store.objects, path) == rows
    data = (place / path).read_bytes()
    for changed in flips(data):
        (place / path).write_bytes(changed)
        assert ancestor_files.read_ancestors(graph.session.store.objects, path) is None


# Archived schemas


def test_an_archived_schema_that_does_not_match_its_hash_is_damaged(graph: Graph, place: Path) -> None:
    graph.branches.create("old")
    hash_before = graph.session.store.capture("main").schema_hash.rpartition(":")[2]
    evolve_to(graph, SOURCE.replace("node C {", "node C { more: String?"), [])
    with open(place, read_only=True) as fresh:
        assert ids(fresh, branch="old") == sorted(SEED)
    for ending, change in ((".ir.json", (b'"n"', b'"m"')), (".pg", (b"n: I64", b"m: I64"))):
        file = place / "__schemas" / f"{hash_before}{ending}"
        data = file.read_bytes()
        assert change[0] in data
        file.write_bytes(data.replace(*change))
        with pytest.raises(DamagedFileError, match=file.name):
            open(place, read_only=True, branch="old")
        file.write_bytes(data)


@pytest.mark.parametrize("endings", [(".pg",), (".ir.json",), (".pg", ".ir.json")], ids=str)
def test_a_missing_archived_schema_is_named_in_the_error(graph: Graph, place: Path, endings: tuple[str, ...]) -> None:
    graph.branches.create("old")
    graph.tags.create("before")
    hash_before = graph.session.store.capture("main").schema_hash.rpartition(":")[2]
    evolve_to(graph, SOURCE.replace("node C {", "node C { more: String?"), [])
    removed = [f"__schemas/{hash_before}{ending}" for ending in endings]
    for path in removed:
        (place / path).unlink()
    with open(place, read_only=True) as fresh:
        assert ids(fresh) == sorted(SEED)
        for branch, at in (("old", None), (None, "before")):
            with pytest.raises(OmnigraphError) as failed:
                fresh.query("query all() { match { $a: A } return { $a.slug } }", branch=branch, at=at)
            assert all(path in failed.value.render() for path in removed)
            damages = fresh.verify(branch=branch, commit=at).files.damages
            assert any(path in f"{each.path} {each.reason}" for each in damages for path in removed)


def test_schema_files_of_another_graph_are_refused(graph: Graph, place: Path, tmp_path: Path) -> None:
    """The error names no archived file: those are there."""
    with init(tmp_path / "other", SOURCE.replace("node C {", "node C { more: String?")):
        for name in CONTRACT:
            (place / name).write_bytes((tmp_path / "other" / name).read_bytes())
    with pytest.raises(CorruptionError) as failed:
        open(place, read_only=True)
    assert failed.value.message == "the schema files do not match the schema in the manifest"


# References and the audit


def test_a_reference_file_of_another_branch_or_tag_is_damaged(graph: Graph, place: Path) -> None:
    for name in ("one", "two"):
        graph.branches.create(name)
        graph.tags.create(f"tag_{name}")
    for directory, prefix in (("__refs", ""), ("__tags", "tag_")):
        (place / directory / f"{prefix}two.json").write_bytes((place / directory / f"{prefix}one.json").read_bytes())
    with open(place) as fresh:
        with pytest.raises(DamagedFileError, match=r"__refs/two.json.*the reference of 'one'"):
            fresh.snapshot(branch="two")
        with pytest.raises(DamagedFileError, match=r"__tags/tag_two.json.*the reference of 'tag_one'"):
            fresh.snapshot(commit="tag_two")
        assert ids(fresh, branch="one") == sorted(SEED)


def test_a_missing_newest_version_of_the_audit_is_reported(children: Children, graph: Graph, place: Path) -> None:
    for name in ("a", "b"):
        job = {"uri": str(place), "branch": "main", "actor": "act-kim", "writes": [("node:A", "append", [name])]}
        assert children.run("write", failpoint="tables_committed=kill", **job).signal == signal.SIGKILL
        with open(place) as fresh:
            assert ids(fresh)[0] == "a"
    for file in sorted((place / "_graph_commit_recoveries.lance" / "_versions").glob("*.manifest")):
        data = file.read_bytes()
        file.unlink()
        with open(place, read_only=True) as fresh:
            if file.name.endswith("613.manifest"):
                with pytest.raises(DamagedFileError, match=file.name):
                    fresh.recovery.list()
                assert not fresh.verify().ok
        file.write_bytes(data)
    assert len(graph.recovery.list()) == 2


def test_a_manifest_version_of_another_branch_is_named_in_the_error(graph: Graph, place: Path) -> None:
    """The version file of another branch names parts that this branch does not have."""
    graph.branches.create("side")
    for name in ("x", "y"):
        put(graph, [name], branch="side")
    (main,) = sorted((place / "__manifest" / "_versions").glob("*.manifest"))[:1]
    (tree,) = (place / "__manifest" / "tree").iterdir()
    newest, second = sorted((tree / "_versions").glob("*.manifest"))[:2]
    data, main_data = newest.read_bytes(), main.read_bytes()
    main.write_bytes(data)  # the content has a higher version number than the name
    with pytest.raises(DamagedFileError, match=main.name):
        open(place)
    main.write_bytes(main_data)
    newest.write_bytes(second.read_bytes())
    with open(place) as fresh, pytest.raises(DamagedFileError, match=newest.name):
        ids(fresh, branch="side")
