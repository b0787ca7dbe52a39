"""Row changes with hand-made updates, and detection of changes: assumptions of the store about Lance."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from lance import LanceDataset, LanceOperation, Transaction
from lance.commit import CommitConflictError
from lance.fragment import RowIdSequence, write_fragments
from lance.query import MatchQuery
from tests.lance_guards.small import append, commit, create, ids, newest, rows, staged_overwrite

SYSTEM = ["_rowid", "_rowaddr", "_row_created_at_version", "_row_last_updated_at_version"]


def system(dataset: LanceDataset) -> dict[str, tuple[int, int, int, int]]:
    found = dataset.to_table(columns=["id", *SYSTEM]).to_pylist()
    return {row["id"]: tuple(row[name] for name in SYSTEM) for row in found}


def staged_change(dataset: LanceDataset, written: list[str], deleted: list[str]) -> Transaction:
    """Stage a change: rows written first keep their row ids, the others are new; all in one fragment."""
    at = system(dataset)
    old = [name for name in written if name in at]
    offsets: dict[int, list[int]] = {}
    for name in [*old, *deleted]:
        offsets.setdefault(at[name][1] >> 32, []).append(at[name][1] & 0xFFFFFFFF)
    changed = {number: dataset.get_fragment(number).delete_rows(rows) for number, rows in offsets.items()}  # type: ignore[union-attr]
    (new,) = write_fragments(rows(*old, *(n for n in written if n not in at), n=9), dataset, mode="append")
    kept = RowIdSequence(pa.array([at[name][0] for name in old], pa.uint64()))
    operation = LanceOperation.Update(
        removed_fragment_ids=[number for number, left in changed.items() if left is None],
        updated_fragments=[left for left in changed.values() if left is not None],
        new_fragments=[replace(new, row_id_meta=kept.to_inline_metadata())],
    )
    return Transaction(dataset.version, operation)


@pytest.mark.parametrize("branch", [None, "dev"])
def test_a_change_keeps_the_row_ids_of_replaced_rows(tmp_path: Path, branch: str | None) -> None:
    base = append(append(create(tmp_path), "a", "b", "c", "d"), "e")
    if branch is not None:
        base = base.create_branch(branch, base.version)
    before = system(base)
    staged = staged_change(base, ["c", "e", "new", "newer"], ["a"])
    assert newest(tmp_path, branch).version == base.version
    assert ids(newest(tmp_path, branch)) == ["a", "b", "c", "d", "e"]
    made = commit(base, staged)
    after = system(made)
    assert sorted(after) == ["b", "c", "d", "e", "new", "newer"]
    assert all(after[name][0] == before[name][0] for name in "bcde")
    assert after["new"][0] == max(values[0] for values in before.values()) + 1
    assert [after[name][2:] for name in "bce"] == [(2, 2), (2, made.version), (3, made.version)]
    assert after["new"][2:] == (made.version, made.version)
    if branch is not None:
        assert ids(newest(tmp_path)) == ["a", "b", "c", "d", "e"]
        assert not {path.parent for path in (tmp_path / "_deletions").glob("*")}, "a fork has deletion files of its own"


def test_a_delta_lists_the_rows_that_a_fork_deleted(tmp_path: Path) -> None:
    """Row ids of deleted rows: a delta on the fork can begin at the version of the fork."""
    base = append(create(tmp_path), "a", "b", "c", "d").create_branch("dev", 2)
    before = system(base)
    head = commit(base, staged_change(base, ["b", "new"], ["a"]))
    gone = head.delta(begin_version=base.version, end_version=head.version).get_deleted_row_ids().read_all()
    assert gone["_rowid"].to_pylist() == [before["a"][0]]
    head = commit(head, staged_overwrite(head, "c", "other"))
    gone = head.delta(begin_version=base.version, end_version=head.version).get_deleted_row_ids().read_all()
    assert sorted(gone["_rowid"].to_pylist()) == sorted(values[0] for values in before.values())
    assert not {values[0] for values in system(head).values()} & {values[0] for values in before.values()}
    found = base._take_rows(gone["_rowid"].to_pylist(), columns=["id"])
    assert sorted(found["id"].to_pylist()) == ["a", "b", "c", "d"]


def test_fragment_numbers_are_never_reused(tmp_path: Path) -> None:
    """No fragment number is used twice, so the numbers tell which fragments are new."""
    base = append(append(create(tmp_path), "a"), "b")
    seen = {fragment.fragment_id: [f.path for f in fragment.metadata.files] for fragment in base.get_fragments()}
    head = commit(base, staged_overwrite(base, "c"))
    head = commit(head, Transaction(head.version, LanceOperation.Restore(base.version)))
    head = append(commit(head, staged_change(head, ["a", "d"], [])), "e")
    for fragment in head.get_fragments():
        files = [f.path for f in fragment.metadata.files]
        assert seen.setdefault(fragment.fragment_id, files) == files


@pytest.mark.parametrize("other", ["append", "change", "restore"])
def test_a_concurrent_change_is_detected(tmp_path: Path, other: str) -> None:
    """It is refused, or makes a version that is not the next one."""
    base = append(create(tmp_path), "a", "b")
    late = staged_change(base, ["a", "c"], ["b"])
    if other == "append":
        append(base, "x")
        assert commit(base, late).version == base.version + 2
        return
    restore = Transaction(base.version, LanceOperation.Restore(base.version))
    commit(base, staged_change(base, ["a"], []) if other == "change" else restore)
    with pytest.raises(CommitConflictError):
        commit(base, late)


def test_a_second_text_index_segment_finds_old_texts(tmp_path: Path) -> None:
    """A search finds a rewritten row by its old text once its new location is indexed, too.

    So a text index must be rebuilt, and not extended, after changes of rows that it covers.
    """
    schema = pa.schema([pa.field("id", pa.utf8(), nullable=False), pa.field("n", pa.utf8())])
    dataset = LanceDataset.commit(str(tmp_path), LanceOperation.Overwrite(schema, []), enable_stable_row_ids=True)
    first = pa.table({"id": ["a", "b"], "n": ["old", "old"]}, schema=schema)
    dataset = commit(dataset, write_fragments(first, dataset, return_transaction=True))

    def index(dataset: LanceDataset, fragment: int) -> LanceDataset:
        built = dataset.create_index_uncommitted("n", "INVERTED", name="n", fragment_ids=[fragment], replace=True)
        built = dataset.merge_existing_index_segments([built])
        return commit(dataset, Transaction(dataset.version, LanceOperation.CreateIndex([built], [])))

    def old(dataset: LanceDataset) -> list[str]:
        return sorted(dataset.to_table(columns=["id"], full_text_query=MatchQuery("old", "n"))["id"].to_pylist())

    dataset = index(dataset, 0)
    changed = pa.table({"id": ["a"], "n": ["new"]}, schema=schema)
    merge = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    dataset = commit(dataset, merge.execute_uncommitted(changed)[0])
    assert old(dataset) == ["b"]
    assert old(index(dataset, 1)) == ["a", "b"]


def test_missing_row_ids_are_left_out_and_the_others_keep_their_order(tmp_path: Path) -> None:
    dataset = append(append(create(tmp_path), "a", "b", "c", "d"), "e")
    at = {name: values[0] for name, values in system(dataset).items()}
    made = commit(dataset, staged_change(dataset, ["c"], ["a"]))
    wanted = pa.array([at["e"], 999, at["c"], at["a"], at["b"]], pa.uint64())
    assert made._take_rows(wanted, columns=["id", "_rowid"])["id"].to_pylist() == ["e", "c", "b"]
    assert dataset._take_rows(wanted, columns=["id", "_rowid"])["id"].to_pylist() == ["e", "c", "a", "b"]


def test_written_rows_are_found_by_a_filter_on_their_version_also_after_a_compaction(tmp_path: Path) -> None:
    dataset = append(append(create(tmp_path), "a", "b", "c", "d"), "e")
    made = commit(dataset, staged_change(dataset, ["c", "new"], ["a"]))
    newest(tmp_path).optimize.compact_files()
    compacted = newest(tmp_path)
    assert isinstance(compacted.read_transaction(made.version).operation, LanceOperation.Update)  # type: ignore[union-attr]
    kinds = [
        type(compacted.read_transaction(version).operation)  # type: ignore[union-attr]
        for version in range(made.version + 1, compacted.version + 1)
    ]
    assert LanceOperation.Rewrite in kinds
    for found in (made, compacted):
        scan = found.scanner(
            columns=["id", "_rowid", "_rowaddr"],
            filter=f"_row_last_updated_at_version > {dataset.version}",
            fragments=found.get_fragments(),
        )
        assert sorted(scan.to_table()["id"].to_pylist()) == ["c", "new"]
    assert {name: row[0] for name, row in system(compacted).items()} == {
        name: row[0] for name, row in system(made).items()
    }


def test_an_added_column_leaves_the_files_of_the_other_columns(tmp_path: Path) -> None:
    """Lance records an update of all rows, so the files of the compared columns decide."""
    dataset = append(create(tmp_path), "a", "b")
    before = dataset.get_fragments()[0].metadata.files
    version = dataset.version
    dataset.add_columns({"extra": "7"})
    after = newest(tmp_path)
    assert {row[3] > version for row in system(after).values()} == {True}
    files = after.get_fragments()[0].metadata.files
    numbers = {field.name(): field.id() for field in after.lance_schema.fields()}
    for name in ("id", "n"):
        holding = [file.path for file in files if numbers[name] in file.fields]
        assert holding == [file.path for file in before if numbers[name] in file.fields]
