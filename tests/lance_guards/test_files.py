"""The files that Lance lists for its versions, and the effect of deleting versions directly."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance import LanceDataset, LanceOperation
from lance.fragment import write_fragments
from tests.lance_guards.small import append, create, ids, newest, rows

from omnigraph.storage.table_files import data_file_name, versions
from omnigraph.storage.table_ref import manifest_name


def tracked(dataset: LanceDataset, version: int) -> set[str]:
    listed = dataset.tracked_files().read_all().to_pylist()
    return {f"{row['base_uri']}/{row['path']}" for row in listed if row["version"] == version}


def on_disk(place: Path) -> set[str]:
    skipped = ("_refs", "latest_version_hint.json")
    return {str(file) for file in place.rglob("*") if file.is_file() and not set(file.parts) & set(skipped)}


def test_the_name_of_a_data_file_is_its_path(tmp_path: Path) -> None:
    (file,) = append(create(tmp_path), "a").get_fragments()[0].metadata.files
    assert data_file_name(file) == file.path


def test_every_file_of_a_version_is_listed(tmp_path: Path) -> None:
    """Data, deletions, indexes of every kind, the transaction and the manifest."""
    dataset = append(create(tmp_path), "a", "b", "c")
    dataset.create_scalar_index("id", "BTREE")
    dataset.create_scalar_index("id", "INVERTED", replace=False, name="words")
    dataset = newest(tmp_path)
    dataset.delete("id = 'a'")
    dataset = newest(tmp_path)
    assert set().union(*(tracked(dataset, v) for v in range(1, dataset.version + 1))) == on_disk(tmp_path)
    kinds = {Path(path).parent.name for path in tracked(dataset, dataset.version)}
    uuids = {str(part.uuid) for index in dataset.describe_indices() for part in index.segments}
    assert kinds == {"data", "_deletions", "_transactions", "_versions"} | uuids


def test_staged_files_belong_to_no_version(tmp_path: Path) -> None:
    dataset = append(create(tmp_path), "a")
    before = on_disk(tmp_path)
    write_fragments(rows("b"), dataset)
    (orphan,) = on_disk(tmp_path) - before
    assert not any(orphan in tracked(dataset, v) for v in (1, 2))


def test_blob_files_are_not_listed(tmp_path: Path) -> None:
    """They are in a directory with the name of their data file, and are removed together with it."""
    schema = pa.schema([pa.field("id", pa.utf8()), lance.blob_field("photo")])
    dataset = LanceDataset.commit(str(tmp_path), LanceOperation.Overwrite(schema, []), enable_stable_row_ids=True)
    table = pa.table({"id": ["a"], "photo": lance.blob_array([b"x" * 300_000])}, schema=schema)
    dataset = LanceDataset.commit(dataset, write_fragments(table, dataset, return_transaction=True))
    missing = on_disk(tmp_path) - tracked(dataset, 1) - tracked(dataset, 2)
    assert missing
    for path in missing:
        blob = Path(path)
        assert (blob.suffix, blob.parent.parent.name) == (".blob", "data")
        assert f"{blob.parent}.lance" in tracked(dataset, 2)


def test_indexes_of_the_parent_are_not_listed_in_a_fork(tmp_path: Path) -> None:
    """Its data files are listed with their location; the index only by its id."""
    dataset = append(create(tmp_path), "a", "b")
    dataset.create_scalar_index("id", "BTREE")
    dataset = newest(tmp_path)
    fork = append(dataset.create_branch("dev", dataset.version), "c")
    named = tracked(fork, fork.version)
    assert any(path.startswith(f"{tmp_path}/data/") for path in named)
    assert not any("_indices" in path for path in named)
    (index,) = fork.describe_indices()
    uuid = str(index.segments[0].uuid)
    assert (tmp_path / "_indices" / uuid).is_dir()


def test_deleting_a_manifest_removes_only_its_version(tmp_path: Path) -> None:
    """Also a version at which forks begin: the rest can be read, written, forked and cleaned up."""
    dataset = append(append(create(tmp_path), "a"), "b")
    fork = append(dataset.create_branch("dev", 2), "c")
    kid = append(fork.create_branch("kid", 3), "d")
    dataset = append(dataset, "e")
    for place, gone in ((tmp_path, (1, 2, 3)), (tmp_path / "tree" / "dev", (2,))):
        for version in gone:
            (place / "_versions" / manifest_name(version)).unlink()
    with pytest.raises(ValueError, match="was not found"):
        lance.dataset(str(tmp_path), version=2)
    assert versions(newest(tmp_path)) == [4]
    assert ids(append(newest(tmp_path), "f")) == ["a", "b", "e", "f"]
    assert ids(append(newest(tmp_path, "dev"), "g")) == ["a", "c", "g"]
    assert ids(append(newest(tmp_path, "kid"), "h")) == ["a", "c", "d", "h"]
    assert ids(newest(tmp_path, "kid").create_branch("late", kid.version)) == ["a", "c", "d"]
    for name in ("late", "kid", "dev"):
        newest(tmp_path).branches.delete(name)
    assert newest(tmp_path).branches.list() == {}
    assert dataset.version == 4
