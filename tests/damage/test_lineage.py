"""Every read of the history verifies checksums, and invalid rows are reported as damage with the file name."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pyarrow.compute as pc
import pytest
from tests.thresholds import Thresholds

from omnigraph.commit import manifest_successor
from omnigraph.commit.ancestors import History, lineage_of
from omnigraph.commit.lineage import commits, find_in
from omnigraph.errors import DamagedFileError, OmnigraphError
from omnigraph.graph import Graph, init, open
from omnigraph.storage import ledger_seal
from omnigraph.storage.checksums import FileChecksum, file_checksum
from omnigraph.storage.ledger import LedgerVersion

SCHEMA = "node A { k: String @key n: I64? }\nnode B { k: String @key n: I64? }\n"
KEYS = "query q() { match { $a: A } return { $a.k } }"

Read = Callable[[Graph], object]


@pytest.fixture
def place(tmp_path: Path, thresholds: Thresholds) -> Path:
    """A graph with a merged row that was deleted later. The merge lies in an old part of the history."""
    thresholds(manifest_successor, TAIL_COMMITS=4)
    place = tmp_path / "graph"
    with init(place, SCHEMA) as graph:
        graph.mutate('query i() { insert A { k: "x" } }')
        graph.branches.create("dev")
        graph.mutate('query i() { insert A { k: "y" } }', branch="dev")
        graph.merge("dev", "main")
        graph.mutate('query i() { delete A where k = "y" }')
        for i in range(12):
            graph.mutate(f'query u() {{ insert B {{ k: "b{i}" }} }}')
        graph.mutate('query i() { insert A { k: "z" } }', branch="dev")
    return place


def parts(place: Path) -> list[Path]:
    with open(place, read_only=True) as graph:
        return [place / path for path, _ in graph.session.store.capture("main").ledger._files]


def flip(file: Path, text: bytes) -> None:
    """Flip the lowest bit of the first letter of a text, at its first occurrence."""
    data = bytearray(file.read_bytes())
    found = re.search(text, bytes(data))
    assert found is not None
    data[found.start()] ^= 1
    file.write_bytes(bytes(data))


def merge_part(place: Path) -> Path:
    (found, *_) = [file for file in parts(place)[:-1] if b'"merged_parent"' in file.read_bytes()]
    return found


def test_a_merge_detects_a_flipped_bit_in_the_history(place: Path) -> None:
    file = merge_part(place)
    flip(file, b'merged_parent"')
    with open(place) as graph:
        with pytest.raises(DamagedFileError, match=file.name):
            graph.merge("dev", "main")
        assert graph.query(KEYS).to_pylist() == [{"a.k": "x"}]


def test_every_read_of_history_parts_verifies_checksums(place: Path) -> None:
    file = merge_part(place)
    flip(file, b'generation"')

    def index(version: LedgerVersion) -> int:
        return [path for path, _ in version._files].index(str(file.relative_to(place)))

    reads: list[Callable[[LedgerVersion], object]] = [
        lambda version: version.read_part(index(version)),
        lambda version: version.read_parts([index(version)], ["object_id"]),
        lambda version: version.read_parts(range(len(version.parts)), ["object_id"]),
        lambda version: version.read(columns=["object_id"]),
        lambda version: version.read(filter=pc.field("object_id") == "x"),
    ]
    for read in reads:
        with open(place, read_only=True) as graph:
            version = graph.session.store.capture("main").ledger
            with pytest.raises(DamagedFileError, match=file.name):
                read(version)


def test_the_checksum_of_a_history_part_is_computed_once(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    summed: list[str] = []

    def counted(path: str) -> FileChecksum:
        summed.append(path)
        return file_checksum(path)

    monkeypatch.setattr(ledger_seal, "file_checksum", counted)
    with open(place, read_only=True) as graph:
        for _ in range(3):
            source, target = graph.session.store.capture("dev"), graph.session.store.capture("main")
            History(graph.session.store, source, target).common()
            lineage_of(target)
    assert len(summed) == len(set(summed)) > 1


READS: dict[str, Read] = {
    "merge": lambda graph: graph.merge("dev", "main"),
    "preview": lambda graph: graph.merge("dev", "main", preview=True),
    "list": lambda graph: list(commits(graph.session.store.capture("main"))),
    "lineage": lambda graph: lineage_of(graph.session.store.capture("main")),
    "cleanup": lambda graph: graph.cleanup(keep=1, preview=True),
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("text", [b'{"id":"', b'"generation":[^,}]*'], ids=["invalid JSON", "invalid number"])
def test_invalid_history_rows_without_a_checksum_are_damage(
    place: Path, monkeypatch: pytest.MonkeyPatch, read: str, text: bytes
) -> None:
    """As in an object store, there is no checksum. The error is still not an exception of a library."""
    monkeypatch.setattr(ledger_seal.Parts, "check", lambda *_: None)
    (file, *_) = [each for each in parts(place)[:-1] if b'"merged_parent"' in each.read_bytes()]
    data = file.read_bytes()
    changed = re.sub(text, lambda found: found[0][:-1] + (b"}" if found[0].endswith(b'"') else b"x"), data)
    assert changed != data
    assert len(changed) == len(data)
    file.write_bytes(changed)
    with open(place) as graph, pytest.raises(DamagedFileError, match=file.name):
        READS[read](graph)


def test_an_invalid_manifest_state_is_damage(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_seal.Parts, "check", lambda *_: None)
    file = parts(place)[-1]
    file.write_bytes(file.read_bytes().replace(b'"fence"', b'"fance"'))
    with pytest.raises(DamagedFileError, match=file.name):
        open(place, read_only=True)


def test_a_history_part_that_lance_cannot_read_is_named(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_seal.Parts, "check", lambda *_: None)
    file = merge_part(place)
    file.write_bytes(bytes(len(file.read_bytes())))
    with open(place, read_only=True) as graph:
        view = graph.session.store.capture("main")
        with pytest.raises(DamagedFileError, match=file.name):
            view.ledger.read()
        with pytest.raises(DamagedFileError, match=file.name):
            find_in(view, "x")


def test_a_manifest_version_with_renumbered_columns_is_damage(place: Path) -> None:
    """With other column numbers, a version would read other columns or none."""
    with open(place, read_only=True) as graph:
        version = graph.session.store.capture("main").ledger
        fields = [field.id() for field in version._dataset.lance_schema.fields()]
        assert fields == list(range(len(version.schema)))
        (one, *rest) = version._fragments
        swapped = one.from_json(re.sub(r"\"fields\": ?\[0, ?1,", '"fields": [1, 0,', json.dumps(one.to_json())))
        assert list(swapped.files[0].fields) != fields
        with pytest.raises(DamagedFileError, match="columns of its parts"):
            ledger_seal.read_seal(version._dataset, str(place), version.path, version.version, [swapped, *rest])


@pytest.mark.parametrize("directory", ["nodes", "__manifest"])
def test_cleanup_names_a_version_that_lance_cannot_read(place: Path, directory: str) -> None:
    for file in sorted((place / directory).rglob("*.manifest"))[1:4]:
        data = file.read_bytes()
        file.write_bytes(bytes(len(data)))
        with open(place) as graph:
            try:
                graph.cleanup(keep=1)
            except OmnigraphError as error:
                named = str(error)
            else:
                named = file.name
        assert file.name in named
        file.write_bytes(data)
