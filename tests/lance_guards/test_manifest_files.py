"""Assumptions about Lance's manifest files, which the store parses itself."""

from __future__ import annotations

import json
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance import LanceDataset

from omnigraph.storage.lance_manifest import (
    base_paths,
    damage,
    fields,
    fragment_files,
    operation,
    read,
    seal,
    split,
    version_of,
    without_indexes,
)
from omnigraph.storage.latest_version import HINT, opened_without_indexes

Place = tuple[LanceDataset, Path]


@pytest.fixture
def made(tmp_path: Path) -> Place:
    """A table with two fragments, deletions, an index, blobs, and a branch with its own rows."""
    place = tmp_path / "t"
    schema = pa.schema([pa.field("id", pa.utf8()), lance.blob_field("b")])

    def rows(names: list[str]) -> pa.Table:
        blobs = lance.blob_array([name.encode() * 70_000 for name in names])
        return pa.table({"id": pa.array(names), "b": blobs}, schema=schema)

    lance.write_dataset(rows(["a", "b", "c"]), str(place), enable_stable_row_ids=True)
    lance.write_dataset(rows(["d", "e"]), str(place), mode="append")
    table = lance.dataset(str(place))
    table.create_scalar_index("id", "BTREE")
    table.delete("id = 'a'")
    branch = lance.dataset(str(place)).create_branch("x")
    branch.delete("id = 'd'")
    return lance.dataset(str(place)), place


def newest(directory: Path) -> bytes:
    files = {v: file for file in (directory / "_versions").iterdir() if (v := version_of(file.name)) is not None}
    return files[max(files)].read_bytes()


def test_a_manifest_lists_all_files_of_its_version(made: Place) -> None:
    table, place = made
    found = read(newest(place))
    files = [file for fragment in found.fragments for file in fragment_files(fragment)]
    tracked = [row for batch in table.tracked_files() for row in batch.to_pylist() if row["version"] == table.version]
    kinds = ("data file", "deletion file", "index file")
    assert {file.name for file in (*files, *found.indexes)} == {row["path"] for row in tracked if row["type"] in kinds}
    assert found.version == table.version
    for file in (*files, *found.indexes):
        size = (place / file.name).stat().st_size
        assert file.size == (None if file.name.startswith("_deletions/") else size)
        assert file.base is None


def test_inherited_files_of_a_branch_are_in_its_parent(made: Place) -> None:
    _, place = made
    found = read(newest(place / "tree" / "x"))
    assert set(found.bases.values()) == {str(place)}
    files = [file for fragment in found.fragments for file in fragment_files(fragment)]
    assert {file.base for file in files if file.name.startswith("data/")} == {0}
    assert {file.base for file in found.indexes} == {0}
    deletions = [file for file in files if file.name.startswith("_deletions/")]
    assert sorted(file.base is None for file in deletions) == [False, True], "one has its parent's, one its own"
    for file in files:
        root = place / "tree" / "x" if file.base is None else place
        assert (root / file.name).exists()


def test_every_truncated_or_zeroed_manifest_is_detected(made: Place) -> None:
    table, place = made
    data = newest(place)
    assert damage(data, table.version) is None
    assert damage(data, table.version + 1) is not None
    for end in range(0, len(data), 7):
        assert damage(data[:end], table.version) is not None
        assert damage(data[:end] + bytes(len(data) - end), table.version) is not None


def test_a_seal_covers_every_bit_except_the_location(made: Place) -> None:
    _, place = made
    data = newest(place / "tree" / "x")
    moved = data.replace(str(place).encode(), b"/" * len(str(place)))
    assert moved != data
    assert seal(moved) == seal(data)
    head, message, _ = split(data)
    (start, end) = next((s, e) for number, _, s, e in fields(message) if number == 18)
    spared = range(len(head) + 4 + start, len(head) + 4 + end)
    for byte in set(range(len(data))) - set(spared):
        changed = bytearray(data)
        changed[byte] ^= 16
        try:
            assert seal(bytes(changed)) != seal(data), byte
        except ValueError:
            continue


def test_a_version_can_be_opened_without_its_indexes(made: Place) -> None:
    table, _ = made
    plain = opened_without_indexes(table, None)
    assert [index.name for index in table.describe_indices()] == ["id_idx"]
    assert plain.describe_indices() == []
    assert plain.to_table(filter="id = 'b'", columns=["id"]).to_pylist() == [{"id": "b"}]
    assert base_paths(without_indexes(bytes(table._ds.serialized_manifest()))) == {}
    transaction, _ = plain.merge_insert("id").when_matched_delete().execute_uncommitted(pa.table({"id": ["b"]}))
    after = LanceDataset.commit(table, transaction, max_retries=0)
    assert [index.name for index in after.describe_indices()] == ["id_idx"], "the commit keeps them"
    assert after.to_table(columns=["id"])["id"].to_pylist() == ["c", "d", "e"]


def test_lance_opens_a_zeroed_manifest_as_an_empty_version(made: Place) -> None:
    """So the store has to check the newest version when it opens a table."""
    table, place = made
    (place / "_versions" / f"{2**64 - 2 - table.version:020d}.manifest").write_bytes(bytes(900))
    assert lance.dataset(str(place)).version == 0


def test_the_hint_names_the_newest_version(made: Place) -> None:
    table, place = made
    assert json.loads((place / "_versions" / HINT).read_bytes()) == {"version": table.version}


def test_blobs_are_named_by_their_number(made: Place) -> None:
    table, place = made
    rows = table.to_table(columns=["id", "b"]).to_pylist()
    first = read(newest(place)).fragments[0]
    stem = fragment_files(first)[0].name.removesuffix(".lance")
    for row in rows[:2]:
        bits = f"{row['b']['blob_id']:032b}"[::-1]
        assert row["b"]["kind"] == 1
        assert (place / stem / f"{bits}.blob").exists()


def test_transaction_files_name_their_operation(made: Place) -> None:
    table, place = made
    table.optimize.compact_files()
    table = lance.dataset(str(place))
    table.restore()  # type: ignore[no-untyped-call]
    names = []
    for version in range(1, lance.dataset(str(place)).version + 1):
        file = (place / "_versions" / f"{2**64 - 1 - version:020d}.manifest").read_bytes()
        names.append(operation((place / "_transactions" / read(file).transaction).read_bytes()))
    assert names == ["Overwrite", "Append", "CreateIndex", "Delete", "ReserveFragments", "Rewrite", "Restore"]
    assert operation(b"\xff\xff") is None
