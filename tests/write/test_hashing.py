"""Equal rows have equal digests in any layout; different rows nearly always have different ones."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.write.rows.hashing import digests
from omnigraph.write.rules.constraints import MemoryLimit, duplicate_hashes, duplicate_tuples

TEXTS = st.text(max_size=20) | st.text("ab", min_size=5, max_size=40)
VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.utf8(): TEXTS,
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float32(): st.floats(width=32, allow_nan=False, allow_infinity=False),
    pa.bool_(): st.booleans(),
    pa.date32(): st.dates(datetime.date(1900, 1, 1), datetime.date(2100, 1, 1)),
}


@st.composite
def columns(draw: st.DrawFn) -> list[pa.ChunkedArray]:
    """Some columns, cut into chunks with arbitrary offsets."""
    kinds = draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=3))
    count = draw(st.integers(0, 30))
    out = []
    for kind in kinds:
        values = draw(st.lists(VALUES[kind], min_size=count, max_size=count))
        array = pa.array([*values, *values], kind)  # each row occurs twice
        cut = draw(st.integers(0, len(array)))
        out.append(pa.chunked_array([array.slice(0, cut), array.slice(cut)], kind))
    return out


@given(columns())
def test_equal_rows_have_equal_digests(given: list[pa.ChunkedArray]) -> None:
    numbers = digests(given).tolist()
    rows = list(zip(*(column.to_pylist() for column in given), strict=True))
    known: dict[object, int] = {}
    for row, number in zip(rows, numbers, strict=True):
        # Positive and negative zero may have different digests.
        key = tuple((repr(value), str(kind)) for value, kind in zip(row, (c.type for c in given), strict=True))
        assert known.setdefault(key, number) == number
    assert len(set(known.values())) == len(known)


@given(st.lists(TEXTS, max_size=40))
def test_duplicate_tuples_agree_with_a_dictionary(texts: list[str]) -> None:
    ids = [f"e{i:02}" for i in range(len(texts))]
    holders: dict[str, list[str]] = {}
    for id_, text in zip(ids, texts, strict=True):
        holders.setdefault(text, []).append(id_)
    expected: list[dict[str, Any]] = [
        {"id": max(held), "other": min(held), "shared": {"text": text}}
        for text, held in holders.items()
        if len(held) > 1
    ]
    rows = pa.table({"id": pa.array(ids, pa.utf8()), "text": pa.array(texts, pa.utf8())})
    for memory in (MemoryLimit(), MemoryLimit(1000)):
        found = duplicate_tuples(["text"], rows, "texts", memory).to_pylist()
        assert found == sorted(expected, key=lambda row: row["other"])


def test_rows_with_colliding_digests_are_compared_by_value(monkeypatch: Any) -> None:
    monkeypatch.setattr(
        "omnigraph.write.rules.constraints.digests", lambda columns: np.zeros(len(columns[0]), np.uint64)
    )
    rows = pa.table({"id": ["a", "b", "c"], "text": ["x", "y", "x"]})
    assert duplicate_tuples(["text"], rows, "texts", MemoryLimit()).to_pylist() == [
        {"id": "c", "other": "a", "shared": {"text": "x"}}
    ]


def test_duplicate_hashes_are_found() -> None:
    numbers = np.array([5, 1, 5, 3, 1, 1], np.uint64)
    assert duplicate_hashes(numbers, "numbers", MemoryLimit()).tolist() == [1, 5]
