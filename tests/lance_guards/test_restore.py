"""Restore undoes a write, and refuses writes that a paused writer staged before it."""

from __future__ import annotations

from pathlib import Path

import pytest
from lance import LanceOperation, Transaction
from lance.commit import CommitConflictError
from tests.lance_guards.small import append, commit, create, ids, newest, rows, staged_append, staged_overwrite


def restore(place: Path, version: int, branch: str | None = None) -> int:
    head = newest(place, branch)
    return int(commit(head, Transaction(head.version, LanceOperation.Restore(version))).version)


@pytest.mark.parametrize("branch", [None, "dev"])
def test_a_restore_is_the_next_version(tmp_path: Path, branch: str | None) -> None:
    dataset = append(create(tmp_path), "kept")
    if branch is not None:
        dataset = dataset.create_branch(branch, dataset.version)
    append(append(dataset, "undone"), "undone too")
    assert restore(tmp_path, dataset.version, branch) == dataset.version + 3
    assert ids(newest(tmp_path, branch)) == ["kept"]
    append(newest(tmp_path, branch), "after")
    assert ids(newest(tmp_path, branch)) == ["after", "kept"]


@pytest.mark.parametrize("operation", ["append", "upsert", "delete", "overwrite"])
def test_a_write_staged_before_a_restore_is_refused(tmp_path: Path, operation: str) -> None:
    """Also a write that would be rebased over any other, and also after a restore to the version it was staged on."""
    base = append(create(tmp_path), "a", "b")
    if operation == "append":
        late = staged_append(base, "c")
    elif operation == "upsert":
        merge = base.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        late, _ = merge.execute_uncommitted(rows("a", "c"))
    elif operation == "delete":
        late, _ = base.merge_insert("id").when_matched_delete().execute_uncommitted(rows("a").select(["id"]))
    else:
        late = staged_overwrite(base, "c")
    restore(tmp_path, base.version)
    with pytest.raises(CommitConflictError):
        commit(base, late)
    assert ids(newest(tmp_path)) == ["a", "b"]


def test_a_restore_itself_is_never_refused(tmp_path: Path) -> None:
    """So a restore runs only under the lease."""
    base = append(create(tmp_path), "a")
    late = Transaction(base.version, LanceOperation.Restore(1))
    append(base, "b")
    assert ids(commit(base, late)) == []
