"""Assumptions of the store about Lance's blobs. A release that changes one of them requires changes in the store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance import LanceDataset, LanceOperation
from lance.fragment import write_fragments
from lance.optimize import Compaction

from omnigraph.storage.blob_sources import SourceUri

SCHEMA = pa.schema(
    [
        pa.field("id", pa.utf8(), nullable=False, metadata={"lance-schema:unenforced-primary-key": "true"}),
        lance.blob_field("b"),
    ]
)


def create(place: Path) -> LanceDataset:
    return LanceDataset.commit(str(place), LanceOperation.Overwrite(SCHEMA, []), enable_stable_row_ids=True)


def rows(cells: dict[str, bytes | str | None]) -> pa.Table:
    return pa.table([pa.array(list(cells)), pa.chunked_array([lance.blob_array(list(cells.values()))])], schema=SCHEMA)


def append(dataset: LanceDataset, cells: dict[str, bytes | str | None]) -> LanceDataset:
    staged = write_fragments(rows(cells), dataset, return_transaction=True, allow_external_blob_outside_bases=True)
    return LanceDataset.commit(dataset, staged)


def descriptors(dataset: LanceDataset) -> dict[str, dict[str, Any] | None]:
    return {row["id"]: row["b"] for row in dataset.to_table().to_pylist()}


def row_ids(dataset: LanceDataset) -> dict[str, int]:
    return {row["id"]: row["_rowid"] for row in dataset.to_table(columns=["id", "_rowid"]).to_pylist()}


def content(dataset: LanceDataset, *ids: str) -> list[bytes | None]:
    known = row_ids(dataset)
    return [data for _, data in dataset.read_blobs("b", ids=[known[id_] for id_ in ids], preserve_order=True)]


SIZES = {"inline": 5, "packed": 100_000, "dedicated": 5_000_000}
CELLS: dict[str, bytes | str | None] = {
    **{name: name.encode()[:1] * size for name, size in SIZES.items()},
    "empty": b"",
    "null": None,
}


def test_a_scan_gives_descriptors_with_sizes(tmp_path: Path) -> None:
    found = descriptors(append(create(tmp_path), CELLS))
    assert found["null"] is None
    assert {name: said["size"] for name, said in found.items() if said} == {**SIZES, "empty": 0}
    assert [found[name]["kind"] for name in SIZES] == [0, 1, 2]  # type: ignore[index]
    assert all(said["blob_uri"] == "" for said in found.values() if said)


def test_a_reference_is_stored_in_normal_form_and_not_accessed(tmp_path: Path) -> None:
    written = ["file:///no/where", "s3://no-such-bucket/a b/ü+%41~!$&'()*,;=:@x.bin"]
    dataset = append(create(tmp_path), {str(i): uri for i, uri in enumerate(written)})
    expected = [str(SourceUri.parse(uri)) for uri in written]
    again = append(create(tmp_path / "again"), {str(i): uri for i, uri in enumerate(expected)})
    found = [said for said in descriptors(again).values() if said]
    assert [said["blob_uri"] for said in found] == expected
    assert [(said["kind"], said["position"], said["size"], said["blob_id"]) for said in found] == [(3, 0, 0, 0)] * 2
    assert len(descriptors(dataset)) == 2


def test_merge_insert_refuses_references(tmp_path: Path) -> None:
    """So the store rewrites rows with references itself."""
    dataset = append(create(tmp_path), CELLS)
    merge = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    with pytest.raises(OSError, match="outside registered external bases"):
        merge.execute_uncommitted(rows({"empty": "file:///no/where"}))


def test_reading_a_reference_opens_it(tmp_path: Path) -> None:
    """So the store only reads bytes that the graph contains."""
    source = tmp_path / "source"
    source.write_bytes(b"from outside")
    dataset = append(create(tmp_path / "t"), {"a": source.as_uri()})
    assert content(dataset, "a") == [b"from outside"]


def test_content_survives_updates_deletes_compaction_and_forks(tmp_path: Path) -> None:
    dataset = append(append(create(tmp_path), CELLS), {"more": b"more", "gone": b"gone", "changed": b"before"})
    before = row_ids(dataset)
    merge = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    dataset = LanceDataset.commit(dataset, merge.execute_uncommitted(rows({"changed": b"after"}))[0])
    gone = dataset.merge_insert("id").when_matched_delete().execute_uncommitted(pa.table({"id": ["gone"]}))[0]
    dataset = LanceDataset.commit(dataset, gone)
    fork = dataset.create_branch("fork", dataset.version)
    plan = Compaction.plan(dataset, {"target_rows_per_fragment": 1000})
    Compaction.commit(dataset, [task.execute(dataset) for task in plan.tasks])
    packed = lance.dataset(str(tmp_path))
    assert len(packed.get_fragments()) == 1
    for view in (fork, packed):
        assert content(view, *CELLS) == list(CELLS.values())
        assert content(view, "more", "changed") == [b"more", b"after"]
        assert row_ids(view) == {name: number for name, number in before.items() if name != "gone"}
        ranges = view.read_blob_ranges("b", [(before["dedicated"], 4_999_998, 2)], selector="ids")
        assert [data for _, _, data in ranges] == [b"dd"]


def test_every_data_file_has_a_unique_name(tmp_path: Path) -> None:
    """The etag consists of the file name and the position in the file."""
    dataset = append(append(create(tmp_path), {"a": b"1"}), {"b": b"1"})
    files = [file.path for fragment in dataset.get_fragments() for file in fragment.metadata.files]
    assert len(set(files)) == 2
    assert descriptors(dataset)["a"] == descriptors(dataset)["b"]
