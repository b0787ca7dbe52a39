"""Rows are sorted by id, for any order and size of the input batches, in memory or through temporary files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.errors import StorageError
from omnigraph.read.export import ordered
from omnigraph.read.export.ordered import in_order
from omnigraph.testing import thresholds


@dataclass(frozen=True)
class Parts:
    """Rows in batches, and how often they were read."""

    batches_: list[pa.RecordBatch]

    @property
    def count(self) -> int:
        return sum(batch.num_rows for batch in self.batches_)

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        for batch in self.batches_:
            yield batch if columns is None else batch.select(list(columns))


def parts(ids: Sequence[str], cuts: Sequence[int]) -> Parts:
    rows = pa.table({"id": pa.array(ids, pa.utf8()), "size": [len(id_) for id_ in ids], "pad": ["x" * 50] * len(ids)})
    places = sorted({0, len(ids), *(cut % (len(ids) + 1) for cut in cuts)})
    pieces = [rows.slice(start, end - start).to_batches() for start, end in pairwise(places)]
    return Parts([batch for piece in pieces for batch in piece])


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), unique=True, max_size=60),
    st.lists(st.integers(0, 1000), max_size=5),
    st.sampled_from([1, 60, 400, 2000, 10**9]),
    st.integers(1, 7),
)
def test_rows_are_sorted_by_code_points_in_chunks_of_equal_size(
    ids: list[str], cuts: list[int], budget: int, rows: int
) -> None:
    with thresholds(ordered, BATCH_ROWS=rows, SAMPLE_ROWS=4, MAX_FILES=5):
        found = list(in_order(parts(ids, cuts), budget))
    table = pa.concat_tables(found).to_pydict() if found else {"id": [], "size": []}
    assert table["id"] == sorted(ids)
    assert table["size"] == [len(id_) for id_ in sorted(ids)]
    assert [piece.num_rows for piece in found[:-1]] == [rows] * (len(found) - 1)


def test_a_single_row_may_be_larger_than_the_budget() -> None:
    assert [table.num_rows for table in in_order(parts(["a" * 10_000], []), 1)] == [1]


def test_closing_the_iterator_removes_temporary_files(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path_factory.mktemp("scratch")
    monkeypatch.setattr("tempfile.tempdir", str(place))
    rows = in_order(parts([f"{number:05}" for number in range(ordered.BATCH_ROWS * 3)], range(0, 20_000, 500)), 200_000)
    next(rows)
    assert list(place.iterdir())
    rows.close()  # type: ignore[attr-defined]
    assert not list(place.iterdir())


def test_a_full_disk_is_a_storage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: str, *given: object) -> object:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pa, "OSFile", full)
    with pytest.raises(StorageError, match="No space left on device") as caught:
        list(in_order(parts(["a", "b", "c"], [1, 2]), 1))
    assert caught.value.hint
    assert "TMPDIR" in caught.value.hint
