"""Rows are inserted, updated and deleted by id in one step, and the changes between two versions can be read."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lance.fragment import write_fragments
from tests.thresholds import Thresholds

from omnigraph.errors import InputError
from omnigraph.lang.schema.catalog import IndexKind
from omnigraph.storage import row_changes
from omnigraph.storage.difference import Part
from omnigraph.storage.indexes import IndexSpec
from omnigraph.storage.staged import Staged
from omnigraph.storage.staging import (
    stage_append,
    stage_change,
    stage_delete_ids,
    stage_indexes,
    stage_overwrite,
    stage_restore,
    stage_upsert,
)
from omnigraph.storage.table_ref import TableRef
from omnigraph.storage.tables import TableStorage

SCHEMA = pa.schema(
    [
        pa.field("id", pa.utf8(), nullable=False, metadata={"lance-schema:unenforced-primary-key": "true"}),
        pa.field("n", pa.int64()),
        pa.field("text", pa.utf8()),
        pa.field("blob", pa.large_binary()),
    ]
)
INDEXES = [IndexSpec("id", IndexKind.BTREE), IndexSpec("n", IndexKind.BTREE)]
TEXT_INDEX = IndexSpec("text", IndexKind.FTS)
NONE = pa.array([], pa.utf8())
NAMES = [f"r{i}" for i in range(12)]


def table(rows: dict[str, int]) -> pa.Table:
    """Rows whose values are all derived from one number."""
    numbers = list(rows.values())
    return pa.table(
        {
            "id": list(rows),
            "n": numbers,
            "text": [f"word{n}" for n in numbers],
            "blob": [None if n % 3 == 0 else bytes([n % 250]) * (n % 7) for n in numbers],
        },
        schema=SCHEMA,
    )


@dataclass(frozen=True, slots=True)
class Pieces:
    """Rows in several batches that can be read more than once."""

    whole: pa.Table
    size: int = 2
    reads: list[int] = field(default_factory=list)

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        self.reads.append(0)
        chosen = self.whole if columns is None else self.whole.select(columns)
        yield from chosen.to_batches(max_chunksize=self.size)


def commit(tables: TableStorage, staged: Staged | None) -> TableRef:
    assert staged is not None
    return tables.commit_staged(staged)


def content(tables: TableStorage, ref: TableRef) -> dict[str, dict[str, object]]:
    rows = tables.at(ref).dataset.scanner(blob_handling="all_binary").to_table().to_pylist()
    found = {str(row["id"]): dict(row) for row in rows}
    assert len(found) == len(rows), "an id is there twice"
    return found


def expected(model: dict[str, int]) -> dict[str, dict[str, object]]:
    return {str(row["id"]): dict(row) for row in table(model).to_pylist()}


def _plain(row: dict[str, Any]) -> dict[str, object]:
    """A row with the bytes of its blob instead of the blob cell."""
    cell = row["blob"]
    assert cell is None or (cell["data"] is not None and cell["uri"] is None)
    return {**row, "blob": None if cell is None else cell["data"]}


def row_ids(tables: TableStorage, ref: TableRef) -> dict[str, int]:
    rows = tables.at(ref).scan(columns=["id", "_rowid"]).to_pylist()
    return {row["id"]: row["_rowid"] for row in rows}


def half(number: int) -> Part:
    """Selects the rows with an even or an odd number in their id."""
    return lambda ids: np.array([int(name[1:]) % 2 == number for name in ids.to_pylist()], bool)


@pytest.fixture
def tables(tmp_path: Path) -> TableStorage:
    return TableStorage(str(tmp_path))


@pytest.fixture
def base(tables: TableStorage) -> TableRef:
    empty = tables.create("nodes/t", SCHEMA)
    return commit(tables, stage_append(tables.at(empty), table(dict.fromkeys(NAMES[:6], 0))))


def test_one_change_inserts_updates_and_deletes_rows(tables: TableStorage, base: TableRef) -> None:
    staged = stage_change(tables.at(base), table({"r1": 10, "r8": 11, "r0": 12, "r9": 13}), pa.array(["r5", "nobody"]))
    assert staged is not None
    assert (staged.rows_added, staged.rows_removed) == (2, 1)
    assert tables.head("nodes/t", None) == base.version
    after = commit(tables, staged)
    model = {"r0": 12, "r1": 10, "r2": 0, "r3": 0, "r4": 0, "r8": 11, "r9": 13}
    assert content(tables, after) == expected(model)
    before = row_ids(tables, base)
    assert {name: row_ids(tables, after)[name] for name in ("r0", "r1", "r2")} == {
        name: before[name] for name in ("r0", "r1", "r2")
    }
    assert len(set(row_ids(tables, after).values())) == len(model)


def test_a_change_without_effect_stages_nothing(tables: TableStorage, base: TableRef) -> None:
    assert stage_change(tables.at(base), table({}), NONE) is None
    assert stage_change(tables.at(base), table({}), pa.array(["nobody"])) is None


def test_all_rows_can_be_deleted(tables: TableStorage, base: TableRef) -> None:
    after = commit(tables, stage_change(tables.at(base), table({}), pa.array(NAMES)))
    assert content(tables, after) == {}
    again = commit(tables, stage_change(tables.at(after), table({"r1": 4}), NONE))
    assert content(tables, again) == expected({"r1": 4})


def test_writing_and_deleting_the_same_row_is_refused(tables: TableStorage, base: TableRef) -> None:
    with pytest.raises(InputError, match="written and deleted"):
        stage_change(tables.at(base), table({"r1": 1}), pa.array(["r1"]))


def test_many_rows_are_found_by_reading_all_ids(tables: TableStorage, base: TableRef, thresholds: Thresholds) -> None:
    thresholds(row_changes, LOOKUP_LIMIT=0, COMPARE_ROWS=2)
    before = row_ids(tables, base)
    rows = Pieces(table({"r3": 5, "new": 6, "r1": 7, "newer": 8}), size=1)
    after = commit(tables, stage_change(tables.at(base), rows, pa.array(["r0"])))
    assert content(tables, after) == expected({"r1": 7, "r2": 0, "r3": 5, "r4": 0, "r5": 0, "new": 6, "newer": 8})
    assert {k: v for k, v in row_ids(tables, after).items() if k in before} == {
        k: v for k, v in before.items() if k != "r0"
    }
    assert len(rows.reads) == 3, "ids, rows that replace, rows that are new"


def test_row_ids_are_kept_over_several_fragments(
    tables: TableStorage, base: TableRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_changes, "write_fragments", lambda *a, **k: write_fragments(*a, **k, max_rows_per_file=2))
    model = {name: i for i, name in enumerate(reversed(NAMES[:8]))}
    after = commit(tables, stage_change(tables.at(base), table(model), NONE))
    assert len(tables.at(after).dataset.get_fragments()) == 4
    assert content(tables, after) == expected(model)
    kept = row_ids(tables, after)
    assert {name: kept[name] for name in NAMES[:6]} == row_ids(tables, base)
    assert len(set(kept.values())) == 8


# Random sequences of writes

Names = st.lists(st.sampled_from(NAMES), unique=True, max_size=6)
Step = st.one_of(
    st.tuples(st.just("change"), Names, Names),
    st.tuples(st.just("append"), Names, st.just([])),
    st.tuples(st.just("upsert"), Names, st.just([])),
    st.tuples(st.just("delete"), st.just([]), Names),
    st.tuples(st.just("overwrite"), Names, st.just([])),
    st.tuples(st.just("index"), st.just([]), st.just([])),
    st.tuples(st.just("undone"), Names, Names),
    st.tuples(st.just("taken back"), Names, st.just([])),
)


@dataclass(slots=True)
class Tour:
    """A table, and the expected content of each version of the written branch."""

    tables: TableStorage
    ref: TableRef
    model: dict[str, int] = field(default_factory=dict)
    versions: dict[int, dict[str, int]] = field(default_factory=dict)
    number: int = 0

    def fresh(self, names: Sequence[str]) -> dict[str, int]:
        self.number += 1
        return {name: self.number * 20 + i for i, name in enumerate(names)}

    def step(self, kind: str, written: Sequence[str], deleted: Sequence[str]) -> None:
        tables, before = self.tables, dict(self.model)
        if kind == "append":
            written = [name for name in written if name not in before]
        if kind == "change":
            deleted = [name for name in deleted if name not in written]
        rows = self.fresh(written)
        after = {name: n for name, n in before.items() if name not in deleted} | rows
        staged: Staged | None
        if kind == "change":
            staged = stage_change(tables.at(self.ref), Pieces(table(rows)), pa.array(deleted, pa.utf8()))
        elif kind == "append":
            staged = stage_append(tables.at(self.ref), table(rows))
        elif kind == "upsert":
            staged = stage_upsert(tables.at(self.ref), table(rows))
        elif kind == "delete":
            staged = stage_delete_ids(tables.at(self.ref), pa.chunked_array([pa.array(deleted, pa.utf8())]))
        elif kind == "overwrite":
            staged, after = stage_overwrite(tables.at(self.ref), table(rows)), rows
        elif kind == "undone":
            # Recovery of an interrupted write.
            moved = stage_overwrite(tables.at(self.ref), table(rows))
            staged, after = stage_restore(tables.at(tables.commit_staged(moved)), self.ref.version), before
        elif kind == "taken back":
            # Undo one or several visible writes.
            version = sorted(self.versions)[-1 - len(written) % len(self.versions)]
            staged, after = stage_restore(tables.at(self.ref), version, visible=True), self.versions[version]
        else:
            staged = stage_indexes(tables.at(self.ref), INDEXES)
        if staged is None:
            assert after == before
            return
        if kind not in ("index", "undone", "taken back"):
            assert len(before) + staged.rows_added - staged.rows_removed == len(after)
        ids = row_ids(tables, self.ref)
        for part in staged.steps:
            self.ref = tables.commit_staged(part)
        self.model = after
        self.versions[self.ref.version] = after
        if kind not in ("overwrite", "taken back"):
            now = row_ids(tables, self.ref)
            assert all(now[name] == ids[name] for name in after if name in before), "a row lost its row id"

    def check(self) -> None:
        tables, ref = self.tables, self.ref
        assert content(tables, ref) == expected(self.model)
        assert tables.at(ref).count() == len(self.model)
        for name in NAMES:
            found = tables.at(ref).scan(columns=["id", "n"], filter=pc.field("id") == name).to_pylist()
            assert found == ([{"id": name, "n": self.model[name]}] if name in self.model else [])
        for n in set(self.model.values()):
            assert {
                row["id"] for row in tables.at(ref).scan(columns=["id"], filter=pc.field("n") == n).to_pylist()
            } == {name for name, value in self.model.items() if value == n}
            found = tables.at(ref).match("text", f"word{n}")["id"].to_pylist()
            assert sorted(found) == sorted(name for name, value in self.model.items() if value == n)

    def check_differences(self, origin: TableRef) -> None:
        """Check the written and the deleted rows between each version and the newest one."""
        for version, old in self.versions.items():
            begin = origin if version == origin.version else self.ref.at(version)
            found = self.tables.at(self.ref).changes_since(begin)
            rows = [_plain(row) for batch in found.rows.batches() for row in batch.to_pylist()]
            ids = [str(row["id"]) for row in rows]
            assert len(set(ids)) == len(ids), "a row is told once"
            differ = {name for name, n in self.model.items() if old.get(name) != n}
            assert differ <= set(ids) <= set(self.model)
            assert {row["id"]: row for row in rows} == {
                name: row for name, row in expected(self.model).items() if name in ids
            }
            assert found.deleted.to_pylist() == sorted(set(old) - set(self.model))
            touched = {name for some in self.tables.at(self.ref).touched_since(begin) for name in some.to_pylist()}
            assert differ | (set(old) - set(self.model)) <= touched
            self.check_row_ids(begin, old, differ)
            # Applied to the older version, the changes give the newer one.
            model = {name: n for name, n in old.items() if name not in set(found.deleted.to_pylist())}
            assert model | {name: self.model[name] for name in ids} == self.model

    def check_row_ids(self, begin: TableRef, old: dict[str, int], differ: set[str]) -> None:
        """The row ids of rows that may differ are right in both versions, and no other row differs."""
        shared = [(name, name) for name in SCHEMA.names]
        found = self.tables.at(self.ref).changed_row_ids(begin, shared)
        assert found is not None
        before, after = (dict(zip(*side.to_pydict().values(), strict=True)) for side in (found.before, found.after))
        assert (len(before), len(after)) == (found.before.num_rows, found.after.num_rows), "a row is told once"
        assert differ <= set(after) <= set(self.model)
        assert {name for name, n in old.items() if self.model.get(name) != n} <= set(before) <= set(old)
        assert {name: row_ids(self.tables, begin)[name] for name in before} == before
        assert {name: row_ids(self.tables, self.ref)[name] for name in after} == after
        for number in (0, 1):
            part = self.tables.at(self.ref).changed_row_ids(
                begin, [(name, name) for name in SCHEMA.names], half(number)
            )
            assert part is not None
            for side, whole in ((part.before, before), (part.after, after)):
                found_part = dict(zip(*side.to_pydict().values(), strict=True))
                assert found_part == {name: row for name, row in whole.items() if int(name[1:]) % 2 == number}
        both = set(old) & set(self.model)
        assert set(before) & both == set(after) & both, "a row that both versions have is told in both"


@pytest.mark.slow
@pytest.mark.parametrize("forked", [False, True], ids=["trunk", "fork"])
@pytest.mark.parametrize("indexed", [False, True], ids=["bare", "indexed"])
@given(steps=st.lists(Step, max_size=7), first=st.dictionaries(st.sampled_from(NAMES), st.integers(0, 9)))
@settings(max_examples=15, deadline=None)
def test_random_writes_agree_with_the_model_and_their_changes_are_found(
    forked: bool, indexed: bool, steps: list[tuple[str, list[str], list[str]]], first: dict[str, int]
) -> None:
    with tempfile.TemporaryDirectory() as place:
        tables = TableStorage(place)
        ref = tables.create("nodes/t", SCHEMA)
        if first:
            ref = commit(tables, stage_append(tables.at(ref), table(first)))
        if indexed:
            ref = commit(tables, stage_indexes(tables.at(ref), [*INDEXES, TEXT_INDEX])) if first else ref
        origin = ref
        if forked:
            ref = tables.fork(ref, "dev")
        tour = Tour(tables, ref, dict(first), {ref.version: dict(first)})
        for step in steps:
            tour.step(*step)
        tour.check()
        tour.check_differences(origin)
        if forked:
            assert content(tables, origin) == expected(first), "the trunk is as it was"
