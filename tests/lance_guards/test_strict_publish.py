"""The compare-and-swap of a publish: an Overwrite without retries succeeds only on the version it was made for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Barrier, Thread

import pytest
from lance import LanceDataset, LanceOperation, Transaction
from lance.fragment import write_fragments
from tests.lance_guards.small import SCHEMA, append, commit, create, ids, newest, rows, staged_append, staged_overwrite
from tests.patience import PATIENCE

from omnigraph.storage.table_ref import manifest_name


def race(work: Callable[[int], object], racers: int = 4) -> list[object]:
    """Run the same function in several threads at once; failures are results."""
    barrier = Barrier(racers)
    results: list[object] = [None] * racers

    def run(number: int) -> None:
        barrier.wait(PATIENCE)
        try:
            results[number] = work(number)
        except OSError as error:
            results[number] = error

    threads = [Thread(target=run, args=(number,)) for number in range(racers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return results


def is_conflict(error: object) -> bool:
    return isinstance(error, OSError) and "conflict" in str(error).lower()


@pytest.mark.parametrize("branch", [None, "dev"])
@pytest.mark.parametrize("keep", [False, True])
def test_racing_overwrites_have_one_winner(tmp_path: Path, branch: str | None, keep: bool) -> None:
    dataset = append(create(tmp_path), "seed")
    if branch is not None:
        dataset.create_branch(branch, dataset.version)
    for round_ in range(12):
        base = newest(tmp_path, branch)
        transactions = [staged_overwrite(base, f"{round_}-{number}", keep=keep) for number in range(4)]
        results = race(lambda number, base=base, made=transactions: commit(base, made[number]))  # type: ignore[misc]
        winners = [number for number, result in enumerate(results) if isinstance(result, LanceDataset)]
        assert len(winners) == 1
        assert all(is_conflict(result) for result in results if not isinstance(result, LanceDataset))
        after = newest(tmp_path, branch)
        assert after.version == base.version + 1
        kept = ids(base) if keep else []
        assert ids(after) == sorted([*kept, f"{round_}-{winners[0]}"])


@pytest.mark.parametrize("between", ["append", "overwrite", "restore", "delete"])
def test_an_overwrite_is_refused_after_any_other_version(tmp_path: Path, between: str) -> None:
    base = append(create(tmp_path), "seed")
    late = staged_overwrite(base, "late", keep=True)
    if between == "append":
        append(base, "first")
    elif between == "overwrite":
        commit(base, staged_overwrite(base, "first"))
    elif between == "restore":
        commit(base, Transaction(base.version, LanceOperation.Restore(1)))
    else:
        newest(tmp_path).delete("id = 'seed'")
    with pytest.raises(OSError, match=r"(?i)conflict"):
        commit(base, late)


def test_kept_fragments_are_the_same_files(tmp_path: Path) -> None:
    """A publish that keeps a fragment does not write it again, and the schema's metadata stays."""
    schema = SCHEMA.with_metadata({"stamp": "1"})
    place = str(tmp_path / "ledger")
    first = write_fragments(rows("old"), place, schema=schema, mode="create")
    base = LanceDataset.commit(place, LanceOperation.Overwrite(schema, first), max_retries=0)
    files = {file.path for fragment in base.get_fragments() for file in fragment.metadata.files}
    made = commit(base, staged_overwrite(base, "new", keep=True))
    assert [fragment.count_rows() for fragment in made.get_fragments()] == [1, 1]
    assert [fragment.to_table()["id"].to_pylist() for fragment in made.get_fragments()] == [["old"], ["new"]]
    assert files < {file.path for fragment in made.get_fragments() for file in fragment.metadata.files}
    assert made.schema.metadata == {b"stamp": b"1"}


def test_inherited_fragments_stay_readable_on_a_branch(tmp_path: Path) -> None:
    """Fragments that a branch shares with its parent stay readable, also in branches of branches."""
    base = append(create(tmp_path), "main")
    one = base.create_branch("one", base.version)
    one = commit(one, staged_overwrite(one, "one", keep=True))
    two = newest(tmp_path, "one").create_branch("two", one.version)
    two = commit(two, staged_overwrite(two, "two", keep=True))
    assert [fragment.to_table()["id"].to_pylist() for fragment in newest(tmp_path, "two").get_fragments()] == [
        ["main"],
        ["one"],
        ["two"],
    ]
    assert ids(newest(tmp_path, "one")) == ["main", "one"]
    assert ids(newest(tmp_path)) == ["main"]


def test_only_one_creator_of_a_table_wins(tmp_path: Path) -> None:
    """The second creator of a ledger loses, later or at the same time."""
    for round_ in range(6):
        place = str(tmp_path / f"{round_}")

        def make(number: int, place: str = place) -> object:
            fragments = write_fragments(rows(f"{number}"), place, schema=SCHEMA, mode="create")
            return LanceDataset.commit(
                place, Transaction(0, LanceOperation.Overwrite(SCHEMA, fragments)), max_retries=0
            )

        results = race(make)
        winners = [number for number, result in enumerate(results) if isinstance(result, LanceDataset)]
        assert len(winners) == 1, results
        assert ids(newest(tmp_path / f"{round_}")) == [f"{winners[0]}"]
        with pytest.raises(OSError, match=r"."):
            make(9)
        assert ids(newest(tmp_path / f"{round_}")) == [f"{winners[0]}"]


# Commits that are not strict: the reason why the store compares versions and holds a lease


def test_an_append_is_rebased_silently(tmp_path: Path) -> None:
    base = create(tmp_path)
    late = staged_append(base, "late")
    append(base, "first")
    made = commit(base, late)
    assert made.version == base.version + 2, "the version tells"
    assert ids(made) == ["first", "late"]


def test_staged_upserts_of_one_new_key_both_commit(tmp_path: Path) -> None:
    base = append(create(tmp_path), "seed")

    def upsert() -> Transaction:
        merge = base.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        transaction, _ = merge.execute_uncommitted(rows("new"))
        return transaction

    first, second = upsert(), upsert()
    commit(base, first)
    made = commit(base, second)
    assert ids(made) == ["new", "new", "seed"]
    assert made.version == base.version + 2, "the version tells"


def test_a_transaction_commits_twice(tmp_path: Path) -> None:
    base = create(tmp_path)
    transaction = staged_append(base, "twice")
    commit(base, transaction)
    assert ids(commit(base, transaction)) == ["twice", "twice"]


def test_the_number_of_a_removed_version_is_free_again(tmp_path: Path) -> None:
    """So a publish has to look for newer versions afterwards. Newer versions stay the newest for all readers."""
    base = append(create(tmp_path), "seed")
    late = staged_overwrite(base, "late", keep=True)
    newer = base
    for number in range(3):
        newer = commit(newer, staged_overwrite(newer, f"{number}", keep=True))
    for version in (base.version + 1, base.version + 2):
        (tmp_path / "_versions" / manifest_name(version)).unlink()
    made = commit(base, late)
    assert made.version == base.version + 1
    assert made.latest_version == newer.version
    assert newest(tmp_path).version == newer.version, "the version hint names the late version, and does no harm"
    assert ids(newest(tmp_path)) == ids(newer)
