"""Staging writes files without creating a version, and reports correct counts."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance import LanceOperation, Transaction
from lance.fragment import write_fragments
from tests.lance_guards.small import SCHEMA, append, commit, create, ids, newest, rows, staged_append

from omnigraph.storage.staging import stage_append, stage_change, stage_delete_ids, stage_overwrite, stage_upsert
from omnigraph.storage.table_ref import TableRef, manifest_name
from omnigraph.storage.tables import TableStorage

HINT = "latest_version_hint.json"


def test_staging_creates_no_version(tmp_path: Path) -> None:
    base = append(create(tmp_path), "a", "b")
    staged_append(base, "c")
    base.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute_uncommitted(rows("a", "d"))
    base.merge_insert("id").when_matched_delete().execute_uncommitted(rows("a").select(["id"]))
    assert newest(tmp_path).version == base.version
    assert ids(newest(tmp_path)) == ["a", "b"]


def test_a_staged_upsert_reports_its_counts(tmp_path: Path) -> None:
    base = append(create(tmp_path), "a", "b")
    merge = base.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    transaction, stats = merge.execute_uncommitted(rows("b", "c", "d", n=7))
    assert (stats["num_inserted_rows"], stats["num_updated_rows"], stats["num_deleted_rows"]) == (2, 1, 0)
    assert ids(commit(base, transaction)) == ["a", "b", "c", "d"]


def test_a_staged_delete_reports_its_count(tmp_path: Path) -> None:
    base = append(create(tmp_path), "a", "b")
    keys = pa.table({"id": ["b", "nobody"]})
    transaction, stats = base.merge_insert("id").when_matched_delete().execute_uncommitted(keys)
    assert stats["num_deleted_rows"] == 1
    assert ids(commit(base, transaction)) == ["a"]
    _, stats = base.merge_insert("id").when_matched_delete().execute_uncommitted(pa.table({"id": ["nobody"]}))
    assert stats["num_deleted_rows"] == 0


def test_an_empty_change_creates_a_version(tmp_path: Path) -> None:
    """So the store never commits an empty change."""
    base = create(tmp_path)
    assert write_fragments(rows(), base, mode="append") == []
    assert commit(base, Transaction(base.version, LanceOperation.Append([]))).version == base.version + 1
    assert newest(tmp_path).delete("id = 'nobody'") is not None
    assert newest(tmp_path).version == base.version + 2


def test_an_empty_overwrite_empties_the_table(tmp_path: Path) -> None:
    base = append(create(tmp_path), "a")
    made = commit(base, Transaction(base.version, LanceOperation.Overwrite(base.schema, [])))
    assert (made.version, made.count_rows()) == (base.version + 1, 0)
    assert made.schema == base.schema


@pytest.mark.parametrize("branch", [False, True])
@pytest.mark.parametrize("operation", ["append", "upsert", "overwrite", "restore"])
def test_the_transaction_id_is_kept(tmp_path: Path, operation: str, branch: bool) -> None:
    """Recovery recognises a write by it."""
    base = append(create(tmp_path), "a")
    if branch:
        base = base.create_branch("dev", base.version)
    if operation == "append":
        transaction = staged_append(base, "b")
    elif operation == "upsert":
        merge = base.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        transaction, _ = merge.execute_uncommitted(rows("a"))
    elif operation == "overwrite":
        transaction = Transaction(base.version, LanceOperation.Overwrite(base.schema, []))
    else:
        transaction = Transaction(base.version, LanceOperation.Restore(base.version))
    made = commit(base, transaction)
    found = newest(tmp_path, "dev" if branch else None).read_transaction(made.version)
    assert found is not None
    assert found.uuid == transaction.uuid


def test_duplicate_keys_within_one_upsert_are_both_inserted(tmp_path: Path) -> None:
    """Two new rows with the same key are both inserted: the store finds duplicates before."""
    base = create(tmp_path)
    merge = base.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    transaction, _ = merge.execute_uncommitted(rows("x", "x"))
    assert ids(commit(base, transaction)) == ["x", "x"]


def test_old_versions_are_not_removed_automatically(tmp_path: Path) -> None:
    """A table never removes its old versions by itself."""
    dataset = create(tmp_path)
    assert not [key for key in dataset.config() if "cleanup" in key]
    for number in range(30):
        dataset = append(dataset, f"{number}")
    assert ids(lance.dataset(str(tmp_path), version=2)) == ["0"]


def test_an_upsert_keeps_stable_row_ids(tmp_path: Path) -> None:
    base = append(create(tmp_path), "a", "b")
    before = {row["id"]: row["_rowid"] for row in base.to_table(columns=["id"], with_row_id=True).to_pylist()}
    merge = base.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    made = commit(base, merge.execute_uncommitted(rows("a", n=5))[0])
    after = {row["id"]: row["_rowid"] for row in made.to_table(columns=["id"], with_row_id=True).to_pylist()}
    assert after == before


def test_manifest_files_have_the_expected_names(tmp_path: Path) -> None:
    """The names that the store flushes to disk. The hint beside them is not flushed."""
    dataset = append(create(tmp_path), "a")
    names = {path.name for path in (tmp_path / "_versions").iterdir()}
    assert names - {HINT} == {manifest_name(version) for version in (1, dataset.version)}


@pytest.mark.parametrize("hint", [b"", b"{", b'{"version":1}', b'{"version":99}'])
def test_a_wrong_version_hint_is_ignored(tmp_path: Path, hint: bytes) -> None:
    """After a power failure it may have any content."""
    dataset = append(append(append(create(tmp_path), "a"), "b"), "c")
    (tmp_path / "_versions" / HINT).write_bytes(hint)
    assert newest(tmp_path).version == lance.dataset(str(tmp_path), version=1).latest_version == dataset.version
    assert append(newest(tmp_path), "d").version == dataset.version + 1


@pytest.mark.parametrize("operation", ["append", "upsert", "overwrite", "delete", "change"])
def test_every_new_file_is_flushed(tmp_path: Path, operation: str) -> None:
    """The files of a commit are exactly the flushed files."""
    flushed: set[Path] = set()

    def sync(paths: object, *, levels: int | None = None) -> None:
        for path in paths:  # type: ignore[attr-defined]
            assert (tmp_path / path).exists(), path
            flushed.add(tmp_path / path)

    storage = TableStorage(str(tmp_path), None, sync)
    base = storage.create("t", SCHEMA)
    first = stage_append(storage.at(base), rows(*(f"{number}" for number in range(50))))
    assert first is not None
    base = storage.commit_staged(first)
    storage.make_durable([first])
    flushed.clear()
    before = {path for path in (tmp_path / "t").rglob("*") if path.is_file()}
    if operation == "append":
        staged = stage_append(storage.at(base), rows("new"))
    elif operation == "upsert":
        staged = stage_upsert(storage.at(base), rows("1", "new"))
    elif operation == "overwrite":
        staged = stage_overwrite(storage.at(base), rows("new"))
    elif operation == "change":
        staged = stage_change(storage.at(base), rows("1", "new"), pa.array(["2"]))
    else:
        staged = stage_delete_ids(storage.at(base), pa.chunked_array([["1", "2"]]))
    assert staged is not None
    assert storage.commit_staged(staged) == TableRef("t", None, base.version + 1)
    storage.make_durable([staged])
    made = {path for path in (tmp_path / "t").rglob("*") if path.is_file()} - before
    assert flushed == made
