"""Lookups by id find the rows of their version, whatever was written before, and read only the fragments they need."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from tests.thresholds import Thresholds

from omnigraph.lang.schema.catalog import IndexKind
from omnigraph.storage import id_fragments
from omnigraph.storage.indexes import IndexSpec
from omnigraph.storage.scans import filtered
from omnigraph.storage.staged import Staged
from omnigraph.storage.staging import (
    stage_append,
    stage_delete_ids,
    stage_indexes,
    stage_overwrite,
    stage_restore,
    stage_upsert,
)
from omnigraph.storage.table_ref import TableRef
from omnigraph.storage.tables import TableStorage

SCHEMA = pa.schema([pa.field("id", pa.utf8(), nullable=False), ("number", pa.int64())])
IDS = [f"p{i}" for i in range(40)]
INDEX = IndexSpec("id", IndexKind.BTREE)


def rows(ids: list[str], number: int) -> pa.Table:
    return pa.table({"id": ids, "number": [number] * len(ids)}, schema=SCHEMA)


def content(tables: TableStorage, ref: TableRef) -> dict[str, int]:
    return {row["id"]: row["number"] for row in tables.at(ref).scan().to_pylist()}


def check(tables: TableStorage, ref: TableRef, wanted: list[str]) -> None:
    found = tables.at(ref).lookup("id", pa.chunked_array([pa.array(wanted, pa.utf8())]), columns=["number", "id"])
    expected = {one: number for one, number in content(tables, ref).items() if one in wanted}
    assert found.column_names == ["number", "id"]
    assert found.num_rows == len(expected)
    assert dict(zip(found["id"].to_pylist(), found["number"].to_pylist(), strict=True)) == expected


def staged_write(tables: TableStorage, ref: TableRef, chance: random.Random, step: int) -> Staged | None:
    view, stored = tables.at(ref), content(tables, ref)
    some = chance.sample(IDS, chance.randint(1, 6))
    match chance.choice(["append", "append", "upsert", "upsert", "delete", "index", "overwrite", "restore"]):
        case "append":
            return stage_append(view, rows([one for one in some if one not in stored], step))
        case "upsert":
            return stage_upsert(view, rows(some, step))
        case "delete":
            return stage_delete_ids(view, pa.chunked_array([pa.array(some)]))
        case "index":
            return stage_indexes(view, [INDEX])
        case "overwrite":
            return stage_overwrite(view, rows(some, step))
    return stage_restore(view, chance.randint(1, ref.version))


@pytest.mark.parametrize("seed", range(12))
def test_a_lookup_finds_the_rows_of_its_version(tmp_path: Path, thresholds: Thresholds, seed: int) -> None:
    chance = random.Random(seed)
    thresholds(id_fragments, SMALL_ROWS=chance.choice([1, 3, 100]), CAPACITY=chance.choice([1, 10, 100_000]))
    tables = TableStorage(str(tmp_path))
    ref = tables.create("t", SCHEMA)
    versions = [ref]
    for step in range(30):
        staged = staged_write(tables, ref, chance, step)
        if staged is not None:
            ref = tables.commit_staged(staged)
            versions.append(ref)
        check(tables, ref, chance.sample([*IDS, "nobody"], 8))
        check(tables, chance.choice(versions), chance.sample(IDS, 3))


def test_a_table_that_replaces_another_is_read_anew(tmp_path: Path) -> None:
    """A copy of a table gets other rows under the numbers of the fragments that were remembered."""
    tables = TableStorage(str(tmp_path / "graph"))
    ref = tables.create("t", SCHEMA)
    shutil.copytree(tmp_path / "graph", tmp_path / "copy")
    other = TableStorage(str(tmp_path / "copy"))
    for storage, name in ((tables, "ours"), (other, "theirs")):
        staged = stage_append(storage.at(ref), rows([name], 1))
        assert staged is not None
        made = storage.commit_staged(staged)
        check(storage, made, ["ours", "theirs"])
    shutil.rmtree(tmp_path / "graph")
    shutil.copytree(tmp_path / "copy", tmp_path / "graph")
    places = tables.datasets.id_fragments(made)
    replaced = TableStorage(str(tmp_path / "graph")).datasets.open(made)
    assert places.rows(replaced, pa.array(["theirs"]), ["id"])["id"].to_pylist() == ["theirs"]


@pytest.mark.parametrize("indexed", [False, True])
def test_a_lookup_reads_no_other_small_fragments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, indexed: bool
) -> None:
    tables = TableStorage(str(tmp_path))
    ref = tables.create("t", SCHEMA)
    for count, first in ((10_000, 0), *((1, 10_000 + i) for i in range(20))):
        staged = stage_append(tables.at(ref), rows([f"n{first + i}" for i in range(count)], 1))
        assert staged is not None
        ref = tables.commit_staged(staged)
        if indexed and first == 0:
            staged = stage_indexes(tables.at(ref), [INDEX])
            assert staged is not None
            ref = tables.commit_staged(staged)
    check(tables, ref, ["n10019"])
    read: list[list[int]] = []

    def noted(*args: object, fragments: list[int], **options: object) -> pa.Table:
        read.append(fragments)
        return filtered(*args, fragments=fragments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(id_fragments, "filtered", noted)
    numbers = sorted(tables.at(ref).dataset.fragment_ids())
    for wanted, expected in (("n10007", [[numbers[8]]]), ("n77", [[numbers[0]]]), ("nobody", [[numbers[0]]])):
        read.clear()
        tables.at(ref).lookup("id", pa.chunked_array([[wanted]]), columns=["id"])
        assert read == expected


def test_fragments_that_no_version_uses_any_more_are_forgotten(tmp_path: Path) -> None:
    tables = TableStorage(str(tmp_path))
    ref = tables.create("t", SCHEMA)
    for step in range(5):
        ref = tables.commit_staged(stage_overwrite(tables.at(ref), rows(IDS, step)))
        indexed = stage_indexes(tables.at(ref), [INDEX])
        assert indexed is not None
        ref = tables.commit_staged(indexed)
        appended = stage_append(tables.at(ref), rows([f"new-{step}"], step))
        assert appended is not None
        ref = tables.commit_staged(appended)
        check(tables, ref, ["p1", f"new-{step}"])
    known, present = tables.at(ref).places, set(tables.at(ref).dataset.fragment_ids())
    assert known._others | known._remembered.keys() == present
    assert set(known._places) == {"new-4"}
