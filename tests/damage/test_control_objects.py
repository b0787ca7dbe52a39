"""Small objects with a checksum inside: a flipped bit in one is never believed."""

from __future__ import annotations

import random
import signal
from pathlib import Path

import orjson
import pytest
from tests.commit.child import Children
from tests.commit.graphs import SCHEMA as SOURCE
from tests.commit.graphs import SEED, evolve_to, ids

from omnigraph.commit import ancestor_files, condemned
from omnigraph.commit.condemned import PATH, Condemned, CondemnedTable, ListState, files_token
from omnigraph.commit.manifest import SCHEMA, commit_rows
from omnigraph.commit.schema_files import CONTRACT
from omnigraph.commit.work_records import WorkKind, at_work, read_records
from omnigraph.errors import CorruptionError, DamagedFileError, OmnigraphError
from omnigraph.graph import Graph, init, open

FLIPS = 60


def flips(data: bytes, seed: int = 0) -> list[bytes]:
    """The same bytes with one bit flipped, in many ways."""
    found = []
    for place in random.Random(seed).sample(range(len(data) * 8), FLIPS):
        changed = bytearray(data)
        changed[place // 8] ^= 1 << place % 8
        found.append(bytes(changed))
    return found


# The list of condemned versions


def a_list() -> dict[str, CondemnedTable]:
    return {"nodes/x": CondemnedTable(versions={None: [(3, 7)]}, forks=frozenset({"gone"}))}


def test_a_flipped_bit_condemns_no_other_version(graph: Graph, place: Path) -> None:
    objects = graph._store.objects
    final = condemned.decide(objects, condemned.propose(objects, Condemned(), a_list()), a_list())
    assert condemned.read(objects) == final
    data = (place / PATH).read_bytes()
    for changed in flips(data):
        (place / PATH).write_bytes(changed)
        read = condemned.read(objects)
        assert not read.readable or read.tables == final.tables


def test_a_token_never_comes_back(graph: Graph, place: Path) -> None:
    """Whatever happens to the object between two looks of a write, a proposal in between is seen."""
    objects = graph._store.objects
    seen = {files_token(objects)}
    for damage in (b"", b"", b"{", b"\x00" * 100, None, b"[]", b'{"number":1}', b""):
        before = condemned.read(objects)
        condemned.finish(objects, condemned.propose(objects, before, {}))
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


def test_a_list_of_an_older_release(graph: Graph, place: Path) -> None:
    text = {"version": 1, "number": 4, "state": "proposed", "tables": {}}
    (place / "__cleanup").mkdir(exist_ok=True)
    (place / PATH).write_bytes(orjson.dumps(text))
    listed = condemned.read(graph._store.objects)
    assert (listed.number, listed.state, listed.readable) == (4, ListState.PROPOSED, True)
    assert files_token(graph._store.objects) == "4"


# Records of work


def test_a_record_of_work_is_whole_or_unreadable(graph: Graph, place: Path) -> None:
    view = graph._store.capture("main")
    with at_work(graph._store.objects, WorkKind.EXPORT, view) as work:
        (record,) = read_records(graph._store.objects)
        assert record.kind is WorkKind.EXPORT
        file = place / record.path
        data = file.read_bytes()
        for changed in flips(data):
            file.write_bytes(changed)
            (read,) = read_records(graph._store.objects)
            assert read.kind is None or (read.needs, read.owner) == (record.needs, record.owner)
        work.renew()
        work.renew()
        (read,) = read_records(graph._store.objects)
        assert read.needs == record.needs, "its work puts it right"


# Sidecars and the ancestors that they name


def test_a_flipped_sidecar_is_not_acted_upon(children: Children, graph: Graph, place: Path) -> None:
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


def test_damaged_ancestors_are_not_published(graph: Graph, place: Path) -> None:
    commit = graph.snapshot().commit
    rows = commit_rows([commit]).cast(SCHEMA)
    path = ancestor_files.write_ancestors(graph._store.objects, "01M7GDDPW2K0HTRE3NN9SQ12JJ", rows)
    assert ancestor_files.read_ancestors(graph._store.objects, path) == rows
    data = (place / path).read_bytes()
    for changed in flips(data):
        (place / path).write_bytes(changed)
        assert ancestor_files.read_ancestors(graph._store.objects, path) is None


# Archived schemas


def test_a_past_schema_is_that_of_its_name(graph: Graph, place: Path) -> None:
    graph.branches.create("old")
    hash_before = graph._store.capture("main").schema_hash.rpartition(":")[2]
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
def test_a_missing_past_schema_is_named(graph: Graph, place: Path, endings: tuple[str, ...]) -> None:
    graph.branches.create("old")
    graph.tags.create("before")
    hash_before = graph._store.capture("main").schema_hash.rpartition(":")[2]
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
    assert failed.value.message == "the schema files are not those that the graph was written with"


# References and the audit


def test_a_reference_under_another_name(graph: Graph, place: Path) -> None:
    for name in ("one", "two"):
        graph.branches.create(name)
        graph.tags.create(name)
    for directory in ("__refs", "__tags"):
        (place / directory / "two.json").write_bytes((place / directory / "one.json").read_bytes())
    with open(place) as fresh:
        with pytest.raises(DamagedFileError, match=r"__refs/two.json.*that of 'one'"):
            fresh.snapshot(branch="two")
        with pytest.raises(DamagedFileError, match=r"__tags/two.json.*that of 'one'"):
            fresh.snapshot(commit="two")
        assert ids(fresh, branch="one") == sorted(SEED)


def test_the_newest_version_of_the_audit_is_gone(children: Children, graph: Graph, place: Path) -> None:
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
